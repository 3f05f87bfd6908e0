//! Lone work: a task that lost its worker twice runs alone, in a process of its own, so that only it can be blamed for the next loss.
//!
//! - *It guarantees* that neighbours are spared: the child has its own id and lease, one slot, and ends when no such work waits.
//! - *It refuses* more than one child a worker, and a new one right after one that failed.
//! - *On a crash* of the child its lease runs out, and that loss counts towards poison. When the parent dies, the kernel kills the child.
//!
//! The child is this very program with the same arguments and [`ENV`] set, in a process group of its own: a Ctrl-C in the terminal
//! reaches it through its parent alone.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tidemill_embedded::child::{ParentDeath, die_with_parent, spawn_from_keeper_thread};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Set to `1` in the environment of a lone child.
pub const ENV: &str = "TIDEMILL_LONE";

/// How often a running child is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Pauses between children: they double while work still waits right after a child has ended. It could not take that work (its agent is
/// not ours, its gate is closed), and a new child would not either.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// Work that is first heard of this long after a child's end is new.
const NEW_AFTER: Duration = Duration::from_secs(10);

/// What a lone child runs.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) args: Vec<OsString>,
}

impl Program {
    /// This very program, with the same arguments.
    pub(crate) fn this() -> std::io::Result<Self> {
        Ok(Self { path: std::env::current_exe()?, args: std::env::args_os().skip(1).collect() })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.args(&self.args).env(ENV, "1").stdin(Stdio::null()).process_group(0);
        die_with_parent(&mut command, ParentDeath::Kill);
        command
    }
}

/// Whether this process is a lone child.
#[must_use]
pub fn is_child() -> bool {
    std::env::var_os(ENV).is_some_and(|value| value == "1")
}

/// Starts a child each time lone work waits, until told to stop; then has the child drain, and ends when it has.
pub(crate) async fn keep(program: Program, work: Arc<Notify>, drain: CancellationToken, force: CancellationToken) {
    let mut pause = PAUSE.0;
    let mut last: Option<Instant> = None;
    loop {
        tokio::select! {
            biased;
            () = drain.cancelled() => return,
            () = work.notified() => {}
        }
        pause =
            if last.is_some_and(|at| at.elapsed() < NEW_AFTER + pause) { (pause * 2).min(PAUSE.1) } else { PAUSE.0 };
        let ended = match start(&program).await {
            Ok(child) => attend(child, &drain, &force).await,
            Err(error) => Err(error),
        };
        match &ended {
            Ok(status) => tracing::info!(%status, "the child for lone work has ended"),
            Err(error) => tracing::error!(%error, "the child for lone work cannot be run"),
        }
        last = Some(Instant::now());
        tokio::select! {
            () = drain.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        // What was said while the child ran is old: it may be what the child has just done.
        let _ = work.notified().now_or_never();
    }
}

async fn start(program: &Program) -> std::io::Result<Child> {
    let command = program.command();
    let child = tokio::task::spawn_blocking(move || spawn_from_keeper_thread(command))
        .await
        .map_err(std::io::Error::other)??;
    tracing::info!(pid = child.id(), "started a child for lone work");
    Ok(child)
}

/// Waits for the child's end; passes the two wishes to stop on to it.
async fn attend(mut child: Child, drain: &CancellationToken, force: &CancellationToken) -> std::io::Result<ExitStatus> {
    let mut told = [false; 2];
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        for (told, wish) in told.iter_mut().zip([drain, force]) {
            if wish.is_cancelled() && !std::mem::replace(told, true) {
                // Not reaped yet (we would have returned above), so the number is still this child's.
                let pid = Pid::from_raw(i32::try_from(child.id()).map_err(std::io::Error::other)?);
                let _ = kill(pid, Signal::SIGTERM);
                break;
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
