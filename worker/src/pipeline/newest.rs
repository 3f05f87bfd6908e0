//! What handlers say of their runs, passed on in batches; only the newest word of a run counts.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tidemill_common::name::{Fence, TaskId};
use tidemill_common::store::Error;
use tokio::sync::mpsc::{Receiver, UnboundedSender};

use super::Event;
use crate::trouble::Trouble;

/// A word of a run.
pub(crate) type Said<T> = (TaskId, Fence, T);

/// Words that may wait; more are dropped, as newer ones are on their way.
pub(crate) const WAITING_MAX: usize = 1024;
/// Most runs in one call.
const BATCH_MAX: usize = 256;
/// Shortest time between two calls: people look at it.
const EVERY: Duration = Duration::from_millis(200);

/// Passes words on by `send` until all senders are gone. What is refused is told to the desk: such a run is not current and should stop.
pub(crate) async fn pass_on<T: Send + Sync>(
    what: &'static str,
    trouble: Arc<Trouble>,
    mut said: Receiver<Said<T>>,
    events: UnboundedSender<Event>,
    send: impl AsyncFn(Vec<Said<T>>) -> Result<Vec<bool>, Error>,
) {
    let mut newest = HashMap::new();
    while let Some((id, fence, word)) = said.recv().await {
        newest.insert(fence, (id, word));
        while newest.len() < BATCH_MAX
            && let Ok((id, fence, word)) = said.try_recv()
        {
            newest.insert(fence, (id, word));
        }
        let batch: Vec<_> = newest.drain().map(|(fence, (id, word))| (id, fence, word)).collect();
        let fences: Vec<Fence> = batch.iter().map(|(_, fence, _)| *fence).collect();
        match send(batch).await {
            Ok(current) => {
                for (fence, _) in fences.iter().zip(current).filter(|(_, current)| !current) {
                    let _ = events.send(Event::Stale(*fence));
                }
            }
            // Not sent again: the next word says more, and the end of the run says all.
            Err(error) => trouble.tell(what, &error),
        }
        tokio::time::sleep(EVERY).await;
    }
}
