//! A part of a history in which workers claim only when something tells them to: the bell, their own list, a due time that they
//! heard of, room that appeared. Whoever loses a wake-up leaves work that nobody takes.

use tidemill_common::store::Offer;

use super::call::{Answer, Call};
use super::plan::Style;
use super::reference::{Known, SUSPECT};
use super::rng::Rng;
use super::steps::Play;
use super::tasks::{self, AGENTS};
use super::{Verdict, Violation, ensure};

/// A worker as it sleeps and wakes.
struct Sleeper {
    worker: usize,
    room: u64,
    awake: bool,
    /// When it will look by itself, server ms; 0: never.
    timer: u64,
}

const EVENTS: usize = 4_000;

impl Play<'_> {
    /// Works off what can be, by wake-ups alone. The fleet is whole: nobody dies here.
    pub fn by_bell(&mut self, rng: &mut Rng, able: usize, alone: usize) -> Verdict {
        self.w.note(|| "by the bell".into());
        for (worker, may_sweep) in [(able, true), (alone, false)] {
            self.w.call(&Call::Renew { worker, lease_ms: 1_000_000_000, begin: None, may_sweep })?;
        }
        self.bury(able, alone)?;
        let masks = [[1, 6, 7], [7, 7, 7], [3, 4, 2]][rng.index(3)];
        let mut all = Vec::new();
        for agents in masks {
            let worker = self.begin_one(rng, agents, false)?;
            self.w.call(&Call::Renew { worker, lease_ms: 1_000_000_000, begin: None, may_sweep: false })?;
            all.push(Sleeper { worker, room: rng.within(1, 4), awake: true, timer: 0 });
        }
        let mut calm = Style { failing: self.w.style.failing.min(20), ..self.w.style };
        for event in 0..EVENTS {
            if event > 300 {
                calm.failing = 0;
            }
            if !self.event(rng, &mut all, (able, alone), &calm)? {
                self.call_off_the_held()?;
                if !self.runnable() {
                    break;
                }
            }
            ensure!(event + 1 < EVENTS, "{EVENTS} events and no end");
        }
        for s in &all {
            self.w.r.fleet.workers[s.worker].well = false;
            let held: Vec<_> = self.w.r.fleet.workers[s.worker].held.iter().cloned().collect();
            ensure!(held.is_empty(), "w{} still holds {held:?}", s.worker);
            self.w.call(&Call::Leave { worker: s.worker })?;
        }
        Ok(())
    }

    /// The leases of all others have run out, and the sweep is done with them.
    fn bury(&mut self, able: usize, alone: usize) -> Verdict {
        for _ in 0..300 {
            self.w.call(&Call::Renew { worker: able, lease_ms: 1_000_000_000, begin: None, may_sweep: true })?;
            self.w.call(&Call::Renew { worker: alone, lease_ms: 1_000_000_000, begin: None, may_sweep: false })?;
            let Answer::Swept(swept) = self.w.call(&Call::Sweep { worker: able, lease_ms: 10_000 })? else { break };
            if let Some(lost) = swept.expired {
                let worker =
                    self.w.r.fleet.by_name(lost.as_str()).ok_or_else(|| Violation(format!("{lost} is no worker")))?;
                while self.w.call(&Call::Reclaim { worker, poison: 2 })? != Answer::Reclaimed(0, true) {}
                continue;
            }
            if !self.others_are_known(&[able, alone]) {
                return Ok(());
            }
            let others = self.w.r.fleet.workers.iter().enumerate().filter(|(i, _)| *i != able && *i != alone);
            let last = others.filter_map(|(_, w)| w.score()).max().unwrap_or(0);
            let pass = last.max(self.w.r.fleet.grace).saturating_sub(self.w.r.now_ms()).max(5_000) + 1;
            self.w.set_clock(self.w.r.now + pass * 1_000)?;
        }
        Err(Violation("300 sweeps do not end the old fleet".into()))
    }

    /// Whether somebody could still do something: all but what waits behind a dead head.
    fn runnable(&self) -> bool {
        self.w.r.tasks.values().any(|t| t.end().is_none())
    }

    /// One thing happens. False: nothing can, and nobody will be woken.
    fn event(
        &mut self,
        rng: &mut Rng,
        all: &mut [Sleeper],
        others: (usize, usize),
        calm: &Style,
    ) -> Result<bool, Violation> {
        let awake: Vec<usize> = (0..all.len()).filter(|i| all[*i].awake && self.room(&all[*i]) > 0).collect();
        let holding: Vec<usize> =
            (0..all.len()).filter(|i| !self.w.r.fleet.workers[all[*i].worker].held.is_empty()).collect();
        let settles = !holding.is_empty() && (awake.is_empty() || rng.percent(40));
        if settles && rng.percent(60) {
            if let Some(i) = rng.pick(&holding) {
                self.end_some(rng, &mut all[*i], calm)?;
            }
            return Ok(true);
        }
        if self.new_in_bell > 0 && rng.percent(10) {
            self.new_in_bell -= 1;
            let tasks = tasks::batch(rng, calm, &self.w.r, &mut self.next_id, 1);
            self.w.call(&Call::Submit { tasks, most: 0 })?;
            return Ok(true);
        }
        if let Some(i) = rng.pick(&awake) {
            let lone = self.wakes_for(rng, &mut all[*i])?;
            while lone && self.claim_and_end(others.1, true)?.is_none() {}
            return Ok(true);
        }
        if self.hears(rng, all)? || !holding.is_empty() {
            return Ok(true);
        }
        if self.new_in_bell > 0 && rng.percent(50) {
            // Everybody sleeps, and something new comes.
            self.new_in_bell -= 1;
            let late = Style { delayed: 50, ..*calm };
            let tasks = tasks::batch(rng, &late, &self.w.r, &mut self.next_id, 1);
            self.w.call(&Call::Submit { tasks, most: 0 })?;
            return Ok(true);
        }
        self.nothing_is_heard(rng, all, others.0)
    }

    fn room(&self, s: &Sleeper) -> u64 {
        s.room.saturating_sub(self.w.r.fleet.workers[s.worker].held.len() as u64)
    }

    /// A claim for all its room; it sleeps when it got less. True: work waits that must run alone.
    fn wakes_for(&mut self, rng: &mut Rng, s: &mut Sleeper) -> Result<bool, Violation> {
        let room = u32::try_from(self.room(s)).unwrap_or(1);
        let agents = self.w.r.fleet.workers[s.worker].agents;
        let able = AGENTS.iter().enumerate().filter(|(i, _)| agents & (1 << i) != 0);
        let offers: Vec<Offer> = able.map(|(_, a)| Offer { agent: a.parse().expect("a name"), room }).collect();
        let most = u32::try_from(rng.within(1, u64::from(room))).unwrap_or(1);
        let w = &mut self.w.r.fleet.workers[s.worker];
        w.claim_seq += 1;
        let call = Call::Claim { worker: s.worker, seq: w.claim_seq, most, lone: false, shares: [most; 4], offers };
        let Answer::Claimed(c) = self.w.call(&call)? else {
            return Err(Violation(format!("w{} cannot claim", s.worker)));
        };
        let n = c.deliveries.len();
        self.w.r.fleet.workers[s.worker].held.extend(c.deliveries.iter().map(|d| (d.id.to_string(), d.fence.0)));
        s.awake = n as u64 == u64::from(most) || c.cut_short;
        s.timer = c.next_due_ms;
        Ok(c.lone_work)
    }

    /// It ends some of what it holds; the room that appears needs no bell.
    fn end_some(&mut self, rng: &mut Rng, s: &mut Sleeper, calm: &Style) -> Verdict {
        let held: Vec<_> = self.w.r.fleet.workers[s.worker].held.iter().cloned().collect();
        let items = tasks::items(rng, calm, &self.w.r, &held, &[], &mut self.next_id);
        let w = &mut self.w.r.fleet.workers[s.worker];
        w.lane_seq[0] += 1;
        let call = Call::Settle { worker: s.worker, lane: 0, seq: w.lane_seq[0], items };
        self.w.call(&call)?;
        if let Call::Settle { items, .. } = &call {
            for item in items {
                self.w.r.fleet.workers[s.worker].held.remove(&(item.id.to_string(), item.fence.0));
            }
        }
        s.awake = true;
        Ok(())
    }

    /// The bell wakes one of those who sleep with room; a list wakes its owner; a due time wakes whoever knows of it.
    fn hears(&mut self, rng: &mut Rng, all: &mut [Sleeper]) -> Result<bool, Violation> {
        let now = self.w.r.now_ms();
        for s in all.iter_mut() {
            let told = self.w.raw(&["LPOP"], &format!("ctl:w{}.x", s.worker), &[])?;
            if told.as_str() == Some("ring") || (s.timer > 0 && s.timer <= now) {
                s.awake = true;
                s.timer = 0;
                return Ok(true);
            }
        }
        let listening: Vec<usize> = (0..all.len()).filter(|i| self.room(&all[*i]) > 0).collect();
        let Some(i) = rng.pick(&listening) else { return Ok(false) };
        let heard = !self.w.raw(&["LPOP"], "bell", &[])?.is_nil();
        all[*i].awake |= heard;
        Ok(heard)
    }

    /// Time goes on to the next due time that anybody knows of, and the sweep rings then. Without one nobody would ever wake.
    fn nothing_is_heard(&mut self, rng: &mut Rng, all: &mut [Sleeper], sweeper: usize) -> Result<bool, Violation> {
        let now = self.w.r.now_ms();
        let next = all.iter().map(|s| s.timer).filter(|t| *t > now).min();
        let waiting = |t: &&Known| t.waits() && t.past().losses < SUSPECT && !self.behind_a_dead_head(t);
        let stuck = self.w.r.tasks.values().find(waiting).map(|t| (t.new.id.clone(), t.past.clone()));
        ensure!(
            next.is_some() || stuck.is_none(),
            "{stuck:?} waits, everybody sleeps with room, nobody knows of a due time, and the bell is silent"
        );
        let Some(next) = next.filter(|_| stuck.is_some()) else { return Ok(false) };
        self.w.set_clock(next * 1_000 + rng.below(1_000))?;
        if rng.percent(50) {
            self.w.call(&Call::Sweep { worker: sweeper, lease_ms: 10_000 })?;
        }
        Ok(true)
    }

    fn behind_a_dead_head(&self, t: &Known) -> bool {
        let Some(order) = &t.new.order_key else { return false };
        let head = self.w.r.order_head(order).and_then(|id| self.w.r.tasks.get(id));
        head.is_some_and(|h| h.end().is_some())
    }
}
