//! What an operator does, judged; and the steps that do it.

use std::time::Duration;

use tidemill_common::book::Book;
use tidemill_common::name::TaskId;
use tidemill_common::store::{Altered, Change, DeadDone, DeadVerb, Pausable};
use tidemill_common::task::Priority;

use super::call::{Answer, Call};
use super::reference::{Life, Past, Reference};
use super::rng::Rng;
use super::steps::Play;
use super::{Verdict, Violation, book, ensure};

pub fn alter(r: &mut Reference, tasks: &[(TaskId, Change)], answer: &Answer) -> Verdict {
    let Answer::Altered(got) = answer else { return Err(Violation(format!("answered {answer:?}"))) };
    ensure!(got.len() == tasks.len(), "{} were altered, {} answers", tasks.len(), got.len());
    for ((id, change), got) in tasks.iter().zip(got) {
        let expected = alter_one(r, id.as_str(), change, *got);
        ensure!(*got == expected, "{id}: {change:?} answered {got:?}, expected {expected:?}");
    }
    Ok(())
}

fn alter_one(r: &mut Reference, id: &str, change: &Change, got: Altered) -> Altered {
    let (now, age) = (r.now_ms(), r.age);
    let Some(task) = r.tasks.get_mut(id) else { return Altered::Unknown };
    match &task.life {
        Life::Running(_) => return Altered::Running,
        Life::Ended(end) if end.kept || end.record_until > age => return Altered::Ended,
        Life::Ended(_) => return Altered::Unknown,
        Life::Waiting => {}
    }
    match change {
        Change::Priority(p) if *p == task.new.priority => return Altered::Same,
        Change::Priority(p) => task.new.priority = *p,
        Change::Queue(q) if *q == task.new.queue => return Altered::Same,
        Change::Queue(q) => {
            task.new.queue = q.clone();
            r.queues.insert(q.to_string());
        }
        // Whether it had been promoted is not known here; one that is not due yet must be.
        Change::Now if got == Altered::Same && task.not_before == 0 && task.due <= now => return Altered::Same,
        Change::Now => (task.due, task.not_before) = (0, 0),
    }
    task.altered();
    Altered::Done
}

pub fn dead(r: &mut Reference, tasks: &[(TaskId, DeadVerb)], answer: &Answer) -> Verdict {
    let first = r.now.max(r.seq + 1);
    r.seq = first + tasks.len() as u64 - 1;
    let mut expected = Vec::new();
    for ((id, verb), seq) in tasks.iter().zip(first..) {
        expected.push(dead_one(r, id.as_str(), verb, seq));
    }
    ensure!(*answer == Answer::DeadDone(expected.clone()), "answered {answer:?}, expected {expected:?}");
    Ok(())
}

fn dead_one(r: &mut Reference, id: &str, verb: &DeadVerb, seq: u64) -> DeadDone {
    let Some(task) = r.tasks.get(id).filter(|t| t.end().is_some_and(|e| e.kept)) else { return DeadDone::NotDead };
    match verb {
        DeadVerb::Purge => {
            r.drop_dead(id);
            DeadDone::Purged
        }
        DeadVerb::Skip => {
            if task.new.hold_on_dead {
                let generation = task.generation;
                let task = r.tasks.get_mut(id).expect("it is dead");
                task.new.hold_on_dead = false;
                task.altered();
                task.generation = generation;
                r.leave_order(id);
            }
            DeadDone::Skipped
        }
        DeadVerb::Replay { delay, .. } => {
            replay(r, id, u64::try_from(delay.as_millis()).expect("short"), seq);
            DeadDone::Replayed
        }
    }
}

fn replay(r: &mut Reference, id: &str, delay: u64, seq: u64) {
    let now = r.now_ms();
    r.count("replayed", 1);
    let task = r.tasks.get_mut(id).expect("it is dead");
    let holds = task.new.order_key.is_some() && task.new.hold_on_dead;
    if holds {
        // Its age began long ago.
        task.new.max_age = None;
    } else {
        task.seq = seq;
    }
    task.altered();
    task.due = if delay > 0 { now + delay } else { 0 };
    task.not_before = task.due;
    task.expires = task.too_old();
    task.indexed = task.expires;
    let past = task.past();
    task.past = Some(Past { replays: past.replays + 1, fence: past.fence, errors: past.errors, ..Past::default() });
    task.life = Life::Waiting;
    let entry = (task.seq, id.to_owned());
    if let Some(order) = task.new.order_key.clone() {
        r.orders.entry(order).or_default().insert(entry);
    }
}

