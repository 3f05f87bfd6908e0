//! `cargo xtask demo`: builds the programs, then runs the demo on a private server.

use std::process::Command;

use anyhow::Result;
use tidemill_embedded::ENV_SERVER_BIN;

use crate::{setup, shell};

/// Options of `demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Builds and runs it.
pub(crate) fn run(_args: &Args) -> Result<()> {
    let server = setup::ready()?;
    let programs = ["-p", "tidemill-worker", "-p", "tidemill-producer", "-p", "tidemill-demo"];
    shell::run(shell::cargo(&["build", "--locked"]).args(programs))?;
    shell::run(Command::new(shell::target().join("debug/tidemill-demo")).env(ENV_SERVER_BIN, server.path()))
}
