//! Where an agent service may be: which addresses are the open internet, and which of the others were allowed.
//!
//! - *It guarantees* that a connection is made only to an address that was looked at: a name's addresses are filtered in the client's
//!   own resolver, between look-up and connect, so that a name which answers differently the second time gains nothing. An address
//!   written in the URL never meets a resolver, and is looked at when the agent is made.
//! - *It refuses* all that is not plainly public, by a list of what is (`2000::/3` less its special parts; IPv4 less its special
//!   blocks), and not by a list of what is bad.
//! - It keeps nothing, so a crash changes nothing.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use futures::future::BoxFuture;
use ipnet::IpNet;
use reqwest::Url;
use reqwest::dns::{Name, Resolve, Resolving};

/// What may be reached although it is private.
#[derive(Debug, Clone, Default)]
pub(super) struct Guard {
    nets: Vec<IpNet>,
    /// The URL's own host and port are on the list: wherever it is.
    trusted: bool,
}

impl Guard {
    /// Reads `allow_private` for the agent at this URL.
    ///
    /// # Errors
    /// The entries that are neither a network nor `host:port`.
    pub(super) fn new(allowed: &[String], url: Option<&Url>) -> Result<Self, Vec<String>> {
        let (mut guard, mut wrong) = (Self::default(), Vec::new());
        for entry in allowed {
            let entry = entry.trim();
            if let Ok(net) = entry.parse() {
                guard.nets.push(net);
            } else if let Ok(ip) = entry.parse::<IpAddr>() {
                guard.nets.push(ip.into());
            } else if let Some((host, port)) = host_port(entry) {
                guard.trusted |=
                    url.is_some_and(|url| host_of(url) == host && url.port_or_known_default() == Some(port));
            } else {
                wrong.push(format!(
                    "allow_private: {entry:?} is neither a network (10.1.0.0/16, fd00::/8) nor host:port (agents.internal:8080)"
                ));
            }
        }
        if wrong.is_empty() { Ok(guard) } else { Err(wrong) }
    }

    /// Whether a connection may go there.
    ///
    /// # Errors
    /// What kind of address it is, if not.
    pub(super) fn judge(&self, ip: IpAddr) -> Result<(), &'static str> {
        let plain = ip.to_canonical();
        match kind(plain) {
            Some(kind) if !self.trusted && !self.nets.iter().any(|net| net.contains(&plain) || net.contains(&ip)) => {
                Err(kind)
            }
            _ => Ok(()),
        }
    }

    /// What of the URL alone would be refused: an address in it, or a name that is this machine by definition. Other names are looked
    /// up when they are needed.
    ///
    /// # Errors
    /// The refusal.
    pub(super) fn judge_url(&self, url: &Url) -> Result<(), Refused> {
        let host = host_of(url);
        let ips: Vec<IpAddr> = match host.trim_matches(['[', ']']).parse() {
            Ok(ip) => vec![ip],
            Err(_) if host == "localhost" || host.ends_with(".localhost") => {
                vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]
            }
            Err(_) => return Ok(()),
        };
        self.open(&host, ips.into_iter().map(|ip| SocketAddr::new(ip, 0))).map(drop)
    }

    /// Those of a host's addresses that may be reached.
    pub(super) fn open(&self, host: &str, found: impl Iterator<Item = SocketAddr>) -> Result<Vec<SocketAddr>, Refused> {
        let (mut open, mut refused) = (Vec::new(), None);
        for address in found {
            match self.judge(address.ip()) {
                Ok(()) => open.push(address),
                Err(kind) => refused = refused.or(Some(Refused { host: host.to_owned(), ip: address.ip(), kind })),
            }
        }
        match refused {
            Some(refused) if open.is_empty() => Err(refused),
            _ => Ok(open),
        }
    }
}

/// The host as the URL parser has normalised it, without the dot of a full name.
fn host_of(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    host.strip_suffix('.').unwrap_or(host).to_owned()
}

