use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::{Loader, Mistakes, Origin, duration, list};

const DEFAULTS: &str = r#"
[redis]
url = "redis://127.0.0.1:6379"
shard = 0
[worker]
concurrency = 16
grace = "25s"
order = "weighted"
durable = false
agents = []
[agents.echo]
kind = "echo"
"#;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    redis: Redis,
    worker: Worker,
    agents: BTreeMap<crate::name::AgentName, Agent>,
}
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Redis {
    url: String,
    shard: u16,
}
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Worker {
    concurrency: u32,
    #[serde(with = "duration")]
    grace: Duration,
    #[serde(default, with = "duration::optional")]
    lease: Option<Duration>,
    order: Order,
    durable: bool,
    #[serde(with = "list")]
    agents: Vec<String>,
}
#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Order {
    Weighted,
    Strict,
}
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Agent {
    kind: String,
    #[serde(default, with = "duration::optional")]
    timeout: Option<Duration>,
    #[serde(default)]
    command: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

fn loader() -> Loader {
    let mask = |url: &str| url.split_once('@').map_or_else(|| url.to_owned(), |(_, rest)| format!("redis://{rest}"));
    Loader::new(DEFAULTS).secret("redis.url", mask).secret("agents.*.env.*", |_| "***".into())
}

fn env(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

fn wrong(loader: Loader) -> Vec<String> {
    let Mistakes(lines) = loader.load(|_: &Settings| Vec::new()).unwrap_err();
    lines
}

fn written(name: &str, text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    std::fs::write(&path, text).unwrap();
    (dir, path)
}

#[test]
fn later_layers_win_and_each_value_knows_its_origin() {
    let (_dir, file) = written(
        "w.toml",
        "[worker]\nconcurrency = 4\norder = \"strict\"\ngrace = \"5s\"\n[agents.\"gpt-4.1\"]\nkind = \"x\"\ntimeout = \"2m\"\n",
    );
    let loaded = loader()
        .file(&file)
        .env(env(&[
            ("TIDEMILL__WORKER__CONCURRENCY", "8"),
            ("TIDEMILL__WORKER__GRACE", "7s"),
            ("TIDEMILL__WORKER__ORDER", ""),
        ]))
        .flag("--concurrency", "worker.concurrency", Some("9".into()))
        .flag("--order", "worker.order", None)
        .load(|_: &Settings| Vec::new())
        .unwrap();
    assert_eq!(loaded.value.worker.concurrency, 9);
    assert_eq!(loaded.value.worker.grace, Duration::from_secs(7));
    assert_eq!(loaded.value.worker.order, Order::Strict);
    assert_eq!(loaded.value.worker.lease, None);
    assert_eq!(loaded.value.agents[&"gpt-4.1".parse().unwrap()].timeout, Some(Duration::from_secs(120)));
    assert!(loaded.value.agents.values().all(|a| a.command.is_empty()));
    assert_eq!(*loaded.origin("worker.concurrency"), Origin::Flag("--concurrency"));
    assert_eq!(*loaded.origin("worker.grace"), Origin::Env("TIDEMILL__WORKER__GRACE".into()));
    assert_eq!(*loaded.origin("worker.order"), Origin::File(file.clone()));
    assert_eq!(*loaded.origin("redis.shard"), Origin::Default);
    assert_eq!(*loaded.origin("agents.\"gpt-4.1\".timeout"), Origin::File(file));
    let shown = loaded.show(true);
    assert!(shown.contains("worker.concurrency = \"9\"") && shown.contains("# flag --concurrency"), "{shown}");
    assert!(loaded.show(false).parse::<toml::Table>().is_ok(), "what is shown is TOML");
}

#[test]
fn text_from_the_environment_stays_text_unless_a_number_is_wanted() {
    let loaded = loader()
        .env(env(&[
            ("TIDEMILL__REDIS__URL", "0123"),
            ("TIDEMILL__AGENTS__A__KIND", "1e5"),
            ("TIDEMILL__WORKER__DURABLE", "yes"),
            ("TIDEMILL__REDIS__SHARD", "3"),
            ("TIDEMILL__WORKER__AGENTS", "echo, gpt-4.1,"),
            ("TIDEMILL_LOG", "debug"),
            ("OTHER__X", "1"),
        ]))
        .load(|_: &Settings| Vec::new())
        .unwrap();
    assert_eq!(loaded.value.redis.url, "0123");
    assert_eq!(loaded.value.agents[&"a".parse().unwrap()].kind, "1e5");
    assert!(loaded.value.worker.durable);
    assert_eq!(loaded.value.redis.shard, 3);
    assert_eq!(loaded.value.worker.agents, ["echo", "gpt-4.1"]);
}

#[test]
fn all_mistakes_are_told_at_once() {
    let (_dir, file) = written(
        "w.toml",
        "[redis]\nurll = \"x\"\nshard = 70000\n[worker]\ngrace = \"30 parsecs\"\norder = \"wieghted\"\n[agents.words]\ncommand = [\"a\", 5]\n[agents.\"a b\"]\nkind = \"echo\"\n",
    );
    let pairs = env(&[("TIDEMILL__WORKER__CONCURRENCY", "many"), ("TIDEMILL__WORKER__DURABLE", "perhaps")]);
    let loading = loader().file(&file).env(pairs);
    let Mistakes(lines) =
        loading.load(|s: &Settings| vec![format!("checked with {}", s.worker.concurrency)]).unwrap_err();
    let all = lines.join("\n");
    for part in [
        "redis.urll: unknown key; did you mean `url`? (file ",
        "redis.shard: must be a whole number from 0 to 65535, not integer `70000`",
        "worker.grace: \"30 parsecs\" is no duration",
        "worker.order: \"wieghted\" is not one of weighted, strict; did you mean `weighted`?",
        "worker.concurrency: \"many\" is no whole number (env TIDEMILL__WORKER__CONCURRENCY)",
        "worker.durable: \"perhaps\" is neither true nor false",
        "agents.words.command[1]: must be text, not integer `5` (file ",
        "agents.words: `kind` is missing",
        "agents.\"a b\": agent name contains ' '",
        "checked with 16",
    ] {
        assert!(all.contains(part), "{part} is missing in:\n{all}");
    }
    assert_eq!(lines.len(), 10, "{all}");
}

#[test]
fn a_broken_file_hides_no_other_mistake_and_shows_no_secret() {
    let (_dir, file) = written("w.toml", "[redis]\nurl = \"redis://:secret@h\n");
    let lines = wrong(loader().file(&file).env(env(&[("TIDEMILL__REDIS__SHARD", "x")])));
    assert!(lines[0].contains("line 2 is not TOML"), "{lines:?}");
    assert!(lines.iter().any(|l| l.contains("redis.shard")), "{lines:?}");
    assert!(!lines.concat().contains("secret"), "{lines:?}");
    let missing = wrong(loader().file(std::path::Path::new("/nowhere/w.toml")));
    assert!(missing[0].contains("/nowhere/w.toml: cannot be opened"), "{missing:?}");
}

#[test]
fn secrets_come_from_files_and_are_masked() {
    let (_dir, secret) = written("url", "redis://:hush@h:1\n");
    let path = secret.to_str().unwrap();
    let pairs = env(&[("TIDEMILL__REDIS__URL_FILE", path), ("TIDEMILL__AGENTS__ECHO__ENV__TOKEN", "hush too")]);
    let loaded = loader().env(pairs).load(|_: &Settings| Vec::new()).unwrap();
    assert_eq!(loaded.value.redis.url, "redis://:hush@h:1");
    assert_eq!(*loaded.origin("redis.url"), Origin::Env("TIDEMILL__REDIS__URL_FILE".into()));
    assert_eq!(loaded.value.agents[&"echo".parse().unwrap()].env["token"], "hush too");
    assert!(!loaded.show(true).contains("hush"), "{}", loaded.show(true));

    let (_dir, file) = written("w.toml", &format!("[redis]\nurl_file = \"{path}\"\n"));
    let loaded = loader().file(&file).load(|_: &Settings| Vec::new()).unwrap();
    assert_eq!(loaded.value.redis.url, "redis://:hush@h:1");
    assert_eq!(*loaded.origin("redis.url"), Origin::File(file));

    let gone = wrong(loader().env(env(&[("TIDEMILL__REDIS__URL_FILE", "/nowhere/url")])));
    assert!(gone[0].starts_with("redis.url_file: /nowhere/url cannot be opened"), "{gone:?}");
    let twice = wrong(loader().env(env(&[("TIDEMILL__REDIS__URL_FILE", path), ("TIDEMILL__REDIS__URL", "x")])));
    assert!(twice[0].contains("give one"), "{twice:?}");
    let no_secret = wrong(loader().env(env(&[("TIDEMILL__WORKER__ORDER_FILE", path)])));
    assert!(no_secret[0].contains("worker.order_file: unknown key"), "{no_secret:?}");
}

#[test]
fn service_links_of_kubernetes_are_passed_over_and_our_own_slips_are_not() {
    let links = env(&[
        ("TIDEMILL__REDIS_PORT", "tcp://10.0.0.1:6379"),
        ("TIDEMILL__REDIS_SERVICE_HOST", "10.0.0.1"),
        ("TIDEMILL__REDIS_SERVICE_PORT", "6379"),
        ("TIDEMILL__REDIS_PORT_6379_TCP_ADDR", "10.0.0.1"),
        ("TIDEMILL_PORT", "tcp://10.0.0.1:80"),
    ]);
    assert!(loader().env(links).load(|_: &Settings| Vec::new()).is_ok());
    let slip = wrong(loader().env(env(&[("TIDEMILL__WORKER__PORT", "9464")])));
    assert!(slip[0].starts_with("worker.port: unknown key"), "{slip:?}");
}

#[test]
fn a_value_where_a_table_belongs_is_one_mistake() {
    let lines = wrong(loader().env(env(&[("TIDEMILL__REDIS", "redis://:hush@h")])));
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0], "redis: is not of the right form (env TIDEMILL__REDIS)");
}

#[test]
fn found_values_stand_between_defaults_and_files() {
    let (_dir, file) = written("w.toml", "[redis]\nurl = \"redis://file\"\n");
    let found = || loader().found("/x/redis.url".into(), "redis.url", "redis://found");
    assert_eq!(found().load(|s: &Settings| vec![s.redis.url.clone()]).unwrap_err().0, ["redis://found"]);
    assert_eq!(found().file(&file).load(|_: &Settings| Vec::new()).unwrap().value.redis.url, "redis://file");
}
