//! Redis in trouble: told in metrics each time, in the log at most once a second, and never a reason to exit or to spin.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidemill_common::store::Error;

use crate::metrics::Metrics;
use crate::worker::Pulse;

/// A line of the log a second says that something is wrong; more say nothing new.
const SAY_EVERY: Duration = Duration::from_secs(1);

/// Where errors of Redis are told.
#[derive(Debug)]
pub(crate) struct Trouble {
    metrics: Option<Arc<Metrics>>,
    pulse: Arc<Pulse>,
    said: Mutex<Option<Instant>>,
    unsaid: AtomicU64,
}

impl Trouble {
    pub(crate) fn new(metrics: Option<Arc<Metrics>>, pulse: Arc<Pulse>) -> Self {
        Self { metrics, pulse, said: Mutex::new(None), unsaid: AtomicU64::new(0) }
    }

    /// Tells of one error. A lost lease is none of Redis's, and told elsewhere.
    pub(crate) fn tell(&self, op: &'static str, error: &Error) {
        if matches!(error, Error::Gone) {
            return;
        }
        self.pulse.trouble();
        if let Some(metrics) = &self.metrics {
            metrics.redis_error(op, error.reason().as_str());
        }
        {
            let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
            if said.is_some_and(|at| at.elapsed() < SAY_EVERY) {
                self.unsaid.fetch_add(1, Ordering::Relaxed);
                return;
            }
            *said = Some(Instant::now());
        }
        let unsaid = self.unsaid.swap(0, Ordering::Relaxed);
        let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
        tracing::warn!(op, %error, cause, unsaid, "redis does not do as asked; going on");
    }

    /// Asks until there is an answer, or an error that will not pass by itself. The request must be safe to send twice.
    pub(crate) async fn persist<T, F>(&self, op: &'static str, ask: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut tries = 0;
        loop {
            match ask().await {
                Err(error) if error.is_transient() || matches!(error, Error::Full) => {
                    self.tell(op, &error);
                    tokio::time::sleep(pause(tries)).await;
                    tries += 1;
                }
                answer => return answer,
            }
        }
    }
}

/// The wait before trying again: doubles from 20 ms to 1 s, half of it jitter, so that a fleet does not return in step.
pub(crate) fn pause(tries: u32) -> Duration {
    let bound = 20_u64.saturating_mul(1 << tries.min(6)).min(1_000);
    Duration::from_millis(bound / 2 + rand::random_range(0..=bound / 2))
}
