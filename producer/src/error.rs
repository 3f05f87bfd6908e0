//! Why a request of a producer was not granted.

use std::sync::Arc;
use std::time::Duration;

use tidemill_common::book::Mistake;
use tidemill_common::name::{QueueName, TaskId};
use tidemill_common::store;
use tidemill_common::task::{Invalid, Priority};

/// Why a request was not granted.
///
/// What [`Error::is_refusal`] names is an answer: nothing was taken in. [`Error::Unknown`] is the absence of one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No connection, or not one that this client may use (a password is wrong, say).
    #[error("Redis cannot be reached at {url}")]
    Connect {
        /// The URL without secrets.
        url: String,
        /// What the connection came to; none when there was no answer in time.
        #[source]
        source: Option<store::Error>,
    },
    /// The task is not one; nothing was sent.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The reply was lost, and so were those to further tries, until there was no more time. Sending the same id again is safe:
    /// a task that was taken in is answered with a receipt that says `duplicate`.
    #[error("it is not known whether task {id} was accepted, since no reply came; sending the same id again is safe")]
    Unknown {
        /// The id that was sent.
        id: TaskId,
        /// What the last try came to.
        #[source]
        source: Arc<store::Error>,
    },
    /// The server refuses for now: it is a replica, loads its data, runs somebody's script, cannot save. It said so to every try, so
    /// nothing was taken in.
    #[error("Redis did not take in task {id}, and takes nothing in at present; sending it again is safe")]
    NotNow {
        /// The id that was sent.
        id: TaskId,
        /// What it said.
        #[source]
        source: Arc<store::Error>,
    },
    /// The server said something else than yes or no: it does not let us run the script, say, or answers in a form that this build
    /// does not know. Asking again will not help; that the task was taken in all the same is unlikely, not impossible.
    #[error("Redis did not take in task {id}")]
    Failed {
        /// The id that was sent.
        id: TaskId,
        /// What it said.
        #[source]
        source: Arc<store::Error>,
    },
    /// The queue holds as many waiting tasks of this priority as this client may add up to.
    #[error(
        "queue {queue} holds {waiting_max} waiting tasks of priority {priority}, its bound: \
         send again in {}, run more workers, or raise `submit.waiting_max`", seconds(*retry_after)
    )]
    Full {
        /// The queue.
        queue: QueueName,
        /// The priority.
        priority: Priority,
        /// The bound, in tasks.
        waiting_max: u64,
        /// When there may be room, by the rate at which tasks were taken of late.
        retry_after: Duration,
    },
    /// Redis has reached its `maxmemory`: nothing new is taken in, what is there goes on.
    #[error("Redis has no memory left (maxmemory is reached): send again once tasks have ended, or give it more")]
    ServerFull,
    /// The deployment has as many queues as it may have.
    #[error(
        "queue {queue} would be one too many (at most 256): use an existing queue, and tenants or order keys to tell tasks apart"
    )]
    TooManyQueues {
        /// The queue that is not there.
        queue: QueueName,
    },
    /// The schedule is not one; nothing was sent.
    #[error(transparent)]
    Schedule(#[from] tidemill_common::schedule::Error),
    /// The deployment has as many schedules as it may have.
    #[error(
        "there are {most} schedules, which is as many as there may be: delete one, or let one task do the work of several"
    )]
    TooManySchedules {
        /// How many there may be.
        most: usize,
    },
    /// The idempotency key belongs to another task, with another agent, queue or payload.
    #[error("the idempotency key belongs to task {id}, which has another agent, queue or payload")]
    Conflict {
        /// The task that has the key.
        id: TaskId,
    },
    /// The task asks for more of a gate than there will ever be.
    #[error(
        "the task could never pass the gate {gate}: its cost or weight is above the limit; `producer book show` has the rules"
    )]
    NeverFits {
        /// The gate.
        gate: String,
    },
    /// The server could not read the task: this build and the scripts on the server do not agree.
    #[error("the server could not read task {id}")]
    Rejected {
        /// The id that was sent.
        id: TaskId,
    },
    /// The book has mistakes; nothing was sent.
    #[error("the book has mistakes: {}", Mistake::listed(.0))]
    Book(Vec<Mistake>),
    /// The payload cannot be encoded, and nothing was sent; or it, or the result, cannot be decoded here. The source says why: which
    /// key is missing, say.
    #[error("the payload or result of task {id} cannot be had")]
    Payload {
        /// The task.
        id: TaskId,
        /// Why.
        #[source]
        source: tidemill_payloads::Error,
    },
    /// Any other failure to ask or to be answered.
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// A time for people.
fn seconds(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        format!("{} ms", time.as_millis())
    } else {
        format!("{:.0} s", time.as_secs_f64())
    }
}

impl Error {
    /// Whether the same request may do better a little later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unknown { .. } | Self::NotNow { .. } | Self::Full { .. } | Self::ServerFull => true,
            Self::Connect { source, .. } => source.as_ref().is_none_or(store::Error::is_transient),
            Self::Store(source) => source.is_transient(),
            Self::Payload { source, .. } => source.fault() == tidemill_payloads::Fault::Away,
            _ => false,
        }
    }

    /// Whether the server has answered, and the answer was no.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Full { .. }
                | Self::ServerFull
                | Self::NotNow { .. }
                | Self::TooManyQueues { .. }
                | Self::Conflict { .. }
                | Self::NeverFits { .. }
                | Self::Rejected { .. }
        )
    }

    /// A failed submit: without an answer the outcome is unknown, since the request may have arrived.
    pub(crate) fn submit(id: &TaskId, source: &Arc<store::Error>) -> Self {
        match source.as_ref() {
            store::Error::Full => Self::ServerFull,
            store::Error::NotNow { .. } => Self::NotNow { id: id.clone(), source: Arc::clone(source) },
            e if e.is_transient() => Self::Unknown { id: id.clone(), source: Arc::clone(source) },
            _ => Self::Failed { id: id.clone(), source: Arc::clone(source) },
        }
    }
}
