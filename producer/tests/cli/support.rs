//! A server, the program, and a worker that a test plays itself.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tidemill_common::name::WorkerId;
use tidemill_common::store::{Claim, Delivery, Fired, Lease, NewPiece, Offer, Settle, SettleItem, Store, Verb};
use tidemill_embedded::{Options, Server};
use tidemill_producer::{RedisOptions, TaskId};

/// What any one step of a test may take; only a failure takes that long.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn server() -> Server {
    server_with(Options::new())
}

pub(crate) fn server_with(options: Options) -> Server {
    Server::start(options).unwrap_or_else(|error| panic!("no server for this test: {error}"))
}

/// What a run of the program came to.
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The ends of long outputs are what tells most.
        let tail = |text: &str| text.lines().rev().take(12).map(|line| format!("\n    {line}")).collect::<String>();
        write!(
            f,
            "code {:?}\n  stdout, last line first:{}\n  stderr, last line first:{}",
            self.code,
            tail(&self.out),
            tail(&self.err)
        )
    }
}

impl Run {
    /// Stdout as one JSON value.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Stdout as JSON lines.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.out
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
            .collect()
    }

    /// The id that a submit printed.
    pub(crate) fn id(&self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.json()["id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn assert_code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }
}

/// The program, in an empty directory, with nothing of the test's own configuration.
pub(crate) fn bare() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_producer"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TIDEMILL") {
            command.env_remove(name);
        }
    }
    command.current_dir(std::env::temp_dir()).stdin(Stdio::null()).env("NO_COLOR", "1");
    command
}

/// The program, pointed to a server.
pub(crate) fn producer(url: &str, args: &[&str]) -> Command {
    let mut command = bare();
    command.env("TIDEMILL__REDIS__URL", url).args(args);
    command
}

