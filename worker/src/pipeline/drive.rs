//! The pipeline's engine: its loop, its timer, its requests, and what its events mean for upkeep.

use std::sync::Arc;
use std::time::Duration;

use tidemill_common::name::Fence;
use tidemill_common::store::{self, Claim, Claimed, Error as StoreError, Heard, RedisOptions, Settle, SettleItem, Settled as How, Store};
use tokio::runtime::Handle;
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::claim::{Answer, Ask, Claims};
use super::desk::{Crew, Desk, Why};
use super::ear::Ear;
use super::lease::{Lease, Standing};
use super::own::Own;
use super::run::{Kit, Payloads, Runs};
use super::settle::{self, Lane};
use super::stage::{Delivered, Finished, Settled};
use super::stop::Phase;
use super::{Event, LANE, Pipeline, RETURNS, Setup, progress};
use crate::lone::{self, Program};
use crate::sweep::Sweep;
use crate::trouble::{Trouble, pause};
use crate::worker::Exit;
use crate::{Error, Shutdown};

/// Events taken at once: the ends of a whole batch of quick tasks make one settle.
const EVENTS_MAX: usize = 512;
/// The loop turns at least this often, to show that it does.
const BEAT: Duration = Duration::from_secs(1);
/// Shortest time that the server gets for an answer.
const ANSWER_MIN: Duration = Duration::from_millis(250);

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
    store.close().await;
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
    trouble.persist("connect", || Store::connect_with(&redis, setup.clock)).await.map_err(Error::Store)
}

