//! Handlers tested without Redis: one run of one task, judged as the worker judges it. `docs/testing.md` has more examples.
//!
//! - *It guarantees* that the run goes through the very code that a worker's runs go through: panics, time-outs, results that are too
//!   large, follow-ups that do not count, and being called off are here what they are there.
//! - *It refuses* what a producer would refuse: a task that is not valid is a panic of the test.
//! - It keeps nothing. What needs the store is not here: retries that follow, the end after `max_attempts`, gates, leases.
//!
//! All times are tokio's: under `#[tokio::test(start_paused = true)]` (tokio's feature `test-util`) a handler that waits for minutes
//! is tested in no time, and its clock stands still while it does not wait.
//!
//! ```
//! use serde_json::json;
//! use tidemill_common::task::NewTask;
//! use tidemill_worker::{Context, Outcome, testing};
//!
//! async fn shout(context: Context) -> Outcome {
//!     match std::str::from_utf8(context.payload()) {
//!         Ok(text) => Outcome::done(json!({ "text": text.to_uppercase() }).to_string()),
//!         Err(_) => Outcome::dead("the payload is not text"),
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let agent = "shout".parse()?;
//! testing::run(shout, NewTask::new(agent, "hi")).await.assert_done(json!({ "text": "HI" }));
//! # Ok(()) }
//! ```

mod ran;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tidemill_common::name::{AgentName, Fence};
use tidemill_common::store::Verb;
use tidemill_common::task::{NewTask, Task};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::handler::{Context, Handler, Outcome, Registry, TIMEOUT_DEFAULT};
use crate::pipeline::{Output, PROGRESS_WAITING_MAX, Used, Why, carry_out, judge, timeout};

pub use ran::Ran;

/// Runs a task once: its first attempt, with nothing lost, and five minutes unless the task says less.
///
/// # Panics
/// When the task is not valid.
pub async fn run(handler: impl Handler, task: NewTask) -> Ran {
    Trial::of(handler).run(task).await
}

/// A run that is to be tried. Dropping the future of [`Self::run`] drops the handler's.
#[must_use = "nothing is tried before `run`"]
pub struct Trial {
    handler: Arc<dyn Handler>,
    attempt: u16,
    losses: u16,
    fence: Fence,
    timeout: Duration,
    called_off: BoxFuture<'static, ()>,
}

impl std::fmt::Debug for Trial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trial").field("attempt", &self.attempt).field("losses", &self.losses).finish_non_exhaustive()
    }
}

impl Trial {
    /// Of a handler.
    pub fn of(handler: impl Handler) -> Self {
        Self::of_any(Arc::new(handler), TIMEOUT_DEFAULT)
    }

    /// Of a registered agent, with its middleware and its longest run.
    ///
    /// # Panics
    /// When there is no such agent.
    #[track_caller]
    pub fn of_agent(registry: &Registry, name: &AgentName) -> Self {
        let Some(agent) = registry.get(name) else { panic!("there is no agent {name} in {registry:?}") };
        Self::of_any(registry.around(agent), agent.timeout)
    }

    fn of_any(handler: Arc<dyn Handler>, timeout: Duration) -> Self {
        let called_off = std::future::pending().boxed();
        Self { handler, attempt: 1, losses: 0, fence: Fence(1), timeout, called_off }
    }

    /// Which attempt it is, from 1.
    pub fn attempt(self, attempt: u16) -> Self {
        Self { attempt, ..self }
    }

    /// How many runs of the task were lost with their worker.
    pub fn losses(self, losses: u16) -> Self {
        Self { losses, ..self }
    }

    /// The number of the delivery.
    pub fn fence(self, fence: u64) -> Self {
        Self { fence: Fence(fence), ..self }
    }

    /// The agent's longest run; the task may say less.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Calls the run off when this completes, as a cancel or a worker that stops does.
    pub fn called_off_when(self, signal: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { called_off: signal.boxed(), ..self }
    }

    /// Runs a task.
    ///
    /// # Panics
    /// When the task is not valid.
    pub async fn run(self, task: NewTask) -> Ran {
        if let Err(invalid) = task.check() {
            panic!("the task is not valid: {invalid}");
        }
        let max_age = task.max_age;
        let task = arrived(task);
        let timeout = timeout(&task, self.timeout, max_age);
        let (progress, mut said) = mpsc::channel(PROGRESS_WAITING_MAX);
        let (output, mut pieces) = mpsc::channel(PROGRESS_WAITING_MAX);
        let (cancel, used) = (CancellationToken::new(), Used::default());
        let context = Context {
            task: Arc::new(task),
            attempt: self.attempt,
            losses: self.losses,
            fence: self.fence,
            deadline: Instant::now() + timeout,
            too_old: max_age.map(|age| Instant::now() + age),
            cancel: cancel.clone(),
            outbox: Arc::new(Mutex::default()),
            progress: Some(progress),
            used: used.clone(),
            spend: None,
            output: Some(output),
            emitted: Arc::default(),
            traceparent: None,
        };
        let mut running = Box::pin(carry_out(&*self.handler, context, timeout, RESULT_TTL));
        let (mut called_off, mut why, mut given) = (self.called_off, None, Vec::new());
        let (ended, follow_ups) = loop {
            tokio::select! {
                biased;
                ended = &mut running => break ended,
                Some(word) = pieces.recv() => add(&mut given, word),
                () = &mut called_off, if why.is_none() => {
                    cancel.cancel();
                    why = Some(Why::CalledOff);
                }
            }
        };
        while let Ok(word) = pieces.try_recv() {
            add(&mut given, word);
        }
        let progress = std::iter::from_fn(|| said.try_recv().ok()).map(|(_, _, text)| text).collect();
        Ran { outcome: outcome(judge(ended, why)), follow_ups, progress, output: given.into(), used: used.said() }
    }
}

/// No result outlives its test.
const RESULT_TTL: Duration = Duration::from_secs(60);

/// A task as it would come from the store.
pub(crate) fn arrived(task: NewTask) -> Task {
    Task {
        id: task.id,
        queue: task.queue,
        agent: task.agent,
        tenant: task.tenant,
        priority: task.priority,
        seq_us: 1,
        due_ms: 0,
        too_old_ms: task.max_age.map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(0)),
        max_attempts: task.max_attempts,
        cost: task.cost,
        weight: task.weight,
        estimate: task.estimate,
        order_key: task.order_key,
        hold_on_dead: task.hold_on_dead,
        key: task.key,
        depth: task.depth,
        meta: task.meta,
        payload: task.payload,
        payload_apart: false,
    }
}

fn add(given: &mut Vec<u8>, word: Output) {
    if let Output::More(_, _, _, data) = word {
        given.extend_from_slice(&data);
    }
}

fn outcome(verb: Verb) -> Option<Outcome> {
    match verb {
        Verb::Done { result, .. } => Some(Outcome::Done(result)),
        Verb::Retry { error, after_ms } => Some(Outcome::Retry { error, after: Some(Duration::from_millis(after_ms)) }),
        Verb::Throttled { error, after_ms } => {
            Some(Outcome::Throttled { error, until: Duration::from_millis(after_ms) })
        }
        Verb::Dead { error } | Verb::Unreadable { error } => Some(Outcome::Dead { reason: error }),
        Verb::Release => None,
    }
}
