//! The desk: who runs here, what is on our account, and how much room there is.
//!
//! Two counts that are not the same. A *slot* is taken while a handler runs, also one whose lease is lost and that does not stop:
//! it still uses the machine. A delivery is *held* from the answer to the claim to the answer to the settle, in one life of the
//! worker: what is held may be settled, and what Redis says we own but is not held is handed back.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use std::time::Duration;

use tidemill_common::envelope;
use tidemill_common::name::{AgentName, Fence, TaskId};
use tidemill_common::store::{Delivery, Offer, SettleItem, Verb};
use tidemill_common::task::Task;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Event;
use super::crew::Crew;
use super::spend::Used;
use super::stage::{Delivered, Ended, Finished, Running, Settled, Ticket};

/// Why a run was told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// Its task was called off.
    CalledOff,
    /// A newer delivery of its task is current.
    Stale,
    /// The worker is to stop, and the grace is over.
    Stopping,
}

/// A delivery on our account.
#[derive(Debug)]
struct Held {
    id: TaskId,
    /// Stops its handler; none once it is being settled.
    stop: Option<CancellationToken>,
    why: Option<Why>,
    /// The span of its run, once that has ended.
    traced: Option<String>,
    /// What its handler says that it uses.
    used: Used,
}

impl Held {
    /// One that is settled without being run.
    fn unrun(id: TaskId, why: Option<Why>) -> Self {
        Self { id, stop: None, why, traced: None, used: Used::default() }
    }
}

/// The desk.
#[derive(Debug)]
pub(crate) struct Desk {
    crew: Arc<Crew>,
    concurrency: u32,
    /// What its own options say, for when an operator says nothing (any more).
    own_concurrency: u32,
    lone: bool,
    /// By agent: most of its tasks at once, as an operator has said.
    caps: Vec<Option<u32>>,
    /// Most deliveries held: bounds what waits to be settled while Redis is slow.
    held_max: usize,
    life: u32,
    running: Vec<u32>,
    total: u32,
    /// By agent: how many the claim brought that is being opened.
    brought: Vec<u32>,
    /// By agent: the last claim brought all that was offered, or offered nothing, so that more may wait.
    wanting: Vec<bool>,
    held: HashMap<u64, Held>,
    /// What was closed since [`Desk::watch_closed`], while somebody compares.
    closed: Option<HashSet<u64>>,
    /// Called off before the answer to the claim that brings them.
    called_off: HashSet<u64>,
    events: UnboundedSender<Event>,
}

impl Desk {
    pub(crate) fn new(crew: Arc<Crew>, concurrency: u32, lone: bool, events: UnboundedSender<Event>) -> Self {
        let agents = crew.members().len();
        // A lone worker's loss counts against whatever it holds: so it holds one delivery, and not the last one's settle as well.
        let held_max = if lone { 1 } else { 2 * concurrency as usize };
        let concurrency = if lone { 1 } else { concurrency };
        Self {
            crew,
            concurrency,
            own_concurrency: concurrency,
            lone,
            caps: vec![None; agents],
            held_max,
            life: 0,
            running: vec![0; agents],
            total: 0,
            brought: vec![0; agents],
            wanting: vec![false; agents],
            held: HashMap::new(),
            closed: None,
            called_off: HashSet::new(),
            events,
        }
    }

    /// How many handlers run.
    pub(crate) fn running(&self) -> u32 {
        self.total
    }

    /// How many deliveries are on our account.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// Whether a delivery is held, or was closed since [`Self::watch_closed`].
    pub(crate) fn knows(&self, fence: Fence) -> bool {
        self.held.contains_key(&fence.0) || self.closed.as_ref().is_some_and(|closed| closed.contains(&fence.0))
    }

    /// From here on, or no longer, remembers what is closed.
    pub(crate) fn watch_closed(&mut self, on: bool) {
        self.closed = on.then(HashSet::new);
    }

    pub(crate) fn concurrency(&self) -> u32 {
        self.concurrency
    }

