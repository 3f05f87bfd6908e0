//! What must hold of a shard between any two scripts: every task in exactly one place, every key accounted for.

use std::collections::{BTreeMap, BTreeSet};

use tidemill_common::keys::Lifetime;
use tidemill_common::state::State;

use super::reference::{Known, Life, Reference};
use super::snapshot::{KEPT_FOR_PEOPLE, Snapshot, entry_id};
use super::wire::{MARK_BUDGET, MARK_CANCEL, MARK_HISTORY, MARK_LONE, MARK_TAKEN};
use super::{Verdict, Violation, ensure, whole_gates, whole_rest};

/// Where the server has each task.
pub type Places = BTreeMap<String, State>;

/// Checks everything; says where each task is.
pub fn check(r: &Reference, s: &Snapshot) -> Result<Places, Violation> {
    lifetimes(s)?;
    let places = places(r, s)?;
    rows(r, s)?;
    whole_gates::check(r, s)?;
    whole_rest::check(r, s)?;
    Ok(places)
}

fn lifetimes(s: &Snapshot) -> Verdict {
    for (tail, key) in &s.keys {
        let (pattern, of_types, lifetime, _) = key.kind;
        ensure!(
            of_types.split(" | ").any(|t| t == key.of_type),
            "{tail}: a {} where keys.rs says {of_types}",
            key.of_type
        );
        let is_outcome = tail.strip_prefix("j:").is_some_and(|id| !s.envelopes.contains_key(id));
        let by_type = if is_outcome { Lifetime::Ttl } else { *lifetime };
        let may_have_ttl = *pattern == "k:<tenant, key>";
        match by_type {
            Lifetime::Ttl => ensure!(key.ttl > 0, "{tail}: has no TTL, and keys.rs says that it has"),
            _ => ensure!(key.ttl == -1 || may_have_ttl, "{tail}: has a TTL, and keys.rs says {by_type:?}"),
        }
    }
    Ok(())
}

/// An id in an unread entry, if the entry is of its envelope's generation.
fn named(value: &[u8], s: &Snapshot) -> Option<String> {
    let (generation, id) = value.split_at_checked(4)?;
    let id = String::from_utf8_lossy(id).into_owned();
    let (envelope, _) = s.envelopes.get(&id)?;
    (u64::from(u32::from_be_bytes(generation.try_into().ok()?)) == envelope.generation).then_some(id)
}

/// All places that the server has for each id.
pub fn found(s: &Snapshot) -> BTreeMap<String, Vec<(State, String)>> {
    let mut found: BTreeMap<String, Vec<(State, String)>> = BTreeMap::new();
    let mut add = |id: &str, state: State, at: String| found.entry(id.to_owned()).or_default().push((state, at));
    for (tail, stream) in s.streams.iter().filter(|(tail, _)| !KEPT_FOR_PEOPLE.contains(&tail.as_str())) {
        for (entry, value) in stream.entries.iter().filter(|(e, _)| **e > stream.last) {
            if let Some(id) = named(value, s) {
                add(&id, State::Queued, format!("{tail} {entry:?}"));
            }
        }
    }
    for (_, id) in s.zset("z") {
        add(id, State::Scheduled, "z".into());
    }
    for (gate, members) in s.zsets_of("l:") {
        for (_, id) in members {
            add(id, State::Parked, format!("line of {gate}"));
        }
    }
    for (key, members) in s.zsets_of("o:") {
        for (_, id) in members.iter().skip(1) {
            add(id, State::Parked, format!("behind the head of {key}"));
        }
    }
    for (_, id) in s.zset("dead") {
        add(id, State::Dead, "dead".into());
    }
    for (id, row) in &s.rows {
        add(id, State::Running, format!("run by {}", row.worker));
    }
    found
}

