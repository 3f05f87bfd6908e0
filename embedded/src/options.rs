//! What kind of private server to start.

use std::path::PathBuf;
use std::time::Duration;

use crate::ServerBinary;

/// A healthy server answers after some 20 to 50 ms; this leaves room for a machine that is busy with a whole
/// test suite.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// Where the server keeps its data, and with that, how it ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Storage {
    /// In memory only. Everything is gone after a restart; the child gets SIGKILL when its parent dies. For
    /// tests.
    #[default]
    Memory,
    /// An append-only file in the private temporary directory. Data lives through
    /// [`Server::restart`](crate::Server::restart), also after [`Server::kill`](crate::Server::kill), and is
    /// removed with the [`Server`](crate::Server). For tests of restarts.
    Temporary,
    /// An append-only file in this directory, which is created when missing (mode 0700) and kept.
    /// `appendfsync everysec`: a crash of the machine can lose the last second, a crash of the server alone
    /// loses nothing. The child gets SIGTERM when its parent dies, and saves. One server at a time: the
    /// directory is locked for as long as the server process lives. For development.
    Directory(PathBuf),
}

/// Whether the server also listens on TCP (always on 127.0.0.1 only).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tcp {
    /// Only on the Unix socket.
    #[default]
    Off,
    /// On a port that was free a moment ago; kept over restarts.
    Free,
    /// On this port.
    Port(u16),
}

/// How to start a [`Server`](crate::Server). The default is the server of a test: in memory, Unix socket
/// only.
#[derive(Debug, Clone)]
#[must_use]
pub struct Options {
    pub(crate) binary: Option<ServerBinary>,
    pub(crate) storage: Storage,
    pub(crate) tcp: Tcp,
    pub(crate) socket: Option<PathBuf>,
    pub(crate) lines: Vec<String>,
    pub(crate) ready_within: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            binary: None,
            storage: Storage::default(),
            tcp: Tcp::default(),
            socket: None,
            lines: Vec::new(),
            ready_within: READY_WITHIN,
        }
    }
}

impl Options {
    /// The server of a test: in memory, Unix socket only.
    pub fn new() -> Self {
        Options::default()
    }

    /// Takes this binary instead of what [`find_server`](crate::find_server) finds.
    pub fn binary(mut self, binary: ServerBinary) -> Self {
        self.binary = Some(binary);
        self
    }

    /// Where the data goes; default [`Storage::Memory`].
    pub fn storage(mut self, storage: Storage) -> Self {
        self.storage = storage;
        self
    }

    /// Whether to listen on TCP too; default [`Tcp::Off`].
    pub fn tcp(mut self, tcp: Tcp) -> Self {
        self.tcp = tcp;
        self
    }

    /// Puts the Unix socket here, at a path that others know beforehand. Default: `redis.sock` in the data
    /// directory when such a path fits, else in a private temporary directory. The parent directory must
    /// exist and should be private.
    pub fn socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.socket = Some(path.into());
        self
    }

    /// Adds a line to the server's configuration file, after all others, so it wins: `"maxmemory 8mb"`. May
    /// be called repeatedly. The text is not checked; a line that the server refuses makes the start fail
    /// with the server's words.
    pub fn config_line(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// How long the server may take to answer its first PING; default 10 s. While it says that it is loading
    /// its data, the limit is ten minutes instead.
    pub fn ready_within(mut self, limit: Duration) -> Self {
        self.ready_within = limit;
        self
    }
}
