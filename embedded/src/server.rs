//! The life of one private server: start, ask, stop, kill, freeze, restart.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::child::{ParentDeath, die_with_parent, spawn_from_keeper_thread};
use crate::layout::Layout;
use crate::lock::{self, Lock};
use crate::options::{Options, Storage, Tcp};
use crate::wait::poll_until;
use crate::{Connection, Error, Reply, ServerBinary, find_server, port, socket, up};

/// A server that has been told to stop writes what it has to disk; after this it is killed.
const STOP_WITHIN: Duration = Duration::from_secs(10);
/// One command of a test or of upkeep; none of them is slow.
const COMMAND_LIMIT: Duration = Duration::from_secs(5);
/// How often another process may snatch the port that we just found free.
const PORT_TRIES: usize = 5;

/// A private Redis or Valkey server: our child process, reachable on a Unix socket that only this user may
/// open.
///
/// Dropping it ends the server (SIGKILL, or a clean stop with [`Storage::Directory`]) and removes its
/// temporary files. When this process dies without dropping it, the kernel ends the server (Linux; see
/// [`child`](crate::child)), and the temporary files stay behind. The server is in a process group of its
/// own, so Ctrl-C in a terminal does not reach it before its clients are done.
///
/// All methods block their thread: up to 10 s to start or stop, 5 s for a command, and milliseconds as a
/// rule. They may be called from async code at the beginning and end of a program or test, not while it
/// serves.
#[derive(Debug)]
pub struct Server {
    binary: ServerBinary,
    options: Options,
    layout: Layout,
    lock: Option<Lock>,
    port: Option<u16>,
    child: Option<Child>,
}

impl Server {
    /// Starts a server and waits until it answers PING. It may be called from any thread, short-lived ones
    /// too.
    ///
    /// # Errors
    ///
    /// Those of [`find_server`] when no binary was given; [`Error::InUse`] and [`Error::SocketPath`] when
    /// another server is there already; [`Error::Exited`] and [`Error::NotReady`], with the server's last log
    /// lines, when it does not come up. Nothing is left running then.
    pub fn start(options: Options) -> Result<Self, Error> {
        let binary = options.binary.clone().map_or_else(find_server, Ok)?;
        let layout = Layout::new(&options)?;
        let lock = match &options.storage {
            Storage::Directory(_) => Some(Lock::take(&layout.dir)?),
            Storage::Memory | Storage::Temporary => None,
        };
        if lock::ask(&layout.socket).is_ok() {
            let reason = "another server answers on it".to_owned();
            return Err(Error::SocketPath { path: layout.socket, reason });
        }
        let mut server = Server { binary, options, layout, lock, port: None, child: None };
        server.launch_on_its_port()?;
        Ok(server)
    }

    /// The Unix socket's path.
    #[must_use]
    pub fn socket_path(&self) -> &Path {
        &self.layout.socket
    }

    /// The server's URL by its Unix socket, as fred reads it: `redis+unix:///tmp/tidemill-x/redis.sock`.
    #[must_use]
    pub fn url(&self) -> String {
        socket::url(&self.layout.socket)
    }

    /// The TCP port on 127.0.0.1, unless the server was started with [`Tcp::Off`]. The same over restarts.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// The server's URL by TCP, `redis://127.0.0.1:PORT`, unless it was started with [`Tcp::Off`].
    #[must_use]
    pub fn tcp_url(&self) -> Option<String> {
        self.port.map(|port| format!("redis://127.0.0.1:{port}"))
    }

    /// The process id, while it runs: `None` after [`stop`](Self::stop) and [`kill`](Self::kill). Changes
    /// with each restart.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// The binary that runs.
    #[must_use]
    pub fn binary(&self) -> &ServerBinary {
        &self.binary
    }

    /// The server's log file.
    #[must_use]
    pub fn log_path(&self) -> PathBuf {
        self.layout.log_path()
    }

    /// Whether the process is alive. It notices a server that ended by itself.
    pub fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Sends one command on a connection of its own and waits up to 5 s for the reply. A refusal by the
    /// server is an `Ok(Reply::Error(_))`.
    ///
    /// # Errors
    ///
    /// [`Error::NotRunning`], or [`Error::Command`] when there was no reply in time; the command may have
    /// run.
    pub fn command<A: AsRef<[u8]>>(&self, args: &[A]) -> Result<Reply, Error> {
        let name = || args.first().map_or_else(String::new, |word| String::from_utf8_lossy(word.as_ref()).into_owned());
        self.connect()?.command(args).map_err(|source| Error::Command { command: name(), source })
    }

    /// Opens a connection to keep, with 5 s for each reply.
    ///
    /// # Errors
    ///
    /// [`Error::NotRunning`], or [`Error::Command`] when the server does not take the connection.
    pub fn connect(&self) -> Result<Connection, Error> {
        if self.child.is_none() {
            return Err(Error::NotRunning);
        }
        let failed = |source| Error::Command { command: "connect".to_owned(), source };
        Connection::open(&self.layout.socket, COMMAND_LIMIT).map_err(failed)
    }

