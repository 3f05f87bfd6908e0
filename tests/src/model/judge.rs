//! Whether an answer is one that the reference allows; the reference then goes on by it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tidemill_common::book::Book;
use tidemill_common::history::{DeadReason, PastError};
use tidemill_common::name::{Fence, TaskId};
use tidemill_common::spend::Spend;
use tidemill_common::state::State;
use tidemill_common::store::{Accepted, Applied, Cancelled, Counts, Renewed, SettleItem, Settled, Status, Swept, Verb};

use super::call::{Answer, Call, SWEEP_HOLD_MS};
use super::fleet::{Known as Lease, Lane};
use super::reference::{DEAD_MS, Life, Past, Reference};
use super::wire::Outcome;
use super::{Verdict, Violation, ensure};
use super::{judge_claim, judge_operator};

/// What a judge may look up where an answer does not say it.
pub trait Peek {
    /// The outcome record of a task.
    fn outcome(&mut self, id: &str) -> Result<Option<Outcome>, Violation>;
    /// Ids with a run row.
    fn running(&mut self) -> Result<BTreeSet<String>, Violation>;
}

/// Judges one answer.
pub fn judge(r: &mut Reference, call: &Call, answer: &Answer, peek: &mut dyn Peek) -> Verdict {
    if let Answer::Failed(why) = answer {
        return Err(Violation(format!("an error: {why}")));
    }
    match call {
        Call::Submit { tasks, most } => {
            let expected = r.accept(tasks, *most);
            let Answer::Submitted(got) = answer else { return Err(Violation(format!("answered {answer:?}"))) };
            expect(&Answer::Submitted(without_hints(got)), &Answer::Submitted(expected))
        }
        Call::Claim { worker, seq, most, lone, offers, .. } => judge_claim::claim(
            r,
            &judge_claim::Asked { worker: *worker, seq: *seq, most: *most, lone: *lone, offers },
            answer,
            peek,
        ),
        Call::Settle { worker, lane, seq, items } => settle(r, *worker, *lane, *seq, items, answer),
        Call::Renew { worker, lease_ms, begin, may_sweep } => {
            renew(r, *worker, *lease_ms, begin.is_some(), *may_sweep, answer)
        }
        Call::Sweep { worker, lease_ms } => sweep(r, *worker, *lease_ms, answer),
        Call::Reclaim { worker, poison } => judge_claim::reclaim(r, *worker, u64::from(*poison), answer, peek),
        Call::Own { worker } => own(r, *worker, answer),
        Call::Leave { worker } => leave(r, *worker, answer),
        Call::Cancel { id } => cancel(r, id.as_str(), answer),
        Call::Alter { tasks } => judge_operator::alter(r, tasks, answer),
        Call::Dead { tasks } => judge_operator::dead(r, tasks, answer),
        Call::Pause { what, ms } => {
            r.pauses.insert(what.field(), if *ms > 0 { r.now_ms() + ms } else { 0 });
            expect(answer, &Answer::Paused(true))
        }
        // One whose time has come may have been resumed by a claim.
        Call::Resume { what } => {
            ensure!(matches!(answer, Answer::Paused(_)), "answered {answer:?}");
            let was = r.pauses.remove(&what.field()).is_some();
            ensure!(!was || *answer == Answer::Paused(true), "{what} was paused, and a resume answered {answer:?}");
            Ok(())
        }
        Call::Book { book } => apply(r, book, answer),
        Call::Status { id, wake } => status(r, id.as_str(), wake.as_deref(), answer),
        Call::Progress { items } => {
            let kept = items.iter().map(|(id, fence, _)| r.current(id.as_str(), fence.0).is_some()).collect();
            expect(answer, &Answer::Progress(kept))
        }
        Call::Spend { items } => spend(r, items, answer),
        Call::Counts => counts(r, answer),
    }
}

fn expect(answer: &Answer, expected: &Answer) -> Verdict {
    ensure!(answer == expected, "answered {answer:?}, expected {expected:?}");
    Ok(())
}

