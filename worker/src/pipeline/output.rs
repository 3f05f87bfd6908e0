//! Output of runs, as it comes: gathered into pieces, written in batches, followed by whoever likes.
//!
//! - *It guarantees* order within a run, and that what was emitted is written before the run is settled, as long as Redis answers within
//!   a second. Each piece says where in the run's output it belongs, so that a reader sees a gap as one.
//! - *It refuses* to gather without bound: while Redis is away a run keeps its newest megabyte; a handler that emits faster than pieces
//!   are taken waits.
//! - *On a crash* what was not written is lost, and so is the run: the next attempt's output takes the place of all of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tidemill_common::name::{Fence, TaskId};
use tidemill_common::store::{NewPiece, PIECE_BYTES_MAX, Store};
use tokio::sync::mpsc::{Receiver, Sender, UnboundedSender};
use tokio::sync::oneshot;

use super::Event;
use crate::trouble::Trouble;

/// Words that may wait to be gathered.
pub(crate) const WAITING_MAX: usize = 256;
/// Most runs in one call.
const BATCH_MAX: usize = 32;
/// Most bytes of a run that wait to be written.
const GATHERED_BYTES_MAX: usize = 1 << 20;
/// Shortest time between two calls: people look at it.
const EVERY: Duration = Duration::from_millis(100);
/// How long the end of a run waits for its output to be written.
const FLUSHED_WITHIN: Duration = Duration::from_secs(1);

/// What is told of a run's output.
#[derive(Debug)]
pub(crate) enum Word {
    /// More of it.
    More(TaskId, Fence, u16, Bytes),
    /// That was all; to be told when it is written.
    End(Fence, oneshot::Sender<()>),
}

/// Tells that a run has ended, and waits until its output is written, or for a second.
pub(crate) async fn end(output: &Sender<Word>, fence: Fence) {
    let (written, wait) = oneshot::channel();
    if output.send(Word::End(fence, written)).await.is_ok() {
        let _ = tokio::time::timeout(FLUSHED_WITHIN, wait).await;
    }
}

/// One run's output.
#[derive(Debug)]
struct Gathered {
    id: TaskId,
    attempt: u16,
    /// What has been written, or given up, bytes.
    offset: u64,
    waiting: BytesMut,
    end: Option<oneshot::Sender<()>>,
}

impl Gathered {
    fn add(&mut self, data: &[u8]) {
        self.waiting.extend_from_slice(data);
        let over = self.waiting.len().saturating_sub(GATHERED_BYTES_MAX);
        if over > 0 {
            let _ = self.waiting.split_to(over);
            self.offset += over as u64;
        }
    }

    fn piece(&self, fence: Fence) -> Option<NewPiece> {
        let data = &self.waiting[..self.waiting.len().min(PIECE_BYTES_MAX)];
        (!data.is_empty()).then(|| NewPiece {
            id: self.id.clone(),
            fence,
            attempt: self.attempt,
            offset: self.offset,
            data: Bytes::copy_from_slice(data),
        })
    }
}

/// Gathers and writes until all senders are gone. What is refused is told to the desk: such a run is not current and should stop.
pub(crate) async fn pass_on(
    store: Arc<Store>,
    trouble: Arc<Trouble>,
    mut words: Receiver<Word>,
    events: UnboundedSender<Event>,
) {
    let mut runs: HashMap<Fence, Gathered> = HashMap::new();
    while let Some(word) = words.recv().await {
        gather(&mut runs, word);
        loop {
            while let Ok(word) = words.try_recv() {
                gather(&mut runs, word);
            }
            write(&store, &trouble, &mut runs, &events).await;
            // Those whose end is awaited are not kept waiting for others.
            if runs.values().all(|run| run.waiting.is_empty()) {
                break;
            }
            if runs.values().all(|run| run.end.is_none()) {
                tokio::time::sleep(EVERY).await;
            }
        }
        runs.retain(|_, run| run.end.take().is_none());
        tokio::select! {
            biased;
            () = tokio::time::sleep(EVERY) => {}
            // An end is told at once.
            Some(word) = words.recv() => gather(&mut runs, word),
        }
    }
}

fn gather(runs: &mut HashMap<Fence, Gathered>, word: Word) {
    match word {
        Word::More(id, fence, attempt, data) => {
            let run = runs.entry(fence).or_insert_with(|| Gathered {
                id,
                attempt,
                offset: 0,
                waiting: BytesMut::new(),
                end: None,
            });
            run.add(&data);
        }
        Word::End(fence, written) => {
            if let Some(run) = runs.get_mut(&fence) {
                run.end = Some(written);
            }
        }
    }
}

async fn write(store: &Store, trouble: &Trouble, runs: &mut HashMap<Fence, Gathered>, events: &UnboundedSender<Event>) {
    let batch: Vec<NewPiece> = runs.iter().filter_map(|(fence, run)| run.piece(*fence)).take(BATCH_MAX).collect();
    if batch.is_empty() {
        return;
    }
    match store.emit(&batch).await {
        Ok(current) => {
            for (piece, current) in batch.iter().zip(current) {
                if !current {
                    runs.remove(&piece.fence);
                    let _ = events.send(Event::Stale(piece.fence));
                } else if let Some(run) = runs.get_mut(&piece.fence) {
                    let _ = run.waiting.split_to(piece.data.len().min(run.waiting.len()));
                    run.offset += piece.data.len() as u64;
                }
            }
        }
        Err(error) => {
            trouble.tell("emit", &error);
            tokio::time::sleep(EVERY).await;
            // Ends are not held up for longer than they wait anyhow.
            runs.retain(|_, run| run.end.as_ref().is_none_or(|end| !end.is_closed()));
        }
    }
}
