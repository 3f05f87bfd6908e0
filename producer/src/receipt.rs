//! What a producer holds of a task that was taken in, and what becomes of it.

use std::time::Duration;

use bytes::Bytes;
use tidemill_common::name::TaskId;
use tidemill_common::state::State;
use tidemill_common::store::Status;

use crate::client::Client;
use crate::error::Error;

/// Proof that a task is in. It survives a crash of any process; [`Receipt::id`] is all that has to be remembered.
#[derive(Debug, Clone)]
pub struct Receipt {
    client: Client,
    id: TaskId,
    taken: Taken,
}

/// What became of a submit that was not refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// The task is new.
    New,
    /// It was in already.
    Duplicate,
    /// Its content has taken the place of that of the task that waited under its key.
    Replaced,
}

impl Receipt {
    pub(crate) fn new(client: Client, id: TaskId, taken: Taken) -> Self {
        Self { client, id, taken }
    }

    /// The task's id. Under an idempotency key it is the id of the key's first task, whatever id was sent.
    #[must_use]
    pub fn id(&self) -> &TaskId {
        &self.id
    }

    /// Whether the task was in already: by its idempotency key, or by its id. The latter is also true when this very submit had
    /// to be sent twice, since its first reply was lost.
    #[must_use]
    pub fn is_duplicate(&self) -> bool {
        self.taken == Taken::Duplicate
    }

    /// Whether it was new, in already, or took the place of another.
    #[must_use]
    pub fn taken(&self) -> Taken {
        self.taken
    }

    /// Waits for the task's end, as [`Client::wait`].
    ///
    /// # Errors
    /// As [`Client::wait`].
    pub async fn wait(&self, timeout: Duration) -> Result<Waited, Error> {
        self.client.wait(&self.id, timeout).await
    }
}

/// What waiting came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waited {
    /// The task has ended.
    Ended(Ended),
    /// It has not, in the time given.
    TimedOut {
        /// The last state seen; none when there was no answer at all.
        last: Option<State>,
    },
    /// Nothing is known of such a task: it was never accepted, or its outcome has been forgotten (two minutes after its end, or
    /// the lifetime of its result).
    Forgotten,
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The task.
    pub id: TaskId,
    /// One of the four final states.
    pub state: State,
    /// How many runs counted.
    pub attempt: u64,
    /// What the handler returned; empty when it is not kept, or the task did not succeed.
    pub result: Bytes,
    /// Why it did not succeed; empty when it did, or nothing was said.
    pub error: String,
    /// When its last run began, server time in ms; 0: it never ran.
    pub started_ms: u64,
    /// When it ended, server time in ms.
    pub ended_ms: u64,
}

impl Ended {
    /// Whether it succeeded.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.state == State::Succeeded
    }

    /// The end that a status shows, if it shows one.
    #[must_use]
    pub fn of(id: &TaskId, status: &Status) -> Option<Self> {
        let state = status.state.filter(|state| state.has_ended())?;
        let (result, error) = if state == State::Succeeded {
            (status.data.clone(), String::new())
        } else {
            (Bytes::new(), reason(status))
        };
        let Status { attempt, started_ms, ended_ms, .. } = *status;
        Some(Self { id: id.clone(), state, attempt, result, error, started_ms, ended_ms })
    }
}

/// Why a task failed: what the outcome says, else its last error.
fn reason(status: &Status) -> String {
    if status.data.is_empty() { status.error().to_owned() } else { String::from_utf8_lossy(&status.data).into_owned() }
}
