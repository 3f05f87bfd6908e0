//! `cargo xtask model`: the model test, for as long as one likes.

use anyhow::Result;
use tidemill_embedded::{ENV_SERVER_BIN, Flavor};

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
    /// On the pinned Valkey, also where another server is found
    #[arg(long)]
    valkey: bool,
}

/// Builds and runs it.
pub(crate) fn run(args: &Args) -> Result<()> {
    let server = if args.valkey { setup::fetch()? } else { setup::ready()? };
    let (histories, seed) = (args.histories.to_string(), args.seed.to_string());
    let mut words = vec!["run", "--locked", "-p", "tidemill-tests", "--bin", "model", "--"];
    words.extend(["--histories", &histories, "--seed", &seed]);
    words.extend(args.mutants.then_some("--mutants"));
    shell::run(shell::cargo(&words).env(ENV_SERVER_BIN, server.path()))
}

/// Histories of CI on the server that its tests did not run on.
const CI_HISTORIES: u64 = 400;

/// The model test on the pinned Valkey, unless that is what all tests have run on.
pub(crate) fn on_valkey() -> Result<()> {
    if setup::ready()?.flavor() == Flavor::Valkey {
        eprintln!("note: the tests have run on Valkey; there is no other server here");
        return Ok(());
    }
    run(&Args { histories: CI_HISTORIES, seed: 1_000_001, mutants: false, valkey: true })
}
