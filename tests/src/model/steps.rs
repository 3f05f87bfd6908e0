//! The steps of a history: what each kind does here and now.

use tidemill_common::name::AgentName;
use tidemill_common::store::{Cancelled, Offer, SettleItem};
use tidemill_common::task::Mode;

use super::call::{Answer, Call};
use super::fleet::Known as Lease;
use super::plan::{Kind, Plan};
use super::rng::Rng;
use super::tasks::{self, AGENTS};
use super::world::World;
use super::{Verdict, Violation, ensure};

#[path = "steps_said.rs"]
mod said;

/// A history being played.
pub struct Play<'h> {
    pub w: World<'h>,
    pub next_id: u64,
    /// Tasks that still come in the part that the bell drives.
    pub new_in_bell: u32,
    step: usize,
    /// Calls that will be made again: at which step.
    late: Vec<(usize, Call)>,
    /// Deliveries that ever were.
    old: Vec<(String, u64)>,
}

/// What happens to a call on its way.
enum Fate {
    Fine,
    Twice,
    /// It never arrives.
    Lost,
    /// Its answer never arrives.
    Unanswered,
    /// A copy arrives so many steps later.
    Again(usize),
}

impl<'h> Play<'h> {
    pub fn new(w: World<'h>) -> Self {
        Self { w, next_id: 0, new_in_bell: 6, step: 0, late: Vec::new(), old: Vec::new() }
    }

    /// Plays all steps.
    pub fn steps(&mut self, plan: &Plan) -> Verdict {
        for (i, (kind, number)) in plan.steps.iter().enumerate() {
            self.step = i;
            self.w.note(|| format!("#{i} {kind:?}"));
            self.one(*kind, &mut Rng::new(*number))?;
            let (now, later) = std::mem::take(&mut self.late).into_iter().partition(|(at, _)| *at <= i);
            self.late = later;
            let now: Vec<(usize, Call)> = now;
            for (_, call) in now {
                self.w.note(|| "again, late:".into());
                let answer = self.w.call(&call)?;
                self.learn_late(&call, &answer);
            }
        }
        if self.w.broken.is_some() { self.mend(&mut Rng::new(plan.seed)) } else { Ok(()) }
    }

    /// Copies that are still under way never arrive.
    pub fn forget_late(&mut self) {
        self.late.clear();
    }

    fn fate(&self, rng: &mut Rng) -> Fate {
        if !rng.percent(self.w.style.trouble) {
            return Fate::Fine;
        }
        match rng.below(8) {
            0 | 1 => Fate::Twice,
            2 => Fate::Lost,
            3..=5 => Fate::Unanswered,
            _ => Fate::Again(self.step + 1 + rng.index(40)),
        }
    }

    /// Makes a call; none when the caller gets no answer.
    pub fn send(&mut self, rng: &mut Rng, call: &Call) -> Result<Option<Answer>, Violation> {
        match self.fate(rng) {
            Fate::Fine => self.w.call(call).map(Some),
            Fate::Twice => {
                self.w.call(call)?;
                self.w.call(call).map(Some)
            }
            Fate::Lost => {
                self.w.note(|| format!("lost on its way: {call}"));
                Ok(None)
            }
            Fate::Unanswered => {
                self.w.call(call)?;
                if rng.percent(50) { self.w.call(call).map(Some) } else { Ok(None) }
            }
            Fate::Again(at) => {
                self.late.push((at, call.clone()));
                self.w.call(call).map(Some)
            }
        }
    }

    fn learn_late(&mut self, call: &Call, answer: &Answer) {
        if let (Call::Claim { .. }, Answer::Claimed(c)) = (call, answer) {
            self.old.extend(c.deliveries.iter().map(|d| (d.id.to_string(), d.fence.0)));
        }
    }

