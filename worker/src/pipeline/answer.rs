//! Answers: what an event means for the parts of a worker.

use tidemill_common::name::Fence;
use tidemill_common::store::{self, Claimed, Error as StoreError, Heard, SettleItem, Settled as How};
use tokio::time::Instant;

use super::claim::{Answer, Ask};
use super::desk::Why;
use super::lease::Standing;
use super::stage::{Delivered, Settled};
use super::stop::Phase;
use super::{Event, LANE, Pipeline, settle};

impl Pipeline {
    /// The answer to a claim. Deliveries that came too late to be run are handed back here.
    pub(super) fn claimed(&mut self, ask: &Ask, answer: Result<Claimed, StoreError>, began: Instant) -> Vec<Delivered> {
        let now = Instant::now();
        self.ear_waits = false;
        let well = answer.is_ok();
        let answer = self.claims.answered(ask, answer, now);
        if answer.gone {
            self.gone = Some("a claim was told so");
            return Vec::new();
        }
        if let Some(metrics) = self.metrics.as_ref().filter(|_| well) {
            metrics.claim_seconds((now - began).as_secs_f64());
            metrics.claimed(u64::try_from(answer.deliveries.len()).unwrap_or(u64::MAX));
            metrics.last_poll();
        }
        if well {
            self.pulse.polled();
        }
        self.lone_waits(answer.lone_work);
        self.lone_is_done(&answer, now);
        let Answer { deliveries, .. } = answer;
        if self.phase == Phase::Serving {
            return deliveries;
        }
        self.hand_back(deliveries);
        Vec::new()
    }

    /// A delivery that cannot be run, or need not: it is settled as it is.
    pub(super) fn put_aside(&mut self, item: SettleItem) {
        self.claims.look_again();
        self.lane.push(item);
    }

    /// The answer to a settle; what is closed by it.
    pub(super) fn settled(
        &mut self,
        lane: u8,
        answer: Result<(Vec<How>, Vec<store::Accepted>), StoreError>,
    ) -> Vec<Settled> {
        let lane = if lane == LANE { &mut self.lane } else { &mut self.returns };
        let settled = lane.answered(answer);
        for one in &settled {
            if one.how == How::Released && self.phase != Phase::Serving {
                self.handed_back += 1;
            }
            if let Some(metrics) = &self.metrics {
                metrics.settled(settle::label(one.how));
            }
        }
        settled
    }

    /// Everything that is not a step of a task's path.
    pub(super) fn on_upkeep(&mut self, event: Event) {
        let now = Instant::now();
        match event {
            Event::Renewed(life, sent, answer) if life == self.desk.life() => {
                match self.lease.answered(sent, &answer, now) {
                    Standing::Renewed(renewed) => self.renewed(renewed),
                    Standing::Unknown => {}
                    Standing::Gone => self.gone = Some("a renewal was told so"),
                }
            }
            Event::Owned(life, owned) if life == self.desk.life() => {
                self.own.answered(owned, &mut self.desk, &self.claims, now)
            }
            Event::Heard(heard) => self.heard(heard),
            Event::NotNudged => self.ear.nudge_failed(),
            Event::Stale(fence) => {
                self.desk.stop(fence, Why::Stale);
            }
            Event::Left => self.phase = Phase::Left,
            // A wish is seen by the loop itself; all others are answers to an earlier life.
            _ => {}
        }
    }

    fn renewed(&mut self, renewed: store::Renewed) {
        self.pulse.leased(self.lease.ends().map(Instant::into_std));
        self.lone_waits(renewed.lone_work);
        self.claims.sweeps = renewed.sweeps;
        let before = self.desk.concurrency();
        if self.desk.tune(renewed.concurrency, &renewed.agents) {
            self.claims.rung(&self.desk);
        }
        if self.desk.concurrency() != before {
            tracing::info!(concurrency = self.desk.concurrency(), "an operator has changed how many tasks run at once");
            if let Some(metrics) = &self.metrics {
                metrics.concurrency(i64::from(self.desk.concurrency()));
            }
        }
        if self.sweeps.receiver_count() == 0 && !self.options.lone {
            tracing::info!(worker = %self.id, agents = self.crew.names().len(), concurrency = self.desk.concurrency(), "at work");
            self.begin_sweep();
        }
        let _ = self.sweeps.send(renewed.sweeps || self.desk.held() > 0);
        let reconnects = self.store.reconnects();
        if let Some(metrics) = &self.metrics {
            metrics.reconnected(reconnects.saturating_sub(self.reconnects));
        }
        self.reconnects = reconnects;
    }

    fn lone_waits(&self, waits: bool) {
        if waits && !self.options.lone {
            self.lone_work.notify_one();
        }
    }

    fn heard(&mut self, heard: Result<Heard, StoreError>) {
        let of_bell = self.ear.ended();
        if heard.is_ok() {
            self.pulse.polled();
            if let Some(metrics) = &self.metrics {
                metrics.last_poll();
            }
        }
        match heard {
            Ok(Heard::Ring) if of_bell => {
                self.claims.rung(&self.desk);
                self.ear_waits = self.claims.will_ask(Instant::now());
            }
            Ok(Heard::Cancel(id, fence)) => self.called_off(&id, fence),
            Ok(Heard::Renew) => self.lease.hurry(Instant::now()),
            Ok(Heard::Ring | Heard::Ended(_) | Heard::Nothing) | Err(_) => {}
        }
    }

    fn called_off(&mut self, id: &str, fence: u64) {
        let found = self.desk.stop(Fence(fence), Why::CalledOff);
        tracing::info!(task = id, fence, found, "called off");
        if !found && self.claims.in_flight() {
            self.desk.expect_called_off(Fence(fence));
        }
    }
}
