//! The program `worker` with its admin page: whether it says that it is ready, while a fault lasts.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::lab::{Lab, WorkerProcess};
use crate::program::Program;

/// How long a page may take; those that are asked for here do not ask Redis.
const PAGE: Duration = Duration::from_secs(5);
/// For what must not hang.
const PATIENCE: Duration = Duration::from_secs(30);

/// A `worker run` of the agents `echo` and `sleep`, with the lab's times, that has an admin page.
#[derive(Debug)]
pub struct Watched {
    /// The program.
    pub program: Program,
    address: String,
}

impl Watched {
    /// Starts it at this URL, and waits until it says that it is ready.
    ///
    /// # Panics
    /// When it does not start, or is not ready in time.
    pub async fn start(lab: &Lab, url: &str) -> Self {
        let watched = Self::begin(lab, url).await;
        watched.until_ready(lab, true).await;
        watched
    }

    /// Starts it at this URL.
    ///
    /// # Panics
    /// When it does not say where its admin page is.
    pub async fn begin(lab: &Lab, url: &str) -> Self {
        let times =
            [lab.profile.lease, lab.profile.renew, lab.profile.sweep].map(|time| format!("{}ms", time.as_millis()));
        let env = [
            ("TIDEMILL__REDIS__URL", url),
            ("TIDEMILL__WORKER__LEASE", &times[0]),
            ("TIDEMILL__WORKER__RENEW", &times[1]),
            ("TIDEMILL__WORKER__SWEEP", &times[2]),
            ("TIDEMILL__WORKER__CONNECT_WITHIN", "1m"),
        ];
        let args = ["run", "--name", "watched", "--admin", "127.0.0.1:0", "--agents", "echo,sleep"];
        let program = Program::start("worker", &args, &env);
        let address = lab
            .until("it says where its admin page is", PATIENCE, async || {
                let out = program.out();
                let line = out.lines().find_map(|line| line.strip_prefix("admin http://").map(str::to_owned));
                line.ok_or(out)
            })
            .await;
        Self { program, address }
    }

    /// The status of one of its pages; none: it does not answer.
    #[must_use]
    pub fn status(&self, path: &str) -> Option<u16> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        stream.set_read_timeout(Some(PAGE)).ok()?;
        let host = &self.address;
        stream
            .write_all(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes())
            .ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.split(' ').nth(1)?.parse().ok()
    }

    /// Whether it is ready. It is alive in any case.
    ///
    /// # Panics
    /// When it does not say so.
    #[must_use]
    pub fn ready(&self) -> bool {
        assert_eq!(self.status("/livez"), Some(200), "the process is alive");
        match self.status("/readyz") {
            Some(200) => true,
            Some(503) => false,
            other => panic!("no answer to the question whether it is ready: {other:?}"),
        }
    }

    /// Waits until it says that it is, or is not, ready.
    ///
    /// # Panics
    /// When it does not in time.
    pub async fn until_ready(&self, lab: &Lab, ready: bool) {
        let what = if ready { "it is ready" } else { "it is not ready" };
        lab.until(what, PATIENCE, async || if self.ready() == ready { Ok(()) } else { Err("not so".into()) }).await;
    }

    /// Tells it to stop; all that it ran has ended.
    ///
    /// # Panics
    /// When it has not drained.
    pub async fn stop(self) {
        self.program.signal(nix::sys::signal::Signal::SIGTERM);
        assert_eq!(self.program.exit(PATIENCE).await.code(), Some(0), "drained");
    }
}

/// Connections to the lab's server, but for the one that asks; those that are only short-lived come and go.
///
/// # Panics
/// When the server does not say.
#[must_use]
pub fn connections(lab: &Lab) -> usize {
    let list = lab.raw(&["CLIENT", "LIST", "TYPE", "normal"]);
    let text = list.as_str().unwrap_or_else(|| panic!("no list of clients: {list:?}"));
    text.lines().filter(|line| !line.contains("cmd=client|list")).count()
}

/// The same processes as before, and the same number of connections: nobody has left and nothing has leaked.
///
/// # Panics
/// When somebody has ended, or connections do not come back to their number in time.
pub async fn as_before(lab: &Lab, workers: &[WorkerProcess], before: usize) {
    assert!(workers.iter().all(|worker| worker.ended().is_none()), "nobody has ended");
    lab.until(&format!("there are {before} connections, as before"), PATIENCE, async || match connections(lab) {
        n if n == before => Ok(()),
        n => Err(format!("{n} are: {:?}", lab.raw(&["CLIENT", "LIST"]))),
    })
    .await;
}
