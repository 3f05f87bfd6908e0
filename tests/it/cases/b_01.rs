//! B-01: deeply nested msgpack, and whatever else a hand may put where envelopes and entries are.
//!
//! What cannot be read is put aside alone, as dead with the reason `invalid`, with at most 64 KiB of its bytes; nobody dies of it
//! and nothing behind it waits. A producer cannot make such a thing: what scripts and workers read of a task is names, numbers
//! and short texts, each bounded; payloads are opaque bytes that nobody decodes on the way.

use std::time::Duration;

use nix::sys::signal::Signal;
use tidemill_common::name::TaskId;
use tidemill_common::state::State;
use tidemill_common::task::NewTask;
use tidemill_producer::{Client, Options, Waited};
use tidemill_tests::lab::profile::pick;
use tidemill_tests::lab::{Lab, Payload};
use tidemill_tests::program::Program;
use tidemill_tests::server::Reply;
use tidemill_tests::watch::Watch;

use super::PATIENCE;
use super::g_01::worker_program;

/// How deep: a few KiB are enough to overflow a stack.
const DEEP: usize = 100_000;
/// Most bytes that are kept of what cannot be read.
const KEPT_MAX: i64 = 64 << 10;
/// An envelope's bytes before its header, whose length is the last two of them.
const SEALED: usize = 31;
/// The producer's exit codes: for a task that is none, and for one that was waited for and is dead.
const USAGE: i32 = 2;
const ENDED_BADLY: i32 = 3;

/// One-element lists in each other, around an empty one.
fn lists(deep: usize) -> Vec<u8> {
    [vec![0x91; deep], vec![0x90]].concat()
}

/// One-element maps in each other, around an empty one.
fn maps(deep: usize) -> Vec<u8> {
    [[0x81, 0xa1, b'a'].repeat(deep), vec![0x80]].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hand_put_entries_are_put_aside() {
    let lab = Lab::new().await;
    let worker = lab.worker("w");
    let watch = Watch::on(&worker);
    some_run(&lab).await;
    let before = lab.counts().await.dead;
    let nested = [lists(DEEP), maps(DEEP)];
    let mut put = 0;
    for stream in ["q:default:s:5", "s:first"].map(|tail| lab.key(tail)) {
        for bytes in &nested {
            let mut entry = |fields: &[&[u8]]| {
                let args = [&[&b"XADD"[..], stream.as_bytes(), b"*"], fields].concat();
                assert_eq!(lab.raw(&args).as_error(), None);
                put += 1;
            };
            entry(&[b"payload", bytes]);
            entry(&[b"data", bytes]);
            entry(&[bytes, bytes]);
            entry(&[b"a", b"1", b"b", bytes]);
            entry(&[b"", b""]);
        }
    }
    some_run(&lab).await;
    lab.until("all are put aside", PATIENCE, async || match lab.counts().await.dead - before {
        n if n == put => Ok(()),
        n => Err(format!("{n} of {put} are")),
    })
    .await;
    bounded_and_invalid(&lab);
    assert_eq!(worker.ended(), None, "the process lives");
    watch.assert_calm();
    lab.close_with_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hand_put_envelopes_are_put_aside() {
    let lab = Lab::new().await;
    let worker = lab.worker("w");
    some_run(&lab).await;
    let watch = Watch::on(&worker);
    // Nothing that a worker could read: entry and generation fit.
    for (n, bytes) in
        [lists(DEEP), maps(DEEP), lists(4), vec![1; 5], vec![1; 40], vec![0xff; 1 << 20]].iter().enumerate()
    {
        let id = format!("by-hand-{n}");
        lab.raw(&[b"SET", lab.key(&format!("j:{id}")).as_bytes(), bytes]);
        let entry = lab.raw(&[b"XADD", lab.key("s:first").as_bytes(), b"*", &bytes[1..5], id.as_bytes()]);
        assert_eq!(entry.as_error(), None);
    }
    some_run(&lab).await;
    lab.until("all six are put aside", PATIENCE, async || match lab.counts().await.dead {
        6 => Ok(()),
        n => Err(format!("{n} are")),
    })
    .await;
    bounded_and_invalid(&lab);
    assert_eq!(worker.ended(), None, "the process lives");
    watch.assert_calm();
    lab.close_with_invariants().await;
}

/// The header is right, so that it is claimed and handed to a worker; what only the worker reads is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_meta_part_that_only_the_worker_reads() {
    let lab = Lab::new().await;
    let worker = worker_program(&lab, Duration::from_secs(10));
    let long = |body: &[u8]| [&u16::try_from(body.len()).expect("short enough").to_be_bytes()[..], body].concat();
    let bodies = [
        long(&lists(4_000)),
        long(&maps(1_000)),
        long(&[0xdd, 0xff, 0xff, 0xff, 0xff]),
        long(&[0xc1]),
        [&[0xff, 0xff][..], &lists(DEEP)].concat(),
        vec![0xff],
        Vec::new(),
    ];
    let delayed = |_| echo(b"1").delay(Duration::from_millis(pick(300, 1_000)));
    let tasks: Vec<NewTask> = bodies.iter().map(delayed).collect();
    lab.store().submit(&tasks, 0).await.expect("they are taken in");
    for (task, body) in tasks.iter().zip(&bodies) {
        let key = lab.key(&format!("j:{}", task.id));
        let envelope = lab.raw(&["GET", &key]).as_bytes().expect("its envelope").to_vec();
        let header = usize::from(u16::from_be_bytes([envelope[SEALED - 2], envelope[SEALED - 1]]));
        lab.raw(&[b"SET", key.as_bytes(), &[&envelope[..SEALED + header], body].concat()]);
    }
    for task in &tasks {
        let end = lab.store().status(&task.id, None).await.expect("an answer");
        assert_eq!(end.state, Some(State::Scheduled), "not due yet");
    }
    lab.until("all are dead", PATIENCE, async || match lab.counts().await.dead {
        n if n == tasks.len() as u64 => Ok(()),
        n => Err(format!("{n} are")),
    })
    .await;
    for task in &tasks {
        let end = lab.store().status(&task.id, None).await.expect("an answer");
        assert!(end.error().starts_with("invalid: "), "{end:?}");
    }
    echoes(&lab, b"still here").await;
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.exit(PATIENCE).await.code(), Some(0), "the process lived to its end");
    lab.close_with_invariants().await;
}

