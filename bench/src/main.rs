//! `cargo xtask bench`: what Tidemill costs and how fast it is, on a private server without persistence.
//!
//! Every phase is one worker process beside one producer process, as a user would have them; the payload is the one of the peers
//! that we measure against (submit time and 100 bytes). Figures are medians of `--runs`. On two cores the server, the worker and
//! the producer share the machine: leave it otherwise idle, and compare only what was measured in one sitting.

mod consumer;
mod cost;
mod lab;
mod phases;
mod scale;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "tidemill-bench", about = "Measures Tidemill on a private server", max_term_width = 100)]
struct Cli {
    /// Runs a phase, of which the median counts.
    #[arg(long, global = true, default_value_t = 3)]
    runs: usize,
    /// Tasks in a phase.
    #[arg(long, global = true, default_value_t = 100_000)]
    tasks: usize,
    /// Tasks at once in the worker.
    #[arg(long, global = true, default_value_t = 200)]
    concurrency: u32,
    #[command(subcommand)]
    phase: Option<Phase>,
}

#[derive(Debug, Subcommand)]
enum Phase {
    /// Everything but `scale` and `expiry`.
    All,
    /// Many tasks wait, then one worker starts: tasks a second from the first start to the last.
    Drain,
    /// A drain with a slot, a rate and a budget on every task, over a thousand tenants, against one without.
    Gated,
    /// An idle worker, then a producer submits: tasks a second from the first submit to the last start.
    Both,
    /// 200 tasks a second on an idle worker: from submit to the handler's start.
    Pickup,
    /// Bytes of Redis a waiting task, beyond its payload.
    Memory,
    /// Commands a second that idle workers send.
    Idle,
    /// Redis CPU a task of each script at batches of 1 to 256, beside the bare stream commands.
    Cost,
    /// Redis CPU a task from submit to settle, with the expiry of its outcome two minutes later.
    Expiry,
    /// The cost of a task with a million others waiting, against a thousand.
    Scale {
        /// Tasks waiting in the large case; scheduled, lined up and pending ones in proportion.
        #[arg(long, default_value_t = 1_000_000)]
        waiting: usize,
        /// Interleaved pairs.
        #[arg(long, default_value_t = 7)]
        pairs: usize,
    },
    /// The worker process of a phase (internal).
    #[command(hide = true)]
    Worker(consumer::Args),
}

#[tokio::main]
async fn main() -> Result<()> {
    let cli = Cli::parse();
    let runs = phases::Runs { runs: cli.runs.max(1), tasks: cli.tasks.max(100), concurrency: cli.concurrency };
    match cli.phase.unwrap_or(Phase::All) {
        Phase::All => {
            phases::drain(&runs).await?;
            phases::gated(&runs).await?;
            phases::both(&runs).await?;
            phases::pickup(&runs).await?;
            phases::memory(&runs).await?;
            phases::idle(&runs).await
        }
        Phase::Drain => phases::drain(&runs).await,
        Phase::Gated => phases::gated(&runs).await,
        Phase::Both => phases::both(&runs).await,
        Phase::Pickup => phases::pickup(&runs).await,
        Phase::Memory => phases::memory(&runs).await,
        Phase::Idle => phases::idle(&runs).await,
        Phase::Cost => cost::run(cli.runs.max(1)).await,
        Phase::Expiry => phases::expiry(&runs).await,
        Phase::Scale { waiting, pairs } => scale::run(waiting, pairs).await,
        Phase::Worker(args) => consumer::run(args).await,
    }
}
