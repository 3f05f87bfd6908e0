//! `cancel` of a running task: its handler hears of it by the note on its worker's own list, not by any timer.
//!
//! The lease is so long that no renewal falls into the test. The full form measures: the handler has stopped within 250 ms, at p99.

use tidemill_common::state::State;
use tidemill_common::store::Cancelled;
use tidemill_tests::lab::profile::{count, full};
use tidemill_tests::lab::{End, Lab, Payload, now_ms};

use super::PATIENCE;

/// "Within 250 ms, at p99."
const BOUND_MS: u64 = 250;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_reaches_the_handler_by_its_note() {
    let lab = Lab::new().await;
    let mut setup = lab.setup("w");
    (setup.lease_ms, setup.renew_ms) = (600_000, 200_000);
    let worker = lab.start(setup);
    let mut took = Vec::new();
    for _ in 0..count(300) {
        let task = Payload::sleep(600_000).task();
        lab.submit(std::slice::from_ref(&task)).await;
        lab.until("it runs", PATIENCE, async || match lab.ledger().running(worker.pid()).count() {
            1 => Ok(()),
            n => Err(format!("{n} do")),
        })
        .await;
        let asked = now_ms();
        assert_eq!(lab.store().cancel(&task.id).await.expect("an answer"), Cancelled::Signalled);
        let stopped = lab
            .until("its handler has stopped", PATIENCE, async || match lab.ledger().of(task.id.as_str())[0].end {
                Some((End::Cut, at)) => Ok(at),
                other => Err(format!("{other:?}")),
            })
            .await;
        took.push(stopped.saturating_sub(asked));
        lab.until("it is known as cancelled", PATIENCE, async || {
            match lab.store().status(&task.id, None).await.map(|status| status.state) {
                Ok(Some(State::Cancelled)) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }
    took.sort_unstable();
    let at = |percent: usize| took[(took.len() * percent / 100).min(took.len() - 1)];
    println!("{} cancels, from the call to the end of the handler: p50 {} ms, p99 {} ms", took.len(), at(50), at(99));
    // Only the full form measures: it has the machine to itself.
    assert!(!full() || at(99) <= BOUND_MS, "{took:?}");
    lab.close_with_invariants().await;
}

/// The same when the worker is full, and its ear is on its own list alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_worker_hears_it_as_well() {
    let lab = Lab::new().await;
    let mut setup = lab.setup("w").concurrency(3);
    (setup.lease_ms, setup.renew_ms) = (600_000, 200_000);
    let worker = lab.start(setup);
    let tasks = lab.tasks(6, Payload::sleep(600_000));
    lab.submit(&tasks).await;
    for round in 0..6 {
        let running = lab
            .until("all that fit run", PATIENCE, async || {
                let ledger = lab.ledger();
                let ids: Vec<String> = ledger.running(worker.pid()).map(|run| run.start.id.clone()).collect();
                if ids.len() == (6 - round).min(3) { Ok(ids) } else { Err(format!("{ids:?} do")) }
            })
            .await;
        let id = running[0].parse().expect("an id");
        assert_eq!(lab.store().cancel(&id).await.expect("an answer"), Cancelled::Signalled);
        lab.ended(round + 1, PATIENCE).await;
    }
    assert_eq!(lab.ledger().ended(End::Cut), 6);
    lab.close_with_invariants().await;
}