fn spend(r: &mut Reference, items: &[(TaskId, Fence, Spend)], answer: &Answer) -> Verdict {
    let mut kept = Vec::new();
    for (id, fence, used) in items {
        let current = r.current(id.as_str(), fence.0).is_some();
        kept.push(current);
        if !current {
            r.gates.budgets.late(id.as_str(), fence.0, *used, false, (r.real, r.age));
        } else if let Some(Life::Running(run)) = r.tasks.get_mut(id.as_str()).map(|t| &mut t.life) {
            let had = run.reported.unwrap_or_default();
            let most = Spend { tokens: had.tokens.max(used.tokens), micro_usd: had.micro_usd.max(used.micro_usd) };
            run.reported = Some(most);
        }
    }
    expect(answer, &Answer::Progress(kept))
}

fn settle(r: &mut Reference, worker: usize, lane: u8, seq: u64, items: &[SettleItem], answer: &Answer) -> Verdict {
    if let Some(last) = &r.fleet.workers[worker].lanes[usize::from(lane)] {
        if seq < last.seq {
            return expect(answer, &Answer::Stale);
        }
        if seq == last.seq {
            return expect(answer, &Answer::Settled(last.answers.0.clone(), last.answers.1.clone()));
        }
    }
    let mut seen = BTreeSet::new();
    let (mut settled, mut accepted) = (Vec::new(), Vec::new());
    // What ran when the script began: an item sees no delivery that an earlier one ended.
    for item in items {
        let id = item.id.as_str();
        let current = r.current(id, item.fence.0).is_some();
        if seen.contains(id) {
            settled.push(Settled::Already);
        } else if current {
            seen.insert(id);
            let how = settle_one(r, item);
            settled.push(how);
            if how == Settled::Done {
                accepted.extend(r.accept(&item.follow_ups, 0));
            }
        } else {
            if let Some(used) = item.used {
                r.gates.budgets.late(id, item.fence.0, used, true, (r.real, r.age));
            }
            settled.push(not_mine(r, id, item.fence.0));
        }
    }
    // A worker that is forgotten leaves no answers behind: nothing of it can be current.
    let w = &mut r.fleet.workers[worker];
    if w.score().is_some() {
        w.lanes[usize::from(lane)] = Some(Lane { seq, answers: (settled.clone(), accepted.clone()) });
    }
    expect(answer, &Answer::Settled(settled, accepted))
}

fn settle_one(r: &mut Reference, item: &SettleItem) -> Settled {
    let id = item.id.as_str();
    let now = r.now_ms();
    let task = r.tasks.get_mut(id).expect("it is current");
    let Life::Running(run) = std::mem::replace(&mut task.life, Life::Waiting) else { unreachable!("it is current") };
    let max = u64::from(task.new.max_attempts);
    let mut past = Past { fence: run.fence, ..task.past() };
    r.gates.give_back(&run.taken);
    let cut = item.verb == Verb::Release && item.used.is_some();
    let none = matches!(item.verb, Verb::Release | Verb::Throttled { .. } | Verb::Unreadable { .. });
    let used = item.used.or(none.then(Spend::default));
    r.gates.budgets.ended(&run.taken, run.fence, used, cut, (r.real, r.age));
    if let Verb::Done { result, keep_ms } = &item.verb {
        let end = r.record(b'd', Some(&run), &past, result, *keep_ms);
        r.end(id, end, None);
        return Settled::Done;
    }
    let data = match &item.verb {
        Verb::Retry { error, .. }
        | Verb::Throttled { error, .. }
        | Verb::Dead { error }
        | Verb::Unreadable { error } => Bytes::copy_from_slice(error.as_bytes()),
        _ => Bytes::new(),
    };
    if run.cancel {
        let end = r.record(b'c', Some(&run), &past, &data, 0);
        r.end(id, end, None);
        return Settled::Cancelled;
    }
    if item.verb != Verb::Release {
        past.note(now, run.attempt, &data);
    }
    let dead = matches!(item.verb, Verb::Dead { .. } | Verb::Unreadable { .. })
        || (matches!(item.verb, Verb::Retry { .. }) && run.attempt >= max);
    if dead {
        past.attempts = run.attempt;
        let why = match item.verb {
            Verb::Dead { .. } => b'r',
            Verb::Unreadable { .. } => b'i',
            _ => b'a',
        };
        let end = r.record_why(b'x', why, Some(&run), &past, &data, 0);
        r.end(id, end, Some(past));
        return Settled::Dead;
    }
    let task = r.tasks.get_mut(id).expect("it is current");
    let (how, after) = match &item.verb {
        Verb::Retry { after_ms, .. } => {
            past.attempts = run.attempt;
            (Settled::Retry, Some(*after_ms))
        }
        Verb::Throttled { after_ms, .. } => (Settled::Throttled, Some(*after_ms)),
        _ => {
            past.backs += 1;
            (Settled::Released, None)
        }
    };
    let too_old = task.too_old();
    if too_old > 0 && too_old <= now {
        let end = r.record(b'e', Some(&run), &past, &data, 0);
        r.end(id, end, None);
        return Settled::Expired;
    }
    task.not_before = after.map_or(0, |ms| now + ms.max(1));
    task.past = Some(past);
    task.indexed = too_old;
    how
}