fn places(r: &Reference, s: &Snapshot) -> Result<Places, Violation> {
    let mut places = Places::new();
    let found = found(s);
    for (id, at) in &found {
        ensure!(s.envelopes.contains_key(id), "{id} is in {at:?} and has no envelope");
        ensure!(at.len() == 1, "{id} is in more than one place: {at:?}");
        places.insert(id.clone(), at[0].0);
    }
    for (id, (_, bytes)) in &s.envelopes {
        let Some(state) = places.get(id) else { return Err(Violation(format!("{id} has an envelope and is nowhere"))) };
        let Some(task) = r.tasks.get(id) else {
            return Err(Violation(format!("{id} is here, and was never accepted")));
        };
        let same = match &task.life {
            Life::Waiting => matches!(state, State::Queued | State::Scheduled | State::Parked),
            Life::Running(_) => *state == State::Running,
            Life::Ended(end) => end.kept && *state == State::Dead,
        };
        ensure!(same, "{id} is {state}, expected {:?}", task.life);
        ensure!(*bytes == task.stored(), "{id}: its envelope has changed");
        if *state == State::Scheduled && task.not_before > 0 {
            let due = s.zset("z").iter().find(|(_, other)| other == id).map_or(0, |(due, _)| *due);
            ensure!(u64::try_from(due) == Ok(task.not_before), "{id} is due at {due}, expected {}", task.not_before);
        }
    }
    let missing = r.tasks.iter().find(|(id, t)| t.is_kept() && !s.envelopes.contains_key(*id));
    ensure!(missing.is_none(), "{:?} is lost", missing.map(|(id, t)| (id, &t.life)));
    Ok(places)
}

/// Run rows and pending entries are the same, and as they were handed over.
fn rows(r: &Reference, s: &Snapshot) -> Verdict {
    let mut pending = BTreeSet::new();
    for (tail, stream) in s.streams.iter().filter(|(tail, _)| !KEPT_FOR_PEOPLE.contains(&tail.as_str())) {
        for (entry, worker) in &stream.pending {
            ensure!(stream.entries.contains_key(entry), "{tail} {entry:?} is pending for {worker} and deleted");
            pending.insert((tail.clone(), *entry, worker.clone()));
        }
        let stray = stream.entries.keys().find(|e| **e <= stream.last && !stream.pending.contains_key(*e));
        ensure!(stray.is_none(), "{tail} {stray:?} was read, is not pending, and is still there");
    }
    for (id, row) in &s.rows {
        let tail = match row.source {
            b'f' => "s:first".to_owned(),
            b'l' => "s:line".to_owned(),
            _ => format!("q:{}:s:{}", row.queue, row.priority),
        };
        let entry = (tail, entry_id(&row.entry), row.worker.clone());
        ensure!(pending.remove(&entry), "{id} runs, and its entry {entry:?} is not pending");
        let task = &r.tasks[id];
        row_is(r, id, task, row)?;
    }
    ensure!(pending.is_empty(), "pending, and no row speaks for it: {pending:?}");
    Ok(())
}

fn row_is(r: &Reference, id: &str, task: &Known, row: &super::wire::Row) -> Verdict {
    let Some(run) = task.run() else { return Err(Violation(format!("{id} runs, expected {:?}", task.life))) };
    let marks = [
        (run.cancel, MARK_CANCEL),
        (run.history, MARK_HISTORY),
        (run.lone, MARK_LONE),
        (!run.taken.is_empty(), MARK_TAKEN),
        (run.taken.iter().any(|t| t.loss != '-'), MARK_BUDGET),
    ];
    let marks: u64 = marks.iter().filter(|(on, _)| *on).map(|(_, mark)| mark).sum();
    let worker = r.fleet.workers[run.worker].id.as_str();
    let same = row.fence == run.fence
        && (row.start, row.attempt) == (run.start, run.attempt)
        && row.max == u64::from(task.new.max_attempts)
        && row.priority == u64::from(task.new.priority.value())
        && row.marks == marks
        && row.worker == worker
        && row.queue == task.new.queue.as_str()
        && row.agent == task.new.agent.as_str();
    ensure!(same, "{id}: its row is {row:?}, expected {run:?} of {worker}");
    ensure!(row.taken == run.taken, "{id}: it has taken {:?}, expected {:?}", row.taken, run.taken);
    Ok(())
}
