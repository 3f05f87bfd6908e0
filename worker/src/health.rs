//! `worker health`: asks a running worker, without an HTTP client.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::time::Duration;

/// A worker that takes longer to say so is not healthy.
const PATIENCE: Duration = Duration::from_secs(3);
/// A status line and a sentence.
const ANSWER_BYTES_MAX: u64 = 8 << 10;

/// The address that answers for a listener: one that is bound to all of them answers on this machine's own.
pub(crate) fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

/// Asks `/readyz` below `url` (`http://host:port`). Blocks for a few seconds at most.
///
/// # Errors
/// Why the worker is not ready, in one line.
pub(crate) fn ask(url: &str) -> Result<(), String> {
    let host = url.strip_prefix("http://").unwrap_or(url).split('/').next().unwrap_or_default();
    let no = |why: &dyn std::fmt::Display| format!("{host} does not answer: {why}");
    let address = host.to_socket_addrs().map_err(|e| no(&e))?.next().ok_or_else(|| no(&"it has no address"))?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(|e| no(&e))?;
    stream
        .set_read_timeout(Some(PATIENCE))
        .and_then(|()| stream.set_write_timeout(Some(PATIENCE)))
        .map_err(|e| no(&e))?;
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(|e| no(&e))?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).map_err(|e| no(&e))?;
    judge(&String::from_utf8_lossy(&answer))
}

fn judge(answer: &str) -> Result<(), String> {
    let status = answer.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
    match status {
        Some("200") => Ok(()),
        Some(status) => {
            let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body).trim();
            Err(format!("{body} ({status})"))
        }
        None => Err("what answers is no worker".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_judged_by_their_status() {
        assert_eq!(judge("HTTP/1.1 200 OK\r\n\r\nready\n"), Ok(()));
        let not = judge("HTTP/1.1 503 Service Unavailable\r\nx: y\r\n\r\nnot consuming\n");
        assert_eq!(not, Err("not consuming (503)".to_owned()));
        assert!(judge("SSH-2.0").is_err() && judge("").is_err());
    }

    #[test]
    fn a_listener_on_all_addresses_is_asked_on_this_machine() {
        for (listen, asked) in [("0.0.0.0:1", "127.0.0.1:1"), ("[::]:1", "[::1]:1"), ("10.0.0.1:1", "10.0.0.1:1")] {
            assert_eq!(reachable(listen.parse().unwrap()), asked.parse().unwrap());
        }
    }

    #[test]
    fn nobody_there_is_said() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert!(ask(&format!("http://{free}")).unwrap_err().contains("does not answer"));
    }
}
