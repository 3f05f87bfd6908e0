//! Waiting for the ends of tasks: any number of waits share one listener and its one connection.
//!
//! Each look at a task's status leaves, in the same script, a note to wake this client at its end, so no end slips between
//! looking and sleeping. A note may still be lost (its reply was cut, the server restarted without it), therefore every wait looks
//! again after at most [`LOOK_EVERY`]: being woken is a courtesy, looking is the promise.
//!
//! The listener lives while somebody waits and ends within [`LISTEN`] after the last one left.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidemill_common::name::{TaskId, WorkerId};
use tidemill_common::store::{Bell, Error, Heard, Status, Store};
use tokio::sync::{Semaphore, watch};

use crate::client::firmly;

/// Longest time between two looks of one wait.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(5);
/// One blocking read.
const LISTEN: Duration = Duration::from_secs(5);
/// Looks under way at once, so that ten thousand waits that wake together are not ten thousand requests at once.
const LOOKS_MAX: usize = 64;
/// Longest pause before a listener that failed tries again.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// All that a client waits for.
pub(crate) struct Waits {
    store: Store,
    /// The name under which this client is woken: never used twice.
    me: String,
    table: Mutex<Table>,
    looks: Semaphore,
}

#[derive(Default)]
struct Table {
    waiting: HashMap<TaskId, watch::Sender<()>>,
    listening: bool,
}

/// One wait's place in the table; it leaves when dropped.
pub(crate) struct Place {
    waits: Arc<Waits>,
    id: TaskId,
    woken: watch::Receiver<()>,
}

impl Waits {
    pub(crate) fn new(store: Store) -> Self {
        // The fixed name is always a good one; were it not, a random id would do.
        let me = WorkerId::incarnate("producer").map_or_else(|_| TaskId::generate().to_string(), String::from);
        Self { store, me, table: Mutex::default(), looks: Semaphore::new(LOOKS_MAX) }
    }

    /// Takes a place, before the first look: a wake-up between the two is kept. Starts the listener if there is none.
    pub(crate) fn join(self: &Arc<Self>, id: &TaskId) -> Place {
        let mut table = self.table();
        let woken = table.waiting.entry(id.clone()).or_insert_with(|| watch::channel(()).0).subscribe();
        if !std::mem::replace(&mut table.listening, true) {
            tokio::spawn(listen(Arc::clone(self)));
        }
        drop(table);
        Place { waits: Arc::clone(self), id: id.clone(), woken }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, id: &str) {
        if let Ok(id) = id.parse::<TaskId>()
            && let Some(sender) = self.table().waiting.get(&id)
        {
            sender.send_replace(());
        }
    }

    fn wake_all(&self) {
        for sender in self.table().waiting.values() {
            sender.send_replace(());
        }
    }

    /// Whether the listener has anybody to listen for. The last word: when not, the next wait starts another.
    fn goes_on(&self) -> bool {
        let mut table = self.table();
        table.listening = !table.waiting.is_empty();
        table.listening
    }
}

impl Place {
    /// Looks at the task, and asks to be woken at its end.
    pub(crate) async fn look(&self) -> Result<Status, Error> {
        // Never closed, so the only way on is with a permit.
        let _permit = self.waits.looks.acquire().await;
        firmly(|| self.waits.store.status(&self.id, Some(&self.waits.me))).await
    }

    /// Sleeps until the task may have ended.
    pub(crate) async fn woken(&mut self) {
        if self.woken.changed().await.is_err() {
            // The sender is in the table as long as this place is; without one, only looking helps.
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.waits.table();
        // Our own receiver still counts.
        if table.waiting.get(&self.id).is_some_and(|sender| sender.receiver_count() <= 1) {
            table.waiting.remove(&self.id);
        }
    }
}

async fn listen(waits: Arc<Waits>) {
    let mut bell: Option<Bell> = None;
    let mut failures = 0_u32;
    while waits.goes_on() {
        match hear(&waits, &mut bell).await {
            Ok(Heard::Ended(id)) => waits.wake(&id),
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(%error, "the listener heard nothing; it tries again");
                // What was said meanwhile may be lost.
                waits.wake_all();
                failures = failures.saturating_add(1);
                let pause = Duration::from_millis(50 << failures.min(5)).min(PAUSE_MAX);
                tokio::time::sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
                continue;
            }
        }
        failures = 0;
    }
    if let Some(bell) = bell {
        bell.close().await;
    }
}

async fn hear(waits: &Waits, bell: &mut Option<Bell>) -> Result<Heard, Error> {
    let ear = match bell {
        Some(ear) => ear,
        None => bell.insert(waits.store.bell().await?),
    };
    ear.listen(&waits.me, false, LISTEN).await
}