    fn one(&mut self, kind: Kind, rng: &mut Rng) -> Verdict {
        if self.w.broken.is_some()
            && matches!(
                kind,
                Kind::Leap
                    | Kind::Reborn
                    | Kind::Notes
                    | Kind::Back
                    | Kind::Break
                    | Kind::Alter
                    | Kind::Dead
                    | Kind::Pause
            )
        {
            return Ok(());
        }
        match kind {
            Kind::Break => {
                self.resume_all()?;
                self.break_some_key(rng)
            }
            Kind::Mend if self.w.broken.is_some() => self.mend(rng),
            Kind::Mend => Ok(()),
            Kind::Tick => self.tick(rng),
            Kind::Back => self.back(rng),
            Kind::Leap => {
                let ms = [130_000, 130_000, 90_000_000, 91 * 86_400_000][rng.index(4)];
                self.leap(ms)
            }
            Kind::Submit => self.submit(rng),
            Kind::Reborn => self.reborn(rng),
            Kind::Claim => self.claim(rng, false),
            Kind::Lone => self.claim(rng, true),
            Kind::Settle => self.settle(rng),
            Kind::Renew => self.renew(rng),
            Kind::Begin => self.begin(rng),
            Kind::Die => {
                if let Some(worker) = self.any_well(rng) {
                    self.w.note(|| format!("w{worker} falls silent"));
                    self.w.r.fleet.workers[worker].well = false;
                }
                Ok(())
            }
            Kind::Zombie => self.zombie(rng),
            Kind::Outage => self.outage(),
            Kind::Sweep => self.sweep(rng),
            Kind::Reclaim => {
                let Some(worker) = self.w.r.fleet.workers.len().checked_sub(1).map(|n| rng.index(n + 1)) else {
                    return Ok(());
                };
                let poison = 1 + u32::try_from(rng.below(3)).unwrap_or(0);
                self.send(rng, &Call::Reclaim { worker, poison }).map(|_| ())
            }
            Kind::Own => self.any_well(rng).map_or(Ok(()), |worker| self.own(rng, worker)),
            Kind::Leave => self.leave(rng),
            Kind::Cancel => self.cancel(rng),
            Kind::Alter => self.alter(rng),
            Kind::Dead => self.dead(rng),
            Kind::Pause => self.pause(rng),
            Kind::Book => self.book(rng),
            Kind::Status => self.status(rng),
            Kind::Progress => self.progress(rng),
            Kind::Spend => self.spend(rng),
            Kind::Counts => self.w.call(&Call::Counts).map(|_| ()),
            Kind::Wake => self.wake(rng),
            Kind::Notes => self.notes(),
        }
    }

    fn any_well(&self, rng: &mut Rng) -> Option<usize> {
        rng.pick(&self.w.r.fleet.well()).copied()
    }

    /// One that claims with others' work beside it, or alone.
    fn any_claimer(&self, rng: &mut Rng, lone: bool) -> Option<usize> {
        let all: Vec<usize> =
            self.w.r.fleet.well().into_iter().filter(|i| self.w.r.fleet.workers[*i].lone == lone).collect();
        rng.pick(&all).copied()
    }

    fn tick(&mut self, rng: &mut Rng) -> Verdict {
        let us = match rng.below(10) {
            0 => 1,
            1 => rng.within(1, 999),
            2..=4 => rng.within(1_000, 60_000),
            5..=7 => rng.within(60_000, 1_500_000),
            8 => 1_000 * rng.within(1, 1_000),
            _ => rng.within(1_500_000, 9_000_000),
        };
        self.w.set_clock(self.w.r.now + us)
    }

    fn back(&mut self, rng: &mut Rng) -> Verdict {
        let us = match rng.below(6) {
            0 => 1,
            1 | 2 => rng.within(1, 50_000),
            3 | 4 => rng.within(50_000, 5_000_000),
            _ => 3_600_000_000,
        };
        self.w.set_clock(self.w.r.now - us)
    }

    /// Those that are well keep their leases.
    fn leap(&mut self, ms: u64) -> Verdict {
        for worker in self.w.r.fleet.well() {
            self.renew_one(worker, ms + 30_000, false)?;
        }
        self.w.set_clock(self.w.r.now + ms * 1000)?;
        self.w.age(ms)
    }

    fn outage(&mut self) -> Verdict {
        let silent = self.w.r.fleet.workers.iter().filter(|w| !w.well);
        let ends = silent.filter_map(|w| if let Lease::Until(ms) = w.known { Some(ms) } else { None });
        let now = self.w.r.now_ms();
        let Some(end) = ends.filter(|ms| *ms < now + 10_000_000).max() else { return Ok(()) };
        let pass = end.saturating_sub(now) + 1;
        for worker in self.w.r.fleet.well() {
            self.renew_one(worker, pass + 30_000, false)?;
        }
        self.w.set_clock(self.w.r.now + pass * 1000)
    }

