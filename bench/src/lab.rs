//! A private server, worker processes on it, and what can be read off both.

use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bytes::{BufMut, BytesMut};
use tidemill_common::store::{RedisOptions, Store};
use tidemill_common::task::NewTask;
use tidemill_embedded::{Options, Reply, Server};

use crate::consumer::now_ns;

/// One phase's server and its folder.
pub(crate) struct Lab {
    pub(crate) server: Server,
    pub(crate) store: Store,
    dir: tempfile::TempDir,
    workers: Vec<Child>,
}

impl Drop for Lab {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}

impl Lab {
    pub(crate) async fn start() -> Result<Self> {
        let server = Server::start(Options::new())?;
        let store = Store::connect(&RedisOptions { url: server.url(), ..RedisOptions::default() }).await?;
        Ok(Self { server, store, dir: tempfile::tempdir()?, workers: Vec::new() })
    }

    /// Starts a worker process and waits until it sleeps for work.
    pub(crate) async fn worker(&mut self, concurrency: u32, wait: bool) -> Result<()> {
        let record = self.record(self.workers.len());
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("worker").arg("--url").arg(self.server.url()).args(["--concurrency", &concurrency.to_string()]);
        command.arg("--record").arg(record).env("TIDEMILL_LOG", "off");
        self.workers.push(tidemill_embedded::child::spawn_from_keeper_thread(command)?);
        let want = self.workers.len() as u64;
        while wait && self.store.counts().await?.idle < want {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    fn record(&self, n: usize) -> std::path::PathBuf {
        self.dir.path().join(format!("record-{n}"))
    }

    /// Waits until so many tasks have succeeded.
    pub(crate) async fn done(&self, tasks: usize) -> Result<()> {
        let began = Instant::now();
        while self.store.counts().await?.ended.get("done").copied().unwrap_or(0) < tasks as u64 {
            if began.elapsed() > Duration::from_secs(300) {
                bail!("not done after five minutes: {:?}", self.store.counts().await?);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Ends the workers and reads their records: (submit, start) in ns, by start.
    pub(crate) fn finish(&mut self) -> Result<Vec<(u64, u64)>> {
        let mut times = Vec::new();
        for (n, mut worker) in std::mem::take(&mut self.workers).into_iter().enumerate() {
            let pid = nix::unistd::Pid::from_raw(i32::try_from(worker.id())?);
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM)?;
            let status = worker.wait()?;
            times.extend(read_record(&self.record(n)).with_context(|| format!("the worker ended with {status}"))?);
        }
        times.sort_unstable_by_key(|t| t.1);
        Ok(times)
    }

    /// A field of INFO, as a number.
    pub(crate) fn info(&self, section: &str, field: &str) -> Result<f64> {
        let reply = self.server.command(&["INFO", section])?;
        let text = reply.as_str().context("INFO is text")?.to_owned();
        let line = text
            .lines()
            .find_map(|l| l.strip_prefix(field)?.strip_prefix(':'))
            .with_context(|| format!("no {field}"))?;
        Ok(line.trim().parse()?)
    }

    /// CPU of the server's main thread so far, in µs.
    pub(crate) fn cpu_us(&self) -> Result<f64> {
        Ok(1e6 * (self.info("cpu", "used_cpu_user_main_thread")? + self.info("cpu", "used_cpu_sys_main_thread")?))
    }

    /// Calls that clients made, without those inside scripts: the sum over commands that only clients send here.
    pub(crate) fn client_calls(&self) -> Result<u64> {
        let reply = self.server.command(&["INFO", "commandstats"])?;
        let text = reply.as_str().context("INFO is text")?.to_owned();
        let calls = |name: &str| {
            text.lines()
                .find_map(|l| l.strip_prefix(&format!("cmdstat_{name}:calls="))?.split(',').next()?.parse::<u64>().ok())
                .unwrap_or(0)
        };
        Ok(["evalsha", "eval", "blpop", "ping", "hello", "get", "hget"].iter().map(|c| calls(c)).sum())
    }

    pub(crate) fn command(&self, parts: &[&str]) -> Result<Reply> {
        Ok(self.server.command(parts)?)
    }
}

fn read_record(path: &Path) -> Result<Vec<(u64, u64)>> {
    let bytes = std::fs::read(path)?;
    let number = |b: &[u8]| b.iter().fold(0_u64, |n, b| n << 8 | u64::from(*b));
    Ok(bytes.chunks_exact(16).map(|c| (number(&c[..8]), number(&c[8..]))).collect())
}

/// A task as the peers have it: the time it was made and 100 bytes.
pub(crate) fn task() -> NewTask {
    let mut payload = BytesMut::with_capacity(108);
    payload.put_u64(now_ns());
    payload.put_bytes(b'x', 100);
    #[expect(clippy::unwrap_used, reason = "a constant name")]
    NewTask::new("noop".parse().unwrap(), payload.freeze())
}

/// The middle one.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
