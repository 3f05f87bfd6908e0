//! A worker under test: the program `lab_worker` in a process of its own, which can be killed, stopped and frozen.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use tidemill_common::store::RedisOptions;
use tidemill_embedded::child::{ParentDeath, die_with_parent, spawn_from_keeper_thread};

use super::ledger::now_ms;
use super::profile::Profile;
use crate::server;

/// What a `lab_worker` is told, as the JSON of its only argument.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// The worker's name.
    pub name: String,
    /// Where Redis is.
    pub redis: RedisOptions,
    /// Most tasks at once.
    pub concurrency: u32,
    /// In ms, as the next three.
    pub lease_ms: u64,
    /// How often it renews.
    pub renew_ms: u64,
    /// How often upkeep is done.
    pub sweep_ms: u64,
    /// How long running tasks may take to end when it is to stop.
    pub grace_ms: u64,
    /// Lone runs that a task may kill.
    pub poison_after: u32,
    /// Agents; all have the ledger handler.
    pub agents: Vec<String>,
    /// Where handlers write.
    pub ledger: PathBuf,
    /// Threads of the handlers' runtime; none: one a core.
    pub threads: Option<u32>,
}

impl Setup {
    pub(super) fn new(name: &str, url: String, profile: Profile, ledger: PathBuf) -> Self {
        let ms = |t: Duration| u64::try_from(t.as_millis()).unwrap_or(u64::MAX);
        Self {
            name: name.to_owned(),
            redis: RedisOptions { url, ..RedisOptions::default() },
            concurrency: 4,
            lease_ms: ms(profile.lease),
            renew_ms: ms(profile.renew),
            sweep_ms: ms(profile.sweep),
            grace_ms: 10_000,
            poison_after: 3,
            agents: vec!["ledger".to_owned()],
            ledger,
            threads: None,
        }
    }

    /// Sets how many tasks it runs at once.
    #[must_use]
    pub fn concurrency(mut self, n: u32) -> Self {
        self.concurrency = n;
        self
    }
    /// Sets its agents.
    #[must_use]
    pub fn agents(mut self, agents: &[&str]) -> Self {
        self.agents = agents.iter().map(|&a| a.to_owned()).collect();
        self
    }
    /// Sets how long running tasks may take to end when it is to stop.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self
    }
    /// Sets the number of threads of the handlers' runtime.
    #[must_use]
    pub fn threads(mut self, n: u32) -> Self {
        self.threads = Some(n);
        self
    }
}

/// A process. Clones are the same process; the lab ends it when it is dropped.
#[derive(Debug, Clone)]
pub struct WorkerProcess(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    setup: Setup,
    pid: u32,
    log: PathBuf,
    child: Mutex<Child>,
}

impl WorkerProcess {
    /// Starts it; its standard error goes to `log`.
    pub(super) fn start(setup: Setup, log: PathBuf) -> Self {
        let argument = serde_json::to_string(&setup).unwrap_or_else(|e| panic!("the set-up is no JSON: {e}"));
        let mut command = Command::new(server::bin("lab_worker"));
        let file = File::create(&log).unwrap_or_else(|e| panic!("{}: {e}", log.display()));
        command.arg(argument).env("RUST_LOG", "info").stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        if let Some(threads) = setup.threads {
            command.env("TOKIO_WORKER_THREADS", threads.to_string());
        }
        die_with_parent(&mut command, ParentDeath::Kill);
        let child = spawn_from_keeper_thread(command).unwrap_or_else(|e| panic!("cannot start a lab_worker: {e}"));
        Self(Arc::new(Inner { setup, pid: child.id(), log, child: Mutex::new(child) }))
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0.pid
    }
    /// What it was started with: start it again with this.
    #[must_use]
    pub fn setup(&self) -> &Setup {
        &self.0.setup
    }
    /// What it wrote to its standard error so far.
    #[must_use]
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.0.log).unwrap_or_default()).into_owned()
    }
    pub(super) fn log_path(&self) -> &Path {
        &self.0.log
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.0.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How it ended, if it has.
    pub fn ended(&self) -> Option<ExitStatus> {
        self.child().try_wait().unwrap_or_else(|e| panic!("cannot look at process {}: {e}", self.0.pid))
    }

    /// Sends a signal, unless it has ended.
    pub fn signal(&self, signal: Signal) {
        // Under the lock, and not reaped yet: the number is still this process's.
        let mut child = self.child();
        if matches!(child.try_wait(), Ok(None)) {
            let pid = Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
            nix::sys::signal::kill(pid, signal).unwrap_or_else(|e| panic!("cannot send {signal} to {pid}: {e}"));
        }
    }
    /// SIGKILL; returns, after the process has gone, when it was sent in Unix ms.
    pub fn kill(&self) -> u64 {
        let at = now_ms();
        self.signal(Signal::SIGKILL);
        let _ = self.child().wait();
        at
    }
    /// SIGTERM.
    pub fn term(&self) {
        self.signal(Signal::SIGTERM);
    }
    /// SIGSTOP: it is frozen.
    pub fn stop(&self) {
        self.signal(Signal::SIGSTOP);
    }
    /// SIGCONT.
    pub fn cont(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it has not ended in time.
    pub async fn exit(&self, within: Duration) -> ExitStatus {
        let by = Instant::now() + within;
        loop {
            if let Some(status) = self.ended() {
                return status;
            }
            assert!(
                Instant::now() < by,
                "worker {} (process {}) has not ended within {within:?}",
                self.0.setup.name,
                self.0.pid
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
