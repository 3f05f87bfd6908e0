//! `producer list`, and the filters that it shares with all verbs for many tasks.

use std::fs::File;
use std::process::Stdio;

use serde_json::{Value, json};
use tidemill_common::store::Verb;

use crate::support::{Worker, producer, read_all, run, run_with, server};

/// The ids of a list, sorted.
fn ids(listed: &Value) -> Vec<&str> {
    let mut ids: Vec<&str> = listed.as_array().unwrap().iter().map(|task| task["id"].as_str().unwrap()).collect();
    ids.sort_unstable();
    ids
}

#[tokio::test]
async fn each_filter_finds_its_own_and_together_they_find_what_fits_all() {
    let server = server();
    let url = server.url();
    let mut worker = Worker::start(&url, "a").await;
    let dying = run(&url, &["submit", "a", "1", "--id", "dying", "--max-attempts", "1"]).id();
    let deliveries = worker.claim().await;
    worker.settle(&deliveries, Verb::Dead { error: "no file \"x7\"\u{1b}[2J".into() }).await;
    assert_eq!(deliveries[0].id.as_str(), dying);
    run(&url, &["submit", "a", "1", "--id", "runs", "--tenant", "acme", "--key", "k"]).assert_code(0);
    worker.claim().await;
    let lines = r#"{"agent":"b","id":"waits","queue":"slow","priority":"high"}
{"agent":"b","id":"late","delay":"1h","order_key":"o","hold_on_dead":true}
{"agent":"b","id":"behind","order_key":"o"}
"#;
    run_with(&url, &["submit", "--ndjson", "-"], lines.as_bytes()).assert_code(0);

    let list = |args: &[&str]| run(&url, &[&["list"], args].concat()).assert_code(0).json();
    assert_eq!(ids(&list(&[])), ["behind", "dying", "late", "runs", "waits"]);
    for (args, found) in [
        (&["--state", "dead"][..], &["dying"][..]),
        (&["--state", "queued,scheduled", "--state", "parked"], &["behind", "late", "waits"]),
        (&["--queue", "slow"], &["waits"]),
        (&["--agent", "a"], &["dying", "runs"]),
        (&["--tenant", "acme"], &["runs"]),
        (&["--priority", "10"], &["waits"]),
        (&["--reason", "rejected"], &["dying"]),
        (&["--reason", "poison"], &[]),
        (&["--error", "no file"], &["dying"]),
        (&["--error", "other"], &[]),
        (&["--agent", "b", "--state", "parked"], &["behind"]),
        (&["--older-than", "1h"], &[]),
        (&["--older-than", "0s", "--agent", "a", "--state", "running"], &["runs"]),
    ] {
        assert_eq!(ids(&list(args)), found, "{args:?}");
    }

    let dead = &list(&["--state", "dead"])[0];
    assert_eq!((&dead["reason"], &dead["attempts"], &dead["losses"]), (&json!("rejected"), &json!(1), &json!(0)));
    assert_eq!(dead["errors"][0]["text"], dead["error"]);
    let running = &list(&["--state", "running"])[0];
    assert_eq!((&running["key"], &running["attempts"]), (&json!("k"), &json!(1)));
    assert!(running["worker"].as_str().unwrap().starts_with("test."), "{running}");
    let behind = &list(&["--state", "parked"])[0];
    assert_eq!((&behind["gate"], &behind["order_key"]), (&json!("order:o"), &json!("o")));

    let table = run(&url, &["list", "--output", "table"]).assert_code(0).out;
    assert!(table.starts_with("ID") && table.contains("due in 59m"), "{table}");
    assert!(table.contains("rejected: no file \"x7\"\\u{1b}[2J") && !table.contains('\u{1b}'), "{table}");
}

#[test]
fn a_limit_says_that_it_cut_and_an_empty_list_says_so() {
    let server = server();
    let url = server.url();
    let empty = run(&url, &["list"]).assert_code(0);
    assert!(empty.json() == json!([]) && empty.err.contains("No task matches"), "{empty:?}");
    let lines: String = (0..60).map(|n| format!("{{\"agent\":\"a\",\"id\":\"t{n}\"}}\n")).collect();
    run_with(&url, &["submit", "--ndjson", "-"], lines.as_bytes()).assert_code(0);
    let cut = run(&url, &["list", "--output", "ndjson"]).assert_code(0);
    assert_eq!(cut.lines().len(), 50);
    assert!(cut.err.contains("--limit 0"), "{cut:?}");
    let all = run(&url, &["list", "--limit", "0", "--output", "ndjson"]).assert_code(0);
    assert_eq!((all.lines().len(), all.err.as_str()), (60, ""));
    assert_eq!(run(&url, &["list", "-n", "60", "--quiet"]).assert_code(0).json().as_array().unwrap().len(), 60);
}

#[test]
fn on_a_narrow_terminal_ids_stay_whole() {
    let server = server();
    let url = server.url();
    let id = run(&url, &["submit", "a-long-name-of-an-agent", "1", "--queue", "a-long-name-of-a-queue"]).id();
    let size = nix::pty::Winsize { ws_row: 24, ws_col: 90, ws_xpixel: 0, ws_ypixel: 0 };
    let terminal = nix::pty::openpty(Some(&size), None).unwrap();
    let mut command = producer(&url, &["list"]);
    command.stdout(Stdio::from(terminal.slave));
    let mut child = command.spawn().unwrap();
    // Ours of the terminal's ends, so that reading comes to an end with the child.
    drop(command);
    let text = read_all(File::from(terminal.master));
    assert!(child.wait().unwrap().success() && text.contains(&id), "{text}");
}

#[test]
fn a_mistyped_value_is_told_with_the_nearest() {
    let server = server();
    for (args, near) in [
        (&["list", "--state", "daed"][..], "'dead'"),
        (&["list", "--reason", "posion"], "'poison'"),
        (&["list", "--priority", "urgnt"], "'urgent'"),
        (&["submit", "a", "1", "--priority", "hihg"], "'high'"),
        (&["submit", "a", "1", "--result", "kepe"], "'keep'"),
        (&["lits"], "'list'"),
        (&["queue", "--output", "jsno"], "'json'"),
    ] {
        let wrong = run(&server.url(), args).assert_code(2);
        assert!(wrong.err.contains(near), "{args:?}: {wrong:?}");
    }
    let none = run(&server.url(), &["list", "--state", "queued", "--reason", "poison"]).assert_code(2);
    assert!(none.err.contains("only the dead have a reason"), "{none:?}");
}
