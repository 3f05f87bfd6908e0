//! The phases: each on a fresh server, each printed as one line.

use std::time::Duration;

use anyhow::Result;
use futures::StreamExt as _;
use tidemill_producer::book::Mistake;
use tidemill_producer::{Book, Client, Options};
use tokio::time::Instant;

use crate::lab::{Lab, median, task};

/// How much to measure.
pub(crate) struct Runs {
    pub(crate) runs: usize,
    pub(crate) tasks: usize,
    pub(crate) concurrency: u32,
}

async fn submit(lab: &Lab, tasks: usize) -> Result<f64> {
    let client = Client::connect(Options::at(lab.server.url())).await?;
    let began = Instant::now();
    let mut answers = client.submit_all((0..tasks).map(|_| task()));
    while let Some(answer) = answers.next().await {
        answer.result?;
    }
    Ok(tasks as f64 / began.elapsed().as_secs_f64())
}

fn rate(count: usize, from_ns: u64, to_ns: u64) -> f64 {
    count as f64 * 1e9 / to_ns.saturating_sub(from_ns).max(1) as f64
}

/// Tasks wait, then a worker starts.
pub(crate) async fn drain(runs: &Runs) -> Result<()> {
    let (mut rates, mut submits, mut cpus) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..runs.runs {
        let mut lab = Lab::start().await?;
        let cpu = lab.cpu_us()?;
        submits.push(submit(&lab, runs.tasks).await?);
        lab.worker(runs.concurrency, false).await?;
        lab.done(runs.tasks).await?;
        cpus.push((lab.cpu_us()? - cpu) / runs.tasks as f64);
        let times = lab.finish()?;
        rates.push(rate(times.len(), times[0].1, times[times.len() - 1].1));
    }
    println!(
        "drain    {:>9.0} tasks/s   submit {:.0} tasks/s   Redis CPU {:.1} us/task from submit to settle",
        median(rates),
        median(submits),
        median(cpus)
    );
    Ok(())
}

/// The rules of the gated case: a slot, a minute's rate and a budget of tokens on every task, none of them ever used up.
const RULES: &str = "revision = 1\n[[limit]]\nper = [\"tenant\"]\nslots = 1000000\nrate = { minute = 1000000 }\ntokens = { day = 100000000000 }\n";
const TENANTS: usize = 1_000;

/// A drain with gates on every task, over a thousand tenants, against one without, in turn.
pub(crate) async fn gated(runs: &Runs) -> Result<()> {
    let (mut plain, mut gated, mut cpus) = (Vec::new(), Vec::new(), (Vec::new(), Vec::new()));
    for _ in 0..runs.runs {
        for on in [false, true] {
            let mut lab = Lab::start().await?;
            let client = Client::connect(Options::at(lab.server.url())).await?;
            if on {
                let book = Book::parse(RULES).map_err(|e| anyhow::anyhow!(Mistake::listed(&e)))?;
                client.apply_book(&book).await?;
            }
            let of = |n: usize| task().tenant(format!("tenant-{}", n % TENANTS)).estimate_tokens(100);
            let mut answers = client.submit_all((0..runs.tasks).map(of));
            while let Some(answer) = answers.next().await {
                answer.result?;
            }
            let cpu = lab.cpu_us()?;
            lab.worker(runs.concurrency, false).await?;
            lab.done(runs.tasks).await?;
            let used = (lab.cpu_us()? - cpu) / runs.tasks as f64;
            let times = lab.finish()?;
            let speed = rate(times.len(), times[0].1, times[times.len() - 1].1);
            if on {
                (gated.push(speed), cpus.1.push(used))
            } else {
                (plain.push(speed), cpus.0.push(used))
            };
        }
    }
    let (plain, gated) = (median(plain), median(gated));
    println!(
        "gated    {gated:>9.0} tasks/s with a slot, a rate and a budget a task, {plain:.0} without: {:.0} %   Redis CPU {:.1} and {:.1} us/task",
        100.0 * gated / plain,
        median(cpus.1),
        median(cpus.0)
    );
    Ok(())
}

