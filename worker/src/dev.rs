//! `worker dev`: a supervisor whose children are a private server and a worker.
//!
//! The worker is a process of its own, so that it can be killed while the server lives, and is started again when it dies. The
//! first Ctrl-C lets running tasks end, the second ends them; then the server is stopped. When the supervisor itself is killed, the
//! kernel ends both (Linux).

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tidemill_common::config::{Loaded, Origin};
use tidemill_embedded::child::{ParentDeath, die_with_parent};
use tidemill_embedded::{Error as ServerError, HOME_DIR, Options as ServerOptions, Server, Storage, home_dir};
use tidemill_worker::{Shutdown, admin};
use tokio::process::{Child, Command};

use crate::cli::{Dev, Settings};
use crate::config::{self, Config, DEV_DIR, DEV_URL, OFF};
use crate::health;
use crate::run::{FAILED, Failure, USAGE};

/// How often the server and the worker's readiness are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The pause before a worker that died is started again; it doubles while workers die young.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));
/// A worker that lived so long did not die of its start.
const YOUNG: Duration = Duration::from_secs(10);

pub(crate) async fn run(dev: Dev) -> Result<ExitCode, Failure> {
    let here = dev.data.is_none();
    let data = dev.data.unwrap_or_else(|| home_dir().unwrap_or_else(|| PathBuf::from(HOME_DIR)).join(DEV_DIR));
    // Mistakes are told before anything is started.
    let loaded = config::load(dev.settings.add_to(config::loader(None)))?;
    let shutdown = Shutdown::on_signals().context("cannot listen to signals")?;
    let server = start_server(&data)?;
    let url_file =
        UrlFile::write(&data, &server.url()).with_context(|| format!("cannot write into {}", data.display()))?;
    let admin = admin_address(&loaded).await?;
    let settings = dev.settings.at(server.url(), admin.map_or_else(|| OFF.to_owned(), |a| a.to_string()));
    let mut crew = Crew { server, data, here, admin, settings, shutdown, announced: false };
    let ended = crew.supervise(&loaded).await;
    drop(url_file);
    crew.server.stop().context("the server did not stop")?;
    ended
}

fn start_server(data: &Path) -> Result<Server, Failure> {
    let options = ServerOptions::new().storage(Storage::Directory(data.to_owned()));
    Server::start(options).map_err(|error| match error {
        ServerError::NotFound { .. } => Failure::Unreachable(error.to_string()),
        error => anyhow::Error::new(error).context("cannot start the development server").into(),
    })
}

/// The admin address of the worker: the configured one, or a free port when nobody chose the one that is taken. Chosen once, so that
/// it stays over the worker's deaths.
async fn admin_address(loaded: &Loaded<Config>) -> Result<Option<SocketAddr>, Failure> {
    let Some(wanted) = loaded.value.admin().map_err(|what| anyhow!(what))? else { return Ok(None) };
    let anybody_chose_it = *loaded.origin("admin.listen") != Origin::Default;
    let bound = admin::bind(wanted, !anybody_chose_it)
        .await
        .with_context(|| format!("cannot listen on {wanted} (admin.listen)"))?;
    Ok(Some(bound.local_addr().context("the admin listener has no address")?))
}

/// Where others find the server's URL, while it runs.
struct UrlFile(PathBuf);

impl UrlFile {
    fn write(data: &Path, url: &str) -> std::io::Result<Self> {
        let path = data.join(DEV_URL);
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        writeln!(file, "{url}")?;
        Ok(Self(path))
    }
}

impl Drop for UrlFile {
    fn drop(&mut self) {
        // A stale one is harmless: whoever reads it asks first whether the server answers.
        let _ = fs::remove_file(&self.0);
    }
}

struct Crew {
    server: Server,
    data: PathBuf,
    /// The data is where other terminals look by themselves.
    here: bool,
    admin: Option<SocketAddr>,
    settings: Settings,
    shutdown: Shutdown,
    announced: bool,
}

