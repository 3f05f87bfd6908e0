//! Reaching Redis at the start, within bounds, and saying plainly when that fails.

use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use tidemill_common::config::{Loaded, Mistakes};
use tidemill_common::store::{Error as StoreError, Store};

use crate::config::Config;
use crate::run::Failure;

/// Between tries to reach Redis.
const PAUSE: Duration = Duration::from_millis(250);
/// How long to knock for a better explanation.
const KNOCK_FOR: Duration = Duration::from_secs(1);
const PORT_DEFAULT: u16 = 6379;

/// Reaches Redis within the time that the configuration gives.
pub(crate) async fn connect(loaded: &Loaded<Config>) -> Result<Store, Failure> {
    let (config, began) = (&loaded.value, Instant::now());
    let within = config.worker.connect_within;
    let mut redis = config.redis.clone();
    let patience = u64::try_from(within.as_millis()).unwrap_or(u64::MAX).max(1);
    redis.connect_timeout_ms = redis.connect_timeout_ms.min(patience);
    redis.retry_for_ms = redis.retry_for_ms.min(patience);
    loop {
        match Store::connect(&redis).await {
            Ok(store) => return Ok(store),
            Err(error) if error.is_transient() && began.elapsed() < within => {
                tracing::debug!(%error, "Redis is not reached yet");
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) if error.is_transient() => return Err(unreachable(loaded, &error)),
            Err(StoreError::Settings(what)) => return Err(Mistakes(vec![format!("redis: {what}")]).into()),
            Err(error) => return Err(anyhow::Error::new(error).context("Redis cannot be used").into()),
        }
    }
}

fn unreachable(loaded: &Loaded<Config>, error: &StoreError) -> Failure {
    let (url, tried) = (loaded.value.redis.shown_url(), loaded.value.worker.connect_within);
    let first = || std::iter::successors(Some(error as &dyn std::error::Error), |e| e.source()).last();
    let cause = knock(&url).or_else(|| first().map(ToString::to_string)).unwrap_or_default();
    Failure::Unreachable(format!(
        "Redis is not reached at {url} (redis.url, from {})\n  cause  {cause}; tried for {tried:?}\n  try    \
         `worker dev` for a server of its own, or set TIDEMILL__REDIS__URL (`worker config show --origins` says what is set)",
        loaded.origin("redis.url"),
    ))
}

/// What the operating system says when we connect without speaking: the Redis client only knows that time ran out. None: it opens.
fn knock(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    if scheme.ends_with("+unix") {
        return UnixStream::connect(rest).err().map(|e| e.to_string());
    }
    let host = rest.split('/').next().unwrap_or_default();
    let address = if host.ends_with(|c: char| c.is_ascii_digit()) && host.rsplit_once(':').is_some() {
        host.to_socket_addrs()
    } else {
        (host, PORT_DEFAULT).to_socket_addrs()
    };
    match address.map(|mut all| all.next()) {
        Err(error) => Some(error.to_string()),
        Ok(None) => Some("the host has no address".to_owned()),
        Ok(Some(address)) => TcpStream::connect_timeout(&address, KNOCK_FOR).err().map(|e| e.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knocking_tells_why_nobody_opens() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        assert_eq!(knock(&format!("redis://{address}/0")), None);
        drop(free);
        assert!(knock(&format!("redis://{address}")).unwrap().contains("refused"));
        assert!(knock("redis+unix:///nowhere/redis.sock").unwrap().contains("No such file"));
    }
}
