//! The lab: a private server, worker processes that can be killed, a ledger that no fault can touch, and what must hold at the end.
//!
//! ```no_run
//! use std::time::Duration;
//! use tidemill_tests::lab::{Lab, Payload};
//!
//! # async fn case() {
//! let lab = Lab::new().await;                                  // ends with the value; leaves nothing behind
//! let w1 = lab.worker("w1");                                   // or lab.start(lab.setup("w1").concurrency(8))
//! lab.submit(&lab.tasks(20, Payload::sleep(300))).await;
//! lab.until("four run", Duration::from_secs(5), async || {     // asks again until it is Ok
//!     let running = lab.ledger().running(w1.pid()).count();
//!     if running == 4 { Ok(()) } else { Err(format!("{running} run")) }
//! }).await;
//! w1.kill();
//! lab.worker("w2");
//! lab.ended(20, Duration::from_secs(20)).await;
//! assert_eq!(lab.events().reclaims.len(), 1);
//! lab.close_with_invariants().await;                           // every case ends so
//! # }
//! ```
//!
//! Counts and times are scaled: see [`profile`]. Everything panics with a message that says what was found; then the last lines of
//! each worker's log are printed.

mod events;
mod invariants;
mod ledger;
mod payload;
pub mod profile;
mod snapshot;
mod worker;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidemill_common::book::{Book, Limit};
use tidemill_common::name::TaskId;
use tidemill_common::store::{Accepted, Applied, BookEdit, Counts, RedisOptions, Store};
use tidemill_common::task::NewTask;

pub use events::{Ended, Events, Reclaim};
pub use ledger::{End, Ledger, Line, Run, Writer, now_ms};
pub use payload::{Mode, Payload, QUIET};
pub use profile::Profile;
pub use snapshot::Snapshot;
pub use worker::{Setup, WorkerProcess};

use crate::server::{self, Options, Reply, Server};

/// Most broken invariants that are told.
const TOLD_MAX: usize = 20;
/// Lines of each worker's log that a failure prints.
const LOG_LINES: usize = 25;
/// How often a condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A private server and what was done to it.
#[derive(Debug)]
pub struct Lab {
    // Dropped in this order: workers first (see `Drop`), then who reads, then the server, then the files.
    tail: events::Tail,
    store: Store,
    server: Server,
    folder: tempfile::TempDir,
    /// The times that its workers keep.
    pub profile: Profile,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    workers: Vec<WorkerProcess>,
    accepted: Vec<TaskId>,
    ledger: Arc<Ledger>,
}

impl Lab {
    /// An empty server in memory.
    pub async fn new() -> Self {
        Self::with(Options::new()).await
    }

