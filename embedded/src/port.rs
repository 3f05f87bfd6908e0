//! A free TCP port on the loopback address.

use std::hash::{BuildHasher as _, RandomState};
use std::net::{Ipv4Addr, TcpListener};

use crate::Error;

/// Below the range from which systems pick ports for outgoing connections (32768 up on Linux, 49152 up
/// elsewhere). A server's port must not be in there: while the server is down, a client that keeps trying to
/// reconnect could be given that very port as its own and connect to itself.
const FIRST: u16 = 15_000;
const LAST: u16 = 31_999;
const TRIES: usize = 200;

/// A port that could be bound a moment ago. Another process may take it before the server does.
pub(crate) fn free() -> Result<u16, Error> {
    let span = u64::from(LAST - FIRST) + 1;
    let random = RandomState::new();
    let candidates =
        (0..TRIES).filter_map(|nth| u16::try_from(random.hash_one(nth) % span).ok()).map(|offset| FIRST + offset);
    candidates
        .into_iter()
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .ok_or(Error::NoPort { tries: TRIES })
}
