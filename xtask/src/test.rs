//! `cargo xtask test`: everything that a test run needs, then all tests.

use anyhow::Result;
use tidemill_embedded::ENV_SERVER_BIN;

use crate::{sdk, setup, shell, tools};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Leave out the doctests
    #[arg(long)]
    no_doc: bool,

    /// Arguments for `cargo nextest run`, such as a part of a test's name; with any, the packages of sdk/ are left
    /// out
    #[arg(last = true, value_name = "NEXTEST ARGS")]
    nextest: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    nextest("default", &args.nextest)?;
    if !args.no_doc {
        doctests()?;
    }
    if args.nextest.is_empty() {
        sdk::python()?;
        sdk::node_tests()?;
    }
    Ok(())
}

/// Sets up a server, builds the programs that tests start, and runs the tests with a profile of
/// `.config/nextest.toml`.
pub(crate) fn nextest(profile: &str, args: &[String]) -> Result<()> {
    let server = setup::ready()?;
    shell::run(&mut shell::cargo(&["build", "--workspace", "--bins", "--locked"]))?;
    let mut run = tools::NEXTEST.command(&["run", "--workspace", "--locked", "--profile", profile])?;
    // The tests use the very server that was checked, and a Node.js that `sdk/node` supports.
    shell::run(run.args(args).env(ENV_SERVER_BIN, server.path()).env(sdk::ENV_NODE, sdk::node()?))
}

/// Nextest does not run these.
pub(crate) fn doctests() -> Result<()> {
    shell::run(&mut shell::cargo(&["test", "--doc", "--workspace", "--locked"]))
}