impl Crew {
    /// Keeps a worker running until told to stop; then its exit code.
    async fn supervise(&mut self, loaded: &Loaded<Config>) -> Result<ExitCode, Failure> {
        let mut pause = PAUSE.0;
        loop {
            let (mut worker, began) = (self.start_worker()?, Instant::now());
            let status = self.watch(&mut worker, loaded).await?;
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            if self.shutdown.drain.is_cancelled() {
                return Ok(ExitCode::from(code.unwrap_or(FAILED)));
            }
            if code == Some(USAGE) {
                // It has said what is wrong, and would again.
                return Ok(ExitCode::from(USAGE));
            }
            pause = if began.elapsed() >= YOUNG { PAUSE.0 } else { pause };
            tracing::warn!(%status, again_in = ?pause, "the worker died; it is started again, and its tasks come back when its lease has run out");
            if self.shutdown.drain.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                return Ok(ExitCode::SUCCESS);
            }
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// Called on the main thread, which lives as long as the process: the kernel's "parent" is a thread.
    fn start_worker(&self) -> Result<Child, Failure> {
        let program = std::env::current_exe().context("this program does not know its own path")?;
        let mut command = Command::new(&program);
        command.arg("run").args(self.settings.arguments());
        // Ctrl-C in the terminal reaches the worker through us, after the server is sure to live on; the admin line is for scripts.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null());
        die_with_parent(command.as_std_mut(), ParentDeath::Kill);
        Ok(command.spawn().with_context(|| format!("cannot start {}", program.display()))?)
    }

    /// Waits for the worker's end; passes on the wishes to stop, keeps the server running, says once that all is up.
    async fn watch(&mut self, worker: &mut Child, loaded: &Loaded<Config>) -> Result<ExitStatus, Failure> {
        let mut look = tokio::time::interval(LOOK_EVERY);
        let (mut drain_told, mut force_told) = (false, false);
        let Shutdown { drain, force } = self.shutdown.clone();
        loop {
            tokio::select! {
                ended = worker.wait() => return Ok(ended.context("the worker cannot be awaited")?),
                () = drain.cancelled(), if !drain_told => {
                    drain_told = true;
                    tracing::info!("stopping; running tasks may end, Ctrl-C again to force");
                    tell(worker);
                }
                () = force.cancelled(), if drain_told && !force_told => {
                    force_told = true;
                    tell(worker);
                }
                _ = look.tick() => self.look(worker.id(), loaded).await?,
            }
        }
    }

    async fn look(&mut self, worker: Option<u32>, loaded: &Loaded<Config>) -> Result<(), Failure> {
        if !self.server.is_running() && !self.shutdown.drain.is_cancelled() {
            tracing::warn!("the server died; it is started again on the same data");
            self.server.restart().context("the development server cannot be started again")?;
        }
        if !self.announced && self.is_up().await {
            self.announced = true;
            crate::say(&self.banner(worker.unwrap_or_default(), loaded));
        }
        Ok(())
    }

    async fn is_up(&self) -> bool {
        let Some(admin) = self.admin else { return true };
        let url = format!("http://{}", health::reachable(admin));
        tokio::task::spawn_blocking(move || health::ask(&url)).await.is_ok_and(|answer| answer.is_ok())
    }

    fn banner(&self, pid: u32, loaded: &Loaded<Config>) -> String {
        let (binary, options) = (self.server.binary(), loaded.value.options());
        let data = std::env::current_dir().ok().and_then(|d| self.data.strip_prefix(d).ok().map(Path::to_owned));
        let data = data.unwrap_or_else(|| self.data.clone());
        let mut text = format!(
            "  redis     embedded {} {}, data in {} (kept); for development, not for production\n  worker    {}, process {pid}, {} tasks at once, agents: {}\n",
            binary.flavor(),
            binary.version(),
            data.display(),
            options.name,
            options.concurrency,
            loaded.value.agent_names().join(", "),
        );
        if let Some(admin) = self.admin {
            text.push_str(&format!("  metrics   http://{}/metrics\n", health::reachable(admin)));
        }
        if !self.here {
            let file = self.data.join(DEV_URL);
            text.push_str(&format!("  first     export TIDEMILL__REDIS__URL_FILE={}\n", file.display()));
        }
        text.push_str(
            "  try       producer submit echo --payload '{\"hi\":\"there\"}' --wait\n            producer submit sleep --payload '{\"ms\":20000}' --wait\n",
        );
        text.push_str(&format!("            kill -9 {pid}        # while it sleeps: see its task come back\n"));
        text.push_str("  stop      Ctrl-C (running tasks may end; again to force)\n");
        text
    }
}

/// Asks the worker to stop; the second time it is forced.
fn tell(worker: &Child) {
    // The number is the child's until it has been awaited.
    if let Some(pid) = worker.id().and_then(|pid| i32::try_from(pid).ok()) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
}
