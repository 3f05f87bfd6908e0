//! The stages of a delivery. Each is a value that the next one consumes, so that none can be skipped or done twice.
//!
//! ```text
//! Delivered ──Desk::open──► Running ──Running::run──► Finished ──Desk::finish, Lane──► Settled ──Desk::close──► (nothing left)
//! ```
//!
//! A value that is dropped on the way is not lost: a [`Running`] says so through its ticket, and what no stage holds any more is
//! found among the worker's own deliveries once a lease, and handed back (see [`super::own`]).

use tidemill_common::name::Fence;
use tidemill_common::store::{self, Delivery, Verb};
use tidemill_common::task::{NewTask, Task};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Event;
use super::spend::Used;

/// Handed over by a claim: admitted, charged and fenced; on our account until it is settled.
#[derive(Debug)]
#[must_use = "a delivery must be opened, or its task waits for the lease to run out"]
pub(crate) struct Delivered {
    pub(crate) delivery: Delivery,
    /// Server time of the claim, ms.
    pub(crate) now_ms: u64,
}

/// Read, and given one of the worker's slots; its handler begins, or has begun.
#[derive(Debug)]
#[must_use = "it has a slot and must run"]
pub(crate) struct Running {
    pub(crate) task: Task,
    /// Its agent's number in the crew.
    pub(crate) agent: usize,
    pub(crate) attempt: u16,
    pub(crate) losses: u16,
    /// How long it had waited when it was claimed, ms; for a first run only.
    pub(crate) waited_ms: Option<u64>,
    /// When the task is too old to be run on.
    pub(crate) too_old: Option<Instant>,
    pub(crate) stop: CancellationToken,
    /// What its handler says that it uses.
    pub(crate) used: Used,
    pub(crate) ticket: Ticket,
}

/// Its handler has ended, one way or the other; its slot is free again.
#[derive(Debug)]
#[must_use = "it must be settled, or its task runs again when the lease has run out"]
pub(crate) struct Finished {
    /// The life of the worker in which it was claimed.
    pub(crate) life: u32,
    pub(crate) fence: Fence,
    /// Its agent's number in the crew.
    pub(crate) agent: usize,
    pub(crate) ended: Ended,
    /// What it submits, if it has succeeded.
    pub(crate) follow_ups: Vec<NewTask>,
    /// The span of its run, for those of later stages.
    pub(crate) traced: Option<String>,
}

/// How a handler ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// With an answer, or a time-out or panic that stands for one.
    Answered(Verb),
    /// Cut short without one.
    Cut,
}

/// The store has taken note.
#[derive(Debug)]
#[must_use = "the desk holds the delivery until it is told"]
pub(crate) struct Settled {
    pub(crate) fence: Fence,
    pub(crate) how: store::Settled,
}

/// Tells the desk that a run is over, whatever becomes of it: by [`Ticket::finish`], or by being dropped (a handler whose
/// destructor panics, a runtime that is shut down).
#[derive(Debug)]
pub(crate) struct Ticket {
    life: u32,
    fence: Fence,
    agent: usize,
    desk: Option<UnboundedSender<Event>>,
}

impl Ticket {
    pub(crate) fn new(life: u32, fence: Fence, agent: usize, desk: UnboundedSender<Event>) -> Self {
        Self { life, fence, agent, desk: Some(desk) }
    }

    pub(crate) fn fence(&self) -> Fence {
        self.fence
    }

    /// The end of the run. Whoever gets the value sends it to the desk.
    pub(crate) fn finish(mut self, ended: Ended, follow_ups: Vec<NewTask>) -> Finished {
        self.desk = None;
        self.finished(ended, follow_ups)
    }

    fn finished(&self, ended: Ended, follow_ups: Vec<NewTask>) -> Finished {
        Finished { life: self.life, fence: self.fence, agent: self.agent, ended, follow_ups, traced: None }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(desk) = self.desk.take() {
            // A desk that is gone has nobody left to tell: the process ends, and the lease will run out.
            let _ = desk.send(Event::Finished(self.finished(Ended::Cut, Vec::new())));
        }
    }
}
