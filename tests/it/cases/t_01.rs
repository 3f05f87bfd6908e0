//! T-01: backoff that overflows, and retries in lock-step.
//!
//! The arithmetic at its ends (attempts up to `u32::MAX`, base from 1 ms to the longest cap) is a unit test of
//! `common/src/retry.rs`. Here many tasks fail at one instant, again and again: when they are due spreads over the whole of each
//! delay's range, no retry comes before its floor, and so what fails is asked less and less often.

use std::collections::BTreeMap;
use std::time::Duration;

use tidemill_common::retry::RetryPolicy;
use tidemill_common::task::NewTask;
use tidemill_tests::lab::profile::{full, pick};
use tidemill_tests::lab::{Lab, Mode, Payload, Run, now_ms};
use tidemill_tests::server::Reply;

use super::PATIENCE;

/// Handlers and the server read one clock, at slightly different moments.
const SKEW_MS: u64 = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retries_of_one_outage_do_not_come_together() {
    let lab = Lab::new().await;
    let (n, attempts) = pick((200, 3), (1_000, 7));
    let policy = pick(RetryPolicy { base_ms: 1_000, cap_ms: 2_000 }, RetryPolicy::default());
    let fail = |policy: RetryPolicy| -> Vec<NewTask> {
        let one = || {
            let mut task = Payload::of(Mode::Fail, 300).task().max_attempts(attempts);
            task.meta.retry = Some(policy);
            task
        };
        (0..n).map(|_| one()).collect()
    };
    // A range so long that nobody is due again before all have been looked at.
    let long = RetryPolicy { base_ms: 3_600_000, cap_ms: 3_600_000 };
    lab.submit(&fail(long)).await;
    for name in ["w1", "w2"] {
        lab.start(lab.setup(name).concurrency(u32::try_from(n).expect("a small number")));
    }
    spreads(&due_after_the_first_failure(&lab, n).await, long);

    let tasks = fail(policy);
    lab.submit(&tasks).await;
    lab.until("all have used up their attempts", pick(PATIENCE, Duration::from_secs(300)), async || {
        match lab.counts().await.dead {
            dead if dead == n as u64 => Ok(()),
            dead => Err(format!("{dead} of {n} have")),
        }
    })
    .await;

    let ledger = lab.ledger();
    let mut a_second: BTreeMap<u64, usize> = BTreeMap::new();
    for task in &tasks {
        let runs = ledger.of(task.id.as_str());
        assert_eq!(runs.len(), usize::from(attempts), "{runs:?}");
        for (failed, pair) in (1..).zip(runs.windows(2)) {
            let waited = wait(pair);
            let bound = policy.bound_ms(failed);
            assert!(waited + SKEW_MS >= bound / 10, "attempt {} came {waited} ms after a failure", failed + 1);
        }
        for run in &runs[1..] {
            *a_second.entry(run.start.at / 1_000).or_default() += 1;
        }
    }
    let most = a_second.values().max().copied().unwrap_or_default();
    println!(
        "{n} tasks failed at once; retries in each second from then on: {:?}",
        a_second.values().collect::<Vec<_>>()
    );
    // Once the first delay's range is over, no second sees all of them.
    let first = a_second.keys().next().copied().unwrap_or_default();
    let later = a_second.iter().filter(|(second, _)| **second > first + 1).map(|(_, n)| *n).max().unwrap_or_default();
    // With delays of two seconds at most a second is a large part of all; and a busy machine gathers what is due.
    assert!(!full() || later < n * 9 / 10, "{later} of {n} came in one second; at first {most} did");
    lab.close_with_invariants().await;
}

/// How long a task waited between two runs.
fn wait(pair: &[Run]) -> u64 {
    let ended = pair[0].end.map(|(_, at)| at).expect("it failed");
    assert!(pair[1].start.at + SKEW_MS >= ended, "{pair:?}");
    pair[1].start.at.saturating_sub(ended)
}

/// When all are due, ms, once each has failed.
async fn due_after_the_first_failure(lab: &Lab, n: usize) -> Vec<u64> {
    lab.until("all wait for their second run", PATIENCE, async || match lab.counts().await.scheduled {
        scheduled if scheduled == n as u64 => Ok(()),
        scheduled => Err(format!("{scheduled} of {n} do")),
    })
    .await;
    let scores = lab.raw(&["ZRANGE", &lab.key("z"), "0", "-1", "WITHSCORES"]);
    let number = |reply: &Reply| reply.as_str().and_then(|text| text.parse().ok()).expect("a time");
    scores.as_array().expect("the schedule").chunks(2).map(|pair| number(&pair[1])).collect()
}

/// No tenth of the range has more than a few times its share, and none is due before its floor.
fn spreads(due: &[u64], policy: RetryPolicy) {
    let now = now_ms();
    assert!(due.iter().all(|at| (now..=now + policy.cap_ms).contains(at)), "all are due later");
    let (tenth, share) = (policy.cap_ms / 10, due.len() / 10);
    let most = due.iter().map(|at| due.iter().filter(|other| (*at..at + tenth).contains(other)).count()).max();
    assert!(most.is_some_and(|most| most <= share * 3), "{most:?} of {} are due in one {tenth} ms", due.len());
}
