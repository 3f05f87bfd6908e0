//! How fast one worker empties a backlog of tasks that do nothing, and how soon it picks up a single one.
//!
//! ```text
//! cargo run --release -p tidemill-worker --example drain -- [tasks] [concurrency] [url]
//! ```
//!
//! Without a URL it starts a private server. Payloads have 200 bytes, results are kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidemill_common::store::{RedisOptions, Store};
use tidemill_common::task::NewTask;
use tidemill_worker::{Context, Options, Outcome, Registry, Shutdown, Worker};
use tokio::sync::mpsc::unbounded_channel;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const LATENCY_SAMPLES: usize = 500;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let tasks: usize = args.next().map_or(Ok(200_000), |n| n.parse())?;
    let concurrency: u32 = args.next().map_or(Ok(200), |n| n.parse())?;
    let given = args.next();
    let server =
        if given.is_none() { Some(tidemill_embedded::Server::start(tidemill_embedded::Options::new())?) } else { None };
    let url = given.or(server.as_ref().map(tidemill_embedded::Server::url)).unwrap_or_default();
    let redis = RedisOptions { url, ..RedisOptions::default() };
    let store = Store::connect(&redis).await?;

    let new = || NewTask::new("noop".parse().expect("a name"), vec![b'x'; 200]);
    let began = Instant::now();
    for _ in 0..tasks / 256 {
        store.submit(&(0..256).map(|_| new()).collect::<Vec<_>>(), 0).await?;
    }
    let tasks = tasks / 256 * 256;
    println!("submitted {tasks} in {:.2?}: {:.0}/s", began.elapsed(), rate(tasks, began));

    let done = Arc::new(AtomicU64::new(0));
    let (starts, mut started) = unbounded_channel();
    let counted = Arc::clone(&done);
    let handler = move |context: Context| {
        counted.fetch_add(1, Ordering::Relaxed);
        if context.payload().len() == 1 {
            let _ = starts.send(Instant::now());
        }
        std::future::ready(Outcome::done(&b"ok"[..]))
    };
    let options = Options { concurrency, ..Options::default() };
    let worker = Worker::new(redis, Registry::new().with("noop".parse()?, handler), options)?;
    let shutdown = Shutdown::new();
    let running = tokio::spawn(worker.run(shutdown.clone()));
    while done.load(Ordering::Relaxed) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let pid = server.as_ref().and_then(|s| s.pid()).map_or_else(|| "self".to_owned(), |pid| pid.to_string());
    let (began, ours, theirs) = (Instant::now(), cpu("self"), cpu(&pid));
    while store.counts().await?.ended.get("done").copied().unwrap_or(0) < tasks as u64 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let each = 1e6 / tasks as f64;
    println!(
        "drained {tasks} in {:.2?}: {:.0}/s at concurrency {concurrency}; CPU each: {:.1} µs here, {:.1} µs of the server",
        began.elapsed(),
        rate(tasks, began),
        (cpu("self") - ours) * each,
        (cpu(&pid) - theirs) * each
    );

    if let Some(tidemill_embedded::Reply::Bulk(stats)) =
        server.as_ref().map(|s| s.command(&["INFO", "commandstats"])).transpose()?
    {
        let stats = String::from_utf8_lossy(&stats).into_owned();
        let scripts =
            stats.lines().find_map(|l| l.strip_prefix("cmdstat_evalsha:calls=")).unwrap_or_default().to_owned();
        println!("scripts since the start, submits included: {scripts}");
    }
    let mut pickups = Vec::new();
    for _ in 0..LATENCY_SAMPLES {
        tokio::time::sleep(Duration::from_millis(4)).await;
        let task = NewTask::new("noop".parse()?, "1");
        let sent = Instant::now();
        store.submit(std::slice::from_ref(&task), 0).await?;
        if let Some(at) = started.recv().await {
            pickups.push(at - sent);
        }
    }
    pickups.sort();
    println!(
        "from submit to handler, one at a time: p50 {:.2?}, p99 {:.2?}, max {:.2?}",
        pickups[pickups.len() / 2],
        pickups[pickups.len() * 99 / 100],
        pickups[pickups.len() - 1]
    );
    shutdown.drain.cancel();
    println!("{:?}", running.await??);
    Ok(())
}

fn rate(tasks: usize, began: Instant) -> f64 {
    tasks as f64 / began.elapsed().as_secs_f64()
}

/// CPU seconds of a process.
fn cpu(pid: &str) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11);
    let mut ticks = || fields.next().and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks() + ticks()) / 100.0
}