    /// How many tasks at once an operator wants, and of these agents; what runs above that runs on. True: there is more room now.
    pub(crate) fn tune(&mut self, concurrency: Option<u32>, agents: &[(AgentName, u32)]) -> bool {
        if self.lone {
            return false;
        }
        let before = self.room();
        self.concurrency = concurrency.unwrap_or(self.own_concurrency);
        self.held_max = 2 * self.concurrency.max(1) as usize;
        self.caps.fill(None);
        for (agent, most) in agents {
            if let Some(number) = self.crew.number(agent) {
                self.caps[number] = Some(*most);
            }
        }
        self.room() > before
    }

    /// How many more tasks may run: what the worker has room for, and its agents.
    pub(crate) fn room(&self) -> u32 {
        let agents = (0..self.running.len()).fold(0_u32, |sum, agent| sum.saturating_add(self.room_of(agent)));
        self.room_of_worker().min(agents)
    }

    fn room_of_worker(&self) -> u32 {
        let unsettled = u32::try_from(self.held_max.saturating_sub(self.held.len())).unwrap_or(u32::MAX);
        self.concurrency.saturating_sub(self.total).min(unsettled)
    }

    fn room_of(&self, agent: usize) -> u32 {
        let most = self.caps[agent].or(self.crew.member(agent).agent.concurrency);
        most.map_or(u32::MAX, |most| most.saturating_sub(self.running[agent]))
    }

    /// What a claim may offer: the agents that have room.
    pub(crate) fn offers(&self) -> Vec<Offer> {
        let of_worker = self.room_of_worker();
        (0..self.running.len())
            .map(|number| (number, self.room_of(number).min(of_worker)))
            .filter(|(_, room)| *room > 0)
            .map(|(number, room)| Offer { agent: self.crew.member(number).name.clone(), room })
            .collect()
    }

    /// A claim with these offers was answered, and what it brought is opened.
    pub(crate) fn opened(&mut self, offers: &[Offer]) {
        // Both are sorted by name.
        let mut offers = offers.iter().peekable();
        for (number, member) in self.crew.members().enumerate() {
            let offered = offers.next_if(|offer| offer.agent == member.name).map_or(0, |offer| offer.room);
            self.wanting[number] = std::mem::take(&mut self.brought[number]) >= offered;
        }
        // Had they been in it, they would have been found.
        self.called_off.clear();
    }

    /// Whether there is room for an agent of whose tasks more may wait than the last claim could take.
    pub(crate) fn has_room_for_more(&self) -> bool {
        self.room_of_worker() > 0 && (0..self.running.len()).any(|agent| self.wanting[agent] && self.room_of(agent) > 0)
    }

    /// Delivered → Running: reads the envelope and takes a slot. What cannot be run is given back
    /// to be settled: dead if it cannot be read.
    pub(crate) fn open(&mut self, delivered: Delivered) -> Result<Running, Box<SettleItem>> {
        let Delivered { delivery: Delivery { id, fence, attempt, losses, envelope }, now_ms } = delivered;
        if self.called_off.remove(&fence.0) {
            // Whatever is settled, the store will cancel it.
            self.held.insert(fence.0, Held::unrun(id.clone(), Some(Why::CalledOff)));
            return Err(Box::new(SettleItem::new(id, fence, Verb::Release)));
        }
        let opened = envelope::open(id.clone(), &envelope).map_err(|e| format!("invalid: {e}")).and_then(|task| {
            let number = self.crew.number(&task.agent);
            number.map(|n| (task, n)).ok_or_else(|| "invalid: this worker has no handler for its agent".to_owned())
        });
        match opened {
            Ok((mut task, agent)) => {
                // Its own memory: a slice would keep the whole reply alive for as long as the slowest task of the batch runs.
                task.payload = bytes::Bytes::copy_from_slice(&task.payload);
                let stop = CancellationToken::new();
                self.running[agent] += 1;
                self.brought[agent] += 1;
                self.total += 1;
                let used = Used::default();
                let held = Held { stop: Some(stop.clone()), used: used.clone(), ..Held::unrun(id, None) };
                self.held.insert(fence.0, held);
                let ticket = Ticket::new(self.life, fence, agent, self.events.clone());
                let waited_ms = (attempt == 1 && losses == 0).then(|| now_ms.saturating_sub(ready_ms(&task)));
                let left = |ms: u64| Duration::from_millis(ms.saturating_sub(now_ms));
                let too_old = (task.too_old_ms > 0).then(|| Instant::now() + left(task.too_old_ms));
                Ok(Running { task, agent, attempt, losses, waited_ms, too_old, stop, used, ticket })
            }
            Err(error) => {
                self.held.insert(fence.0, Held::unrun(id.clone(), None));
                Err(Box::new(SettleItem::new(id, fence, Verb::Unreadable { error })))
            }
        }
    }