    fn submit(&mut self, rng: &mut Rng) -> Verdict {
        let n = if rng.percent(4) { rng.within(8, 32) } else { rng.within(1, self.w.style.batch) };
        let style = self.w.style;
        let mut tasks = tasks::batch(rng, &style, &self.w.r, &mut self.next_id, n);
        if self.w.broken.is_some() {
            tasks.iter_mut().for_each(|task| task.mode = Mode::Reject);
        }
        let most = if rng.percent(10) { rng.within(1, 6) } else { 0 };
        self.send(rng, &Call::Submit { tasks, most }).map(|_| ())
    }

    fn reborn(&mut self, rng: &mut Rng) -> Verdict {
        let waiting: Vec<String> = self.w.r.tasks.iter().filter(|(_, t)| t.waits()).map(|(id, _)| id.clone()).collect();
        let Some(id) = rng.pick(&waiting) else { return Ok(()) };
        self.w.call(&Call::Cancel { id: id.parse().expect("an id") })?;
        self.leap(130_000)?;
        let mut task = self.w.r.tasks[id].new.clone();
        (task.key, task.mode) = (None, Mode::Reject);
        if rng.percent(50) {
            task.delay = std::time::Duration::from_millis(700);
        }
        self.send(rng, &Call::Submit { tasks: vec![task], most: 0 }).map(|_| ())
    }

    fn offers(&self, rng: &mut Rng, worker: usize, room: u64) -> Vec<Offer> {
        let agents = self.w.r.fleet.workers[worker].agents;
        let able = AGENTS.iter().enumerate().filter(|(i, _)| agents & (1 << i) != 0);
        let offer = |(_, agent): (usize, &&str)| Offer {
            agent: agent.parse().expect("a name"),
            room: u32::try_from(rng.within(0, room)).unwrap_or(0),
        };
        able.map(offer).collect()
    }

    fn claim(&mut self, rng: &mut Rng, lone: bool) -> Verdict {
        let Some(worker) = self.any_claimer(rng, lone) else { return Ok(()) };
        self.claim_by(rng, worker)
    }

    fn claim_by(&mut self, rng: &mut Rng, worker: usize) -> Verdict {
        let lone = self.w.r.fleet.workers[worker].lone;
        let most = if lone { 1 } else { rng.within(1, self.w.style.batch * 3) };
        let offers = self.offers(rng, worker, most);
        let most = u32::try_from(most).unwrap_or(1);
        let share = |rng: &mut Rng| u32::try_from(rng.below(u64::from(most) + 1)).unwrap_or(0);
        let shares = [share(rng), share(rng), share(rng), share(rng)];
        let w = &mut self.w.r.fleet.workers[worker];
        w.claim_seq += 1;
        let seq = w.claim_seq;
        let answer = self.send(rng, &Call::Claim { worker, seq, most, lone, shares, offers })?;
        match answer {
            Some(Answer::Claimed(c)) => {
                let all = c.deliveries.iter().map(|d| (d.id.to_string(), d.fence.0));
                self.old.extend(all.clone());
                self.w.r.fleet.workers[worker].held.extend(all);
            }
            Some(Answer::Gone) => self.w.r.fleet.workers[worker].well = false,
            _ => {}
        }
        Ok(())
    }

    fn settle(&mut self, rng: &mut Rng) -> Verdict {
        let holding: Vec<usize> =
            self.w.r.fleet.well().into_iter().filter(|i| !self.w.r.fleet.workers[*i].held.is_empty()).collect();
        let worker = rng.pick(&holding).copied().filter(|_| !rng.percent(4)).or_else(|| self.any_well(rng));
        worker.map_or(Ok(()), |worker| self.settle_by(rng, worker))
    }

    fn settle_by(&mut self, rng: &mut Rng, worker: usize) -> Verdict {
        let style = self.w.style;
        let held: Vec<_> = self.w.r.fleet.workers[worker].held.iter().cloned().collect();
        let items = tasks::items(rng, &style, &self.w.r, &held, &self.old, &mut self.next_id);
        if items.is_empty() {
            return Ok(());
        }
        let lane = u8::try_from(rng.below(4)).unwrap_or(0);
        let w = &mut self.w.r.fleet.workers[worker];
        w.lane_seq[usize::from(lane)] += 1;
        let seq = w.lane_seq[usize::from(lane)];
        let call = Call::Settle { worker, lane, seq, items };
        if self.send(rng, &call)?.is_some()
            && let Call::Settle { items, .. } = &call
        {
            for item in items {
                self.w.r.fleet.workers[worker].held.remove(&(item.id.to_string(), item.fence.0));
            }
        }
        Ok(())
    }

