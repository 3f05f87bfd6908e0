//! A connection made anew because the server on it is not the one to ask (any more), with nobody's answer lost.
//!
//! A server that was made a replica says so in a reply, and the connection stays. Making it anew asks a sentinel, a cluster or the
//! resolver where the primary is. The client could do it by itself, but would give the one reply to all requests that are on their
//! way; whether *they* were refused would not be known. So each keeps its own reply here, and the new connection waits for them.

use std::time::Duration;

use fred::interfaces::ClientLike as _;
use fred::prelude::Client;
use tokio::sync::{RwLock, RwLockReadGuard, watch};

/// How often the connection was made anew.
#[derive(Debug, Default)]
pub(super) struct Reconnect {
    /// Read while a request is on its way.
    made: RwLock<u64>,
    /// The same, for blocking reads: the server of one that sleeps may not tell it that it is the wrong one.
    told: watch::Sender<u64>,
}

impl Reconnect {
    /// Held while one request is on its way: tells which connection it is on.
    pub(super) async fn request(&self) -> RwLockReadGuard<'_, u64> {
        self.made.read().await
    }

    /// Changes whenever the connection is made anew.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.told.subscribe()
    }

    /// Makes the connection anew, unless that was done since the one that was seen; gives up after `most`, and the client goes on.
    pub(super) async fn again(&self, client: &Client, seen: u64, most: Duration) {
        let anew = async {
            let mut made = self.made.write().await;
            if *made == seen {
                *made += 1;
                self.told.send_replace(*made);
                let _ = client.force_reconnection().await;
            }
        };
        let _ = tokio::time::timeout(most, anew).await;
    }
}
