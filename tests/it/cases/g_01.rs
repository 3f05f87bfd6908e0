//! G-01: SIGTERM with work in hand.
//!
//! Nothing is claimed after the signal; what ends within the grace is done; what does not is handed back, claimable at once, its
//! attempt not counted and its slots free; and the exit code says which it was. So a deploy never counts against a task.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tidemill_common::book::{Limit, Match};
use tidemill_common::name::{AgentName, WorkerId};
use tidemill_common::state::State;
use tidemill_common::store::{Claim, Claimed, Lease, Offer, Settle, SettleItem, Verb};
use tidemill_common::task::NewTask;
use tidemill_tests::lab::profile::{ms, pick};
use tidemill_tests::lab::{End, Lab, Payload};
use tidemill_tests::program::Program;

use super::{PATIENCE, SLACK, as_ms};

/// Exit codes of `worker run`.
const DRAINED: i32 = 0;
const HANDED_BACK: i32 = 75;
/// What a stop may take beyond the grace: handlers have a moment to hear, then the hand-back and the goodbye.
const GOODBYE: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_tasks_finish_and_long_ones_are_handed_back() {
    let lab = Lab::new().await;
    three_slots_for(&lab, "long").await;
    let grace = Duration::from_millis(ms(10_000));
    let worker = worker_program(&lab, grace);
    let tasks = |n: usize, long: u64| (0..n).map(|_| sleep(long)).collect::<Vec<_>>();
    let short = [tasks(4, ms(1_000)), tasks(3, ms(5_000))].concat();
    let long: Vec<NewTask> = tasks(3, ms(60_000)).into_iter().map(|task| task.tenant("long")).collect();
    let late = tasks(5, 1);
    hand_in(&lab, &[&long[..], &short].concat()).await;
    running(&lab, 10).await;
    hand_in(&lab, &late).await;

    let (signalled, server_ms) = (Instant::now(), lab.counts().await.now_ms);
    worker.signal(Signal::SIGTERM);
    let code = worker.exit(grace + PATIENCE).await.code();
    let took = signalled.elapsed();
    assert_eq!(code, Some(HANDED_BACK));
    assert!((grace..=grace + GOODBYE).contains(&took), "it ended {took:?} after the signal, with a grace of {grace:?}");
    assert_eq!(lab.counts().await.running, 0, "nothing is left that nobody runs");
    for task in &short {
        assert_eq!(state(&lab, task).await, Some(State::Succeeded), "what took less than the grace is done");
    }
    for task in long.iter().chain(&late) {
        let now = lab.store().status(&task.id, None).await.expect("an answer");
        assert_eq!((now.state, now.attempt, now.losses), (Some(State::Queued), 0, 0), "nothing counts");
        let untouched = task.tenant.is_empty();
        assert!(!untouched || now.fence.0 == 0, "claimed after the signal (at {server_ms}): {now:?}");
    }

    // At once: by whoever asks first, all of them, those that were handed back before the others.
    let next = claim(&lab, 8).await;
    let ids: Vec<_> = next.deliveries.iter().map(|delivery| &delivery.id).collect();
    assert_eq!(ids.len(), 8, "everything is there for the next worker, and the three slots are free");
    assert!(long.iter().all(|task| ids[..4].contains(&&task.id)), "what was handed back comes first: {ids:?}");
    assert!(next.deliveries.iter().all(|delivery| (delivery.attempt, delivery.losses) == (1, 0)));
    lab.close_with_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_to_hand_back_is_an_early_end_and_another_code() {
    let lab = Lab::new().await;
    let worker = worker_program(&lab, Duration::from_secs(30));
    let tasks: Vec<NewTask> = (0..10).map(|_| sleep(ms(1_000))).collect();
    hand_in(&lab, &tasks).await;
    running(&lab, 10).await;
    worker.signal(Signal::SIGINT);
    let signalled = Instant::now();
    assert_eq!(worker.exit(PATIENCE).await.code(), Some(DRAINED));
    let (took, bound) = (signalled.elapsed(), Duration::from_millis(ms(1_000)) + GOODBYE);
    assert!(took <= bound, "it ended after {took:?}; its tasks were over within {bound:?}");
    for task in &tasks {
        assert_eq!(state(&lab, task).await, Some(State::Succeeded));
    }
    lab.close_with_invariants().await;
}

/// Another worker lives: it goes on with what was handed back without waiting for a lease, as the first attempt again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_neighbour_goes_on_at_once() {
    let lab = Lab::new().await;
    let old = lab.start(lab.setup("old").grace(Duration::from_millis(ms(1_000))));
    let tasks = lab.tasks(4, Payload::sleep(ms(6_000)));
    lab.submit(&tasks).await;
    running(&lab, 4).await;
    lab.start(lab.setup("new").concurrency(8));
    old.term();
    lab.ended(4, PATIENCE).await;
    assert_eq!(old.exit(PATIENCE).await.code(), Some(HANDED_BACK));
    let ledger = lab.ledger();
    for task in &tasks {
        let [first, second] = ledger.of(task.id.as_str()) else {
            panic!("two runs, not {:?}", ledger.of(task.id.as_str()))
        };
        let Some((End::Cut, cut)) = first.end else { panic!("the first was told to stop: {first:?}") };
        let wait = second.start.at.saturating_sub(cut);
        assert!(wait <= as_ms(SLACK), "it went on {wait} ms after it was handed back");
        assert_eq!((second.start.attempt, second.start.losses), (1, 0));
    }
    lab.close_with_invariants().await;
}

