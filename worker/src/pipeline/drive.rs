//! The pipeline's engine: how it is put together, its loop and its timer.

use std::sync::Arc;
use std::time::Duration;

use tidemill_common::spend::Spend;
use tidemill_common::store::{RedisOptions, Store};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{Sender, UnboundedSender, channel, unbounded_channel};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::claim::Claims;
use super::crew::Crew;
use super::desk::Desk;
use super::ear::Ear;
use super::lease::Lease;
use super::newest::Said;
use super::own::Own;
use super::payload::Payloads;
use super::run::{Kit, Runs};
use super::settle::Lane;
use super::stop::Phase;
use super::{Event, LANE, Pipeline, RETURNS, Setup, newest, output};
use crate::lone::{self, Program};
use crate::trouble::Trouble;
use crate::worker::Exit;
use crate::{Error, Shutdown};

/// Events taken at once: the ends of a whole batch of quick tasks make one settle.
const EVENTS_MAX: usize = 512;
/// The loop turns at least this often, to show that it does.
const BEAT: Duration = Duration::from_secs(1);
/// Shortest time that the server gets for an answer.
const ANSWER_MIN: Duration = Duration::from_millis(250);

/// Longest wait for the connection to be closed in good order.
const CLOSE: Duration = Duration::from_millis(100);

/// Runs a worker to its end, on the current runtime; its handlers on `handlers`.
pub(crate) async fn run(setup: Setup, handlers: Handle, wishes: Shutdown) -> Result<Exit, Error> {
    let trouble = Arc::new(Trouble::new(setup.metrics.clone(), Arc::clone(&setup.pulse)));
    let store = tokio::select! {
        store = connect(&setup, &trouble) => Arc::new(store?),
        () = wishes.drain.cancelled() => return Ok(Exit::Drained),
        () = wishes.force.cancelled() => return Ok(Exit::Forced),
    };
    let mut pipeline = Pipeline::new(setup, Arc::clone(&store), trouble, handlers, wishes)?;
    let exit = pipeline.turn().await;
    pipeline.finish().await;
    // A courtesy: the server sees the end of the connection either way.
    let _ = timeout(CLOSE, store.close()).await;
    Ok(exit)
}

/// Connects, however long it takes. A request is tried once by the store: here it is told, paused and timed, and a renewal has to know
/// which try was answered. An answer that takes longer than a quarter of the lease is better asked for again.
async fn connect(setup: &Setup, trouble: &Trouble) -> Result<Store, Error> {
    let patience = (setup.options.lease / 4).max(ANSWER_MIN);
    let redis = RedisOptions {
        retry_for_ms: 0,
        command_timeout_ms: setup.redis.command_timeout_ms.min(u64::try_from(patience.as_millis()).unwrap_or(u64::MAX)),
        ..setup.redis.clone()
    };
    let mut connecting = std::pin::pin!(trouble.persist("connect", || Store::connect_with(&redis, setup.clock)));
    loop {
        // Redis may be away for as long as it likes: that is no reason to take this process for dead.
        setup.pulse.beat(0, false);
        if let Ok(store) = timeout(BEAT, connecting.as_mut()).await {
            return store.map_err(Error::Store);
        }
    }
}

/// Where runs say how far they are, and what they have used.
fn tell_newest(
    store: &Arc<Store>,
    trouble: &Arc<Trouble>,
    tracker: &TaskTracker,
    tell: &UnboundedSender<Event>,
) -> (Sender<Said<String>>, Sender<Said<Spend>>) {
    let ((said, progress), (spent, spend)) = (channel(newest::WAITING_MAX), channel(newest::WAITING_MAX));
    let to = Arc::clone(store);
    let send = async move |batch: Vec<_>| to.progress(&batch).await;
    tracker.spawn(newest::pass_on("progress", Arc::clone(trouble), progress, tell.clone(), send));
    let to = Arc::clone(store);
    let send = async move |batch: Vec<_>| to.spend(&batch).await;
    tracker.spawn(newest::pass_on("spend", Arc::clone(trouble), spend, tell.clone(), send));
    (said, spent)
}

