//! Stop: how a worker ends, and how it begins anew when its lease is lost.
//!
//! ```text
//! Serving ──drain──► Draining ──all ended───────────────────► Flushing ──all settled──► Leaving ──► exit
//!    │                  └─grace over─► Cutting ──a moment──────────▲
//!    └──force────────────────────────────▲ (all bounds shorter)
//! ```
//!
//! - *It guarantees* that what did not end is handed back: claimable at once, its attempt not counted. And an end: each phase has a
//!   bound, with Redis away as well.
//! - *It refuses* to claim from the first wish on. A claim that is on its way then is waited for, and what it brings is handed back.
//! - *On a crash* half-way, or when Redis does not answer in time, the lease runs out and the deliveries are reclaimed.

use std::time::Duration;

use tidemill_common::name::WorkerId;
use tidemill_common::store::{SettleItem, Verb};
use tokio::time::Instant;

use super::desk::Why;
use super::stage::Delivered;
use super::{Event, LANE, Pipeline, RETURNS, claim, lease, own, settle};
use crate::worker::Exit;

/// How long handlers have to answer once they are told to stop.
const CUT: Duration = Duration::from_millis(200);
/// How long settles and the goodbye have at the end: when drained, and when forced.
const FLUSH: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(1));
/// How long the goodbye has.
const LEAVE: Duration = Duration::from_millis(500);

/// Where on its way to the end a worker is; times are those by which the next phase begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// It takes work.
    Serving,
    /// What runs may end.
    Draining(Instant),
    /// What runs was told to stop.
    Cutting(Instant),
    /// Settles are sent.
    Flushing(Instant),
    /// It says goodbye.
    Leaving(Instant),
    /// It has.
    Left,
}

impl Phase {
    pub(super) fn deadline(self) -> Option<Instant> {
        match self {
            Self::Serving | Self::Left => None,
            Self::Draining(at) | Self::Cutting(at) | Self::Flushing(at) | Self::Leaving(at) => Some(at),
        }
    }
}

impl Pipeline {
    /// Takes the wishes to stop into account, and goes on to the next phase when it is time. Some: the end.
    pub(super) fn advance(&mut self, now: Instant) -> Option<Exit> {
        if self.wishes.force.is_cancelled() && !self.forced {
            self.forced = true;
            self.wishes.drain.cancel();
            if !matches!(self.phase, Phase::Flushing(_) | Phase::Leaving(_) | Phase::Left) {
                self.cut(now);
            }
        }
        if self.wishes.drain.is_cancelled() && self.phase == Phase::Serving {
            self.drain(now, self.options.grace);
        }
        // Several at once, when there is nothing to wait for: there are five.
        loop {
            let before = self.phase;
            match self.phase {
                Phase::Draining(by) if self.desk.running() > 0 && now >= by => self.cut(now),
                Phase::Draining(_) if self.desk.running() == 0 => self.flush(now),
                Phase::Cutting(by) if self.desk.running() == 0 || now >= by => self.flush(now),
                Phase::Flushing(by) if self.is_flushed() || now >= by => self.leave(now),
                Phase::Leaving(by) if now >= by => self.phase = Phase::Left,
                Phase::Left => return Some(self.exit()),
                _ => {}
            }
            if self.phase == before {
                return None;
            }
        }
    }

    /// Claims nothing more.
    pub(super) fn drain(&mut self, now: Instant, grace: Duration) {
        tracing::info!(worker = %self.id, running = self.desk.running(), ?grace, "draining: nothing more is claimed");
        self.claims.stop();
        self.phase = Phase::Draining(now + grace);
        self.stop_by = Some(now + grace + CUT);
    }

    fn cut(&mut self, now: Instant) {
        if self.desk.running() > 0 {
            tracing::warn!(worker = %self.id, running = self.desk.running(), forced = self.forced, "cutting short what runs");
        }
        self.claims.stop();
        self.desk.stop_all(Why::Stopping);
        self.phase = Phase::Cutting(now + CUT);
    }

