use std::path::Path;

use tidemill_common::config::{Loaded, Loader, Mistakes, Origin};
use tidemill_worker::Options;

use super::{Config, DEFAULTS, load, loader};

fn env(pairs: &[(&str, &str)]) -> Result<Loaded<Config>, Mistakes> {
    load(loader(None).env(pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))))
}

fn file(text: &str) -> Result<Loaded<Config>, Mistakes> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("worker.toml");
    std::fs::write(&path, text).unwrap();
    load(loader(None).file(&path))
}

#[test]
fn the_defaults_are_the_librarys() {
    let loaded = env(&[]).unwrap();
    let name = loaded.value.options().name;
    assert_eq!(loaded.value.options(), Options { name, ..Options::default() });
    assert_eq!(loaded.value.redis, tidemill_common::store::RedisOptions::default());
    assert_eq!(loaded.value.payloads, tidemill_worker::payloads::config::Section::default());
    assert_eq!(loaded.value.agent_names(), ["echo", "fail", "noop", "sleep"]);
    assert!(loaded.origins.values().all(|o| *o == Origin::Default));
}

#[test]
fn every_key_is_documented_and_every_documented_line_reads() {
    // What is commented out is an example of a whole section: without its marks it must be right too.
    let from = DEFAULTS.find("# [agents.words]").unwrap();
    let keys = DEFAULTS[from..].lines().map(|line| line.trim_start_matches("# "));
    let example: String = keys.filter(|l| l.starts_with('[') || l.contains(" = ")).map(|l| format!("{l}\n")).collect();
    let example = example.replace("/srv/words", "/");
    let loaded = file(&example).unwrap();
    let names = loaded.value.agent_names();
    assert!(names.contains(&"words") && names.contains(&"remote"), "{names:?}");
    for key in [
        "profile",
        "lease",
        "renew",
        "sweep",
        "enabled",
        "allow_abort",
        "url_file",
        "ready_within",
        "slots",
        "call_timeout",
        "allow_private",
    ] {
        assert!(DEFAULTS.contains(key), "{key}");
    }
}

#[test]
fn a_profile_gives_times_and_each_may_be_set_by_itself() {
    let fast =
        env(&[("TIDEMILL__WORKER__PROFILE", "fast"), ("TIDEMILL__WORKER__SWEEP", "250ms")]).unwrap().value.options();
    assert_eq!((fast.lease.as_millis(), fast.renew.as_millis(), fast.sweep.as_millis()), (3_000, 750, 250));
}

#[test]
fn what_does_not_fit_together_is_told_at_once() {
    let Mistakes(wrong) = file(
        r#"
        [redis]
        url = "http://:secret@db"
        [worker]
        lease = "2s"
        agents = ["ecko"]
        [admin]
        listen = "9464"
        [agents.words]
        kind = "process"
        concurrency = 0
        [agents.other]
        kind = "process"
        command = ["/no/such/program"]
        [agents.echo]
        command = ["x"]
        url = "http://x/"
        [agents.single]
        kind = "process"
        mode = "once"
        command = ["sh"]
        slots = 2
        [agents.remote]
        kind = "http"
        [agents.inside]
        kind = "http"
        url = "http://me:hush@169.254.169.254/"
        timeout = "10s"
        call_timeout = "11s"
        connect_timeout = "12s"
        response_bytes_max = 0
        allow_private = ["ten"]
        headers = { Tidemill-Fence = "1" }
        [agents.near]
        kind = "http"
        url = "http://127.1/"
        timeout = "1s"
        connect_timeout = "2s"
        "#,
    )
    .unwrap_err();
    let all = wrong.join("\n");
    for part in [
        "redis.url: http://db is no URL of a server; forms: redis://host:port, ",
        "worker.renew is 2.5s; it must be at least 50 ms and at most a third of the lease (2s)",
        "worker.agents: there is no agent `ecko`; did you mean `echo`?",
        "worker.agents: no agent is left to run",
        "admin.listen: \"9464\" is no address",
        "agents.words.concurrency: must be at least 1",
        "agents.words.command: is missing",
        "agents.other.command: \"/no/such/program\" is no program",
        "agents.echo.command: is only for kind = \"process\"",
        "agents.echo.url: is only for kind = \"http\"",
        "agents.single.slots: is only for mode = \"serve\"",
        "agents.remote.url: is missing",
        "agents.inside.url: holds a user or password",
        "agents.inside.headers.Tidemill-Fence: is set by the worker itself",
        "agents.inside.connect_timeout: 12s is more than call_timeout, 11s",
        "agents.inside.call_timeout: 11s is more than the agent's timeout, 10s",
        "agents.inside.response_bytes_max: must be 1 to 1048576",
        "agents.inside.allow_private: \"ten\" is neither a network",
        "agents.near.url: refused: 127.0.0.1 is a loopback address",
        "agents.near.connect_timeout: 2s is more than the agent's timeout, 1s",
    ] {
        assert!(all.contains(part), "{part} is missing in:\n{all}");
    }
    assert!(!all.contains("secret") && !all.contains("hush"), "{all}");
}

