//! a counter that never expires. Every quota key has its lifetime in the command that writes it, so that no cut between two
//! commands leaves one behind; and what it counts is a window by the clock, never a name of a minute.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tidemill_common::book::{Budget, DAY_MS, Limit, Rate, Window};
use tidemill_common::task::NewTask;
use tidemill_tests::lab::profile::pick;
use tidemill_tests::lab::{Lab, Payload, QUIET, WorkerProcess};

use super::PATIENCE;

/// Quota keys, and the longest that each may live, ms.
const KEYS: [(&str, u64); 4] = [
    ("g:r/*/#1000", 1_000 + 60_000),
    ("g:r/*/#3600000", 3_600_000 + 60_000),
    ("g:t/*/", 60_000 + DAY_MS),
    ("g:c/*/", DAY_MS + DAY_MS),
];

/// Workers with a lease, be it over.
fn known(lab: &Lab) -> BTreeSet<String> {
    let members = lab.raw(&["ZRANGE", &lab.key("w"), "0", "-1"]);
    members.as_array().unwrap_or_default().iter().filter_map(|id| Some(id.as_str()?.to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_counter_has_an_end() {
    let lab = Lab::new().await;
    let (each_second, seconds) = pick((500, 4), (1_000, 60));
    let window = |ms, limit| Window { ms, limit };
    let budget = |ms| Some(Budget { windows: vec![window(ms, 1_000_000_000)], zone: None });
    let rate = Rate { windows: vec![window(1_000, each_second), window(3_600_000, 1_000_000)], burst: None };
    let limit = Limit { rate: Some(rate), tokens: budget(60_000), cost_usd: budget(DAY_MS), ..Limit::default() };
    lab.book(vec![limit]).await;
    let start = |n: u64| lab.start(lab.setup(&format!("w{}", n % 2)).concurrency(32).agents(&["ledger", QUIET]));
    let mut workers: Vec<WorkerProcess> = vec![start(0), start(1)];
    let quiet = || Payload::sleep(0).task_of(QUIET).estimate_tokens(5);
    let tasks: Vec<NewTask> = (0..each_second * seconds).map(|_| quiet()).collect();
    lab.submit(&tasks).await;

    let began = Instant::now();
    let (mut kills, mut killed) = (0, BTreeSet::new());
    while began.elapsed() < Duration::from_secs(seconds) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        lab.raw(&["CLIENT", "KILL", "TYPE", "normal"]);
        if began.elapsed() > Duration::from_secs(kills + 1) {
            let one = &mut workers[usize::from(kills % 2 == 1)];
            one.kill();
            killed.extend(known(&lab).into_iter().filter(|id| id.starts_with(&format!("{}.", one.setup().name))));
            *one = start(kills);
            kills += 1;
        }
    }
    lab.ended(tasks.len(), PATIENCE * 4).await;
    for (key, most) in KEYS {
        let ttl = lab.raw(&["PTTL", &lab.key(key)]).as_int().unwrap_or(-3);
        assert!(u64::try_from(ttl).is_ok_and(|ttl| ttl <= most), "{key} lives for {ttl} ms, at most {most} are right");
    }
    println!("Q-01: {} tasks, {kills} kills, {:.1?}", tasks.len(), began.elapsed());
    lab.until("the killed are taken back", PATIENCE, async || {
        let known = known(&lab);
        if known.is_disjoint(&killed) { Ok(()) } else { Err(format!("{known:?} are known")) }
    })
    .await;
    // Runs of so many are in no ledger.
    lab.forget_accepted();
    lab.close_with_invariants().await;
}
