//! What a handler of the lab is to do.

use serde::{Deserialize, Serialize};
use tidemill_common::name::AgentName;
use tidemill_common::task::NewTask;

/// An agent whose runs are not written down: for so many tasks that the ledger would be the load.
pub const QUIET: &str = "quiet";

/// How a run goes, once its time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// It awaits, and succeeds; told to stop, it stops at once.
    #[default]
    Sleep,
    /// It blocks its thread, and succeeds.
    Busy,
    /// It awaits and does not hear that it is to stop.
    Deaf,
    /// It fails at its first attempt and then succeeds.
    FailOnce,
    /// It fails.
    Fail,
    /// It is refused for a while, at every attempt.
    Throttled,
    /// It fails for good.
    Dead,
    /// It panics.
    Panic,
    /// It takes its process down.
    Abort,
}

/// A payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Payload {
    /// How long a run takes, ms.
    pub ms: u64,
    /// How it goes.
    #[serde(default)]
    pub mode: Mode,
    /// When to try again after a failure, ms; none: as the task's policy says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_ms: Option<u64>,
    /// What a run costs that comes to its end, micro-dollars: half of it is said as it begins, the rest at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costs: Option<u64>,
}

impl Payload {
    /// A run of so many ms that succeeds.
    #[must_use]
    pub fn sleep(ms: u64) -> Self {
        Self { ms, ..Self::default() }
    }
    /// A run of so many ms that goes like this.
    #[must_use]
    pub fn of(mode: Mode, ms: u64) -> Self {
        Self { ms, mode, ..Self::default() }
    }
    /// Sets when to try again after a failure.
    #[must_use]
    pub fn after(mut self, ms: u64) -> Self {
        self.after_ms = Some(ms);
        self
    }

    /// A task of the agent `ledger` with this payload.
    #[must_use]
    pub fn task(self) -> NewTask {
        self.task_of("ledger")
    }
    /// A task of another agent with this payload; workers need it in their [`Setup::agents`](super::Setup::agents).
    ///
    /// # Panics
    /// When that is no agent's name.
    #[must_use]
    pub fn task_of(self, agent: &str) -> NewTask {
        let agent: AgentName = agent.parse().unwrap_or_else(|e| panic!("{e}"));
        NewTask::new(agent, serde_json::to_vec(&self).unwrap_or_else(|e| panic!("the payload is no JSON: {e}")))
    }
}
