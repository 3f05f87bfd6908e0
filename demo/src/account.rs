//! The account at the end: every accepted task is asked for, by its id.

use std::fmt;

use anyhow::Result;
use futures::{StreamExt as _, TryStreamExt as _};
use tidemill_common::name::TaskId;
use tidemill_common::state::State;
use tidemill_producer::Client;

/// Questions at once.
const AT_ONCE: usize = 32;

/// What became of the tasks.
#[derive(Default)]
pub(crate) struct Account {
    ids: Vec<TaskId>,
    succeeded: usize,
    other: usize,
    reclaimed: u64,
    waits_ms: Vec<u64>,
    runs_ms: Vec<u64>,
}

impl Account {
    pub(crate) fn accepted(&mut self, id: TaskId) {
        self.ids.push(id);
    }

    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Asks for each task. Returns how many did not succeed.
    pub(crate) async fn close(&mut self, client: &Client) -> Result<usize> {
        let asked = futures::stream::iter(self.ids.clone()).map(|id| async move {
            let status = client.status(&id).await?;
            anyhow::Ok((id, status))
        });
        let found: Vec<_> = asked.buffer_unordered(AT_ONCE).try_collect().await?;
        for (id, status) in &found {
            if status.state == Some(State::Succeeded) {
                self.succeeded += 1;
                self.runs_ms.push(status.ended_ms.saturating_sub(status.started_ms));
                self.waits_ms.push(status.started_ms.saturating_sub(made_ms(id).unwrap_or(status.started_ms)));
            } else {
                self.other += 1;
            }
        }
        self.reclaimed = client.counts().await?.ended.get("reclaimed").copied().unwrap_or(0);
        Ok(self.other)
    }
}

/// When an id of UUID version 7 was made, in ms: ids say so themselves.
fn made_ms(id: &TaskId) -> Option<u64> {
    u64::from_str_radix(id.as_str().replace('-', "").get(..12)?, 16).ok()
}

fn percentiles(values: &[u64]) -> [u64; 3] {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    [50, 95, 100]
        .map(|p| sorted.get((sorted.len() * p / 100).min(sorted.len().saturating_sub(1))).copied().unwrap_or(0))
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [w50, w95, w100] = percentiles(&self.waits_ms);
        let [r50, r95, r100] = percentiles(&self.runs_ms);
        writeln!(f, "  submitted  {:>6}", self.ids.len())?;
        writeln!(f, "  succeeded  {:>6}", self.succeeded)?;
        writeln!(f, "  reclaimed  {:>6}   runs of the killed worker, run again", self.reclaimed)?;
        writeln!(f, "  lost       {:>6}   each id was asked for", self.other)?;
        writeln!(
            f,
            "  wait (ms)  p50 {w50:>6}   p95 {w95:>6}   max {w100:>6}   from its submit to the run that counted"
        )?;
        write!(f, "  run (ms)   p50 {r50:>6}   p95 {r95:>6}   max {r100:>6}")
    }
}
