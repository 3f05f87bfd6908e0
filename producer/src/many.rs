//! Tasks by the many: lists, and what is done to all that a filter matches.
//!
//! - *It guarantees* that a run over many ends: what is matched is listed up to the moment it began, and what it makes new (a replayed
//!   task that dies again) is not met a second time. Every step is one script for each task, so that a run which is cut short, or two
//!   at once, double nothing: run it again, and it does the rest.
//! - *It refuses* nothing silently: each task that was matched has its answer.
//! - *On a crash* of this process what was done is done, what was not is as it was.

use std::collections::HashSet;
use std::time::Duration;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use tidemill_common::envelope::{self, Sealed};
use tidemill_common::history::DeadReason;
use tidemill_common::name::{QueueName, TaskId};
use tidemill_common::state::State;
use tidemill_common::store::{
    self, ALTER_TASKS_MAX, Altered, Cancelled, Change, DeadDone, DeadVerb, Filter, Found, Source,
};
use tidemill_common::task::{NewTask, Priority};
use tidemill_payloads::Fault;

use crate::client::{Client, firmly};
use crate::error::Error;

/// Cancels under way at once.
const CALLS: usize = 32;

/// Which tasks. An empty one matches all.
#[derive(Debug, Clone, Default)]
pub struct Select {
    /// By what their header says.
    pub filter: Filter,
    /// In one of these states; none named: in any.
    pub states: Vec<State>,
    /// Dead for this reason.
    pub reason: Option<DeadReason>,
    /// Whose last error, or outcome, has this text in it.
    pub error: Option<String>,
    /// Accepted at least so long ago, by the server's clock.
    pub older_than: Option<Duration>,
}

impl Select {
    /// What is in this state.
    #[must_use]
    pub fn state(state: State) -> Self {
        Self { states: vec![state], ..Self::default() }
    }

    /// Where to look for them: the smallest places that have them all.
    fn sources(&self) -> Vec<(Source, bool)> {
        let one = |state: &State| match state {
            State::Running => Some(vec![(Source::Running, false)]),
            State::Scheduled => Some(vec![(Source::Scheduled, false)]),
            State::Dead => Some(vec![(Source::Dead, false)]),
            // Those behind the head of an order key are in no line.
            State::Parked => Some(vec![(Source::Parked, false), (Source::All, true)]),
            _ => None,
        };
        let all: Option<Vec<_>> = self.states.iter().map(one).collect();
        match all {
            Some(sources) if !sources.is_empty() => sources.concat(),
            _ => vec![(Source::All, false)],
        }
    }

    /// Whether a task that was met is one of them.
    #[must_use]
    pub fn matches(&self, found: &Found, now_ms: u64) -> bool {
        let text = |part: &str| {
            let ended = found.outcome.as_ref().map(|o| String::from_utf8_lossy(&o.text).into_owned());
            found.history.errors.first().is_some_and(|e| e.text.contains(part))
                || ended.is_some_and(|t| t.contains(part))
        };
        let old = |age: Duration| {
            let accepted_ms = found.task.as_ref().map(|t| t.seq_us / 1000);
            accepted_ms.is_some_and(|at| u128::from(now_ms.saturating_sub(at)) >= age.as_millis())
        };
        (self.states.is_empty() || self.states.contains(&found.state))
            && self.reason.is_none_or(|reason| reason_of(found) == Some(reason))
            && self.error.as_deref().is_none_or(text)
            && self.older_than.is_none_or(old)
    }
}

/// Why a task that was met is dead; a dead one without an outcome could not be read.
#[must_use]
pub fn reason_of(found: &Found) -> Option<DeadReason> {
    match &found.outcome {
        Some(outcome) => outcome.reason,
        None => (found.state == State::Dead).then_some(DeadReason::Invalid),
    }
}

/// What to do to each.
#[derive(Debug, Clone, PartialEq)]
pub enum Deed {
    /// Call it off.
    Cancel,
    /// Let a dead one wait again: at most so many a second, counted from the start of the run; none: all at once.
    Replay {
        /// Tasks a second.
        rate: Option<f64>,
        /// Fields of its payload, which must be a JSON object, that take new values (RFC 7396).
        patch: Option<serde_json::Value>,
    },
    /// Forget a dead one.
    Purge,
    /// Let the next of a dead one's order key go.
    Skip,
    /// Another priority for a waiting one.
    SetPriority(Priority),
    /// Another queue for a waiting one.
    Move(QueueName),
    /// A scheduled one is due now.
    RunNow,
}

/// What became of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Done {
    /// It was done.
    Done,
    /// It runs, and its worker was told to stop it.
    Signalled,
    /// It was so already.
    Same,
    /// It is not in a state for it (any more).
    NotInState,
    /// Nothing is known of it.
    Unknown,
    /// It cannot be read, or its payload cannot be patched.
    Unfit,
    /// There are as many queues as there may be.
    TooManyQueues,
}

