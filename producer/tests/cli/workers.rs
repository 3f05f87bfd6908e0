//! `producer workers` and `producer concurrency`.

use serde_json::json;

use crate::support::{Worker, run, server};

#[tokio::test]
async fn workers_are_shown_with_what_they_do() {
    let server = server();
    let url = server.url();
    let none = run(&url, &["workers", "-o", "table"]).assert_code(0);
    assert!(none.out.is_empty() && none.err.contains("worker run"), "{none:?}");
    let mut worker = Worker::start(&url, "a").await;
    let idle = run(&url, &["workers"]).assert_code(0).json();
    assert_eq!(
        (&idle[0]["state"], &idle[0]["name"], &idle[0]["agents"]),
        (&json!("idle"), &json!("test"), &json!(["a"]))
    );
    run(&url, &["submit", "a", "1"]).assert_code(0);
    worker.claim().await;
    let busy = run(&url, &["workers", "-o", "ndjson"]).assert_code(0).lines();
    assert_eq!((&busy[0]["state"], &busy[0]["running"]), (&json!("at_work"), &json!(1)));
    assert!(busy[0]["lease_left_ms"].as_u64().unwrap() <= 60_000, "{busy:?}");
    let table = run(&url, &["workers", "-o", "table"]).assert_code(0).out;
    assert!(table.contains("at work  1"), "{table}");
}

#[test]
fn a_number_is_said_shown_and_reset() {
    let server = server();
    let url = server.url();
    assert_eq!(run(&url, &["concurrency"]).assert_code(0).json(), json!([]));
    let said = run(&url, &["concurrency", "32"]).assert_code(0).json();
    assert_eq!(said, json!({"what": "all", "name": null, "most": 32}));
    run(&url, &["concurrency", "4", "--agent", "gpt4"]).assert_code(0);
    run(&url, &["concurrency", "8", "--worker", "big-box"]).assert_code(0);
    let all = run(&url, &["concurrency"]).assert_code(0).json();
    assert_eq!(all.as_array().unwrap().len(), 3, "{all}");
    let one = run(&url, &["concurrency", "--agent", "gpt4"]).assert_code(0).json();
    assert_eq!(one, json!([{"what": "agent", "name": "gpt4", "most": 4}]));
    let table = run(&url, &["concurrency", "-o", "table"]).assert_code(0).out;
    assert!(table.contains("worker big-box") && table.contains("each worker"), "{table}");
    run(&url, &["concurrency", "reset"]).assert_code(0);
    assert_eq!(run(&url, &["concurrency"]).json().as_array().unwrap().len(), 2);
    for args in
        [&["concurrency", "0"][..], &["concurrency", "10001"], &["concurrency", "4", "--agent", "a", "--worker", "w"]]
    {
        run(&url, args).assert_code(2);
    }
}
