//! What is done to many that wait or run: cancel, move, set-priority, run-now; and who is asked before.

use std::fs::File;
use std::io::Write as _;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::{Worker, producer, read_all, run, run_with, server};

fn listed(url: &str, args: &[&str]) -> Vec<Value> {
    run(url, &[&["list", "--limit", "0", "--output", "ndjson", "--quiet"], args].concat()).assert_code(0).lines()
}

#[tokio::test]
async fn waiting_tasks_are_moved_made_urgent_and_made_due_and_others_are_left_alone() {
    let server = server();
    let url = server.url();
    let mut worker = Worker::start(&url, "runs").await;
    run(&url, &["submit", "runs", "1", "--id", "running"]).assert_code(0);
    worker.claim().await;
    let lines: String = (0..200).map(|n| format!("{{\"agent\":\"a\",\"id\":\"t{n}\"}}\n")).collect();
    run_with(&url, &["submit", "--ndjson", "-"], lines.as_bytes()).assert_code(0);
    run(&url, &["submit", "a", "1", "--id", "late", "--delay", "1h"]).assert_code(0);

    let moved = run(&url, &["move", "--to", "slow", "--queue", "default", "--yes"]).assert_code(0).json();
    assert_eq!((&moved["matched"], &moved["outcomes"]), (&json!(201), &json!({"done": 201})));
    assert_eq!(listed(&url, &["--queue", "slow"]).len(), 201);
    assert_eq!(listed(&url, &["--queue", "default"])[0]["id"], "running");
    let part = run(&url, &["move", "--to", "slow", "running", "t1", "late", "nope"]).assert_code(6).json();
    assert_eq!(part["outcomes"], json!({"not_in_state": 1, "same": 2, "unknown": 1}));

    run(&url, &["set-priority", "urgent", "--queue", "slow", "--limit", "50", "--yes"]).assert_code(0);
    assert_eq!(listed(&url, &["--priority", "urgent"]).len(), 50);
    run(&url, &["set-priority", "10", "t1", "t2"]).assert_code(0);
    assert_eq!(listed(&url, &["--priority", "high"]).len(), 2);
    assert!(run(&url, &["set-priority", "hihg", "t1"]).assert_code(2).err.contains("'high'"));

    assert_eq!(run(&url, &["run-now", "--all", "--yes"]).assert_code(0).json()["matched"], 1);
    assert_eq!(run(&url, &["status", "late"]).json()["state"], "queued");
    let wrong = run(&url, &["run-now", "--state", "running", "--yes"]).assert_code(2);
    assert!(wrong.err.contains("it may be scheduled, parked"), "{wrong:?}");
}

#[tokio::test]
async fn a_cancel_over_a_filter_reaches_what_waits_and_what_runs() {
    let server = server();
    let url = server.url();
    let mut worker = Worker::start(&url, "a").await;
    run(&url, &["submit", "a", "1", "--id", "running"]).assert_code(0);
    worker.claim().await;
    for id in ["w1", "w2"] {
        run(&url, &["submit", "a", "1", "--id", id, "--tenant", "trial"]).assert_code(0);
    }
    let ndjson = run(&url, &["cancel", "--agent", "a", "--yes", "--output", "ndjson"]).assert_code(0);
    let mut outcomes: Vec<_> = ndjson.lines().iter().map(|line| line["outcome"].clone()).collect();
    outcomes.sort_unstable_by_key(ToString::to_string);
    assert_eq!(outcomes, ["done", "done", "signalled"]);
    assert!(ndjson.err.contains("2 cancelled, 1 told to stop"), "{ndjson:?}");
    let part = run(&url, &["cancel", "running", "nope"]).assert_code(6).json();
    assert_eq!(part[0], json!({"id": "running", "outcome": "signalled", "state": "running"}));
    let dry = run(&url, &["cancel", "running", "--dry-run", "--output", "table"]).assert_code(0);
    assert_eq!(dry.out, "would cancel 1 tasks\n  running\n");
    let all_unknown = run(&url, &["move", "--to", "x", "nope"]).assert_code(1);
    assert!(all_unknown.err.starts_with("error[TM-0401]"), "{all_unknown:?}");
}

#[test]
fn on_a_terminal_people_are_asked_before_all_that_match_are_changed() {
    let server = server();
    let url = server.url();
    run(&url, &["submit", "a", "1", "--id", "one"]).assert_code(0);
    for (answer, code, state) in [("n\n", 1, "queued"), ("\n", 1, "queued"), ("y\n", 0, "cancelled")] {
        let terminal = nix::pty::openpty(None, None).unwrap();
        let mut command = producer(&url, &["cancel", "--agent", "a"]);
        command.stdin(terminal.slave.try_clone().unwrap()).stderr(terminal.slave).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        // Ours of the terminal's ends, so that reading comes to an end with the child.
        drop(command);
        File::from(terminal.master.try_clone().unwrap()).write_all(answer.as_bytes()).unwrap();
        let said = read_all(File::from(terminal.master));
        assert_eq!(child.wait().unwrap().code(), Some(code), "{said}");
        assert!(said.contains("cancel 1 tasks? [y/N]"), "{said}");
        assert_eq!(said.contains("error[TM-0212]"), code == 1, "{said}");
        assert_eq!(run(&url, &["status", "one"]).json()["state"], state);
    }
}
