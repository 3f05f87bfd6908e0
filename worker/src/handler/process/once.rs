//! A child for each task: the payload is its standard input, its standard output is the result, its exit code says how it went.
//!
//! - *It guarantees* what the module above does of children, and that there are never more of them at once than were allowed, those
//!   that are being ended included. That no success is cut: a child whose output was not read to its end has not succeeded.
//! - *It refuses* a result that is too large, and to take for a success how a child ended that was told to.
//! - *On a child's death* its task has failed, and counts. One that cannot be started is not the task's fault.

use std::io;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;
use tidemill_common::name::AgentName;
use tidemill_common::task::PAYLOAD_BYTES_MAX;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::ChildStdout;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::child::{Child, Pipes, describe};
use super::lines::{LastWords, log};
use super::live::TERMED_FOR;
use super::pool::SHORTLY;
use super::{Children, Context, Handler, Outcome, ProcessOptions, Running};
use crate::handler::text::encoded;

/// How long a throttled task waits.
const THROTTLED_FOR: Duration = Duration::from_secs(1);
/// How long what a dead child has written is read on: its own children may have kept its output.
const LAST_WORDS_FOR: Duration = Duration::from_secs(1);
/// How long tasks wait after a child could not be started: the first time, and at most. It doubles.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// `EX_USAGE`, `EX_DATAERR`: the task will always fail.
const DEAD: [i32; 2] = [64, 65];
/// `EX_TEMPFAIL`: not now.
const THROTTLED: i32 = 75;

/// A handler that starts a child for each task.
#[derive(Debug)]
pub struct OnceAgent {
    agent: AgentName,
    options: Arc<ProcessOptions>,
    room: Arc<Semaphore>,
    /// How often in a row no child could be started.
    failures: Arc<AtomicU32>,
    runtime: Handle,
    tasks: TaskTracker,
    closing: CancellationToken,
}

impl OnceAgent {
    pub(super) fn new(children: &Children, agent: &AgentName, options: ProcessOptions) -> Self {
        let room = Arc::new(Semaphore::new(options.children.clamp(1, Semaphore::MAX_PERMITS)));
        Self {
            agent: agent.clone(),
            options: Arc::new(options),
            room,
            failures: Arc::default(),
            runtime: children.runtime.clone(),
            tasks: children.tasks.clone(),
            closing: children.stop.clone(),
        }
    }
}

impl Handler for OnceAgent {
    fn run(&self, context: Context) -> Running<'_> {
        Box::pin(async move {
            let stop = context.cancellation().child_token();
            // This future may be dropped at any await: then the child is ended, as if the run had been called off.
            let _told = stop.clone().drop_guard();
            let Some(Ok(place)) = stop.run_until_cancelled(Arc::clone(&self.room).acquire_owned()).await else {
                return Outcome::retry("called off while it waited for another child to end");
            };
            let one = One {
                agent: self.agent.clone(),
                options: Arc::clone(&self.options),
                failures: Arc::clone(&self.failures),
                context,
                stop,
                closing: self.closing.clone(),
            };
            let (answer, answered) = oneshot::channel();
            let run = async move {
                let outcome = one.run().await;
                drop(place);
                // Nobody listens when it was called off.
                let _ = answer.send(outcome);
            };
            self.tasks.spawn_on(run, &self.runtime);
            answered.await.unwrap_or_else(|_| stopping())
        })
    }
}

fn stopping() -> Outcome {
    Outcome::Throttled { error: "the worker stops".into(), until: SHORTLY }
}

/// One task and its child; on the children's thread.
struct One {
    agent: AgentName,
    options: Arc<ProcessOptions>,
    failures: Arc<AtomicU32>,
    context: Context,
    stop: CancellationToken,
    closing: CancellationToken,
}

/// What a child wrote.
enum Output {
    Whole(Vec<u8>),
    TooLarge,
}

/// Why a child is waited for no longer.
enum Why {
    Ended(io::Result<ExitStatus>),
    TooLarge,
    CalledOff,
    Closing,
}

