//! Sleeping: one blocking read a process, on a connection of its own.
//!
//! It listens to the process's own control list first, then, if asked, to the doorbell: a worker without room must not take a ring
//! that it cannot use. A read that outlives its time by the grace means a dead connection: it is made anew.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fred::error::ErrorKind;
use fred::interfaces::{ClientLike, ListInterface};
use fred::prelude::{Client, Options, Value};
use tokio::sync::watch;

use super::connect::{self, RedisOptions};
use super::{Error, Store};
use crate::keys::Base;

/// How much longer than its own time a blocking read may take before its connection counts as dead.
const GRACE: Duration = Duration::from_secs(2);

/// What was heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// Somebody rang: there may be work.
    Ring,
    /// A running delivery was called off: task id and fence.
    Cancel(String, u64),
    /// Something is to be told with the next renewal.
    Renew,
    /// A task that this process waits for has ended.
    Ended(String),
    /// Nothing, for the time asked.
    Nothing,
}

/// A process's ear.
pub struct Bell {
    client: Client,
    base: Base,
    options: RedisOptions,
    /// How often the store's connection was made anew, and how often that was when this one last was.
    moved: watch::Receiver<u64>,
    seen: AtomicU64,
}

impl std::fmt::Debug for Bell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bell").field("base", &self.base).finish_non_exhaustive()
    }
}

impl Store {
    /// A connection of its own to sleep on.
    ///
    /// # Errors
    /// When Redis cannot be reached.
    pub async fn bell(&self) -> Result<Bell, Error> {
        let moved = self.reconnect.subscribe();
        let seen = AtomicU64::new(*moved.borrow());
        let (client, _) = connect::connect(&self.options).await?;
        Ok(Bell { client, base: self.base.clone(), options: self.options.clone(), moved, seen })
    }

    /// Ends a read on `who`'s control list: its reader hears a ring, and may listen anew, to something else.
    ///
    /// # Errors
    /// When Redis does not answer; sending it twice does no harm.
    pub async fn nudge(&self, who: &str) -> Result<(), Error> {
        self.call(|s| &s.nudge, vec![Value::from(who)]).await.map(|_| ())
    }
}

impl Bell {
    /// Sleeps until something is heard, for at most `most` (whole 100 ms steps are what the server keeps to).
    ///
    /// Dropping the future may lose what was being heard: the sweep rings again, and a waiter looks for itself.
    ///
    /// # Errors
    /// When Redis does not answer; the connection is made anew by then, so that the next call may do better.
    pub async fn listen(&self, who: &str, with_bell: bool, most: Duration) -> Result<Heard, Error> {
        let mut keys = vec![self.base.control(who)];
        if with_bell {
            keys.push(self.base.bell());
        }
        let options = Options { timeout: Some(most + GRACE), max_attempts: Some(1), ..Options::default() };
        let began = Instant::now();
        let (client, seen) = (self.client.with_options(&options), self.seen.load(Ordering::Relaxed));
        let mut moved = self.moved.clone();
        let heard: Result<Option<(String, String)>, _> = tokio::select! {
            heard = client.blpop(keys, most.as_secs_f64()) => heard,
            // Somebody was told that the server is not the one to ask. Notes and rings of the right one wait in their lists.
            Ok(now) = async { moved.wait_for(|made| *made != seen).await.map(|now| *now) } => {
                self.seen.store(now, Ordering::Relaxed);
                self.again().await;
                return Ok(Heard::Nothing);
            }
        };
        match heard {
            Ok(None) => Ok(Heard::Nothing),
            // The client turns the server's "nothing in that time" into an error of the same kind as its own "no answer in time".
            Err(e) if *e.kind() == ErrorKind::Timeout && began.elapsed() < most + GRACE / 2 => Ok(Heard::Nothing),
            Ok(Some((_, note))) => Ok(read_note(&note)),
            Err(e) => {
                self.again().await;
                Err(Error::of("listen", e))
            }
        }
    }

    /// Makes the connection anew. Not awaited to its end: while the server is away this would wait for it.
    async fn again(&self) {
        let most = Duration::from_millis(self.options.command_timeout_ms.max(1));
        let _ = tokio::time::timeout(most, self.client.force_reconnection()).await;
    }

    /// Closes the connection.
    pub async fn close(&self) {
        let _ = self.client.quit().await;
    }
}

fn read_note(note: &str) -> Heard {
    let mut words = note.split(' ');
    match (words.next(), words.next(), words.next().map(str::parse)) {
        (Some("cancel"), Some(id), Some(Ok(fence))) => Heard::Cancel(id.to_owned(), fence),
        (Some("renew"), None, None) => Heard::Renew,
        (Some("end"), Some(id), None) => Heard::Ended(id.to_owned()),
        _ => Heard::Ring,
    }
}
