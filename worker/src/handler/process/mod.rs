//! Agents in any language: long-lived children that speak JSON lines over standard input and output, or a child for each task.
//!
//! Both are in `docs/process-agents.md`. A pool of long-lived children serves one agent ([`ProcessAgent`]); each is started for the
//! first task that comes to it, takes up to `slots` tasks at once, and stays. A child for one task ([`OnceAgent`]) reads the payload
//! and writes the result.
//!
//! - *It guarantees* that a run that was called off, or is out of time, has no process behind it 500 ms later: a long-lived child is
//!   asked (`{"cancel":…}`), then its process group gets SIGTERM, then SIGKILL. That a child does not outlive the worker, however the
//!   worker ends. That a payload, whatever it holds, is one line and never a word of a command: no shell is involved.
//! - *It refuses* what is not of the protocol: a child that prints anything else on standard output is ended, and says so.
//! - *On a child's death* the task in hand has failed (and counts). A child that cannot be started is this machine's trouble and
//!   not the task's: the task is handed back for a while and does not count.
//!
//! All children are spawned and watched by one thread with a small runtime of its own ([`Children`]): handlers that block their
//! threads cannot delay a kill, and the kernel's "signal the child when its parent *thread* ends" means the process.

mod child;
mod flights;
mod lines;
mod live;
mod once;
#[cfg(test)]
mod once_tests;
mod pool;
mod seat;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tidemill_common::name::AgentName;
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Context, Handler, Outcome, Running};
use pool::Pool;

pub use once::OnceAgent;

/// How long all children together may take to end once the worker has ended.
const END_WITHIN: Duration = Duration::from_secs(2);

/// How to run an agent's children.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessOptions {
    /// The program and its arguments; at least the program.
    pub command: Vec<String>,
    /// Where it runs; none: where the worker does.
    pub directory: Option<PathBuf>,
    /// Variables added to the worker's own environment, of which children get all but `TIDEMILL__…`, since that holds secrets.
    pub env: BTreeMap<String, String>,
    /// How many children at most.
    pub children: usize,
    /// How many tasks one long-lived child takes at once.
    pub slots: usize,
    /// How long a long-lived child may take to say that it is ready.
    pub ready_within: Duration,
}

impl ProcessOptions {
    /// One child, one task at a time, ten seconds to get ready.
    #[must_use]
    pub fn new(command: Vec<String>) -> Self {
        let env = BTreeMap::new();
        Self { command, directory: None, env, children: 1, slots: 1, ready_within: Duration::from_secs(10) }
    }
}

/// The thread that has all children of a worker. Dropping it ends them: end of input, SIGTERM, SIGKILL, within two seconds.
#[derive(Debug)]
pub struct Children {
    runtime: Handle,
    stop: CancellationToken,
    tasks: TaskTracker,
    thread: Option<JoinHandle<()>>,
}

impl Children {
    /// Starts the thread. No child is started yet.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (handle, stop, tasks) = (runtime.handle().clone(), CancellationToken::new(), TaskTracker::new());
        let (stopped, all) = (stop.clone(), tasks.clone());
        let thread = std::thread::Builder::new().name("tidemill-children".to_owned()).spawn(move || {
            runtime.block_on(async {
                stopped.cancelled().await;
                all.close();
                // Past this the runtime is dropped, and each child still there is killed with it.
                let _ = tokio::time::timeout(END_WITHIN, all.wait()).await;
            });
        })?;
        Ok(Self { runtime: handle, stop, tasks, thread: Some(thread) })
    }

    /// A handler whose children live on this thread.
    #[must_use]
    pub fn agent(&self, name: &AgentName, options: ProcessOptions) -> ProcessAgent {
        let (pool, seats) = Pool::new(name, options);
        for seat in seats {
            self.tasks.spawn_on(seat.serve(self.stop.clone()), &self.runtime);
        }
        ProcessAgent { pool }
    }

    /// A handler that starts a child for each task, on this thread.
    #[must_use]
    pub fn once(&self, name: &AgentName, options: ProcessOptions) -> OnceAgent {
        OnceAgent::new(self, name, options)
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A handler that gives each task to a child.
#[derive(Debug)]
pub struct ProcessAgent {
    pool: Arc<Pool>,
}

impl Handler for ProcessAgent {
    fn run(&self, context: Context) -> Running<'_> {
        Box::pin(async move {
            let stop = context.cancellation().child_token();
            // This future may be dropped at any await: then the child is told, as if the run had been called off.
            let _told = stop.clone().drop_guard();
            let Some(place) = stop.run_until_cancelled(self.pool.place()).await else {
                return Outcome::retry("called off while it waited for a child");
            };
            match self.pool.hand_over(place, context, stop).await {
                Some(outcome) => outcome,
                None => Outcome::Throttled {
                    error: "the worker's children are gone: it is stopping".into(),
                    until: pool::SHORTLY,
                },
            }
        })
    }
}
