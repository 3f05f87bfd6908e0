//! `producer submit --ndjson`.

use serde_json::{Value, json};
use tidemill_embedded::{Options, Storage};

use crate::support::{Running, producer, run, run_with, server, server_with};

fn numbers(lines: &[Value]) -> Vec<u64> {
    lines.iter().map(|line| line["line"].as_u64().unwrap()).collect()
}

#[test]
fn fifty_thousand_lines_have_an_answer_each_in_order() {
    let server = server();
    let url = server.url();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tasks");
    let text: String = (0..50_000).map(|n| format!("{{\"payload\":{{\"n\":{n}}}}}\n")).collect();
    std::fs::write(&file, text).unwrap();
    let done = run(&url, &["submit", "echo", "--ndjson", file.to_str().unwrap(), "--output", "ndjson"]).assert_code(0);
    let lines = done.lines();
    assert_eq!(numbers(&lines), (1..=50_000).collect::<Vec<_>>());
    assert!(lines.iter().all(|line| line["outcome"] == "accepted" && line["id"].is_string()));
    assert!(done.err.contains("50000 accepted"), "{}", done.err);
    assert_eq!(run(&url, &["queue"]).json()["queues"][0]["waiting"], 50_000);
}

#[test]
fn bad_lines_are_told_and_skipped_and_flags_are_defaults() {
    let server = server();
    let url = server.url();
    let input = concat!(
        "{\"payload\":1,\"key\":\"a\\u0000b\"}\n",
        "\n",
        "{\"payload\":1,\"key\":\"a\\u0000b\"}\n",
        "{\"payload\":2,\"key\":\"a\\u0000b\"}\n",
        "nonsense\n",
        "{\"agent\":\"{x}\"}\n",
        "{\"agent\":\"other\",\"queue\":\"line\",\"priority\":1}\r\n",
        "{\"key\":\"LONG\"}\n",
        "{\"payload\":3}",
    );
    let input = input.replace("LONG", &"x".repeat(1 << 20));
    let args = ["submit", "echo", "--queue", "flag", "--ndjson", "-"];
    let done = run_with(&url, &[&args[..], &["--output", "ndjson"]].concat(), input.as_bytes()).assert_code(6);
    let lines = done.lines();
    assert_eq!(numbers(&lines), [1, 3, 4, 5, 6, 7, 8, 9]);
    let outcomes: Vec<_> = lines.iter().map(|line| line["outcome"].as_str().unwrap()).collect();
    assert_eq!(
        outcomes,
        ["accepted", "duplicate", "conflict", "invalid", "invalid", "accepted", "invalid", "accepted"]
    );
    assert_eq!(
        (&lines[2]["code"], &lines[3]["code"], &lines[0]["code"]),
        (&json!("TM-0105"), &json!("TM-0101"), &json!(null))
    );
    assert_eq!(lines[1]["id"], lines[0]["id"]);
    assert_eq!(lines[2]["id"], lines[0]["id"]);
    assert!(lines[4]["error"].as_str().unwrap().contains("'{'"), "{}", lines[4]);
    let queues = run(&url, &["queue"]).json()["queues"].clone();
    assert_eq!(
        queues[0],
        json!({"name": "flag", "urgent": 0, "high": 0, "normal": 2, "low": 0, "waiting": 2, "paused": false})
    );
    assert_eq!((&queues[1]["name"], &queues[1]["low"]), (&json!("line"), &json!(1)));

    let summary = run_with(&url, &args, input.as_bytes()).assert_code(6).json();
    assert_eq!((&summary["lines"], &summary["accepted"], &summary["duplicate"]), (&json!(8), &json!(2), &json!(2)));
    assert_eq!((&summary["invalid"], &summary["refused"], &summary["last_line"]), (&json!(3), &json!(1), &json!(9)));
    assert_eq!(summary["problems"].as_array().unwrap().len(), 4);
}

