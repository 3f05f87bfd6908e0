//! The connection, held so that nothing hangs and nothing is sent twice behind our back.
//!
//! Left to itself the client re-sends what was in flight when a connection breaks, waits for ever for an answer, and queues
//! without bound while the server is away. All three are turned off here: one try a command (our own retry is around scripts that
//! are safe to send twice), a timeout on each, a bounded buffer, and a reconnect that never gives up. Nor does it reconnect at an error
//! that is a reply: [`super::reconnect`] does, when all that is on its way has been answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fred::prelude::*;
use fred::types::config::UnresponsiveConfig;
use serde::{Deserialize, Serialize};

use super::error::Error;

/// Where Redis is and how patient to be with it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RedisOptions {
    /// `redis://[user:password@]host:port[/db]`, `rediss://…` for TLS, `redis-cluster://…`, `redis+unix:///path`, or
    /// `redis-sentinel://[user:password@]host:port[/db]?sentinelServiceName=NAME`, where host and port are a sentinel's (others:
    /// `&node=host:port`, its own login: `&sentinelUsername=…&sentinelPassword=…`). May hold a password: never shown.
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

    /// Whether the URL is one; what is wrong with it if not, without what is secret.
    ///
    /// # Errors
    /// [`Error::Settings`].
    pub fn check(&self) -> Result<(), Error> {
        self.config().map(|_| ())
    }

    fn config(&self) -> Result<Config, Error> {
        let shown = self.shown_url();
        let (scheme, rest) = self.url.split_once("://").unwrap_or((&self.url, ""));
        let config = SCHEMES.contains(&scheme).then(|| Config::from_url(&self.url).ok()).flatten();
        if scheme.ends_with("-sentinel") {
            let asked = rest.split_once('?').map_or("", |(_, asked)| asked).split('&').filter(|part| !part.is_empty());
            let names: Vec<&str> = asked.map(|part| part.split('=').next().unwrap_or(part)).collect();
            let strange = names.iter().any(|name| !SENTINEL_NAMES.contains(name));
            if config.is_none() || strange {
                return Err(Error::Settings(format!("{shown} is no URL of a sentinel; its form: {SENTINEL_FORM}")));
            }
        }
        config.ok_or_else(|| Error::Settings(format!("{shown} is no URL of a server; forms: {FORMS}")))
    }
}

/// What a URL may begin with.
const SCHEMES: &[&str] =
    &["redis", "rediss", "redis-cluster", "rediss-cluster", "redis-sentinel", "rediss-sentinel", "redis+unix"];
const FORMS: &str = "redis://host:port, rediss://…, redis-cluster://…, redis+unix:///path, \
                     redis-sentinel://host:port?sentinelServiceName=NAME";
const SENTINEL_FORM: &str = "redis-sentinel://[user:password@]host:port[/db]?sentinelServiceName=NAME[&node=host:port…]\
                             [&sentinelUsername=…&sentinelPassword=…]";
/// What the URL of a sentinel may say behind its question mark; another word, left unread, would be a password that is not sent.
const SENTINEL_NAMES: [&str; 4] = ["sentinelServiceName", "node", "sentinelUsername", "sentinelPassword"];
/// Most commands waiting for a connection before new ones are refused.
const BUFFERED_COMMANDS_MAX: usize = 10_000;

fn builder(options: &RedisOptions) -> Result<Builder, Error> {
    let timeout = Duration::from_millis(options.command_timeout_ms.max(1));
    let mut builder = Builder::from_config(options.config()?);
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
            // The client would tell the one error to all that was on its way: see `reconnect.rs`.
            c.reconnect_errors = Vec::new();
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

    #[test]
    fn urls_are_checked() {
        let check = |url: &str| RedisOptions { url: url.into(), ..RedisOptions::default() }.check();
        let service = "sentinelServiceName=mymaster";
        for url in [
            "redis://h:1/0".to_owned(),
            "redis+unix:///tmp/x.sock".to_owned(),
            format!("redis-sentinel://h:26379?{service}"),
            format!("rediss-sentinel://u:p@h:1/2?{service}&node=g:1&node=f:2&sentinelUsername=s&sentinelPassword=t"),
        ] {
            assert!(check(&url).is_ok(), "{url}");
        }
        for url in ["", "h:1", "http://h:1", "redis:///", "redis+unix:/", "redis-sentinel://h:1"] {
            assert!(check(url).is_err(), "{url}");
        }
        let wrong = check(&format!("redis-sentinel://u:s3cret@h:1?{service}&sentinelPasword=s3cret")).unwrap_err();
        let text = wrong.to_string();
        assert!(text.contains("sentinelServiceName=NAME") && !text.contains("s3cret"), "{text}");
    }
}