fn host_port(entry: &str) -> Option<(String, u16)> {
    let (host, port) = entry.rsplit_once(':')?;
    // Through the same parser as the agent's URL, so that both are written the same way.
    let url = Url::parse(&format!("http://{host}/")).ok()?;
    let only_host = url.path() == "/" && url.port().is_none() && url.username().is_empty() && url.query().is_none();
    (only_host && !host.contains(['/', '#'])).then_some((host_of(&url), port.parse().ok()?))
}

/// An address that must not be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    host: String,
    ip: IpAddr,
    kind: &'static str,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, ip, kind } = self;
        if host.trim_matches(['[', ']']) == ip.to_string() {
            write!(f, "refused: {ip} is a {kind} address and not in allow_private")
        } else {
            write!(f, "refused: {host} is at {ip}, a {kind} address and not in allow_private")
        }
    }
}

impl std::error::Error for Refused {}

/// Looks a name up.
pub(super) type LookUp = Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync>;

/// As the system does.
pub(super) fn system() -> LookUp {
    Arc::new(|name| Box::pin(async move { Ok(tokio::net::lookup_host((name, 0)).await?.collect()) }))
}

/// The client's resolver: looks a name up, and gives out only what the guard lets through.
pub(super) struct Resolver {
    pub(super) guard: Guard,
    pub(super) look_up: LookUp,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (guard, name) = (self.guard.clone(), name.as_str().to_owned());
        let found = (self.look_up)(name.clone());
        Box::pin(async move {
            let open = guard.open(&name, found.await?.into_iter())?;
            Ok(Box::new(open.into_iter()) as reqwest::dns::Addrs)
        })
    }
}

/// What kind of address it is; none: one of the open internet.
fn kind(ip: IpAddr) -> Option<&'static str> {
    match ip {
        IpAddr::V4(ip) => kind_v4(ip),
        IpAddr::V6(ip) => kind_v6(ip),
    }
}

fn kind_v4(ip: Ipv4Addr) -> Option<&'static str> {
    match ip.octets() {
        [0, ..] => Some("unspecified"),
        [127, ..] => Some("loopback"),
        [169, 254, 169, 254] | [168, 63, 129, 16] | [100, 100, 100, 200] => Some("metadata"),
        [169, 254, ..] => Some("link-local"),
        [10, ..] | [192, 168, ..] => Some("private"),
        [172, b, ..] if b & 0xf0 == 16 => Some("private"),
        [100, b, ..] if b & 0xc0 == 64 => Some("shared"),
        [192, 0, 0 | 2, _] | [192, 88, 99, _] | [198, 51, 100, _] | [203, 0, 113, _] => Some("reserved"),
        [198, b, ..] if b & 0xfe == 18 => Some("reserved"),
        [a, ..] if a & 0xf0 == 224 => Some("multicast"),
        [a, ..] if a & 0xf0 == 240 => Some("reserved"),
        _ => None,
    }
}

fn kind_v6(ip: Ipv6Addr) -> Option<&'static str> {
    match ip.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => Some("unspecified"),
        [0, 0, 0, 0, 0, 0, 0, 1] => Some("loopback"),
        // NAT64: as good as the IPv4 address in it. Where there is only IPv6, this is how all of IPv4 is reached.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            let [[a, b], [c, d]] = [high.to_be_bytes(), low.to_be_bytes()];
            kind_v4(Ipv4Addr::new(a, b, c, d))
        }
        [a, ..] if a & 0xfe00 == 0xfc00 => Some("private"),
        [a, ..] if a & 0xffc0 == 0xfe80 => Some("link-local"),
        [a, ..] if a & 0xff00 == 0xff00 => Some("multicast"),
        // Teredo and other protocols, documentation, 6to4: each of them could carry an IPv4 address, or is nobody's.
        [0x2001, b, ..] if b < 0x0200 || b == 0x0db8 => Some("reserved"),
        [0x2002, ..] => Some("reserved"),
        [0x3fff, b, ..] if b < 0x1000 => Some("reserved"),
        [a, ..] if a & 0xe000 == 0x2000 => None,
        _ => Some("reserved"),
    }
}
