//! The other verbs.

use std::fs::File;
use std::process::Stdio;

use serde_json::json;
use tidemill_common::store::Verb;

use crate::support::{Running, Worker, bare, finish, producer, read_all, run, run_with, server};

#[test]
fn an_empty_queue_shows_how_to_begin_and_a_watch_goes_on() {
    let server = server();
    let url = server.url();
    let empty = run(&url, &["queue", "--output", "table"]).assert_code(0);
    assert!(empty.out.contains("producer submit echo '{\"hi\":\"there\"}' --wait"), "{empty:?}");
    run(&url, &["submit", "a", "1", "--priority", "10"]).assert_code(0);
    run(&url, &["submit", "a", "1", "--delay", "1h"]).assert_code(0);
    let counts = run(&url, &["queue"]).json();
    assert_eq!((&counts["scheduled"], &counts["running"], &counts["workers"]), (&json!(1), &json!(0), &json!(0)));
    assert_eq!(
        counts["queues"],
        json!([{"name": "default", "urgent": 0, "high": 1, "normal": 1, "low": 0, "waiting": 2, "paused": false}])
    );
    let table = run(&url, &["queue", "--output", "table"]).out;
    assert!(table.starts_with("QUEUE") && table.contains("default"), "{table}");

    let watch = Running::start(producer(&url, &["queue", "--watch=100ms", "--output", "ndjson"]));
    for _ in 0..3 {
        assert!(watch.out_line().contains("\"scheduled\":1"));
    }
    watch.interrupt();
    watch.end().assert_code(130);
}

#[test]
fn status_and_cancel_take_ids_from_stdin_and_tell_what_they_found() {
    let server = server();
    let url = server.url();
    let ids: Vec<String> = (0..3).map(|_| run(&url, &["submit", "a", "1"]).id()).collect();
    let input = format!("{}\n\n  {}\r\n", ids[0], ids[1]);
    let seen = run_with(&url, &["status", "-", &ids[2], "--output", "ndjson"], input.as_bytes()).assert_code(0).lines();
    assert_eq!(seen.iter().map(|s| s["id"].as_str().unwrap()).collect::<Vec<_>>(), ids);
    let done = run_with(&url, &["cancel", "-"], input.as_bytes()).assert_code(0).json();
    assert_eq!(done[0], json!({"id": ids[0], "outcome": "cancelled", "state": "queued"}));
    assert_eq!(run(&url, &["cancel", &ids[0]]).assert_code(0).json()["outcome"], "ended");
    assert_eq!(run(&url, &["cancel", "nope"]).assert_code(1).json()["outcome"], "unknown");
    run(&url, &["status", "nope"]).assert_code(1);
    run(&url, &["status", "a:b"]).assert_code(2);
    run_with(&url, &["status", "-"], b"\n").assert_code(2);
    run(&url, &["status"]).assert_code(2);
}