pub(crate) fn finish(mut command: Command) -> Run {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Run { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// Runs it to its end.
pub(crate) fn run(url: &str, args: &[&str]) -> Run {
    finish(producer(url, args))
}

/// Runs it to its end with this on stdin.
pub(crate) fn run_with(url: &str, args: &[&str], stdin: &[u8]) -> Run {
    let mut running = Running::start(producer(url, args));
    running.write(stdin);
    running.end()
}

/// The program while it runs.
pub(crate) struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    out: mpsc::Receiver<String>,
    err: mpsc::Receiver<String>,
}

/// A stream's lines, as they come.
fn lines(from: impl std::io::Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines() {
            let Ok(line) = line else { return };
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (out, err) = (lines(child.stdout.take().unwrap()), lines(child.stderr.take().unwrap()));
        Self { stdin: child.stdin.take(), child, out, err }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// The next line of stdout.
    pub(crate) fn out_line(&self) -> String {
        self.out.recv_timeout(PATIENCE).unwrap()
    }

    /// The next line of stderr that contains this.
    pub(crate) fn err_line(&self, part: &str) -> String {
        loop {
            let line = self.err.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no line with {part:?}"));
            if line.contains(part) {
                return line;
            }
        }
    }

    pub(crate) fn interrupt(&self) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), Signal::SIGINT).unwrap();
    }

    /// Closes stdin and waits for the end.
    pub(crate) fn end(mut self) -> Run {
        drop(self.stdin.take());
        let join = |lines: &mpsc::Receiver<String>| {
            let mut all = String::new();
            while let Ok(line) = lines.recv_timeout(PATIENCE) {
                all.push_str(&line);
                all.push('\n');
            }
            all
        };
        let (out, err) = (join(&self.out), join(&self.err));
        Run { code: self.child.wait().unwrap().code(), out, err }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A worker that does what the test says.
pub(crate) struct Worker {
    pub(crate) store: Store,
    id: WorkerId,
    sequence: u64,
    offers: Vec<Offer>,
}

impl Worker {
    pub(crate) async fn start(url: &str, agent: &str) -> Self {
        let redis = RedisOptions { url: url.to_owned(), ..RedisOptions::default() };
        let store = Store::connect(&redis).await.unwrap();
        let id = WorkerId::incarnate("test").unwrap();
        let agent: tidemill_producer::AgentName = agent.parse().unwrap();
        let lease = Lease {
            lease: Duration::from_secs(60),
            sweep_hold: Duration::from_secs(60),
            unknown_agent_after: Duration::ZERO,
        };
        store.renew(&id, lease, Some(std::slice::from_ref(&agent)), false).await.unwrap();
        Self { store, id, sequence: 0, offers: vec![Offer { agent, room: 1000 }] }
    }

    pub(crate) async fn claim(&mut self) -> Vec<Delivery> {
        self.sequence += 1;
        let claim = Claim {
            worker: &self.id,
            sequence: self.sequence,
            most: 100,
            lone: false,
            shares: [100; 4],
            offers: &self.offers,
        };
        self.store.claim(&claim).await.unwrap().deliveries
    }

    pub(crate) async fn settle(&mut self, deliveries: &[Delivery], verb: Verb) {
        self.sequence += 1;
        let item = |d: &Delivery| SettleItem::new(d.id.clone(), d.fence, verb.clone());
        let items: Vec<_> = deliveries.iter().map(item).collect();
        self.store.settle(&Settle { worker: &self.id, lane: 0, sequence: self.sequence, items: &items }).await.unwrap();
    }

    /// Writes output of a delivery, of which so much was written before.
    pub(crate) async fn emit(&self, delivery: &Delivery, offset: u64, data: &[u8]) {
        let piece = NewPiece {
            id: delivery.id.clone(),
            fence: delivery.fence,
            attempt: delivery.attempt,
            offset,
            data: data.to_vec().into(),
        };
        assert_eq!(self.store.emit(&[piece]).await.unwrap(), [true]);
    }

    /// Fires the slot of a schedule that comes next, and gives its task.
    pub(crate) async fn fire_next(&self) -> TaskId {
        let lease = Lease {
            lease: Duration::from_secs(60),
            sweep_hold: Duration::from_secs(60),
            unknown_agent_after: Duration::ZERO,
        };
        loop {
            let swept = self.store.sweep(&self.id, lease).await.unwrap();
            for slot in swept.slots {
                let schedule = slot.schedule().unwrap();
                let due = schedule.due(slot.slot_ms, swept.now_ms).unwrap();
                if let Fired::In(id) = self.store.fire(&slot, &due, schedule.overlap, &schedule.task()).await.unwrap() {
                    return id;
                }
            }
            // The server says when the next slot comes.
            tokio::time::sleep(Duration::from_millis(swept.next_slot_ms.saturating_sub(swept.now_ms).clamp(1, 1_000)))
                .await;
        }
    }

    pub(crate) async fn succeed(&mut self, deliveries: &[Delivery], result: &'static str) {
        self.settle(deliveries, Verb::Done { result: bytes::Bytes::from_static(result.as_bytes()), keep_ms: 60_000 })
            .await;
    }

    /// Takes all that there is and lets each end badly, with the error that is made for it.
    pub(crate) async fn kill_all(&mut self, error: impl Fn(&Delivery) -> String) {
        loop {
            let deliveries = self.claim().await;
            if deliveries.is_empty() {
                return;
            }
            self.sequence += 1;
            let item = |d: &Delivery| SettleItem::new(d.id.clone(), d.fence, Verb::Dead { error: error(d) });
            let items: Vec<_> = deliveries.iter().map(item).collect();
            let settle = Settle { worker: &self.id, lane: 0, sequence: self.sequence, items: &items };
            self.store.settle(&settle).await.unwrap();
        }
    }

    /// The payload of a delivery, wherever it lies.
    pub(crate) async fn payload(&self, delivery: &Delivery) -> bytes::Bytes {
        let task = tidemill_common::envelope::open(delivery.id.clone(), &delivery.envelope).unwrap();
        if task.payload_apart { self.store.payload(task.id.as_str()).await.unwrap().unwrap() } else { task.payload }
    }
}

/// All that a terminal's other side says until it closes it, which is an error and not an end.
pub(crate) fn read_all(mut from: impl std::io::Read) -> String {
    let (mut all, mut part) = (Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = from.read(&mut part) {
        all.extend_from_slice(&part[..read]);
    }
    String::from_utf8(all).unwrap()
}
