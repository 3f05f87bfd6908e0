//! The lease: one for all that the worker runs, renewed by the control thread whatever handlers do.
//!
//! - *It guarantees* that handlers are told to stop before anybody else may run their tasks, as long as this process runs at all: the
//!   worker gives itself up a margin before its lease ends, counted on its own monotonic clock from the moment that the last renewal
//!   which was answered had been *sent*. The server cannot have counted from earlier.
//! - *It refuses* to come back to life under an id that was given up: the worker begins a new life, under a new id.
//! - *On a crash* the lease runs out, and whoever holds the sweep takes the deliveries back.
//!
//! A frozen process is not covered: until it wakes and looks at its clock it may overlap with its successor. The fence is for that.

use std::time::Duration;

use tidemill_common::store::{Error, Renewed};
use tokio::time::Instant;

use crate::trouble;

/// Smallest margin between giving oneself up and the end of the lease: time for handlers to stop.
const MARGIN_MIN: Duration = Duration::from_millis(100);

/// What an answer to a renewal means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Alive.
    Renewed(Renewed),
    /// No answer: to be tried again.
    Unknown,
    /// Given up.
    Gone,
}

/// When to renew, and until when the lease is good.
#[derive(Debug)]
pub(crate) struct Lease {
    lease: Duration,
    every: Duration,
    /// When the last renewal that was answered had been sent; none: not begun.
    renewed: Option<Instant>,
    next: Instant,
    in_flight: bool,
    busy: bool,
    tries: u32,
}

impl Lease {
    pub(crate) fn new(lease: Duration, every: Duration, now: Instant) -> Self {
        Self { lease, every, renewed: None, next: now, in_flight: false, busy: false, tries: 0 }
    }

    /// The worker is known to Redis.
    pub(crate) fn has_begun(&self) -> bool {
        self.renewed.is_some()
    }

    /// When the worker has to give itself up, by its own clock.
    pub(crate) fn ends(&self) -> Option<Instant> {
        let margin = (self.lease / 10).max(MARGIN_MIN);
        self.renewed.map(|at| at + (self.lease - margin))
    }

    /// Whether that time has come.
    pub(crate) fn is_lost(&self, now: Instant) -> bool {
        self.ends().is_some_and(|at| at <= now)
    }

    /// Whether the worker holds deliveries. One that holds none has nothing to lose but its name and renews at half its lease.
    pub(crate) fn set_busy(&mut self, busy: bool) {
        if busy
            && !self.busy
            && let Some(at) = self.renewed
        {
            self.next = self.next.min(at + self.every);
        }
        self.busy = busy;
    }

    /// The next renewal is due now.
    pub(crate) fn hurry(&mut self, now: Instant) {
        self.next = self.next.min(now);
    }

    /// Whether to send a renewal now; if so, it counts as sent.
    pub(crate) fn next(&mut self, now: Instant) -> bool {
        let send = !self.in_flight && self.next <= now;
        self.in_flight |= send;
        send
    }

    /// When to look again.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let next = (!self.in_flight).then_some(self.next);
        [next, self.ends()].into_iter().flatten().min()
    }

    /// Takes the answer in to a renewal that had been sent at `sent`.
    pub(crate) fn answered(&mut self, sent: Instant, answer: &Result<Renewed, Error>, now: Instant) -> Standing {
        self.in_flight = false;
        match answer {
            Ok(renewed) => {
                self.renewed = Some(sent);
                self.tries = 0;
                self.next = sent + if self.busy { self.every } else { self.every.max(self.lease / 2) };
                Standing::Renewed(renewed.clone())
            }
            Err(Error::Gone) => Standing::Gone,
            Err(_) => {
                self.next = now + trouble::pause(self.tries).min(self.every);
                self.tries += 1;
                Standing::Unknown
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn renewed() -> Result<Renewed, Error> {
        Ok(Renewed { now_ms: 1, ..Renewed::default() })
    }

    #[test]
    fn it_counts_from_when_the_answered_renewal_was_sent() {
        let t = Instant::now();
        let mut lease = Lease::new(3_000 * MS, 750 * MS, t);
        assert!(lease.next(t) && !lease.next(t), "one at a time");
        assert_eq!(lease.ends(), None);
        assert!(matches!(lease.answered(t, &renewed(), t + 500 * MS), Standing::Renewed(_)));
        assert_eq!(lease.ends(), Some(t + 2_700 * MS));
        assert!(!lease.is_lost(t + 2_699 * MS) && lease.is_lost(t + 2_700 * MS));
        // Renewals that nobody answers do not make it longer.
        assert!(lease.next(t + 1_500 * MS));
        let full = Err(Error::Full);
        assert_eq!(lease.answered(t + 1_500 * MS, &full, t + 2_000 * MS), Standing::Unknown);
        assert!(lease.is_lost(t + 2_700 * MS));
    }

    #[test]
    fn an_idle_worker_renews_less_often_until_it_has_something_to_lose() {
        let t = Instant::now();
        let mut lease = Lease::new(10_000 * MS, 2_500 * MS, t);
        assert!(lease.next(t));
        lease.answered(t, &renewed(), t);
        assert!(!lease.next(t + 4_999 * MS));
        lease.set_busy(true);
        assert!(!lease.next(t + 2_499 * MS) && lease.next(t + 2_500 * MS));
        lease.answered(t + 2_500 * MS, &renewed(), t + 2_500 * MS);
        assert!(!lease.next(t + 4_999 * MS) && lease.next(t + 5_000 * MS));
    }

    #[test]
    fn a_short_lease_keeps_a_margin() {
        let t = Instant::now();
        let mut lease = Lease::new(500 * MS, 100 * MS, t);
        assert!(lease.next(t));
        lease.answered(t, &renewed(), t);
        assert_eq!(lease.ends(), Some(t + 400 * MS));
    }
}
