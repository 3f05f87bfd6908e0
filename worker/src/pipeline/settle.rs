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
        Verb::Retry { error, .. }
        | Verb::Throttled { error, .. }
        | Verb::Dead { error }
        | Verb::Unreadable { error } => error.len(),
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
        How::Expired => "expired",
        How::Already => "already",
        How::Stale => "stale",
        How::Gone => "gone",
        How::Quarantined => "quarantined",
    }
}

#[cfg(test)]
mod tests {
    use tidemill_common::name::{Fence, TaskId};
    use tidemill_common::task::NewTask;

    use super::*;

    fn item(fence: u64, bytes: usize, follow_ups: usize) -> SettleItem {
        let follow_ups = (0..follow_ups).map(|_| NewTask::new("a".parse().unwrap(), "x")).collect();
        let verb = Verb::Done { result: vec![0; bytes].into(), keep_ms: 1 };
        SettleItem { follow_ups, ..SettleItem::new(TaskId::generate(), Fence(fence), verb) }
    }

    fn lane(items: impl IntoIterator<Item = SettleItem>) -> Lane {
        let mut lane = Lane::new(0);
        items.into_iter().for_each(|i| lane.push(i));
        lane
    }

    /// The sizes of its batches, all answered well.
    fn sizes(mut lane: Lane) -> Vec<usize> {
        let mut sizes = Vec::new();
        while let Some(batch) = lane.next() {
            assert_eq!(batch.sequence, sizes.len() as u64 + 1);
            assert!(lane.next().is_none(), "one at a time");
            sizes.push(batch.items.len());
            assert_eq!(lane.answered(Ok((vec![How::Done; batch.items.len()], Vec::new()))).len(), batch.items.len());
        }
        assert!(lane.is_idle());
        sizes
    }

    #[test]
    fn batches_are_bounded_in_tasks_bytes_and_follow_ups() {
        assert_eq!(sizes(lane((0..600).map(|n| item(n, 1, 0)))), [256, 256, 88]);
        assert_eq!(sizes(lane((0..10).map(|n| item(n, 1 << 20, 0)))), [3, 3, 3, 1]);
        assert_eq!(sizes(lane((0..6).map(|n| item(n, 1, 100)))), [2, 2, 2]);
        assert_eq!(sizes(lane([item(1, 5 << 20, 256), item(2, 0, 0)])), [1, 1], "one alone may be more");
    }

    #[test]
    fn a_batch_that_is_refused_goes_one_by_one_and_the_bad_item_alone_is_given_up() {
        let mut lane = lane((1..=3).map(|n| item(n, 1, 0)));
        assert_eq!(lane.next().unwrap().items.len(), 3);
        lane.push(item(4, 1, 0));
        lane.push(item(5, 1, 0));
        assert!(lane.answered(Err(Error::Stale)).is_empty());
        for fence in 1..=3 {
            let batch = lane.next().unwrap();
            assert_eq!((batch.items.len(), batch.items[0].fence), (1, Fence(fence)));
            let answer = if fence == 2 { Err(Error::Stale) } else { Ok((vec![How::Done], Vec::new())) };
            let settled = lane.answered(answer);
            assert_eq!((settled.len(), settled[0].how == How::Done), (1, fence != 2));
        }
        assert_eq!(lane.next().unwrap().items.len(), 2, "the others together again");
    }

    #[test]
    fn nothing_unanswered_is_forgotten_with_a_life() {
        let mut lane = lane((1..=2).map(|n| item(n, 1, 0)));
        lane.next().unwrap();
        lane.push(item(3, 1, 0));
        let fences: Vec<_> = lane.take_all().iter().map(|i| i.fence.0).collect();
        assert_eq!(fences, [1, 2, 3]);
        assert!(lane.is_idle());
    }
}
