//! What a claim may return, and what a reclaim takes back.

use std::collections::{BTreeMap, BTreeSet};

use tidemill_common::store::{Claimed, Delivery, Offer};

use super::book::Kind;
use super::budgets::Taken;
use super::call::Answer;
use super::fleet::Known as Lease;
use super::judge::Peek;
use super::reference::{Known, Life, Past, Reference, Run, SUSPECT};
use super::{Verdict, Violation, ensure};

/// A claim's arguments.
pub struct Asked<'a> {
    pub worker: usize,
    pub seq: u64,
    pub most: u32,
    pub lone: bool,
    pub offers: &'a [Offer],
}

pub fn claim(r: &mut Reference, asked: &Asked<'_>, answer: &Answer, peek: &mut dyn Peek) -> Verdict {
    let worker = &r.fleet.workers[asked.worker];
    if !matches!(worker.known, Lease::Until(_)) {
        ensure!(*answer == Answer::Gone, "w{} was given up, and its claim answered {answer:?}", asked.worker);
        return Ok(());
    }
    if let Some((last, deliveries)) = worker.claim.clone() {
        if asked.seq < last {
            ensure!(*answer == Answer::Stale, "claim {} after {last} answered {answer:?}", asked.seq);
            return Ok(());
        }
        if asked.seq == last {
            return replay(r, &deliveries, answer);
        }
    }
    let Answer::Claimed(got) = answer else { return Err(Violation(format!("answered {answer:?}"))) };
    ensure!(got.now_ms == r.now_ms(), "the time is {}, it said {}", r.now_ms(), got.now_ms);
    end_suspects(r, peek)?;
    ensure!(
        got.deliveries.len() as u64 <= u64::from(asked.most),
        "{} deliveries, {} were asked for",
        got.deliveries.len(),
        asked.most
    );
    let mut rooms: BTreeMap<&str, u32> = asked.offers.iter().map(|o| (o.agent.as_str(), o.room)).collect();
    let n = got.deliveries.len() as u64;
    let fences = if n > 0 { r.next_fences(n) } else { 0 };
    for (delivery, fence) in got.deliveries.iter().zip(fences..) {
        let id = delivery.id.as_str();
        let task = r.tasks.get(id).ok_or_else(|| Violation(format!("{id} was delivered, and never accepted")))?;
        may_start(r, task, asked.lone)?;
        let room = rooms.get_mut(task.new.agent.as_str()).filter(|n| **n > 0);
        *room
            .ok_or_else(|| Violation(format!("{id} was delivered, and there was no room for {}", task.new.agent)))? -=
            1;
        is_whole(task, delivery, fence)?;
        start(r, asked, id, fence)?;
    }
    if n > 0 {
        let ids = got.deliveries.iter().map(|d| (d.id.to_string(), d.fence.0)).collect();
        r.fleet.workers[asked.worker].claim = Some((asked.seq, ids));
    }
    Ok(())
}

/// The same deliveries again, as far as they are current.
fn replay(r: &Reference, deliveries: &[(String, u64)], answer: &Answer) -> Verdict {
    let Answer::Claimed(Claimed { deliveries: got, .. }) = answer else {
        return Err(Violation(format!("answered {answer:?}")));
    };
    let current: Vec<_> = deliveries.iter().filter_map(|(id, fence)| Some((r.current(id, *fence)?, *fence))).collect();
    let same = got.len() == current.len()
        && got
            .iter()
            .zip(&current)
            .all(|(d, ((_, run), fence))| d.fence.0 == *fence && u64::from(d.attempt) == run.attempt);
    ensure!(same, "the claim sent again returned {:?}, expected {:?}", ids(got), deliveries);
    got.iter().zip(current).try_for_each(|(d, ((task, _), fence))| is_whole_again(task, d, fence))
}

fn ids(deliveries: &[Delivery]) -> Vec<(&str, u64)> {
    deliveries.iter().map(|d| (d.id.as_str(), d.fence.0)).collect()
}

/// Tasks that the claim met too late, or that can never pass under the book in force.
fn end_suspects(r: &mut Reference, peek: &mut dyn Peek) -> Verdict {
    for id in r.suspects() {
        let Some(outcome) = peek.outcome(&id)? else { continue };
        let task = &r.tasks[&id];
        let late = task.is_late(r.now_ms());
        let letter = if late { b'e' } else { b'x' };
        ensure!(
            outcome.letter == letter,
            "{id} ended as {:?}, expected {:?}",
            char::from(outcome.letter),
            char::from(letter)
        );
        ensure!(late || outcome.data.starts_with(b"never_fits: "), "{id} is dead of {:?}", outcome.data);
        let past = task.past();
        let why = if late { b'-' } else { b'n' };
        let end = r.record_why(letter, why, None, &past, &outcome.data, 0);
        let now = r.now_ms();
        let past = (!late).then(|| {
            let mut past = past.clone();
            past.note(now, past.attempts, &outcome.data);
            past
        });
        r.end(&id, end, past);
    }
    Ok(())
}