    /// The span of a run that waits to be settled.
    pub(crate) fn traced(&self, fence: Fence) -> Option<&str> {
        self.held.get(&fence.0)?.traced.as_deref()
    }

    /// Finished → what is to be settled: frees the slot and judges the end by what we know of the run. None: it is not ours any
    /// more.
    pub(crate) fn finish(&mut self, finished: Finished) -> Option<SettleItem> {
        let Finished { life, fence, agent, ended, follow_ups, traced } = finished;
        self.running[agent] = self.running[agent].saturating_sub(1);
        self.total = self.total.saturating_sub(1);
        if life != self.life {
            return None;
        }
        let held = self.held.get_mut(&fence.0).filter(|held| held.stop.is_some())?;
        held.stop = None;
        held.traced = traced;
        let cut = matches!(ended, Ended::Cut);
        let verb = judge(ended, held.why);
        // Of a run that did not end by itself it is said what is known, be it nothing: the rule says what the rest costs.
        let used = if cut || verb == Verb::Release { Some(held.used.so_far()) } else { held.used.said() };
        let follow_ups = if matches!(verb, Verb::Done { .. }) { follow_ups } else { Vec::new() };
        Some(SettleItem { used, follow_ups, ..SettleItem::new(held.id.clone(), fence, verb) })
    }

    /// Settled → nothing left.
    pub(crate) fn close(&mut self, settled: &Settled) {
        self.held.remove(&settled.fence.0);
        if let Some(closed) = &mut self.closed {
            closed.insert(settled.fence.0);
        }
    }

    /// Tells one run to stop. False: there is no such run.
    pub(crate) fn stop(&mut self, fence: Fence, why: Why) -> bool {
        let Some(held) = self.held.get_mut(&fence.0) else { return false };
        let Some(stop) = &held.stop else { return false };
        held.why = held.why.or(Some(why));
        stop.cancel();
        true
    }

    /// A delivery was called off that may be in the answer to a claim on its way: it will not be run.
    pub(crate) fn expect_called_off(&mut self, fence: Fence) {
        self.called_off.insert(fence.0);
    }

    /// Tells all runs to stop.
    pub(crate) fn stop_all(&mut self, why: Why) {
        for held in self.held.values_mut() {
            if let Some(stop) = &held.stop {
                held.why = held.why.or(Some(why));
                stop.cancel();
            }
        }
    }

    /// What still runs, to be handed back as it is: nothing that its handlers say from here on counts.
    pub(crate) fn give_up(&mut self) -> Vec<SettleItem> {
        let unfinished = self.held.iter_mut().filter_map(|(fence, held)| {
            held.stop.take().map(|_| SettleItem {
                used: Some(held.used.so_far()),
                ..SettleItem::new(held.id.clone(), Fence(*fence), Verb::Release)
            })
        });
        unfinished.collect()
    }

    /// The lease is lost: all handlers are stopped and nothing is on our account any more. Slots stay taken until handlers end.
    pub(crate) fn lose_all(&mut self) {
        self.stop_all(Why::Stale);
        self.held.clear();
        self.closed = None;
        self.called_off.clear();
        self.life += 1;
    }

    /// In which life of the worker we are.
    pub(crate) fn life(&self) -> u32 {
        self.life
    }

