//! Output of running deliveries, as it comes: written by workers, followed by whoever likes.

use std::time::Duration;

use bytes::Bytes;
use fred::interfaces::{ClientLike, StreamsInterface};
use fred::prelude::{Client, Options, Value};

use super::connect::{self, RedisOptions};
use super::{Error, Store};
use crate::name::{Fence, TaskId};

/// Most bytes of one piece: what is longer goes in several.
pub const PIECE_BYTES_MAX: usize = 64 * 1024;
/// Entries read at once.
const PAGE: u64 = 64;
/// How much longer than its own time a blocking read may take before its connection counts as dead.
const GRACE: Duration = Duration::from_secs(2);
/// Bytes before the data: fence, attempt, offset.
const HEAD_BYTES: usize = 18;

/// A piece to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPiece {
    /// The task.
    pub id: TaskId,
    /// The delivery.
    pub fence: Fence,
    /// Which attempt it is.
    pub attempt: u16,
    /// How much of this run's output came before it, bytes.
    pub offset: u64,
    /// The data: at most [`PIECE_BYTES_MAX`].
    pub data: Bytes,
}

/// A piece that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Where to go on from: [`Tail::after`].
    pub entry: String,
    /// The delivery that wrote it. Another one than before: what came before is void, its run has failed.
    pub fence: Fence,
    /// Which attempt it is.
    pub attempt: u16,
    /// How much of this run's output came before it, bytes. More than was read: the rest was too old, and is gone.
    pub offset: u64,
    /// The data.
    pub data: Bytes,
}

impl Store {
    /// Writes pieces of output; one answer each: false when the delivery is not current, which means that its handler should stop.
    ///
    /// # Errors
    /// When Redis does not answer. Sending the same again is safe.
    pub async fn emit(&self, pieces: &[NewPiece]) -> Result<Vec<bool>, Error> {
        let mut args: Vec<Value> = Vec::with_capacity(pieces.len() * 5);
        for piece in pieces {
            args.push(piece.id.as_str().into());
            args.push(piece.fence.to_value());
            args.push(piece.attempt.to_string().into());
            args.push(piece.offset.to_string().into());
            args.push(Value::Bytes(piece.data.clone()));
        }
        let answer = self.call(|s| &s.emit, args).await?;
        Ok(answer.into_bytes().unwrap_or_default().iter().map(|b| *b == b'k').collect())
    }

    /// Follows a task's output on a connection of its own, from the first piece that is kept, or after an entry.
    ///
    /// # Errors
    /// When Redis cannot be reached.
    pub async fn tail(&self, id: &TaskId, after: Option<String>) -> Result<Tail, Error> {
        let (client, _) = connect::connect(&self.options).await?;
        let key = self.base.output(id.as_str());
        Ok(Tail { client, key, options: self.options.clone(), after: after.unwrap_or_else(|| "0-0".to_owned()) })
    }
}

/// Follows one task's output.
pub struct Tail {
    client: Client,
    key: String,
    options: RedisOptions,
    after: String,
}

impl std::fmt::Debug for Tail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tail").field("key", &self.key).field("after", &self.after).finish_non_exhaustive()
    }
}

impl Tail {
    /// The entry that was read last: give it to [`Store::tail`] to go on later.
    #[must_use]
    pub fn after(&self) -> &str {
        &self.after
    }

    /// The next pieces, as soon as there are some; none when nothing comes in `most`.
    ///
    /// Dropping the future loses nothing: the same pieces come again.
    ///
    /// # Errors
    /// When Redis does not answer; the connection is made anew by then.
    pub async fn next(&mut self, most: Duration) -> Result<Vec<Piece>, Error> {
        let options = Options { timeout: Some(most + GRACE), max_attempts: Some(1), ..Options::default() };
        let block = Some(u64::try_from(most.as_millis()).unwrap_or(1).max(1));
        let read: Result<Value, _> =
            self.client.with_options(&options).xread(Some(PAGE), block, self.key.as_str(), self.after.as_str()).await;
        match read {
            Ok(value) => {
                let pieces = entries(value);
                if let Some(last) = pieces.last() {
                    self.after.clone_from(&last.entry);
                }
                Ok(pieces)
            }
            Err(e) => {
                let again = self.client.force_reconnection();
                let patience = Duration::from_millis(self.options.command_timeout_ms.max(1));
                let _ = tokio::time::timeout(patience, again).await;
                Err(Error::of("tail", e))
            }
        }
    }

    /// Closes the connection.
    pub async fn close(&self) {
        let _ = self.client.quit().await;
    }
}

/// The entries of the one stream that was read; what is not of our form is passed over.
fn entries(value: Value) -> Vec<Piece> {
    let streams = match value {
        Value::Array(streams) => streams,
        Value::Map(map) => map.inner().into_values().collect(),
        _ => return Vec::new(),
    };
    // RESP 2: [[key, entries]]; RESP 3: {key: entries}.
    let of_one = streams.into_iter().next().map(|stream| match stream {
        Value::Array(mut pair) if pair.len() == 2 && !matches!(pair[0], Value::Array(_)) => pair.remove(1),
        entries => entries,
    });
    let Some(Value::Array(entries)) = of_one else { return Vec::new() };
    entries.into_iter().filter_map(piece).collect()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole numbers below 2^53")]
fn piece(entry: Value) -> Option<Piece> {
    let Value::Array(parts) = entry else { return None };
    let [id, Value::Array(fields)] = parts.as_slice() else { return None };
    let bytes = fields.get(1)?.clone().into_bytes()?;
    let head = bytes.get(..HEAD_BYTES)?;
    let fence = f64::from_be_bytes(head[..8].try_into().ok()?) as u64;
    let offset = f64::from_be_bytes(head[10..].try_into().ok()?) as u64;
    Some(Piece {
        entry: id.as_string()?,
        fence: Fence(fence),
        attempt: u16::from_be_bytes(head[8..10].try_into().ok()?),
        offset,
        data: bytes.slice(HEAD_BYTES..),
    })
}
