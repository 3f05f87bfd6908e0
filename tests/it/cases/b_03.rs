//! B-03: large numbers and types on their way through scripts.
//!
//! A payload is never decoded on the way, so its bytes are the same at the end, whatever way the task took. What scripts do
//! compute with (times, sequences, costs) is exact at the ends of its range, and what lies outside is refused in words.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidemill_common::envelope;
use tidemill_common::retry::RetryPolicy;
use tidemill_common::state::State;
use tidemill_common::store::RedisOptions;
use tidemill_common::task::{DELAY_MAX, NewTask, Priority};
use tidemill_producer::{Client, Options as ClientOptions, Waited};
use tidemill_tests::lab::Lab;
use tidemill_tests::program::{Ended, Program};
use tidemill_worker::{Context, Options, Outcome, Registry, Shutdown, Worker};
use tokio_util::bytes::Bytes;

use super::PATIENCE;

/// The producer's exit code for a task that is none.
const USAGE: i32 = 2;
/// Runs of a task before it is dead.
const ATTEMPTS: u16 = 3;

/// Payloads that a re-encoding would change: as msgpack and JSON 2^53 + 1, the ends of 64 bits, 1.0 beside 1, empty lists and maps,
/// binary beside text; every byte there is; and one that is too large to ride along.
fn payloads() -> Vec<Bytes> {
    let mut msgpack = vec![0x98];
    msgpack.extend([&[0xcf][..], &9_007_199_254_740_993_u64.to_be_bytes()].concat());
    msgpack.extend([&[0xcf][..], &u64::MAX.to_be_bytes()].concat());
    msgpack.extend([&[0xd3][..], &i64::MIN.to_be_bytes()].concat());
    msgpack.extend([&[0xcb][..], &1.0_f64.to_be_bytes(), &[0x01, 0x90, 0x80]].concat());
    msgpack.extend(b"\xc4\x02ab\xa2ab");
    let json = r#"{"n":[9007199254740993,18446744073709551615,-9223372036854775808,1.0,1,1e15,-0.0],"l":[],"m":{},"t":"é\u0000"}"#;
    let every: Vec<u8> = (0..=255).collect();
    let large = [msgpack.as_slice(), &every.repeat(300)].concat();
    [msgpack, json.as_bytes().to_vec(), every, large, Vec::new(), b"9007199254740993".to_vec()]
        .map(Bytes::from)
        .to_vec()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_are_the_same_at_the_end() {
    let lab = Lab::new().await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (worker, shutdown) = worker(&lab, Arc::clone(&seen));
    let running = tokio::spawn(worker.run(shutdown.clone()));
    let client = Client::connect(ClientOptions::at(lab.server().url())).await.expect("a client");
    // Delayed, promoted, run, retried twice; then done, or dead.
    let task = |agent: &str, payload: &Bytes| {
        let mut task = NewTask::new(agent.parse().expect("a name"), payload.clone()).max_attempts(ATTEMPTS);
        task.meta.retry = Some(RetryPolicy { base_ms: 20, cap_ms: 50 });
        task.delay(Duration::from_millis(50)).tenant("té\0").key(format!("{agent}{}", payload.len())).order_key("\u{1}")
    };
    for payload in &payloads() {
        for agent in ["ends-well", "ends-badly"] {
            let receipt = client.submit(task(agent, payload)).await.expect("it is taken in");
            let Waited::Ended(end) = receipt.wait(PATIENCE).await.expect("an answer") else {
                panic!("it has not ended")
            };
            let runs: Vec<Bytes> = std::mem::take(&mut seen.lock().expect("no handler panics"));
            assert_eq!(runs.len(), usize::from(ATTEMPTS), "{end:?}");
            assert!(runs.iter().all(|run| run == payload), "{payload:?} became {runs:?}");
            match agent {
                "ends-well" => assert_eq!((end.state, &end.result), (State::Succeeded, payload)),
                _ => assert_eq!((end.state, &kept(&lab, receipt.id().as_str())), (State::Dead, payload)),
            }
        }
    }
    shutdown.drain.cancel();
    running.await.expect("no panic").expect("it ends");
    lab.close_with_invariants().await;
}

/// A worker in this process whose handlers note what they get. They fail until the last attempt, and one of them then as well.
fn worker(lab: &Lab, seen: Arc<Mutex<Vec<Bytes>>>) -> (Worker, Shutdown) {
    let handler = move |well: bool| {
        let seen = Arc::clone(&seen);
        move |context: Context| {
            seen.lock().expect("no handler panics").push(context.payload().clone());
            let last = well && context.attempt() == ATTEMPTS;
            let outcome = if last { Outcome::Done(context.payload().clone()) } else { Outcome::retry("not yet") };
            std::future::ready(outcome)
        }
    };
    let name = |name: &str| name.parse().expect("a name");
    let registry = Registry::new().with(name("ends-well"), handler(true)).with(name("ends-badly"), handler(false));
    let redis = RedisOptions { url: lab.server().url(), ..RedisOptions::default() };
    let lease = lab.profile;
    let options = Options { lease: lease.lease, renew: lease.renew, sweep: lease.sweep, ..Options::default() };
    (Worker::new(redis, registry, options).expect("a worker"), Shutdown::new())
}

/// What is kept of a dead task's payload.
fn kept(lab: &Lab, id: &str) -> Bytes {
    let get = |tail: String| Bytes::from(lab.raw(&["GET", &lab.key(&tail)]).as_bytes().expect("it is there").to_vec());
    let task = envelope::open(id.parse().expect("an id"), &get(format!("j:{id}"))).expect("an envelope");
    if task.payload_apart { get(format!("b:{id}")) } else { task.payload }
}

/// Times at the far end keep their order and their last digit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neighbours_at_the_far_end_keep_their_order() {
    let lab = Lab::new().await;
    let ms = Duration::from_millis;
    let delays = [DELAY_MAX, DELAY_MAX - ms(1), DELAY_MAX - ms(2), DELAY_MAX - ms(1_000)];
    let tasks: Vec<NewTask> =
        delays.iter().map(|delay| NewTask::new("later".parse().expect("a name"), "1").delay(*delay)).collect();
    // One call: they all count from the same moment.
    lab.store().submit(&tasks, 0).await.expect("they are taken in");
    let order: Vec<String> = lab.snapshot().of("z").to_vec();
    assert_eq!(order, [3, 2, 1, 0].map(|n| tasks[n].id.to_string()));
    let mut due = Vec::new();
    for task in &tasks {
        let status = lab.store().status(&task.id, None).await.expect("an answer");
        assert_eq!(status.state, Some(State::Scheduled));
        let sealed = envelope::open(task.id.clone(), &envelope_of(&lab, task)).expect("an envelope");
        assert_eq!(status.due_ms, sealed.due_ms, "the schedule and the envelope agree");
        due.push(status.due_ms);
    }
    assert_eq!([due[0] - due[1], due[1] - due[2], due[2] - due[3]], [1, 1, 998]);
    // Sequences are given one after the other, and the largest cost and attempts come back as they are.
    let mut last = 0;
    for task in &tasks {
        let seq = envelope::open(task.id.clone(), &envelope_of(&lab, task)).expect("an envelope").seq_us;
        assert!(seq > last, "{seq} after {last}");
        last = seq;
    }
    let most = NewTask { cost: u32::MAX, max_attempts: u16::MAX, ..tasks[0].clone() };
    let most = NewTask { id: tidemill_common::name::TaskId::generate(), ..most };
    lab.store().submit(std::slice::from_ref(&most), 0).await.expect("it is taken in");
    let read = envelope::open(most.id.clone(), &envelope_of(&lab, &most)).expect("an envelope");
    assert_eq!((read.cost, read.max_attempts), (u32::MAX, u16::MAX));
    lab.close_with_invariants().await;
}

