//! Schedules: tasks that are handed in by the clock.
//!
//! - *It guarantees* (with `fire.lua`) one task a slot, with any number of workers: the script compares the slot that is expected,
//!   hands the task in and sets the next slot, in one step.
//! - *It refuses* patterns that never come, and zones that are not known.
//! - *On a crash* of the worker that was about to fire, the slot is as it was, and another fires it.
//!
//! A pattern is read in its zone. Where clocks go forward, a time of day that does not exist that day runs at the first moment after the
//! gap; where they go back, a time of day that comes twice runs the first time. Patterns that repeat within an hour run all through both.
//! These are the rules of the crate `croner`, which follows Vixie cron in this.

use bytes::Bytes;
use croner::Cron;
use croner::parser::{CronParser, Seconds};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use serde::{Deserialize, Serialize};

use crate::name::{AgentName, QueueName, ScheduleName};
use crate::spend::Estimate;
use crate::task::{Invalid, Meta, NewTask, Priority};

/// Most schedules in a shard.
pub const SCHEDULES_MAX: usize = 1_000;
/// Missed slots that are caught up with, at most: the newest.
pub const CATCH_UP_MAX: usize = 100;
/// A slot that is no later than this was not missed, ms.
const LATE_MS: u64 = 60_000;

/// What becomes of slots that nobody was there to fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Missed {
    /// One task for all of them, for the latest.
    #[default]
    Latest,
    /// None: a slot that is a minute late is left out.
    Skip,
    /// One task each, at most the newest hundred.
    All,
}

/// What becomes of a slot whose predecessor's task has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overlap {
    /// It is handed in all the same.
    #[default]
    Allow,
    /// It is left out.
    Skip,
}

/// A schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// Its name.
    pub name: ScheduleName,
    /// Five fields, or six with seconds in front: `30 2 * * *`, `*/15 * * * * *`, `0 9 * * MON-FRI`; or `@daily` and its like.
    pub cron: String,
    /// The zone that the pattern is read in, such as `Europe/Berlin`.
    #[serde(default = "utc")]
    pub zone: String,
    /// What becomes of missed slots.
    #[serde(default)]
    pub missed: Missed,
    /// What becomes of a slot whose predecessor's task has not ended.
    #[serde(default)]
    pub overlap: Overlap,
    /// It does not fire until it is resumed; slots that pass meanwhile are not missed.
    #[serde(default)]
    pub paused: bool,
    /// What is handed in.
    pub task: Template,
}

fn utc() -> String {
    "UTC".to_owned()
}

/// The task of a schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Template {
    /// Its agent.
    pub agent: AgentName,
    /// Its payload.
    #[serde(default)]
    pub payload: Bytes,
    /// Its queue.
    #[serde(default)]
    pub queue: QueueName,
    /// On whose behalf.
    #[serde(default)]
    pub tenant: String,
    /// Its urgency.
    #[serde(default)]
    pub priority: Priority,
    /// Its start deadline, ms from its slot's firing; 0: none.
    #[serde(default)]
    pub start_within_ms: u64,
    /// Its most age, ms; 0: none.
    #[serde(default)]
    pub max_age_ms: u64,
    /// Runs that may count.
    #[serde(default = "attempts")]
    pub max_attempts: u16,
    /// Units it takes of rates.
    #[serde(default = "one")]
    pub cost: u32,
    /// Slots it takes.
    #[serde(default = "slot")]
    pub weight: u16,
    /// What a run is expected to use.
    #[serde(default, skip_serializing_if = "Estimate::is_unknown")]
    pub estimate: Estimate,
    /// Its order key.
    #[serde(default)]
    pub order_key: Option<String>,
    /// What only workers read.
    #[serde(default)]
    pub meta: Meta,
}

impl Template {
    /// A task of which nothing else is said: as [`crate::task::NewTask::new`] has it.
    #[must_use]
    pub fn new(agent: AgentName, payload: impl Into<Bytes>) -> Self {
        Self {
            agent,
            payload: payload.into(),
            queue: QueueName::default(),
            tenant: String::new(),
            priority: Priority::default(),
            start_within_ms: 0,
            max_age_ms: 0,
            max_attempts: attempts(),
            cost: one(),
            weight: slot(),
            estimate: Estimate::default(),
            order_key: None,
            meta: Meta::default(),
        }
    }
}

fn slot() -> u16 {
    1
}
fn attempts() -> u16 {
    3
}
fn one() -> u32 {
    1
}

/// Why a schedule was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The pattern cannot be read.
    #[error(
        "{pattern:?} is no cron pattern: {why}; for instance `30 2 * * *`, `*/15 * * * * *` (with seconds), `@hourly`"
    )]
    Pattern {
        /// What was given.
        pattern: String,
        /// What is wrong with it.
        why: String,
    },
    /// The pattern names a moment that never comes.
    #[error("{pattern:?} never comes")]
    Never {
        /// What was given.
        pattern: String,
    },
    /// The zone is not known.
    #[error("{zone:?} is no time zone; for instance `UTC`, `Europe/Berlin`, `America/New_York`")]
    Zone {
        /// What was given.
        zone: String,
    },
    /// Its task is not one.
    #[error(transparent)]
    Task(#[from] Invalid),
}

/// What to do about a slot that has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// The slot to hand a task in for, server ms; none: it is left out.
    pub fire_ms: Option<u64>,
    /// How many slots before it were missed and are left out.
    pub missed: u64,
    /// The next slot, server ms.
    pub next_ms: u64,
}

