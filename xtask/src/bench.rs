//! `cargo xtask bench`: builds the benchmark for release and runs it on a private server.

use std::process::Command;

use anyhow::Result;
use tidemill_embedded::ENV_SERVER_BIN;

use crate::{setup, shell};

/// Options of `bench`: handed on.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Phase and options of the benchmark; `cargo xtask bench -- --help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "BENCH ARGS")]
    rest: Vec<String>,
}

/// Builds and runs it.
pub(crate) fn run(args: &Args) -> Result<()> {
    let server = setup::ready()?;
    shell::run(&mut shell::cargo(&["build", "--locked", "--release", "-p", "tidemill-bench"]))?;
    let program = shell::target().join("release/tidemill-bench");
    shell::run(Command::new(program).args(&args.rest).env(ENV_SERVER_BIN, server.path()))
}
