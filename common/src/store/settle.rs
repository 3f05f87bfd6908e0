//! Settle: running → succeeded, scheduled, queued, dead or cancelled.

use bytes::Bytes;
use fred::prelude::Value;

use super::reply::Reply;
use super::submit::{Accepted, push_args, read_replies};
use super::{Error, Store};
use crate::envelope::seal;
use crate::name::{Fence, TaskId, WorkerId};
use crate::spend::Spend;
use crate::task::NewTask;

/// How a delivery ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verb {
    /// It succeeded: the result, and for how many ms to keep it (at least the re-send window of two minutes).
    Done {
        /// The result; empty when it is not kept.
        result: Bytes,
        /// Its lifetime, ms.
        keep_ms: u64,
    },
    /// It failed and counts; again after so many ms, or dead when it was the last attempt.
    Retry {
        /// Why it failed.
        error: String,
        /// The delay, ms.
        after_ms: u64,
    },
    /// Whoever it needs says "not now": again after so many ms; does not count.
    Throttled {
        /// What was said.
        error: String,
        /// The delay, ms.
        after_ms: u64,
    },
    /// Handed back unfinished: claimable at once; does not count.
    Release,
    /// It cannot be run: its envelope or payload is not what this worker reads. Dead as `invalid`.
    Unreadable {
        /// Why.
        error: String,
    },
    /// It failed for good.
    Dead {
        /// Why.
        error: String,
    },
}

/// One delivery to settle.
#[derive(Debug, Clone, PartialEq)]
pub struct SettleItem {
    /// The task.
    pub id: TaskId,
    /// The delivery's fence.
    pub fence: Fence,
    /// How it ends.
    pub verb: Verb,
    /// All that the run has used, as far as its handler said so. None: it said nothing, so that what was charged for it stands; or it
    /// never began, so that nothing was used. A run that was cut short always has some, be it nothing.
    pub used: Option<Spend>,
    /// Tasks to hand in with it, if it is `Done` and counts: at most 256.
    pub follow_ups: Vec<NewTask>,
}

impl SettleItem {
    /// A delivery that ends so: nothing is known of what it has used, and it submits nothing.
    #[must_use]
    pub fn new(id: TaskId, fence: Fence, verb: Verb) -> Self {
        Self { id, fence, verb, used: None, follow_ups: Vec::new() }
    }
}

/// A batch of settles.
#[derive(Debug, Clone)]
pub struct Settle<'a> {
    /// Who settles.
    pub worker: &'a WorkerId,
    /// Which of the worker's lanes (0 to 3); each has one settle at a time.
    pub lane: u8,
    /// Grows with every settle of this lane; the same number again asks for the same answers.
    pub sequence: u64,
    /// The deliveries: at most 256.
    pub items: &'a [SettleItem],
}

/// What became of one delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Settled {
    /// The task has succeeded.
    Done,
    /// It will be tried again.
    Retry,
    /// It waits for whoever throttled it.
    Throttled,
    /// It was handed back.
    Released,
    /// It is dead.
    Dead,
    /// It had been called off, and is now.
    Cancelled,
    /// It has become too old to be tried again.
    Expired,
    /// This delivery was settled before.
    Already,
    /// A newer delivery, or none: this one does not count.
    Stale,
    /// Nothing is known of the task.
    Gone,
    /// The task could not be read and was put aside.
    Quarantined,
}

impl Settled {
    fn read(letter: u8) -> Result<Self, Error> {
        Ok(match letter {
            b'd' => Self::Done,
            b'r' => Self::Retry,
            b't' => Self::Throttled,
            b'l' => Self::Released,
            b'x' => Self::Dead,
            b'c' => Self::Cancelled,
            b'e' => Self::Expired,
            b'a' => Self::Already,
            b's' => Self::Stale,
            b'g' => Self::Gone,
            b'!' => Self::Quarantined,
            other => {
                return Err(Error::Reply { op: "settle", what: format!("{:?} was not expected", char::from(other)) });
            }
        })
    }
}