#[tokio::test]
async fn explain_names_the_gate_and_what_it_means() {
    let server = server();
    let url = server.url();
    let mut worker = Worker::start(&url, "a").await;
    let words = |id: &str| run(&url, &["explain", id]).assert_code(0).json()["words"].to_string();

    let unwanted = run(&url, &["submit", "b", "1"]).id();
    assert!(words(&unwanted).contains("next worker"), "{}", words(&unwanted));
    worker.claim().await;
    assert!(words(&unwanted).contains("no worker that asked for work runs agent b"), "{}", words(&unwanted));

    let first = run(&url, &["submit", "a", "1", "--order-key", "{k}"]).id();
    let behind = run(&url, &["submit", "a", "1", "--order-key", "{k}"]).id();
    assert!(words(&behind).contains("order key") && words(&behind).contains("{k}"), "{}", words(&behind));
    let deliveries = worker.claim().await;
    assert_eq!(deliveries[0].id.as_str(), first);
    assert!(words(&first).contains("has run it for"), "{}", words(&first));
    let retry = Verb::Retry { error: "boom".into(), after_ms: 3_600_000 };
    worker.settle(&deliveries, retry).await;
    assert!(words(&first).contains("tried again in") && words(&first).contains("boom"), "{}", words(&first));
    let status = run(&url, &["status", &first]).json();
    assert!(status["due_ms"].as_u64() > status["errors"][0]["at_ms"].as_u64(), "{status}");
    let table = run(&url, &["status", &first, "--output", "table"]).out;
    assert!(table.contains("tried again in 59m"), "{table}");

    run_with(&url, &["book", "apply", "-"], b"revision = 1\n[[limit]]\nmatch = { agent = \"a\" }\nslots = 1\n")
        .assert_code(0);
    let (one, two) = (run(&url, &["submit", "a", "1"]).id(), run(&url, &["submit", "a", "1"]).id());
    let deliveries = worker.claim().await;
    assert_eq!(deliveries[0].id.as_str(), one);
    assert!(words(&two).contains("all slots of the rule for agent a"), "{}", words(&two));
    let said = words(&two);
    for part in ["The rule allows one at once.", "It is the first of 1 in line.", &format!("1 in use, by {one}.")] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    let top = run(&url, &["book", "top"]).assert_code(0).json();
    assert_eq!((&top[0]["gate"], &top[0]["waiting"], &top[0]["in_use"]), (&json!("s/a/a"), &json!(1), &json!(1)));
    assert_eq!(top[0]["words"], "slots of agent a");
    assert!(run(&url, &["explain", "nope"]).assert_code(1).out.contains("Nothing is known"));
}

#[tokio::test]
async fn doctor_tells_a_server_without_workers_from_a_well_one() {
    let server = server();
    let url = server.url();
    assert_eq!(run(&url, &["doctor"]).assert_code(0).json()["ok"], true);
    run(&url, &["submit", "a", "1"]).assert_code(0);
    let report = run(&url, &["doctor", "--output", "table"]).assert_code(1);
    assert!(report.out.contains("none is alive, and 1 tasks wait"), "{report:?}");
    let _worker = Worker::start(&url, "a").await;
    run(&url, &["doctor"]).assert_code(0);
}

#[tokio::test]
async fn doctor_finds_what_nobody_runs_held_order_keys_and_full_queues() {
    let server = server();
    let url = server.url();
    let mut worker = Worker::start(&url, "a").await;
    let verdicts = || {
        let report = run(&url, &["doctor"]).assert_code(0).json();
        let checks = report["checks"].as_array().unwrap().clone();
        move |name: &str| {
            let check = checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("{checks:?}"));
            (
                check["verdict"].as_str().unwrap().to_owned(),
                check["text"].as_str().unwrap().to_owned(),
                check["advice"].clone(),
            )
        }
    };
    for name in ["clocks", "workers", "room", "reclaim", "agents", "queues", "order keys"] {
        assert_eq!(verdicts()(name).0, "ok", "{name}");
    }
    run(&url, &["submit", "a", "1", "--id", "head", "--order-key", "o", "--hold-on-dead"]).assert_code(0);
    run(&url, &["submit", "a", "1", "--order-key", "o"]).assert_code(0);
    worker.kill_all(|_| "no".into()).await;
    run(&url, &["submit", "nobody", "1", "--queue", "lonely"]).assert_code(0);
    worker.claim().await;
    let check = verdicts();
    for (name, part) in
        [("agents", "nobody (1 tasks)"), ("queues", "lonely"), ("order keys", "head"), ("dead", "1 kept")]
    {
        let (verdict, text, advice) = check(name);
        assert!(verdict == "warn" && text.contains(part) && advice.is_string(), "{name}: {text}");
    }
    let mut command = producer(&url, &["doctor"]);
    command.env("TIDEMILL__SUBMIT__WAITING_MAX", "1");
    assert!(finish(command).assert_code(0).out.contains("of 1 that it may have"));
}