impl One {
    async fn run(self) -> Outcome {
        if self.closing.is_cancelled() {
            return stopping();
        }
        let (mut child, pipes) = match Child::spawn(&self.options, &facts(&self.context)) {
            Ok(started) => started,
            Err(error) => return self.not_started(&error),
        };
        self.failures.store(0, Ordering::Relaxed);
        let Pipes { input: mut to, output, errors } = pipes;
        let payload = self.context.payload().clone();
        // Both end with the child's pipes. A child that does not read all of its input need not.
        tokio::spawn(async move { to.write_all(&payload).await });
        let last_words = LastWords::default();
        let log = tokio::spawn(log(self.agent.clone(), child.pid(), errors, last_words.clone()));
        let mut reading = std::pin::pin!(read(output));
        let mut read = None;
        let why = loop {
            tokio::select! {
                ended = child.ended() => break Why::Ended(ended),
                output = &mut reading, if read.is_none() => match output {
                    Output::Whole(output) => read = Some(output),
                    Output::TooLarge => break Why::TooLarge,
                },
                () = self.stop.cancelled() => break Why::CalledOff,
                () = self.closing.cancelled() => break Why::Closing,
            }
        };
        let status = match why {
            Why::Ended(Ok(status)) => status,
            Why::Ended(Err(error)) => return Outcome::retry(format!("the child cannot be awaited: {error}")),
            Why::TooLarge => return too_large(),
            Why::CalledOff => {
                end(&mut child).await;
                return Outcome::retry("called off; its child was ended");
            }
            Why::Closing => {
                end(&mut child).await;
                return stopping();
            }
        };
        if read.is_none() {
            match tokio::time::timeout(LAST_WORDS_FOR, reading).await {
                Ok(Output::Whole(output)) => read = Some(output),
                Ok(Output::TooLarge) => return too_large(),
                Err(_) => {}
            }
        }
        let _ = tokio::time::timeout(LAST_WORDS_FOR, log).await;
        outcome(status, read, &last_words.excerpt())
    }

    fn not_started(&self, error: &io::Error) -> Outcome {
        let error = format!("cannot start {:?}: {error}", self.options.command.first());
        tracing::error!(agent = %self.agent, error, "a child cannot be started");
        let before = self.failures.fetch_add(1, Ordering::Relaxed).min(16);
        Outcome::Throttled { error, until: (PAUSE.0 * 2_u32.pow(before)).min(PAUSE.1) }
    }
}

/// What the child may want to know. Of visible ASCII alone, so that no text breaks an environment, or a script that reads it.
fn facts(context: &Context) -> Vec<(&'static str, String)> {
    let deadline_ms = context.remaining().as_millis();
    let mut facts = vec![
        ("TIDEMILL_TASK", encoded(context.id().as_str())),
        ("TIDEMILL_AGENT", context.task().agent.as_str().to_owned()),
        ("TIDEMILL_ATTEMPT", context.attempt().to_string()),
        ("TIDEMILL_FENCE", context.fence().0.to_string()),
        ("TIDEMILL_KEY", encoded(context.idempotency_key())),
        ("TIDEMILL_DEADLINE_MS", deadline_ms.to_string()),
        ("TIDEMILL_TENANT", encoded(&context.task().tenant)),
    ];
    // The name that OpenTelemetry has for it.
    facts.extend(context.traceparent().map(|of| ("TRACEPARENT", encoded(of))));
    facts
}

/// Ends it: SIGTERM, then SIGKILL. What is left of its group goes with it.
async fn end(child: &mut Child) {
    child.signal(Signal::SIGTERM);
    if tokio::time::timeout(TERMED_FOR, child.ended()).await.is_err() {
        child.signal(Signal::SIGKILL);
        let _ = child.ended().await;
    }
}

async fn read(output: ChildStdout) -> Output {
    let mut whole = Vec::new();
    // A pipe that cannot be read has ended with its child, whose exit code says how.
    let _ = output.take(PAYLOAD_BYTES_MAX as u64 + 1).read_to_end(&mut whole).await;
    if whole.len() > PAYLOAD_BYTES_MAX { Output::TooLarge } else { Output::Whole(whole) }
}

/// The child, if it still runs, is killed with its group by being dropped.
fn too_large() -> Outcome {
    Outcome::dead(format!("the child wrote more than {PAYLOAD_BYTES_MAX} bytes, which is the largest result"))
}

fn outcome(status: ExitStatus, output: Option<Vec<u8>>, last_words: &str) -> Outcome {
    let how = describe(status);
    let error = if last_words.is_empty() { how } else { format!("{how}: {last_words}") };
    match (status.code(), output) {
        (Some(0), Some(output)) => Outcome::done(output),
        (Some(0), None) => {
            Outcome::retry("the child has ended, but its output was kept open by a process that it left")
        }
        (Some(THROTTLED), _) => Outcome::Throttled { error, until: THROTTLED_FOR },
        (Some(code), _) if DEAD.contains(&code) => Outcome::dead(error),
        _ => Outcome::retry(error),
    }
}
