//! The connection, held so that nothing hangs and nothing is sent twice behind our back.
//!
//! Left to itself the client re-sends what was in flight when a connection breaks, waits for ever for an answer, and queues
//! without bound while the server is away. All three are turned off here: one try a command (our own retry is around scripts that
//! are safe to send twice), a timeout on each, a bounded buffer, and a reconnect that never gives up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fred::prelude::*;
use fred::types::config::{ReconnectError, UnresponsiveConfig};
use serde::{Deserialize, Serialize};

use super::error::Error;

/// Where Redis is and how patient to be with it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RedisOptions {
    /// `redis://[user:password@]host:port[/db]`, `rediss://…` for TLS, `redis-cluster://…`, `redis-sentinel://…`, or
    /// `redis+unix:///path`. May hold a password: never shown.
    pub url: String,
    /// Longest wait for an answer to one command, in ms.
    pub command_timeout_ms: u64,
    /// Longest wait for a connection, in ms.
    pub connect_timeout_ms: u64,
    /// How long one request is tried again while the server is away, in ms; 0: one try.
    pub retry_for_ms: u64,
    /// The shard.
    pub shard: u16,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self {
            url: "redis://127.0.0.1:6379".into(),
            command_timeout_ms: 5_000,
            connect_timeout_ms: 5_000,
            retry_for_ms: 10_000,
            shard: 0,
        }
    }
}

impl std::fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisOptions")
            .field("url", &self.shown_url())
            .field("shard", &self.shard)
            .finish_non_exhaustive()
    }
}

impl RedisOptions {
    /// The URL without what is secret: fit for logs and errors.
    #[must_use]
    pub fn shown_url(&self) -> String {
        let Some((scheme, rest)) = self.url.split_once("://") else { return "(not a URL)".into() };
        let address = rest.split('?').next().unwrap_or_default();
        let after_secret = address.rfind('@').map_or(address, |at| &address[at + 1..]);
        format!("{scheme}://{after_secret}")
    }
}

/// What a URL may begin with.
const SCHEMES: &[&str] =
    &["redis", "rediss", "redis-cluster", "rediss-cluster", "redis-sentinel", "rediss-sentinel", "redis+unix"];
/// Most commands waiting for a connection before new ones are refused.
const BUFFERED_COMMANDS_MAX: usize = 10_000;

fn builder(options: &RedisOptions) -> Result<Builder, Error> {
    let known = SCHEMES.iter().any(|scheme| options.url.split("://").next() == Some(scheme));
    let config = Some(()).filter(|()| known).and_then(|()| Config::from_url(&options.url).ok()).ok_or_else(|| {
        Error::Settings(format!(
            "cannot read the URL {}; forms: redis://host:port, rediss://…, redis-cluster://…, redis-sentinel://…, redis+unix:///path",
            options.shown_url()
        ))
    })?;
    let timeout = Duration::from_millis(options.command_timeout_ms.max(1));
    let mut builder = Builder::from_config(config);
    builder
        .with_connection_config(|c| {
            c.connection_timeout = Duration::from_millis(options.connect_timeout_ms.max(1));
            c.internal_command_timeout = timeout;
            c.max_command_attempts = 1;
            c.max_command_buffer_len = BUFFERED_COMMANDS_MAX;
            c.unresponsive = UnresponsiveConfig {
                max_timeout: Some(timeout * 2),
                interval: Duration::from_millis(500).min(timeout),
            };
            c.reconnect_errors = vec![
                ReconnectError::ReadOnly,
                ReconnectError::Loading,
                ReconnectError::ClusterDown,
                ReconnectError::MasterDown,
                ReconnectError::Custom("UNBLOCKED"),
            ];
        })
        .with_performance_config(|p| p.default_command_timeout = timeout)
        .set_policy(ReconnectPolicy::new_exponential(0, 20, 1_000, 2));
    Ok(builder)
}

/// One connected client; the driver's task ends when the last handle quits.
pub(super) async fn connect(options: &RedisOptions) -> Result<(Client, Arc<AtomicU64>), Error> {
    let client = builder(options)?.build().map_err(|e| Error::Settings(e.to_string()))?;
    let reconnects = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&reconnects);
    client.on_reconnect(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Ok(()))
    });
    // Subscribed to the outcome before the driver starts: it may be done before we look.
    let waiter = client.clone();
    let mut connected = std::pin::pin!(waiter.wait_for_connect());
    let _ = futures::poll!(connected.as_mut());
    let driver = client.connect();
    let patience = Duration::from_millis(options.connect_timeout_ms.max(1));
    match tokio::time::timeout(patience, connected).await {
        Ok(Ok(())) => Ok((client, reconnects)),
        Ok(Err(source)) => {
            driver.abort();
            Err(Error::of("connect", source))
        }
        Err(_) => {
            driver.abort();
            Err(Error::Unavailable {
                op: "connect",
                source: fred::error::Error::new(fred::error::ErrorKind::Timeout, "no connection in time"),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        for url in ["redis://u:p%40s@h:1/0", "redis://:s@cr:et@h:1/0", "rediss://h:1?password=a@bx"] {
            let shown = format!("{:?}", RedisOptions { url: url.into(), ..RedisOptions::default() });
            for secret in ["p%40s", "s@cr", "password", "bx"] {
                assert!(!shown.contains(secret), "{shown}");
            }
            assert!(shown.contains("://h:1"), "{shown}");
        }
    }
}