impl Pipeline {
    fn new(
        setup: Setup,
        store: Arc<Store>,
        trouble: Arc<Trouble>,
        handlers: Handle,
        wishes: Shutdown,
    ) -> Result<Self, Error> {
        let Setup { redis, registry, options, metrics, program, payloads, pulse, clock: _ } = setup;
        let (tell, events) = unbounded_channel();
        let (crew, tracker, now) = (Arc::new(Crew::new(&registry)), TaskTracker::new(), Instant::now());
        let (progress, spend) = tell_newest(&store, &trouble, &tracker, &tell);
        let (emitted, pieces) = tokio::sync::mpsc::channel(output::WAITING_MAX);
        tracker.spawn(output::pass_on(Arc::clone(&store), Arc::clone(&trouble), pieces, tell.clone()));
        let (ear, listening) = Ear::new(Arc::clone(&store), Arc::clone(&trouble), tell.clone());
        tracker.spawn(listening);
        for wish in [wishes.drain.clone(), wishes.force.clone()] {
            let tell = tell.clone();
            tracker.spawn(async move {
                wish.cancelled().await;
                let _ = tell.send(Event::Wish);
            });
        }
        let lone_work = Arc::new(Notify::new());
        let lone_keeper = if options.lone {
            None
        } else {
            let program = program
                .map_or_else(Program::this, Ok)
                .map_err(|source| Error::Start { what: "child for lone work", source })?;
            Some(tracker.spawn(lone::keep(program, Arc::clone(&lone_work), wishes.drain.clone(), wishes.force.clone())))
        };
        let kit = Kit {
            crew: Arc::clone(&crew),
            result_ttl: options.result_ttl,
            metrics: metrics.clone(),
            progress,
            spend,
            output: emitted,
            payloads: Payloads::new(redis, payloads),
        };
        let desk = Desk::new(Arc::clone(&crew), options.concurrency, options.lone, tell.clone());
        if let Some(metrics) = &metrics {
            metrics.concurrency(i64::from(desk.concurrency()));
        }
        Ok(Self {
            runs: Runs { kit: Arc::new(kit), runtime: handlers, tracker: TaskTracker::new(), events: tell.clone() },
            id: pulse.id(),
            lease: Lease::new(options.lease, options.renew, now),
            claims: Claims::new(options.order, options.lone),
            own: Own::new(options.lease, now),
            lane: Lane::new(LANE),
            returns: Lane::new(RETURNS),
            scope: CancellationToken::new(),
            sweeps: watch::Sender::new(false),
            ear_waits: false,
            reconnects: 0,
            gone: None,
            phase: Phase::Serving,
            forced: false,
            stop_by: None,
            handed_back: 0,
            options,
            crew,
            store,
            metrics,
            pulse,
            trouble,
            wishes,
            events,
            tell,
            tracker,
            desk,
            ear,
            lone_work,
            lone_keeper,
        })
    }

    /// Event after event, to the end.
    async fn turn(&mut self) -> Exit {
        let mut batch = Vec::with_capacity(EVENTS_MAX);
        let mut timer = std::pin::pin!(sleep_until(Instant::now()));
        loop {
            let now = Instant::now();
            if let Some(exit) = self.act(now) {
                return exit;
            }
            let wake = self.deadline(now);
            if timer.deadline() != wake {
                timer.as_mut().reset(wake);
            }
            tokio::select! {
                biased;
                _ = self.events.recv_many(&mut batch, EVENTS_MAX) => {}
                () = timer.as_mut() => {}
            }
            // Before anything else: the process may have been frozen, and what it hears now be of a life that is over.
            if let Some(exit) = self.check_lease(Instant::now()) {
                return exit;
            }
            for event in batch.drain(..) {
                self.on(event);
            }
        }
    }

    /// Does all that it is time for. Some: the end.
    fn act(&mut self, now: Instant) -> Option<Exit> {
        if let Some(exit) = self.check_lease(now).or_else(|| self.advance(now)) {
            return Some(exit);
        }
        if self.is_leaving() {
            return None;
        }
        let serving = self.phase == Phase::Serving;
        self.pulse.beat(self.desk.running(), serving && self.lease.has_begun());
        if let Some(metrics) = &self.metrics {
            metrics.in_flight(i64::from(self.desk.running()));
        }
        self.lease.set_busy(self.desk.held() > 0);
        if self.lease.next(now) {
            self.renew(now);
        }
        if !self.lease.has_begun() {
            return None;
        }
        if let Some(ask) = self.claims.next(&self.desk, now) {
            self.claim(ask, now);
        }
        if self.own.next(&mut self.desk, now) {
            self.page_own();
        }
        for item in self.own.hand_back(&mut self.desk, &self.claims) {
            self.returns.push(item);
        }
        for batch in [self.lane.next(), self.returns.next()].into_iter().flatten() {
            self.settle(batch);
        }
        if !self.ear_waits {
            let bell = serving && !self.options.lone && self.claims.asleep(&self.desk) && self.desk.room() > 0;
            if self.ear.want(&self.id, bell, now) {
                self.nudge();
            }
        }
        None
    }

    /// Gives the worker up if its lease is lost: by its own clock, or because Redis said so.
    fn check_lease(&mut self, now: Instant) -> Option<Exit> {
        if self.is_leaving() {
            return None; // After the goodbye it is of no concern.
        }
        let why = self.gone.take().or_else(|| self.lease.is_lost(now).then_some("no renewal was answered in time"))?;
        self.lose(why, now)
    }

    /// When to look again, if nothing happens before.
    fn deadline(&self, now: Instant) -> Instant {
        let begun = self.lease.has_begun() && !self.is_leaving();
        let upkeep = (!self.is_leaving()).then(|| self.lease.deadline()).flatten();
        let work =
            begun.then(|| [self.claims.deadline(&self.desk), self.own.deadline()]).into_iter().flatten().flatten();
        let all = [Some(now + BEAT), upkeep, self.phase.deadline()].into_iter().flatten().chain(work);
        all.min().unwrap_or(now)
    }

    /// The last things, once the loop has ended: nobody is told any more.
    async fn finish(self) {
        let by = self.child_by(Instant::now());
        self.scope.cancel();
        if let Some(child) = self.lone_keeper {
            let _ = timeout_at(by, child).await;
        }
        tracing::info!(worker = %self.id, handed_back = self.handed_back, "ended");
    }
}