impl Schedule {
    /// The moments of the pattern after `after_ms` (Unix ms), in order, at most `most`.
    ///
    /// # Errors
    /// When the pattern or the zone cannot be read. A pattern that never comes again gives none.
    pub fn slots(&self, after_ms: u64, most: usize) -> Result<Vec<Zoned>, Error> {
        let (cron, zone) = (self.pattern()?, self.time_zone()?);
        let at = Timestamp::from_millisecond(i64::try_from(after_ms).unwrap_or(i64::MAX));
        let mut at = at.unwrap_or(Timestamp::UNIX_EPOCH).to_zoned(zone);
        let mut slots = Vec::new();
        while slots.len() < most {
            let Ok(next) = cron.find_next_occurrence(&at, false) else { break };
            slots.push(next.clone());
            at = next;
        }
        Ok(slots)
    }

    /// The first slot after `after_ms`, as ms; none: it never comes again.
    ///
    /// # Errors
    /// As [`Self::slots`].
    pub fn next_ms(&self, after_ms: u64) -> Result<Option<u64>, Error> {
        Ok(self.slots(after_ms, 1)?.first().map(ms))
    }

    /// What to do now about the slot `slot_ms`, which has come.
    ///
    /// # Errors
    /// As [`Self::slots`].
    pub fn due(&self, slot_ms: u64, now_ms: u64) -> Result<Due, Error> {
        let never = || Error::Never { pattern: self.cron.clone() };
        let next = |after| self.next_ms(after)?.ok_or_else(never);
        if now_ms < slot_ms.saturating_add(LATE_MS) && self.missed != Missed::All {
            // On time. Slots that come more often than anybody looks are each fired, unless they have piled up.
            let following = next(slot_ms)?;
            if following > now_ms || self.missed == Missed::Skip {
                return Ok(Due { fire_ms: Some(slot_ms), missed: 0, next_ms: following });
            }
        }
        let passed = self.passed(slot_ms, now_ms)?;
        let latest = passed.last().copied().unwrap_or(slot_ms);
        let count = passed.len() as u64;
        Ok(match self.missed {
            Missed::All if passed.len() <= CATCH_UP_MAX => {
                Due { fire_ms: Some(slot_ms), missed: 0, next_ms: next(slot_ms)? }
            }
            Missed::All => {
                let left_out = passed.len() - CATCH_UP_MAX;
                Due { fire_ms: None, missed: left_out as u64, next_ms: passed[left_out] }
            }
            Missed::Latest => Due { fire_ms: Some(latest), missed: count - 1, next_ms: next(latest)? },
            Missed::Skip if now_ms < latest + LATE_MS => {
                Due { fire_ms: Some(latest), missed: count - 1, next_ms: next(latest)? }
            }
            Missed::Skip => Due { fire_ms: None, missed: count, next_ms: next(now_ms)? },
        })
    }

    /// The slots from `slot_ms` to `now_ms`; of very many only the newest ones.
    fn passed(&self, slot_ms: u64, now_ms: u64) -> Result<Vec<u64>, Error> {
        /// More are not counted one by one.
        const MOST: usize = 10_000;
        let mut passed = vec![slot_ms];
        let mut from = slot_ms;
        loop {
            let more: Vec<u64> = self.slots(from, MOST)?.iter().map(ms).take_while(|at| *at <= now_ms).collect();
            let Some(last) = more.last() else { return Ok(passed) };
            from = *last;
            passed.extend(more);
            if passed.len() > MOST {
                // So long an outage of so frequent a schedule: what is newest is near now.
                let window = now_ms.saturating_sub(3_600_000).max(from);
                from = window;
                passed.drain(..passed.len() - CATCH_UP_MAX - 1);
            }
        }
    }

    /// The task of one slot.
    #[must_use]
    pub fn task(&self) -> NewTask {
        let t = &self.task;
        let ms = |n: u64| (n > 0).then(|| std::time::Duration::from_millis(n));
        NewTask {
            queue: t.queue.clone(),
            tenant: t.tenant.clone(),
            priority: t.priority,
            start_within: ms(t.start_within_ms),
            max_age: ms(t.max_age_ms),
            max_attempts: t.max_attempts,
            cost: t.cost,
            weight: t.weight,
            estimate: t.estimate,
            order_key: t.order_key.clone(),
            meta: t.meta.clone(),
            ..NewTask::new(t.agent.clone(), t.payload.clone())
        }
    }

    /// Everything that can be known to be wrong with it, seen from `now_ms`; the first slot if nothing is.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self, now_ms: u64) -> Result<u64, Error> {
        self.task().check()?;
        self.next_ms(now_ms)?.ok_or_else(|| Error::Never { pattern: self.cron.clone() })
    }

    fn pattern(&self) -> Result<Cron, Error> {
        let parser = CronParser::builder().seconds(Seconds::Optional).build();
        parser.parse(&self.cron).map_err(|e| Error::Pattern { pattern: self.cron.clone(), why: e.to_string() })
    }

    fn time_zone(&self) -> Result<TimeZone, Error> {
        TimeZone::get(&self.zone).map_err(|_| Error::Zone { zone: self.zone.clone() })
    }
}

fn ms(at: &Zoned) -> u64 {
    u64::try_from(at.timestamp().as_millisecond()).unwrap_or(0)
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
