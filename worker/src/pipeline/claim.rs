//! Claim: when to ask for work, how much, and of what. Decisions only; the request itself is sent by the pipeline.
//!
//! - *It guarantees* one claim in flight, whose sequence grows only after an answer: the same claim sent again gets the same
//!   deliveries. It never asks for more than there is room for.
//! - *It refuses* to poll. It asks when there may be work that this worker has room for: it begins; somebody rang; the last claim came
//!   back full or was cut short; something has become due; an agent that was full has room again. A claim that returned fewer tasks than it asked for
//!   has marked this worker as asleep in Redis, so that from then on a bell, or the timer, says when to ask again.
//! - *A ring heard without room* is passed on by a claim for nothing: its script rings again if somebody else sleeps. That happens at
//!   most once each time the worker fills up, since the ear then listens without the bell.
//! - *On a crash* before the answer: what the script handed over is ours by name, and is reclaimed when our lease runs out.

use std::time::Duration;

use tidemill_common::store::{Claimed, Error, Offer};
use tokio::time::Instant;

use super::desk::Desk;
use super::shares::Shares;
use super::stage::Delivered;
use crate::options::Order;
use crate::trouble;

/// Most tasks of one claim: keeps its script below 10 ms.
const CLAIM_TASKS_MAX: u32 = 256;
/// How long a worker with a backlog lets slots become free, so that its claims stay large: a claim of one task costs Redis half of
/// one of twenty.
const GATHER: Duration = Duration::from_millis(2);
/// Longest timer: a later due time is looked at again by then.
const TIMER_MAX: Duration = Duration::from_hours(1);
/// Jitter of the timers of workers that do not hold the sweep: the holder rings at the due time, they make up for it.
const SPREAD_MS: u64 = 10;
/// How far timers are spread when others keep being faster, ms: for the holder of the sweep, and for all others.
const LATE_MAX_MS: (u64, u64) = (128, 2_000);

/// One claim, to be sent as often as it takes.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) sequence: u64,
    pub(crate) most: u32,
    pub(crate) lone: bool,
    pub(crate) shares: [u32; 4],
    pub(crate) offers: Vec<Offer>,
    by_timer: bool,
}

/// What a claim's answer means for the worker.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) deliveries: Vec<Delivered>,
    /// Tasks wait that may only run alone.
    pub(crate) lone_work: bool,
    /// This worker was given up.
    pub(crate) gone: bool,
    /// Nothing came although there was room.
    pub(crate) empty: bool,
}

/// When to claim.
#[derive(Debug)]
pub(crate) struct Claims {
    lone: bool,
    /// Nothing more is to be claimed.
    stopped: bool,
    shares: Shares,
    sequence: u64,
    in_flight: bool,
    /// The claim of this sequence was sent, and nobody knows what became of it.
    unanswered: bool,
    /// There may be work that we have room for.
    hungry: bool,
    /// The last claim came back full.
    backlog: bool,
    /// A ring was heard that we cannot use.
    pass_on: bool,
    /// Since when slots gather.
    gathering: Option<Instant>,
    /// After a refusal: not before.
    not_before: Option<Instant>,
    refusals: u32,
    due: Option<Instant>,
    /// Bound of what is added to due times, ms.
    late_ms: u64,
    /// This worker holds the sweep.
    pub(crate) sweeps: bool,
}

impl Claims {
    pub(crate) fn new(order: Order, lone: bool) -> Self {
        Self {
            lone,
            stopped: false,
            shares: Shares::new(order),
            sequence: 1,
            in_flight: false,
            unanswered: false,
            hungry: true,
            backlog: false,
            pass_on: false,
            gathering: None,
            not_before: None,
            refusals: 0,
            due: None,
            late_ms: 0,
            sweeps: false,
        }
    }

    /// A new life of the worker: sequences begin anew.
    pub(crate) fn begin_anew(&mut self) {
        let order = std::mem::replace(&mut self.shares, Shares::new(Order::Strict));
        *self = Self { shares: order, ..Self::new(Order::Strict, self.lone) };
    }

    /// From here on nothing is claimed; a ring is still passed on.
    pub(crate) fn stop(&mut self) {
        self.stopped = true;
    }

    /// Somebody rang.
    pub(crate) fn rung(&mut self, desk: &Desk) {
        if self.room(desk) > 0 { self.hungry = true } else { self.pass_on = true }
    }

    /// Whether a claim is on its way or will be in a moment.
    pub(crate) fn will_ask(&self, now: Instant) -> bool {
        self.in_flight || self.not_before.is_none_or(|at| at <= now)
    }

    fn room(&self, desk: &Desk) -> u32 {
        if self.stopped { 0 } else { desk.room() }
    }

    /// What the last claim brought does not tell whether more waits.
    pub(crate) fn look_again(&mut self) {
        self.hungry = true;
    }

    /// A claim is unanswered.
    pub(crate) fn in_flight(&self) -> bool {
        self.in_flight
    }

    /// The sequence of the newest claim that was sent.
    pub(crate) fn sent(&self) -> u64 {
        if self.unanswered { self.sequence } else { self.sequence - 1 }
    }

    /// The sequence of the newest claim that was answered.
    pub(crate) fn answered_up_to(&self) -> u64 {
        self.sequence - 1
    }

