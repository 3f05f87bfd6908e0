//! L: lost tasks.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rand::seq::IndexedRandom as _;
use tidemill_tests::lab::profile::{count, ms, pick};
use tidemill_tests::lab::{End, Lab, Payload, now_ms};

use super::{PATIENCE, SLACK, as_ms};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l_01_hard_killed_worker_never_comes_back() {
    a_killed_workers_tasks_restart("w1", "w2").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l_01_hard_killed_worker_comes_back_under_its_name() {
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l_02_promotion_of_due_tasks_survives_kills_and_cut_connections() {
    for _ in 0..pick(1, 5) {
        promotion_under_fire().await;
    }
}

async fn promotion_under_fire() {
    let lab = Lab::new().await;
    let tasks = count(5_000);
    let delayed: Vec<_> = lab.tasks(tasks, Payload::sleep(5)).into_iter().map(|task| task.delay(Duration::from_millis(ms(2_000)))).collect();
    lab.submit(&delayed).await;
    let mut workers: Vec<_> = (0..4).map(|n| lab.worker(&format!("w{n}"))).collect();

    let (until, mut next_kill) = (Instant::now() + Duration::from_millis(ms(20_000)), now_ms());
    while Instant::now() < until {
        lab.raw(&["CLIENT", "KILL", "TYPE", "normal"]);
        if now_ms() >= next_kill {
            next_kill = now_ms() + 200;
            let victim = *[0, 1, 2, 3].choose(&mut rand::rng()).unwrap_or(&0);
            workers[victim].kill();
            workers[victim] = lab.start(workers[victim].setup().clone());
        }
        let misplaced = lab.snapshot().misplaced();
        assert!(misplaced.is_empty(), "{misplaced:#?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    lab.ended(tasks, PATIENCE).await;
    assert_eq!(lab.counts().await.scheduled, 0);
    assert_eq!(lab.ledger().ended(End::Done), tasks, "every id is in the ledger");
    lab.close_with_invariants().await;
}