    /// Stops the server cleanly (SIGTERM), or kills it when it has not ended after 10 s. Does nothing when it
    /// is not running.
    ///
    /// # Errors
    ///
    /// [`Error::Process`] when the operating system refuses; the server may be running then.
    pub fn stop(&mut self) -> Result<(), Error> {
        let Some(child) = &mut self.child else { return Ok(()) };
        // A frozen process does not see SIGTERM until it goes on.
        signal(child, Signal::SIGTERM, "stop")?;
        signal(child, Signal::SIGCONT, "stop")?;
        let ended = poll_until(Instant::now() + STOP_WITHIN, || child.try_wait().transpose());
        match ended.transpose() {
            Ok(Some(_)) => {
                self.child = None;
                Ok(())
            }
            Ok(None) => self.kill(),
            Err(source) => Err(Error::Process { action: "stop", source }),
        }
    }

    /// Kills the server (SIGKILL) and waits for its end, as in a crash: nothing is saved on the way. Does
    /// nothing when it is not running.
    ///
    /// # Errors
    ///
    /// [`Error::Process`] when the operating system refuses.
    pub fn kill(&mut self) -> Result<(), Error> {
        let Some(child) = &mut self.child else { return Ok(()) };
        child.kill().and_then(|()| child.wait()).map_err(|source| Error::Process { action: "kill", source })?;
        self.child = None;
        Ok(())
    }

    /// Stops the server if it runs, and starts it again at the same socket and port. With [`Storage::Memory`]
    /// it comes back empty.
    ///
    /// # Errors
    ///
    /// Those of [`stop`](Self::stop) and [`start`](Self::start).
    pub fn restart(&mut self) -> Result<(), Error> {
        self.stop()?;
        self.launch()
    }

    /// Freezes the process (SIGSTOP): connections stay open and nothing answers, as with a hanging machine.
    ///
    /// # Errors
    ///
    /// [`Error::NotRunning`] or [`Error::Process`].
    pub fn freeze(&mut self) -> Result<(), Error> {
        signal(self.child.as_ref().ok_or(Error::NotRunning)?, Signal::SIGSTOP, "freeze")
    }

    /// Lets a frozen process go on (SIGCONT).
    ///
    /// # Errors
    ///
    /// [`Error::NotRunning`] or [`Error::Process`].
    pub fn thaw(&mut self) -> Result<(), Error> {
        signal(self.child.as_ref().ok_or(Error::NotRunning)?, Signal::SIGCONT, "thaw")
    }

    fn launch_on_its_port(&mut self) -> Result<(), Error> {
        match self.options.tcp {
            Tcp::Off => self.launch(),
            Tcp::Port(port) => {
                self.port = Some(port);
                self.launch()
            }
            Tcp::Free => {
                for _ in 1..PORT_TRIES {
                    self.port = Some(port::free()?);
                    match self.launch() {
                        Err(Error::Exited { log, .. }) if log.contains("Address already in use") => {}
                        done => return done,
                    }
                }
                self.port = Some(port::free()?);
                self.launch()
            }
        }
    }

    /// Starts the process and waits for it to answer.
    fn launch(&mut self) -> Result<(), Error> {
        let config = self.layout.write_config(self.port, &self.options.lines)?;
        let (log, log_from) = self.layout.open_log()?;
        let spawn_error = |source| Error::Spawn { path: self.binary.path().to_owned(), source };

        let mut cmd = Command::new(self.binary.path());
        cmd.arg(config).current_dir(&self.layout.dir).process_group(0);
        cmd.stdin(self.lock.as_ref().map_or_else(|| Ok(Stdio::null()), Lock::share)?);
        cmd.stdout(log.try_clone().map_err(spawn_error)?).stderr(log);
        die_with_parent(&mut cmd, self.parent_death());
        let child = spawn_from_keeper_thread(cmd).map_err(spawn_error)?;

        let pid = child.id();
        self.child = Some(child);
        let up = match &mut self.lock {
            Some(lock) => lock.sign(pid, &self.layout.socket),
            None => Ok(()),
        };
        let limit = self.options.ready_within;
        let up = up.and_then(|()| match &mut self.child {
            Some(child) => up::wait(child, &self.layout, limit, log_from),
            None => Err(Error::NotRunning),
        });
        if up.is_err() {
            self.kill()?;
        }
        up
    }

    fn parent_death(&self) -> ParentDeath {
        match self.options.storage {
            Storage::Memory | Storage::Temporary => ParentDeath::Kill,
            Storage::Directory(_) => ParentDeath::Terminate,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nobody is left to tell; what cannot be ended here ends with this process.
        let _ = match self.options.storage {
            Storage::Memory | Storage::Temporary => self.kill(),
            Storage::Directory(_) => self.stop(),
        };
    }
}

/// The child has not been waited for yet, so its number cannot belong to another process.
fn signal(child: &Child, signal: Signal, action: &'static str) -> Result<(), Error> {
    let pid = i32::try_from(child.id()).map_err(|error| Error::Process { action, source: io::Error::other(error) })?;
    match nix::sys::signal::kill(Pid::from_raw(pid), signal) {
        // It has ended by itself and waits to be reaped, or was reaped by `is_running`.
        Ok(()) | Err(nix::errno::Errno::ESRCH) => Ok(()),
        Err(errno) => Err(Error::Process { action, source: errno.into() }),
    }
}
