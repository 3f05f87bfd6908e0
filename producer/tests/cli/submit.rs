//! `producer submit` of one task.

use tidemill_embedded::Options;

use crate::support::{Worker, run, run_with, server, server_with};

#[test]
fn a_task_is_handed_in_and_found() {
    let server = server();
    let url = server.url();
    let id =
        run(&url, &["submit", "echo", r#"{"hi":"there"}"#, "--queue", "q", "--priority", "urgent", "--tenant", "acme"])
            .id();
    let status = run(&url, &["status", &id]).assert_code(0).json();
    for (field, value) in [
        ("id", id.as_str()),
        ("state", "queued"),
        ("agent", "echo"),
        ("queue", "q"),
        ("priority", "urgent"),
        ("tenant", "acme"),
    ] {
        assert_eq!(status[field], value, "{status}");
    }
    assert_eq!(status["gate"], serde_json::Value::Null);
}

#[tokio::test]
async fn payloads_arrive_byte_for_byte() {
    let server = server();
    let url = server.url();
    let mut worker = Worker::start(&url, "a").await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("payload");
    let large = format!("[\"{}\"]", "x".repeat((1 << 20) - 4)).into_bytes();
    std::fs::write(&file, &large).unwrap();
    let path = file.to_str().unwrap();
    let odd = b"\x00\xff\n\r\xfe".to_vec();
    let spaced = b" {\"a\" : 1e400}\r\n".to_vec();
    run(&url, &["submit", "a", "--payload-file", path]).assert_code(0);
    run_with(&url, &["submit", "a", "-", "--raw"], &odd).assert_code(0);
    run_with(&url, &["submit", "a", "--payload-file", "-"], &spaced).assert_code(0);
    run(&url, &["submit", "a", "--payload", "-1"]).assert_code(0);
    run(&url, &["submit", "a", "--raw", "--", "-x"]).assert_code(0);
    run(&url, &["submit", "a"]).assert_code(0);
    let deliveries = worker.claim().await;
    let mut payloads = Vec::new();
    for delivery in &deliveries {
        payloads.push(worker.payload(delivery).await.to_vec());
    }
    assert_eq!(payloads, [large, odd, spaced, b"-1".to_vec(), b"-x".to_vec(), b"null".to_vec()]);
}

#[test]
fn payloads_that_are_no_json_or_too_large_are_refused() {
    let server = server();
    let url = server.url();
    for bad in ["{bad", "", "{} {}", "hello", "{'a':1}"] {
        let run = run(&url, &["submit", "a", bad]).assert_code(2);
        assert!(run.err.contains("not JSON") && run.err.contains("--raw"), "{run:?}");
        assert_eq!(run.out, "");
    }
    run_with(&url, &["submit", "a", "-"], b"\"\xff\"").assert_code(2);
    let large = vec![b'1'; (1 << 20) + 1];
    let refused = run_with(&url, &["submit", "a", "-"], &large).assert_code(2);
    assert!(refused.err.contains("1048576"), "{refused:?}");
    assert!(
        run(&url, &["submit", "a", "--payload-file", "/no/such/file"]).assert_code(2).err.contains("/no/such/file")
    );
    assert_eq!(run(&url, &["queue"]).json()["queues"], serde_json::json!([]));
}

#[tokio::test]
async fn awkward_names_are_refused_or_kept_as_data() {
    let server = server();
    let url = server.url();
    let long = "x".repeat(65);
    for bad in ["{x}", "a:b", "a b", "a\nb", "../x", "é", "", &long] {
        let refused = run(&url, &["submit", bad, "1"]).assert_code(2);
        assert!(refused.err.contains("agent name"), "{refused:?}");
        run(&url, &["submit", "a", "1", "--queue", bad]).assert_code(2);
        run(&url, &["submit", "a", "1", "--id", bad]).assert_code(2);
    }
    let long = "x".repeat(256);
    for flag in ["--key", "--tenant", "--order-key"] {
        run(&url, &["submit", "a", "1", flag, &long]).assert_code(2);
        for data in ["{x}", "a:b", "a\nb", "x:{0}:n", "\u{1b}[2J", "é"] {
            let submitted = run(&url, &["submit", "a", "1", flag, data]).id();
            let other = run(&url, &["submit", "a", "1", flag, data]).id();
            assert_eq!(submitted == other, flag == "--key", "{flag} {data:?}");
        }
    }
    let mut worker = Worker::start(&url, "a").await;
    let tasks = worker.claim().await.into_iter().map(|d| tidemill_common::envelope::open(d.id, &d.envelope).unwrap());
    let tenants: Vec<_> = tasks.map(|task| task.tenant).filter(|t| !t.is_empty()).collect();
    assert!(tenants.iter().any(|t| t == "a\nb") && tenants.iter().any(|t| t == "\u{1b}[2J"), "{tenants:?}");
}

#[test]
fn numbers_at_their_ends() {
    let server = server();
    let url = server.url();
    for bad in [
        ["--delay", "18446744073709551615s"],
        ["--delay", "18446744073709551615ms"],
        ["--delay", "99999999999999999999999s"],
        ["--delay", "315576000001ms"],
        ["--delay", "-1s"],
        ["--delay", "10"],
        ["--start-within", "0s"],
        ["--priority", "18446744073709551615"],
        ["--priority", "-9223372036854775808"],
        ["--priority", "0"],
        ["--cost", "4294967296"],
        ["--max-attempts", "0"],
        ["--max-attempts", "65536"],
        ["--timeout", "0s"],
        ["--retry-cap", "8days"],
        ["--at", "2026-12-01T09:00:00"],
        ["--at", "tomorrow"],
    ] {
        run(&url, &["submit", "a", "1", bad[0], bad[1]]).assert_code(2);
    }
    run(&url, &["submit", "a", "1", "--hold-on-dead"]).assert_code(2);
    run(&url, &["submit", "a", "1", "--delay", "1s", "--at", "2026-12-01T09:00:00Z"]).assert_code(2);
    for good in [
        ["--delay", "315576000000ms"],
        ["--cost", "4294967295"],
        ["--max-attempts", "65535"],
        ["--start-within", "1ms"],
        ["--at", "9999-12-30T22:00:00Z"],
        ["--at", "1970-01-01T00:00:00+23:59"],
    ] {
        let code = if good[1].starts_with("9999") { 2 } else { 0 };
        run(&url, &["submit", "a", "1", good[0], good[1]]).assert_code(code);
    }
}

#[test]
fn a_moment_becomes_a_delay_by_the_servers_clock() {
    let server = server();
    let url = server.url();
    let now_ms = run(&url, &["queue"]).json()["now_ms"].as_u64().unwrap();
    let at = rfc3339(now_ms + 3_600_000);
    let id = run(&url, &["submit", "a", "1", "--at", &at]).id();
    let status = run(&url, &["status", &id]).json();
    assert_eq!(status["state"], "scheduled");
    let due_ms = status["due_ms"].as_u64().unwrap();
    assert!(due_ms.abs_diff(now_ms + 3_600_000) < 2_000, "{due_ms}");
}

/// A moment in RFC 3339.
fn rfc3339(ms: u64) -> String {
    jiff::Timestamp::from_millisecond(i64::try_from(ms).unwrap()).unwrap().to_string()
}

#[test]
fn a_key_makes_duplicates_and_conflicts() {
    let server = server();
    let url = server.url();
    let first = run(&url, &["submit", "a", "1", "--key", "k"]).id();
    let again = run(&url, &["submit", "a", "1", "--key", "k"]).assert_code(0).json();
    assert_eq!((again["id"].as_str(), again["duplicate"].as_bool()), (Some(first.as_str()), Some(true)));
    run(&url, &["submit", "a", "1", "--key", "k", "--fail-on-duplicate"]).assert_code(5);
    let conflict = run(&url, &["submit", "a", "2", "--key", "k"]).assert_code(5);
    assert!(conflict.err.contains(&first), "{conflict:?}");
    assert_ne!(run(&url, &["submit", "a", "2", "--key", "k", "--tenant", "other"]).id(), first);
    assert_eq!(run(&url, &["submit", "a", "1", "--id", "mine"]).json()["duplicate"], false);
    assert_eq!(run(&url, &["submit", "a", "1", "--id", "mine"]).json()["duplicate"], true);
}

#[test]
fn a_full_queue_and_a_full_server_refuse_with_a_hint() {
    let server = server_with(Options::new().config_line("maxmemory 8mb"));
    let url = server.url();
    let submit = |file: &str| {
        let mut command = crate::support::producer(&url, &["submit", "a", "--payload-file", file]);
        command.env("TIDEMILL__SUBMIT__WAITING_MAX", "2");
        crate::support::finish(command)
    };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p");
    std::fs::write(&file, "1").unwrap();
    let path = file.to_str().unwrap();
    submit(path).assert_code(0);
    submit(path).assert_code(0);
    let full = submit(path).assert_code(5);
    assert!(full.err.contains("waiting_max"), "{full:?}");

    std::fs::write(&file, format!("\"{}\"", "x".repeat(1_000_000))).unwrap();
    let last =
        (0..30).map(|_| run(&url, &["submit", "b", "--payload-file", path])).find(|run| run.code != Some(0)).unwrap();
    let last = last.assert_code(5);
    assert!(last.err.contains("maxmemory"), "{last:?}");
}