    fn flush(&mut self, now: Instant) {
        for item in self.desk.give_up() {
            self.lane.push(item);
        }
        self.phase = Phase::Flushing(now + if self.forced { FLUSH.1 } else { FLUSH.0 });
    }

    /// The goodbye is sent: nothing else is any more.
    pub(super) fn is_leaving(&self) -> bool {
        matches!(self.phase, Phase::Leaving(_) | Phase::Left)
    }

    fn is_flushed(&self) -> bool {
        self.lane.is_idle() && self.returns.is_idle() && !self.claims.in_flight()
    }

    fn leave(&mut self, now: Instant) {
        if !self.lease.has_begun() {
            self.phase = Phase::Left;
            return;
        }
        self.phase = Phase::Leaving(now + LEAVE);
        let _ = self.sweeps.send(false);
        let (store, id, trouble) = (self.store.clone(), self.id.clone(), self.trouble.clone());
        self.ask(async move {
            match store.leave(&id).await {
                Ok(true) => {}
                Ok(false) => tracing::warn!(worker = %id, "left with deliveries that will be reclaimed"),
                Err(error) => trouble.tell("leave", &error),
            }
            Event::Left
        });
    }

    fn exit(&self) -> Exit {
        let unsettled = !self.is_flushed();
        match self.handed_back {
            _ if self.forced => Exit::Forced,
            // Redis did not answer in time: what is not settled, or was claimed unheard, runs when the lease has run out.
            _ if unsettled => Exit::LeaseLost,
            0 => Exit::Drained,
            n => Exit::HandedBack(n),
        }
    }

    /// What a claim brought that was on its way when we were told to stop: back at once.
    pub(super) fn hand_back(&mut self, deliveries: Vec<Delivered>) {
        for Delivered { delivery, .. } in deliveries {
            let item = SettleItem::new(delivery.id, delivery.fence, Verb::Release);
            self.desk.adopt(&item);
            self.lane.push(item);
        }
    }

    /// The lease is lost: all handlers are stopped, and nothing that they say counts. A worker that is about to end ends now; any
    /// other begins a new life, and settles in it what had finished before.
    pub(super) fn lose(&mut self, why: &'static str, now: Instant) -> Option<Exit> {
        tracing::warn!(worker = %self.id, running = self.desk.running(), why, "the lease is lost: others run what runs here");
        if let Some(metrics) = &self.metrics {
            metrics.lease_lost();
        }
        self.pulse.leased(None);
        self.scope.cancel();
        self.desk.lose_all();
        let finished = self.lane.take_all();
        if self.phase != Phase::Serving {
            return Some(if self.forced { Exit::Forced } else { Exit::LeaseLost });
        }
        // The name was checked when the worker was made; an old id would be told once more that it is gone.
        self.id = WorkerId::incarnate(&self.options.name).unwrap_or_else(|_| self.id.clone());
        self.pulse.set_id(self.id.clone());
        self.scope = tokio_util::sync::CancellationToken::new();
        self.sweeps = tokio::sync::watch::Sender::new(false);
        self.lease = lease::Lease::new(self.options.lease, self.options.renew, now);
        self.claims.begin_anew();
        self.own = own::Own::new(self.options.lease, now);
        (self.lane, self.returns) = (settle::Lane::new(LANE), settle::Lane::new(RETURNS));
        for item in finished {
            self.desk.adopt(&item);
            self.lane.push(item);
        }
        None
    }

    /// A lone worker ends when nothing more waits for it.
    pub(super) fn lone_is_done(&mut self, answer: &claim::Answer, now: Instant) {
        if self.options.lone && answer.empty && self.desk.held() == 0 && self.phase == Phase::Serving {
            self.drain(now, Duration::ZERO);
        }
    }

    /// By when the child for lone work, which was told to stop as we were, is to have ended.
    pub(super) fn child_by(&self, now: Instant) -> Instant {
        if self.forced { now + CUT } else { self.stop_by.unwrap_or(now).max(now + CUT) }
    }
}
