//! Repairs: what is only an index, or a count, is made anew from what it is about.
//!
//! - *It guarantees* that no task is touched: marks are only when lines and streams are looked at, and a count is set only if nothing
//!   has moved while the tasks were counted.
//! - *It refuses* to guess: where tasks move all the time, the counts stay as they are, and that is said.

use std::collections::BTreeMap;

use tidemill_common::state::State;

use crate::client::{Client, firmly};
use crate::error::Error;
use crate::many::Select;

/// How often it counts, when tasks move meanwhile.
const TRIES: usize = 3;

/// What was repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repaired {
    /// Streams with entries that no claim would have looked at.
    pub streams: u64,
    /// Counts of what waits that were wrong; none: tasks moved each time they were counted, and nothing was set.
    pub counts: Option<u64>,
}

impl Client {
    /// Lets all lines and streams be looked at, and counts what waits.
    ///
    /// # Errors
    /// When Redis does not answer. Asking again is safe.
    pub async fn repair(&self) -> Result<Repaired, Error> {
        firmly(|| self.store().mark_lines()).await?;
        let streams = firmly(|| self.store().mark_streams()).await?;
        let waiting = Select { states: vec![State::Queued, State::Scheduled, State::Parked], ..Select::default() };
        for _ in 0..TRIES {
            let stamp = firmly(|| self.store().counts_stamp()).await?;
            let mut counts: BTreeMap<(String, u8), u64> = BTreeMap::new();
            self.list(&waiting, |found| {
                if let Some(task) = found.task {
                    *counts.entry((task.queue.to_string(), task.priority.value())).or_default() += 1;
                }
                true
            })
            .await?;
            if let Some(wrong) = firmly(|| self.store().set_waiting(&stamp, &counts)).await? {
                return Ok(Repaired { streams, counts: Some(wrong) });
            }
        }
        Ok(Repaired { streams, counts: None })
    }
}
