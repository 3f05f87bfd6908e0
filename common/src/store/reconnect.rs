//! A connection made anew because the server on it is not the one to ask (any more), with nobody's answer lost.
//!
//! A server that was made a replica says so in a reply, and the connection stays. Making it anew asks a sentinel, a cluster or the
//! resolver where the primary is. The client could do it by itself, but would give the one reply to all requests that are on their
//! way; whether *they* were refused would not be known. So each keeps its own reply here, and the new connection waits for them.

use std::time::Duration;

use fred::interfaces::ClientLike as _;
use fred::prelude::Client;
use tokio::sync::{RwLock, RwLockReadGuard};

/// How often the connection was made anew; read while a request is on its way.
#[derive(Debug, Default)]
pub(super) struct Reconnect(RwLock<u64>);

impl Reconnect {
    /// Held while one request is on its way: tells which connection it is on.
    pub(super) async fn request(&self) -> RwLockReadGuard<'_, u64> {
        self.0.read().await
    }

    /// Makes the connection anew, unless that was done since the one that was seen; gives up after `most`, and the client goes on.
    pub(super) async fn again(&self, client: &Client, seen: u64, most: Duration) {
        let anew = async {
            let mut made = self.0.write().await;
            if *made == seen {
                *made += 1;
                let _ = client.force_reconnection().await;
            }
        };
        let _ = tokio::time::timeout(most, anew).await;
    }
}
