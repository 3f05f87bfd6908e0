//! `producer wait` and `submit --wait`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidemill_common::store::Verb;
use tidemill_embedded::{Options, Storage};

use crate::support::{Running, Worker, producer, run, server, server_with};

/// Less than the time after which a wait looks by itself.
const WOKEN: Duration = Duration::from_secs(3);

#[tokio::test]
async fn a_wait_is_woken_and_prints_the_result() {
    let server = server();
    let url = server.url();
    let mut worker = Worker::start(&url, "a").await;
    let waiting = Running::start(producer(&url, &["submit", "a", "1", "--wait", "--output", "ndjson"]));
    let id = serde_json::from_str::<Value>(&waiting.out_line()).unwrap()["id"].as_str().unwrap().to_owned();
    assert_eq!(serde_json::from_str::<Value>(&waiting.out_line()).unwrap()["state"], "queued");
    let other = Running::start(producer(&url, &["wait", &id]));

    let deliveries = worker.claim().await;
    assert_eq!(deliveries[0].id.as_str(), id);
    while serde_json::from_str::<Value>(&waiting.out_line()).unwrap()["state"] != "running" {}
    let settled = Instant::now();
    worker.succeed(&deliveries, r#"{"sum": 18446744073709551616}"#).await;
    let done = waiting.end().assert_code(0);
    assert!(settled.elapsed() < WOKEN, "woken after {:?}", settled.elapsed());
    assert!(done.out.contains(r#""result":{"sum": 18446744073709551616}"#), "{}", done.out);
    assert_eq!(other.end().assert_code(0).json()["state"], "succeeded");
    assert_eq!(run(&url, &["status", &id]).json()["attempt"], 1);
}

#[tokio::test]
async fn people_get_the_id_then_states_then_the_result() {
    let server = server();
    let url = server.url();
    let mut worker = Worker::start(&url, "a").await;
    let waiting = Running::start(producer(&url, &["submit", "a", "1", "--wait", "--output", "table"]));
    let id = waiting.out_line();
    waiting.err_line("queued");
    let deliveries = worker.claim().await;
    waiting.err_line("running on test.");
    worker.succeed(&deliveries, "\"42\"").await;
    waiting.err_line("succeeded (attempt 1");
    assert_eq!(waiting.end().assert_code(0).out, "\"42\"\n");
    assert_eq!(id.len(), 36);
}

#[tokio::test]
async fn a_bad_end_a_timeout_and_an_unknown_id_have_codes_of_their_own() {
    let server = server();
    let url = server.url();
    let mut worker = Worker::start(&url, "a").await;
    let bad = run(&url, &["submit", "a", "1"]).id();
    let waiting = Running::start(producer(&url, &["wait", &bad, "--output", "ndjson"]));
    let deliveries = worker.claim().await;
    worker.settle(&deliveries, Verb::Dead { error: "no such file\u{1b}[2J".into() }).await;
    let dead = waiting.end().assert_code(3);
    assert_eq!((&dead.json()["state"], &dead.json()["error"]), (&json!("dead"), &json!("no such file\u{1b}[2J")));
    let shown = run(&url, &["wait", &bad, "--output", "table"]).assert_code(3);
    assert!(shown.out.contains("no such file\\u{1b}[2J"), "a terminal is not steered: {shown:?}");

    let slow = run(&url, &["submit", "a", "1"]).id();
    let late = run(&url, &["wait", &slow, "--timeout", "300ms"]).assert_code(4).json();
    assert_eq!((&late["state"], &late["timed_out"]), (&json!("queued"), &json!(true)));
    let late = run(&url, &["submit", "a", "1", "--wait", "--wait-timeout", "300ms"]).assert_code(4);
    assert!(late.err.contains("goes on"), "{late:?}");
    assert_eq!(run(&url, &["wait", "nope"]).assert_code(1).json()["state"], "unknown");

    let all = run(&url, &["wait", &slow, "nope", &bad, "--timeout", "300ms"]).assert_code(3).json();
    let states: Vec<_> = all.as_array().unwrap().iter().map(|end| end["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["queued", "unknown", "dead"]);
    run(&url, &["wait", &slow, "nope", "--timeout", "300ms"]).assert_code(4);
    run(&url, &["cancel", &slow]).assert_code(0);
    run(&url, &["wait", &slow]).assert_code(3);
}

#[tokio::test]
async fn a_wait_goes_on_through_a_restart_of_the_server() {
    let mut server = server_with(Options::new().storage(Storage::Temporary).config_line("appendfsync always"));
    let url = server.url();
    let mut worker = Worker::start(&url, "a").await;
    let waiting = Running::start(producer(&url, &["submit", "a", "1", "--wait", "--output", "ndjson"]));
    waiting.out_line();
    waiting.out_line();
    server.kill().unwrap();
    server.restart().unwrap();
    let deliveries = worker.claim().await;
    assert_eq!(deliveries.len(), 1);
    worker.succeed(&deliveries, "7").await;
    let done = waiting.end().assert_code(0);
    assert_eq!(done.lines().last().unwrap()["result"], 7);
}

#[test]
fn a_wait_that_is_interrupted_says_so_by_its_code() {
    let server = server();
    let waiting = Running::start(producer(&server.url(), &["submit", "a", "1", "--wait", "--output", "ndjson"]));
    waiting.out_line();
    waiting.interrupt();
    waiting.end().assert_code(130);
}

#[test]
fn who_waits_where_no_worker_is_alive_is_told() {
    let server = server();
    let waiting = Running::start(producer(&server.url(), &["submit", "a", "1", "--wait"]));
    waiting.err_line("no worker is alive");
    waiting.interrupt();
    waiting.end().assert_code(130);
}
