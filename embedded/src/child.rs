//! Children that do not outlive their parent.
//!
//! On Linux the kernel itself can be asked to signal a child when its parent dies (`PR_SET_PDEATHSIG`), which
//! holds even when the parent was killed with SIGKILL and could run no clean-up. This file is the only place
//! of the workspace with `unsafe` code: [`pre_exec`](std::os::unix::process::CommandExt::pre_exec) needs it.
//!
//! **The trap.** "Parent" means the *thread* that spawned the child, not the process. A child spawned from a thread that ends, such
//! as one of tokio's `spawn_blocking` threads (gone after 10 s without work), is signalled when that thread
//! ends, at a random later time. So spawn from a thread that lives as long as the child should: the main
//! thread, a runtime worker thread, or through [`spawn_from_keeper_thread`], which has one thread for just
//! this.
//!
//! On other systems than Linux [`die_with_parent`] does nothing, so a child can be left behind when its
//! parent is killed.

use std::io;
use std::process::{Child, Command};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The signal that a child gets when its parent thread dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParentDeath {
    /// SIGKILL: ends at once. For children that have nothing to save.
    Kill,
    /// SIGTERM: the child may save what it has, and has to end by itself.
    Terminate,
}

/// Makes the child that `cmd` will spawn get `signal` when the spawning thread dies (see the module's trap).
///
/// Call it once for each command, in the process that will spawn it. It closes the race in which the parent
/// dies between fork and the request: the child then sees another parent than the one that asked, and does
/// not start at all. The setting survives `exec`, but not the `exec` of a set-user-id program, and it is not
/// inherited by the child's own children.
///
/// For a `tokio::process::Command`, pass its `as_std_mut()`.
#[cfg(target_os = "linux")]
pub fn die_with_parent(cmd: &mut Command, signal: ParentDeath) {
    use nix::sys::signal::Signal;
    use std::os::unix::process::CommandExt as _;

    let signal = match signal {
        ParentDeath::Kill => Signal::SIGKILL,
        ParentDeath::Terminate => Signal::SIGTERM,
    };
    let parent = nix::unistd::getpid();
    let ask_kernel = move || {
        nix::sys::prctl::set_pdeathsig(signal)?;
        if nix::unistd::getppid() != parent {
            // The parent died before the line above: its death will not be signalled any more.
            return Err(io::ErrorKind::Interrupted.into());
        }
        Ok(())
    };
    // SAFETY: the closure runs in the forked child before exec, where only async-signal-safe work is allowed.
    // It makes two plain system calls (prctl, getppid), allocates nothing, takes no lock, and its errors are
    // built without allocation.
    #[expect(unsafe_code, reason = "pre_exec is the only way to run prctl in the child; see the safety comment")]
    unsafe {
        cmd.pre_exec(ask_kernel);
    }
}

/// Does nothing on this system: only Linux can signal a child when its parent dies.
#[cfg(not(target_os = "linux"))]
pub fn die_with_parent(_cmd: &mut Command, _signal: ParentDeath) {}

type Request = (Command, Sender<io::Result<Child>>);

/// Spawns `cmd` from one thread that lives until the process ends, so that [`die_with_parent`] means the
/// process and not the calling thread. Blocks for the time of a fork and exec (about a millisecond).
///
/// # Errors
///
/// What [`Command::spawn`] gives, or the error of starting the keeper thread.
pub fn spawn_from_keeper_thread(cmd: Command) -> io::Result<Child> {
    static KEEPER: OnceLock<Mutex<Option<Sender<Request>>>> = OnceLock::new();

    let (answer_to, answer) = channel();
    let mut keeper = KEEPER.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if keeper.is_none() {
        *keeper = Some(start_keeper()?);
    }
    let gone = || io::Error::other("the thread that spawns children is gone");
    keeper.as_ref().ok_or_else(gone)?.send((cmd, answer_to)).map_err(|_| gone())?;
    drop(keeper);
    answer.recv().map_err(|_| gone())?
}

fn start_keeper() -> io::Result<Sender<Request>> {
    let (requests_to, requests) = channel::<Request>();
    std::thread::Builder::new().name("tidemill-keeper".to_owned()).spawn(move || {
        for (mut cmd, answer_to) in requests {
            // A caller that is gone takes its child with it: dropping a `Child` leaves it running, so end it.
            if let Err(unsent) = answer_to.send(cmd.spawn())
                && let Ok(mut child) = unsent.0
            {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    })?;
    Ok(requests_to)
}
