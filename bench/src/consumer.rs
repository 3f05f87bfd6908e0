//! The worker process of a phase: a handler that does one thing, it notes when the task was submitted and when it started.

use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use tidemill_common::store::RedisOptions;
use tidemill_worker::{Context, Options, Outcome, Registry, Shutdown, Worker};

/// What the worker process is told.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(long)]
    url: String,
    #[arg(long)]
    concurrency: u32,
    /// Where the times go at the end: 16 bytes a task, submit and start in ns.
    #[arg(long)]
    record: PathBuf,
}

/// Now, in ns since the epoch: both processes are on one machine.
pub(crate) fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}

/// Runs until SIGTERM, then writes the record.
pub(crate) async fn run(args: Args) -> Result<()> {
    let times: Arc<Mutex<Vec<(u64, u64)>>> = Arc::new(Mutex::new(Vec::with_capacity(1 << 20)));
    let noted = Arc::clone(&times);
    let agents = Registry::new().with("noop".parse()?, move |context: Context| {
        let start = now_ns();
        let submit = context.payload().get(..8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_be_bytes);
        noted.lock().unwrap_or_else(PoisonError::into_inner).push((submit, start));
        std::future::ready(Outcome::done(&b"ok"[..]))
    });
    let options = Options {
        name: "bench".into(),
        concurrency: args.concurrency,
        result_ttl: Duration::from_secs(120),
        ..Options::default()
    };
    let redis = RedisOptions { url: args.url, ..RedisOptions::default() };
    Worker::new(redis, agents, options)?.run(Shutdown::on_signals()?).await?;
    let mut out = std::io::BufWriter::new(std::fs::File::create(&args.record)?);
    for (submit, start) in times.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        out.write_all(&submit.to_be_bytes())?;
        out.write_all(&start.to_be_bytes())?;
    }
    out.flush()?;
    Ok(())
}