/// Every deploy cuts the same long task short; it has three attempts, and keeps them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_deploys_do_not_use_up_three_attempts() {
    let lab = Lab::new().await;
    let task = sleep(pick(1_500, 60_000)).max_attempts(3);
    hand_in(&lab, std::slice::from_ref(&task)).await;
    for deploy in 1..=5 {
        let worker = worker_program(&lab, Duration::from_millis(pick(100, 3_000)));
        running(&lab, 1).await;
        worker.signal(Signal::SIGTERM);
        assert_eq!(worker.exit(PATIENCE).await.code(), Some(HANDED_BACK), "deploy {deploy}");
        let now = lab.store().status(&task.id, None).await.expect("an answer");
        assert_eq!((now.state, now.attempt, now.losses), (Some(State::Queued), 0, 0), "after deploy {deploy}");
    }
    let last = worker_program(&lab, Duration::from_secs(30));
    lab.until("the last worker lets it end", Duration::from_millis(pick(10_000, 90_000)), async || {
        let now = lab.store().status(&task.id, None).await.map_err(|e| e.to_string())?;
        if (now.state, now.attempt) == (Some(State::Succeeded), 1) { Ok(()) } else { Err(format!("{now:?}")) }
    })
    .await;
    last.signal(Signal::SIGTERM);
    assert_eq!(last.exit(PATIENCE).await.code(), Some(DRAINED));
    lab.close_with_invariants().await;
}

/// The program `worker` with ten slots and the lab's times.
pub(super) fn worker_program(lab: &Lab, grace: Duration) -> Program {
    let times =
        [lab.profile.lease, lab.profile.renew, lab.profile.sweep, grace].map(|time| format!("{}ms", time.as_millis()));
    let (url, [lease, renew, sweep, grace]) = (lab.server().url(), &times);
    let env =
        [("TIDEMILL__WORKER__LEASE", lease), ("TIDEMILL__WORKER__RENEW", renew), ("TIDEMILL__WORKER__SWEEP", sweep)];
    let args =
        ["run", "--name", "deployed", "--admin", "off", "--concurrency", "10", "--redis", &url, "--grace", grace];
    Program::start("worker", &args, &env.map(|(name, value)| (name, value.as_str())))
}

/// A task of the worker's own agent `sleep`.
fn sleep(ms: u64) -> NewTask {
    NewTask::new("sleep".parse().expect("a name"), format!(r#"{{"ms":{ms}}}"#))
}

async fn hand_in(lab: &Lab, tasks: &[NewTask]) {
    lab.store().submit(tasks, 0).await.expect("they are taken in");
}

async fn three_slots_for(lab: &Lab, tenant: &str) {
    let matches = Match { tenant: Some(tenant.to_owned()), ..Match::default() };
    lab.book(vec![Limit::of_slots(matches, 3)]).await;
}

async fn running(lab: &Lab, n: u64) {
    lab.until(&format!("{n} run"), PATIENCE, async || match lab.counts().await.running {
        now if now == n => Ok(()),
        now => Err(format!("{now} do")),
    })
    .await;
}

async fn state(lab: &Lab, task: &NewTask) -> Option<State> {
    lab.store().status(&task.id, None).await.expect("an answer").state
}

/// A worker that only claims, says that all of it is done, and leaves.
async fn claim(lab: &Lab, most: u32) -> Claimed {
    let (store, worker) = (lab.store(), WorkerId::incarnate("next").expect("a name"));
    let agent: AgentName = "sleep".parse().expect("a name");
    let lease = Lease { lease: lab.profile.lease, sweep_hold: lab.profile.sweep, unknown_agent_after: Duration::ZERO };
    store.renew(&worker, lease, Some(std::slice::from_ref(&agent)), false).await.expect("it begins");
    let offers = [Offer { agent, room: most }];
    let ask = Claim { worker: &worker, sequence: 1, most, lone: false, shares: [most, 0, 0, 0], offers: &offers };
    let claimed = store.claim(&ask).await.expect("an answer");
    let done = |d: &tidemill_common::store::Delivery| {
        SettleItem::new(d.id.clone(), d.fence, Verb::Done { result: "".into(), keep_ms: 0 })
    };
    let items: Vec<_> = claimed.deliveries.iter().map(done).collect();
    store.settle(&Settle { worker: &worker, lane: 0, sequence: 1, items: &items }).await.expect("they are settled");
    assert!(store.leave(&worker).await.expect("an answer"), "it owns nothing any more");
    claimed
}
