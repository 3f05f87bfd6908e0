//! `producer tail`: output as it comes, to its last byte, through attempts, gaps and restarts of the server.

use serde_json::{Value, json};
use tidemill_common::store::Verb;
use tidemill_embedded::{Options, Storage};

use crate::support::{Running, Worker, producer, run, server, server_with};

/// The next line of JSON of this kind.
fn next(tail: &Running, kind: &str) -> Value {
    loop {
        let line: Value = serde_json::from_str(&tail.out_line()).unwrap();
        if line["kind"] == kind {
            return line;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_output_is_raw_and_whole_and_all_else_is_on_stderr() {
    let server = server();
    let url = server.url();
    let mut worker = Worker::start(&url, "a").await;
    let id = run(&url, &["submit", "a", "1"]).id();
    let tail = Running::start(producer(&url, &["tail", &id]));
    tail.err_line("queued");
    let deliveries = worker.claim().await;
    worker.emit(&deliveries[0], 0, "é\u{1b}[1m\n".as_bytes()).await;
    assert_eq!(tail.out_line(), "é\u{1b}[1m");
    tail.err_line("running on test.");
    worker.store.progress(&[(deliveries[0].id.clone(), deliveries[0].fence, "half".to_owned())]).await.unwrap();
    tail.err_line("progress: half");
    for n in 0..1_000_u64 {
        worker.emit(&deliveries[0], 7 + n * 4, b"abc\n").await;
    }
    worker.succeed(&deliveries, "{}").await;
    let done = tail.end().assert_code(0);
    assert_eq!(done.out, "abc\n".repeat(1_000));
    assert!(done.err.contains("succeeded (attempt 1") && done.err.contains("producer status"), "{done:?}");
    // What has ended is shown from what is kept.
    let again = run(&url, &["tail", &id, "--quiet"]).assert_code(0);
    assert!(again.out.len() == 4_007 && again.err.is_empty(), "{again:?}");
    let lines = run(&url, &["tail", &id, "-o", "ndjson"]).assert_code(0).lines();
    let end = lines.last().unwrap();
    assert!(end["kind"] == "end" && end["result"] == json!({}) && end["entry"].is_string(), "{end}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_attempt_and_a_gap_are_told_and_an_entry_goes_on() {
    let server = server();
    let url = server.url();
    let mut worker = Worker::start(&url, "a").await;
    let id = run(&url, &["submit", "a", "1"]).id();
    let tail = Running::start(producer(&url, &["tail", &id, "-o", "ndjson"]));
    assert_eq!(
        next(&tail, "state"),
        json!({"kind": "state", "entry": null, "state": "queued", "gate": null, "worker": null, "attempt": 0})
    );
    let first = worker.claim().await;
    worker.emit(&first[0], 0, b"void").await;
    let void = next(&tail, "output");
    assert_eq!((&void["text"], &void["attempt"], &void["offset"]), (&json!("void"), &json!(1), &json!(0)));
    worker.settle(&first, Verb::Retry { error: "no".into(), after_ms: 0 }).await;
    let second = loop {
        let second = worker.claim().await;
        if !second.is_empty() {
            break second;
        }
    };
    worker.emit(&second[0], 0, b"one").await;
    let restart = next(&tail, "restart");
    assert_eq!((&restart["attempt"], &restart["entry"]), (&json!(2), &void["entry"]));
    let one = next(&tail, "output");
    worker.emit(&second[0], 10, b"\xc3\xa9").await;
    assert_eq!(next(&tail, "gap")["missing"], 7);
    assert_eq!(next(&tail, "output")["text"], "é");
    worker.settle(&second, Verb::Dead { error: "bad\u{7}".into() }).await;
    let end = next(&tail, "end");
    assert_eq!((&end["state"], &end["error"], &end["timed_out"]), (&json!("dead"), &json!("bad\u{7}"), &json!(false)));
    let ended = tail.end().assert_code(3);
    assert!(ended.err.contains("TM-0403") && !ended.err.contains('\u{7}'), "{ended:?}");

    let from = |entry: &Value| {
        let args = ["tail", &id, "-o", "ndjson", "--from", entry.as_str().unwrap()];
        run(&url, &args)
            .assert_code(3)
            .lines()
            .iter()
            .map(|line| line["kind"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(from(&one["entry"]), ["gap", "output", "end"]);
    assert_eq!(from(&void["entry"]), ["restart", "output", "gap", "output", "end"]);
    let people = run(&url, &["tail", &id, "--from", one["entry"].as_str().unwrap()]).assert_code(3);
    assert!(people.err.contains("7 bytes or more"), "{people:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_server_loses_nothing() {
    let mut server = server_with(Options::new().storage(Storage::Temporary));
    let url = server.url();
    let mut worker = Worker::start(&url, "a").await;
    let id = run(&url, &["submit", "a", "1"]).id();
    let deliveries = worker.claim().await;
    let tail = Running::start(producer(&url, &["tail", &id]));
    worker.emit(&deliveries[0], 0, b"before\n").await;
    assert_eq!(tail.out_line(), "before");
    server.restart().unwrap();
    worker.emit(&deliveries[0], 7, b"after\n").await;
    assert_eq!(tail.out_line(), "after");
    worker.succeed(&deliveries, "1").await;
    assert_eq!(tail.end().assert_code(0).out, "");
}

#[test]
fn a_time_that_is_over_and_mistakes_have_codes() {
    let server = server();
    let url = server.url();
    let id = run(&url, &["submit", "a", "1"]).id();
    let over = run(&url, &["tail", &id, "--timeout", "10ms"]).assert_code(4);
    assert!(over.out.is_empty() && over.err.contains("TM-0404"), "{over:?}");
    let none = run(&url, &["tail", "nobody", "-o", "json"]).assert_code(1);
    assert!(none.out.contains("\"kind\":\"end\"") && none.err.contains("TM-0401"), "{none:?}");
    let wrong = run(&url, &["tail", &id, "--from", "yesterday"]).assert_code(2);
    assert!(wrong.err.contains("neither `start` nor an entry"), "{wrong:?}");
}
