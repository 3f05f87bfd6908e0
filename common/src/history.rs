//! What is kept of a task's earlier runs, and how its last one ended: the values of `B:at`, and outcome records.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a task is dead: a closed set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadReason {
    /// Its last attempt failed.
    Attempts,
    /// Its handler said that it will never succeed.
    Rejected,
    /// It was lost with its worker too often, at last alone in a process of its own.
    Poison,
    /// It cannot be read.
    Invalid,
    /// It takes more of a rate than the rule ever allows.
    NeverFits,
    /// No worker knew its agent for too long.
    UnknownAgent,
}

impl DeadReason {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Attempts, Self::Rejected, Self::Poison, Self::Invalid, Self::NeverFits, Self::UnknownAgent];

    /// Its name, as in JSON and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Attempts => "attempts",
            Self::Rejected => "rejected",
            Self::Poison => "poison",
            Self::Invalid => "invalid",
            Self::NeverFits => "never_fits",
            Self::UnknownAgent => "unknown_agent",
        }
    }

    /// From the letter that scripts write.
    #[must_use]
    pub fn from_letter(letter: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str().as_bytes().first() == Some(&letter))
    }
}

impl fmt::Display for DeadReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for DeadReason {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let all: Vec<&str> = Self::ALL.iter().map(|reason| reason.as_str()).collect();
        let found = Self::ALL.into_iter().find(|reason| reason.as_str() == text);
        found.ok_or_else(|| format!("{text:?} is no reason; it is one of {}", all.join(", ")))
    }
}

/// An error of an earlier run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PastError {
    /// When, server ms.
    pub at_ms: u64,
    /// Of which attempt.
    pub attempt: u16,
    /// What was said.
    pub text: String,
}

/// What is kept of a task that failed, was lost, handed back or replayed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct History {
    /// Runs that counted.
    pub attempts: u16,
    /// Runs that were lost with their worker.
    pub losses: u32,
    /// Runs that were handed back.
    pub hand_backs: u16,
    /// How often it was replayed after it was dead.
    pub replays: u16,
    /// Its last errors, the newest first: at most five.
    pub errors: Vec<PastError>,
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Why it is dead, if it is.
    pub reason: Option<DeadReason>,
    /// Runs that counted.
    pub attempt: u16,
    /// Runs that were lost.
    pub losses: u16,
    /// When its last run began, server ms; 0: it never ran.
    pub started_ms: u64,
    /// When it ended, server ms.
    pub ended_ms: u64,
    /// The result, or why it did not succeed; perhaps only its beginning.
    pub text: Vec<u8>,
}

struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }
    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked: below 2^53")]
    fn number(&mut self) -> Option<u64> {
        let n = f64::from_be_bytes(self.take(8)?.try_into().ok()?);
        (0.0..9_007_199_254_740_992.0).contains(&n).then_some(n as u64)
    }
}

impl History {
    /// Reads a value of `B:at`; one that cannot be read says nothing.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Self {
        let mut f = Fields(bytes);
        let mut counted = || Some([f.u16()?, f.u16()?, f.u16()?, f.u16()?, f.u16()?]);
        let Some([attempts, beside, alone, hand_backs, replays]) = counted() else { return Self::default() };
        let errors = f.take(8).map_or_else(Vec::new, |_| PastError::read_all(f.0));
        Self { attempts, losses: u32::from(beside) + u32::from(alone), hand_backs, replays, errors }
    }
}

impl PastError {
    /// Reads errors as scripts keep them, as far as they can be read.
    #[must_use]
    pub fn read_all(bytes: &[u8]) -> Vec<Self> {
        let mut f = Fields(bytes);
        let mut one = || {
            let (at_ms, attempt, bytes) = (f.number()?, f.u16()?, f.u16()?);
            let text = String::from_utf8_lossy(f.take(usize::from(bytes))?).into_owned();
            Some(Self { at_ms, attempt, text })
        };
        std::iter::from_fn(&mut one).collect()
    }
}

impl Outcome {
    /// Reads a record; none when it is not one.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let mut f = Fields(bytes);
        let [_, why] = f.take(2)?.try_into().ok()?;
        f.take(8)?;
        let (attempt, losses, started_ms, ended_ms) = (f.u16()?, f.u16()?, f.number()?, f.number()?);
        let reason = DeadReason::from_letter(why);
        Some(Self { reason, attempt, losses, started_ms, ended_ms, text: f.0.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_letter_of_its_own() {
        for reason in DeadReason::ALL {
            assert_eq!(DeadReason::from_letter(reason.as_str().as_bytes()[0]), Some(reason));
            assert_eq!(reason.as_str().parse(), Ok(reason));
        }
        assert_eq!(DeadReason::from_letter(b'-'), None);
    }

    #[test]
    fn what_cannot_be_read_says_nothing() {
        assert_eq!(History::read(b"x"), History::default());
        assert_eq!(Outcome::read(b"dx"), None);
        assert!(PastError::read_all(&[0; 11]).is_empty());
    }
}
