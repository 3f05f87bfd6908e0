//! a slot leaks when a run ends in another way than its handler's: by a hard kill, a time-out, a panic, a cancel, a stop.
//!
//! Slots are held by rows of what runs, so that whatever ends a run gives its slots back. Tasks that were refused stand in a line and
//! start when one is given back; no attempt is counted.

use std::time::Duration;

use tidemill_common::book::{Limit, Match};
use tidemill_common::name::TaskId;
use tidemill_common::task::NewTask;
use tidemill_tests::lab::profile::pick;
use tidemill_tests::lab::{End, Lab, Mode, Payload, WorkerProcess, now_ms};

use super::PATIENCE;

const SLOTS: u64 = 5;
const GATE: &str = "s/a/ledger";

async fn used(lab: &Lab) -> u64 {
    lab.store().gate(GATE, &TaskId::generate()).await.unwrap().used
}

/// All slots are in use by these tasks, which then end in their way.
async fn five(lab: &Lab, task: impl Fn() -> NewTask) -> Vec<NewTask> {
    let tasks: Vec<NewTask> = (0..SLOTS).map(|_| task()).collect();
    lab.submit(&tasks).await;
    lab.until("all slots are in use", PATIENCE, async || match (used(lab).await, running(lab)) {
        (SLOTS, 5) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    tasks
}

fn running(lab: &Lab) -> usize {
    lab.alive().iter().map(|worker| lab.ledger().running(worker.pid()).count()).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_way_to_end_gives_its_slot_back() {
    let lab = Lab::new().await;
    lab.book(vec![Limit::of_slots(Match::agent("ledger".parse().unwrap()), SLOTS)]).await;
    let (long, short) = (60_000, pick(50, 200));
    let start = |name: &str| lab.start(lab.setup(name).concurrency(20).grace(Duration::from_millis(200)));
    let mut worker: WorkerProcess = start("w");
    let mut all = Vec::new();

    let panics = five(&lab, || Payload::of(Mode::Panic, short).task().max_attempts(1)).await;
    all.extend(panics);
    drained(&lab, "panics").await;
    let timeouts = five(&lab, || {
        let mut task = Payload::of(Mode::Deaf, long).task().max_attempts(1);
        task.meta.timeout_ms = short;
        task
    })
    .await;
    all.extend(timeouts);
    drained(&lab, "time-outs").await;
    let called_off = five(&lab, || Payload::sleep(long).task()).await;
    for task in &called_off {
        lab.store().cancel(&task.id).await.unwrap();
    }
    all.extend(called_off);
    drained(&lab, "cancels").await;

    // A stop hands back, a kill loses: both run again, on the worker that comes next, beside those that waited behind them.
    for kill in [false, true] {
        let cut = five(&lab, || Payload::sleep(pick(700, 3_000)).task()).await;
        let behind: Vec<NewTask> = (0..SLOTS).map(|_| Payload::sleep(short).task()).collect();
        lab.submit(&behind).await;
        if kill {
            worker.kill();
        } else {
            worker.term();
            worker.exit(PATIENCE).await;
        }
        worker = start("w");
        all.extend(cut.into_iter().chain(behind));
        drained(&lab, "a worker's end").await;
    }

    never_above(&lab);
    let ledger = lab.ledger();
    for task in &all[10..] {
        let runs = ledger.of(task.id.as_str());
        assert!(runs.iter().all(|run| run.start.attempt == 1), "no attempt is spent: {runs:?}");
    }
    for task in &all[15..] {
        let runs = ledger.of(task.id.as_str());
        assert!(matches!(runs.last().and_then(|run| run.end), Some((End::Done, _))), "it has run: {runs:?}");
    }
    lab.close_with_invariants().await;
}

async fn drained(lab: &Lab, what: &str) {
    lab.until(what, PATIENCE, async || {
        let counts = lab.counts().await;
        match (used(lab).await, counts.running, counts.parked) {
            (0, 0, 0) => Ok(()),
            other => Err(format!("{other:?} slots, running, parked")),
        }
    })
    .await;
}

/// At no time did more run than there are slots. A run whose process was killed has ended before the next of its task began.
fn never_above(lab: &Lab) {
    let ledger = lab.ledger();
    let mut changes = Vec::new();
    for runs in ledger.runs.values() {
        for (i, run) in runs.iter().enumerate() {
            let next = runs.get(i + 1).map(|next| next.start.at);
            let end = run.end.map(|(_, at)| at).or(next).unwrap_or_else(now_ms);
            changes.extend([(run.start.at, 1), (end, -1)]);
        }
    }
    changes.sort_unstable();
    let (mut now, mut most) = (0_i64, 0);
    for (_, change) in &changes {
        now += change;
        most = most.max(now);
    }
    println!("Q-02: at most {most} at once, {} runs", changes.len() / 2);
    assert!(most <= 5, "{most} ran at once, with five slots");
}
