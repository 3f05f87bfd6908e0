//! One child as the operating system sees it: a process and its group.
//!
//! It must be spawned and watched on a thread that lives as long as the worker ([`super::Children`]). Its group is killed before the
//! child is reaped: until then its number cannot belong to another process.

use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tidemill_common::config::ENV_PREFIX;
use tidemill_embedded::child::{ParentDeath, die_with_parent};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};

use super::ProcessOptions;

/// A running child and the ends of its pipes that are still with it.
pub(super) struct Child {
    process: std::process::Child,
    deaths: Signals,
    reaped: bool,
}

/// Its three pipes.
pub(super) struct Pipes {
    pub(super) input: ChildStdin,
    pub(super) output: ChildStdout,
    pub(super) errors: ChildStderr,
}

impl Child {
    /// Starts one, with some more variables in its environment.
    pub(super) fn spawn(options: &ProcessOptions, facts: &[(&str, String)]) -> io::Result<(Self, Pipes)> {
        let Some((program, arguments)) = options.command.split_first() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the command is empty"));
        };
        let deaths = signal(SignalKind::child())?;
        let mut command = Command::new(program);
        command.args(arguments).process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with(&format!("{ENV_PREFIX}__")) {
                command.env_remove(name);
            }
        }
        command.envs(&options.env).envs(facts.iter().map(|(name, fact)| (name, fact)));
        if let Some(directory) = &options.directory {
            command.current_dir(directory);
        }
        die_with_parent(&mut command, ParentDeath::Kill);
        let process = command.spawn()?;
        // From here on a failure drops the child, which kills it.
        let mut child = Self { process, deaths, reaped: false };
        let gone = || io::Error::other("a pipe of the child is missing");
        let pipes = Pipes {
            input: ChildStdin::from_std(child.process.stdin.take().ok_or_else(gone)?)?,
            output: ChildStdout::from_std(child.process.stdout.take().ok_or_else(gone)?)?,
            errors: ChildStderr::from_std(child.process.stderr.take().ok_or_else(gone)?)?,
        };
        Ok((child, pipes))
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Waits for its end. Cancel safe.
    pub(super) async fn ended(&mut self) -> io::Result<ExitStatus> {
        loop {
            if self.has_ended()? {
                return self.reap();
            }
            // A death between the look and here is not lost: the stream remembers it.
            self.deaths.recv().await;
        }
    }

    /// Signals the whole group.
    pub(super) fn signal(&self, signal: Signal) {
        if !self.reaped
            && let Ok(group) = i32::try_from(self.process.id())
        {
            // ESRCH: all of it has ended.
            let _ = killpg(Pid::from_raw(group), signal);
        }
    }

    /// Looks without reaping, so that the number stays its own.
    #[cfg(target_os = "linux")]
    fn has_ended(&mut self) -> io::Result<bool> {
        use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
        let Ok(pid) = i32::try_from(self.process.id()) else { return Ok(true) };
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        Ok(waitid(Id::Pid(Pid::from_raw(pid)), look)? != WaitStatus::StillAlive)
    }

    #[cfg(not(target_os = "linux"))]
    fn has_ended(&mut self) -> io::Result<bool> {
        Ok(self.process.try_wait()?.is_some())
    }

    /// Kills what is left of the group, and the child's entry with it.
    fn reap(&mut self) -> io::Result<ExitStatus> {
        self.signal(Signal::SIGKILL);
        // It may have left its group.
        self.process.kill()?;
        let status = self.process.wait()?;
        self.reaped = true;
        Ok(status)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            // Returns as fast as the kernel ends a killed process.
            let _ = self.reap();
        }
    }
}

/// How it ended, for people.
pub(super) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "in an unknown way".to_owned(),
    }
}