/// A worker waits, then tasks come.
pub(crate) async fn both(runs: &Runs) -> Result<()> {
    let mut rates = Vec::new();
    for _ in 0..runs.runs {
        let mut lab = Lab::start().await?;
        lab.worker(runs.concurrency, true).await?;
        submit(&lab, runs.tasks).await?;
        lab.done(runs.tasks).await?;
        let times = lab.finish()?;
        let first = times.iter().map(|t| t.0).min().unwrap_or(0);
        rates.push(rate(times.len(), first, times[times.len() - 1].1));
    }
    println!("both     {:>9.0} tasks/s   from the first submit to the last start", median(rates));
    Ok(())
}

/// 200 a second for ten seconds; the first hundred do not count.
pub(crate) async fn pickup(runs: &Runs) -> Result<()> {
    let (mut halves, mut tails) = (Vec::new(), Vec::new());
    for _ in 0..runs.runs {
        let mut lab = Lab::start().await?;
        lab.worker(runs.concurrency, true).await?;
        let client = Client::connect(Options::at(lab.server.url())).await?;
        let mut tick = tokio::time::interval(Duration::from_millis(5));
        for _ in 0..2_000 {
            tick.tick().await;
            client.submit(task()).await?;
        }
        lab.done(2_000).await?;
        let mut waits: Vec<f64> =
            lab.finish()?.iter().skip(100).map(|t| t.1.saturating_sub(t.0) as f64 / 1e6).collect();
        waits.sort_by(f64::total_cmp);
        halves.push(waits[waits.len() / 2]);
        tails.push(waits[waits.len() * 99 / 100]);
    }
    println!("pickup   p50 {:.2} ms   p99 {:.2} ms   at 200 tasks/s", median(halves), median(tails));
    Ok(())
}

/// What a waiting task takes beyond its payload.
pub(crate) async fn memory(runs: &Runs) -> Result<()> {
    let lab = Lab::start().await?;
    let before = lab.info("memory", "used_memory_dataset")? + lab.info("memory", "used_memory_overhead")?;
    submit(&lab, runs.tasks).await?;
    let after = lab.info("memory", "used_memory_dataset")? + lab.info("memory", "used_memory_overhead")?;
    println!(
        "memory   {:>9.0} B a waiting task beyond its 108 B payload",
        (after - before) / runs.tasks as f64 - 108.0
    );
    Ok(())
}

/// What idle workers send, default lease profile.
pub(crate) async fn idle(runs: &Runs) -> Result<()> {
    for workers in [1_u64, 4] {
        let mut lab = Lab::start().await?;
        for _ in 0..workers {
            lab.worker(runs.concurrency, true).await?;
        }
        let span = Duration::from_secs(20);
        let (calls, all) = (lab.client_calls()?, lab.info("stats", "total_commands_processed")?);
        tokio::time::sleep(span).await;
        let sent = (lab.client_calls()? - calls) as f64 / span.as_secs_f64();
        let inside = (lab.info("stats", "total_commands_processed")? - all) / span.as_secs_f64();
        println!(
            "idle     {sent:>9.2} commands/s from {workers} idle workers (bound {:.2}); {inside:.2} with those inside scripts",
            2.0 + 0.75 * workers as f64
        );
        lab.finish()?;
    }
    Ok(())
}

/// CPU of the whole life of a task, its outcome's expiry included.
pub(crate) async fn expiry(runs: &Runs) -> Result<()> {
    let mut lab = Lab::start().await?;
    let cpu = lab.cpu_us()?;
    submit(&lab, runs.tasks).await?;
    lab.worker(runs.concurrency, false).await?;
    lab.done(runs.tasks).await?;
    let settled = lab.cpu_us()?;
    lab.finish()?;
    let idle_from = (lab.cpu_us()?, Instant::now());
    tokio::time::sleep(Duration::from_secs(60)).await;
    let idle = (lab.cpu_us()? - idle_from.0) / idle_from.1.elapsed().as_secs_f64();
    let from = (lab.cpu_us()?, Instant::now());
    while lab.command(&["DBSIZE"])?.as_int().unwrap_or(0) > 100 {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let expiry = lab.cpu_us()? - from.0 - idle * from.1.elapsed().as_secs_f64();
    println!(
        "expiry   Redis CPU {:.1} us/task from submit to settle, {:.1} more for the expiry of its outcome",
        (settled - cpu) / runs.tasks as f64,
        expiry / runs.tasks as f64
    );
    Ok(())
}
