//! What can go wrong between us and Redis, and whether asking again may help.

use std::time::Duration;

/// An answer that is none.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No answer: unreachable, cut, timed out, or the server says "not now". The script may or may not have run; all are safe to
    /// send again.
    #[error("Redis does not answer ({op})")]
    Unavailable {
        /// What was asked.
        op: &'static str,
        /// Why.
        #[source]
        source: fred::error::Error,
    },
    /// The memory bound is reached: nothing new is taken in, what is here goes on.
    #[error("Redis is full (maxmemory reached): nothing new is accepted until it has room")]
    Full,
    /// The server refused the request for good.
    #[error("Redis refused {op}")]
    Refused {
        /// What was asked.
        op: &'static str,
        /// Why.
        #[source]
        source: fred::error::Error,
    },
    /// The answer is not of the form that this build knows.
    #[error("Redis answered {op} in a form that this build does not know: {what}")]
    Reply {
        /// What was asked.
        op: &'static str,
        /// What was wrong.
        what: String,
    },
    /// A task could not be written down.
    #[error("the task cannot be sent")]
    Envelope(#[from] crate::envelope::Error),
    /// The connection's settings are wrong.
    #[error("redis settings: {0}")]
    Settings(String),
    /// The server is not one that Tidemill runs on.
    #[error("{0}")]
    Unsuitable(String),
    /// This worker was given up: its lease had run out. It must begin anew under another id.
    #[error("this worker's lease has run out and its work was given to others")]
    Gone,
    /// A later sequence than this one was answered already.
    #[error("a later request of this worker was answered already")]
    Stale,
}

/// What kind of failure, for metrics: a closed set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// No answer in time.
    Timeout,
    /// No connection.
    Connection,
    /// A replica was asked.
    Readonly,
    /// A long script or a reload is under way.
    Busy,
    /// Out of memory.
    Oom,
    /// Anything else.
    Other,
}

impl Reason {
    /// Its label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Connection => "connection",
            Self::Readonly => "readonly",
            Self::Busy => "busy",
            Self::Oom => "oom",
            Self::Other => "other",
        }
    }
}

/// Replies by which a server says "not now".
const NOT_NOW: &[&str] = &[
    "Failed to route command",
    "Too many failed write attempts",
    "READONLY",
    "LOADING",
    "BUSY",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "UNBLOCKED",
    "TRYAGAIN",
    "MISCONF",
    "NOREPLICAS",
    "ERR max number of clients",
];

impl Error {
    /// Sorts an error of the client by what it means for the caller.
    pub(super) fn of(op: &'static str, source: fred::error::Error) -> Self {
        use fred::error::ErrorKind::{Backpressure, Canceled, Cluster, IO, Protocol, Routing, Timeout};
        let text = source.details();
        if text.starts_with("OOM") || text.contains("-OOM ") {
            return Self::Full;
        }
        if text.starts_with("STALE") {
            return Self::Stale;
        }
        let not_now = NOT_NOW.iter().any(|prefix| text.starts_with(prefix));
        if not_now || matches!(source.kind(), IO | Timeout | Canceled | Cluster | Routing | Backpressure | Protocol) {
            Self::Unavailable { op, source }
        } else {
            Self::Refused { op, source }
        }
    }

    /// Whether the same request may do better a little later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// Its kind, for metrics.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Full => Reason::Oom,
            Self::Unavailable { source, .. } => match source.details() {
                t if t.starts_with("READONLY") => Reason::Readonly,
                t if t.starts_with("BUSY") || t.starts_with("LOADING") => Reason::Busy,
                _ if matches!(source.kind(), fred::error::ErrorKind::Timeout) => Reason::Timeout,
                _ => Reason::Connection,
            },
            _ => Reason::Other,
        }
    }
}

/// Waits between tries of one request: doubles from 20 ms to 1 s, with jitter, so that a fleet does not return in step.
pub(super) fn pause(tries: u32) -> Duration {
    let bound = 20_u64.saturating_mul(1 << tries.min(6)).min(1_000);
    Duration::from_millis(bound / 2 + rand::random_range(0..=bound / 2))
}
