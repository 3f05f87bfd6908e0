//! What can go wrong between us and Redis, and whether asking again may help.

use std::time::Duration;

/// An answer that is none.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No answer: unreachable, cut, timed out. The script may or may not have run; all are safe to send again.
    #[error("Redis does not answer ({op})")]
    Unavailable {
        /// What was asked.
        op: &'static str,
        /// Why.
        #[source]
        source: fred::error::Error,
    },
    /// The server says "not now": it is a replica, loads its data, runs somebody's script, cannot save. Nothing was done, for certain;
    /// that is so of all tries of a request, or it is [`Error::Unavailable`].
    #[error("Redis does not do {op} at present")]
    NotNow {
        /// What was asked.
        op: &'static str,
        /// What it said.
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

/// Replies by which a server says "not now", before anything has run: a script declares itself in its first line, and no write of it
/// comes before these are looked at.
const NOT_NOW: &[&str] =
    &["READONLY", "LOADING", "BUSY", "MASTERDOWN", "TRYAGAIN", "MISCONF", "NOREPLICAS", "ERR max number of clients"];
/// What may pass as well, and leaves open whether the request has run: the client tells the first to all that were on their way.
const OPEN: &[&str] = &["CLUSTERDOWN", "UNBLOCKED", "Failed to route command", "Too many failed write attempts"];
/// What a server says that is not the one to ask, or not any more. One that loads its data stays the one, and lets no new connection in.
const NOT_HERE: &[&str] = &["READONLY", "MASTERDOWN", "NOREPLICAS", "UNBLOCKED"];
/// What is behind an error of Sentinel that does not pass by itself.
const NOT_LET_IN: &[&str] = &["WRONGPASS", "NOAUTH", "NOPERM", "ERR AUTH"];

fn begins(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| text.starts_with(word))
}

impl Error {
    /// Sorts an error of the client by what it means for the caller.
    pub(super) fn of(op: &'static str, source: fred::error::Error) -> Self {
        use fred::error::ErrorKind::{Backpressure, Canceled, Cluster, IO, Protocol, Routing, Sentinel, Timeout};
        let text = source.details();
        if text.starts_with("OOM") || text.contains("-OOM ") {
            return Self::Full;
        }
        if text.starts_with("STALE") {
            return Self::Stale;
        }
        if begins(text, NOT_NOW) {
            return Self::NotNow { op, source };
        }
        let passes = match source.kind() {
            IO | Timeout | Canceled | Cluster | Routing | Backpressure | Protocol => true,
            Sentinel => !begins(text, NOT_LET_IN),
            _ => begins(text, OPEN),
        };
        if passes { Self::Unavailable { op, source } } else { Self::Refused { op, source } }
    }

    /// Whether another server may have to be asked: the connection is to be made anew, which looks for it.
    pub(super) fn is_not_here(&self) -> bool {
        matches!(self, Self::Unavailable { source, .. } | Self::NotNow { source, .. } if begins(source.details(), NOT_HERE))
    }

    /// The same about more than one request, of which an earlier one was done: what became of the whole is not certain.
    pub(super) fn in_part(self) -> Self {
        match self {
            Self::NotNow { op, source } => Self::Unavailable { op, source },
            Self::Full => {
                let source = fred::error::Error::new(fred::error::ErrorKind::Unknown, "OOM, after a part was taken in");
                Self::Unavailable { op: "submit", source }
            }
            other => other,
        }
    }

    /// Whether the same request may do better a little later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::NotNow { .. })
    }

    /// Its kind, for metrics.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Full => Reason::Oom,
            Self::Unavailable { source, .. } | Self::NotNow { source, .. } => match source.details() {
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
