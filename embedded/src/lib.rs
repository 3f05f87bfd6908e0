//! A private Redis or Valkey server, for the `worker dev` command and for tests.
//!
//! Tidemill needs a server, and a first try of Tidemill should not. This crate finds a server binary on the
//! machine ([`find_server`]), starts it as a child on a Unix socket that only this user may open
//! ([`Server::start`]), and ends it in every case it can: on drop, and by the kernel when this process is
//! killed ([`child`]).
//!
//! It is never used by `worker run`. It knows neither tokio nor fred, blocks, and must not be called from a
//! running async task.
//!
//! ```no_run
//! use tidemill_embedded::{Options, Reply, Server};
//!
//! let server = Server::start(Options::new())?;
//! assert_eq!(server.command(&["PING"])?, Reply::Simple("PONG".to_owned()));
//! println!("fred may connect to {}", server.url());
//! # Ok::<(), tidemill_embedded::Error>(())
//! ```
//!
//! What it promises: the server listens on nothing but the socket unless TCP was asked for, and then on
//! 127.0.0.1; its configuration file is readable by this user only; it runs with `maxmemory-policy
//! noeviction`, as a queue must; two servers never share a data directory. What it refuses: binaries older
//! than Redis 7.0 or Valkey 7.2, and socket paths that a URL cannot carry to fred unchanged.

pub mod child;
mod error;
mod find;
mod layout;
mod lock;
mod options;
mod port;
mod resp;
mod server;
mod socket;
mod up;
mod wait;

#[cfg(test)]
mod tests;

pub use error::Error;
pub use find::{
    ENV_HOME, ENV_SERVER_BIN, Flavor, HOME_DIR, ServerBinary, Version, WHEEL_DIR, find_server, home_dir, wheel_binary,
};
pub use lock::running_socket;
pub use options::{Options, Storage, Tcp};
pub use resp::{Connection, Reply};
pub use server::Server;
