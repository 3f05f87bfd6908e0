//! The programs `worker` and `producer` themselves, as somebody starts them in a shell: arguments, environment, signals, exit code.

use std::fs::File;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use tempfile::TempDir;
use tidemill_embedded::child::{ParentDeath, die_with_parent, spawn_from_keeper_thread};

use crate::server;

/// A program that runs, in an empty folder and with nothing of this machine's configuration. Killed when it is dropped.
#[derive(Debug)]
pub struct Program {
    name: String,
    pid: u32,
    child: Mutex<Child>,
    folder: TempDir,
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Its exit code; none: a signal ended it.
    pub code: Option<i32>,
    /// What it wrote to its standard output.
    pub out: String,
    /// What it wrote to its standard error.
    pub err: String,
}

impl Program {
    /// Starts `name` with these arguments, and these variables beside those that it needs.
    ///
    /// # Panics
    ///
    /// When it is not built or does not start.
    #[must_use]
    pub fn start(name: &str, args: &[&str], env: &[(&str, &str)]) -> Self {
        let folder = tempfile::Builder::new().prefix("tidemill-program-").tempdir().expect("a folder");
        let file = |name: &str| File::create(folder.path().join(name)).expect("a file for its output");
        let mut command = Command::new(server::bin(name));
        for (variable, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TIDEMILL")) {
            command.env_remove(variable);
        }
        command.args(args).envs(env.iter().copied()).current_dir(folder.path()).stdin(Stdio::null());
        command.stdout(file("out")).stderr(file("err"));
        die_with_parent(&mut command, ParentDeath::Kill);
        let child = spawn_from_keeper_thread(command).unwrap_or_else(|e| panic!("cannot start {name}: {e}"));
        Self { name: name.to_owned(), pid: child.id(), child: Mutex::new(child), folder }
    }

    /// Starts `name` and waits for its end, for half a minute at most.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start), and when it has not ended by then.
    pub async fn run(name: &str, args: &[&str], env: &[(&str, &str)]) -> Ended {
        let program = Self::start(name, args, env);
        let status = program.exit(Duration::from_secs(30)).await;
        Ended { code: status.code(), out: program.read("out"), err: program.read("err") }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The folder that it was started in.
    #[must_use]
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// What it wrote to its standard error so far: its log.
    #[must_use]
    pub fn log(&self) -> String {
        self.read("err")
    }

    /// What it wrote to its standard output so far.
    #[must_use]
    pub fn out(&self) -> String {
        self.read("out")
    }

    fn read(&self, name: &str) -> String {
        let bytes = std::fs::read(self.folder.path().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a signal, unless it has ended.
    pub fn signal(&self, signal: Signal) {
        let mut child = self.child();
        // Not reaped yet, so the number is still this program's.
        if matches!(child.try_wait(), Ok(None)) {
            let pid = Pid::from_raw(i32::try_from(child.id()).expect("a process id"));
            nix::sys::signal::kill(pid, signal).unwrap_or_else(|e| panic!("cannot send {signal} to {pid}: {e}"));
        }
    }

    /// How it ended, if it has.
    pub fn ended(&self) -> Option<ExitStatus> {
        self.child().try_wait().unwrap_or_else(|e| panic!("cannot look at process {}: {e}", self.pid))
    }

    /// Waits for its end.
    ///
    /// # Panics
    ///
    /// When it has not ended in time; the message shows the end of its log.
    pub async fn exit(&self, within: Duration) -> ExitStatus {
        let by = Instant::now() + within;
        loop {
            if let Some(status) = self.ended() {
                return status;
            }
            if Instant::now() > by {
                let log = self.log();
                let last: Vec<&str> = log.lines().rev().take(20).collect();
                panic!(
                    "{} has not ended within {within:?}; its log, last line first:\n  {}",
                    self.name,
                    last.join("\n  ")
                );
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
        let _ = self.child().wait();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!(
                "--- {} (process {})\n  {}",
                self.name,
                self.pid,
                lines[lines.len().saturating_sub(25)..].join("\n  ")
            );
        }
    }
}