#[tokio::test]
async fn doctor_tells_what_a_server_keeps_its_memory_and_what_is_paused() {
    let kept = crate::support::server_with(
        tidemill_embedded::Options::new().storage(tidemill_embedded::Storage::Temporary).config_line("maxmemory 64mb"),
    );
    run(&kept.url(), &["pause", "--queue", "slow", "--for", "1h"]).assert_code(0);
    let checks = |url: &str| {
        let report = run(url, &["doctor"]).assert_code(0).json();
        move |name: &str| {
            let checks = report["checks"].as_array().unwrap();
            let found =
                checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("no {name}: {checks:?}"));
            (found["verdict"].as_str().unwrap().to_owned(), found["text"].as_str().unwrap().to_owned())
        }
    };
    let check = checks(&kept.url());
    for (name, part) in [
        ("persistence", "append-only file (appendfsync"),
        ("memory", "% of its bound of 64 MiB"),
        ("role", "primary, without replicas"),
        ("last save", "no snapshot has failed"),
        ("pauses", "queue slow for 59m"),
        ("clocks", "ms apart"),
    ] {
        let (verdict, text) = check(name);
        assert!(verdict == "ok" && text.contains(part), "{name}: {verdict}: {text}");
    }
    let bare = server();
    let check = checks(&bare.url());
    assert!(check("persistence") == ("warn".into(), "none: neither an append-only file nor snapshots".into()));
    assert!(check("memory").0 == "warn" && check("memory").1.contains("no bound"));
}

#[test]
fn a_server_that_evicts_is_told_by_doctor() {
    let server =
        crate::support::server_with(tidemill_embedded::Options::new().config_line("maxmemory-policy allkeys-lru"));
    let report = run(&server.url(), &["doctor"]).assert_code(1);
    assert!(report.out.contains("noeviction"), "{report:?}");
    let refused = run(&server.url(), &["submit", "a", "1"]).assert_code(1);
    assert!(refused.err.contains("noeviction"), "{refused:?}");
}

#[test]
fn help_completions_and_near_misses() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let mut command = bare();
        command.args(["completions", shell]);
        assert!(finish(command).assert_code(0).out.contains("producer"), "{shell}");
    }
    let with = |args: &[&str]| {
        let mut command = bare();
        command.args(args);
        finish(command)
    };
    let help = with(&["--help"]).assert_code(0).out;
    assert!(help.starts_with("Examples:") && help.contains("TIDEMILL__REDIS__URL") && help.contains("130"), "{help}");
    let short = with(&["-h"]).assert_code(0).out;
    assert!(short.lines().count() < 44, "{short}");
    assert!(with(&["sumbit"]).assert_code(2).err.contains("'submit'"));
    assert!(with(&["submit", "a", "1", "--prioritty", "low"]).assert_code(2).err.contains("--priority"));
    with(&[]).assert_code(2);
    assert!(with(&["--version"]).assert_code(0).out.starts_with("producer "));
}

/// The verbs that a help text lists.
fn verbs_of(help: &str) -> Vec<String> {
    let list = help.split("Commands:\n").nth(1).unwrap_or_default().split("\n\n").next().unwrap_or_default();
    let verbs = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    verbs.filter_map(|line| line.split_whitespace().next()).filter(|verb| *verb != "help").map(str::to_owned).collect()
}