/// When there may be room again is a guess of the scripts.
fn without_hints(answers: &[Accepted]) -> Vec<Accepted> {
    let plain = |answer: &Accepted| match answer {
        Accepted::Full { .. } => Accepted::Full { retry_after_ms: 0 },
        other => other.clone(),
    };
    answers.iter().map(plain).collect()
}

fn not_mine(r: &Reference, id: &str, fence: u64) -> Settled {
    let Some(task) = r.tasks.get(id) else { return Settled::Gone };
    let recorded = task.end().filter(|e| e.record_until > r.age);
    let by_record = recorded.is_some_and(|e| e.fence == fence);
    let by_past = task.past.as_ref().is_some_and(|p| p.fence == fence);
    if by_record || by_past {
        Settled::Already
    } else if task.is_kept() || recorded.is_some() {
        Settled::Stale
    } else {
        Settled::Gone
    }
}

fn renew(r: &mut Reference, worker: usize, lease_ms: u64, begin: bool, may_sweep: bool, answer: &Answer) -> Verdict {
    let now = r.now_ms();
    let known = match r.fleet.workers[worker].known {
        Lease::No => begin,
        Lease::Until(_) => true,
        Lease::GivenUp => false,
    };
    if !known {
        // Also one that nothing is known of: what it may have run is reclaimed.
        r.fleet.workers[worker].known = Lease::GivenUp;
        return expect(answer, &Answer::Gone);
    }
    r.fleet.workers[worker].known = Lease::Until(now + lease_ms);
    let fleet = &mut r.fleet;
    // Nobody has renewed for long: the server was away, and those who live get half a lease to say so.
    if now.saturating_sub(fleet.beat.unwrap_or(now)) > lease_ms * 3 / 4 {
        fleet.grace = now + lease_ms / 2;
    }
    fleet.beat = Some(now);
    let free = fleet.holder == Some(worker) || fleet.until < now || fleet.until > now + SWEEP_HOLD_MS;
    let sweeps = may_sweep && free;
    if sweeps && fleet.holder != Some(worker) {
        (fleet.holder, fleet.until) = (Some(worker), now + SWEEP_HOLD_MS);
    }
    let Answer::Renewed(got) = answer else { return Err(Violation(format!("answered {answer:?}"))) };
    let lone_work = got.lone_work;
    expect(answer, &Answer::Renewed(Renewed { now_ms: now, sweeps, lone_work, ..Renewed::default() }))
}

fn sweep(r: &mut Reference, worker: usize, lease_ms: u64, answer: &Answer) -> Verdict {
    let now = r.now_ms();
    let f = &mut r.fleet;
    if f.holder.is_some_and(|h| h != worker) && f.until >= now && f.until <= now + SWEEP_HOLD_MS {
        let expired = if now >= f.grace { f.expired(now).map(|w| f.workers[w].id.clone()) } else { None };
        let refused = Swept {
            held: false,
            now_ms: now,
            next_due_ms: 0,
            expired,
            more: false,
            next_slot_ms: 0,
            slots: Vec::new(),
        };
        return expect(answer, &Answer::Swept(refused));
    }
    if f.last.is_some_and(|last| last > now) {
        for w in &mut f.workers {
            if let Lease::Until(ms) = &mut w.known {
                *ms = (*ms).min(now + lease_ms);
            }
        }
        f.grace = 0;
        r.high = r.now;
    }
    (f.holder, f.until, f.last) = (Some(worker), now + SWEEP_HOLD_MS, Some(now));
    let named = if now >= f.grace { f.expired(now).map(|w| f.workers[w].id.clone()) } else { None };
    let expired = expire(r);
    drop_old_dead(r);
    let Answer::Swept(got) = answer else { return Err(Violation(format!("answered {answer:?}"))) };
    ensure!(got.held && got.now_ms == now, "answered {got:?}, but the sweep was free at {now}");
    ensure!(got.expired == named, "named {:?} as lost, expected {named:?} (now {now})", got.expired);
    ensure!(
        got.more || expired < r.page,
        "{expired} tasks had expired, which is a page, and it says that there is no more"
    );
    Ok(())
}

