//! The client: one connection, shared by its clones.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidemill_common::name::TaskId;
use tidemill_common::store::{self, Accepted, Cancelled, Counts, RedisOptions, Store};
use tidemill_common::task::{Invalid, NewTask, PAYLOAD_BYTES_MAX, Priority};
use tidemill_common::trace;
use tidemill_payloads::Payloads;
use tracing::Instrument as _;

use crate::error::Error;
use crate::receipt::{Receipt, Taken};
use crate::waits::Waits;

/// How much longer than the connection itself the first questions on it may take.
const FIRST_QUESTIONS: Duration = Duration::from_millis(500);
/// Pauses before a request that was refused is sent again.
const REFUSAL_PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(250)];
/// Bounds of the pauses of a task that waits for room.
const ROOM_PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));
/// Longest trace context, in bytes: the W3C form has 55. A longer one could not be sent.
const TRACE_BYTES_MAX: usize = 512;

/// How a [`Client`] connects, and what it refuses before it asks.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where Redis is, and how patient to be with it.
    pub redis: RedisOptions,
    /// Most waiting tasks of one queue and priority; above it tasks are refused ([`Error::Full`]), low ones from four fifths of it.
    /// 0: no bound.
    pub waiting_max: u64,
    /// How long an urgent or high task waits for room before it is refused; never longer than its own start deadline or most age.
    /// Zero: it is refused at once, as normal and low ones are.
    pub room_within: Duration,
    /// Largest payload, in bytes, as it is handed in.
    pub payload_bytes_max: usize,
    /// What is done to payloads and results; none: payloads are handed in as they are. Its own bound on them holds as well.
    pub payloads: Option<Arc<Payloads>>,
    /// How many calls of one [`Client::submit_many`] may be in flight; at least 1. With 1, a retry after a lost reply cannot let
    /// a later batch arrive before an earlier one.
    pub calls_in_flight: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            redis: RedisOptions::default(),
            waiting_max: 1_000_000,
            room_within: Duration::from_secs(5),
            payload_bytes_max: PAYLOAD_BYTES_MAX,
            payloads: None,
            calls_in_flight: 4,
        }
    }
}

impl Options {
    /// Defaults, with the server at this URL.
    #[must_use]
    pub fn at(url: impl Into<String>) -> Self {
        Self { redis: RedisOptions { url: url.into(), ..RedisOptions::default() }, ..Self::default() }
    }
}

/// Hands tasks in and asks after them. Cheap to clone; clones share one connection, and one more while something is waited for.
///
/// All methods are cancel safe in this sense: dropping a future may leave its request done or not done, and asking again is safe.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    waits: Arc<Waits>,
    payloads: Arc<Payloads>,
    options: Options,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("options", &self.inner.options).finish_non_exhaustive()
    }
}

impl Client {
    /// Connects, and checks that the server is one that Tidemill runs on. Takes at most `options.redis.connect_timeout_ms` and
    /// half a second.
    ///
    /// # Errors
    /// [`Error::Connect`] when there is no usable connection in that time; [`Error::Store`] when the URL cannot be read, or the
    /// server is too old, evicts keys, or holds data of another layout.
    pub async fn connect(options: Options) -> Result<Self, Error> {
        use tidemill_common::store::Error::{NotNow, Refused, Unavailable};

        let patience = Duration::from_millis(options.redis.connect_timeout_ms.max(1)) + FIRST_QUESTIONS;
        let unreachable = |source| Error::Connect { url: options.redis.shown_url(), source };
        let store = match tokio::time::timeout(patience, Store::connect(&options.redis)).await {
            Ok(Ok(store)) => store,
            Ok(Err(e @ (Unavailable { .. } | NotNow { .. } | Refused { .. }))) => return Err(unreachable(Some(e))),
            Ok(Err(e)) => return Err(e.into()),
            Err(_) => return Err(unreachable(None)),
        };
        let waits = Arc::new(Waits::new(store.clone()));
        let payloads = options.payloads.clone().unwrap_or_default();
        Ok(Self { inner: Arc::new(Inner { store, waits, payloads, options }) })
    }

    /// Hands one task in.
    ///
    /// # Errors
    /// [`Error::Invalid`] before anything is sent; a refusal ([`Error::is_refusal`]); [`Error::Unknown`] when no reply came for
    /// `options.redis.retry_for_ms`.
    pub async fn submit(&self, task: NewTask) -> Result<Receipt, Error> {
        self.check(&task)?;
        let mut task = [task];
        let span = trace::submit(&task);
        trace::stamp(&span, &mut task);
        let [task] = task;
        let sent = async {
            let task = self.encode(task).await?;
            self.submit_within(&task, self.patience(&task)).await
        };
        sent.instrument(span).await
    }

