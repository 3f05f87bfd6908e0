//! S: stuck, starved, hung.

use std::time::{Duration, Instant};

use tidemill_common::name::WorkerId;
use tidemill_common::state::State;
use tidemill_tests::lab::profile::{count, pick};
use tidemill_tests::lab::{Lab, Mode, Payload, now_ms};
use tidemill_tests::server::{Options, Storage};
use tokio::task::JoinSet;

use super::{PATIENCE, SLACK, as_ms};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_01_upkeep_goes_on_whenever_its_holder_dies() {
    let lab = Lab::new().await;
    let hold = lab.profile.sweep * 2;
    for round in 0..count(100) {
        let began = now_ms();
        let worker = lab.worker("w");
        let resumed = lab.until("upkeep goes on", PATIENCE, async || sweep_field(&lab, "last").filter(|at| *at >= began).ok_or("it does not".into())).await;
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
async fn s_01_many_sweepers_at_once_do_no_harm() {
    let lab = Lab::new().await;
    let w1 = lab.start(lab.setup("w1").concurrency(10));
    lab.submit(&lab.tasks(10, Payload::sleep(pick(1_500, 4_000)))).await;
    lab.until("ten run", PATIENCE, async || if lab.ledger().running(w1.pid()).count() == 10 { Ok(()) } else { Err("fewer".into()) }).await;
    let dead: WorkerId = lab.ledger().all().next().map(|run| run.start.worker.clone()).unwrap_or_default().parse().unwrap();
    let killed = w1.kill();
    lab.start(lab.setup("w2").concurrency(10));
    lab.until("its lease runs out", PATIENCE, async || {
        let ends = lab.raw(&["ZSCORE", &lab.key("w"), dead.as_str()]).as_int().and_then(|ends| u64::try_from(ends).ok()).unwrap_or(0);
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
async fn s_02_consumes_again_after_its_connections_were_cut() {
    let mut lab = Lab::with(Options::new().storage(Storage::Temporary)).await;
    lab.worker("w1");
    lab.worker("w2");
    lab.submit(&lab.tasks(1, Payload::default())).await;
    lab.ended(1, PATIENCE).await;
    for _ in 0..20 {
        lab.raw(&["CLIENT", "KILL", "TYPE", "normal"]);
        tokio::time::sleep(Duration::from_millis(rand::random_range(0..pick(100, 300)))).await;
    }
    lab.server_mut().restart().unwrap();
    let restarted = Instant::now();
    lab.submit(&lab.tasks(100, Payload::default())).await;
    // Twice the longest pause between two tries, which is a second.
    lab.ended(101, Duration::from_secs(2) + SLACK).await;
    println!("100 tasks were done {:?} after the restart", restarted.elapsed());
    lab.close_with_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_02_command_timeout_below_the_block_time() {
    let lab = Lab::new().await;
    let mut setup = lab.setup("w");
    setup.redis.command_timeout_ms = 100;
    let worker = lab.start(setup);
    // Longer than several timeouts, with nothing to do but to block.
    tokio::time::sleep(Duration::from_secs(1)).await;
    lab.submit(&lab.tasks(10, Payload::default())).await;
    lab.ended(10, Duration::from_secs(2)).await;
    assert!(!worker.log().contains("redis does not do as asked"), "blocking reads ran into the command timeout:\n{}", worker.log());
    lab.close_with_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_02_an_idle_workers_block_delays_nobody() {
    let lab = Lab::new().await;
    lab.worker("w");
    for n in 0..20 {
        lab.until("the worker sleeps", PATIENCE, async || match lab.counts().await.idle {
            1 => Ok(()),
            idle => Err(format!("{idle} do")),
        })
        .await;
        let sent = now_ms();
        let tasks = lab.tasks(1, Payload::default());
        lab.submit(&tasks).await;
        let accepted = now_ms() - sent;
        lab.ended(n + 1, PATIENCE).await;
        let took = now_ms() - sent;
        // The block is ten seconds.
        assert!(accepted < 250 && took < 500, "accepted after {accepted} ms, done after {took} ms");
    }
    lab.close_with_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_03_poison_task_is_dead_and_its_neighbours_are_not() {
    let lab = Lab::new().await;
    let (poison_after, normal) = (2, pick(40, 100));
    let poison = Payload::of(Mode::Abort, 50).task();
    let mut tasks = lab.tasks(normal, Payload::sleep(pick(150, 400)));
    tasks.insert(normal / 4, poison.clone());
    lab.submit(&tasks).await;

    let mut setup = lab.setup("w").concurrency(8);
    setup.poison_after = poison_after;
    let mut worker = lab.start(setup.clone());
    lab.until("all have ended", PATIENCE * 2, async || {
        // What a supervisor does.
        if worker.ended().is_some() {
            worker = lab.start(setup.clone());
        }
        let ended = lab.counts().await.ended;
        if ended.values().sum::<u64>() - ended.get("reclaimed").unwrap_or(&0) > normal as u64 { Ok(()) } else { Err(format!("{ended:?}")) }
    })
    .await;

    let status = lab.store().status(&poison.id, None).await.unwrap();
    let losses = 2 + poison_after;
    assert_eq!(status.state, Some(State::Dead));
    assert_eq!(String::from_utf8_lossy(&status.data), format!("poison: worker lost {losses} times"));
    let ledger = lab.ledger();
    let runs = ledger.of(poison.id.as_str());
    assert_eq!(runs.len(), losses as usize, "{runs:?}");
    assert!(runs.iter().skip(2).all(|run| run.start.lone), "after two losses it runs alone");
    let counts = lab.counts().await;
    assert_eq!((counts.dead, counts.ended.get("done")), (1, Some(&(normal as u64))), "its neighbours are done");
    lab.close_with_invariants().await;
}
