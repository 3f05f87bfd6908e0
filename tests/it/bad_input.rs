//! Bad input, as the programs `producer` and `worker` meet it: each is refused with its exit code and its code, and nothing of what
//! is good beside it is lost.
//!
//! Tested elsewhere, and not again here: payloads that are no JSON or too large, names and numbers as arguments
//! (`producer/tests/cli/submit.rs`, `cases::b_02`, `cases::b_03`), bad lines among good ones (`producer/tests/cli/bulk.rs`), nested
//! payloads and envelopes of garbage (`cases::b_01`), no server (`producer/tests/cli/failures.rs`,
//! `an_unreachable_redis_is_exit_7_in_bounded_time()`), secrets in what is said (`a_wrong_password_is_said_and_no_password_is_shown()`),
//! a worker's configuration with five mistakes (`a_configuration_with_five_mistakes_names_all_five()`).

use std::io::Write as _;
use std::time::Duration;

use serde_json::{Value, json};
use tidemill_common::state::State;
use tidemill_common::store::{RedisOptions, Store};
use tidemill_common::task::NewTask;
use tidemill_tests::admin::Watched;
use tidemill_tests::fake::{Listener, bulk};
use tidemill_tests::lab::Lab;
use tidemill_tests::program::{Ended, Program};
use tidemill_tests::server::{self, Options, Tcp};

/// Exit codes of both programs.
const FAILED: i32 = 1;
const USAGE: i32 = 2;
const PARTLY: i32 = 6;
const NO_ANSWER: i32 = 7;
/// What must not hang.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of an envelope that the server writes.
const SERVER_BYTES: usize = tidemill_common::envelope::SERVER_BYTES;

async fn producer(url: &str, args: &[&str]) -> Ended {
    let env = [("TIDEMILL__REDIS__URL", url), ("TIDEMILL__REDIS__RETRY_FOR_MS", "200")];
    Program::run("producer", args, &env).await
}

async fn worker(url: &str) -> Ended {
    let env = [("TIDEMILL__REDIS__URL", url), ("TIDEMILL__WORKER__CONNECT_WITHIN", "500ms")];
    Program::run("worker", &["run", "--admin", "off"], &env).await
}

#[track_caller]
fn refused(run: &Ended, exit: i32, code: &str) {
    assert_eq!(run.code, Some(exit), "{run:?}");
    assert!(run.err.contains(&format!("error[{code}]: ")), "{code} is missing: {run:?}");
}

fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

async fn waiting(lab: &Lab) -> u64 {
    lab.counts().await.waiting.values().sum()
}

