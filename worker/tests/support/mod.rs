//! What the worker's own integration tests share: a private server, and the program `worker` on it.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use tidemill_common::name::TaskId;
use tidemill_common::state::State;
use tidemill_common::store::{Accepted, RedisOptions, Status, Store};
use tidemill_common::task::NewTask;
use tidemill_embedded::{ENV_SERVER_BIN, Options, Server};

/// Nothing here takes longer, even on a machine that builds at the same time.
const PATIENCE: Duration = Duration::from_secs(20);

/// The program, in an environment that says nothing of us.
pub(crate) fn program(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_worker"));
    for (name, _) in std::env::vars_os() {
        // The server of this run stays: a machine may have no other.
        if name.to_string_lossy().starts_with("TIDEMILL_") && name != ENV_SERVER_BIN {
            command.env_remove(name);
        }
    }
    command.current_dir(directory).env("TIDEMILL_HOME", directory.join("home")).stdin(Stdio::null());
    command
}

/// Runs a command to its end.
pub(crate) fn output(command: &mut Command) -> Output {
    command.output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A running `worker run`; killed when dropped.
pub(crate) struct Worker {
    pub(crate) child: Child,
    pub(crate) admin: String,
}

impl Worker {
    /// Starts one on a server with a configuration file, and waits until it consumes.
    pub(crate) async fn start(server: &Server, directory: &Path, config: &str, flags: &[&str]) -> Self {
        let file = directory.join("worker.toml");
        fs::write(&file, config).unwrap();
        let mut command = program(directory);
        command.args(["run", "--admin=127.0.0.1:0", "--profile=fast", "--config"]).arg(file).args(flags);
        command.env("TIDEMILL__REDIS__URL", server.url()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let admin = line.trim().strip_prefix("admin ").expect("the address is printed").to_owned();
        let worker = Self { child, admin };
        let asks = async || worker.get("/readyz").is_some_and(|answer| answer.contains(" 200 "));
        until("the worker is ready", asks).await;
        worker
    }

    /// A page of its admin listener, head and body.
    pub(crate) fn get(&self, path: &str) -> Option<String> {
        ask(self.admin.strip_prefix("http://")?, path)
    }

    /// What it answers to this request, word for word.
    pub(crate) fn request(&self, request: &str) -> String {
        let host = self.admin.strip_prefix("http://").unwrap();
        send(host, request).unwrap()
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Waits for its end.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        ended(&mut self.child).await
    }
}

/// A page of an address, head and body.
pub(crate) fn ask(host: &str, path: &str) -> Option<String> {
    send(host, &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
}

fn send(host: &str, request: &str) -> Option<String> {
    use std::io::Write as _;
    let mut stream = std::net::TcpStream::connect(host).ok()?;
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) async fn ended(child: &mut Child) -> ExitStatus {
    let mut status = None;
    until("the process has ended", async || {
        status = child.try_wait().unwrap();
        status.is_some()
    })
    .await;
    status.unwrap()
}

pub(crate) fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap();
    assert!(sent.success(), "kill -{name} {pid}");
}

/// Whether a process runs (a dead one that nobody has awaited does not).
pub(crate) fn runs(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// Looks until it holds.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A server in memory, and a handle on it.
pub(crate) async fn server() -> (Server, Store) {
    let server = Server::start(Options::new()).unwrap();
    let options = RedisOptions { url: server.url(), ..RedisOptions::default() };
    let store = Store::connect(&options).await.unwrap();
    (server, store)
}

pub(crate) async fn submit(store: &Store, agent: &str, payload: impl Into<bytes::Bytes>) -> TaskId {
    let mut task = NewTask::new(agent.parse().unwrap(), payload);
    task.meta.retry = Some(tidemill_common::retry::RetryPolicy { base_ms: 1, cap_ms: 1 });
    let accepted = store.submit(std::slice::from_ref(&task), 0).await.unwrap();
    assert_eq!(accepted, [Accepted::New(task.id.clone())]);
    task.id
}

/// Waits for the end of a task.
pub(crate) async fn end(store: &Store, id: &TaskId) -> Status {
    let mut status = store.status(id, None).await.unwrap();
    until("the task has ended", async || {
        status = store.status(id, None).await.unwrap();
        status.state.is_some_and(State::has_ended)
    })
    .await;
    status
}

/// Waits for a file that a child writes, and reads it.
pub(crate) async fn file(path: &Path) -> String {
    until("the child has written its file", async || fs::read_to_string(path).is_ok_and(|text| text.ends_with('\n')))
        .await;
    fs::read_to_string(path).unwrap().trim().to_owned()
}