/// Rows and histories are made by scripts alone; one that cannot be read must stop neither claims nor the reclaims of others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_and_a_history_that_cannot_be_read() {
    let lab = Lab::new().await;
    let delayed = Payload::sleep(1).task().delay(Duration::from_millis(300));
    lab.submit(std::slice::from_ref(&delayed)).await;
    lab.raw(&["HSET", &lab.key("at"), delayed.id.as_str(), "?"]);
    lab.raw(&["HSET", &lab.key("run"), "nobody", "?"]);
    let last = lab.worker("last");
    for name in ["w1", "w2"] {
        let worker = lab.start(lab.setup(name).concurrency(8));
        let tasks = lab.tasks(16, Payload::sleep(400));
        lab.submit(&tasks).await;
        lab.until("it has work in hand", PATIENCE, async || match lab.ledger().running(worker.pid()).count() {
            0 => Err("it has not".into()),
            _ => Ok(()),
        })
        .await;
        worker.kill();
    }
    let watch = Watch::on(&last);
    lab.ended(33, PATIENCE).await;
    watch.assert_calm();
    assert_eq!(last.ended(), None);
    assert_eq!(lab.raw(&["HEXISTS", &lab.key("run"), "nobody"]), Reply::Int(0), "it went with the first reclaim");
    lab.close_with_invariants().await;
}

/// Payloads are nobody's business on the way: nested ones come back as they went.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nested_payload_is_only_bytes() {
    let lab = Lab::new().await;
    let worker = worker_program(&lab, Duration::from_secs(10));
    let json = format!("{}{}", "[".repeat(DEEP / 2), "]".repeat(DEEP / 2));
    for bytes in [lists(DEEP), maps(DEEP), json.clone().into_bytes(), "[".repeat(DEEP).into_bytes(), lists(1_000)] {
        echoes(&lab, &bytes).await;
    }
    // An agent that reads its payload as JSON reads no deeper than it can.
    let url = lab.server().url();
    let env = [("TIDEMILL__REDIS__URL", url.as_str())];
    let read = Program::run("producer", &["submit", "sleep", "--payload", &json, "--wait"], &env).await;
    assert_eq!(read.code, Some(ENDED_BADLY), "{read:?}");
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.exit(PATIENCE).await.code(), Some(0));
    lab.close_with_invariants().await;
}