impl Done {
    /// Its word, as in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Signalled => "signalled",
            Self::Same => "same",
            Self::NotInState => "not_in_state",
            Self::Unknown => "unknown",
            Self::Unfit => "unfit",
            Self::TooManyQueues => "too_many_queues",
        }
    }

    /// Whether it is as it was to be.
    #[must_use]
    pub const fn is_good(self) -> bool {
        matches!(self, Self::Done | Self::Signalled | Self::Same)
    }
}

impl Client {
    /// Lists tasks, as they are met, until `see` says that it has enough (false) or all were seen. A task is shown once.
    ///
    /// Dead and scheduled tasks come in the order of their time, others in none.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn list(&self, select: &Select, mut see: impl FnMut(Found) -> bool) -> Result<(), Error> {
        let now_ms = if select.older_than.is_some() { self.counts().await?.now_ms } else { 0 };
        let mut seen: HashSet<TaskId> = HashSet::new();
        for (source, ordered) in select.sources() {
            let filter = Filter { ordered: select.filter.ordered || ordered, ..select.filter.clone() };
            let mut cursor: Option<String> = None;
            loop {
                let page = firmly(|| self.store().scan(source, &filter, cursor.as_deref())).await?;
                for found in page.found.into_iter().filter(|found| select.matches(found, now_ms)) {
                    if seen.insert(found.id.clone()) && !see(found) {
                        return Ok(());
                    }
                }
                let Some(next) = page.next else { break };
                cursor = Some(next);
            }
        }
        Ok(())
    }

    /// Does one thing to these tasks; an answer each, in order.
    ///
    /// # Errors
    /// When Redis does not answer: a part may be done. Doing it again is safe.
    pub async fn to_each(&self, ids: &[TaskId], deed: &Deed) -> Result<Vec<Done>, Error> {
        self.to_each_from(ids, deed, 0).await
    }

    /// As [`Self::to_each`], where `before` tasks of the same run were done before these: a replay at a rate goes on from there.
    ///
    /// # Errors
    /// As [`Self::to_each`].
    pub async fn to_each_from(&self, ids: &[TaskId], deed: &Deed, before: u64) -> Result<Vec<Done>, Error> {
        match deed {
            Deed::Cancel => self.cancel_each(ids).await,
            Deed::SetPriority(priority) => self.alter_each(ids, &Change::Priority(*priority)).await,
            Deed::Move(queue) => self.alter_each(ids, &Change::Queue(queue.clone())).await,
            Deed::RunNow => self.alter_each(ids, &Change::Now).await,
            Deed::Purge => self.dead_each(ids, |_| DeadVerb::Purge).await,
            Deed::Skip => self.dead_each(ids, |_| DeadVerb::Skip).await,
            Deed::Replay { rate, patch: None } => {
                self.dead_each(ids, |i| DeadVerb::Replay { delay: spaced(*rate, before + i), patch: None }).await
            }
            Deed::Replay { rate, patch: Some(patch) } => {
                let mut done = Vec::with_capacity(ids.len());
                for (id, i) in ids.iter().zip(before..) {
                    done.push(self.replay_patched(id, spaced(*rate, i), patch).await?);
                }
                Ok(done)
            }
        }
    }

    async fn cancel_each(&self, ids: &[TaskId]) -> Result<Vec<Done>, Error> {
        let calls = stream::iter(ids).map(|id| async move {
            Ok::<_, Error>(match self.cancel(id).await? {
                Cancelled::Now(_) => Done::Done,
                Cancelled::Signalled => Done::Signalled,
                Cancelled::Ended(State::Cancelled) => Done::Same,
                Cancelled::Ended(_) => Done::NotInState,
                Cancelled::Unknown => Done::Unknown,
            })
        });
        calls.buffered(CALLS).try_collect().await
    }

    async fn alter_each(&self, ids: &[TaskId], change: &Change) -> Result<Vec<Done>, Error> {
        let mut done = Vec::with_capacity(ids.len());
        for batch in ids.chunks(ALTER_TASKS_MAX) {
            let batch: Vec<_> = batch.iter().map(|id| (id.clone(), change.clone())).collect();
            let answers = firmly(|| self.store().alter(&batch)).await?;
            done.extend(answers.into_iter().map(|answer| match answer {
                Altered::Done => Done::Done,
                Altered::Same => Done::Same,
                Altered::Running | Altered::Ended => Done::NotInState,
                Altered::Unknown => Done::Unknown,
                Altered::TooManyQueues => Done::TooManyQueues,
                Altered::Unreadable => Done::Unfit,
            }));
        }
        Ok(done)
    }

    async fn dead_each(&self, ids: &[TaskId], verb: impl Fn(u64) -> DeadVerb) -> Result<Vec<Done>, Error> {
        let mut done = Vec::with_capacity(ids.len());
        let mut verbs = ids.iter().zip(0_u64..).map(|(id, i)| (id.clone(), verb(i)));
        loop {
            let batch: Vec<_> = verbs.by_ref().take(ALTER_TASKS_MAX).collect();
            if batch.is_empty() {
                return Ok(done);
            }
            let answers = firmly(|| self.store().dead(&batch)).await?;
            done.extend(answers.into_iter().map(|answer| match answer {
                DeadDone::Replayed | DeadDone::Purged | DeadDone::Skipped => Done::Done,
                DeadDone::NotDead => Done::NotInState,
                DeadDone::Unreadable | DeadDone::Unfit => Done::Unfit,
            }));
        }
    }

    async fn replay_patched(&self, id: &TaskId, delay: Duration, patch: &serde_json::Value) -> Result<Done, Error> {
        let task = match self.task(id).await {
            Ok(Some(task)) => task,
            Ok(None) => return Ok(Done::NotInState),
            Err(Error::Store(store::Error::Reply { .. })) => return Ok(Done::Unfit),
            // What this client lacks stops the run, and is said; a payload that nobody can read does not.
            Err(Error::Payload { source, .. }) if source.fault() == Fault::Payload => return Ok(Done::Unfit),
            Err(error) => return Err(error),
        };
        let Some(payload) = patched(&task.payload, patch) else { return Ok(Done::Unfit) };
        let new = NewTask {
            // Not a new one: what is encrypted is bound to it.
            id: id.clone(),
            payload: payload.into(),
            queue: task.queue.clone(),
            tenant: task.tenant.clone(),
            priority: task.priority,
            max_attempts: task.max_attempts,
            cost: task.cost,
            weight: task.weight,
            estimate: task.estimate,
            order_key: task.order_key.clone(),
            key: task.key.clone(),
            depth: task.depth,
            hold_on_dead: task.hold_on_dead,
            max_age: (task.too_old_ms > 0).then(|| Duration::from_millis(task.too_old_ms - task.seq_us / 1000)),
            meta: task.meta.clone(),
            ..NewTask::new(task.agent.clone(), "")
        };
        self.check(&new)?;
        let new = self.encode(new).await?;
        let sealed: Sealed = envelope::seal(&new).map_err(tidemill_common::store::Error::from)?;
        let verbs = [(id.clone(), DeadVerb::Replay { delay, patch: Some(sealed) })];
        let done = firmly(|| self.store().dead(&verbs)).await?;
        Ok(match done.first() {
            Some(DeadDone::Replayed) => Done::Done,
            Some(DeadDone::NotDead) | None => Done::NotInState,
            Some(_) => Done::Unfit,
        })
    }
}