    /// The last claim left nothing behind that we could take: a ring or the timer will say when to ask again.
    pub(crate) fn asleep(&self, desk: &Desk) -> bool {
        !self.in_flight && !self.hungry && !self.pass_on && !desk.has_room_for_more()
    }

    /// The claim to send now, if it is time for one.
    pub(crate) fn next(&mut self, desk: &Desk, now: Instant) -> Option<Ask> {
        if self.in_flight || self.not_before.is_some_and(|at| at > now) {
            return None;
        }
        let room = self.room(desk);
        let by_timer = room > 0 && self.due.is_some_and(|at| at <= now);
        let wanted = room > 0 && (self.hungry || by_timer || desk.has_room_for_more());
        if !wanted && !self.pass_on {
            return None;
        }
        if room > 0 && self.backlog && !enough(room, desk.concurrency()) {
            let since = *self.gathering.get_or_insert(now);
            if now < since + GATHER {
                return None;
            }
        }
        (self.in_flight, self.unanswered, self.gathering, self.pass_on, self.not_before) =
            (true, true, None, false, None);
        self.due = self.due.filter(|_| !by_timer);
        let by_timer = by_timer && !self.hungry && !desk.has_room_for_more();
        // A claim for nothing does not still any hunger.
        self.hungry &= room == 0;
        let most = room.min(CLAIM_TASKS_MAX);
        Some(Ask {
            sequence: self.sequence,
            most,
            lone: self.lone,
            shares: self.shares.next(most),
            offers: if most > 0 { desk.offers() } else { Vec::new() },
            by_timer,
        })
    }

    /// When to look again, if nothing happens before.
    pub(crate) fn deadline(&self, desk: &Desk) -> Option<Instant> {
        if self.in_flight {
            return None;
        }
        let has_room = self.room(desk) > 0;
        match self.not_before {
            Some(at) => Some(at).filter(|_| has_room || self.pass_on),
            None if has_room => [self.gathering.map(|at| at + GATHER), self.due].into_iter().flatten().min(),
            None => None,
        }
    }

    /// Takes the answer in.
    pub(crate) fn answered(&mut self, ask: &Ask, answer: Result<Claimed, Error>, now: Instant) -> Answer {
        self.in_flight = false;
        let claimed = match answer {
            Ok(claimed) => claimed,
            Err(error) => return self.refused(&error, now),
        };
        (self.sequence, self.unanswered, self.refusals) = (self.sequence + 1, false, 0);
        let got = u32::try_from(claimed.deliveries.len()).unwrap_or(u32::MAX);
        self.backlog = got >= ask.most && ask.most > 0;
        // Whoever made us hungry while the claim was on its way may have come too late for it.
        self.hungry |= self.backlog || claimed.cut_short;
        self.set_timer(ask, &claimed, now);
        tracing::trace!(
            sequence = ask.sequence,
            most = ask.most,
            got,
            by_timer = ask.by_timer,
            hungry = self.hungry,
            due = claimed.next_due_ms,
            "claimed"
        );
        let deliveries = claimed
            .deliveries
            .into_iter()
            .map(|delivery| Delivered { delivery, now_ms: claimed.now_ms })
            .collect::<Vec<_>>();
        Answer { empty: got == 0 && ask.most > 0, deliveries, lone_work: claimed.lone_work, gone: false }
    }

    /// An error that asking again at once would not cure.
    fn refused(&mut self, error: &Error, now: Instant) -> Answer {
        if matches!(error, Error::Gone) {
            return Answer { gone: true, ..Answer::default() };
        }
        // What a claim handed over whose answer cannot be read is found by `own`. Any other refusal leaves the sequence as it is.
        if matches!(error, Error::Reply { .. } | Error::Stale) {
            (self.sequence, self.unanswered) = (self.sequence + 1, false);
        }
        self.refusals += 1;
        self.not_before = Some(now + trouble::pause(self.refusals + 3) * self.refusals.min(5));
        self.hungry = true;
        Answer::default()
    }

    /// Something becomes due at a time that the answer tells: wake up then. Those who find, at the due time, that others were faster
    /// come later and later, so that a sleeping fleet does not claim as one for each task that is due.
    fn set_timer(&mut self, ask: &Ask, claimed: &Claimed, now: Instant) {
        if ask.by_timer {
            let max = if self.sweeps { LATE_MAX_MS.0 } else { LATE_MAX_MS.1 };
            self.late_ms = if claimed.deliveries.is_empty() { (self.late_ms * 2).clamp(1, max) } else { 0 };
        }
        self.due = (claimed.next_due_ms > 0).then(|| {
            let wait = Duration::from_millis(claimed.next_due_ms.saturating_sub(claimed.now_ms)).min(TIMER_MAX);
            let spread = if self.sweeps { 0 } else { SPREAD_MS };
            let late = self.late_ms / 2 + rand::random_range(0..=self.late_ms / 2 + spread);
            now + wait + Duration::from_millis(late)
        });
    }
}

/// Whether so much room is worth a claim while there is a backlog.
fn enough(room: u32, concurrency: u32) -> bool {
    room.saturating_mul(4) >= concurrency || room >= CLAIM_TASKS_MAX
}

#[cfg(test)]
#[path = "claim_tests.rs"]
mod tests;
