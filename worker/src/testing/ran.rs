//! What became of a run, and what a test may say of it. Each assertion that does not hold tells what is.

use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tidemill_common::spend::Spend;
use tidemill_common::task::NewTask;

use crate::handler::Outcome;

/// What became of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Ran {
    /// What a worker would settle: with the delay of a retry worked out, texts cut to what is kept, and no result if the task wanted
    /// none. Nothing: the run was called off and has not succeeded; it is handed back and does not count.
    pub outcome: Option<Outcome>,
    /// What it submits; nothing unless it is done.
    pub follow_ups: Vec<NewTask>,
    /// What it said of its progress, the first 1,024 times.
    pub progress: Vec<String>,
    /// All that it gave out meanwhile ([`Context::emit`](crate::Context::emit)).
    pub output: Bytes,
    /// What it said that it used, all in all ([`Context::spend`](crate::Context::spend)); none if it said nothing.
    pub used: Option<Spend>,
}

impl Ran {
    /// The result of a success.
    ///
    /// # Panics
    /// When it is none.
    #[track_caller]
    #[must_use]
    pub fn result(&self) -> &Bytes {
        match &self.outcome {
            Some(Outcome::Done(result)) => result,
            other => panic!("expected a success, and it is {}", said(other.as_ref())),
        }
    }

    /// It has succeeded with this JSON, whatever its spaces and the order of its keys.
    ///
    /// # Panics
    /// When it has not.
    #[track_caller]
    pub fn assert_done(&self, expected: impl Into<Value>) -> &Self {
        let (result, expected) = (self.result(), expected.into());
        match serde_json::from_slice::<Value>(result) {
            Ok(json) => assert_eq!(json, expected, "the result (left) is not the expected one (right)"),
            Err(error) => panic!("the result is no JSON ({error}): {:?}", String::from_utf8_lossy(result)),
        }
        self
    }

    /// It is to be tried again, counted, and its error has this part. Returns how long that waits.
    ///
    /// # Panics
    /// When it is not.
    #[track_caller]
    pub fn assert_retry(&self, part: &str) -> Duration {
        match &self.outcome {
            Some(Outcome::Retry { error, after }) if error.contains(part) => after.unwrap_or_default(),
            other => panic!("expected a retry with {part:?}, and it is {}", said(other.as_ref())),
        }
    }

    /// It was told "not now", is not counted, and its error has this part. Returns how long it waits.
    ///
    /// # Panics
    /// When it was not.
    #[track_caller]
    pub fn assert_throttled(&self, part: &str) -> Duration {
        match &self.outcome {
            Some(Outcome::Throttled { error, until }) if error.contains(part) => *until,
            other => panic!("expected a throttled run with {part:?}, and it is {}", said(other.as_ref())),
        }
    }

    /// It has failed for good, and the reason has this part.
    ///
    /// # Panics
    /// When it has not.
    #[track_caller]
    pub fn assert_dead(&self, part: &str) -> &Self {
        match &self.outcome {
            Some(Outcome::Dead { reason }) if reason.contains(part) => self,
            other => panic!("expected a dead task with {part:?}, and it is {}", said(other.as_ref())),
        }
    }

    /// It was called off, has not succeeded, and does not count.
    ///
    /// # Panics
    /// When it has ended otherwise.
    #[track_caller]
    pub fn assert_handed_back(&self) -> &Self {
        assert!(
            self.outcome.is_none(),
            "expected a run that is handed back, and it is {}",
            said(self.outcome.as_ref())
        );
        self
    }

    /// It submits a task to this agent; returns the first.
    ///
    /// # Panics
    /// When it does not.
    #[track_caller]
    pub fn assert_submitted(&self, agent: &str) -> &NewTask {
        let names = || self.follow_ups.iter().map(|task| task.agent.as_str()).collect::<Vec<_>>();
        match self.follow_ups.iter().find(|task| task.agent.as_str() == agent) {
            Some(task) => task,
            None => panic!(
                "expected a follow-up to {agent:?}; there are {:?}, and the run is {}",
                names(),
                said(self.outcome.as_ref())
            ),
        }
    }
}

fn said(outcome: Option<&Outcome>) -> String {
    outcome.map_or_else(|| "handed back".to_owned(), |outcome| format!("{outcome:?}"))
}
