//! Run: Running → Finished. The only stage that is not on the control thread.
//!
//! - *It guarantees* that every run ends in one [`Finished`], whatever its handler does: answer, panic, run too long, be cut short.
//! - *It refuses* results that are too large, and follow-ups that could not be handed in: the task is dead, with the reason.
//! - *On a crash* of the process nothing is said of the run: its lease runs out, and it counts as lost.
//!
//! A run is stopped by its token first; the handler has a moment to answer; then its future is dropped at the await where it is. One
//! that blocks its thread cannot be stopped: it keeps its slot until it returns, and what it answers then is not heard.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use tidemill_common::envelope;
use tidemill_common::name::{Fence, TaskId};
use tidemill_common::retry::CAP_MS_MAX;
use tidemill_common::spend::Spend;
use tidemill_common::store::Verb;
use tidemill_common::task::{Keep, NewTask, Task};
use tidemill_common::trace;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{Sender, UnboundedSender};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use super::crew::Crew;
use super::payload::Payloads;
use super::stage::{Ended, Finished, Running};
use super::{Event, output};
use crate::handler::{Context, Outcome};
use crate::metrics::Metrics;

/// How long a handler that was told to stop may take to answer before it is dropped.
const MOMENT: Duration = Duration::from_millis(100);
/// Largest result: it goes through Redis and back, and stays there for the result lifetime.
const RESULT_BYTES_MAX: usize = 1 << 20;
/// Longest error text that is kept, in bytes: enough for a cause, not for a page.
const ERROR_BYTES_MAX: usize = 1024;
/// Longest "not now": whoever says more is asked again, once an hour.
const THROTTLED_MAX: Duration = Duration::from_hours(1);

/// What every run needs.
#[derive(Debug)]
pub(crate) struct Kit {
    pub(crate) crew: Arc<Crew>,
    pub(crate) result_ttl: Duration,
    pub(crate) metrics: Option<Arc<Metrics>>,
    pub(crate) progress: Sender<(TaskId, Fence, String)>,
    pub(crate) spend: Sender<(TaskId, Fence, Spend)>,
    pub(crate) output: Sender<output::Word>,
    pub(crate) payloads: Payloads,
}

/// Starts runs on the handlers' runtime.
#[derive(Debug)]
pub(crate) struct Runs {
    pub(crate) kit: Arc<Kit>,
    pub(crate) runtime: Handle,
    pub(crate) tracker: TaskTracker,
    pub(crate) events: UnboundedSender<Event>,
}

impl Runs {
    /// Starts a batch. It crosses to the other runtime as one task, which then starts the others there: one wake-up for all.
    pub(crate) fn start(&self, batch: Vec<Running>) {
        if batch.is_empty() {
            return;
        }
        let (kit, tracker, events) = (Arc::clone(&self.kit), self.tracker.clone(), self.events.clone());
        let start = async move {
            for running in batch {
                let (kit, events) = (Arc::clone(&kit), events.clone());
                tracker.spawn(async move {
                    let finished = running.run(&kit).await;
                    let _ = events.send(Event::Finished(finished));
                });
            }
        };
        self.tracker.spawn_on(start, &self.runtime);
    }
}

impl Running {
    /// Runs the handler to its end.
    pub(crate) async fn run(mut self, kit: &Kit) -> Finished {
        if Payloads::is_to_be_read(&self.task) {
            let read = tokio::select! {
                read = kit.payloads.read(&mut self.task) => read,
                () = self.stop.cancelled() => Err(Ended::Cut),
            };
            if let Err(ended) = read {
                return self.ticket.finish(ended, Vec::new());
            }
        }
        let began = Instant::now();
        if let (Some(metrics), Some(waited_ms)) = (&kit.metrics, self.waited_ms) {
            metrics.started(&self.task, waited_ms);
        }
        let Self { task, agent, attempt, losses, too_old, stop, used, ticket, .. } = self;
        let member = kit.crew.member(agent);
        let timeout = timeout(&task, member.agent.timeout, too_old.map(|at| at.saturating_duration_since(began)));
        let span = trace::run(&task, attempt, ticket.fence());
        let traced = trace::context(&span);
        let context = Context {
            task: Arc::new(task),
            attempt,
            losses,
            fence: ticket.fence(),
            deadline: began + timeout,
            too_old,
            cancel: stop,
            outbox: Arc::new(Mutex::new(Vec::new())),
            progress: Some(kit.progress.clone()),
            used,
            spend: Some(kit.spend.clone()),
            output: Some(kit.output.clone()),
            emitted: Arc::default(),
            traceparent: traced.clone(),
        };
        let task = Arc::clone(&context.task);
        let emitted = Arc::clone(&context.emitted);
        let run = carry_out(&*member.agent.handler, context, timeout, kit.result_ttl);
        let (ended, follow_ups) = run.instrument(span.clone()).await;
        if emitted.load(Ordering::Relaxed) {
            output::end(&kit.output, ticket.fence()).await;
        }
        let (ended, follow_ups) = kit.payloads.write(&task, attempt, ended, follow_ups).await;
        trace::ended(&span, label(&ended));
        if let Some(metrics) = &kit.metrics {
            metrics.finished(member.name.as_str(), label(&ended), began.elapsed().as_secs_f64());
        }
        Finished { traced, ..ticket.finish(ended, follow_ups) }
    }
}

