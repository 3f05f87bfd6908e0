//! The worker: made, started, watched and stopped.
//!
//! [`Worker::run`] starts two things of its own. The *control thread* has a small runtime for everything that talks to Redis: claims,
//! settles, renewals, sweeps, the ear. The *handlers' runtime* has a thread a core. So a handler that computes for minutes, or blocks
//! every thread there is, keeps neither the lease from being renewed nor the host's runtime from turning.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidemill_common::name::WorkerId;
use tidemill_common::store::{Clock, RedisOptions};
use tidemill_payloads::Payloads;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use crate::lone::{self, Program};
use crate::metrics::Metrics;
use crate::pipeline::{self, Setup};
use crate::{Error, Registry, Shutdown};

pub use crate::options::{Options, Order};

/// How long after the wish to force [`Worker::run`] returns at the latest, also when Redis is away.
const FORCED_WITHIN: Duration = Duration::from_secs(2);
/// How long ago the last claim or listening may be for a worker to count as consuming: two rounds of the ear, and some.
const POLLED_WITHIN: Duration = Duration::from_secs(25);
/// How long the control thread may stand still and count as alive.
const BEAT_WITHIN: Duration = Duration::from_secs(30);

/// How a worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// All that ran has ended by itself.
    Drained,
    /// So many deliveries did not end within the grace and were handed back.
    HandedBack(u64),
    /// It was forced: what could be handed back was.
    Forced,
    /// Its lease was lost while it drained, or is about to be, since Redis does not answer: others run what it had not finished, and
    /// what it had finished and could not settle.
    LeaseLost,
}

/// A worker that has not been started.
pub struct Worker {
    setup: Setup,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker")
            .field("options", &self.setup.options)
            .field("registry", &self.setup.registry)
            .finish_non_exhaustive()
    }
}

impl Worker {
    /// A worker of these agents. Nothing is connected yet.
    ///
    /// In a process that is a lone child ([`lone::ENV`]) it is a lone worker, whatever the options say.
    ///
    /// # Errors
    /// [`Error::Options`] with all mistakes, or [`Error::NoAgents`].
    pub fn new(redis: RedisOptions, registry: Registry, mut options: Options) -> Result<Self, Error> {
        options.lone |= lone::is_child();
        let wrong = options.check();
        if !wrong.is_empty() {
            return Err(Error::Options(wrong));
        }
        if registry.is_empty() {
            return Err(Error::NoAgents);
        }
        let id = WorkerId::incarnate(&options.name).map_err(|e| Error::Options(vec![e.to_string()]))?;
        let pulse = Arc::new(Pulse::new(id));
        Ok(Self {
            setup: Setup {
                redis,
                clock: Clock::Server,
                registry,
                options,
                metrics: None,
                program: None,
                payloads: Arc::default(),
                pulse,
            },
        })
    }

    /// Counts in these metrics.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Arc<Metrics>) -> Self {
        self.setup.metrics = Some(metrics);
        self
    }

    /// Decodes payloads, and encodes results and follow-ups, with these codecs, keys and stores. Without it, only compressed payloads
    /// are decoded.
    #[must_use]
    pub fn with_payloads(mut self, payloads: Arc<Payloads>) -> Self {
        self.setup.payloads = payloads;
        self
    }

    /// Lets scripts read another clock: for tests.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.setup.clock = clock;
        self
    }

    /// What a lone child runs; without this, the program of this process with the same arguments.
    #[must_use]
    pub fn with_lone_command(mut self, program: impl Into<PathBuf>, args: impl IntoIterator<Item = OsString>) -> Self {
        self.setup.program = Some(Program { path: program.into(), args: args.into_iter().collect() });
        self
    }

    /// A view on it, for as long as anybody likes.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle { pulse: Arc::clone(&self.setup.pulse) }
    }

    /// Runs until told to stop. Redis being away is waited for, at the start as well as later.
    ///
    /// Dropping the future forces the worker to stop, and does not wait for it.
    ///
    /// # Errors
    /// When Redis or its settings are unsuitable, or a thread cannot be started.
    pub async fn run(self, shutdown: Shutdown) -> Result<Exit, Error> {
        let start = |what| move |source| Error::Start { what, source };
        let handlers = tokio::runtime::Builder::new_multi_thread()
            .thread_name("tidemill-run")
            .enable_all()
            .build()
            .map_err(start("handlers' runtime"))?;
        let control =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(start("control runtime"))?;
        // Its own token: the caller's may be shared with workers that go on.
        let wishes = Shutdown { drain: shutdown.drain.child_token(), force: shutdown.force.child_token() };
        let dropped = wishes.force.clone().drop_guard();
        let (setup, runs_on, inner) = (self.setup, handlers.handle().clone(), wishes.clone());
        let _background = Background(Some(handlers));
        let (say, ended) = oneshot::channel();
        std::thread::Builder::new()
            .name("tidemill-control".into())
            .spawn(move || {
                let exit = control.block_on(pipeline::run(setup, runs_on, inner));
                let _ = say.send(exit);
                // Not dropped: that would wait for a name look-up that hangs.
                control.shutdown_background();
            })
            .map_err(start("control thread"))?;
        let exit = tokio::select! {
            biased;
            exit = ended => exit.unwrap_or(Err(Error::Broken)),
            () = too_late(&wishes) => Ok(Exit::Forced),
        };
        dropped.disarm();
        exit
    }
}

