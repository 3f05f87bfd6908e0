//! G-02: a second signal, and a signal while Redis is away.
//!
//! The process is gone within two seconds of the second signal, or within its grace when Redis does not answer. What had not ended
//! is never acknowledged, and handed back at most once.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tidemill_common::state::State;
use tidemill_common::task::NewTask;
use tidemill_tests::lab::profile::{ms, pick};
use tidemill_tests::lab::{End, Lab, Mode, Payload, WorkerProcess};

use super::PATIENCE;
use super::g_01::worker_program;

/// Exit codes of a worker.
const DRAINED: i32 = 0;
const LEASE_LOST: i32 = 1;
const FORCED: i32 = 130;
/// "Out in 1–2 s after the second."
const FORCED_WITHIN: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_sigterm() {
    out_at_the_second(Signal::SIGTERM, Duration::from_millis(ms(1_000))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigint_twice() {
    out_at_the_second(Signal::SIGINT, Duration::from_millis(10)).await;
}

/// The program itself, with four tasks that would run for a minute.
async fn out_at_the_second(signal: Signal, between: Duration) {
    let lab = Lab::new().await;
    let worker = worker_program(&lab, Duration::from_secs(60));
    let task = || NewTask::new("sleep".parse().expect("a name"), r#"{"ms":60000}"#);
    let tasks: Vec<NewTask> = (0..4).map(|_| task()).collect();
    lab.store().submit(&tasks, 0).await.expect("they are taken in");
    running(&lab, 4).await;
    worker.signal(signal);
    tokio::time::sleep(between).await;
    assert_eq!(worker.ended(), None, "one signal lets it wait for its tasks");
    worker.signal(signal);
    let second = Instant::now();
    let code = worker.exit(PATIENCE).await.code();
    assert!(second.elapsed() <= FORCED_WITHIN, "it took {:?}", second.elapsed());
    assert_eq!(code, Some(FORCED));
    for task in &tasks {
        let now = lab.store().status(&task.id, None).await.expect("an answer");
        assert_eq!(
            (now.state, now.attempt, now.losses),
            (Some(State::Queued), 0, 0),
            "claimable at once, and nothing counts"
        );
        assert_eq!(hand_backs(&lab, &task.id.to_string()), 1, "handed back once");
        lab.store().cancel(&task.id).await.expect("an answer");
    }
    lab.close_with_invariants().await;
}

/// Handlers that do not hear, and one that blocks its thread, do not keep the process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_that_do_not_stop() {
    let lab = Lab::new().await;
    let worker = lab.start(lab.setup("w").grace(Duration::from_secs(60)).threads(2));
    let long = ms(12_000);
    let mut tasks = lab.tasks(3, Payload::of(Mode::Deaf, long));
    tasks.push(Payload::of(Mode::Busy, long).task());
    lab.submit(&tasks).await;
    running(&lab, 4).await;
    forced(&lab, &worker).await;
    assert_eq!(lab.counts().await.running, 0, "all were handed back");
    for task in &tasks {
        let now = lab.store().status(&task.id, None).await.expect("an answer");
        assert_eq!((now.state, now.attempt, now.losses), (Some(State::Queued), 0, 0), "nothing counts");
        assert_eq!(hand_backs(&lab, &task.id.to_string()), 1, "handed back once");
        lab.store().cancel(&task.id).await.expect("an answer");
    }
    lab.close_with_invariants().await;
}

/// Redis freezes while tasks run: the worker cannot hand them back, says so by its code, and is gone within the grace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_while_redis_is_frozen() {
    let mut lab = Lab::new().await;
    let grace = Duration::from_millis(ms(10_000));
    let worker = lab.start(lab.setup("w").grace(grace));
    let tasks = lab.tasks(4, Payload::sleep(pick(2_500, 30_000)));
    lab.submit(&tasks).await;
    running(&lab, 4).await;
    lab.server_mut().freeze().expect("it freezes");
    worker.term();
    let signalled = Instant::now();
    assert_eq!(worker.exit(PATIENCE).await.code(), Some(LEASE_LOST));
    assert!(signalled.elapsed() <= grace, "it took {:?} of {grace:?}", signalled.elapsed());
    lab.server_mut().thaw().expect("it goes on");
    assert_eq!(lab.counts().await.running, 4, "nothing was acknowledged");
    // They were told to stop, and will end sooner the next time.
    lab.start(lab.setup("next").concurrency(8));
    lab.ended(4, PATIENCE * 2).await;
    assert_eq!(lab.ledger().ended(End::Done), 4);
    lab.close_with_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_while_redis_is_frozen() {
    let mut lab = Lab::new().await;
    let worker = lab.start(lab.setup("w").grace(Duration::from_secs(60)));
    let tasks = lab.tasks(4, Payload::sleep(pick(2_000, 20_000)));
    lab.submit(&tasks).await;
    running(&lab, 4).await;
    lab.server_mut().freeze().expect("it freezes");
    forced(&lab, &worker).await;
    lab.server_mut().thaw().expect("it goes on");
    lab.start(lab.setup("next").concurrency(8));
    lab.ended(4, PATIENCE).await;
    // A hand-back that was on its way may have arrived when the server went on; two cannot have.
    for task in &tasks {
        assert_eq!(lab.ledger().of(task.id.as_str()).len(), 2, "run twice, the second time to its end");
    }
    lab.close_with_invariants().await;
}

/// An idle worker has nothing to wait for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_worker_while_redis_is_frozen() {
    let mut lab = Lab::new().await;
    let grace = Duration::from_millis(ms(10_000));
    let worker = lab.start(lab.setup("w").grace(grace));
    lab.until("it is at work", PATIENCE, async || match lab.counts().await.idle {
        1 => Ok(()),
        _ => Err("not yet".into()),
    })
    .await;
    lab.server_mut().freeze().expect("it freezes");
    worker.term();
    let signalled = Instant::now();
    let code = worker.exit(PATIENCE).await.code();
    assert!(signalled.elapsed() <= grace, "it took {:?} of {grace:?}", signalled.elapsed());
    assert!(matches!(code, Some(DRAINED | LEASE_LOST)), "{code:?}");
    lab.server_mut().thaw().expect("it goes on");
    // Its goodbye may have been lost; then it is forgotten with its lease.
    lab.worker("next");
    lab.until("it is forgotten", PATIENCE, async || {
        let known = lab.snapshot().of("w").to_vec();
        if known.iter().all(|worker| worker.starts_with("next.")) { Ok(()) } else { Err(format!("{known:?}")) }
    })
    .await;
    lab.close_with_invariants().await;
}

/// What has run to its end and could not be settled runs again; the exit code must not say that all is well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finished_and_not_settled_when_redis_is_frozen() {
    let mut lab = Lab::new().await;
    let mut setup = lab.setup("w").grace(Duration::from_secs(1));
    // Longer than all phases of a stop, so that the lease is not what ends it.
    (setup.lease_ms, setup.renew_ms, setup.sweep_ms) = (7_000, 2_000, 1_000);
    let worker = lab.start(setup);
    let tasks = lab.tasks(1, Payload::sleep(300));
    lab.submit(&tasks).await;
    running(&lab, 1).await;
    lab.server_mut().freeze().expect("it freezes");
    lab.until("it has run", PATIENCE, async || match lab.ledger().ended(End::Done) {
        1 => Ok(()),
        _ => Err("not yet".into()),
    })
    .await;
    worker.term();
    let code = worker.exit(Duration::from_secs(8)).await.code();
    assert_ne!(code, Some(DRAINED), "its task was not settled, and will run again");
    lab.server_mut().thaw().expect("it goes on");
    // Nobody has to wait for all of that long lease here.
    for old in lab.snapshot().of("w") {
        lab.raw(&["ZADD", &lab.key("w"), "XX", "0", old]);
    }
    lab.start(lab.setup("next"));
    lab.ended(1, PATIENCE).await;
    // Its settle may have waited in the server's socket, and count.
    assert!(lab.ledger().of(tasks[0].id.as_str()).len() <= 2);
    lab.close_with_invariants().await;
}

/// Two signals, and the end. The first is waited for: two that nobody has taken yet are one.
async fn forced(lab: &Lab, worker: &WorkerProcess) {
    worker.term();
    lab.until("the first signal is heard", PATIENCE, async || {
        if worker.log().contains("draining") { Ok(()) } else { Err("it is not".into()) }
    })
    .await;
    worker.term();
    let second = Instant::now();
    let code = worker.exit(PATIENCE).await.code();
    assert!(second.elapsed() <= FORCED_WITHIN, "it took {:?}", second.elapsed());
    assert_eq!(code, Some(FORCED));
}

async fn running(lab: &Lab, n: u64) {
    lab.until(&format!("{n} run"), PATIENCE, async || match lab.counts().await.running {
        now if now == n => Ok(()),
        now => Err(format!("{now} do")),
    })
    .await;
}

/// How often a task was handed back, as its history says: the fourth of its numbers.
fn hand_backs(lab: &Lab, id: &str) -> u16 {
    let history = lab.raw(&["HGET", &lab.key("at"), id]);
    history.as_bytes().and_then(|bytes| bytes.get(6..8)?.try_into().ok()).map_or(0, u16::from_be_bytes)
}
