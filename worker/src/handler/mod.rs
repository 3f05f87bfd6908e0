//! Handlers: what runs a task. A handler knows its context and nothing of claims, leases or settles.

pub mod builtin;
mod context;
pub mod http;
pub mod middleware;
pub mod process;
#[cfg(test)]
pub(crate) mod testing;
mod text;

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidemill_common::name::AgentName;

pub use context::{Context, FOLLOW_UPS_MAX};
pub use middleware::{Middleware, Next};

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeded; the result, which is kept as the task asked.
    Done(Bytes),
    /// It failed and counts as an attempt; again after the given time, or as the task's retry policy says.
    Retry {
        /// Why.
        error: String,
        /// When to try again; none: by the policy.
        after: Option<Duration>,
    },
    /// Whoever it needs says "not now" for so long; does not count as an attempt.
    Throttled {
        /// What was said.
        error: String,
        /// How long to wait.
        until: Duration,
    },
    /// It failed, and will always fail.
    Dead {
        /// Why.
        reason: String,
    },
}

impl Outcome {
    /// Succeeded, with this result.
    pub fn done(result: impl Into<Bytes>) -> Self {
        Self::Done(result.into())
    }
    /// Failed; to be tried again as the task's policy says.
    pub fn retry(error: impl Into<String>) -> Self {
        Self::Retry { error: error.into(), after: None }
    }
    /// Failed for good.
    pub fn dead(reason: impl Into<String>) -> Self {
        Self::Dead { reason: reason.into() }
    }
}

/// A future that a handler returns.
pub type Running<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

/// Runs the tasks of one agent.
///
/// A run may be cut short at any await: when the task is called off, its time is up, or its lease is lost, the future is dropped
/// after [`Context::cancelled`] was given a moment. A panic is caught and counts as a failed attempt. Code that blocks the thread
/// belongs on [`tokio::task::spawn_blocking`]; if it does block, leases are renewed all the same.
pub trait Handler: Send + Sync + 'static {
    /// One run.
    fn run(&self, context: Context) -> Running<'_>;
}

impl<F, Fut> Handler for F
where
    F: Fn(Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Outcome> + Send + 'static,
{
    fn run(&self, context: Context) -> Running<'_> {
        Box::pin(self(context))
    }
}

/// An agent's handler and its bounds on this worker.
#[derive(Clone)]
pub struct Agent {
    /// What runs it.
    pub handler: Arc<dyn Handler>,
    /// Most of its tasks at once on this worker; none: only the worker's own bound.
    pub concurrency: Option<u32>,
    /// Longest run; a task may ask for less.
    pub timeout: Duration,
}

/// The agents that a worker runs.
#[derive(Clone, Default)]
pub struct Registry {
    agents: HashMap<AgentName, Agent>,
    middleware: Vec<Arc<dyn Middleware>>,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.agents.keys()).finish()
    }
}

/// Longest run of a task that says nothing else.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(300);

impl Registry {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an agent with defaults; a later one of the same name replaces it.
    #[must_use]
    pub fn with(self, name: AgentName, handler: impl Handler) -> Self {
        self.with_agent(name, Agent { handler: Arc::new(handler), concurrency: None, timeout: TIMEOUT_DEFAULT })
    }

    /// Adds an agent.
    #[must_use]
    pub fn with_agent(mut self, name: AgentName, agent: Agent) -> Self {
        self.agents.insert(name, agent);
        self
    }

    /// Puts this around the runs of all agents, inside of what was added before; see [`middleware`] for the order.
    #[must_use]
    pub fn with_middleware(mut self, middleware: impl Middleware) -> Self {
        self.middleware.push(Arc::new(middleware));
        self
    }

    /// An agent's handler, with all middleware around it.
    pub(crate) fn around(&self, agent: &Agent) -> Arc<dyn Handler> {
        middleware::wrap_all(&self.middleware, Arc::clone(&agent.handler))
    }

    /// An agent, without the middleware.
    #[must_use]
    pub fn get(&self, name: &AgentName) -> Option<&Agent> {
        self.agents.get(name)
    }

    /// All agents, without the middleware.
    pub fn iter(&self) -> impl Iterator<Item = (&AgentName, &Agent)> {
        self.agents.iter()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.agents.is_empty()
    }
}
