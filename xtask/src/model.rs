//! `cargo xtask model`: the model test, for as long as one likes.

use anyhow::Result;
use tidemill_embedded::ENV_SERVER_BIN;

use crate::{setup, shell};

/// Options of `model`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many histories
    #[arg(long, default_value_t = 10_000)]
    histories: u64,
    /// The first history's seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Break the scripts on purpose, one way after the other, and see whether the test finds it
    #[arg(long)]
    mutants: bool,
}

/// Builds and runs it.
pub(crate) fn run(args: &Args) -> Result<()> {
    let server = setup::ready()?;
    let (histories, seed) = (args.histories.to_string(), args.seed.to_string());
    let mut words = vec!["run", "--locked", "-p", "tidemill-tests", "--bin", "model", "--"];
    words.extend(["--histories", &histories, "--seed", &seed]);
    words.extend(args.mutants.then_some("--mutants"));
    shell::run(shell::cargo(&words).env(ENV_SERVER_BIN, server.path()))
}
