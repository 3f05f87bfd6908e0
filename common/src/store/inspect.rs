//! Read-only views: one task, and the whole.

use std::collections::BTreeMap;

use bytes::Bytes;
use fred::prelude::Value;

use super::reply::Reply;
use super::{Error, Store};
use crate::history::{DeadReason, PastError};
use crate::name::{Fence, TaskId};
use crate::spend::Spend;
use crate::state::State;

/// Where a task is and how it fared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Its state; none: nothing is known of it (never accepted, or ended and forgotten).
    pub state: Option<State>,
    /// For a parked task: the gate in whose line it is.
    pub gate: Option<String>,
    /// Runs that counted so far; for a running task the number of this one.
    pub attempt: u64,
    /// Runs that were lost with their worker.
    pub losses: u64,
    /// The fence of its last delivery.
    pub fence: Fence,
    /// When it is due, server ms; for a scheduled task.
    pub due_ms: u64,
    /// When its last run began, server ms; 0: none did.
    pub started_ms: u64,
    /// When it ended, server ms; 0: it has not.
    pub ended_ms: u64,
    /// Why it is dead, if it is.
    pub reason: Option<DeadReason>,
    /// The result, if kept; the reason, for a dead task.
    pub data: Bytes,
    /// Its envelope's header, without the body, while there is one.
    pub header: Bytes,
    /// The worker that runs it.
    pub worker: String,
    /// Its agent, while that is known.
    pub agent: String,
    /// What it last said of its progress, while it runs.
    pub progress: String,
    /// How often it was replayed.
    pub replays: u64,
    /// The errors of its last runs, the newest first.
    pub errors: Vec<PastError>,
}

impl Status {
    /// Its last error; empty when there was none.
    #[must_use]
    pub fn error(&self) -> &str {
        self.errors.first().map_or("", |e| e.text.as_str())
    }
}

/// What waits, runs and has ended in a shard.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts {
    /// Deliveries that run.
    pub running: u64,
    /// Tasks that are not due.
    pub scheduled: u64,
    /// Tasks in a line.
    pub parked: u64,
    /// Dead tasks kept.
    pub dead: u64,
    /// Workers with a lease.
    pub workers: u64,
    /// Workers asleep with room.
    pub idle: u64,
    /// Server time, ms.
    pub now_ms: u64,
    /// Waiting tasks (queued, scheduled, parked) by queue and priority number.
    pub waiting: BTreeMap<(String, u8), u64>,
    /// Ends so far, by outcome: `done`, `dead`, `cancelled`, `expired`, `quarantined`, `reclaimed`.
    pub ended: BTreeMap<String, u64>,
    /// How long ago the oldest entry that nobody has read came to its stream, ms, by queue and priority number; a task that was delayed
    /// counts from when it was due. What is held at a gate is not among them.
    pub oldest_ms: BTreeMap<(String, u8), u64>,
    /// What is paused, as [`Pausable::from_field`](super::Pausable::from_field) reads it.
    pub paused: Vec<String>,
    /// Deaths so far, by reason.
    pub deaths: BTreeMap<DeadReason, u64>,
    /// Tasks that were refused so far since their queue was full.
    pub refused: u64,
    /// How often a task was held back at a limit so far, by the kind of its gate: `s` slots, `r` rate, `t` tokens, `c` money.
    pub limit_hits: BTreeMap<char, u64>,
    /// What runs have used so far, as far as their handlers said so.
    pub used: Spend,
}

impl Store {
    /// Where a task is. With `wake`, that client's control list gets a note when the task ends.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn status(&self, id: &TaskId, wake: Option<&str>) -> Result<Status, Error> {
        let args: Vec<Value> = vec![id.as_str().into(), wake.unwrap_or_default().into()];
        let mut r = Reply::array("status", self.call(|s| &s.status, args).await?)?;
        Ok(Status {
            state: r.text()?.parse().ok(),
            gate: Some(r.text()?).filter(|g| !g.is_empty()),
            attempt: r.number()?,
            losses: r.number()?,
            fence: Fence(r.number()?),
            due_ms: r.number()?,
            started_ms: r.number()?,
            ended_ms: r.number()?,
            reason: r.bytes()?.first().and_then(|letter| DeadReason::from_letter(*letter)),
            data: r.bytes()?,
            header: r.bytes()?,
            worker: r.text()?,
            agent: r.text()?,
            progress: r.text()?,
            replays: r.number()?,
            errors: PastError::read_all(&r.bytes()?),
        })
    }

    /// The counts of this shard.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn counts(&self) -> Result<Counts, Error> {
        let mut r = Reply::array("counts", self.call(|s| &s.counts, Vec::new()).await?)?;
        let mut counts = Counts {
            running: r.number()?,
            scheduled: r.number()?,
            parked: r.number()?,
            dead: r.number()?,
            workers: r.number()?,
            idle: r.number()?,
            now_ms: r.number()?,
            ..Counts::default()
        };
        let (mut oldest, mut paused) = (r.list()?, r.list()?);
        while !oldest.is_empty() {
            let (queue, priority, age) = (oldest.text()?, oldest.number()?, oldest.number()?);
            counts.oldest_ms.insert((queue, u8::try_from(priority).unwrap_or(0)), age);
        }
        while !paused.is_empty() {
            counts.paused.push(paused.text()?);
        }
        while !r.is_empty() {
            let field = r.text()?;
            // A count below zero is drift that `doctor` reports; it is shown as none.
            let count = r.text()?.parse::<i64>().map_or(0, |n| u64::try_from(n).unwrap_or(0));
            if let Some((priority, queue)) = field.strip_prefix("w:").and_then(|rest| rest.split_once(':')) {
                if let Ok(priority) = priority.parse() {
                    counts.waiting.insert((queue.to_owned(), priority), count);
                }
            } else if let Some(outcome) = field.strip_prefix("o:") {
                counts.ended.insert(outcome.to_owned(), count);
            } else if let Some(reason) = field.strip_prefix("d:").and_then(|why| why.as_bytes().first()) {
                counts.deaths.extend(DeadReason::from_letter(*reason).map(|reason| (reason, count)));
            } else if let Some(kind) = field.strip_prefix("h:").and_then(|kind| kind.chars().next()) {
                counts.limit_hits.insert(kind, count);
            } else if field == "u:t" {
                counts.used.tokens = count;
            } else if field == "u:c" {
                counts.used.micro_usd = count;
            } else if field == "refused" {
                counts.refused = count;
            }
        }
        Ok(counts)
    }
}