impl Pipeline {
    fn new(setup: Setup, store: Arc<Store>, trouble: Arc<Trouble>, handlers: Handle, wishes: Shutdown) -> Result<Self, Error> {
        let Setup { redis, registry, options, metrics, program, pulse, clock: _ } = setup;
        let (tell, events) = unbounded_channel();
        let (crew, tracker, now) = (Arc::new(Crew::new(&registry)), TaskTracker::new(), Instant::now());
        let (said, progress) = tokio::sync::mpsc::channel(progress::WAITING_MAX);
        tracker.spawn(progress::pass_on(Arc::clone(&store), Arc::clone(&trouble), progress, tell.clone()));
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
            let program = program.map_or_else(Program::this, Ok).map_err(|source| Error::Start { what: "child for lone work", source })?;
            Some(tracker.spawn(lone::keep(program, Arc::clone(&lone_work), wishes.drain.clone(), wishes.force.clone())))
        };
        let kit = Kit { crew: Arc::clone(&crew), result_ttl: options.result_ttl, metrics: metrics.clone(), progress: said, payloads: Payloads::new(redis) };
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
            options, crew, store, metrics, pulse, trouble, wishes, events, tell, tracker, desk, ear, lone_work, lone_keeper,
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
            for event in batch.drain(..) {
                self.on(event);
            }
        }
    }

    /// Does all that it is time for. Some: the end.
    fn act(&mut self, now: Instant) -> Option<Exit> {
        let lost = self.gone.take().or_else(|| self.lease.is_lost(now).then_some("no renewal was answered in time"));
        if let Some(why) = lost && let Some(exit) = self.lose(why, now) {
            return Some(exit);
        }
        if let Some(exit) = self.advance(now) {
            return Some(exit);
        }
        let serving = self.phase == Phase::Serving;
        self.pulse.beat(self.desk.running(), serving && self.lease.has_begun());
        self.lease.set_busy(self.desk.held() > 0);
        if self.lease.next(now) {
            self.renew(now);
        }
        if !self.lease.has_begun() {
            return None;
        }
        if serving && let Some(ask) = self.claims.next(&self.desk, now) {
            self.claim(ask, now);
        }
        for batch in [self.lane.next(), self.returns.next()].into_iter().flatten() {
            self.settle(batch);
        }
        if self.own.next(&mut self.desk, now) {
            self.page_own();
        }
        for item in self.own.hand_back(&mut self.desk, &self.claims) {
            self.returns.push(item);
        }
        if !self.ear_waits {
            let bell = serving && !self.options.lone && self.claims.asleep() && self.desk.room() > 0;
            if self.ear.want(&self.id, bell) {
                self.nudge();
            }
        }
        None
    }

    /// When to look again, if nothing happens before.
    fn deadline(&self, now: Instant) -> Instant {
        let serving = self.phase == Phase::Serving && self.lease.has_begun();
        let claim = if serving { self.claims.deadline(&self.desk) } else { None };
        let own = if self.lease.has_begun() { self.own.deadline() } else { None };
        let all = [Some(now + BEAT), self.lease.deadline(), claim, own, self.phase.deadline()];
        all.into_iter().flatten().min().unwrap_or(now)
    }

    /// Sends a request of this life.
    pub(super) fn ask(&self, request: impl Future<Output = Event> + Send + 'static) {
        let (scope, tell) = (self.scope.clone(), self.tell.clone());
        self.tracker.spawn(async move {
            if let Some(event) = scope.run_until_cancelled_owned(request).await {
                let _ = tell.send(event);
            }
        });
    }

    fn renew(&self, sent: Instant) {
        let (store, id, life, trouble) = (Arc::clone(&self.store), self.id.clone(), self.desk.life(), Arc::clone(&self.trouble));
        let begin = (!self.lease.has_begun()).then(|| self.crew.names());
        let (lease, may_sweep) = (self.lease_times(), !self.options.lone && self.phase == Phase::Serving);
        self.ask(async move {
            let answer = store.renew(&id, lease, begin.as_deref(), may_sweep).await;
            if let Err(error) = &answer {
                trouble.tell("renew", error);
            }
            Event::Renewed(life, sent, answer)
        });
    }

    fn lease_times(&self) -> store::Lease {
        store::Lease { lease: self.options.lease, sweep_hold: self.options.sweep * 2 }
    }

    fn claim(&self, ask: Ask, began: Instant) {
        let (store, id, life, trouble) = (Arc::clone(&self.store), self.id.clone(), self.desk.life(), Arc::clone(&self.trouble));
        self.ask(async move {
            let claim = Claim { worker: &id, sequence: ask.sequence, most: ask.most, lone: ask.lone, shares: ask.shares, offers: &ask.offers };
            let answer = trouble.persist("claim", || store.claim(&claim)).await;
            if let Err(error) = &answer {
                trouble.tell("claim", error);
            }
            Event::Claimed(life, ask, answer, began)
        });
    }

    fn settle(&self, batch: settle::Batch) {
        let (store, id, life, trouble) = (Arc::clone(&self.store), self.id.clone(), self.desk.life(), Arc::clone(&self.trouble));
        self.ask(async move {
            let settle = Settle { worker: &id, lane: batch.lane, sequence: batch.sequence, items: &batch.items };
            let answer = trouble.persist("settle", || store.settle(&settle)).await;
            if let Err(error) = &answer {
                trouble.tell("settle", error);
            }
            Event::Settled(life, batch.lane, answer)
        });
    }

    fn page_own(&self) {
        let (store, id, life, trouble) = (Arc::clone(&self.store), self.id.clone(), self.desk.life(), Arc::clone(&self.trouble));
        self.ask(async move {
            let mut all = Vec::new();
            let mut from = None;
            loop {
                match store.own(&id, from.as_ref()).await {
                    Ok(page) => {
                        all.extend(page.deliveries);
                        from = page.next;
                    }
                    Err(error) => {
                        trouble.tell("own", &error);
                        return Event::Owned(life, None);
                    }
                }
                if from.is_none() {
                    return Event::Owned(life, Some(all));
                }
            }
        });
    }

    fn nudge(&self) {
        let Some(list) = self.ear.listens_as().cloned() else { return };
        let (store, trouble, tell) = (Arc::clone(&self.store), Arc::clone(&self.trouble), self.tell.clone());
        // Of no life: the read to be ended may be one of the life before.
        self.tracker.spawn(async move {
            if let Err(error) = store.nudge(list.as_str()).await {
                trouble.tell("nudge", &error);
                tokio::time::sleep(pause(3)).await;
                let _ = tell.send(Event::NotNudged);
            }
        });
    }

    /// The answer to a claim. Deliveries that came too late to be run are handed back here.
    pub(super) fn claimed(&mut self, ask: &Ask, answer: Result<Claimed, StoreError>, began: Instant) -> Vec<Delivered> {
        let now = Instant::now();
        self.ear_waits = false;
        let well = answer.is_ok();
        let answer = self.claims.answered(ask, answer, now);
        if answer.gone {
            self.gone = Some("a claim was told so");
            return Vec::new();
        }
        if let Some(metrics) = self.metrics.as_ref().filter(|_| well) {
            metrics.claim_seconds((now - began).as_secs_f64());
            metrics.claimed(u64::try_from(answer.deliveries.len()).unwrap_or(u64::MAX));
            metrics.last_poll();
        }
        if well {
            self.pulse.polled();
        }
        self.lone_waits(answer.lone_work);
        self.lone_is_done(&answer, now);
        let Answer { deliveries, .. } = answer;
        if self.phase == Phase::Serving {
            return deliveries;
        }
        self.hand_back(deliveries);
        Vec::new()
    }

    /// The end of a run; what is to be settled, if it is still ours.
    pub(super) fn finished(&mut self, finished: Finished) -> Option<SettleItem> {
        let (item, agent_was_full) = self.desk.finish(finished);
        if agent_was_full {
            self.claims.agent_has_room();
        }
        if let Some(metrics) = &self.metrics {
            metrics.in_flight(i64::from(self.desk.running()));
        }
        item
    }

    /// The answer to a settle; what is closed by it.
    pub(super) fn settled(&mut self, lane: u8, answer: Result<(Vec<How>, Vec<store::Accepted>), StoreError>) -> Vec<Settled> {
        let lane = if lane == LANE { &mut self.lane } else { &mut self.returns };
        let settled = lane.answered(answer);
        for one in &settled {
            if one.how == How::Released && self.phase != Phase::Serving {
                self.handed_back += 1;
            }
            if let Some(metrics) = &self.metrics {
                metrics.settled(settle::label(one.how));
            }
        }
        settled
    }

    /// Everything that is not a step of a task's path.
    pub(super) fn on_upkeep(&mut self, event: Event) {
        let now = Instant::now();
        match event {
            Event::Renewed(life, sent, answer) if life == self.desk.life() => match self.lease.answered(sent, &answer, now) {
                Standing::Renewed(renewed) => self.renewed(renewed),
                Standing::Unknown => {}
                Standing::Gone => self.gone = Some("a renewal was told so"),
            },
            Event::Owned(life, owned) if life == self.desk.life() => self.own.answered(owned, &mut self.desk, &self.claims, now),
            Event::Heard(heard) => self.heard(heard),
            Event::NotNudged => self.ear.nudge_failed(),
            Event::Stale(fence) => {
                self.desk.stop(fence, Why::Stale);
            }
            Event::Left => self.phase = Phase::Left,
            // A wish is seen by the loop itself; all others are answers to an earlier life.
            _ => {}
        }
    }

    fn renewed(&mut self, renewed: store::Renewed) {
        self.pulse.leased(self.lease.ends().map(Instant::into_std));
        self.lone_waits(renewed.lone_work);
        self.claims.sweeps = renewed.sweeps;
        if self.sweeps.receiver_count() == 0 && !self.options.lone {
            tracing::info!(worker = %self.id, agents = self.crew.names().len(), concurrency = self.desk.concurrency(), "at work");
            self.begin_sweep();
        }
        let _ = self.sweeps.send(renewed.sweeps);
        let reconnects = self.store.reconnects();
        if let Some(metrics) = &self.metrics {
            metrics.reconnected(reconnects.saturating_sub(self.reconnects));
        }
        self.reconnects = reconnects;
    }

    fn begin_sweep(&self) {
        let sweep = Sweep {
            store: Arc::clone(&self.store),
            me: self.id.clone(),
            lease: self.lease_times(),
            every: self.options.sweep,
            poison_after: self.options.poison_after,
            metrics: self.metrics.clone(),
            trouble: Arc::clone(&self.trouble),
        };
        let (holds, scope) = (self.sweeps.subscribe(), self.scope.clone());
        self.tracker.spawn(async move { scope.run_until_cancelled_owned(sweep.run(holds)).await });
    }

    fn lone_waits(&self, waits: bool) {
        if waits && !self.options.lone {
            self.lone_work.notify_one();
        }
    }

    fn heard(&mut self, heard: Result<Heard, StoreError>) {
        let of_bell = self.ear.ended();
        if heard.is_ok() {
            self.pulse.polled();
            if let Some(metrics) = &self.metrics {
                metrics.last_poll();
            }
        }
        match heard {
            Ok(Heard::Ring) if of_bell && self.phase == Phase::Serving => {
                self.claims.rung(&self.desk);
                self.ear_waits = true;
            }
            Ok(Heard::Cancel(id, fence)) => self.called_off(&id, fence),
            Ok(Heard::Ring | Heard::Ended(_) | Heard::Nothing) | Err(_) => {}
        }
    }

    fn called_off(&mut self, id: &str, fence: u64) {
        let found = self.desk.stop(Fence(fence), Why::CalledOff);
        tracing::info!(task = id, fence, found, "called off");
        if !found && self.claims.in_flight() {
            self.desk.expect_called_off(Fence(fence));
        }
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
