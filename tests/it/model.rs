//! The model test: random histories of many workers against the real scripts on a real server (`tests/src/model`).
//!
//! `SEED=…` runs one history again, with every state looked at; `cargo xtask model` runs as many as one likes.

use tidemill_tests::model::{Done, Host, Sort, history, only};

/// Histories of each test here. Two thousand in all; they run beside each other.
const HISTORIES: u64 = 500;
/// Of a hundred scripts, after how many the whole state is looked at.
const CHECKS_PERCENT: u64 = 5;

fn run(from: u64) {
    let mut host = Host::start(&[]);
    let mut all = Done::default();
    for seed in from..from + HISTORIES {
        let done =
            history(&mut host, Sort::Strict, seed, CHECKS_PERCENT, true).unwrap_or_else(|failure| panic!("{failure}"));
        all.histories += 1;
        all.calls += done.calls;
        all.checks += done.checks;
        all.tasks += done.tasks;
    }
    assert_eq!(all.histories, HISTORIES);
    println!("seeds from {from}: {all:?}");
}

#[test]
fn random_histories_keep_every_promise() {
    if let Some(seed) = std::env::var("SEED").ok().and_then(|s| s.parse().ok()) {
        let steps = std::env::var("STEPS").ok().map(|s| s.split(',').filter_map(|n| n.parse().ok()).collect());
        only(&mut Host::start(&[]), Sort::Strict, seed, steps).unwrap_or_else(|failure| panic!("{failure}"));
        return;
    }
    run(1);
}

#[test]
fn more_random_histories() {
    run(10_001);
}

#[test]
fn still_more_random_histories() {
    run(20_001);
}

#[test]
fn and_yet_more_random_histories() {
    run(30_001);
}