impl Store {
    /// Settles a batch; one answer an item, in order, and those of the follow-ups that were taken in. Send the very same batch
    /// again after an error: it gives the same answers.
    ///
    /// # Errors
    /// When Redis does not answer, or a later sequence was answered already.
    pub async fn settle(&self, settle: &Settle<'_>) -> Result<(Vec<Settled>, Vec<Accepted>), Error> {
        let mut args: Vec<Value> = vec![
            settle.worker.as_str().into(),
            settle.lane.to_string().into(),
            settle.sequence.to_string().into(),
            settle.items.len().to_string().into(),
        ];
        for item in settle.items {
            args.push(item.id.as_str().into());
            args.push(item.fence.to_value());
            let (verb, number, data) = match &item.verb {
                Verb::Done { result, keep_ms } => ("D", *keep_ms, result.clone()),
                Verb::Retry { error, after_ms } => ("R", *after_ms, Bytes::copy_from_slice(error.as_bytes())),
                Verb::Throttled { error, after_ms } => ("P", *after_ms, Bytes::copy_from_slice(error.as_bytes())),
                Verb::Release => ("L", 0, Bytes::new()),
                Verb::Unreadable { error } => ("X", 1, Bytes::copy_from_slice(error.as_bytes())),
                Verb::Dead { error } => ("X", 0, Bytes::copy_from_slice(error.as_bytes())),
            };
            args.push(Value::from_static_str(verb));
            args.push(number.to_string().into());
            args.push(Value::Bytes(data));
            let used = item.used.map(|used| format!("{}:{}", used.tokens, used.micro_usd));
            args.push(used.unwrap_or_default().into());
            args.push(item.follow_ups.len().to_string().into());
        }
        for task in settle.items.iter().flat_map(|i| &i.follow_ups) {
            push_args(&mut args, task, seal(task)?);
        }
        let mut reply = Reply::array("settle", self.call(|s| &s.settle, args).await?)?;
        let settled: Vec<Settled> = reply.bytes()?.iter().map(|b| Settled::read(*b)).collect::<Result<_, _>>()?;
        let counted =
            settle.items.iter().zip(&settled).filter(|(_, s)| **s == Settled::Done).flat_map(|(i, _)| &i.follow_ups);
        let accepted = read_replies(counted, &mut reply.list()?)?;
        Ok((settled, accepted))
    }

    /// Says what running deliveries have used so far, all in all: what is charged for one that is lost later goes by it, and what is
    /// said of one that is lost already is charged as well. One answer each: false when nothing is known of the delivery (any more),
    /// or it is lost, which means that its handler should stop. Safe to send again.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn spend(&self, items: &[(TaskId, Fence, Spend)]) -> Result<Vec<bool>, Error> {
        let mut args: Vec<Value> = Vec::with_capacity(items.len() * 4);
        for (id, fence, used) in items {
            args.extend([id.as_str().into(), fence.to_value()]);
            args.extend([used.tokens, used.micro_usd].map(|n| Value::from(n.to_string())));
        }
        let answer = self.call(|s| &s.spend, args).await?;
        Ok(answer.into_bytes().unwrap_or_default().iter().map(|b| *b == b'k').collect())
    }

    /// Says how far running deliveries are (text of at most 1 KiB each); one answer each: false when the delivery is not current,
    /// which means that its handler should stop.
    ///
    /// # Errors
    /// When Redis does not answer. Progress is a courtesy: it need not be sent again.
    pub async fn progress(&self, items: &[(TaskId, Fence, String)]) -> Result<Vec<bool>, Error> {
        let mut args: Vec<Value> = Vec::with_capacity(items.len() * 3);
        for (id, fence, text) in items {
            args.push(id.as_str().into());
            args.push(fence.to_value());
            args.push(text.chars().take(256).collect::<String>().into());
        }
        let answer = self.call(|s| &s.progress, args).await?;
        Ok(answer.into_bytes().unwrap_or_default().iter().map(|b| *b == b'k').collect())
    }
}
