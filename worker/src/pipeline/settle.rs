//! Settle: Finished → Settled, in batches. Decisions only; the request itself is sent by the pipeline.
//!
//! - *It guarantees* that a batch is sent, the very same under the same number, until it is answered or the lease is lost; an item
//!   that was settled before answers so. What is finished and not settled when the lease is lost is settled in the worker's next
//!   life: its fence decides whether it still counts.
//! - *It refuses* batches that would keep Redis for long: 256 tasks with their follow-ups, 4 MiB, unless one item alone is more.
//! - *On a crash* before the answer: settled or not, as the script has run or not; if not, the run is lost with its lease.
//!
//! A batch that the server refuses as a whole is sent again item by item, so that one bad item does not hold up the others.

use std::collections::VecDeque;
use std::sync::Arc;

use tidemill_common::store::{Accepted, Error, SettleItem, Settled as How, Verb};

use super::stage::Settled;

/// Most tasks of one batch, follow-ups included: keeps the script below 10 ms.
const BATCH_TASKS_MAX: usize = 256;
/// Most bytes of one batch.
const BATCH_BYTES_MAX: usize = 4 << 20;

/// A batch under its number.
#[derive(Debug, Clone)]
pub(crate) struct Batch {
    pub(crate) lane: u8,
    pub(crate) sequence: u64,
    pub(crate) items: Arc<Vec<SettleItem>>,
}

/// One lane: batches one after the other.
#[derive(Debug)]
pub(crate) struct Lane {
    number: u8,
    sequence: u64,
    queue: VecDeque<SettleItem>,
    in_flight: Option<Arc<Vec<SettleItem>>>,
    /// So many at the head of the queue are to be sent one by one.
    singly: usize,
}

impl Lane {
    pub(crate) fn new(number: u8) -> Self {
        Self { number, sequence: 1, queue: VecDeque::new(), in_flight: None, singly: 0 }
    }

    pub(crate) fn push(&mut self, item: SettleItem) {
        self.queue.push_back(item);
    }

    /// Nothing is queued and nothing unanswered.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.in_flight.is_none()
    }

    /// The batch to send now: all that is queued, within the bounds, if the lane is free.
    pub(crate) fn next(&mut self) -> Option<Batch> {
        if self.in_flight.is_some() || self.queue.is_empty() {
            return None;
        }
        let (mut n, mut tasks, mut bytes) = (0, 0, 0);
        for item in &self.queue {
            (tasks, bytes) = (tasks + 1 + item.follow_ups.len(), bytes + size(item));
            if n > 0 && (tasks > BATCH_TASKS_MAX || bytes > BATCH_BYTES_MAX || self.singly > 0) {
                break;
            }
            n += 1;
        }
        self.singly = self.singly.saturating_sub(1);
        let items: Arc<Vec<_>> = Arc::new(self.queue.drain(..n).collect());
        self.in_flight = Some(Arc::clone(&items));
        Some(Batch { lane: self.number, sequence: self.sequence, items })
    }

    /// Takes the answer in: what the desk is to close. What could not be settled is closed as well: nothing more can be done for it
    /// here, and the lease will.
    pub(crate) fn answered(&mut self, answer: Result<(Vec<How>, Vec<Accepted>), Error>) -> Vec<Settled> {
        self.sequence += 1;
        let Some(items) = self.in_flight.take() else { return Vec::new() };
        match answer {
            Ok((how, accepted)) => {
                for refused in accepted.iter().filter(|a| !matches!(a, Accepted::New(_) | Accepted::Duplicate(_))) {
                    tracing::warn!(?refused, "a follow-up was not taken in");
                }
                items.iter().zip(how).map(|(item, how)| settled(item, how)).collect()
            }
            Err(error) if items.len() > 1 => {
                tracing::error!(%error, cause = cause(&error), tasks = items.len(), "a batch was not settled; once more, one by one");
                self.singly = items.len();
                for item in items.iter().rev() {
                    self.queue.push_front(item.clone());
                }
                Vec::new()
            }
            Err(error) => {
                for item in items.iter() {
                    tracing::error!(task = %item.id, %error, cause = cause(&error), "a delivery cannot be settled; it will be handed back");
                }
                items.iter().map(|item| Settled { fence: item.fence, how: How::Stale }).collect()
            }
        }
    }

    /// Everything that has no answer yet, for the worker's next life.
    pub(crate) fn take_all(&mut self) -> Vec<SettleItem> {
        let unanswered = self.in_flight.take().map(|items| items.as_ref().clone()).unwrap_or_default();
        unanswered.into_iter().chain(self.queue.drain(..)).collect()
    }
}

fn settled(item: &SettleItem, how: How) -> Settled {
    if matches!(how, How::Stale | How::Gone | How::Quarantined) {
        tracing::warn!(task = %item.id, fence = item.fence.0, ?how, "this run does not count");
    }
    Settled { fence: item.fence, how }
}

fn cause(error: &Error) -> String {
    std::error::Error::source(error).map(ToString::to_string).unwrap_or_default()
}

fn size(item: &SettleItem) -> usize {
    let own = match &item.verb {
        Verb::Done { result, .. } => result.len(),
        Verb::Retry { error, .. } | Verb::Throttled { error, .. } | Verb::Dead { error } => error.len(),
        Verb::Release => 0,
    };
    64 + own + item.follow_ups.iter().map(|t| 256 + t.payload.len()).sum::<usize>()
}

/// The label of an answer.
pub(crate) fn label(how: How) -> &'static str {
    match how {
        How::Done => "done",
        How::Retry => "retry",
        How::Throttled => "throttled",
        How::Released => "released",
        How::Dead => "dead",
        How::Cancelled => "cancelled",
        How::Already => "already",
        How::Stale => "stale",
        How::Gone => "gone",
        How::Quarantined => "quarantined",
    }
}