    /// An empty server of this kind.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn with(options: Options) -> Self {
        let server = server::start_with(options);
        let store = connect(&server).await;
        let tail = events::Tail::start(server.socket_path().to_owned(), store.base());
        let folder =
            tempfile::Builder::new().prefix("tidemill-lab-").tempdir().unwrap_or_else(|e| panic!("no folder: {e}"));
        Self { tail, store, server, folder, profile: Profile::of_this_run(), seen: Mutex::default() }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }
    /// The server, to be frozen, killed or started again.
    pub fn server_mut(&mut self) -> &mut Server {
        &mut self.server
    }
    /// The lab's own connection, as a producer has one.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }
    /// One command, straight to the server; a refusal is a [`Reply::Error`].
    ///
    /// # Panics
    /// When the server does not answer.
    pub fn raw<A: AsRef<[u8]>>(&self, args: &[A]) -> Reply {
        self.server.command(args).unwrap_or_else(|e| panic!("no answer: {e}"))
    }
    /// A key of the product: `lab.key("z")`.
    #[must_use]
    pub fn key(&self, tail: &str) -> String {
        self.store.base().key(tail)
    }

    /// What a worker of this name is started with.
    #[must_use]
    pub fn setup(&self, name: &str) -> Setup {
        Setup::new(name, self.server.url(), self.profile, self.ledger_path())
    }
    /// Starts a worker with concurrency 4.
    pub fn worker(&self, name: &str) -> WorkerProcess {
        self.start(self.setup(name))
    }
    /// Starts a worker.
    pub fn start(&self, setup: Setup) -> WorkerProcess {
        let mut seen = self.seen();
        let log: PathBuf = self.folder.path().join(format!("{:03}-{}.log", seen.workers.len(), setup.name));
        let worker = WorkerProcess::start(setup, log);
        seen.workers.push(worker.clone());
        worker
    }
    /// Those of its workers that run.
    #[must_use]
    pub fn alive(&self) -> Vec<WorkerProcess> {
        self.seen().workers.iter().filter(|worker| worker.ended().is_none()).cloned().collect()
    }

    /// So many tasks for the agent `ledger`.
    #[must_use]
    pub fn tasks(&self, n: usize, payload: Payload) -> Vec<NewTask> {
        (0..n).map(|_| payload.task()).collect()
    }
    /// Puts limits in force, in the place of those that are.
    ///
    /// # Panics
    /// When it is not taken.
    pub async fn book(&self, limits: Vec<Limit>) {
        let revision = self.store().book().await.expect("an answer").map_or(0, |kept| kept.revision) + 1;
        let book = Book { revision, limits, ..Book::default() };
        let applied = self.store().apply_book(&book.compile(), BookEdit::default()).await.expect("it is taken");
        assert!(matches!(applied, Applied::Applied | Applied::Same), "{applied:?}");
    }

    /// Hands tasks in, all of which must be accepted; the invariants ask after them.
    ///
    /// # Panics
    /// When one is not.
    pub async fn submit(&self, tasks: &[NewTask]) {
        let answers = self.store.submit(tasks, 0).await.unwrap_or_else(|e| panic!("submit failed: {e}"));
        let refused = answers.iter().find(|a| !matches!(a, Accepted::New(_) | Accepted::Duplicate(_)));
        assert!(refused.is_none(), "a task was refused: {refused:?}");
        self.accepted(tasks.iter().map(|task| task.id.clone()));
    }
    /// Tells the invariants of tasks that were accepted in another way.
    pub fn accepted(&self, ids: impl IntoIterator<Item = TaskId>) {
        self.seen().accepted.extend(ids);
    }
    /// The server has lost its data: what was accepted so far is not asked after.
    pub fn forget_accepted(&self) {
        self.seen().accepted.clear();
    }

    /// Where handlers write.
    #[must_use]
    pub fn ledger_path(&self) -> PathBuf {
        self.folder.path().join("ledger")
    }
    /// What handlers have written down.
    #[must_use]
    pub fn ledger(&self) -> Arc<Ledger> {
        let mut seen = self.seen();
        Arc::make_mut(&mut seen.ledger).read_on(&self.ledger_path());
        Arc::clone(&seen.ledger)
    }
    /// What the product's log has said.
    #[must_use]
    pub fn events(&self) -> Arc<Events> {
        self.tail.events(&self.server)
    }
    /// The product's own counts.
    ///
    /// # Panics
    /// When the server does not answer.
    pub async fn counts(&self) -> Counts {
        self.store.counts().await.unwrap_or_else(|e| panic!("no counts: {e}"))
    }
    /// Everything in the shard, at one instant.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::read(&self.server, self.store.base())
    }

    /// Asks until the answer is `Ok`, which it returns; `Err` says how it is instead.
    ///
    /// # Panics
    /// When it is not `Ok` in time.
    pub async fn until<T>(&self, what: &str, within: Duration, mut ask: impl AsyncFnMut() -> Result<T, String>) -> T {
        let by = Instant::now() + within;
        loop {
            match ask().await {
                Ok(answer) => return answer,
                Err(now) => assert!(Instant::now() < by, "waited {within:?} for: {what}; it is: {now}"),
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until so many tasks of this lab have ended, well or badly.
    ///
    /// # Panics
    /// When they have not in time.
    pub async fn ended(&self, n: usize, within: Duration) {
        self.until(&format!("{n} have ended"), within, async || {
            let counts = self.store.counts().await.map_err(|e| e.to_string())?;
            let of = |what: &str| counts.ended.get(what).copied().unwrap_or(0);
            let ended = of("done") + of("dead") + of("cancelled") + of("expired") + of("quarantined");
            if ended >= n as u64 { Ok(()) } else { Err(format!("{ended} have: {counts:?}")) }
        })
        .await;
    }

    /// What must hold at the end of every case; panics with what does not.
    ///
    /// A worker that runs, or a new one if none does, runs one more task. Then all are told to stop, and nothing may be left behind
    /// but what may be: each accepted task in exactly one place, no key without a lifetime, no second run without a reason.
    pub async fn close_with_invariants(self) {
        let broken = self.broken_invariants().await;
        let told = broken[..broken.len().min(TOLD_MAX)].join("\n  ");
        assert!(broken.is_empty(), "{} invariants are broken:\n  {told}", broken.len());
    }

    /// As [`close_with_invariants`](Self::close_with_invariants), and says what does not hold.
    ///
    /// # Panics
    /// When a worker does not consume, or does not end.
    pub async fn broken_invariants(&self) -> Vec<String> {
        invariants::broken(self).await
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let workers = std::mem::take(&mut self.seen().workers);
        for worker in &workers {
            worker.kill();
        }
        if std::thread::panicking() {
            eprintln!("{}", logs(&workers));
        }
    }
}

/// The last lines of the newest workers' logs.
fn logs(workers: &[WorkerProcess]) -> String {
    let mut all = String::new();
    for worker in workers.iter().rev().take(6).rev() {
        let text = worker.log();
        let lines: Vec<&str> = text.lines().collect();
        let last = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n  ");
        all += &format!(
            "--- {} (process {}, {})\n  {last}\n",
            worker.setup().name,
            worker.pid(),
            worker.log_path().display()
        );
    }
    all
}

async fn connect(server: &Server) -> Store {
    let options = RedisOptions { url: server.url(), ..RedisOptions::default() };
    Store::connect(&options).await.unwrap_or_else(|e| panic!("the lab does not reach its server: {e}"))
}
