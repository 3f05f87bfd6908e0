//! `producer dead`: groups, one of them, replay, purge, skip.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tidemill_common::store::Verb;

use crate::support::{Running, Worker, producer, read_all, run, run_with, server};

/// Hands in so many tasks for an agent, named after their numbers.
fn submit(url: &str, agent: &str, count: usize) {
    let line = |n| format!("{{\"agent\":\"{agent}\",\"id\":\"{agent}-{n}\",\"payload\":{{\"n\":{n}}}}}\n");
    let lines: String = (0..count).map(line).collect();
    run_with(url, &["submit", "--ndjson", "-"], lines.as_bytes()).assert_code(0);
}

#[tokio::test]
async fn groups_put_like_errors_together_and_their_command_replays_just_them() {
    let server = server();
    let url = server.url();
    let empty = run(&url, &["dead", "groups", "--output", "table"]).assert_code(0);
    assert!(empty.out.contains("Nothing is dead"), "{empty:?}");
    let (mut a, mut b) = (Worker::start(&url, "a").await, Worker::start(&url, "b").await);
    submit(&url, "a", 5);
    submit(&url, "b", 1);
    a.kill_all(|d| {
        let n: u32 = d.id.as_str()[2..].parse().unwrap();
        if n < 3 { format!("timeout after {}ms for 'job {n}'", n * 70) } else { "out of credit".into() }
    })
    .await;
    b.kill_all(|_| "out of credit".into()).await;

    let groups = run(&url, &["dead", "groups"]).assert_code(0).json();
    let counts: Vec<u64> = groups.as_array().unwrap().iter().map(|group| group["count"].as_u64().unwrap()).collect();
    assert_eq!(counts, [3, 2, 1], "{groups}");
    let first = &groups[0];
    assert_eq!((&first["agent"], &first["reason"]), (&json!("a"), &json!("rejected")));
    assert_eq!(first["error"], "timeout after #ms for \"…\"");
    assert_eq!(run(&url, &["dead", "groups", "--agent", "b", "--output", "ndjson"]).lines().len(), 1);
    let table = run(&url, &["dead", "groups", "--output", "table"]).assert_code(0);
    assert!(table.out.starts_with("GROUP") && table.err.contains("producer dead replay --group"), "{table:?}");

    let command = first["replay"].as_str().unwrap();
    let args: Vec<&str> = command.split(' ').skip(1).collect();
    let listed = run(&url, &[&["dead", "list"], &args[2..]].concat()).assert_code(0).json();
    assert_eq!(listed.as_array().unwrap().len(), 3);
    let refused = run(&url, &args).assert_code(2);
    assert!(refused.err.starts_with("error[TM-0208]") && refused.err.contains("replay 3 tasks"), "{refused:?}");
    let dry = run(&url, &[&args[..], &["--dry-run"]].concat()).assert_code(0).json();
    assert_eq!((&dry["matched"], dry["ids"].as_array().unwrap().len()), (&json!(3), 3));
    let done = run(&url, &[&args[..], &["--yes"]].concat()).assert_code(0).json();
    assert_eq!((&done["good"], &done["outcomes"]), (&json!(3), &json!({"done": 3})));
    assert_eq!(run(&url, &["dead", "list"]).json().as_array().unwrap().len(), 3);
    let again = run(&url, &[&args[..], &["--yes"]].concat()).assert_code(0);
    assert!(again.json()["matched"] == 0 && again.err.contains("No task matches"), "{again:?}");
}

