//! Waiting for one task: look, sleep until woken, look again.

use std::time::Duration;

use tidemill_common::name::TaskId;
use tidemill_common::state::State;
use tidemill_common::store::Status;
use tokio::time::Instant;

use crate::client::Client;
use crate::error::Error;
use crate::receipt::{Ended, Waited};
use crate::waits::{LOOK_EVERY, Place};

/// What the first look may take, however short the time given is: a wait of no time at all is a look.
const FIRST_LOOK: Duration = Duration::from_secs(1);
/// A wait that shows the states on the way looks this soon again, and less often the longer it takes.
const WATCH_EVERY: Duration = Duration::from_millis(200);
/// Stands for "for ever" where a clock cannot count that far: thirty years.
const FOR_EVER: Duration = Duration::from_secs(30 * 365 * 86_400);

impl Client {
    /// Waits until a task has ended, for at most `timeout`. It is woken by the end itself, looks again every 5 s in any case, and
    /// goes on through restarts of the server; it looks at least once, which may take up to a second.
    ///
    /// Any number of waits share one listener and its connection. Dropping the future ends the wait and nothing else.
    ///
    /// # Errors
    /// When Redis refuses the question; [`Error::Payload`] when the task has succeeded and its result cannot be decoded here. That
    /// Redis does not answer is no error: the wait goes on until its time is over.
    pub async fn wait(&self, id: &TaskId, timeout: Duration) -> Result<Waited, Error> {
        self.follow(id, timeout, LOOK_EVERY, |_| {}).await
    }

    /// As [`Client::wait`], and shows what is seen on the way: `seen` is called with every status that was looked at, the last one
    /// included. States that a task passes quickly may not be among them.
    ///
    /// # Errors
    /// As [`Client::wait`].
    pub async fn watch(&self, id: &TaskId, timeout: Duration, seen: impl FnMut(&Status)) -> Result<Waited, Error> {
        self.follow(id, timeout, WATCH_EVERY, seen).await
    }

    async fn follow(
        &self,
        id: &TaskId,
        timeout: Duration,
        first_pause: Duration,
        mut seen: impl FnMut(&Status),
    ) -> Result<Waited, Error> {
        let began = Instant::now();
        let deadline = began + timeout.min(FOR_EVER);
        let mut place = self.waits().join(id);
        let mut pause = first_pause;
        let mut last = None;
        loop {
            match tokio::time::timeout_at(deadline.max(began + FIRST_LOOK), place.look()).await {
                Ok(Ok(mut status)) => {
                    self.decode_result(id, &mut status)?;
                    seen(&status);
                    let Some(state) = status.state else { return Ok(Waited::Forgotten) };
                    if let Some(ended) = Ended::of(id, &status) {
                        return Ok(Waited::Ended(ended));
                    }
                    last = Some(state);
                }
                Ok(Err(error)) if error.is_transient() => tracing::debug!(%error, %id, "looks again"),
                Ok(Err(error)) => return Err(error.into()),
                Err(_) => return Ok(Waited::TimedOut { last }),
            }
            if !sleep(&mut place, pause, deadline).await {
                return Ok(Waited::TimedOut { last });
            }
            pause = pause.mul_f64(1.3).min(LOOK_EVERY);
        }
    }
}

/// Sleeps until woken, or for about `pause`. False: the time is over.
async fn sleep(place: &mut Place, pause: Duration, deadline: Instant) -> bool {
    // Waits that began together should not look together.
    let until = (Instant::now() + pause.mul_f64(rand::random_range(0.8..1.0))).min(deadline);
    tokio::select! {
        () = place.woken() => true,
        () = tokio::time::sleep_until(until) => until < deadline,
    }
}

impl Waited {
    /// How the task ended, if it did.
    #[must_use]
    pub fn ended(&self) -> Option<&Ended> {
        match self {
            Self::Ended(ended) => Some(ended),
            Self::TimedOut { .. } | Self::Forgotten => None,
        }
    }

    /// The state that was seen last, if any was.
    #[must_use]
    pub fn state(&self) -> Option<State> {
        match self {
            Self::Ended(ended) => Some(ended.state),
            Self::TimedOut { last } => *last,
            Self::Forgotten => None,
        }
    }
}