/// Too late ones by the index, a page of them.
fn expire(r: &mut Reference) -> usize {
    let now = r.now_ms();
    let late = |t: &super::reference::Known| t.indexed > 0 && t.indexed <= now;
    let mut due: Vec<(u64, String)> =
        r.tasks.iter().filter(|(_, t)| late(t)).map(|(id, t)| (t.indexed, id.clone())).collect();
    due.sort();
    due.truncate(r.page);
    for (_, id) in &due {
        let task = r.tasks.get_mut(id).expect("it is known");
        task.indexed = 0;
        if task.waits() {
            let past = task.past();
            let end = r.record(b'e', None, &past, b"", 0);
            r.end(id, end, None);
        }
    }
    due.len()
}

fn drop_old_dead(r: &mut Reference) {
    let now = r.now_ms();
    let old = |t: &super::reference::Known| t.end().filter(|e| e.kept && e.at + DEAD_MS <= now).map(|e| e.at);
    let mut dead: Vec<(u64, String)> = r.tasks.iter().filter_map(|(id, t)| Some((old(t)?, id.clone()))).collect();
    dead.sort();
    for (_, id) in dead.into_iter().take(16) {
        if !r.tasks[&id].new.hold_on_dead {
            r.drop_dead(&id);
        }
    }
}

fn own(r: &Reference, worker: usize, answer: &Answer) -> Verdict {
    let Answer::Owned(list) = answer else { return Err(Violation(format!("answered {answer:?}"))) };
    let got: BTreeSet<(String, u64)> = list.iter().map(|d| (d.id.to_string(), d.fence.0)).collect();
    let runs = r.running_of(worker);
    ensure!(got == runs && got.len() == list.len(), "w{worker} owns {list:?}, expected {runs:?}");
    for d in list {
        let called_off =
            r.tasks.get(d.id.as_str()).is_some_and(|t| matches!(&t.life, Life::Running(run) if run.cancel));
        ensure!(d.called_off == called_off, "{d:?}, and a call off is {called_off}");
    }
    Ok(())
}

fn leave(r: &mut Reference, worker: usize, answer: &Answer) -> Verdict {
    let free = r.running_of(worker).is_empty();
    if free {
        r.fleet.workers[worker].forget();
        if r.fleet.holder == Some(worker) {
            r.fleet.until = 0;
        }
    }
    expect(answer, &Answer::Left(free))
}

fn state_of(letter: u8) -> State {
    match letter {
        b'd' => State::Succeeded,
        b'x' => State::Dead,
        b'c' => State::Cancelled,
        _ => State::Expired,
    }
}

fn cancel(r: &mut Reference, id: &str, answer: &Answer) -> Verdict {
    let Some(task) = r.tasks.get_mut(id) else { return expect(answer, &Answer::Cancelled(Cancelled::Unknown)) };
    match &mut task.life {
        Life::Running(run) => {
            run.cancel = true;
            expect(answer, &Answer::Cancelled(Cancelled::Signalled))
        }
        Life::Ended(end) if end.kept => expect(answer, &Answer::Cancelled(Cancelled::Ended(State::Dead))),
        Life::Ended(end) if end.record_until > r.age => {
            let state = state_of(end.letter);
            expect(answer, &Answer::Cancelled(Cancelled::Ended(state)))
        }
        Life::Ended(_) => expect(answer, &Answer::Cancelled(Cancelled::Unknown)),
        Life::Waiting => {
            let past = task.past();
            let waits = |s: &State| matches!(s, State::Queued | State::Scheduled | State::Parked);
            ensure!(
                matches!(answer, Answer::Cancelled(Cancelled::Now(s)) if waits(s)),
                "{id} waits, and a cancel answered {answer:?}"
            );
            let end = r.record(b'c', None, &past, b"", 0);
            r.end(id, end, None);
            Ok(())
        }
    }
}

