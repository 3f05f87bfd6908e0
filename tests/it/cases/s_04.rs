//! S-04: the low priority under a flood of the high one; a task that fails at once among its peers.
//!
//! Under the default order each priority has its share, so that low tasks run however many high ones come; a retried task goes behind
//! those that wait already.

use std::time::{Duration, Instant};

use tidemill_common::task::Priority;
use tidemill_tests::lab::profile::{ms, pick};
use tidemill_tests::lab::{Lab, Mode, Payload};

use super::PATIENCE;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn low_tasks_run_under_a_flood() {
    let lab = Lab::new().await;
    let low = pick(20, 100);
    let lows: Vec<_> = (0..low).map(|_| Payload::sleep(20).task().priority(Priority::Low)).collect();
    let high = || -> Vec<_> { (0..60).map(|_| Payload::sleep(20).task().priority(Priority::High)).collect() };
    lab.submit(&high()).await;
    lab.submit(&lows).await;
    lab.start(lab.setup("w").concurrency(4));
    // Twice what four slots of 20 ms take, for as long as it lasts.
    let (began, lasts) = (Instant::now(), Duration::from_millis(ms(60_000)));
    let mut highs = 60;
    let all_low = |lab: &Lab| {
        let ledger = lab.ledger();
        lows.iter().filter(|task| !ledger.of(task.id.as_str()).is_empty()).count()
    };
    while began.elapsed() < lasts && all_low(&lab) < low {
        if lab.counts().await.waiting.get(&("default".to_owned(), 10)).copied().unwrap_or(0) < 60 {
            lab.submit(&high()).await;
            highs += 60;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(all_low(&lab), low, "all low tasks have started, while {highs} high ones came");
    let waiting = lab.counts().await.waiting;
    assert!(waiting.get(&("default".to_owned(), 10)).copied().unwrap_or(0) > 0, "high ones waited all the time");
    lab.ended(low + highs, PATIENCE * 2).await;
    lab.close_with_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_task_goes_behind_its_peers() {
    let lab = Lab::new().await;
    let mut tasks = vec![Payload::of(Mode::Fail, 1).after(0).task().max_attempts(5)];
    tasks.extend((0..100).map(|_| Payload::sleep(1).task()));
    lab.submit(&tasks).await;
    lab.start(lab.setup("w").concurrency(1));
    lab.ended(101, PATIENCE).await;
    let ledger = lab.ledger();
    let mut starts: Vec<(u64, usize)> = Vec::new();
    for (n, task) in tasks.iter().enumerate() {
        starts.extend(ledger.of(task.id.as_str()).iter().map(|run| (run.start.at, n)));
    }
    starts.sort_unstable();
    let first = starts.iter().position(|(_, n)| *n == 0).expect("it ran");
    let second = starts.iter().skip(first + 1).position(|(_, n)| *n == 0).expect("it ran again");
    assert!(second >= 90, "its second try came after {second} of its 100 peers");
    lab.close_with_invariants().await;
}
