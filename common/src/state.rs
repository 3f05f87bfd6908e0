//! A task's states and the edges between them, as data. `docs/state-machine.md` draws them; a test compares the two.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Where a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// In its stream, or read first: the next claim that can may take it.
    Queued,
    /// Not due yet: delayed, or waiting for its next try.
    Scheduled,
    /// In the line of the gate that refused it, or behind its order key's head.
    Parked,
    /// Handed to a worker; everything that it needs is granted.
    Running,
    /// Ended well.
    Succeeded,
    /// Ended badly, kept for replay.
    Dead,
    /// Called off.
    Cancelled,
    /// Not started before its deadline.
    Expired,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Queued,
        Self::Scheduled,
        Self::Parked,
        Self::Running,
        Self::Succeeded,
        Self::Dead,
        Self::Cancelled,
        Self::Expired,
    ];

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Scheduled => "scheduled",
            Self::Parked => "parked",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
        }
    }

    /// Whether the task has ended.
    #[must_use]
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Succeeded | Self::Dead | Self::Cancelled | Self::Expired)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for State {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|s| s.as_str() == text).ok_or(())
    }
}

/// One edge: from a state (none: outside) to a state, by a script.
pub type Edge = (Option<State>, State, &'static str);

/// Every edge there is.
pub const EDGES: &[Edge] = {
    use State::{Cancelled, Dead, Expired, Parked, Queued, Running, Scheduled, Succeeded};
    &[
        (None, Queued, "submit"),
        (None, Scheduled, "submit"),
        (None, Parked, "submit"),
        (Some(Queued), Running, "claim"),
        (Some(Parked), Running, "claim"),
        (Some(Queued), Parked, "claim"),
        (Some(Parked), Parked, "claim"),
        (Some(Scheduled), Queued, "claim"),
        (Some(Scheduled), Parked, "claim"),
        (Some(Queued), Dead, "claim"),
        (Some(Parked), Dead, "claim"),
        (Some(Queued), Expired, "claim"),
        (Some(Parked), Expired, "claim"),
        (Some(Running), Succeeded, "settle"),
        (Some(Running), Scheduled, "settle"),
        (Some(Running), Queued, "settle"),
        (Some(Running), Dead, "settle"),
        (Some(Running), Cancelled, "settle"),
        (Some(Parked), Queued, "settle"),
        (Some(Parked), Scheduled, "settle"),
        // A handler's follow-ups are taken in with its settle.
        (None, Queued, "settle"),
        (None, Scheduled, "settle"),
        (None, Parked, "settle"),
        // The task of a schedule's slot.
        (None, Queued, "fire"),
        (None, Scheduled, "fire"),
        (None, Parked, "fire"),
        // Whoever ends the head of an order key lets the next one go.
        (Some(Parked), Queued, "claim"),
        (Some(Parked), Scheduled, "claim"),
        (Some(Parked), Queued, "reclaim"),
        (Some(Parked), Scheduled, "reclaim"),
        (Some(Parked), Queued, "sweep"),
        (Some(Parked), Scheduled, "sweep"),
        (Some(Parked), Queued, "cancel"),
        (Some(Parked), Scheduled, "cancel"),
        (Some(Running), Queued, "reclaim"),
        (Some(Running), Dead, "reclaim"),
        (Some(Running), Cancelled, "reclaim"),
        (Some(Scheduled), Queued, "sweep"),
        (Some(Scheduled), Parked, "sweep"),
        (Some(Queued), Expired, "sweep"),
        (Some(Scheduled), Expired, "sweep"),
        (Some(Parked), Expired, "sweep"),
        // A task that is too old to be tried again.
        (Some(Running), Expired, "settle"),
        (Some(Running), Expired, "reclaim"),
        // An operator replays a dead task, or lets the next of its order key go.
        (Some(Dead), Queued, "dead"),
        (Some(Dead), Scheduled, "dead"),
        (Some(Dead), Parked, "dead"),
        (Some(Parked), Queued, "dead"),
        (Some(Parked), Scheduled, "dead"),
        (Some(Parked), Dead, "dead"),
        // An operator changes the priority, the queue or the time of a waiting task.
        (Some(Scheduled), Queued, "alter"),
        (Some(Scheduled), Parked, "alter"),
        (Some(Queued), Parked, "alter"),
        (Some(Parked), Queued, "alter"),
        // A submit under the key of a task that waits takes its place.
        (Some(Queued), Scheduled, "submit"),
        (Some(Queued), Parked, "submit"),
        (Some(Scheduled), Queued, "submit"),
        (Some(Scheduled), Parked, "submit"),
        (Some(Parked), Queued, "submit"),
        (Some(Parked), Scheduled, "submit"),
        (Some(Queued), Scheduled, "settle"),
        (Some(Queued), Parked, "settle"),
        (Some(Scheduled), Queued, "settle"),
        (Some(Scheduled), Parked, "settle"),
        (Some(Queued), Cancelled, "cancel"),
        (Some(Scheduled), Cancelled, "cancel"),
        (Some(Parked), Cancelled, "cancel"),
        // An envelope that cannot be read is put aside by whoever comes to it first.
        (Some(Scheduled), Dead, "claim"),
        (Some(Scheduled), Dead, "sweep"),
        (Some(Parked), Dead, "settle"),
        (Some(Parked), Dead, "reclaim"),
        (Some(Parked), Dead, "sweep"),
        (Some(Queued), Dead, "cancel"),
        (Some(Parked), Dead, "cancel"),
        (Some(Queued), Dead, "reclaim"),
        (Some(Queued), Dead, "own"),
    ]
};
