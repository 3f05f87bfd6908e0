//! Sweep: upkeep on a timer, by the one worker of the fleet that holds it; safe on all of them at once. Workers that are busy look as
//! often for one whose lease has run out.
//!
//! - *It guarantees* that what is due is promoted, what is too late expires, and the deliveries of a worker whose lease has run out are
//!   taken back, within the lease and one interval, as long as one worker lives.
//! - *It refuses* long scripts: each call does a bounded part, and this loop calls again while there is more.
//! - *On a crash* of the holder another takes over when the hold (two intervals) has run out: its next renewal says so, or its next look
//!   if it is busy.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidemill_common::name::WorkerId;
use tidemill_common::store::{Error, Fired, Lease, Store, Swept};
use tokio::sync::watch;

use crate::detect::Detectors;
use crate::metrics::Metrics;
use crate::trouble::Trouble;

/// Most calls in one interval: a backlog of due tasks is promoted by claims as well, and other duties have their turn.
const CALLS_MAX: u32 = 256;
/// Most calls for one dead worker: all deliveries that a worker can hold, and its rows page by page.
const RECLAIMS_MAX: u32 = 100_000;
/// Shortest pause, when something becomes due before the interval is over.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// They are written down for more than a year.
const PERIODS_EVERY: Duration = Duration::from_hours(24);

/// One life's sweep.
#[derive(Debug)]
pub(crate) struct Sweep {
    pub(crate) store: Arc<Store>,
    pub(crate) me: WorkerId,
    pub(crate) lease: Lease,
    pub(crate) every: Duration,
    pub(crate) poison_after: u32,
    pub(crate) metrics: Option<Arc<Metrics>>,
    pub(crate) trouble: Arc<Trouble>,
    pub(crate) detectors: Detectors,
    /// It held the sweep at its last look.
    pub(crate) holds: bool,
    /// When it has last written down the budgets' days and months.
    pub(crate) periods: Option<Instant>,
}

impl Sweep {
    /// Sweeps whenever `looks` says that this worker holds the sweep, or is busy. Ends with the sender of `looks`.
    pub(crate) async fn run(mut self, mut looks: watch::Receiver<bool>) {
        while looks.wait_for(|looks| *looks).await.is_ok() {
            let pause = match self.once().await {
                Ok(next_due) => next_due.map_or(self.every, |due| due.clamp(PAUSE_MIN.min(self.every), self.every)),
                Err(error) => {
                    self.trouble.tell("sweep", &error);
                    self.every
                }
            };
            if self.holds {
                self.extend_periods().await;
            }
            if self.holds
                && let Err(error) = self.detectors.look(&self.store, self.metrics.as_ref()).await
            {
                self.trouble.tell("counts", &error);
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Once a day: the days and months of the budgets' zones, from now on.
    async fn extend_periods(&mut self) {
        if self.periods.is_some_and(|at| at.elapsed() < PERIODS_EVERY) {
            return;
        }
        match self.store.extend_periods().await {
            Ok(()) => self.periods = Some(Instant::now()),
            Err(error) => self.trouble.tell("periods", &error),
        }
    }

    /// All upkeep that is due; when something is due next.
    async fn once(&mut self) -> Result<Option<Duration>, Error> {
        for _ in 0..CALLS_MAX {
            let swept = self.store.sweep(&self.me, self.lease).await?;
            let due = [swept.next_due_ms, swept.next_slot_ms].into_iter().filter(|ms| *ms > 0).min();
            let next = due.map(|ms| Duration::from_millis(ms.saturating_sub(swept.now_ms)));
            self.holds = swept.held;
            let fired = self.fire(&swept).await?;
            match &swept.expired {
                Some(dead) => self.reclaim(dead).await?,
                None if !swept.held => return Ok(None),
                None if swept.more || fired => {}
                None => return Ok(next),
            }
        }
        Ok(Some(PAUSE_MIN))
    }

    /// Fires the slots that have come. True: there may be more of them.
    async fn fire(&self, swept: &Swept) -> Result<bool, Error> {
        let mut some = false;
        for slot in &swept.slots {
            let Some(schedule) = slot.schedule() else {
                tracing::warn!(schedule = %slot.name, "this build cannot read the schedule; another may");
                continue;
            };
            let due = match schedule.due(slot.slot_ms, swept.now_ms) {
                Ok(due) => due,
                Err(error) => {
                    tracing::warn!(schedule = %slot.name, %error, "cannot be fired");
                    continue;
                }
            };
            let fired = self.store.fire(slot, &due, schedule.overlap, &schedule.task()).await?;
            some |= fired != Fired::Stale;
            tracing::debug!(schedule = %slot.name, slot_ms = slot.slot_ms, ?fired, "slot");
            if let Some(metrics) = &self.metrics {
                metrics.fired(&fired);
            }
        }
        Ok(some)
    }

    /// Takes back what a dead worker ran.
    async fn reclaim(&self, dead: &WorkerId) -> Result<(), Error> {
        let mut all = 0;
        for _ in 0..RECLAIMS_MAX {
            let (count, done) = self.store.reclaim(dead, self.poison_after).await?;
            all += count;
            if let Some(metrics) = self.metrics.as_ref().filter(|_| count > 0) {
                metrics.reclaimed(count);
            }
            if done {
                break;
            }
        }
        tracing::info!(worker = %dead, deliveries = all, "reclaimed: its lease had run out");
        Ok(())
    }
}