#[test]
fn a_child_that_may_need_longer_than_a_run_is_refused() {
    let section = |ready: &str| {
        format!("[agents.late]\nkind = \"process\"\ncommand = [\"sh\"]\ntimeout = \"10s\"\nready_within = {ready:?}\n")
    };
    assert!(file(&section("10s")).is_ok());
    let Mistakes(wrong) = file(&section("20s")).unwrap_err();
    assert_eq!(wrong, ["agents.late.ready_within: 20s is more than the agent's timeout, 10s, of which it is a part"]);
}

#[test]
fn agents_are_chosen_and_switched_off() {
    let chosen =
        env(&[("TIDEMILL__WORKER__AGENTS", "noop, echo"), ("TIDEMILL__AGENTS__ECHO__ENABLED", "false")]).unwrap();
    assert_eq!(chosen.value.agent_names(), ["noop"]);
}

#[test]
fn secrets_are_masked_when_shown() {
    let loaded = file(
        "[redis]\nurl = \"redis://me:hush@db:6379/1\"\n[agents.echo]\nkind = \"process\"\ncommand = [\"sh\"]\nenv = { KEY = \"hush\" }\n",
    );
    let shown = loaded.unwrap().show(true);
    assert!(!shown.contains("hush") && shown.contains("redis.url = \"redis://db:6379/1\""), "{shown}");
    assert!(shown.contains("agents.echo.env.KEY = \"***\""), "{shown}");
}

#[test]
fn headers_come_from_files_and_are_masked() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "Bearer hush\n").unwrap();
    let headers = format!("headers = {{ Authorization_file = {token:?}, X-Team = \"hush too\" }}");
    let loaded = file(&format!("[agents.remote]\nkind = \"http\"\nurl = \"https://agents.example/\"\n{headers}\n"));
    let shown = loaded.unwrap().show(true);
    assert!(shown.contains("agents.remote.headers.Authorization = \"***\"") && !shown.contains("hush"), "{shown}");
}

#[test]
fn the_default_wait_for_a_connection_fits_any_call() {
    file("[agents.remote]\nkind = \"http\"\nurl = \"https://agents.example/\"\ntimeout = \"500ms\"\n").unwrap();
    let Mistakes(wrong) =
        file("[agents.a]\nkind = \"http\"\nurl = \"https://a.example/\"\ncall_timeout = \"0s\"\n").unwrap_err();
    assert!(wrong.join("\n").contains("agents.a.call_timeout: must be above zero"), "{wrong:?}");
}

#[test]
fn an_http_agent_may_stand_in_the_environment_alone() {
    let set = [("KIND", "http"), ("URL", "http://a.internal:81/"), ("ALLOW_PRIVATE", "10.0.0.0/8, a.internal:81")];
    let names = set.map(|(key, value)| (format!("TIDEMILL__AGENTS__FAR__{key}"), value));
    let pairs: Vec<(&str, &str)> = names.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    assert!(env(&pairs).unwrap().value.agent_names().contains(&"far"));
}

#[test]
fn a_development_server_that_is_gone_is_not_found() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join("dev")).unwrap();
    std::fs::write(home.path().join("dev/redis.url"), "redis+unix:///gone").unwrap();
    let read = |loader: Loader| load(loader).unwrap().value.redis.url;
    assert_eq!(read(loader(Some(home.path()))), "redis://127.0.0.1:6379");
    assert_eq!(read(loader(Some(Path::new("/nowhere")))), "redis://127.0.0.1:6379");
}
