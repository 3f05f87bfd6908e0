//! P-03: dead consumers pile up, and removing them loses work.
//!
//! A consumer without pending entries goes with its worker's lease. One with pending entries stays until each of them has been
//! taken back: in the same script, so that no moment lies between. Asked again and again while the clean-up runs: whatever was read
//! from a stream and is still there is pending for somebody.

use std::collections::BTreeSet;

use tidemill_common::name::{AgentName, WorkerId};
use tidemill_common::store::{Claim, Lease, Offer};
use tidemill_common::task::{NewTask, Priority};
use tidemill_tests::lab::profile::{count, ms, pick};
use tidemill_tests::lab::{End, Lab, Payload, Snapshot, WorkerProcess};

use super::PATIENCE;

/// Queues beside the default one: each stream has consumers of its own.
const QUEUES: [&str; 3] = ["default", "mail", "reports"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_consumers_go_and_their_work_does_not() {
    let lab = Lab::new().await;
    let processes = pick(4, 20);
    // One dies with three pending, all others with one or none.
    let three = tasks(3);
    lab.submit(&three).await;
    assert_eq!(registers(&lab, "three", 3).await, 3);
    let mut tasks = [three, everywhere(), tasks(processes)].concat();
    lab.submit(&tasks[3..]).await;
    let frozen = freezes_with_two(&lab, &mut tasks).await;
    for n in 0..count(500) - processes {
        registers(&lab, &format!("gone{n}"), u32::from(n % 5 == 0)).await;
    }
    for n in 0..processes {
        dies(&lab, &format!("killed{n}")).await;
    }
    let dead = consumers(&lab.snapshot()).len();
    assert!(dead >= count(500) - processes, "{dead} consumers have piled up");

    let live = ["live1", "live2"].map(|name| lab.start(lab.setup(name).agents(&["ledger", "slow"])));
    only_these_are_left(&lab, &live).await;
    all_run(&lab, &tasks).await;
    frozen.cont();
    lab.until("the frozen one has a new life", PATIENCE, async || {
        let known = lab.snapshot().of("w").iter().filter(|worker| worker.starts_with("frozen.")).count();
        if known == 1 { Ok(()) } else { Err(format!("{known} lives of it are known")) }
    })
    .await;
    only_these_are_left(&lab, &[live[0].clone(), live[1].clone(), frozen]).await;
    for run in lab.ledger().all().filter(|run| run.start.losses > 0) {
        assert_eq!((run.start.losses, run.start.attempt), (1, 1), "taken back once, and no attempt: {run:?}");
    }
    lab.close_with_invariants().await;
}

/// Workers that come and go in a busy fleet: the number of consumers never runs away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumers_do_not_pile_up_over_time() {
    let lab = Lab::new().await;
    let live = [lab.worker("live")];
    let mut tasks = Vec::new();
    for round in 0..pick(5, 20) {
        let some = everywhere();
        lab.submit(&some).await;
        tasks.extend(some);
        // Some leave in order, some are killed, some die with a delivery.
        let leaves = lab.worker(&format!("leaves{round}"));
        registers(&lab, &format!("idle{round}"), 0).await;
        registers(&lab, &format!("holds{round}"), 1).await;
        leaves.term();
        leaves.exit(PATIENCE).await;
    }
    all_run(&lab, &tasks).await;
    only_these_are_left(&lab, &live).await;
    lab.close_with_invariants().await;
}

fn tasks(n: usize) -> Vec<NewTask> {
    (0..n).map(|_| Payload::sleep(1).task()).collect()
}

/// One task in each of several streams.
fn everywhere() -> Vec<NewTask> {
    let queue = |name: &str| Payload::sleep(1).task().queue(name.parse().expect("a name"));
    QUEUES.iter().flat_map(|name| [queue(name), queue(name).priority(Priority::Urgent)]).collect()
}

