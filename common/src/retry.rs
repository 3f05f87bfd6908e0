//! When to try again: pure arithmetic, no clock.

use serde::{Deserialize, Serialize};

/// Exponential backoff with full jitter and a cap (the scheme of the AWS architecture blog, "Exponential Backoff And Jitter").
///
/// The delay before attempt `n + 1` is drawn evenly from `floor_ms ..= min(cap_ms, base_ms × 2^(n − 1))`, where the floor is a
/// tenth of that bound: full jitter without instant retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetryPolicy {
    /// Bound of the first delay, in ms.
    pub base_ms: u64,
    /// Bound of every delay, in ms.
    pub cap_ms: u64,
}

/// Longest cap: a week, in ms.
pub const CAP_MS_MAX: u64 = 7 * 86_400_000;

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { base_ms: 1_000, cap_ms: 60_000 }
    }
}

impl RetryPolicy {
    /// Whether it makes sense.
    ///
    /// # Errors
    /// What is allowed.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.base_ms == 0 || self.cap_ms < self.base_ms || self.cap_ms > CAP_MS_MAX {
            return Err("base of at least 1 ms, cap from base to a week");
        }
        Ok(())
    }

    /// The bound of the delay after `attempt` runs (1 is the first), in ms: never falls, never above the cap, never overflows.
    #[must_use]
    pub fn bound_ms(&self, attempt: u32) -> u64 {
        let doublings = attempt.saturating_sub(1).min(63);
        let factor = 1_u64 << doublings;
        self.base_ms.saturating_mul(factor).min(self.cap_ms)
    }

    /// The delay after `attempt` runs, in ms; `roll` in `0.0..1.0` is the jitter.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "bounded by a week in ms"
    )]
    pub fn delay_ms(&self, attempt: u32, roll: f64) -> u64 {
        let bound = self.bound_ms(attempt);
        let floor = (bound / 10).max(1);
        floor + ((bound.saturating_sub(floor)) as f64 * roll.clamp(0.0, 1.0)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_rise_to_the_cap_and_never_overflow() {
        for base_ms in [1, 500, CAP_MS_MAX] {
            let policy = RetryPolicy { base_ms, cap_ms: CAP_MS_MAX };
            let mut last = 0;
            for attempt in (1..200).chain([u32::MAX]) {
                let bound = policy.bound_ms(attempt);
                assert!(bound >= last && bound <= CAP_MS_MAX);
                assert!((1..=bound).contains(&policy.delay_ms(attempt, 0.999)));
                assert!(policy.delay_ms(attempt, 0.0) >= 1);
                last = bound;
            }
        }
    }

    #[test]
    fn jitter_spreads() {
        let policy = RetryPolicy::default();
        let delays: std::collections::BTreeSet<_> =
            (0..100).map(|i| policy.delay_ms(5, f64::from(i) / 100.0)).collect();
        assert!(delays.len() > 90);
    }
}
