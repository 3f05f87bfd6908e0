//! A budget of one dollar, and two hundred tasks at once that cost what they like, die with their workers and are called off: what is
//! charged is never above it, and in the end all that the provider billed is charged or owed.
//!
//! The provider is the ledger: it bills a run that came to its end for what it used, and any other for all that it might have used,
//! since the model goes on without its client.

use std::collections::BTreeSet;
use std::time::Duration;

use tidemill_common::book::{Budget, DAY_MS, Limit, Window};
use tidemill_common::name::TaskId;
use tidemill_common::store::WindowSeen;
use tidemill_common::task::NewTask;
use tidemill_tests::lab::profile::pick;
use tidemill_tests::lab::{End, Lab, Payload, Run, WorkerProcess};

use super::PATIENCE;

const DOLLAR: u64 = 1_000_000;
const GATE: &str = "c/*/";
const WORKERS: usize = 4;
const CONCURRENCY: u32 = 50;
/// What a task is expected to cost, micro-dollars: at most.
const DEAREST: u64 = 6_000;

/// A task that costs about what is expected of it: from half to one and a half times as much.
fn some_task() -> NewTask {
    let expected = rand::random_range(DEAREST / 3..=DEAREST);
    let costs = Some(expected * rand::random_range(50..=150) / 100);
    let ms = rand::random_range(20..=pick(300, 1_000));
    Payload { ms, costs, ..Payload::default() }.task().estimate_micro_usd(expected)
}

async fn seen(lab: &Lab) -> WindowSeen {
    let gate = lab.store().gate(GATE, &TaskId::generate()).await.unwrap();
    gate.windows.first().copied().unwrap_or_default()
}

fn start(lab: &Lab, n: usize) -> WorkerProcess {
    lab.start(lab.setup(&format!("w{n}")).concurrency(CONCURRENCY))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dollar_is_spent_once() {
    let (rounds, kills) = pick((1, 4), (5, 8));
    for _ in 0..rounds {
        one_dollar(kills).await;
    }
}

async fn one_dollar(kills: usize) {
    let lab = Lab::new().await;
    let budget = Budget { windows: vec![Window { ms: DAY_MS, limit: DOLLAR }], zone: None };
    lab.book(vec![Limit { cost_usd: Some(budget), ..Limit::default() }]).await;
    let tasks: Vec<NewTask> = (0..600).map(|_| some_task()).collect();
    let mut workers: Vec<WorkerProcess> = (0..WORKERS).map(|n| start(&lab, n)).collect();
    lab.submit(&tasks).await;
    for n in 0..kills {
        let pid = workers[n % WORKERS].pid();
        lab.until("it runs, or nothing may any more", PATIENCE, async || {
            let spent = seen(&lab).await.charged + DEAREST > DOLLAR;
            if spent || lab.ledger().running(pid).count() > 0 {
                Ok(())
            } else {
                Err("nothing of this worker does".into())
            }
        })
        .await;
        call_off_some(&lab, 3).await;
        workers[n % WORKERS].kill();
        workers[n % WORKERS] = start(&lab, n % WORKERS);
        let window = seen(&lab).await;
        assert!(window.charged <= DOLLAR, "{window:?}");
    }
    // Nothing runs any more, and whoever is first does not fit.
    lab.until("the dollar is spent", PATIENCE * 2, async || {
        let (window, counts) = (seen(&lab).await, lab.counts().await);
        assert!(window.charged <= DOLLAR, "{window:?}");
        let spent = counts.running == 0 && window.charged + DEAREST > DOLLAR;
        if spent && counts.parked > 0 { Ok(()) } else { Err(format!("{window:?}, {} run", counts.running)) }
    })
    .await;
    // What a worker may still say of a run that it lost.
    workers.iter().for_each(WorkerProcess::term);
    for worker in &workers {
        worker.exit(PATIENCE).await;
    }
    let window = seen(&lab).await;
    let (least, most) = billed(&lab, &tasks);
    println!(
        "charged {}, owed {}; billed {least} to {most}, {} runs",
        window.charged,
        window.debt,
        lab.ledger().starts()
    );
    let all = window.charged + window.debt;
    assert!((least..=most).contains(&all), "{all} are charged and owed, {least} to {most} were billed");
    lab.book(Vec::new()).await;
    for task in &tasks {
        lab.store().cancel(&task.id).await.unwrap();
    }
    tokio::time::timeout(Duration::from_secs(60), lab.close_with_invariants()).await.expect("it ends");
}

async fn call_off_some(lab: &Lab, most: usize) {
    let ledger = lab.ledger();
    let running: BTreeSet<&String> =
        ledger.runs.iter().filter(|(_, runs)| runs.iter().any(|run| run.end.is_none())).map(|(id, _)| id).collect();
    for id in running.into_iter().take(most) {
        lab.store().cancel(&id.parse().unwrap()).await.unwrap();
    }
}

/// What the provider billed: at least and at most, since of a run that ended as its worker died nobody can tell whether that was heard.
fn billed(lab: &Lab, tasks: &[NewTask]) -> (u64, u64) {
    let (ledger, events) = (lab.ledger(), lab.events());
    let done: BTreeSet<&str> = events.ends.iter().filter(|end| end.letter == 'd').map(|end| end.id.as_str()).collect();
    let reclaims = events.reclaims_of();
    let (mut least, mut most) = (0, 0);
    for task in tasks {
        let expected = task.estimate.micro_usd.unwrap();
        let costs = serde_json::from_slice::<Payload>(&task.payload).unwrap().costs.unwrap();
        let runs = ledger.of(task.id.as_str());
        // A delivery that died before its handler began was charged as well.
        let lost = runs.len() - usize::from(done.contains(task.id.as_str()));
        let unbegun = reclaims.get(task.id.as_str()).map_or(0, Vec::len).saturating_sub(lost) as u64;
        most += unbegun * expected;
        for (i, run) in runs.iter().enumerate() {
            let cut = expected.max(costs / 2);
            let (low, high) = match run {
                Run { end: Some((End::Done, _)), .. } if i + 1 == runs.len() && done.contains(task.id.as_str()) => {
                    (costs, costs)
                }
                Run { end: Some((End::Done, _)), .. } => (cut.min(costs), cut.max(costs)),
                _ => (cut, cut),
            };
            (least, most) = (least + low, most + high);
        }
    }
    (least, most)
}