/// Whether a task may be handed over now.
fn may_start(r: &Reference, task: &Known, lone: bool) -> Verdict {
    let (id, now) = (task.new.id.as_str(), r.now_ms());
    ensure!(task.waits(), "{id} was delivered, and it is {:?}", task.life);
    ensure!(!task.is_late(now), "{id} was delivered at {now}, and it had expired at {}", task.expires);
    ensure!(task.not_before == 0, "{id} was delivered at {now}, and it is not due before {}", task.not_before);
    let paused = r.paused(&task.new);
    ensure!(paused.is_none(), "{id} was delivered, and {paused:?} is paused");
    let suspect = task.past().losses >= SUSPECT;
    ensure!(
        suspect == lone,
        "{id} was lost {} times, and its claim is {}alone",
        task.past().losses,
        if lone { "" } else { "not " }
    );
    if let Some(order) = &task.new.order_key {
        let head = r.order_head(order);
        ensure!(head == Some(id), "{id} was delivered before {head:?}, which is first of order key {order}");
    }
    Ok(())
}

/// Whether a delivery says what it must.
fn is_whole(task: &Known, d: &Delivery, fence: u64) -> Verdict {
    let past = task.past();
    ensure!(d.fence.0 == fence, "{}: fence {}, expected {fence}", d.id, d.fence.0);
    ensure!(
        u64::from(d.attempt) == past.attempts + 1,
        "{}: attempt {}, expected {}",
        d.id,
        d.attempt,
        past.attempts + 1
    );
    is_whole_again(task, d, fence)
}

fn is_whole_again(task: &Known, d: &Delivery, fence: u64) -> Verdict {
    let past = task.past();
    ensure!(d.fence.0 == fence, "{}: fence {}, expected {fence}", d.id, d.fence.0);
    ensure!(u64::from(d.losses) == past.losses + past.lone, "{}: {} losses, expected {past:?}", d.id, d.losses);
    let envelope = task.stored();
    ensure!(d.envelope == envelope, "{}: the envelope is {:02x?}, expected {envelope:02x?}", d.id, d.envelope.as_ref());
    Ok(())
}

/// It runs from here on, with all its gates.
fn start(r: &mut Reference, asked: &Asked<'_>, id: &str, fence: u64) -> Verdict {
    let rules = r.rules(&r.tasks[id].new);
    let (now, real, start) = (r.now, r.real, r.now_ms());
    let task = r.tasks.get_mut(id).expect("it is known");
    let mut taken = Vec::new();
    for rule in rules {
        let units = rule.units(&r.book, &task.new);
        r.gates
            .take(&rule, units, fence, now, (real, r.age))
            .map_err(|why| Violation(format!("{id} was admitted above a limit: {why}")))?;
        let loss = if let Kind::Budget(budget) = &rule.kind { budget.loss } else { '-' };
        taken.push(Taken { gate: rule.gate, units, loss });
    }
    let attempt = task.past().attempts + 1;
    let history = task.past.is_some();
    let field = task.waits_field();
    task.indexed = 0;
    *r.taken.entry(field).or_default() += 1;
    task.life = Life::Running(Run {
        worker: asked.worker,
        fence,
        attempt,
        start,
        cancel: false,
        lone: asked.lone,
        history,
        taken,
        reported: None,
    });
    Ok(())
}

pub fn reclaim(r: &mut Reference, worker: usize, poison: u64, answer: &Answer, peek: &mut dyn Peek) -> Verdict {
    let now = r.now_ms();
    let Answer::Reclaimed(n, done) = *answer else { return Err(Violation(format!("answered {answer:?}"))) };
    if r.fleet.workers[worker].score().is_some_and(|s| s > now) {
        ensure!(n == 0 && done, "w{worker} lives, and a reclaim answered {answer:?}");
        return Ok(());
    }
    r.fleet.workers[worker].known = Lease::GivenUp;
    let before = r.running_of(worker);
    let still = peek.running()?;
    let lost: BTreeSet<&(String, u64)> = before.iter().filter(|(id, _)| !still.contains(id)).collect();
    let page = before.len().min(r.page);
    ensure!(
        lost.len() == page && n == page as u64,
        "w{worker} ran {before:?}; {n} were reclaimed, {lost:?} run no more, a page is {}",
        r.page
    );
    ensure!(done == before.is_empty(), "w{worker} ran {before:?}, and a reclaim answered {answer:?}");
    for (id, _) in lost {
        lose(r, id, poison);
    }
    r.count("reclaimed", n);
    if done {
        r.fleet.workers[worker].forget();
    }
    Ok(())
}

fn lose(r: &mut Reference, id: &str, poison: u64) {
    let now = r.now_ms();
    let task = r.tasks.get_mut(id).expect("it is known");
    let Life::Running(run) = std::mem::replace(&mut task.life, Life::Waiting) else { return };
    r.gates.give_back(&run.taken);
    r.gates.budgets.lost(id, &run.taken, run.fence, run.reported, (r.real, r.age));
    let mut past = Past { fence: run.fence, ..task.past() };
    if run.lone {
        past.lone += 1
    } else {
        past.losses += 1
    }
    if run.cancel {
        let end = r.record(b'c', Some(&run), &past, b"", 0);
        return r.end(id, end, None);
    }
    let text = format!("worker lost {} times", past.lost());
    past.note(now, run.attempt, text.as_bytes());
    if past.lone >= poison {
        let end = r.record_why(b'x', b'p', Some(&run), &past, format!("poison: {text}").as_bytes(), 0);
        return r.end(id, end, Some(past));
    }
    let too_old = task.too_old();
    if too_old > 0 && too_old <= now {
        let end = r.record(b'e', Some(&run), &past, b"", 0);
        return r.end(id, end, None);
    }
    task.past = Some(past);
    task.indexed = too_old;
}