/// A runtime that is not waited for when it is dropped: handlers that block their thread stay behind, and end with the process.
struct Background(Option<Runtime>);

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

async fn too_late(wishes: &Shutdown) {
    wishes.force.cancelled().await;
    tokio::time::sleep(FORCED_WITHIN).await;
}

/// A view on a worker. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Handle {
    pulse: Arc<Pulse>,
}

impl Handle {
    /// Whether it consumes: its lease is good, Redis answers, it claimed or listened lately, and it is not stopping.
    #[must_use]
    pub fn ready(&self) -> bool {
        let pulse = &self.pulse;
        let serving = pulse.serving.load(Ordering::Relaxed) && !pulse.troubled.load(Ordering::Relaxed);
        serving && pulse.now() < pulse.lease_ends.load(Ordering::Relaxed) && pulse.since(&pulse.polled) < POLLED_WITHIN
    }

    /// Whether its control thread turns, or has not begun to. If not, only a new process helps.
    #[must_use]
    pub fn live(&self) -> bool {
        self.pulse.beat.load(Ordering::Relaxed) == 0 || self.pulse.since(&self.pulse.beat) < BEAT_WITHIN
    }

    /// How many handlers run.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.pulse.in_flight.load(Ordering::Relaxed)
    }

    /// Its id in its present life: another after a lost lease.
    #[must_use]
    pub fn id(&self) -> WorkerId {
        self.pulse.id.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What the control thread lets others see. Times are ms since it was made.
#[derive(Debug)]
pub(crate) struct Pulse {
    made: Instant,
    id: Mutex<WorkerId>,
    beat: AtomicU64,
    polled: AtomicU64,
    lease_ends: AtomicU64,
    serving: AtomicBool,
    troubled: AtomicBool,
    in_flight: AtomicU32,
}

impl Pulse {
    fn new(id: WorkerId) -> Self {
        Self {
            made: Instant::now(),
            id: Mutex::new(id),
            beat: AtomicU64::new(0),
            polled: AtomicU64::new(0),
            lease_ends: AtomicU64::new(0),
            serving: AtomicBool::new(false),
            troubled: AtomicBool::new(false),
            in_flight: AtomicU32::new(0),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.made.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn since(&self, at: &AtomicU64) -> Duration {
        Duration::from_millis(self.now().saturating_sub(at.load(Ordering::Relaxed)))
    }

    /// The control thread turns.
    pub(crate) fn beat(&self, in_flight: u32, serving: bool) {
        self.beat.store(self.now().max(1), Ordering::Relaxed);
        self.in_flight.store(in_flight, Ordering::Relaxed);
        self.serving.store(serving, Ordering::Relaxed);
    }

    /// A claim or a round of listening was answered.
    pub(crate) fn polled(&self) {
        self.polled.store(self.now(), Ordering::Relaxed);
        self.troubled.store(false, Ordering::Relaxed);
    }

    /// The lease is good until then.
    pub(crate) fn leased(&self, ends: Option<Instant>) {
        let ends =
            ends.map_or(0, |at| u64::try_from(at.saturating_duration_since(self.made).as_millis()).unwrap_or(u64::MAX));
        self.lease_ends.store(ends, Ordering::Relaxed);
        self.troubled.store(false, Ordering::Relaxed);
    }

    /// Redis did not do as asked.
    pub(crate) fn trouble(&self) {
        self.troubled.store(true, Ordering::Relaxed);
    }

    pub(crate) fn id(&self) -> WorkerId {
        self.id.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A new life.
    pub(crate) fn set_id(&self, id: WorkerId) {
        *self.id.lock().unwrap_or_else(PoisonError::into_inner) = id;
    }
}
