//! What is shown, and what keys do to it.

use std::collections::BTreeMap;
use std::time::Instant;

use tidemill_common::store::{Pausable, Pause, WorkerSeen};
use tidemill_producer::{Counts, Priority};

use super::errors::Failed;
use super::keys::Key;

/// One look at the server.
#[derive(Debug, Clone)]
pub(super) struct Look {
    pub(super) counts: Counts,
    pub(super) pauses: Vec<Pause>,
    pub(super) workers: Vec<WorkerSeen>,
    pub(super) at: Instant,
}

/// A queue in the table.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct QueueRow {
    pub(super) name: String,
    /// Urgent to low.
    pub(super) waiting: [u64; 4],
    /// By how many a second those that wait become more.
    pub(super) rate: Option<f64>,
    pub(super) paused: bool,
    /// It is paused itself, and not with everything.
    pub(super) held: bool,
}

/// All that is shown.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) url: String,
    pub(super) now: Option<Look>,
    before: Option<Look>,
    pub(super) errors: Vec<Failed>,
    pub(super) selected: usize,
    /// The queue that a question is about, and whether it is to be paused.
    pub(super) ask: Option<(String, bool)>,
    pub(super) note: String,
}

impl Model {
    pub(super) fn new(url: String) -> Self {
        Self { url, now: None, before: None, errors: Vec::new(), selected: 0, ask: None, note: String::new() }
    }

    pub(super) fn seen(&mut self, look: Look) {
        self.before = self.now.replace(look);
        if self.note.starts_with("no answer") {
            self.note.clear();
        }
    }

    /// Queues by name.
    pub(super) fn queues(&self) -> Vec<QueueRow> {
        let Some(now) = &self.now else { return Vec::new() };
        let all = now.pauses.iter().any(|pause| pause.what == Pausable::All);
        let mut rows: BTreeMap<&str, [u64; 4]> = BTreeMap::new();
        for ((name, priority), count) in &now.counts.waiting {
            let row = rows.entry(name).or_default();
            let at = match Priority::from_value(*priority) {
                Some(Priority::Urgent) => 0,
                Some(Priority::High) => 1,
                Some(Priority::Low) => 3,
                Some(Priority::Normal) | None => 2,
            };
            row[at] += count;
        }
        let held: Vec<&str> = now
            .pauses
            .iter()
            .filter_map(|pause| match &pause.what {
                Pausable::Queue(queue) => Some(queue.as_str()),
                _ => None,
            })
            .collect();
        for queue in &held {
            rows.entry(queue).or_default();
        }
        rows.into_iter()
            .map(|(name, waiting)| {
                let held = held.contains(&name);
                let of = |counts: &Counts| {
                    counts.waiting.iter().filter(|((queue, _), _)| queue == name).map(|(_, n)| n).sum::<u64>()
                };
                QueueRow { name: name.to_owned(), waiting, rate: self.rate(of), paused: held || all, held }
            })
            .collect()
    }

    /// How many more a second, from the look before to the last one.
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    fn rate(&self, of: impl Fn(&Counts) -> u64) -> Option<f64> {
        let (now, before) = (self.now.as_ref()?, self.before.as_ref()?);
        let seconds = now.at.duration_since(before.at).as_secs_f64();
        let more = of(&now.counts) as f64 - of(&before.counts) as f64;
        (seconds > 0.0).then(|| more / seconds)
    }

    /// Ends a second.
    pub(super) fn ends(&self) -> Option<f64> {
        self.rate(|counts| counts.ended.values().sum())
    }

    /// A key; the queue that is to be paused (or resumed), once that is confirmed.
    pub(super) fn pressed(&mut self, key: Key) -> Option<(String, bool)> {
        if let Some(ask) = self.ask.take() {
            return (key == Key::Yes).then_some(ask);
        }
        let queues = self.queues();
        let last = queues.len().saturating_sub(1);
        match key {
            Key::Up => self.selected = self.selected.min(last).saturating_sub(1),
            Key::Down => self.selected = (self.selected + 1).min(last),
            Key::Pause => {
                self.note.clear();
                self.ask = queues.get(self.selected.min(last)).map(|queue| (queue.name.clone(), !queue.held));
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