/// What cannot be an argument: NUL, a megabyte, invalid UTF-8, nesting without end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_lines_among_good_ones() {
    let lab = Lab::new().await;
    let long = "x".repeat(1 << 20);
    let mut bad: Vec<Vec<u8>> = Vec::new();
    for field in ["agent", "queue", "id"] {
        for name in ["{", "}", ":", " ", "\0", "\n", "\r\n", "é", "", &long] {
            let mut line = json!({"agent": "echo"});
            line[field] = Value::from(name);
            bad.push(line.to_string().into_bytes());
        }
    }
    for field in ["tenant", "key", "order_key"] {
        bad.push(json!({"agent": "echo", field: long}).to_string().into_bytes());
    }
    bad.push(json!({"agent": "echo", "payload": long}).to_string().into_bytes());
    bad.push("[".repeat(200_000).into_bytes());
    bad.push(r#"{"agent":"#.repeat(100_000).into_bytes());
    bad.push([&br#"{"agent":"ec"#[..], b"\xff\xfe", br#"ho"}"#].concat());
    bad.push(br#"{"agent":"echo","priority":1e400}"#.to_vec());
    bad.push(br#"{"agent":"echo","delay":"-1s"}"#.to_vec());
    bad.push(br#"{"agent":"echo","delay":"18446744073709551616ms"}"#.to_vec());
    let good = br#"{"agent":"echo","payload":1}"#;
    let lines: Vec<&[u8]> = bad.iter().flat_map(|bad| [&bad[..], good]).collect();
    let file = file(&lines.join(&b'\n'));
    let run =
        producer(&lab.server().url(), &["submit", "--ndjson", &file.path().to_string_lossy(), "--output", "ndjson"])
            .await;
    refused(&run, PARTLY, "TM-0405");
    let answers: Vec<Value> = run.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), lines.len(), "an answer a line");
    for (n, answer) in answers.iter().enumerate() {
        let (outcome, code) = if n % 2 == 0 { ("invalid", json!("TM-0101")) } else { ("accepted", Value::Null) };
        assert_eq!((&answer["outcome"], &answer["code"]), (&json!(outcome), &code), "line {}: {answer}", n + 1);
        assert!(answer.to_string().len() < 1_000, "an answer is short, whatever the line was");
    }
    assert_eq!(waiting(&lab).await, bad.len() as u64, "all that is good is in");
    lab.close_with_invariants().await;
}

/// What is done to an envelope by hand.
type Change = Box<dyn Fn(&mut Vec<u8>)>;

/// Envelopes of a later version, and such as end early, among good ones: put aside alone, by the program itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn envelopes_that_are_too_new_or_end_early() {
    let lab = Lab::new().await;
    let task = |payload: &'static str| NewTask::new("echo".parse().unwrap(), payload).tenant("a tenant");
    let changes: Vec<Change> = vec![
        Box::new(|envelope| envelope[0] = 0),
        Box::new(|envelope| envelope[0] = 255),
        Box::new(|envelope| envelope.truncate(5)),
        Box::new(|envelope| envelope.truncate(SERVER_BYTES)),
        Box::new(|envelope| envelope.truncate(SERVER_BYTES + 12)),
        Box::new(|envelope| envelope.truncate(envelope.len() - 2)),
        Box::new(|envelope| envelope[SERVER_BYTES - 1] = 0),
        Box::new(|envelope| envelope[SERVER_BYTES - 2] = 0xff),
    ];
    // Of a later version, and good otherwise: it waits for a worker that reads it (`cases::p_01`).
    let later = task("3");
    lab.store().submit(std::slice::from_ref(&later), 0).await.unwrap();
    let key = lab.key(&format!("j:{}", later.id));
    let mut envelope = lab.raw(&["GET", &key]).as_bytes().unwrap().to_vec();
    envelope[0] = 96;
    lab.raw(&[b"SET", key.as_bytes(), &envelope]);
    let (mut bad, mut good) = (Vec::new(), Vec::new());
    for change in &changes {
        let (spoilt, fine) = (task("1"), task("2"));
        lab.store().submit(&[spoilt.clone(), fine.clone()], 0).await.unwrap();
        let key = lab.key(&format!("j:{}", spoilt.id));
        let mut envelope = lab.raw(&["GET", &key]).as_bytes().unwrap().to_vec();
        change(&mut envelope);
        lab.raw(&[b"SET", key.as_bytes(), &envelope]);
        bad.push(spoilt.id);
        good.push(fine.id);
    }
    let watched = Watched::start(&lab, &lab.server().url()).await;
    lab.until("all that is bad is put aside, and all that is good has run", PATIENCE, async || {
        let counts = lab.counts().await;
        let done = counts.ended.get("done").copied().unwrap_or_default();
        if (counts.dead, done) == (bad.len() as u64, good.len() as u64) { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await;
    let status = lab.store().status(&later.id, None).await.unwrap();
    assert_eq!((status.state, status.gate.as_deref()), (Some(State::Parked), Some("want:@96")));
    for id in &good {
        assert_eq!(lab.store().status(id, None).await.unwrap().state, Some(State::Succeeded));
    }
    // Each is told of, with its reason; and its bytes are kept for whoever can read them.
    let listed = producer(&lab.server().url(), &["dead", "list", "--output", "ndjson"]).await;
    let told: Vec<Value> = listed.out.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    for id in &bad {
        let of = told.iter().find(|found| found["id"] == id.as_str()).unwrap_or_else(|| panic!("no {id}: {listed:?}"));
        assert!(of["error"].as_str().unwrap_or_default().starts_with("invalid: "), "{of}");
        assert!(lab.raw(&["STRLEN", &lab.key(&format!("j:{id}"))]).as_int().unwrap() > 0);
    }
    let doctor = producer(&lab.server().url(), &["doctor", "--output", "table"]).await;
    assert!(doctor.out.contains("quarantine"), "{doctor:?}");
    watched.stop().await;
    // An envelope that cannot be read does not say where its task was counted; see the table in docs/guarantees.md.
    let broken = lab.broken_invariants().await;
    assert!(broken.iter().all(|what| what.starts_with("1 tasks wait, and the counts say")), "{broken:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_not_let_in_is_told_so_by_both() {
    let server = server::start_with(Options::new().tcp(Tcp::Free).config_line("requirepass right"));
    let port = server.port().unwrap();
    for login in ["", ":wrong@", "nobody:right@"] {
        let url = format!("redis://{login}127.0.0.1:{port}");
        refused(&producer(&url, &["submit", "echo", "1"]).await, NO_ANSWER, "TM-0302");
        let refused = worker(&url).await;
        assert_eq!(refused.code, Some(FAILED), "{refused:?}");
        assert!(refused.err.contains("Authentication") || refused.err.contains("NOAUTH"), "{refused:?}");
        assert!(!refused.err.contains("wrong@"), "{refused:?}");
        assert!(refused.err.contains("error[TM-0302]: "), "{refused:?}");
    }
}

/// A server of before Redis 7.0, as far as it says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_too_old() {
    let old = Listener::server(|command| {
        Some(match command[0].to_uppercase().as_str() {
            "INFO" => bulk("# Server\r\nredis_version:6.2.14\r\nredis_mode:standalone\r\n"),
            "PING" => "+PONG\r\n".to_owned(),
            "HELLO" => "-ERR unknown command\r\n".to_owned(),
            _ => "+OK\r\n".to_owned(),
        })
    });
    let run = producer(&old.redis(), &["submit", "echo", "1"]).await;
    refused(&run, FAILED, "TM-0306");
    assert!(run.err.contains("6.2") && run.err.contains("7.0"), "{run:?}");
    let run = worker(&old.redis()).await;
    refused(&run, FAILED, "TM-0306");
    assert!(run.err.contains("6.2") && run.err.contains("7.0"), "{run:?}");
}

/// What does not answer the question about its version or policy is not taken for a server that may be used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_tell_now_is_asked_again() {
    for silent in ["INFO", "CONFIG"] {
        for refusal in
            ["-LOADING Redis is loading the dataset in memory\r\n", "-BUSY Redis is busy running a script\r\n"]
        {
            let server = Listener::server(move |command| {
                let name = command[0].to_uppercase();
                Some(match name.as_str() {
                    // The client itself asks for this when it connects; it is Redis' first refusal that counts.
                    _ if name == silent => refusal.to_owned(),
                    "INFO" => bulk("# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n"),
                    "HGET" => bulk(&tidemill_common::store::SCHEMA.to_string()),
                    "CONFIG" => format!("*2\r\n{}{}", bulk("maxmemory-policy"), bulk("noeviction")),
                    _ => "+OK\r\n".to_owned(),
                })
            });
            let options = RedisOptions {
                url: server.redis(),
                command_timeout_ms: 1_000,
                connect_timeout_ms: 2_000,
                retry_for_ms: 0,
                ..RedisOptions::default()
            };
            let refused = Store::connect(&options).await.expect_err("nobody knows what server this is");
            assert!(refused.is_transient(), "{silent} {refusal:?}: {refused:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_evicts_and_another_layout() {
    let lab = Lab::new().await;
    let url = lab.server().url();
    assert_eq!(producer(&url, &["submit", "echo", "1"]).await.code, Some(0));
    lab.raw(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lfu"]);
    refused(&producer(&url, &["submit", "echo", "1"]).await, FAILED, "TM-0306");
    lab.raw(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    let schema = lab.raw(&["HGET", &lab.key("meta"), "schema"]).as_str().unwrap().to_owned();
    for other in ["1", "99", "x", ""] {
        lab.raw(&["HSET", &lab.key("meta"), "schema", other]);
        let run = producer(&url, &["submit", "echo", "1"]).await;
        refused(&run, FAILED, "TM-0306");
        assert!(run.err.contains("layout"), "{run:?}");
        let run = worker(&url).await;
        refused(&run, FAILED, "TM-0306");
        assert!(run.err.contains("layout"), "{run:?}");
    }
    lab.raw(&["HSET", &lab.key("meta"), "schema", &schema]);
    assert_eq!(waiting(&lab).await, 1, "what was in is in, and nothing else");
    lab.close_with_invariants().await;
}

/// All mistakes of a book at once, or none of it in force.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_book_with_five_mistakes() {
    let lab = Lab::new().await;
    let url = lab.server().url();
    let path = |file: &tempfile::NamedTempFile| file.path().to_string_lossy().into_owned();
    let right = file(b"revision = 1\n[[limit]]\nslots = 3\n");
    assert_eq!(producer(&url, &["book", "apply", &path(&right)]).await.code, Some(0));
    let book = lab.raw(&["HGETALL", &lab.key("book")]);
    let wrong = file(
        b"revision = 0\n[[limit]]\n[[limit]]\nslots = 0\n[[limit]]\nmatch = { tenant = \"t\" }\n\
          [[limit]]\nmatch = { agent = \"a\" }\nrate = { second = 0 }\n",
    );
    let run = producer(&url, &["book", "apply", &path(&wrong)]).await;
    refused(&run, USAGE, "TM-0207");
    assert_eq!(run.err.lines().filter(|line| line.contains("  - ")).count(), 5, "{run:?}");
    refused(&producer(&url, &["book", "apply", &path(&file(b"\xff\xfe"))]).await, USAGE, "TM-0204");
    for bad in [&b"revision = "[..], &b"[".repeat(100_000), b"", b"nonsense = 1"] {
        refused(&producer(&url, &["book", "apply", &path(&file(bad))]).await, USAGE, "TM-0207");
    }
    assert_eq!(lab.raw(&["HGETALL", &lab.key("book")]), book, "the one in force stays");
    lab.close_with_invariants().await;
}

/// Mistakes of the environment and of flags are told together as well, by both programs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configurations_with_five_mistakes() {
    let env = [
        ("TIDEMILL__REDIS__URL", "nonsense"),
        ("TIDEMILL__REDIS__SHARD", "-1"),
        ("TIDEMILL__REDIS__COMMAND_TIMEOUT_MS", "soon"),
        ("TIDEMILL__SUBMIT__CALLS_IN_FLIGHT", "65"),
        ("TIDEMILL__WAIT__TIMEOUT", "later"),
        ("TIDEMILL__NOPE", "1"),
    ];
    let run = Program::run("producer", &["queue"], &env).await;
    refused(&run, USAGE, "TM-0205");
    for part in ["redis.shard", "command_timeout_ms", "calls_in_flight", "wait.timeout", "nope"] {
        assert!(run.err.contains(part), "{part} is missing: {run:?}");
    }
    let env = [
        ("TIDEMILL__REDIS__SHARD", "65536"),
        ("TIDEMILL__WORKER__CONCURRENCY", "0"),
        ("TIDEMILL__WORKER__ORDER", "random"),
        ("TIDEMILL__WORKER__GRACE", "-1s"),
        ("TIDEMILL__PAYLOADS__COMPRESS_LEVEL", "99"),
        ("TIDEMILL__AGENTS__ECHO__KIND", "no such"),
    ];
    let run = Program::run("worker", &["run", "--admin", "off"], &env).await;
    refused(&run, USAGE, "TM-0205");
    for part in ["redis.shard", "concurrency", "order", "grace", "compress_level", "echo"] {
        assert!(run.err.contains(part), "{part} is missing: {run:?}");
    }
}