    /// A delivery of an earlier life whose end is known and not settled: on our account again.
    pub(crate) fn adopt(&mut self, item: &SettleItem) {
        self.held.insert(item.fence.0, Held::unrun(item.id.clone(), None));
    }
}

/// When a task could have been claimed first, server ms.
fn ready_ms(task: &Task) -> u64 {
    task.due_ms.max(task.seq_us / 1000)
}

/// An answer counts as it is, except a failure of a run that we stopped ourselves: that is no attempt of the task's. (A task that
/// was called off is cancelled by the store whatever failure is said of it.)
pub(crate) fn judge(ended: Ended, why: Option<Why>) -> Verb {
    match (ended, why) {
        (Ended::Answered(Verb::Retry { .. }) | Ended::Cut, Some(_)) => Verb::Release,
        (Ended::Answered(verb), _) => verb,
        (Ended::Cut, None) => Verb::Retry { error: "the run broke off without an answer".into(), after_ms: 1_000 },
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::options::Order;
    use crate::pipeline::claim::Claims;
    use crate::pipeline::testing::{answer, desk};

    fn three() -> (Desk, Vec<Running>) {
        let (mut claims, mut desk, now) = (Claims::new(Order::Weighted, false), desk(8, false), Instant::now());
        let ask = claims.next(&desk, now).unwrap();
        let runs = answer(&mut claims, &mut desk, &ask, &["a", "a", "b"], None, now);
        (desk, runs)
    }

    fn done() -> Ended {
        Ended::Answered(Verb::Done { result: "x".into(), keep_ms: 1 })
    }
    fn failed() -> Ended {
        Ended::Answered(Verb::Retry { error: "e".into(), after_ms: 1 })
    }

    #[test]
    fn a_failure_of_a_run_that_we_stopped_is_no_attempt() {
        for why in [Why::CalledOff, Why::Stopping] {
            let (mut desk, runs) = three();
            desk.stop_all(why);
            let ends = [done(), failed(), Ended::Cut];
            let verbs: Vec<_> = runs
                .into_iter()
                .zip(ends)
                .map(|(run, ended)| desk.finish(run.ticket.finish(ended, Vec::new())).unwrap().verb)
                .collect();
            assert!(matches!(verbs[..], [Verb::Done { .. }, Verb::Release, Verb::Release]), "{verbs:?}");
        }
        let (mut desk, mut runs) = three();
        let broke_off = desk.finish(runs.pop().unwrap().ticket.finish(Ended::Cut, Vec::new())).unwrap();
        assert!(matches!(broke_off.verb, Verb::Retry { .. }));
    }

    #[test]
    fn what_was_given_up_or_lost_is_not_settled_but_its_slot_is_kept_until_it_ends() {
        let (mut desk, runs) = three();
        assert_eq!((desk.give_up().len(), desk.running(), desk.held()), (3, 3, 3));
        for run in runs {
            assert!(desk.finish(run.ticket.finish(done(), Vec::new())).is_none());
        }
        assert_eq!((desk.running(), desk.room()), (0, 8));

        let (mut desk, runs) = three();
        desk.lose_all();
        assert_eq!((desk.running(), desk.held(), desk.room()), (3, 0, 5));
        assert!(runs.iter().all(|run| run.stop.is_cancelled()));
        for run in runs {
            assert!(desk.finish(run.ticket.finish(done(), Vec::new())).is_none());
        }
        assert_eq!(desk.room(), 8);
    }

    #[test]
    fn what_waits_to_be_settled_is_bounded_too() {
        let (mut claims, mut desk, now) = (Claims::new(Order::Weighted, false), desk(2, false), Instant::now());
        for _ in 0..2 {
            let ask = claims.next(&desk, now).unwrap();
            for run in answer(&mut claims, &mut desk, &ask, &["a"; 2], None, now) {
                assert!(desk.finish(run.ticket.finish(done(), Vec::new())).is_some());
            }
        }
        assert_eq!((desk.running(), desk.held(), desk.room()), (0, 4, 0));
    }
}