#[tokio::test]
async fn what_dies_again_is_met_once_a_command_and_keeps_its_errors() {
    let server = server();
    let url = server.url();
    let mut worker = Worker::start(&url, "a").await;
    submit(&url, "a", 300);
    worker.kill_all(|_| "first".into()).await;
    let replay = Running::start(producer(&url, &["retry", "--agent", "a", "--yes", "--set", "n=7"]));
    // All the while what was replayed dies again.
    let dying = async {
        loop {
            worker.kill_all(|_| "second".into()).await;
            let left = run(&url, &["list", "--error", "first", "--limit", "0"]).json();
            if left.as_array().unwrap().is_empty() {
                return;
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), dying).await.unwrap();
    let summary = replay.end().assert_code(0).json();
    assert_eq!((&summary["matched"], &summary["good"]), (&json!(300), &json!(300)));
    let one = &run(&url, &["list", "--state", "dead", "--limit", "1"]).json()[0];
    assert_eq!((&one["replays"], &one["attempts"]), (&json!(1), &json!(1)), "{one}");
    let shown = run(&url, &["dead", "show", one["id"].as_str().unwrap()]).assert_code(0).json();
    assert_eq!(shown["payload"], json!({"n": 7}));
    assert_eq!(shown["errors"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn an_interrupted_replay_ends_between_batches_and_the_same_command_does_the_rest() {
    let server = server();
    let url = server.url();
    let mut worker = Worker::start(&url, "a").await;
    // Its answers do not fit in a pipe that nobody reads, so that it is half-way when it is interrupted.
    let lines: String = (0..1_500).map(|n| format!("{{\"agent\":\"a\",\"id\":\"{n:0>64}\"}}\n")).collect();
    run_with(&url, &["submit", "--ndjson", "-"], lines.as_bytes()).assert_code(0);
    worker.kill_all(|_| "no".into()).await;
    let args = ["dead", "replay", "--all", "--yes", "--set", "n=1", "--output", "ndjson"];
    let mut replay = producer(&url, &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::with_capacity(64, replay.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("\"done\""));
    kill(Pid::from_raw(i32::try_from(replay.id()).unwrap()), Signal::SIGINT).unwrap();
    let done = lines.count() + 1;
    let said = read_all(replay.stderr.take().unwrap());
    assert_eq!(replay.wait().unwrap().code(), Some(130), "{said}");
    assert!(said.contains("to go on: the same command"), "{said}");
    assert!(done < 1_500 && done.is_multiple_of(128), "{done}");
    let rest = run(&url, &args).assert_code(0);
    assert_eq!(rest.lines().len(), 1_500 - done);
}

#[tokio::test]
async fn one_dead_task_is_shown_changed_and_forgotten() {
    let server = server();
    let url = server.url();
    let mut worker = Worker::start(&url, "a").await;
    let payload = r#"{"model": "large", "z": 18446744073709551616}"#;
    run(&url, &["submit", "a", payload, "--id", "one", "--key", "k", "--max-attempts", "2"]).assert_code(0);
    let deliveries = worker.claim().await;
    worker.settle(&deliveries, Verb::Retry { error: "busy".into(), after_ms: 3_600_000 }).await;
    run(&url, &["run-now", "one"]).assert_code(0);
    worker.kill_all(|_| "no\u{1b}[2J".into()).await;

    let shown = run(&url, &["dead", "show", "one"]).assert_code(0);
    assert!(shown.out.contains("18446744073709551616"), "numbers stay as they were written: {shown:?}");
    let shown = shown.json();
    assert_eq!((&shown["key"], &shown["max_attempts"], &shown["reason"]), (&json!("k"), &json!(2), &json!("rejected")));
    let explained = run(&url, &["explain", "one", "--output", "table"]).assert_code(0).out;
    for part in
        ["Reason `rejected`", "attempt 2, ", "attempt 1, ", "ago: busy", "producer dead replay one", "purge one"]
    {
        assert!(explained.contains(part), "{part}: {explained}");
    }
    let errors: Vec<_> = shown["errors"].as_array().unwrap().iter().map(|e| (&e["attempt"], &e["text"])).collect();
    assert_eq!(errors, [(&json!(2), &json!("no\u{1b}[2J")), (&json!(1), &json!("busy"))]);
    assert_eq!(run(&url, &["dead", "show", "one", "--raw"]).assert_code(0).out, payload);
    let table = run(&url, &["dead", "show", "one", "--output", "table"]).assert_code(0).out;
    assert!(table.contains("  \"model\": \"large\",\n") && !table.contains('\u{1b}'), "{table}");

    run(&url, &["dead", "replay", "one", "--set", "model=small", "--patch", r#"{"z":null}"#]).assert_code(0);
    let delivery = &worker.claim().await[0];
    assert_eq!(worker.payload(delivery).await, r#"{"model":"small"}"#);
    let running = run(&url, &["dead", "replay", "one"]).assert_code(1);
    assert!(running.err.starts_with("error[TM-0402]"), "{running:?}");
    worker.settle(std::slice::from_ref(delivery), Verb::Dead { error: "no".into() }).await;
    let part = run(&url, &["dead", "purge", "one", "nope", "one"]).assert_code(6);
    assert_eq!(part.json()["outcomes"], json!({"done": 1, "not_in_state": 1}));
    let gone = run(&url, &["dead", "show", "one"]).assert_code(1);
    assert!(gone.err.starts_with("error[TM-0401]"), "{gone:?}");
    assert!(run(&url, &["dead", "show", "one", "--raw"]).assert_code(1).err.starts_with("error[TM-0407]"));
    assert!(run(&url, &["dead", "replay"]).assert_code(2).err.starts_with("error[TM-0209]"));
    assert!(run(&url, &["purge", "one", "--all"]).assert_code(2).err.starts_with("error[TM-0209]"));
}

#[tokio::test]
async fn a_rate_spreads_a_replay_over_time() {
    let server = server();
    let url = server.url();
    let mut worker = Worker::start(&url, "a").await;
    submit(&url, "a", 3);
    worker.kill_all(|_| "no".into()).await;
    run(&url, &["dead", "replay", "--all", "--yes", "--rate", "1/h"]).assert_code(0);
    let states = |state: &str| run(&url, &["list", "--state", state]).json().as_array().unwrap().len();
    assert_eq!((states("queued"), states("scheduled")), (1, 2));
    assert!(run(&url, &["dead", "replay", "--all", "--rate", "0/s"]).assert_code(2).err.contains("more than 0"));
}

#[tokio::test]
async fn a_skipped_head_stays_dead_and_lets_the_next_go() {
    let server = server();
    let url = server.url();
    let mut worker = Worker::start(&url, "a").await;
    run(&url, &["submit", "a", "1", "--id", "head", "--order-key", "o", "--hold-on-dead"]).assert_code(0);
    run(&url, &["submit", "a", "2", "--id", "next", "--order-key", "o"]).assert_code(0);
    worker.kill_all(|_| "no".into()).await;
    assert_eq!(run(&url, &["status", "next"]).json()["gate"], "order:o");
    let words = |id: &str| run(&url, &["explain", id]).assert_code(0).json()["words"].to_string();
    assert!(words("next").contains("holds its order key: head. `producer dead replay head`"), "{}", words("next"));
    assert!(words("head").contains("`producer dead skip head`"), "{}", words("head"));
    assert_eq!(run(&url, &["dead", "skip", "head"]).assert_code(0).json(), json!({"id": "head", "outcome": "done"}));
    assert_eq!(run(&url, &["status", "next"]).json()["state"], "queued");
    assert_eq!(run(&url, &["status", "head"]).json()["state"], "dead");
    assert!(!words("head").contains("skip"), "it holds nothing any more: {}", words("head"));
    run(&url, &["dead", "skip", "next"]).assert_code(1);
    run(&url, &["dead", "skip", "next", "head"]).assert_code(6);
}
