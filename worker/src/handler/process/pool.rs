//! The seats of one agent, and which of them takes the next task.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidemill_common::name::AgentName;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::seat::Seat;
use super::{Context, Outcome, ProcessOptions};

/// After this a task that was not its own fault may be tried again.
pub(super) const SHORTLY: Duration = Duration::from_millis(200);

/// A task on its way to a child.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) context: Context,
    /// Cancelled when nobody wants the answer any more.
    pub(super) stop: CancellationToken,
    pub(super) answer: oneshot::Sender<Outcome>,
    /// Freed when the child is done with it, which may be later than the handler's future is gone.
    pub(super) _place: Place,
}

impl Request {
    pub(super) fn answer(self, outcome: Outcome) {
        // Nobody listens when it was called off.
        let _ = self.answer.send(outcome);
    }
}

/// One of a child's slots, taken.
#[derive(Debug)]
pub(super) struct Place {
    pool: Arc<Pool>,
    seat: usize,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.pool.loads()[self.seat].tasks -= 1;
    }
}

/// What a seat has to do.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Load {
    tasks: usize,
    /// Its child runs and is ready.
    warm: bool,
    /// Its child could not be started just now.
    ailing: bool,
}

/// The seats of one agent.
#[derive(Debug)]
pub(super) struct Pool {
    slots: usize,
    free: Arc<Semaphore>,
    loads: Mutex<Vec<Load>>,
    seats: Vec<mpsc::Sender<Request>>,
}

impl Pool {
    pub(super) fn new(agent: &AgentName, options: ProcessOptions) -> (Arc<Self>, Vec<Seat>) {
        let (children, slots) = (options.children.max(1), options.slots.max(1));
        let options = Arc::new(ProcessOptions { children, slots, ..options });
        let (seats, requests): (Vec<_>, Vec<_>) = (0..children).map(|_| mpsc::channel(slots)).unzip();
        let pool = Arc::new(Self {
            slots,
            free: Arc::new(Semaphore::new((children * slots).min(Semaphore::MAX_PERMITS))),
            loads: Mutex::new(vec![Load::default(); children]),
            seats,
        });
        // Seats know the pool weakly, so that it, and their channels, end with the handler.
        let of = |(at, requests)| Seat::new(agent.clone(), Arc::clone(&options), at, Arc::downgrade(&pool), requests);
        let seats = requests.into_iter().enumerate().map(of).collect();
        (pool, seats)
    }

    fn loads(&self) -> std::sync::MutexGuard<'_, Vec<Load>> {
        self.loads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a seat says of its child.
    pub(super) fn note(&self, seat: usize, warm: bool, ailing: bool) {
        let load = &mut self.loads()[seat];
        (load.warm, load.ailing) = (warm, ailing);
    }

    /// Waits for a free slot and takes it: of a child that runs, and has least to do; else where a new one may be started.
    pub(super) async fn place(self: &Arc<Self>) -> Place {
        // The semaphore is never closed; without a permit the least loaded seat simply queues.
        let permit = Arc::clone(&self.free).acquire_owned().await.ok();
        let mut loads = self.loads();
        let rank = |load: &Load| (load.tasks >= self.slots, load.ailing, !load.warm, load.tasks);
        let seat = (0..loads.len()).min_by_key(|at| rank(&loads[*at])).unwrap_or_default();
        loads[seat].tasks += 1;
        drop(loads);
        Place { pool: Arc::clone(self), seat, _permit: permit }
    }

    /// Gives a task to the seat and waits for what became of it; none when the seats are gone.
    pub(super) async fn hand_over(&self, place: Place, context: Context, stop: CancellationToken) -> Option<Outcome> {
        let (answer, answered) = oneshot::channel();
        let seat = &self.seats[place.seat];
        seat.send(Request { context, stop, answer, _place: place }).await.ok()?;
        answered.await.ok()
    }
}
