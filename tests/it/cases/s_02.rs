//! S-02: alive but not consuming after a connection blip.

use std::time::{Duration, Instant};

use tidemill_tests::lab::profile::pick;
use tidemill_tests::lab::{Lab, Payload, now_ms};
use tidemill_tests::server::{Options, Storage};

use super::{PATIENCE, SLACK};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumes_again_after_its_connections_were_cut() {
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
async fn command_timeout_below_the_block_time() {
    let lab = Lab::new().await;
    let mut setup = lab.setup("w");
    setup.redis.command_timeout_ms = 100;
    let worker = lab.start(setup);
    // Longer than several timeouts, with nothing to do but to block.
    tokio::time::sleep(Duration::from_secs(1)).await;
    lab.submit(&lab.tasks(10, Payload::default())).await;
    lab.ended(10, Duration::from_secs(2)).await;
    assert!(
        !worker.log().contains("redis does not do as asked"),
        "blocking reads ran into the command timeout:\n{}",
        worker.log()
    );
    lab.close_with_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_workers_block_delays_nobody() {
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
