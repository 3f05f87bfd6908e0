//! `producer pause` and `producer resume`, and how `queue` and `explain` show what is paused.

use serde_json::json;

use crate::support::{Worker, run, server};

#[tokio::test]
async fn a_pause_holds_back_says_why_and_ends() {
    let server = server();
    let url = server.url();
    let mut worker = Worker::start(&url, "a").await;
    let paused = run(&url, &["pause", "--queue", "slow", "--why", "the index is rebuilt"]).assert_code(0).json();
    assert_eq!(
        (&paused["what"], &paused["name"], &paused["until_ms"]),
        (&json!("queue"), &json!("slow"), &json!(null))
    );
    run(&url, &["pause", "--agent", "b", "--for", "1h"]).assert_code(0);
    run(&url, &["pause", "--tenant", "acme"]).assert_code(0);

    let list = run(&url, &["pause", "--list"]).assert_code(0).json();
    let names: Vec<&str> = list.as_array().unwrap().iter().map(|pause| pause["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["b", "slow", "acme"]);
    assert!(list[0]["left_ms"].as_u64().unwrap() > 3_500_000 && list[1]["why"] == "the index is rebuilt", "{list}");
    let table = run(&url, &["pause", "--list", "-o", "table"]).assert_code(0).out;
    assert!(table.contains("queue slow") && table.contains("producer resume --tenant acme"), "{table}");

    // Queued, with no gate: its queue is passed over whole.
    run(&url, &["submit", "a", "1", "--id", "held", "--queue", "slow"]).assert_code(0);
    assert!(worker.claim().await.is_empty());
    let held = run(&url, &["explain", "held"]).assert_code(0).json();
    let words = held["words"].to_string();
    assert!(held["state"] == "queued" && words.contains("Queue slow is paused until it is resumed"), "{held}");
    assert!(words.contains("(the index is rebuilt)") && words.contains("`producer resume --queue slow`"), "{held}");

    // Met by a claim, it stands in the line of the pause.
    run(&url, &["submit", "a", "1", "--id", "parked", "--tenant", "acme"]).assert_code(0);
    assert!(worker.claim().await.is_empty());
    let parked = run(&url, &["explain", "parked"]).assert_code(0).json();
    assert_eq!(parked["gate"], json!("p/t/acme"));
    assert!(parked["words"].to_string().contains("`producer resume --tenant acme`"), "{parked}");

    let queue = run(&url, &["queue"]).assert_code(0).json();
    let marks: Vec<_> = queue["queues"].as_array().unwrap().iter().map(|q| (&q["name"], &q["paused"])).collect();
    assert_eq!(marks, [(&json!("default"), &json!(false)), (&json!("slow"), &json!(true))]);
    assert_eq!(queue["pauses"].as_array().unwrap().len(), 3);
    let table = run(&url, &["queue", "-o", "table"]).assert_code(0).out;
    assert!(table.contains("1        paused") && table.contains("Agent b is paused for 59m"), "{table}");

    let resumed = run(&url, &["resume", "--queue", "slow"]).assert_code(0);
    assert!(
        resumed.json()["resumed"] == true && resumed.err.contains("still paused: agent b, tenant acme"),
        "{resumed:?}"
    );
    assert_eq!(worker.claim().await[0].id.as_str(), "held");
    let again = run(&url, &["resume", "--queue", "slow", "--quiet"]).assert_code(0);
    assert!(again.json()["resumed"] == false && again.err.is_empty(), "{again:?}");
}

#[test]
fn everything_can_be_paused_and_mistakes_are_told() {
    let server = server();
    let url = server.url();
    run(&url, &["pause", "--all"]).assert_code(0);
    run(&url, &["submit", "a", "1"]).assert_code(0);
    let queue = run(&url, &["queue"]).assert_code(0).json();
    assert!(queue["queues"][0]["paused"] == true && queue["pauses"][0]["what"] == "all", "{queue}");
    run(&url, &["resume", "--all"]).assert_code(0);
    let none = run(&url, &["pause", "--list", "-o", "table"]).assert_code(0);
    assert!(none.out.is_empty() && none.err.contains("Nothing is paused"), "{none:?}");

    let long = "x".repeat(257);
    for args in [
        &["pause"][..],
        &["resume"],
        &["pause", "--queue", "q", "--agent", "a"],
        &["pause", "--queue", "q", "--for", "soon"],
        &["pause", "--list", "--queue", "q"],
        &["pause", "--all", "--why", &long],
        &["pause", "--tenant", ""],
    ] {
        let wrong = run(&url, args).assert_code(2);
        assert!(wrong.err.starts_with("error[TM-0201]"), "{args:?}: {wrong:?}");
    }
    assert_eq!(run(&url, &["pause", "--list"]).assert_code(0).json(), json!([]));
}