fn envelope_of(lab: &Lab, task: &NewTask) -> Bytes {
    Bytes::from(lab.raw(&["GET", &lab.key(&format!("j:{}", task.id))]).as_bytes().expect("it is there").to_vec())
}

/// The ends of 64 bits, and the year 9999: refused with the value or what is allowed, or taken at their word; never wrapped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_outside_are_refused_in_words() {
    let lab = Lab::new().await;
    let url = lab.server().url();
    let submit = async |more: &[&str]| -> Ended {
        let args = [&["submit", "later", "1"], more].concat();
        Program::run("producer", &args, &[("TIDEMILL__REDIS__URL", url.as_str())]).await
    };
    let refused = [
        ("--delay=18446744073709551615ms", "18446744073709551615ms"),
        ("--delay=18446744073709551616ms", "18446744073709551616ms"),
        ("--delay=-1ms", "delay"),
        ("--delay=315576000001ms", "ten years"),
        ("--at=9999-12-30T00:00:00Z", "ten years"),
        ("--at=9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"),
        ("--at=10000-01-01T00:00:00Z", "10000-01-01T00:00:00Z"),
        ("--start-within=18446744073709551615ms", "18446744073709551615ms"),
        ("--start-within=315576000001ms", "ten years"),
        ("--timeout=315576000001ms", "ten years"),
        ("--priority=-9223372036854775808", "urgent"),
        ("--priority=-9223372036854775807", "urgent"),
        ("--priority=9223372036854775807", "urgent"),
        ("--priority=9223372036854775806", "urgent"),
        ("--priority=18446744073709551615", "urgent"),
        ("--priority=1.0", "urgent"),
        ("--cost=4294967296", "4294967296"),
        ("--cost=-1", "cost"),
        ("--max-attempts=65536", "65536"),
        ("--max-attempts=0", "attempts"),
        ("--retry-cap=8d", "week"),
    ];
    for (flag, word) in refused {
        let run = submit(&[flag]).await;
        assert_eq!(run.code, Some(USAGE), "{flag}: {run:?}");
        assert!(run.err.contains(word), "{flag}: the words do not help: {}", run.err);
    }
    let lines = [
        r#"{"agent":"later","priority":18446744073709551615}"#,
        r#"{"agent":"later","priority":1e400}"#,
        r#"{"agent":"later","cost":1e400}"#,
    ];
    for line in lines {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), line).expect("it is written");
        let run = Program::run(
            "producer",
            &["submit", "--ndjson", &file.path().to_string_lossy()],
            &[("TIDEMILL__REDIS__URL", url.as_str())],
        )
        .await;
        assert_eq!(run.code, Some(USAGE), "{line}: {run:?}");
    }
    let counts = lab.counts().await;
    assert!(counts.waiting.values().all(|n| *n == 0), "nothing came in: {counts:?}");
    let taken = [
        "--delay=315576000000ms",
        "--cost=4294967295",
        "--max-attempts=65535",
        "--priority=20",
        "--priority=low",
        "--at=1970-01-01T00:00:00Z",
    ];
    for flag in taken {
        assert_eq!(submit(&[flag]).await.code, Some(0), "{flag}");
    }
    let counts = lab.counts().await;
    let of = |priority: Priority| counts.waiting.get(&("default".to_owned(), priority.value())).copied();
    assert_eq!((of(Priority::Urgent), of(Priority::Low), of(Priority::Normal)), (Some(1), Some(1), Some(4)));
    lab.close_with_invariants().await;
}