    fn renew_one(&mut self, worker: usize, lease_ms: u64, may_sweep: bool) -> Verdict {
        let answer = self.w.call(&Call::Renew { worker, lease_ms, begin: None, may_sweep })?;
        self.w.r.fleet.workers[worker].well = answer != Answer::Gone;
        Ok(())
    }

    fn renew(&mut self, rng: &mut Rng) -> Verdict {
        let lease_ms = [3_000, 30_000, 30_000][rng.index(3)];
        let Some(worker) = self.any_well(rng) else { return Ok(()) };
        let call = Call::Renew { worker, lease_ms, begin: None, may_sweep: rng.percent(50) };
        if self.send(rng, &call)? == Some(Answer::Gone) {
            self.w.r.fleet.workers[worker].well = false;
        }
        Ok(())
    }

    fn begin(&mut self, rng: &mut Rng) -> Verdict {
        if self.w.r.fleet.well().len() >= 6 {
            return Ok(());
        }
        let lone = self.w.r.fleet.workers.len() > 1 && rng.percent(20);
        let agents = [7, 7, 1, 3, 6][rng.index(5)];
        self.begin_one(rng, if lone { 7 } else { agents }, lone).map(|_| ())
    }

    pub fn begin_one(&mut self, rng: &mut Rng, agents: u8, lone: bool) -> Result<usize, Violation> {
        let worker = self.w.add_worker(agents, lone);
        let able = AGENTS.iter().enumerate().filter(|(i, _)| agents & (1 << i) != 0);
        let names: Vec<AgentName> = able.map(|(_, a)| a.parse().expect("a name")).collect();
        self.w.call(&Call::Renew { worker, lease_ms: 30_000, begin: Some(names), may_sweep: rng.percent(50) })?;
        Ok(worker)
    }

    fn zombie(&mut self, rng: &mut Rng) -> Verdict {
        let all: Vec<usize> = (0..self.w.r.fleet.workers.len()).filter(|i| !self.w.r.fleet.workers[*i].well).collect();
        let Some(worker) = rng.pick(&all).copied() else { return Ok(()) };
        match rng.below(6) {
            0 | 1 => self.settle_by(rng, worker),
            2 => self.claim_by(rng, worker),
            3 => self.own(rng, worker),
            4 => self.renew_one(worker, 30_000, rng.percent(50)),
            _ => self.send(rng, &Call::Leave { worker }).map(|_| ()),
        }
    }

    fn sweep(&mut self, rng: &mut Rng) -> Verdict {
        let Some(worker) = self.any_well(rng) else { return Ok(()) };
        let call = Call::Sweep { worker, lease_ms: 10_000 };
        let Some(Answer::Swept(swept)) = self.send(rng, &call)? else { return Ok(()) };
        let Some(lost) = swept.expired else { return Ok(()) };
        let lost = self.w.r.fleet.by_name(lost.as_str()).ok_or_else(|| Violation(format!("{lost} is no worker")))?;
        let poison = 1 + u32::try_from(rng.below(3)).unwrap_or(0);
        for _ in 0..60 {
            let answer = self.send(rng, &Call::Reclaim { worker: lost, poison })?;
            let over = matches!(answer, Some(Answer::Reclaimed(_, true) | Answer::Failed(_)));
            if over || rng.percent(10) {
                return Ok(());
            }
        }
        if self.w.broken.is_some() {
            return Ok(());
        }
        Err(Violation(format!("w{lost} is never reclaimed")))
    }

    /// What it owns and does not know of, it hands back; what it holds and does not own, it forgets.
    fn own(&mut self, rng: &mut Rng, worker: usize) -> Verdict {
        let Some(Answer::Owned(list)) = self.send(rng, &Call::Own { worker })? else { return Ok(()) };
        let w = &mut self.w.r.fleet.workers[worker];
        let owned: std::collections::BTreeSet<_> = list.iter().map(|d| (d.id.to_string(), d.fence.0)).collect();
        let unknown: Vec<_> = owned.difference(&w.held).cloned().collect();
        w.held.retain(|d| owned.contains(d));
        self.hand_back(rng, worker, &unknown)
    }