    /// Hands a task in that has been checked and encoded, and waits so long for room.
    pub(crate) async fn submit_within(&self, task: &NewTask, patience: Duration) -> Result<Receipt, Error> {
        let began = Instant::now();
        loop {
            let sent = std::slice::from_ref(task);
            let answers = firmly(|| self.inner.store.submit(sent, self.inner.options.waiting_max)).await;
            let answer = answers.map_err(|e| Error::submit(&task.id, &Arc::new(e)))?.pop();
            let answer = answer.ok_or_else(|| Error::Rejected { id: task.id.clone() })?;
            let left = patience.saturating_sub(began.elapsed());
            match answer {
                Accepted::Full { retry_after_ms } if !left.is_zero() => {
                    // Those who wait together should not all come back together.
                    let pause = Duration::from_millis(retry_after_ms).mul_f64(rand::random_range(0.8..1.2));
                    tokio::time::sleep(pause.clamp(ROOM_PAUSES.0, ROOM_PAUSES.1).min(left)).await;
                }
                answer => return self.receipt(task, answer),
            }
        }
    }

    /// How long a task waits for room: urgent and high ones do, within their own deadlines.
    pub(crate) fn patience(&self, task: &NewTask) -> Duration {
        if task.priority < Priority::High {
            return Duration::ZERO;
        }
        let own = [task.start_within, task.max_age].into_iter().flatten().min().unwrap_or(Duration::MAX);
        self.inner.options.room_within.min(own)
    }

    /// Calls a task off: at once if it waits, through its worker if it runs.
    ///
    /// # Errors
    /// When Redis does not answer. Asking again is safe.
    pub async fn cancel(&self, id: &TaskId) -> Result<Cancelled, Error> {
        Ok(firmly(|| self.inner.store.cancel(id)).await?)
    }

    /// What waits, runs and has ended.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn counts(&self) -> Result<Counts, Error> {
        Ok(firmly(|| self.inner.store.counts()).await?)
    }

    /// How the client was connected.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.inner.options
    }

    /// Closes the connection, for all clones. Without it, the connection is closed some time after the last clone is dropped.
    pub async fn close(&self) {
        self.inner.store.close().await;
    }

    pub(crate) fn store(&self) -> &Store {
        &self.inner.store
    }

    pub(crate) fn payloads(&self) -> &Payloads {
        &self.inner.payloads
    }

    pub(crate) fn waits(&self) -> &Arc<Waits> {
        &self.inner.waits
    }

    /// What is sent of a task that has been checked.
    pub(crate) async fn encode(&self, task: NewTask) -> Result<NewTask, Error> {
        let id = task.id.clone();
        self.payloads().encode_task(task).await.map_err(|source| Error::Payload { id, source })
    }

    /// All that can be known to be wrong with a task before it is sent.
    pub(crate) fn check(&self, task: &NewTask) -> Result<(), Error> {
        task.check_within(self.inner.options.payload_bytes_max)?;
        if task.meta.traceparent.as_ref().is_some_and(|t| t.len() > TRACE_BYTES_MAX) {
            return Err(Invalid::Range { what: "trace context", range: "at most 512 bytes" }.into());
        }
        Ok(())
    }

    /// What the server said of a task, as a receipt or a refusal.
    pub(crate) fn receipt(&self, task: &NewTask, answer: Accepted) -> Result<Receipt, Error> {
        match answer {
            Accepted::New(id) => Ok(Receipt::new(self.clone(), id, Taken::New)),
            Accepted::Duplicate(id) => Ok(Receipt::new(self.clone(), id, Taken::Duplicate)),
            Accepted::Replaced(id) => Ok(Receipt::new(self.clone(), id, Taken::Replaced)),
            Accepted::Conflict(id) => Err(Error::Conflict { id }),
            Accepted::Full { retry_after_ms } => Err(Error::Full {
                queue: task.queue.clone(),
                priority: task.priority,
                waiting_max: room(task.priority, self.inner.options.waiting_max),
                retry_after: Duration::from_millis(retry_after_ms),
            }),
            Accepted::TooManyQueues => Err(Error::TooManyQueues { queue: task.queue.clone() }),
            Accepted::NeverFits { gate } => Err(Error::NeverFits { gate }),
            Accepted::Invalid => Err(Error::Rejected { id: task.id.clone() }),
        }
    }
}

/// Low tasks leave a fifth of the room to the others: `lib/room.lua` decides, this is for people.
fn room(priority: Priority, waiting_max: u64) -> u64 {
    if priority == Priority::Low { (waiting_max * 4 / 5).max(1) } else { waiting_max }
}

/// Asks again, twice, when Redis refuses: while a connection breaks, the first request after it may be told so though nothing was
/// sent. All requests are safe to send again.
pub(crate) async fn firmly<T, F>(ask: impl Fn() -> F) -> Result<T, store::Error>
where
    F: Future<Output = Result<T, store::Error>>,
{
    for pause in REFUSAL_PAUSES {
        match ask().await {
            Err(store::Error::Refused { .. }) => tokio::time::sleep(pause).await,
            answer => return answer,
        }
    }
    ask().await
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The driver's own tasks keep a connection alive until it is told to quit.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let store = self.store.clone();
            runtime.spawn(async move { store.close().await });
        }
    }
}