#[test]
fn strict_stops_and_a_start_skips() {
    let server = server();
    let url = server.url();
    let args = ["submit", "a", "--ndjson", "-", "--output", "ndjson"];
    let with = |more: &[&str], input: &str| run_with(&url, &[&args[..], more].concat(), input.as_bytes());
    assert_eq!(numbers(&with(&["--strict"], "{}\nno\n{}\n").assert_code(6).lines()), [1, 2]);
    assert_eq!(numbers(&with(&["--from-line", "3"], "{}\nno\n{}\n{}\n").assert_code(0).lines()), [3, 4]);
    with(&[], "no\nno\n").assert_code(2);
    with(&[], "").assert_code(0);
    with(&["--fail-on-duplicate"], "{\"id\":\"x\"}\n{\"id\":\"x\"}\n").assert_code(6);
    with(&["--fail-on-duplicate"], "{\"id\":\"x\"}\n").assert_code(5);
    run_with(&url, &["submit", "--ndjson", "-"], b"{\"payload\":1}\n").assert_code(2);
    run(&url, &["submit", "a", "--ndjson", "/no/such/file"]).assert_code(2);
    run(&url, &["submit", "a", "--ndjson", "/"]).assert_code(2);
    run(&url, &["submit", "a", "1", "--ndjson", "-"]).assert_code(2);
}

#[test]
fn a_line_is_answered_while_the_input_stays_open_and_ctrl_c_says_how_to_go_on() {
    let server = server();
    let url = server.url();
    let mut running = Running::start(producer(&url, &["submit", "a", "--ndjson", "-", "--output", "ndjson"]));
    for n in 1..=3 {
        running.write(b"{}\n");
        let line: Value = serde_json::from_str(&running.out_line()).unwrap();
        assert_eq!((&line["line"], &line["outcome"]), (&json!(n), &json!("accepted")));
    }
    running.interrupt();
    let said = running.err_line("interrupted");
    assert!(said.contains("3 accepted"), "{said}");
    assert!(running.err_line("--from-line").contains("--from-line 4"));
    running.end().assert_code(130);
}

#[test]
fn a_server_that_dies_leaves_unknown_lines_and_a_place_to_go_on_from() {
    let mut server = server_with(Options::new().storage(Storage::Temporary));
    let url = server.url();
    let mut command = producer(&url, &["submit", "a", "--ndjson", "-", "--output", "ndjson"]);
    command.env("TIDEMILL__REDIS__RETRY_FOR_MS", "300").env("TIDEMILL__REDIS__COMMAND_TIMEOUT_MS", "500");
    let mut running = Running::start(command);
    running.write(b"{}\n");
    assert!(running.out_line().contains("accepted"));
    server.kill().unwrap();
    running.write(b"{\"id\":\"second\"}\n");
    let line: Value = serde_json::from_str(&running.out_line()).unwrap();
    assert_eq!((&line["outcome"], &line["id"]), (&json!("unknown"), &json!("second")));
    assert!(running.err_line("unknown outcome,").contains("between lines 2 and 2"));
    assert!(running.err_line("--from-line").contains("--from-line 3"));
    running.end().assert_code(6);
    server.restart().unwrap();
    assert_eq!(run(&url, &["submit", "a", "--id", "second"]).json()["id"], "second");
}

#[test]
fn a_restart_in_the_middle_loses_and_doubles_nothing() {
    let mut server = server_with(Options::new().storage(Storage::Temporary).config_line("appendfsync always"));
    let url = server.url();
    let mut running = Running::start(producer(&url, &["submit", "a", "--ndjson", "-", "--output", "ndjson"]));
    let lines = |from: u32| (from..from + 2_000).map(|n| format!("{{\"id\":\"t{n}\"}}\n")).collect::<String>();
    running.write(lines(0).as_bytes());
    running.out_line();
    server.restart().unwrap();
    running.write(lines(2_000).as_bytes());
    let done = running.end().assert_code(0);
    assert_eq!(done.lines().len(), 3_999, "one was read before");
    assert_eq!(run(&url, &["queue"]).json()["queues"][0]["waiting"], 4_000);
}
