//! Schedules: kept, fired, listed.

use std::collections::BTreeMap;

use bytes::Bytes;
use fred::interfaces::{HashesInterface, SortedSetsInterface};
use fred::prelude::Value;

use super::reply::Reply;
use super::submit::push_args;
use super::{Error, Store};
use crate::envelope::seal;
use crate::name::{ScheduleName, TaskId};
use crate::schedule::{Due, Overlap, SCHEDULES_MAX, Schedule};
use crate::task::NewTask;

/// Bytes in front of a schedule: its revision.
const REVISION_BYTES: usize = 8;

/// A schedule whose slot has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// Which schedule.
    pub name: ScheduleName,
    /// The slot, server ms.
    pub slot_ms: u64,
    /// The revision, then the schedule: for [`Self::schedule`] and [`Store::fire`].
    kept: Bytes,
}

/// What became of a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fired {
    /// Somebody was quicker, or the schedule was changed meanwhile.
    Stale,
    /// It was left out, as its schedule says.
    LeftOut,
    /// It was left out, since its predecessor's task has not ended.
    Overlaps,
    /// Its task is in.
    In(TaskId),
    /// Its task was refused (there are as many queues as there may be, say); the schedule goes on.
    Refused,
}

/// What became of a schedule that was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduleSet {
    /// It is in force.
    Set,
    /// There are as many schedules as there may be.
    Full,
}

/// A schedule as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Kept {
    /// The schedule; none when this build cannot read it.
    pub schedule: Option<Schedule>,
    /// Its name.
    pub name: ScheduleName,
    /// Its next slot, server ms; 0: it is paused.
    pub next_ms: u64,
    /// The slot that it fired last, server ms; 0: none yet.
    pub last_ms: u64,
    /// The task of that slot.
    pub last_task: Option<TaskId>,
}

fn read(kept: &[u8]) -> Option<Schedule> {
    rmp_serde::from_slice(kept.get(REVISION_BYTES..)?).ok()
}

impl Slot {
    pub(super) fn read_all(reply: &mut Reply) -> Result<Vec<Self>, Error> {
        let mut slots = Vec::new();
        while !reply.is_empty() {
            let (name, slot_ms, kept) = (reply.text()?, reply.number()?, reply.bytes()?);
            // A name that is none was put there by hand.
            slots.extend(name.parse().ok().map(|name| Self { name, slot_ms, kept }));
        }
        Ok(slots)
    }

    /// The schedule; none when this build cannot read it: it is left to one that can.
    #[must_use]
    pub fn schedule(&self) -> Option<Schedule> {
        read(&self.kept)
    }
}

impl Store {
    /// Keeps a schedule, in place of one of its name. `next_ms` is its first slot; none: it is paused.
    ///
    /// # Errors
    /// When Redis does not answer. Sending the same again is safe.
    pub async fn set_schedule(&self, schedule: &Schedule, next_ms: Option<u64>) -> Result<ScheduleSet, Error> {
        let value = rmp_serde::to_vec_named(schedule)
            .map_err(|e| Error::Settings(format!("the schedule cannot be written down: {e}")))?;
        let args: Vec<Value> = vec![
            schedule.name.as_str().into(),
            Value::Bytes(value.into()),
            next_ms.map_or_else(String::new, |ms| ms.to_string()).into(),
            SCHEDULES_MAX.to_string().into(),
        ];
        let answer = self.call(|s| &s.schedule, args).await?.into_string().unwrap_or_default();
        Ok(if answer == "full" { ScheduleSet::Full } else { ScheduleSet::Set })
    }

    /// Deletes a schedule; its tasks stay. False: there was none.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn delete_schedule(&self, name: &ScheduleName) -> Result<bool, Error> {
        let nothing = || Value::from_static_str("");
        let answer = self.call(|s| &s.schedule, vec![name.as_str().into(), nothing(), nothing(), nothing()]).await?;
        Ok(answer.as_str().is_some_and(|text| text == "deleted"))
    }

    /// All schedules, by name.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn schedules(&self) -> Result<Vec<Kept>, Error> {
        let (cron, slots, last) = (self.base.key("cron"), self.base.key("cz"), self.base.key("cl"));
        let of = |e| Error::of("schedules", e);
        let all: BTreeMap<String, Bytes> =
            self.retrying(|| async { self.client.hgetall(cron.as_str()).await.map_err(of) }).await?;
        let next: Vec<(String, f64)> = self
            .retrying(|| async { self.client.zrange(slots.as_str(), 0, -1, None, false, None, true).await.map_err(of) })
            .await?;
        let lasts: BTreeMap<String, Bytes> =
            self.retrying(|| async { self.client.hgetall(last.as_str()).await.map_err(of) }).await?;
        let next: BTreeMap<String, f64> = next.into_iter().collect();
        let kept = all.iter().filter_map(|(name, value)| {
            let last = lasts.get(name).and_then(|v| v.split_at_checked(8));
            Some(Kept {
                name: name.parse().ok()?,
                schedule: read(value),
                next_ms: next.get(name).copied().map_or(0, whole),
                last_ms: last.and_then(|(ms, _)| Some(f64::from_be_bytes(ms.try_into().ok()?))).map_or(0, whole),
                last_task: last.and_then(|(_, id)| std::str::from_utf8(id).ok()?.parse().ok()),
            })
        });
        Ok(kept.collect())
    }

    /// Fires a slot as `due` says, with this task, if nobody was quicker.
    ///
    /// # Errors
    /// When Redis does not answer or is full: the slot may be fired, and is [`Fired::Stale`] then.
    pub async fn fire(&self, slot: &Slot, due: &Due, overlap: Overlap, task: &NewTask) -> Result<Fired, Error> {
        let mut args: Vec<Value> = vec![
            slot.name.as_str().into(),
            slot.slot_ms.to_string().into(),
            Value::Bytes(slot.kept.slice(..REVISION_BYTES.min(slot.kept.len()))),
            due.next_ms.to_string().into(),
            due.fire_ms.map_or_else(String::new, |ms| ms.to_string()).into(),
            due.missed.to_string().into(),
            Value::from_static_str(if overlap == Overlap::Skip { "1" } else { "0" }),
        ];
        push_args(&mut args, task, seal(task)?);
        let mut reply = Reply::array("fire", self.call(|s| &s.fire, args).await?)?;
        Ok(match reply.text()?.as_str() {
            "stale" => Fired::Stale,
            "left" => Fired::LeftOut,
            "overlap" => Fired::Overlaps,
            "q" => Fired::In(reply.parse()?),
            _ => Fired::Refused,
        })
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "server ms")]
fn whole(ms: f64) -> u64 {
    ms.max(0.0) as u64
}