#[test]
fn every_verb_has_examples_first_and_a_manual_page() {
    let dir = tempfile::tempdir().unwrap();
    let with = |args: &[&str]| {
        let mut command = bare();
        command.args(args);
        finish(command).assert_code(0).out
    };
    assert_eq!(with(&["man", "--dir", dir.path().to_str().unwrap()]), "");
    let page = |name: &str| std::fs::read_to_string(dir.path().join(format!("{name}.1"))).unwrap_or_default();
    let mut all = vec![];
    for verb in verbs_of(&with(&["-h"])) {
        all.extend(verbs_of(&with(&[&verb, "-h"])).into_iter().map(|below| vec![verb.clone(), below]));
        all.push(vec![verb]);
    }
    assert!(all.len() > 24, "{all:?}");
    for words in all {
        let args: Vec<&str> = words.iter().map(String::as_str).chain(["--help"]).collect();
        let help = with(&args);
        assert!(help.starts_with("Examples:\n  "), "{words:?}: {help}");
        let named = help.contains(&format!("  producer {}", words.join(" "))) || help.contains("| producer ");
        assert!(named, "the examples of {words:?} show others");
        let page = page(&format!("producer-{}", words.join("-")));
        assert!(page.contains(".TH") && page.contains(".SH EXAMPLES"), "{words:?}: {page}");
    }
    assert!(page("producer").contains("producer\\-list"), "{}", page("producer"));
    let whole = with(&["man"]);
    assert!(whole.contains("producer\\-dead\\-groups") && whole.matches(".TH ").count() > 24);
}

#[test]
fn a_terminal_without_data_gets_help_and_no_wait() {
    let server = server();
    for args in
        [&["submit", "a", "-"][..], &["submit", "a", "--ndjson", "-"], &["status", "-"], &["book", "apply", "-"]]
    {
        let terminal = nix::pty::openpty(None, None).unwrap();
        let mut command = producer(&server.url(), args);
        command.stdin(Stdio::from(terminal.slave)).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = command.spawn().unwrap().wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("Usage: ") && said.contains("terminal"), "{said}");
    }
}

#[test]
fn a_terminal_gets_tables_in_colour_unless_it_does_not_want_them() {
    let server = server();
    let id = run(&server.url(), &["submit", "a", "1"]).id();
    let shown = |name: &str, value: &str, args: &[&str]| {
        let terminal = nix::pty::openpty(None, None).unwrap();
        let mut command = producer(&server.url(), &[&["status", &id], args].concat());
        command.env_remove("NO_COLOR").env("TERM", "xterm").env(name, value).stdout(Stdio::from(terminal.slave));
        let mut child = command.spawn().unwrap();
        // Ours of the terminal's ends, so that reading comes to an end with the child.
        drop(command);
        let text = read_all(File::from(terminal.master));
        assert!(child.wait().unwrap().success());
        text
    };
    assert!(shown("X", "1", &[]).contains("\u{1b}["));
    let plain = shown("NO_COLOR", "1", &[]);
    assert!(plain.contains("STATE") && !plain.contains('\u{1b}'), "{plain}");
    assert!(!shown("X", "1", &["--color", "never"]).contains('\u{1b}'));
    assert!(shown("NO_COLOR", "1", &["--color=always"]).contains('\u{1b}'));
}

#[test]
fn doctor_repairs_counts_and_marks_and_touches_no_task() {
    let server = server();
    let url = server.url();
    for priority in ["low", "high", "high"] {
        run(&url, &["submit", "a", "1", "--priority", priority]).assert_code(0);
    }
    run(&url, &["submit", "a", "1", "--delay", "1h"]).assert_code(0);
    let key = |tail: &str| tidemill_common::keys::Base::new(0).key(tail);
    server.command(&["DEL", &key("live:10")]).unwrap();
    server.command(&["HSET", &key("n"), "w:10:default", "7", "w:5:gone", "3"]).unwrap();
    let said = |args: &[&str]| {
        let checks = run(&url, args).json();
        let all = checks["checks"].as_array().unwrap();
        all.iter().find(|c| c["name"] == "repair").map(|c| c["text"].as_str().unwrap().to_owned())
    };
    assert_eq!(said(&["doctor"]), None, "unasked it changes nothing");
    let repaired = said(&["doctor", "--repair"]).unwrap();
    assert!(repaired.starts_with("2 counts were wrong") && repaired.contains("1 streams were not"), "{repaired}");
    let again = said(&["doctor", "--repair"]).unwrap();
    assert!(again.starts_with("the counts are right") && again.contains("0 streams"), "{again}");
    let waiting = run(&url, &["list", "--output", "ndjson"]).out.lines().count();
    assert_eq!(waiting, 4);
}