/// In every field that has a text, a nested or very long one is refused in words; as a payload that must be JSON as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_producer_refuses() {
    let lab = Lab::new().await;
    let url = lab.server().url();
    let env = [("TIDEMILL__REDIS__URL", url.as_str())];
    let nested = format!("{}{}", "[".repeat(DEEP / 2), "]".repeat(DEEP / 2));
    let fields =
        ["--queue", "--tenant", "--key", "--order-key", "--id", "--priority", "--delay", "--at", "--timeout", "--cost"];
    for field in fields {
        let refused = Program::run("producer", &["submit", "echo", "1", &format!("{field}={nested}")], &env).await;
        assert_eq!(refused.code, Some(USAGE), "{field}: {:.300}", refused.err);
        assert!(!refused.err.is_empty());
    }
    for payload in [&"[".repeat(DEEP), &r#"{"a":"#.repeat(DEEP / 6)] {
        let refused = Program::run("producer", &["submit", "echo", "--payload", payload], &env).await;
        assert_eq!(refused.code, Some(USAGE), "a payload that is no JSON: {:.300}", refused.err);
    }
    let refused = Program::run("producer", &["submit", &nested, "1"], &env).await;
    assert_eq!(refused.code, Some(USAGE), "an agent: {:.300}", refused.err);
    // As the library: the same, and a trace context too.
    let client = Client::connect(Options::at(&url)).await.expect("a client");
    let long = String::from_utf8_lossy(&maps(1_000)).into_owned();
    let with = |change: &dyn Fn(&mut NewTask)| {
        let mut task = echo(b"1");
        change(&mut task);
        task
    };
    let tasks = [
        with(&|task| task.tenant.clone_from(&long)),
        with(&|task| task.key = Some(long.clone())),
        with(&|task| task.order_key = Some(long.clone())),
        with(&|task| task.meta.traceparent = Some(long.clone())),
    ];
    for task in tasks {
        let refused = client.submit(task).await.expect_err("it is refused");
        assert!(matches!(refused, tidemill_producer::Error::Invalid(_)), "{refused:?}");
    }
    let counts = lab.counts().await;
    assert!(counts.waiting.values().all(|n| *n == 0), "nothing came in: {counts:?}");
    lab.close_with_invariants().await;
}

fn echo(payload: &[u8]) -> NewTask {
    NewTask::new("echo".parse().expect("a name"), payload.to_vec())
}

async fn echoes(lab: &Lab, payload: &[u8]) {
    let client = Client::connect(Options::at(lab.server().url())).await.expect("a client");
    let receipt = client.submit(echo(payload)).await.expect("it is taken in");
    let Waited::Ended(end) = receipt.wait(PATIENCE).await.expect("an answer") else { panic!("it has not ended") };
    assert!(end.is_success() && end.result == payload, "its payload is its result, byte for byte");
}

async fn some_run(lab: &Lab) {
    let tasks = lab.tasks(5, Payload::sleep(1));
    lab.submit(&tasks).await;
    lab.until("the tasks behind it run", PATIENCE, async || {
        let ledger = lab.ledger();
        let n = tasks.iter().filter(|task| !ledger.of(task.id.as_str()).is_empty()).count();
        if n == tasks.len() { Ok(()) } else { Err(format!("{n} have")) }
    })
    .await;
}

/// What is dead was put aside as unreadable, and takes no more room than it may.
fn bounded_and_invalid(lab: &Lab) {
    let snapshot = lab.snapshot();
    for id in snapshot.of("dead") {
        let kept = lab.raw(&["STRLEN", &lab.key(&format!("j:{id}"))]).as_int().unwrap_or_default();
        assert!(kept > 0 && kept <= KEPT_MAX, "{kept} bytes are kept of {id}");
        let history = String::from_utf8_lossy(&snapshot.hashes["at"][id]).into_owned();
        assert!(history.contains("invalid"), "{id}: {history:?}");
        assert!(id.parse::<TaskId>().is_ok(), "{id} is a name that any command takes");
    }
}
