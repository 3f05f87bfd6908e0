//! L-01: a hard-killed worker never comes back under its name, or another comes back under the same.

use std::collections::BTreeSet;

use tidemill_tests::lab::profile::pick;
use tidemill_tests::lab::{End, Lab, Payload};

use super::{PATIENCE, SLACK, as_ms};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hard_killed_worker_never_comes_back() {
    a_killed_workers_tasks_restart("w1", "w2").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hard_killed_worker_comes_back_under_its_name() {
    a_killed_workers_tasks_restart("w", "w").await;
}

/// A worker dies with four of twenty tasks running; another, of this name, finishes all of them.
async fn a_killed_workers_tasks_restart(first: &str, second: &str) {
    let lab = Lab::new().await;
    let w1 = lab.worker(first);
    lab.submit(&lab.tasks(20, Payload::sleep(pick(2_000, 10_000)))).await;
    lab.until("four tasks run", PATIENCE, async || match lab.ledger().starts() {
        4 => Ok(()),
        n => Err(format!("{n} run")),
    })
    .await;

    let killed = w1.kill();
    let hit: BTreeSet<String> = lab.ledger().running(w1.pid()).map(|run| run.start.id.clone()).collect();
    assert_eq!(hit.len(), 4);
    lab.start(lab.setup(second).concurrency(32));
    lab.ended(20, PATIENCE).await;

    let (ledger, events) = (lab.ledger(), lab.events());
    let back: BTreeSet<&String> = events.reclaims.iter().flat_map(|reclaim| &reclaim.tasks).map(|(id, _)| id).collect();
    assert_eq!(back, hit.iter().collect(), "those that ran are taken back, and nothing else");
    for id in &hit {
        let again = ledger.of(id)[1].start.at - killed;
        let bound = as_ms(lab.profile.reclaimed_within() + SLACK);
        assert!(again <= bound, "{id} started again {again} ms after the kill; {bound} ms are allowed");
    }
    assert_eq!(ledger.ended(End::Done), 20);
    lab.close_with_invariants().await;
}
