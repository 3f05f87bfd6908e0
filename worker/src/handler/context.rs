//! What a handler knows of its run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tidemill_common::name::{Fence, TaskId};
use tidemill_common::spend::Spend;
use tidemill_common::task::{Invalid, NewTask, Task};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::pipeline::{Output, Used};

/// Most follow-ups of one run: what one settle can take in.
pub const FOLLOW_UPS_MAX: usize = 256;
/// Most bytes of their payloads together: they go with the settle, in one request.
const FOLLOW_UPS_BYTES_MAX: usize = 4 << 20;

/// One run of a task. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Context {
    pub(crate) task: Arc<Task>,
    pub(crate) attempt: u16,
    pub(crate) losses: u16,
    pub(crate) fence: Fence,
    pub(crate) deadline: Instant,
    pub(crate) too_old: Option<Instant>,
    pub(crate) cancel: CancellationToken,
    pub(crate) outbox: Arc<Mutex<Vec<NewTask>>>,
    pub(crate) progress: Option<mpsc::Sender<(TaskId, Fence, String)>>,
    pub(crate) used: Used,
    pub(crate) spend: Option<mpsc::Sender<(TaskId, Fence, Spend)>>,
    pub(crate) output: Option<mpsc::Sender<Output>>,
    /// Whether there was any output.
    pub(crate) emitted: Arc<AtomicBool>,
    /// The span of this run, if somebody collects it.
    pub(crate) traceparent: Option<String>,
}

impl Context {
    /// The task.
    #[must_use]
    pub fn task(&self) -> &Task {
        &self.task
    }
    /// Its id.
    #[must_use]
    pub fn id(&self) -> &TaskId {
        &self.task.id
    }
    /// Its payload, byte for byte as it was submitted.
    #[must_use]
    pub fn payload(&self) -> &Bytes {
        &self.task.payload
    }
    /// Which attempt this is, from 1. Runs that were lost, handed back or throttled do not count.
    #[must_use]
    pub fn attempt(&self) -> u16 {
        self.attempt
    }
    /// How often a run of this task was lost with its worker.
    #[must_use]
    pub fn losses(&self) -> u16 {
        self.losses
    }
    /// The number of this delivery; a newer one is larger. Give it to whatever you write to, and let it refuse older ones: only
    /// that protects against a process that was frozen past its lease.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.fence
    }
    /// A key for the outside (`Idempotency-Key`), the same over all attempts.
    #[must_use]
    pub fn idempotency_key(&self) -> &str {
        self.task.key.as_deref().unwrap_or(self.task.id.as_str())
    }
    /// The trace that this run belongs to, in W3C's form (`traceparent`): its own span, if this worker exports spans, else what the
    /// task was submitted with. Follow-ups are given it.
    #[must_use]
    pub fn traceparent(&self) -> Option<&str> {
        self.traceparent.as_deref().or(self.task.meta.traceparent.as_deref())
    }
    /// How much of its time is left.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
    /// Completes when the run is to stop: called off, out of time, its lease lost, or the worker shutting down.
    pub fn cancelled(&self) -> impl Future<Output = ()> + '_ {
        self.cancel.cancelled()
    }
    /// The token behind [`Self::cancelled`], to hand on.
    #[must_use]
    pub fn cancellation(&self) -> &CancellationToken {
        &self.cancel
    }
    /// Says how far the run is; at most 256 characters are kept, and only the newest of a burst.
    pub fn progress(&self, text: impl Into<String>) {
        if let Some(progress) = &self.progress {
            // Full means that newer word is on its way: a courtesy is dropped rather than waited for.
            let _ = progress.try_send((self.task.id.clone(), self.fence, text.into()));
        }
    }
    /// Says that the run has used this, beside what it has said before: budgets are charged with all of it when the run has ended, in the
    /// place of what the task was expected to use. A run that never says anything is charged with that.
    ///
    /// Say it as soon as it is known, after each call of a model: what a run says before it is lost is charged then, and what it still
    /// says afterwards, within a day, as well.
    pub fn spend(&self, more: Spend) {
        let used = self.used.add(more);
        if let Some(spend) = &self.spend {
            // Full means that newer word is on its way, and the end of the run says all.
            let _ = spend.try_send((self.task.id.clone(), self.fence, used));
        }
    }
    /// Gives out a part of the result, or of a log, while the run goes on: `producer tail` and [`Store::tail`] follow it. It is kept for
    /// an hour, the newest 4 MiB; what an attempt that failed gave out goes with the first output of the next.
    ///
    /// Waits while more comes than is taken. Dropping the future may lose this part and nothing else.
    ///
    /// [`Store::tail`]: tidemill_common::store::Store::tail
    pub async fn emit(&self, data: impl Into<Bytes>) {
        let data = data.into();
        if let Some(output) = self.output.as_ref().filter(|_| !data.is_empty()) {
            self.emitted.store(true, Ordering::Relaxed);
            let _ = output.send(Output::More(self.task.id.clone(), self.fence, self.attempt, data)).await;
        }
    }
    /// Submits a follow-up: handed in with this run's success, in the same step, so that a run that is repeated cannot double it;
    /// a run that fails submits nothing. It is given no more time than this task has left: a most age is handed down. So is the trace,
    /// unless it has one.
    ///
    /// # Errors
    /// When the task is not valid, too deep, or there are too many: 256, or 4 MiB of payloads.
    pub fn submit(&self, mut task: NewTask) -> Result<TaskId, Invalid> {
        task.depth = self.task.depth.saturating_add(1);
        task.meta.parent = Some(self.task.id.clone());
        if task.meta.traceparent.is_none() {
            task.meta.traceparent = self.traceparent().map(str::to_owned);
        }
        if let Some(at) = self.too_old {
            let left = at.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            task.max_age = Some(task.max_age.map_or(left, |own| own.min(left)));
        }
        task.check()?;
        let mut outbox = self.outbox.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes: usize = outbox.iter().chain([&task]).map(|t| t.payload.len()).sum();
        if outbox.len() >= FOLLOW_UPS_MAX || bytes > FOLLOW_UPS_BYTES_MAX {
            return Err(Invalid::Range { what: "follow-ups of one run", range: "at most 256, with 4 MiB of payloads" });
        }
        let id = task.id.clone();
        outbox.push(task);
        Ok(id)
    }
}
