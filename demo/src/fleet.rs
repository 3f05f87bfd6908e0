//! The supervisor: worker processes, started again when they die.

use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tidemill_embedded::child::{ParentDeath, die_with_parent, spawn_from_keeper_thread};

/// One worker.
pub(crate) struct Worker {
    pub(crate) name: String,
    child: Child,
    log: std::path::PathBuf,
}

impl Worker {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where its metrics are: it takes a free port, and says which.
    pub(crate) async fn metrics(&self) -> String {
        for _ in 0..100 {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            if let Some(address) = log.split("admin http://").nth(1) {
                let end = address.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ':').unwrap_or(address.len());
                return format!("http://{}/metrics", &address[..end]);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        format!("(not up yet, see {})", self.log.display())
    }
}

/// All workers.
pub(crate) struct Fleet {
    url: String,
    workers: Vec<Worker>,
    logs: tempfile::TempDir,
    started: usize,
}

impl Fleet {
    pub(crate) fn start(url: &str, n: usize) -> Result<Self> {
        let mut fleet = Self { url: url.to_owned(), workers: Vec::new(), logs: tempfile::tempdir()?, started: 0 };
        for i in 0..n {
            let worker = fleet.spawn(&format!("mill-{}", i + 1))?;
            fleet.workers.push(worker);
        }
        Ok(fleet)
    }

    pub(crate) fn workers(&self) -> &[Worker] {
        &self.workers
    }

    fn spawn(&mut self, name: &str) -> Result<Worker> {
        self.started += 1;
        let log = self.logs.path().join(format!("{name}-{}.log", self.started));
        let program = std::env::current_exe()?.with_file_name("worker");
        let out = File::create(&log)?;
        let mut command = Command::new(&program);
        command
            .args(["run", "--config", "demo/worker.toml"])
            .env("TIDEMILL__REDIS__URL", &self.url)
            .env("TIDEMILL__WORKER__NAME", name)
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out);
        die_with_parent(&mut command, ParentDeath::Kill);
        let child = spawn_from_keeper_thread(command)
            .with_context(|| format!("cannot start {}; `cargo build --bins` makes it", program.display()))?;
        Ok(Worker { name: name.to_owned(), child, log })
    }

    /// SIGKILL for the first; [`Self::supervise`] starts it again.
    pub(crate) fn kill_first(&mut self) -> Result<(String, u32)> {
        let worker = &mut self.workers[0];
        worker.child.kill()?;
        Ok((worker.name.clone(), worker.pid()))
    }

    /// Starts those again that have died.
    pub(crate) fn supervise(&mut self) -> Result<()> {
        for i in 0..self.workers.len() {
            if self.workers[i].child.try_wait()?.is_some() {
                let name = self.workers[i].name.clone();
                self.workers[i] = self.spawn(&name)?;
            }
        }
        Ok(())
    }

    /// SIGTERM for all, and waits for them.
    pub(crate) fn stop(mut self) -> Result<()> {
        for worker in &self.workers {
            kill(Pid::from_raw(i32::try_from(worker.pid())?), Signal::SIGTERM)?;
        }
        for worker in &mut self.workers {
            worker.child.wait()?;
        }
        Ok(())
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
    }
}
