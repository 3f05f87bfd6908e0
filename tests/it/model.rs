//! The model test: random histories of many workers against the real scripts on a real server (`tests/src/model`).
//!
//! `SEED=…` runs one history again, with every state looked at; `cargo xtask model` runs as many as one likes.

use std::thread;

use tidemill_tests::model::{Done, Host, Sort, history, only};

/// Histories of the suite, over both threads.
const HISTORIES: u64 = 2_000;
/// Of a hundred scripts, after how many the whole state is looked at.
const CHECKS_PERCENT: u64 = 10;
/// Servers side by side: one a core.
const THREADS: u64 = 2;

fn run(from: u64, many: u64) -> Done {
    let mut host = Host::start(&[]);
    let mut all = Done::default();
    for seed in from..from + many {
        let done =
            history(&mut host, Sort::Strict, seed, CHECKS_PERCENT, true).unwrap_or_else(|failure| panic!("{failure}"));
        all.histories += 1;
        all.calls += done.calls;
        all.checks += done.checks;
        all.tasks += done.tasks;
    }
    all
}

#[test]
fn random_histories_keep_every_promise() {
    if let Some(seed) = std::env::var("SEED").ok().and_then(|s| s.parse().ok()) {
        let steps = std::env::var("STEPS").ok().map(|s| s.split(',').filter_map(|n| n.parse().ok()).collect());
        only(&mut Host::start(&[]), Sort::Strict, seed, steps).unwrap_or_else(|failure| panic!("{failure}"));
        return;
    }
    let each = HISTORIES / THREADS;
    let threads: Vec<_> = (0..THREADS).map(|n| thread::spawn(move || run(1 + n * each, each))).collect();
    for thread in threads {
        let done = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        assert_eq!(done.histories, each);
        println!("{done:?}");
    }
}
