//! What one script did, by the world before and after it: only edges that the chart has, and nobody overtaken.

use std::collections::{BTreeMap, BTreeSet};

use tidemill_common::state::{EDGES, State};

use super::reference::Reference;
use super::snapshot::Snapshot;
use super::whole::Places;
use super::{Verdict, ensure};

/// One instant, checked.
#[derive(Debug)]
pub struct Instant {
    pub snapshot: Snapshot,
    pub places: Places,
}

/// Checks one script by its two instants.
pub fn check(r: &Reference, script: &'static str, before: &Instant, after: &Instant) -> Verdict {
    edges(r, script, before, after)?;
    let started: Vec<&String> =
        after.snapshot.rows.keys().filter(|id| !before.snapshot.rows.contains_key(*id)).collect();
    for id in started {
        let task = &r.tasks[id];
        for rule in r.asks(&task.new) {
            let passed = stayed(&rule.gate, before, after).into_iter().find(|(place, _)| *place < task.place());
            ensure!(
                passed.is_none(),
                "{id} (place {}) was admitted through {} before {passed:?}, which is in its line",
                task.place(),
                rule.gate
            );
            let reserved = |i: &Instant| i.snapshot.slots.get(&rule.gate).and_then(|g| g.reserved.clone());
            let first = reserved(before)
                .filter(|one| Some(one) == reserved(after).as_ref() && one.0 < task.place() && one.1 != *id);
            ensure!(first.is_none(), "{id} was admitted through {}, which is reserved for {first:?}", rule.gate);
        }
    }
    if r.unrefreshed || script == "book" {
        return Ok(());
    }
    queued_behind_a_line(r, before, after)
}

/// Who was in a line before and after.
fn stayed(gate: &str, before: &Instant, after: &Instant) -> Vec<(i64, String)> {
    let still: BTreeSet<&(i64, String)> = after.snapshot.line(gate).iter().collect();
    before.snapshot.line(gate).iter().filter(|m| still.contains(m)).cloned().collect()
}

/// A task that a script put into a stream passes nobody who was in a line of its gates all the time.
fn queued_behind_a_line(r: &Reference, before: &Instant, after: &Instant) -> Verdict {
    let unread = |i: &Instant| -> BTreeMap<String, String> {
        let all = super::whole::found(&i.snapshot).into_iter();
        let queued = all.flat_map(|(id, at)| at.into_iter().map(move |(_, at)| (id.clone(), at)));
        queued.filter(|(_, at)| at.starts_with("q:")).map(|(id, at)| (at, id)).collect()
    };
    let old = unread(before);
    for id in unread(after).into_iter().filter(|(at, _)| !old.contains_key(at)).map(|(_, id)| id) {
        let task = &r.tasks[&id];
        for rule in r.asks(&task.new) {
            let passed = stayed(&rule.gate, before, after).into_iter().find(|(place, _)| *place < task.place());
            ensure!(
                passed.is_none(),
                "{id} (place {}) went to its stream past {passed:?} in the line of {}",
                task.place(),
                rule.gate
            );
        }
    }
    Ok(())
}

/// The state of a task, also after its end; none: not accepted yet, or forgotten.
fn state(r: &Reference, i: &Instant, id: &str) -> Option<State> {
    i.places.get(id).copied().or_else(|| {
        let (outcome, _) = i.snapshot.outcomes.get(id)?;
        let _ = r;
        Some(match outcome.letter {
            b'd' => State::Succeeded,
            b'x' => State::Dead,
            b'c' => State::Cancelled,
            _ => State::Expired,
        })
    })
}

/// Edges that scripts of one call went; several a task, since a claim promotes and delivers.
fn edges(r: &Reference, script: &'static str, before: &Instant, after: &Instant) -> Verdict {
    let ids: BTreeSet<&String> =
        before.places.keys().chain(after.places.keys()).chain(after.snapshot.outcomes.keys()).collect();
    for id in ids {
        let (from, to) = (state(r, before, id), state(r, after, id));
        // A dropped dead task leaves its place, not its state.
        let Some(to) = to else { continue };
        if from == Some(to) {
            continue;
        }
        ensure!(leads(script, from, to), "{id}: {script} took it from {from:?} to {to}, and state.rs has no such edge");
    }
    Ok(())
}

fn leads(script: &str, from: Option<State>, to: State) -> bool {
    let mut seen = vec![from];
    let mut at = 0;
    while let Some(state) = seen.get(at).copied() {
        at += 1;
        for (_, next, _) in EDGES.iter().filter(|(f, _, s)| *f == state && *s == script) {
            if *next == to {
                return true;
            }
            if !seen.contains(&Some(*next)) {
                seen.push(Some(*next));
            }
        }
    }
    false
}
