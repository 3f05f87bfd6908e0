//! How large and how long a case is: scaled for the suite, full for `cargo xtask cases --full`.

use std::time::Duration;

/// Set to `full` for the full form of the cases.
pub const ENV_CASES: &str = "TIDEMILL_CASES";

/// Whether the cases run in their full form.
#[must_use]
pub fn full() -> bool {
    std::env::var_os(ENV_CASES).is_some_and(|value| value == "full")
}

/// The first in the suite, the second in the full form.
pub fn pick<T>(scaled: T, full_form: T) -> T {
    if full() { full_form } else { scaled }
}

/// A count: a tenth of it in the suite.
#[must_use]
pub fn count(n: usize) -> usize {
    pick(n.div_ceil(10), n)
}

/// A time: a third of it in the suite.
#[must_use]
pub fn time(t: Duration) -> Duration {
    pick(t / 3, t)
}

/// As [`time`], in ms.
#[must_use]
pub fn ms(ms: u64) -> u64 {
    pick(ms / 3, ms)
}

/// The times of a fleet's leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// How long a worker may stay silent.
    pub lease: Duration,
    /// How often it renews.
    pub renew: Duration,
    /// How often upkeep is done.
    pub sweep: Duration,
}

impl Profile {
    /// The fast profile, or its scaled form.
    #[must_use]
    pub fn of_this_run() -> Self {
        let (lease, renew, sweep) = pick((1_000, 250, 150), (3_000, 750, 500));
        let ms = Duration::from_millis;
        Self { lease: ms(lease), renew: ms(renew), sweep: ms(sweep) }
    }

    /// Within this time of a worker's death its deliveries are taken back.
    #[must_use]
    pub fn reclaimed_within(&self) -> Duration {
        self.lease + self.sweep
    }
}