    fn hand_back(&mut self, rng: &mut Rng, worker: usize, all: &[(String, u64)]) -> Verdict {
        if all.is_empty() {
            return Ok(());
        }
        let item = |(id, fence): &(String, u64)| {
            let fence = tidemill_common::name::Fence(*fence);
            SettleItem::new(id.parse().expect("an id"), fence, tidemill_common::store::Verb::Release)
        };
        let w = &mut self.w.r.fleet.workers[worker];
        w.lane_seq[0] += 1;
        let call = Call::Settle { worker, lane: 0, seq: w.lane_seq[0], items: all.iter().map(item).collect() };
        if self.send(rng, &call)?.is_some() {
            self.w.r.fleet.workers[worker].held.retain(|d| !all.contains(d));
        }
        Ok(())
    }

    fn leave(&mut self, rng: &mut Rng) -> Verdict {
        let Some(worker) = self.any_well(rng) else { return Ok(()) };
        if rng.percent(60) {
            let held: Vec<_> = self.w.r.fleet.workers[worker].held.iter().cloned().collect();
            self.hand_back(rng, worker, &held)?;
        }
        self.w.r.fleet.workers[worker].well = false;
        self.send(rng, &Call::Leave { worker }).map(|_| ())
    }

    fn cancel(&mut self, rng: &mut Rng) -> Verdict {
        let live: Vec<String> =
            self.w.r.tasks.iter().filter(|(_, t)| t.end().is_none()).map(|(id, _)| id.clone()).collect();
        let all: Vec<String> = self.w.r.tasks.keys().cloned().collect();
        let of = if rng.percent(85) { live } else { all };
        let id = rng.pick(&of).cloned().unwrap_or_else(|| "never-seen".into());
        let run = self.w.r.tasks.get(&id).and_then(|t| t.run().map(|run| (run.worker, run.fence)));
        let answer = self.send(rng, &Call::Cancel { id: id.parse().expect("an id") })?;
        if let (Some((worker, fence)), Some(Answer::Cancelled(Cancelled::Signalled)), None) =
            (run, &answer, &self.w.broken)
        {
            let list = self.w.raw(&["LRANGE"], &format!("ctl:w{worker}.x"), &["0", "-1"])?;
            let told = list
                .as_array()
                .unwrap_or_default()
                .iter()
                .filter_map(|n| n.as_str())
                .any(|n| n == format!("cancel {id} {fence}"));
            ensure!(told, "{id} was called off, and w{worker} was not told: {list:?}");
        }
        Ok(())
    }

    fn status(&mut self, rng: &mut Rng) -> Verdict {
        let all: Vec<&String> = self.w.r.tasks.keys().collect();
        let id = rng.pick(&all).map_or("never-seen", |id| id.as_str()).parse().expect("an id");
        let wake = rng.percent(50).then(|| format!("client{}", rng.below(2)));
        self.send(rng, &Call::Status { id, wake }).map(|_| ())
    }

    fn wake(&mut self, rng: &mut Rng) -> Verdict {
        let heard = self.w.raw(&["LPOP"], "bell", &[])?;
        match self.any_claimer(rng, false) {
            Some(worker) if !heard.is_nil() => self.claim_by(rng, worker),
            _ => Ok(()),
        }
    }

    /// Waiters were told of every end, and of nothing else.
    pub fn notes(&mut self) -> Verdict {
        for client in ["client0", "client1"] {
            let list = self.w.raw(&["LRANGE"], &format!("ctl:{client}"), &["0", "-1"])?;
            self.w.raw(&["DEL"], &format!("ctl:{client}"), &[])?;
            let told: Vec<String> =
                list.as_array().unwrap_or_default().iter().filter_map(|n| n.as_str().map(str::to_owned)).collect();
            let expected = self.w.r.woken.remove(client).unwrap_or_default();
            let expected: Vec<String> = expected.into_iter().map(|id| format!("end {id}")).collect();
            let sorted = |mut v: Vec<String>| {
                v.sort();
                v
            };
            ensure!(
                sorted(told.clone()) == sorted(expected.clone()),
                "{client} was told {told:?}, expected {expected:?}"
            );
        }
        Ok(())
    }
}
