//! S-01: a maintenance lock without expiry.

use std::time::Duration;

use tidemill_common::name::WorkerId;
use tidemill_tests::lab::profile::{count, pick};
use tidemill_tests::lab::{Lab, Payload, WorkerProcess, now_ms};
use tokio::task::JoinSet;

use super::{PATIENCE, SLACK, as_ms};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upkeep_goes_on_whenever_its_holder_dies() {
    let lab = Lab::new().await;
    let hold = lab.profile.sweep * 2;
    for round in 0..count(100) {
        let worker = lab.worker("w");
        lab.until("it has a lease", PATIENCE, async || match worker.log().contains("at work") {
            true => Ok(()),
            false => Err(worker.log()),
        })
        .await;
        let began = now_ms();
        let resumed = lab
            .until("upkeep goes on", PATIENCE, async || {
                sweep_field(&lab, "last").filter(|at| *at >= began).ok_or("it does not".into())
            })
            .await;
        // It had to wait for the dead one's hold to run out, and then for a renewal of its own.
        let bound = as_ms(hold + lab.profile.lease / 2 + SLACK);
        assert!(resumed - began <= bound, "round {round}: resumed after {} ms, {bound} are allowed", resumed - began);
        tokio::time::sleep(rand::random_range(Duration::ZERO..hold)).await;
        worker.kill();
        let until = sweep_field(&lab, "until").unwrap_or(0);
        assert!(until <= now_ms() + as_ms(hold) + 5, "the hold on upkeep ends by itself");
    }
    lab.close_with_invariants().await;
}

fn sweep_field(lab: &Lab, field: &str) -> Option<u64> {
    lab.raw(&["HGET", &lab.key("sweep"), field]).as_int().and_then(|n| u64::try_from(n).ok())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_sweepers_at_once_do_no_harm() {
    let lab = Lab::new().await;
    let w1 = lab.start(lab.setup("w1").concurrency(10));
    lab.submit(&lab.tasks(10, Payload::sleep(pick(1_500, 4_000)))).await;
    lab.until("ten run", PATIENCE, async || {
        if lab.ledger().running(w1.pid()).count() == 10 { Ok(()) } else { Err("fewer".into()) }
    })
    .await;
    let dead: WorkerId =
        lab.ledger().all().next().map(|run| run.start.worker.clone()).unwrap_or_default().parse().unwrap();
    let killed = w1.kill();
    lab.start(lab.setup("w2").concurrency(10));
    lab.until("its lease runs out", PATIENCE, async || {
        let ends = lab
            .raw(&["ZSCORE", &lab.key("w"), dead.as_str()])
            .as_int()
            .and_then(|ends| u64::try_from(ends).ok())
            .unwrap_or(0);
        if ends < now_ms() { Ok(()) } else { Err(format!("it ends at {ends}")) }
    })
    .await;

    // Eight more sweepers take back the same worker's deliveries, at the same time as the fleet's own.
    let mut all = JoinSet::new();
    for _ in 0..8 {
        let (store, dead) = (lab.store().clone(), dead.clone());
        all.spawn(async move { store.reclaim(&dead, 3).await });
    }
    all.join_all().await.into_iter().for_each(|answer| {
        answer.unwrap();
    });
    lab.ended(10, PATIENCE).await;
    let events = lab.events();
    let back: usize = events.reclaims.iter().map(|reclaim| reclaim.tasks.len()).sum();
    assert_eq!(back, 10, "each delivery was taken back once: {:?}", events.reclaims);
    let took = events.reclaims.iter().map(|reclaim| reclaim.at - killed).max().unwrap_or(0);
    let bound = as_ms(lab.profile.reclaimed_within() + SLACK);
    assert!(took <= bound, "taken back {took} ms after the kill, {bound} are allowed");
    lab.close_with_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_worker_is_reclaimed_in_time_though_the_holder_of_upkeep_dies_too() {
    let lab = Lab::new().await;
    let workers = ["w1", "w2", "w3"].map(|name| lab.worker(name));
    lab.submit(&lab.tasks(12, Payload::sleep(as_ms(lab.profile.lease) + pick(300, 800)))).await;
    lab.until("all three are busy", PATIENCE, async || match lab.ledger().starts() {
        12 => Ok(()),
        n => Err(format!("{n} tasks run")),
    })
    .await;

    let holder = lab.raw(&["HGET", &lab.key("sweep"), "holder"]).as_str().unwrap().to_owned();
    let of = |worker: &WorkerProcess| lab.ledger().running(worker.pid()).next().unwrap().start.worker.clone();
    let (mut others, mut holders) = (Vec::new(), Vec::new());
    for worker in &workers {
        if of(worker) == holder { holders.push(worker) } else { others.push(worker) }
    }
    let dead = [(of(others[0]), others[0].kill())];
    // Just before the first one's lease has run out.
    tokio::time::sleep(lab.profile.lease - Duration::from_millis(50)).await;
    let dead = [dead[0].clone(), (of(holders[0]), holders[0].kill())];
    lab.ended(12, PATIENCE).await;
    for (worker, killed) in &dead {
        let events = lab.events();
        let reclaim = events.reclaims.iter().find(|reclaim| reclaim.worker == *worker).unwrap();
        let (took, bound) = (reclaim.at - killed, as_ms(lab.profile.reclaimed_within() + SLACK));
        println!("{worker} was taken back {took} ms after the kill");
        assert!(took <= bound, "{worker} was taken back {took} ms after the kill, {bound} are allowed");
    }
    lab.close_with_invariants().await;
}