/// Runs a handler, whatever it does, and says what is to be settled: all that is between a context and the desk.
pub(crate) async fn carry_out(
    handler: &dyn crate::Handler,
    context: Context,
    timeout: Duration,
    result_ttl: Duration,
) -> (Ended, Vec<NewTask>) {
    let (task, attempt, outbox) = (Arc::clone(&context.task), context.attempt, Arc::clone(&context.outbox));
    let span = tracing::info_span!("run", task = %task.id, agent = %task.agent, attempt, fence = context.fence.0);
    let outcome = attend(handler, context, timeout).instrument(span).await;
    verdict(outcome, &task, attempt, result_ttl, &outbox)
}

/// The task's own time, but never more than the agent's, nor than it has left before it is too old.
pub(crate) fn timeout(task: &Task, of_agent: Duration, left: Option<Duration>) -> Duration {
    let own = match task.meta.timeout_ms {
        0 => of_agent,
        ms => of_agent.min(Duration::from_millis(ms)),
    };
    own.min(left.unwrap_or(own))
}

/// Lets the handler run until it answers, panics, is told to stop, or is out of time. None: it was dropped without an answer.
async fn attend(handler: &dyn crate::Handler, context: Context, timeout: Duration) -> Option<Outcome> {
    let (stop, deadline) = (context.cancel.clone(), context.deadline);
    // Inside the block, so that a panic before the handler's first await is caught as well.
    let run = AssertUnwindSafe(async { handler.run(context).await }).catch_unwind();
    let mut run = std::pin::pin!(
        run.map(|ended| ended.unwrap_or_else(|panic| Outcome::retry(format!("panic: {}", text_of(&*panic)))))
    );
    let timed_out = tokio::select! {
        biased;
        outcome = &mut run => return Some(outcome),
        () = stop.cancelled() => false,
        () = tokio::time::sleep_until(deadline) => true,
    };
    stop.cancel();
    match (tokio::time::timeout(MOMENT, run).await.ok(), timed_out) {
        (None, true) => Some(Outcome::retry(format!("timed out after {timeout:?}"))),
        (Some(Outcome::Retry { error, .. }), true) => {
            Some(Outcome::retry(format!("timed out after {timeout:?}: {error}")))
        }
        (answer, _) => answer,
    }
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("of no text")
}

/// What is to be settled for an outcome.
fn verdict(
    outcome: Option<Outcome>,
    task: &Task,
    attempt: u16,
    result_ttl: Duration,
    outbox: &Mutex<Vec<NewTask>>,
) -> (Ended, Vec<NewTask>) {
    let verb = match outcome {
        None => return (Ended::Cut, Vec::new()),
        Some(Outcome::Done(result)) => {
            let follow_ups = std::mem::take(&mut *outbox.lock().unwrap_or_else(PoisonError::into_inner));
            match done(result, task.meta.keep, result_ttl, &follow_ups) {
                Ok(done) => return (Ended::Answered(done), follow_ups),
                Err(reason) => dead(reason),
            }
        }
        Some(Outcome::Retry { error, after }) => {
            let after_ms = after.map_or_else(|| delay_ms(task, attempt), ms).min(CAP_MS_MAX);
            retry(error, after_ms)
        }
        Some(Outcome::Throttled { error, until }) => throttled(error, until),
        Some(Outcome::Dead { reason }) => dead(reason),
    };
    (Ended::Answered(verb), Vec::new())
}

/// A success, unless it cannot be written down: running it again would not help.
fn done(result: Bytes, keep: Keep, result_ttl: Duration, follow_ups: &[NewTask]) -> Result<Verb, String> {
    if let Some(unfit) = follow_ups.iter().find_map(|task| envelope::seal(task).err()) {
        return Err(format!("a follow-up cannot be handed in: {unfit}"));
    }
    match (keep, result.len()) {
        (Keep::Keep, bytes) if bytes > RESULT_BYTES_MAX => {
            Err(format!("result too large: {bytes} bytes; at most {RESULT_BYTES_MAX} are kept"))
        }
        (Keep::Keep, _) => Ok(Verb::Done { result, keep_ms: ms(result_ttl) }),
        (Keep::Failed | Keep::None, _) => Ok(Verb::Done { result: Bytes::new(), keep_ms: 0 }),
    }
}

pub(super) fn dead(reason: String) -> Verb {
    Verb::Dead { error: cut(reason) }
}

/// Its envelope or payload is not what this worker reads.
pub(super) fn unreadable(error: String) -> Verb {
    Verb::Unreadable { error: cut(error) }
}

pub(super) fn retry(error: String, after_ms: u64) -> Verb {
    Verb::Retry { error: cut(error), after_ms }
}

pub(super) fn throttled(error: String, until: Duration) -> Verb {
    Verb::Throttled { error: cut(error), after_ms: ms(until.min(THROTTLED_MAX)) }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn delay_ms(task: &Task, attempt: u16) -> u64 {
    // A policy that was put in by hand is not believed.
    let policy = task.meta.retry.filter(|p| p.check().is_ok()).unwrap_or_default();
    policy.delay_ms(u32::from(attempt), rand::random())
}

/// Cuts a text to what is kept, between two characters.
fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(ERROR_BYTES_MAX));
    text
}

fn label(ended: &Ended) -> &'static str {
    match ended {
        Ended::Answered(Verb::Done { .. }) => "done",
        Ended::Answered(Verb::Retry { .. }) => "retry",
        Ended::Answered(Verb::Throttled { .. }) => "throttled",
        Ended::Answered(Verb::Dead { .. } | Verb::Unreadable { .. }) => "dead",
        Ended::Answered(Verb::Release) | Ended::Cut => "cut",
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
