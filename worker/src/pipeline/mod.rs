//! The path of a task: claim → run → settle, and what keeps a worker alive meanwhile.
//!
//! One task on the control thread owns all state and turns events into requests, so nothing here is locked or raced: a request (one
//! script) is sent by a small task that comes back as an `Event`. The decisions are in siblings that neither wait nor send
//! (`claim`, `settle`, `lease`, `own`, `desk`); `run` alone is on other threads.
//!
//! # What it guarantees
//!
//! - A task that Redis handed to this worker is settled by it, or runs again: after the lease at the latest, or after two for a
//!   delivery that this worker never heard of.
//! - No handler is started without a slot, and none before everything that its task needs is granted: that is what the claim does.
//! - Handlers are told to stop before the lease ends. Nothing that a handler does can keep the lease from being renewed.
//! - Nothing is sent without bound while Redis is away: what is unanswered is sent again, the very same, with pauses.
//!
//! # What it refuses
//!
//! Prefetching (a task that waits in a worker is a task that another could run), polling, and exiting because Redis does not answer.
//!
//! # On a crash
//!
//! | when | what is left | what becomes of it |
//! |---|---|---|
//! | a claim is sent, not answered | perhaps deliveries to us | reclaimed with the lease; by `own` if we live |
//! | a handler runs | a delivery of ours | reclaimed with the lease, counted as lost |
//! | it has ended, and is not settled | the same | the same: the task runs again. At least once, not exactly once |
//! | a settle is sent, not answered | settled, or not | nothing, or the same |
//! | it is settled | an outcome | nothing |

mod answer;
mod claim;
mod crew;
mod desk;
mod drive;
mod ear;
mod lease;
mod newest;
mod output;
mod own;
mod payload;
mod request;
mod run;
mod settle;
mod shares;
mod spend;
mod stage;
mod stop;
#[cfg(test)]
mod testing;

use std::sync::Arc;

use tidemill_common::name::{Fence, WorkerId};
use tidemill_common::store::{
    self, Accepted, Claimed, Clock, Error as StoreError, Heard, OwnedDelivery, RedisOptions, Renewed, Settled as How,
};
use tidemill_payloads::Payloads;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::lone::Program;
use crate::metrics::Metrics;
use crate::trouble::Trouble;
use crate::worker::Pulse;
use crate::{Options, Registry, Shutdown};

pub(crate) use desk::{Why, judge};
pub(crate) use drive::run;
pub(crate) use newest::WAITING_MAX as PROGRESS_WAITING_MAX;
pub(crate) use output::Word as Output;
pub(crate) use run::{carry_out, timeout};
pub(crate) use spend::Used;
use stage::Finished;

/// What a worker is made of.
pub(crate) struct Setup {
    pub(crate) redis: RedisOptions,
    pub(crate) clock: Clock,
    pub(crate) registry: Registry,
    pub(crate) options: Options,
    pub(crate) metrics: Option<Arc<Metrics>>,
    pub(crate) program: Option<Program>,
    pub(crate) payloads: Arc<Payloads>,
    pub(crate) pulse: Arc<Pulse>,
}

/// What has happened. Answers carry the life of the worker in which they were asked for: those of an earlier one do not count.
#[derive(Debug)]
pub(crate) enum Event {
    /// The answer to a claim.
    Claimed(u32, claim::Ask, Result<Claimed, StoreError>, Instant),
    /// A handler has ended.
    Finished(Finished),
    /// The answer to a settle, on a lane.
    Settled(u32, u8, Result<(Vec<How>, Vec<Accepted>), StoreError>),
    /// The answer to a renewal, and when that was sent.
    Renewed(u32, Instant, Result<Renewed, StoreError>),
    /// What we own, as Redis says.
    Owned(u32, Option<Vec<OwnedDelivery>>),
    /// The ear's round has ended.
    Heard(Result<Heard, StoreError>),
    /// The ear could not be nudged.
    NotNudged,
    /// A run's progress was refused: it is not current.
    Stale(Fence),
    /// Somebody wishes us to stop.
    Wish,
    /// Our goodbye was heard, or not.
    Left,
}

/// Settles of finished runs.
const LANE: u8 = 0;
/// What is handed back without having run here: not held up by the other lane, nor holding it up.
const RETURNS: u8 = 1;

/// All state of a worker.
struct Pipeline {
    options: Options,
    crew: Arc<crew::Crew>,
    store: Arc<store::Store>,
    metrics: Option<Arc<Metrics>>,
    pulse: Arc<Pulse>,
    trouble: Arc<Trouble>,
    wishes: Shutdown,
    events: UnboundedReceiver<Event>,
    /// For those who tell us of events.
    tell: UnboundedSender<Event>,
    tracker: TaskTracker,

    desk: desk::Desk,
    runs: run::Runs,
    ear: ear::Ear,
    /// After a ring the ear waits for the answer to the claim.
    ear_waits: bool,
    lone_work: Arc<Notify>,
    lone_keeper: Option<JoinHandle<()>>,
    reconnects: u64,

    // One life of the worker: all of this begins anew when its lease is lost.
    id: WorkerId,
    /// Ends the requests of this life.
    scope: CancellationToken,
    /// Whether this worker holds the sweep.
    sweeps: watch::Sender<bool>,
    lease: lease::Lease,
    claims: claim::Claims,
    lane: settle::Lane,
    returns: settle::Lane,
    own: own::Own,

    /// Why the lease is lost, if Redis says so.
    gone: Option<&'static str>,

    phase: stop::Phase,
    forced: bool,
    stop_by: Option<Instant>,
    handed_back: u64,
}

impl Pipeline {
    /// The path of a task, from one event to the next.
    ///
    /// `Delivered`, `Running`, `Finished`, `Settled`: each step consumes what the one before it made. What waits between the steps is
    /// in one place each: the handlers' runtime, the lane, the desk.
    fn on(&mut self, event: Event) {
        match event {
            // claim.lua has answered. What it handed over is admitted and charged: all its gates were open, and are taken.
            Event::Claimed(life, ask, answer, began) if life == self.desk.life() => {
                let mut runs = Vec::new();
                for delivered in self.claimed(&ask, answer, began) {
                    match self.desk.open(delivered) {
                        Ok(running) => runs.push(running),
                        Err(not_to_be_run) => self.put_aside(*not_to_be_run),
                    }
                }
                self.desk.opened(&ask.offers);
                self.runs.start(runs);
            }
            // Its handler has answered, or was cut short. The slot is free; the delivery stays on our account.
            Event::Finished(finished) => {
                if let Some(item) = self.desk.finish(finished) {
                    self.lane.push(item);
                }
            }
            // settle.lua has answered: what was taken is given back, and the outcome is on record.
            Event::Settled(life, lane, answer) if life == self.desk.life() => {
                for settled in self.settled(lane, answer) {
                    self.desk.close(&settled);
                }
            }
            other => self.on_upkeep(other),
        }
    }
}
