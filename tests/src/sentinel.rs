//! Sentinels: they watch a primary and its replicas, tell clients where the primary is, and put a replica in its place.
//!
//! The server's own binary is a sentinel when its file is called so.

use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tidemill_embedded::{Options, Reply, Server, ServerBinary, Tcp};

use crate::server;

/// What the primary is called.
pub const SERVICE: &str = "mymaster";
/// After so long a silence the primary is down.
const DOWN_AFTER_MS: u64 = 400;
/// How long one failover may take before another is begun.
const FAILOVER_MS: u64 = 5_000;

/// Some sentinels around one primary. They end with the value.
#[derive(Debug)]
pub struct Sentinels {
    servers: Vec<Server>,
    _folder: TempDir,
}

impl Sentinels {
    /// Starts so many around this primary, which listens on TCP and has its replicas by now. Most of them have to agree.
    ///
    /// # Panics
    /// When one does not start.
    #[must_use]
    pub fn start(n: usize, primary: &Server) -> Self {
        let folder = tempfile::Builder::new().prefix("tidemill-sentinel-").tempdir().expect("a folder");
        let path = folder.path().join("redis-sentinel");
        symlink(server::binary().path(), &path).expect("a name for the sentinel");
        let binary = ServerBinary::at(path).unwrap_or_else(|e| panic!("no sentinel: {e}"));
        let (port, quorum) = (primary.port().expect("a primary on TCP"), n / 2 + 1);
        let start = |_| {
            let options = Options::new()
                .binary(binary.clone())
                .tcp(Tcp::Free)
                .config_line(format!("sentinel monitor {SERVICE} 127.0.0.1 {port} {quorum}"))
                .config_line(format!("sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}"))
                .config_line(format!("sentinel failover-timeout {SERVICE} {FAILOVER_MS}"));
            Server::start(options).unwrap_or_else(|e| panic!("no sentinel: {e}"))
        };
        Self { servers: (0..n).map(start).collect(), _folder: folder }
    }

    /// Where clients ask.
    ///
    /// # Panics
    /// Never: all have ports.
    #[must_use]
    pub fn url(&self) -> String {
        let ports: Vec<u16> = self.servers.iter().map(|server| server.port().expect("a port")).collect();
        let others: String = ports[1..].iter().map(|port| format!("&node=127.0.0.1:{port}")).collect();
        format!("redis-sentinel://127.0.0.1:{}?sentinelServiceName={SERVICE}{others}", ports[0])
    }

    /// One command to the first.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    pub fn ask(&self, args: &[&str]) -> Reply {
        self.servers[0].command(args).unwrap_or_else(|e| panic!("no answer of the sentinel: {e}"))
    }

    /// Whether all know each other and this replica, and would put it in the primary's place.
    ///
    /// # Errors
    /// What they know instead.
    pub fn know(&self, replica: &Server) -> Result<(), String> {
        let port = replica.port().expect("a replica on TCP").to_string();
        for server in &self.servers {
            let ask = |what: &str| server.command(&["SENTINEL", what, SERVICE]).map_err(|e| e.to_string());
            let (replicas, others) = (ask("REPLICAS")?, ask("SENTINELS")?);
            let fit = replicas.as_array().is_some_and(|all| {
                all.iter().any(|one| {
                    let field = |name: &str| field(one, name);
                    field("port") == Some(&port)
                        && field("flags") == Some("slave")
                        && field("master-link-status") == Some("ok")
                })
            });
            if !fit || others.as_array().map(<[Reply]>::len) != Some(self.servers.len() - 1) {
                return Err(format!("replicas: {replicas:?}; sentinels: {others:?}"));
            }
        }
        Ok(())
    }

    /// The port of the primary, as they tell clients.
    ///
    /// # Panics
    /// When they do not.
    #[must_use]
    pub fn primary(&self) -> u16 {
        let address = self.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE]);
        let port = address.as_array().and_then(|both| both[1].as_str()?.parse().ok());
        port.unwrap_or_else(|| panic!("no address: {address:?}"))
    }

    /// Tells them to put the replica in the primary's place, as an operator does.
    ///
    /// # Panics
    /// When they do not agree to do it.
    pub fn fail_over(&self) {
        let by = Instant::now() + Duration::from_secs(10);
        loop {
            match self.ask(&["SENTINEL", "FAILOVER", SERVICE]) {
                Reply::Simple(_) => return,
                other => assert!(Instant::now() < by, "no failover: {other:?}"),
            }
        }
    }
}

/// A value out of a list of names and values.
fn field<'a>(list: &'a Reply, name: &str) -> Option<&'a str> {
    list.as_array()?.chunks(2).find(|pair| pair[0].as_str() == Some(name))?.get(1)?.as_str()
}
