//! The last part of a history: everything that can end is brought to its end, and nothing is left behind.

use tidemill_common::book::Book;
use tidemill_common::keys::Lifetime;
use tidemill_common::name::Fence;
use tidemill_common::store::{Offer, SettleItem, Verb};

use super::call::{Answer, Call};
use super::reference::{DEAD_MS, Known};
use super::rng::Rng;
use super::snapshot::KEPT_FOR_PEOPLE;
use super::steps::Play;
use super::tasks::AGENTS;
use super::{Verdict, Violation, ensure};

/// More rounds than any history needs.
const ROUNDS: usize = 1_500;

impl Play<'_> {
    /// Ends all.
    pub fn drain(&mut self, rng: &mut Rng) -> Verdict {
        self.w.note(|| "drain".into());
        if !self.w.style.keep_book {
            let book = Book { revision: self.w.r.book.revision + 1, ..Book::default() };
            self.w.call(&Call::Book { book })?;
        }
        self.resume_all()?;
        for worker in &mut self.w.r.fleet.workers {
            worker.well = false;
        }
        let able = self.begin_one(rng, 7, false)?;
        let alone = self.begin_one(rng, 7, true)?;
        if self.w.style.by_bell {
            self.by_bell(rng, able, alone)?;
        }
        let mut rounds = 0;
        while self.work_is_left() || self.others_are_known(&[able, alone]) {
            rounds += 1;
            ensure!(rounds < ROUNDS, "after {ROUNDS} rounds there is still {:?}", self.left());
            self.round(rng, able, alone)?;
        }
        self.read_ghosts(able)?;
        self.w.look()?;
        for worker in [able, alone] {
            let left = self.w.call(&Call::Leave { worker })?;
            ensure!(left == Answer::Left(true), "w{worker} cannot leave: {left:?}");
        }
        self.w.call(&Call::Counts)?;
        self.notes()?;
        self.to_the_end(rng)
    }

    /// Entries of tasks that were called off are dropped by claims.
    fn read_ghosts(&mut self, able: usize) -> Verdict {
        for _ in 0..200 {
            self.claim_and_end(able, false)?;
            let s = self.w.snapshot()?;
            let unread =
                s.streams.iter().any(|(tail, st)| !KEPT_FOR_PEOPLE.contains(&tail.as_str()) && !st.entries.is_empty());
            if !unread && !s.keys.keys().any(|tail| tail.starts_with("live:")) {
                return Ok(());
            }
        }
        Err(Violation("200 claims do not read the last entries".into()))
    }

    fn work_is_left(&self) -> bool {
        self.w.r.tasks.values().any(|t| t.end().is_none())
    }

    pub(super) fn others_are_known(&self, us: &[usize]) -> bool {
        self.w.r.fleet.workers.iter().enumerate().any(|(i, w)| !us.contains(&i) && w.score().is_some())
    }

    fn left(&self) -> Vec<(&String, &super::reference::Life)> {
        self.w.r.tasks.iter().filter(|(_, t)| t.end().is_none()).map(|(id, t)| (id, &t.life)).take(5).collect()
    }

    /// Everybody does what he can; then time goes on to when something happens.
    fn round(&mut self, rng: &mut Rng, able: usize, alone: usize) -> Verdict {
        for (worker, may_sweep) in [(able, true), (alone, false)] {
            self.w.call(&Call::Renew { worker, lease_ms: 60_000, begin: None, may_sweep })?;
        }
        let mut sweeps = 0;
        loop {
            let Answer::Swept(swept) = self.w.call(&Call::Sweep { worker: able, lease_ms: 10_000 })? else { break };
            if let Some(lost) = &swept.expired {
                let worker =
                    self.w.r.fleet.by_name(lost.as_str()).ok_or_else(|| Violation(format!("{lost} is no worker")))?;
                while self.w.call(&Call::Reclaim { worker, poison: 2 })? != Answer::Reclaimed(0, true) {}
            } else if !swept.more {
                break;
            }
            sweeps += 1;
            ensure!(sweeps < 1_000, "the sweep never ends: {swept:?}");
        }
        let mut next_due = 0;
        for (worker, lone) in [(able, false), (alone, true)] {
            loop {
                let due = self.claim_and_end(worker, lone)?;
                next_due = due.unwrap_or(next_due);
                if due.is_some() {
                    break;
                }
            }
        }
        self.call_off_the_held()?;
        self.pass(rng, next_due)
    }

    /// Claims and ends what it gets; the next due time when it gets nothing.
    pub(super) fn claim_and_end(&mut self, worker: usize, lone: bool) -> Result<Option<u64>, Violation> {
        let offers: Vec<Offer> = AGENTS.iter().map(|a| Offer { agent: a.parse().expect("a name"), room: 32 }).collect();
        let most = if lone { 1 } else { 32 };
        let w = &mut self.w.r.fleet.workers[worker];
        w.claim_seq += 1;
        let seq = w.claim_seq;
        let answer = self.w.call(&Call::Claim { worker, seq, most, lone, shares: [18, 9, 4, 1], offers })?;
        let Answer::Claimed(claimed) = answer else {
            return Err(Violation(format!("w{worker} cannot claim: {answer:?}")));
        };
        if claimed.deliveries.is_empty() {
            return Ok(Some(claimed.next_due_ms));
        }
        let verb = Verb::Done { result: bytes::Bytes::from_static(b"ok"), keep_ms: 0 };
        let item = |(id, fence): (tidemill_common::name::TaskId, Fence)| SettleItem::new(id, fence, verb.clone());
        let items = claimed.deliveries.into_iter().map(|d| item((d.id, d.fence))).collect();
        let w = &mut self.w.r.fleet.workers[worker];
        w.lane_seq[0] += 1;
        let seq = w.lane_seq[0];
        self.w.call(&Call::Settle { worker, lane: 0, seq, items })?;
        Ok(None)
    }

    /// Those behind a dead head that holds its order key wait for an operator: here is one.
    pub(super) fn call_off_the_held(&mut self) -> Verdict {
        let tasks = &self.w.r.tasks;
        let heads = self.w.r.orders.values().filter(|o| o.first().is_some_and(|(_, id)| tasks[id].end().is_some()));
        let held: Vec<String> = heads
            .flat_map(|o| o.iter().skip(1))
            .map(|(_, id)| id.clone())
            .filter(|id| tasks[id].end().is_none())
            .collect();
        for id in held {
            self.w.call(&Call::Cancel { id: id.parse().expect("an id") })?;
        }
        Ok(())
    }

    /// Time goes on to the next due time or the end of a lease, at least a little.
    fn pass(&mut self, rng: &mut Rng, next_due: u64) -> Verdict {
        let now = self.w.r.now_ms();
        let waits = self.w.r.tasks.values().any(Known::waits);
        let leases = self.w.r.fleet.workers.iter().filter(|w| !w.well).filter_map(super::fleet::Worker::score);
        let due = Some(next_due).filter(|_| waits);
        let grace = Some(self.w.r.fleet.grace);
        let next = leases.chain(due).chain(grace).filter(|ms| *ms > now).min().unwrap_or(now + 1_000);
        let step = (next - now).max(1);
        if step > 50_000 {
            for worker in self.w.r.fleet.well() {
                self.w.call(&Call::Renew { worker, lease_ms: step + 60_000, begin: None, may_sweep: false })?;
            }
        }
        self.w.set_clock(self.w.r.now + step * 1_000 + rng.below(2) * 500)
    }

    /// Retention takes the dead, TTLs take the rest; what stays is on the list of permanent keys, or held by an order key.
    fn to_the_end(&mut self, rng: &mut Rng) -> Verdict {
        let ends = self.w.r.tasks.values().filter_map(|t| t.end()).map(|e| e.at);
        let ahead = ends.max().unwrap_or(0).saturating_sub(self.w.r.now_ms());
        self.leap_all(DEAD_MS + ahead + 1_000_000)?;
        let last = self.begin_one(rng, 7, false)?;
        for _ in 0..1_000 {
            self.w.call(&Call::Sweep { worker: last, lease_ms: 10_000 })?;
            let droppable = |t: &Known| t.end().is_some_and(|e| e.kept) && !t.new.hold_on_dead;
            if !self.w.r.tasks.values().any(droppable) {
                break;
            }
        }
        let droppable = |t: &&Known| t.end().is_some_and(|e| e.kept) && !t.new.hold_on_dead;
        let stay = self.w.r.tasks.values().find(droppable);
        ensure!(stay.is_none(), "{:?} is dead for 90 days, and no sweep drops it", stay.map(|t| &t.new.id));
        self.w.call(&Call::Leave { worker: last })?;
        self.leap_all(2 * 86_400_000)?;
        self.w.raw(&["LPOP"], "bell", &[])?;
        self.w.look()?;
        let s = self.w.snapshot()?;
        let held: Vec<&Known> = self.w.r.tasks.values().filter(|t| t.end().is_some_and(|e| e.kept)).collect();
        for (tail, key) in &s.keys {
            let of_held = match tail.split_once(':') {
                None => ["at", "dead"].contains(&tail.as_str()) && !held.is_empty(),
                Some(("o", order)) => held.iter().any(|t| t.new.order_key.as_deref() == Some(order)),
                Some(("k", _)) => held.iter().any(|t| t.new.key.is_some()),
                Some((_, id)) => held.iter().any(|t| t.new.id.as_str() == id),
            };
            ensure!(
                key.kind.2 == Lifetime::Permanent || of_held,
                "{tail} is left behind ({} TTL {})",
                key.of_type,
                key.ttl
            );
            let entries = s.streams.get(tail).map_or(0, |st| st.entries.len());
            ensure!(KEPT_FOR_PEOPLE.contains(&tail.as_str()) || entries == 0, "{tail} has {entries} entries left");
        }
        Ok(())
    }

    fn leap_all(&mut self, ms: u64) -> Verdict {
        self.w.set_clock(self.w.r.now + ms * 1000)?;
        self.w.age(ms)
    }
}