impl Play<'_> {
    pub fn book(&mut self, rng: &mut Rng) -> Verdict {
        let current = self.w.r.book.clone();
        let style = self.w.style.rules;
        let next = match rng.below(10) {
            0 if current.revision > 0 => current,
            1 if current.revision > 1 => book::random(rng, current.revision - 1, style),
            2 if current.revision > 0 => book::random(rng, current.revision, style),
            3 => Book { revision: current.revision + 1, ..Book::default() },
            4..=6 => book::tweaked(rng, &current, style),
            _ => book::random(rng, current.revision + 1, style),
        };
        self.send(rng, &Call::Book { book: next }).map(|_| ())
    }

    pub fn pause(&mut self, rng: &mut Rng) -> Verdict {
        let paused: Vec<String> = self.w.r.pauses.keys().cloned().collect();
        if let Some(field) = rng.pick(&paused).filter(|_| rng.percent(60)) {
            let what = Pausable::from_field(field).expect("it is one");
            return self.send(rng, &Call::Resume { what }).map(|_| ());
        }
        let what = match rng.below(8) {
            0 => Pausable::All,
            1..=3 => Pausable::Queue(["default", "slow", "q.3"][rng.index(3)].parse().expect("a name")),
            4..=6 => Pausable::Agent(["a", "b", "c"][rng.index(3)].parse().expect("a name")),
            _ => Pausable::Tenant(["", "t/1 :x"][rng.index(2)].to_owned()),
        };
        let ms = [0, 0, 40, 3_000][rng.index(4)];
        self.send(rng, &Call::Pause { what, ms }).map(|_| ())
    }

    pub fn resume_all(&mut self) -> Verdict {
        let all = self.w.raw(&["HKEYS"], "paused", &[])?;
        let all = all.as_array().unwrap_or_default().iter().filter_map(|r| r.as_str().map(str::to_owned));
        for field in all.collect::<Vec<_>>() {
            let what = Pausable::from_field(&field).expect("it is one");
            self.w.call(&Call::Resume { what })?;
        }
        Ok(())
    }

    pub fn alter(&mut self, rng: &mut Rng) -> Verdict {
        let mut tasks = Vec::new();
        for _ in 0..rng.within(1, 4) {
            let all: Vec<&String> = self.w.r.tasks.iter().filter(|(_, t)| t.waits()).map(|(id, _)| id).collect();
            let any: Vec<&String> = self.w.r.tasks.keys().collect();
            let of = if rng.percent(85) { all } else { any };
            let id = rng.pick(&of).map_or("never-seen", |id| id.as_str());
            let change = match rng.below(3) {
                0 => Change::Priority(Priority::ALL[rng.index(4)]),
                1 => Change::Queue(["default", "slow", "q.3"][rng.index(3)].parse().expect("a name")),
                _ => Change::Now,
            };
            tasks.push((id.parse().expect("an id"), change));
        }
        self.send(rng, &Call::Alter { tasks }).map(|_| ())
    }

    pub fn dead(&mut self, rng: &mut Rng) -> Verdict {
        let mut tasks = Vec::new();
        for _ in 0..rng.within(1, 4) {
            let kept = |t: &super::reference::Known| t.end().is_some_and(|e| e.kept);
            let all: Vec<&String> = self.w.r.tasks.iter().filter(|(_, t)| kept(t)).map(|(id, _)| id).collect();
            let any: Vec<&String> = self.w.r.tasks.keys().collect();
            let of = if rng.percent(90) { all } else { any };
            let id = rng.pick(&of).map_or("never-seen", |id| id.as_str());
            let delay = Duration::from_millis([0, 0, 1, 900][rng.index(4)]);
            let verb = match rng.below(6) {
                0 => DeadVerb::Purge,
                1 => DeadVerb::Skip,
                _ => DeadVerb::Replay { delay, patch: None },
            };
            tasks.push((id.parse().expect("an id"), verb));
        }
        self.send(rng, &Call::Dead { tasks }).map(|_| ())
    }
}
