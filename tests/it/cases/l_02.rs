//! L-02: promotion of due tasks, with workers killed and connections cut in the middle of it.

use std::time::{Duration, Instant};

use rand::seq::IndexedRandom as _;
use tidemill_tests::lab::profile::{count, ms, pick};
use tidemill_tests::lab::{End, Lab, Payload, now_ms};

use super::PATIENCE;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn due_tasks_are_promoted_once() {
    for _ in 0..pick(1, 5) {
        promotion_under_fire().await;
    }
}

async fn promotion_under_fire() {
    let lab = Lab::new().await;
    let tasks = count(5_000);
    let delayed: Vec<_> = lab
        .tasks(tasks, Payload::sleep(pick(100, 50)))
        .into_iter()
        .map(|task| task.delay(Duration::from_millis(ms(2_000))))
        .collect();
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
