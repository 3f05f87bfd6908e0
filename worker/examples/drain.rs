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
use tidemill_embedded::{Reply, Server};
use tidemill_worker::{Context, Options, Outcome, Registry, Shutdown, Worker};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Single tasks whose pickup is timed.
const SAMPLES: usize = 500;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let tasks = args.next().map_or(Ok(200_000), |n| n.parse::<usize>())? / 256 * 256;
    let concurrency: u32 = args.next().map_or(Ok(200), |n| n.parse())?;
    let given = args.next();
    let server = if given.is_none() { Some(Server::start(tidemill_embedded::Options::new())?) } else { None };
    let url = given.or(server.as_ref().map(Server::url)).unwrap_or_default();
    let redis = RedisOptions { url, ..RedisOptions::default() };
    let store = Store::connect(&redis).await?;

    let began = Instant::now();
    for _ in 0..tasks / 256 {
        let some: Result<Vec<_>> = (0..256).map(|_| task(200)).collect();
        store.submit(&some?, 0).await?;
    }
    println!("submitted {tasks} in {:.2?}: {:.0}/s", began.elapsed(), rate(tasks, began));

    let done = Arc::new(AtomicU64::new(0));
    let (starts, started) = unbounded_channel();
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
    drain(&store, server.as_ref(), tasks).await?;
    pickups(&store, started).await?;
    shutdown.drain.cancel();
    println!("{:?}", running.await??);
    Ok(())
}

fn task(bytes: usize) -> Result<NewTask> {
    Ok(NewTask::new("noop".parse()?, vec![b'x'; bytes]))
}

async fn drain(store: &Store, server: Option<&Server>, tasks: usize) -> Result<()> {
    let pid = server.and_then(Server::pid).map_or_else(|| "self".to_owned(), |pid| pid.to_string());
    let (began, ours, theirs) = (Instant::now(), cpu("self"), cpu(&pid));
    while store.counts().await?.ended.get("done").copied().unwrap_or(0) < tasks as u64 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let each = 1e6 / tasks as f64;
    println!("drained {tasks} in {:.2?}: {:.0}/s", began.elapsed(), rate(tasks, began));
    println!(
        "CPU a task: {:.1} µs here, {:.1} µs of the server",
        (cpu("self") - ours) * each,
        (cpu(&pid) - theirs) * each
    );
    if let Some(Reply::Bulk(stats)) = server.map(|s| s.command(&["INFO", "commandstats"])).transpose()? {
        let stats = String::from_utf8_lossy(&stats).into_owned();
        let scripts = stats.lines().find_map(|l| l.strip_prefix("cmdstat_evalsha:")).unwrap_or_default().to_owned();
        println!("scripts, submits included: {scripts}");
    }
    Ok(())
}

async fn pickups(store: &Store, mut started: UnboundedReceiver<Instant>) -> Result<()> {
    let mut waits = Vec::new();
    for _ in 0..SAMPLES {
        tokio::time::sleep(Duration::from_millis(4)).await;
        let (task, sent) = (task(1)?, Instant::now());
        store.submit(std::slice::from_ref(&task), 0).await?;
        if let Some(at) = started.recv().await {
            waits.push(at - sent);
        }
    }
    waits.sort();
    let at = |share: usize| waits[(waits.len() - 1) * share / 100];
    println!("from submit to handler, one at a time: p50 {:.2?}, p99 {:.2?}, max {:.2?}", at(50), at(99), at(100));
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
