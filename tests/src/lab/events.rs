//! The product's log, read all the time: it is capped, and a case wants all of it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tidemill_common::keys::Base;
use tidemill_embedded::{Connection, Reply, Server};

/// Deliveries of a worker that were taken back in one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reclaim {
    /// When, server ms.
    pub at: u64,
    /// The worker.
    pub worker: String,
    /// The tasks, and where each went: `first`, `dead`, `cancelled`, `invalid`.
    pub tasks: Vec<(String, String)>,
}

/// A recorded end of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// When, server ms.
    pub at: u64,
    /// The task.
    pub id: String,
    /// Its agent.
    pub agent: String,
    /// `d` done, `x` dead, `c` cancelled, `e` expired.
    pub letter: char,
}

/// What the log said so far.
#[derive(Debug, Clone, Default)]
pub struct Events {
    /// All reclaims.
    pub reclaims: Vec<Reclaim>,
    /// All ends.
    pub ends: Vec<Ended>,
    /// All other events: kind and text.
    pub others: Vec<(String, String)>,
    last: String,
    read: u64,
}

/// The fixed part of an outcome in the log: letter, fence, attempt, start, end.
const OUTCOME_BYTES: usize = 30;

impl Events {
    /// When a task was taken back, server ms.
    #[must_use]
    pub fn reclaims_of(&self) -> BTreeMap<&str, Vec<u64>> {
        let mut all: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for reclaim in &self.reclaims {
            for (id, _) in &reclaim.tasks {
                all.entry(id).or_default().push(reclaim.at);
            }
        }
        all
    }

    fn take(&mut self, entry: &Reply) {
        let Some([id, fields]) = entry.as_array() else { panic!("the log has an entry of an unknown form: {entry:?}") };
        id.as_str().unwrap_or_default().clone_into(&mut self.last);
        self.read += 1;
        let at = self.last.split_once('-').and_then(|(ms, _)| ms.parse().ok()).unwrap_or(0);
        for pair in fields.as_array().unwrap_or_default().chunks(2) {
            let [kind, value] = pair else { continue };
            let value = value.as_bytes().unwrap_or_default();
            match kind.as_str().unwrap_or_default().split_at_checked(1) {
                Some(("!", "reclaim")) => self.reclaims.push(reclaim(at, &String::from_utf8_lossy(value))),
                Some(("!", kind)) => self.others.push((kind.to_owned(), String::from_utf8_lossy(value).into_owned())),
                _ => self.take_ends(at, kind.as_str().unwrap_or_default(), value),
            }
        }
    }

    fn take_ends(&mut self, at: u64, agent: &str, mut value: &[u8]) {
        while let Some((outcome, rest)) = value.split_at_checked(OUTCOME_BYTES) {
            let stop = rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
            let id = String::from_utf8_lossy(&rest[..stop]).into_owned();
            self.ends.push(Ended { at, id, agent: agent.to_owned(), letter: char::from(outcome[0]) });
            value = rest.get(stop + 1..).unwrap_or_default();
        }
    }
}

fn reclaim(at: u64, text: &str) -> Reclaim {
    let mut lines = text.lines();
    let worker = lines.next().unwrap_or_default().to_owned();
    let tasks =
        lines.filter_map(|line| line.split_once(' ')).map(|(how, id)| (id.to_owned(), how.to_owned())).collect();
    Reclaim { at, worker, tasks }
}

/// Reads the log in a thread of its own, over any number of lost connections.
#[derive(Debug)]
pub(super) struct Tail {
    shared: Arc<(Mutex<Arc<Events>>, Condvar)>,
    /// Dropped to stop the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    key: String,
}

/// How long one read waits for something new.
const BLOCK_MS: &str = "100";
/// What a server that is there answers within.
const ANSWER: Duration = Duration::from_secs(5);

impl Tail {
    pub(super) fn start(socket: PathBuf, base: &Base) -> Self {
        let shared =
            Arc::new((Mutex::new(Arc::new(Events { last: "0-0".into(), ..Events::default() })), Condvar::new()));
        let (stop, stopped) = channel();
        let key = base.key("log");
        let (theirs, log) = (Arc::clone(&shared), key.clone());
        let follow = move || {
            while stopped.recv_timeout(Duration::from_millis(20)) == Err(RecvTimeoutError::Timeout) {
                if let Ok(connection) = Connection::open(&socket, ANSWER) {
                    follow(connection, &log, &theirs, &stopped);
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("lab-log".into())
            .spawn(follow)
            .unwrap_or_else(|e| panic!("no thread: {e}"));
        Self { shared, stop: Some(stop), thread: Some(thread), key }
    }

    /// All events until now.
    ///
    /// # Panics
    /// When some were trimmed before they were read, or the server does not answer.
    pub(super) fn events(&self, server: &Server) -> Arc<Events> {
        let info =
            server.command(&["XINFO", "STREAM", &self.key]).unwrap_or_else(|e| panic!("no answer about the log: {e}"));
        let fields = info.as_array().unwrap_or_default();
        let field = |name: &str| fields.chunks(2).find(|c| c[0].as_str() == Some(name)).map(|c| c[1].clone());
        let last = field("last-generated-id").and_then(|id| id.as_str().map(entry)).unwrap_or_default();
        let added = field("entries-added").and_then(|n| n.as_int()).unwrap_or(0);
        let (events, more) = &*self.shared;
        let guard = more
            .wait_timeout_while(lock(events), ANSWER, |events| entry(&events.last) < last)
            .unwrap_or_else(PoisonError::into_inner)
            .0;
        assert!(entry(&guard.last) >= last, "the log was not read to its end within {ANSWER:?}");
        // A server that was emptied has added fewer.
        let read = i64::try_from(guard.read).unwrap_or(i64::MAX);
        assert!(read >= added, "{} entries of the log were trimmed before they were read", added - read);
        Arc::clone(&guard)
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(events: &Mutex<Arc<Events>>) -> MutexGuard<'_, Arc<Events>> {
    events.lock().unwrap_or_else(PoisonError::into_inner)
}

fn entry(id: &str) -> (u64, u64) {
    let (ms, n) = id.split_once('-').unwrap_or((id, "0"));
    (ms.parse().unwrap_or(0), n.parse().unwrap_or(0))
}

/// Reads until the connection breaks or the lab ends.
fn follow(mut connection: Connection, key: &str, shared: &(Mutex<Arc<Events>>, Condvar), stopped: &Receiver<()>) {
    while stopped.try_recv() != Err(std::sync::mpsc::TryRecvError::Disconnected) {
        let from = lock(&shared.0).last.clone();
        let reply = connection.command(&["XREAD", "BLOCK", BLOCK_MS, "COUNT", "1000", "STREAMS", key, &from]);
        match reply {
            Ok(Reply::Nil) => {}
            Ok(reply) => {
                let streams = reply.as_array().unwrap_or_default();
                let Some([_, entries]) = streams.first().and_then(Reply::as_array) else { return };
                let mut events = lock(&shared.0);
                // A copy is made only if somebody still looks at an earlier state.
                let events = Arc::make_mut(&mut events);
                for entry in entries.as_array().unwrap_or_default() {
                    events.take(entry);
                }
                shared.1.notify_all();
            }
            Err(_) => return,
        }
    }
}