fn apply(r: &mut Reference, book: &Book, answer: &Answer) -> Verdict {
    let expected = if book.revision < r.book.revision {
        Applied::Older(r.book.revision)
    } else if book.revision == r.book.revision {
        if book.compile().print == r.book.compile().print { Applied::Same } else { Applied::Conflict }
    } else {
        Applied::Applied
    };
    if matches!(expected, Applied::Applied) {
        r.set_book(book.clone());
    }
    if matches!(expected, Applied::Applied | Applied::Same) {
        r.unrefreshed = false;
    }
    expect(answer, &Answer::Applied(expected))
}

fn status(r: &mut Reference, id: &str, wake: Option<&str>, answer: &Answer) -> Verdict {
    let Answer::Status(got) = answer else { return Err(Violation(format!("answered {answer:?}"))) };
    let Some(task) = r.tasks.get(id) else {
        ensure!(got.state.is_none(), "{id} is unknown, and its status is {got:?}");
        return Ok(());
    };
    let past = task.past();
    let mut want = Status {
        attempt: past.attempts,
        losses: past.lost(),
        reason: None,
        replays: past.replays,
        errors: past.errors.iter().map(shown).collect(),
        fence: Fence(0),
        ..(**got).clone()
    };
    let waits = [Some(State::Queued), Some(State::Scheduled), Some(State::Parked)].contains(&got.state);
    match &task.life {
        Life::Waiting => {
            ensure!(waits, "{id} waits, and its status is {got:?}");
            ensure!(
                (got.state == Some(State::Parked)) == got.gate.is_some(),
                "{id}: a gate is named iff it is parked: {got:?}"
            );
        }
        Life::Running(run) => {
            want.state = Some(State::Running);
            (want.attempt, want.fence, want.started_ms) = (run.attempt, Fence(run.fence), run.start);
            want.worker = r.fleet.workers[run.worker].id.to_string();
        }
        Life::Ended(end) if end.record_until > r.age => {
            want.state = Some(state_of(end.letter));
            (want.attempt, want.fence, want.started_ms) = (end.attempt, Fence(end.fence), end.start);
            (want.losses, want.reason) = (end.losses, DeadReason::from_letter(end.why));
            (want.ended_ms, want.data) =
                (end.at, if end.data.starts_with(b"never_fits") { got.data.clone() } else { end.data.clone() });
        }
        Life::Ended(end) => {
            want.state = end.kept.then_some(State::Dead);
            want.reason = end.kept.then_some(DeadReason::Invalid);
        }
    }
    ensure!(**got == want, "{id}: the status is {got:?}, expected {want:?}");
    if let Some(client) = wake.filter(|_| task.end().is_none()) {
        let all = r.waits.entry(id.to_owned()).or_default();
        if !all.iter().any(|c| c == client) {
            all.push(client.to_owned());
        }
    }
    Ok(())
}

fn shown((at, attempt, text): &(u64, u64, Vec<u8>)) -> PastError {
    let attempt = u16::try_from(*attempt).unwrap_or(u16::MAX);
    PastError { at_ms: *at, attempt, text: String::from_utf8_lossy(text).into_owned() }
}

fn counts(r: &Reference, answer: &Answer) -> Verdict {
    let Answer::Counted(got) = answer else { return Err(Violation(format!("answered {answer:?}"))) };
    let mut waiting: BTreeMap<(String, u8), u64> = BTreeMap::new();
    for task in r.tasks.values().filter(|t| t.waits()) {
        *waiting.entry((task.new.queue.to_string(), task.new.priority.value())).or_default() += 1;
    }
    let some = |m: &BTreeMap<(String, u8), u64>| {
        m.iter().filter(|(_, n)| **n > 0).map(|(k, n)| (k.clone(), *n)).collect::<Vec<_>>()
    };
    ensure!(some(&got.waiting) == some(&waiting), "counts: {:?} wait, expected {waiting:?}", got.waiting);
    let ended: BTreeMap<String, u64> =
        r.ended.iter().filter(|(_, n)| **n > 0).map(|(k, n)| ((*k).to_owned(), *n)).collect();
    let want = Counts {
        running: r.tasks.values().filter(|t| t.run().is_some()).count() as u64,
        dead: r.tasks.values().filter(|t| t.end().is_some_and(|e| e.kept)).count() as u64,
        workers: r.fleet.workers.iter().filter(|w| w.score().is_some_and(|s| s >= r.now_ms())).count() as u64,
        now_ms: r.now_ms(),
        ended,
        ..(**got).clone()
    };
    ensure!(**got == want, "counts: {got:?}, expected {want:?}");
    Ok(())
}