/// The delay of the n-th task of a replay at a rate.
#[expect(clippy::cast_precision_loss, reason = "a number of tasks")]
fn spaced(rate: Option<f64>, n: u64) -> Duration {
    rate.filter(|rate| *rate > 0.0).map_or(Duration::ZERO, |rate| {
        Duration::try_from_secs_f64(n as f64 / rate).unwrap_or(Duration::MAX).min(tidemill_common::task::DELAY_MAX)
    })
}

/// A payload with some fields changed, by RFC 7396; none when it is not JSON.
fn patched(payload: &[u8], patch: &serde_json::Value) -> Option<String> {
    let mut value = serde_json::from_slice(payload).ok()?;
    merge(&mut value, patch);
    Some(value.to_string())
}

fn merge(value: &mut serde_json::Value, patch: &serde_json::Value) {
    let serde_json::Value::Object(fields) = patch else {
        value.clone_from(patch);
        return;
    };
    if !value.is_object() {
        *value = serde_json::Value::Object(serde_json::Map::new());
    }
    let Some(object) = value.as_object_mut() else { return };
    for (name, new) in fields {
        if new.is_null() {
            object.remove(name);
        } else {
            merge(object.entry(name.clone()).or_insert(serde_json::Value::Null), new);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_changes_the_fields_that_it_names() {
        let patch = serde_json::json!({"model": "small", "old": null, "deep": {"a": 1}});
        let new = patched(br#"{"text":"x","old":1,"deep":{"b":2}}"#, &patch).unwrap();
        let new: serde_json::Value = serde_json::from_str(&new).unwrap();
        assert_eq!(new, serde_json::json!({"text": "x", "model": "small", "deep": {"a": 1, "b": 2}}));
        assert_eq!(patched(b"\xff", &patch), None);
    }

    #[test]
    fn a_rate_spreads_a_replay() {
        assert_eq!(spaced(Some(2.0), 3), Duration::from_millis(1500));
        assert_eq!(spaced(None, 3), Duration::ZERO);
        assert_eq!(spaced(Some(0.0), 3), Duration::ZERO);
        assert_eq!(spaced(Some(1e-300), u64::MAX), tidemill_common::task::DELAY_MAX);
    }
}
