//! Progress: what handlers say of their runs, passed on in batches; only the newest word of a run counts.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tidemill_common::name::{Fence, TaskId};
use tidemill_common::store::Store;
use tokio::sync::mpsc::{Receiver, UnboundedSender};

use super::Event;
use crate::trouble::Trouble;

/// Words that may wait; more are dropped, as newer ones are on their way.
pub(crate) const WAITING_MAX: usize = 1024;
/// Most runs in one call.
const BATCH_MAX: usize = 256;
/// Shortest time between two calls: people look at it.
const EVERY: Duration = Duration::from_millis(200);

/// Passes progress on until all senders are gone. What is refused is told to the desk: such a run is not current and should stop.
pub(crate) async fn pass_on(
    store: Arc<Store>,
    trouble: Arc<Trouble>,
    mut said: Receiver<(TaskId, Fence, String)>,
    events: UnboundedSender<Event>,
) {
    let mut newest = HashMap::new();
    while let Some((id, fence, text)) = said.recv().await {
        newest.insert(fence, (id, text));
        while newest.len() < BATCH_MAX
            && let Ok((id, fence, text)) = said.try_recv()
        {
            newest.insert(fence, (id, text));
        }
        let batch: Vec<_> = newest.drain().map(|(fence, (id, text))| (id, fence, text)).collect();
        match store.progress(&batch).await {
            Ok(current) => {
                for ((_, fence, _), _) in batch.iter().zip(current).filter(|(_, current)| !current) {
                    let _ = events.send(Event::Stale(*fence));
                }
            }
            // Not sent again: the next word says more.
            Err(error) => trouble.tell("progress", &error),
        }
        tokio::time::sleep(EVERY).await;
    }
}
