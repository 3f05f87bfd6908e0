//! A seat: the place of one child. It starts one when there is a task for it, and again, with pauses, when it dies.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tidemill_common::name::AgentName;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::live::{End, Live};
use super::pool::{Pool, Request};
use super::{Outcome, ProcessOptions};

/// The pause after the first death; each further one without an answer between doubles it.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
/// The longest pause: a broken command is tried twice a minute.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A task waits so long for a new child; for longer ones it is handed back, so that another worker may have it.
const WAIT_MAX: Duration = Duration::from_secs(1);

pub(super) struct Seat {
    pub(super) agent: AgentName,
    pub(super) options: Arc<ProcessOptions>,
    at: usize,
    pool: Weak<Pool>,
    requests: mpsc::Receiver<Request>,
}

impl Seat {
    pub(super) fn new(
        agent: AgentName,
        options: Arc<ProcessOptions>,
        at: usize,
        pool: Weak<Pool>,
        requests: mpsc::Receiver<Request>,
    ) -> Self {
        Self { agent, options, at, pool, requests }
    }

    /// Tells the pool how its child is.
    pub(super) fn note(&self, warm: bool, ailing: bool) {
        if let Some(pool) = self.pool.upgrade() {
            pool.note(self.at, warm, ailing);
        }
    }

    /// The next task; none when the handler is gone.
    pub(super) async fn next(&mut self) -> Option<Request> {
        self.requests.recv().await
    }

    /// Serves tasks until the handler is gone or the worker ends.
    pub(super) async fn serve(mut self, stop: CancellationToken) {
        let mut pause = Pause::default();
        while let Some(Some(first)) = stop.run_until_cancelled(self.next()).await {
            let Some(first) = pause.over(first, &stop).await else { continue };
            let end = match Live::start(&self.agent, &self.options) {
                Ok(live) => live.serve(&mut self, first, &stop).await,
                Err(error) => {
                    let what = format!("cannot start {:?}: {error}", self.options.command.first());
                    tracing::error!(agent = %self.agent, error = what, "a child cannot be started");
                    first.answer(Outcome::Throttled { error: what, until: pause.next_length() });
                    End { worked: false, well: false }
                }
            };
            match end {
                End { well: true, .. } => pause = Pause::default(),
                End { worked, .. } => pause.died(worked),
            }
            self.note(false, pause.length > WAIT_MAX);
        }
    }
}

/// The pause before a new child.
#[derive(Debug, Default)]
struct Pause {
    until: Option<Instant>,
    length: Duration,
}

impl Pause {
    fn next_length(&self) -> Duration {
        if self.length.is_zero() { PAUSE_FIRST } else { (self.length * 2).min(PAUSE_MAX) }
    }

    /// A child is gone; had it answered something, it begins at the first pause again.
    fn died(&mut self, worked: bool) {
        self.length = if worked { PAUSE_FIRST } else { self.next_length() };
        self.until = Some(Instant::now() + self.length);
    }

    /// Waits the pause out with a task in hand, or hands the task back when that would take long. None: the task is dealt with.
    async fn over(&self, request: Request, stop: &CancellationToken) -> Option<Request> {
        let Some(until) = self.until else { return Some(request) };
        let left = until.saturating_duration_since(Instant::now());
        if left > WAIT_MAX {
            let error = "its child keeps dying; a new one is started after a pause".to_owned();
            request.answer(Outcome::Throttled { error, until: left });
            return None;
        }
        tokio::select! {
            () = tokio::time::sleep_until(until) => Some(request),
            () = request.stop.cancelled() => None,
            () = stop.cancelled() => None,
        }
    }
}
