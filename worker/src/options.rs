//! What a worker may be told.

use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidemill_common::name::WorkerId;

/// In which order a worker takes what waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Each priority gets its weight's share (20, 10, 5, 1) while all of them wait: every 36th delivery is a low one at the latest.
    #[default]
    Weighted,
    /// The most urgent first, always; lower ones may wait for ever.
    Strict,
}

impl FromStr for Order {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "weighted" => Ok(Self::Weighted),
            "strict" => Ok(Self::Strict),
            _ => Err(format!("{text:?} is no order; it is one of weighted, strict")),
        }
    }
}

/// A worker's options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Its name; each life of the process adds a random part to it.
    pub name: String,
    /// Most tasks at once: 1 to 10,000.
    pub concurrency: u32,
    /// How long it may stay silent before its deliveries are given to others.
    pub lease: Duration,
    /// How often it says that it is alive: at most a third of the lease.
    pub renew: Duration,
    /// How often upkeep is done, if this worker holds it: at most half the lease.
    pub sweep: Duration,
    /// How long running tasks may take to end when the worker is to stop; then they are cut short and handed back.
    pub grace: Duration,
    /// In which order it takes what waits.
    pub order: Order,
    /// How long results are kept.
    pub result_ttl: Duration,
    /// Runs, each alone in a process of its own, that a task may kill before it is dead as poison: at least 1.
    pub poison_after: u32,
    /// Tasks wait so long for an agent that no worker knows, and are dead then, `unknown_agent`; zero: for ever.
    pub unknown_agent_after: Duration,
    /// This process runs, one at a time, only tasks whose earlier runs were lost; then it ends.
    pub lone: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: "worker".into(),
            concurrency: 32,
            lease: Duration::from_secs(10),
            renew: Duration::from_millis(2_500),
            sweep: Duration::from_secs(1),
            grace: Duration::from_secs(30),
            order: Order::Weighted,
            result_ttl: Duration::from_hours(1),
            poison_after: 3,
            unknown_agent_after: Duration::from_hours(24),
            lone: false,
        }
    }
}

/// Below this a lease is lost to a busy machine, not to a dead worker.
const LEASE_MIN: Duration = Duration::from_millis(500);
/// Above this a dead worker's tasks would wait longer than anybody means.
const LEASE_MAX: Duration = Duration::from_mins(10);
/// Most that a worker can mean to run at once; bounds all its tables.
const CONCURRENCY_MAX: u32 = 10_000;
/// A month: outcomes are no archive.
const RESULT_TTL_MAX: Duration = Duration::from_hours(31 * 24);

impl Options {
    /// All that is wrong with them, each with what would be right; empty when nothing is.
    #[must_use]
    pub fn check(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut must = |ok: bool, say: String| {
            if !ok {
                wrong.push(say);
            }
        };
        if let Err(e) = WorkerId::incarnate(&self.name) {
            must(false, e.to_string());
        }
        let n = self.concurrency;
        must((1..=CONCURRENCY_MAX).contains(&n), format!("concurrency is {n}; it must be 1 to {CONCURRENCY_MAX}"));
        let (lease, renew, sweep) = (self.lease, self.renew, self.sweep);
        must(
            (LEASE_MIN..=LEASE_MAX).contains(&lease),
            format!("lease is {lease:?}; it must be {LEASE_MIN:?} to {LEASE_MAX:?}"),
        );
        must(
            renew >= Duration::from_millis(50) && renew * 3 <= lease,
            format!(
                "renew is {renew:?}; it must be at least 50 ms and at most a third of the lease ({lease:?}), so that two may fail"
            ),
        );
        must(
            sweep >= Duration::from_millis(50) && sweep * 2 <= lease,
            format!("sweep is {sweep:?}; it must be at least 50 ms and at most half the lease ({lease:?})"),
        );
        must(self.grace <= Duration::from_hours(24), format!("grace is {:?}; it must be at most a day", self.grace));
        let ttl = self.result_ttl;
        must(ttl <= RESULT_TTL_MAX, format!("result_ttl is {ttl:?}; it must be at most {RESULT_TTL_MAX:?}"));
        must(self.poison_after >= 1, "poison_after is 0; it must be at least 1".into());
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_and_the_fast_profile_are_right() {
        assert_eq!(Options::default().check(), Vec::<String>::new());
        let (lease, renew, sweep) = (Duration::from_secs(3), Duration::from_millis(750), Duration::from_millis(500));
        assert_eq!(Options { lease, renew, sweep, ..Options::default() }.check(), Vec::<String>::new());
    }

    #[test]
    fn all_mistakes_are_told_at_once() {
        let options = Options {
            name: "a b".into(),
            concurrency: 0,
            renew: Duration::from_secs(4),
            sweep: Duration::from_secs(6),
            poison_after: 0,
            ..Options::default()
        };
        let wrong = options.check();
        assert_eq!(wrong.len(), 5, "{wrong:?}");
        for (say, about) in wrong.iter().zip(["worker name", "concurrency", "renew", "sweep", "poison_after"]) {
            assert!(say.contains(about), "{say}");
        }
    }
}