/// A worker that begins, claims up to so many, and is never heard of again. Returns how many it got.
async fn registers(lab: &Lab, name: &str, most: u32) -> usize {
    let worker = WorkerId::incarnate(name).expect("a name");
    let agent: AgentName = "ledger".parse().expect("a name");
    let lease = Lease {
        lease: lab.profile.lease,
        sweep_hold: lab.profile.sweep,
        unknown_agent_after: std::time::Duration::ZERO,
    };
    lab.store().renew(&worker, lease, Some(std::slice::from_ref(&agent)), false).await.expect("it begins");
    let offers = [Offer { agent, room: most }];
    let claim = Claim { worker: &worker, sequence: 1, most, lone: false, shares: [most, 0, 0, 0], offers: &offers };
    let got = if most == 0 { 0 } else { lab.store().claim(&claim).await.expect("an answer").deliveries.len() };
    if got == 0 {
        // It has read nothing, which makes nobody a consumer on every server.
        lab.raw(&["XGROUP", "CREATECONSUMER", &lab.key("s:first"), "w", worker.as_str()]);
    }
    got
}

/// A process that is frozen with two tasks in hand, which are added to `tasks`.
async fn freezes_with_two(lab: &Lab, tasks: &mut Vec<NewTask>) -> WorkerProcess {
    let frozen = lab.start(lab.setup("frozen").agents(&["slow"]).concurrency(2));
    let two: Vec<NewTask> = (0..2).map(|_| Payload::sleep(ms(3_000)).task_of("slow")).collect();
    lab.submit(&two).await;
    lab.until("it runs both", PATIENCE, async || match lab.ledger().running(frozen.pid()).count() {
        2 => Ok(()),
        n => Err(format!("{n}")),
    })
    .await;
    frozen.stop();
    tasks.extend(two);
    frozen
}

/// A process that is killed as soon as it is known.
async fn dies(lab: &Lab, name: &str) {
    let worker = lab.worker(name);
    let prefix = format!("{name}.");
    lab.until("it is known", PATIENCE, async || {
        let known = lab.snapshot().of("w").iter().any(|worker| worker.starts_with(&prefix));
        if known { Ok(()) } else { Err("it is not".into()) }
    })
    .await;
    worker.kill();
}

fn consumers(s: &Snapshot) -> BTreeSet<String> {
    s.streams.values().flat_map(|stream| stream.consumers.iter().cloned()).collect()
}

/// Waits until the consumers are those of these workers; at every look, nothing may have been lost by a clean-up.
async fn only_these_are_left(lab: &Lab, live: &[WorkerProcess]) {
    let names: BTreeSet<String> = live.iter().map(|worker| worker.setup().name.clone()).collect();
    lab.until("only the living are consumers", PATIENCE, async || {
        let snapshot = lab.snapshot();
        for (tail, stream) in &snapshot.streams {
            let lost: Vec<_> = stream.read.iter().filter(|entry| !stream.pending.contains_key(*entry)).collect();
            assert!(lost.is_empty(), "read from {tail}, still there, and pending for nobody: {lost:?}");
        }
        // A worker is a consumer of what it has read, so it may be none yet.
        let (known, left) = (snapshot.of("w"), consumers(&snapshot));
        let lives: BTreeSet<String> = known.iter().filter_map(|id| Some(id.rsplit_once('.')?.0.to_owned())).collect();
        let calm = lives == names && known.len() == live.len() && left.iter().all(|id| known.contains(id));
        if calm { Ok(()) } else { Err(format!("known are {known:?}, and {} consumers are left: {left:?}", left.len())) }
    })
    .await;
}

async fn all_run(lab: &Lab, tasks: &[NewTask]) {
    lab.until("all tasks have run", PATIENCE, async || {
        let ledger = lab.ledger();
        let done =
            |task: &&NewTask| ledger.of(task.id.as_str()).iter().any(|run| matches!(run.end, Some((End::Done, _))));
        let n = tasks.iter().filter(done).count();
        if n == tasks.len() { Ok(()) } else { Err(format!("{n} of {} have", tasks.len())) }
    })
    .await;
}
