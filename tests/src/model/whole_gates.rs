//! Gates, lines and marks.

use std::collections::{BTreeMap, BTreeSet};

use super::book::Kind;
use super::budgets::longest;
use super::gates::coarse;
use super::reference::Reference;
use super::snapshot::Snapshot;
use super::{Verdict, Violation, ensure};

pub fn check(r: &Reference, s: &Snapshot) -> Verdict {
    slots(r, s)?;
    budgets(r, s)?;
    lines(r, s)?;
    ready(r, s)?;
    for (gate, members) in s.zsets_of("l:") {
        if !gate.starts_with("want:") {
            marked(r, s, gate, members)?;
        }
    }
    let wanted: BTreeSet<String> = s.zsets_of("l:want:").map(|(agent, _)| agent.to_owned()).collect();
    let wants = s.sets.get("wants").cloned().unwrap_or_default();
    ensure!(wants == wanted, "wants is {wants:?}, and there are lines for {wanted:?}");
    Ok(())
}

fn slots(r: &Reference, s: &Snapshot) -> Verdict {
    let mut used: BTreeMap<&str, u64> = BTreeMap::new();
    for row in s.rows.values() {
        for of in row.taken.iter().filter(|t| t.gate.starts_with("s/")) {
            *used.entry(&of.gate).or_default() += of.units;
        }
    }
    let reserved: BTreeSet<&String> =
        s.slots.iter().filter(|(_, g)| g.reserved.is_some()).map(|(gate, _)| gate).collect();
    let listed = s.sets.get("reserved").into_iter().flatten().collect();
    ensure!(reserved == listed, "{reserved:?} are reserved, and the list says {listed:?}");
    for (gate, units) in &used {
        ensure!(s.slots.contains_key(*gate), "{gate}: {units} units are in use, and there is no state");
        ensure!(r.gates.used(gate) == *units, "{gate}: {units} units by the rows, expected {}", r.gates.used(gate));
    }
    for (gate, slots) in &s.slots {
        let by_rows = used.get(gate.as_str()).copied().unwrap_or(0);
        ensure!(slots.used == by_rows, "{gate}: {} units in use, and the rows say {by_rows}", slots.used);
        ensure!(slots.used > 0 || slots.reserved.is_some(), "{gate}: nothing is in use, and its state is still there");
        if let Some((place, id)) = &slots.reserved {
            let task = r.tasks.get(id).filter(|t| t.waits() && t.place() == *place);
            let parked = s.hashes.get("park").is_some_and(|p| p.contains_key(id));
            ensure!(task.is_some() && parked, "{gate}: reserved for {id}, which is not in a line");
        }
    }
    Ok(())
}

/// What is charged and owed is what was taken and used, as long as nothing has left its window.
fn budgets(r: &Reference, s: &Snapshot) -> Verdict {
    for (gate, ms, expected) in r.gates.budgets.exact(r.real, r.age) {
        let Some(state) = s.strings.get(&format!("g:{gate}")) else { continue };
        let windows =
            super::wire::budget(state).ok_or_else(|| Violation(format!("{gate}: its state cannot be read")))?;
        let found = windows.iter().find(|w| w.ms == ms);
        let all = found.map(|w| w.charged + w.debt);
        ensure!(
            all.is_none_or(|all| all == expected),
            "{gate}, {ms} ms: {found:?} are charged, expected {expected} in all"
        );
        let above = found.filter(|w| w.charged > w.limit && w.debt > 0);
        ensure!(above.is_none(), "{gate}, {ms} ms: {above:?}: what is owed may not be charged above the limit");
    }
    Ok(())
}

fn lines(r: &Reference, s: &Snapshot) -> Verdict {
    let mut parked: BTreeMap<String, String> = BTreeMap::new();
    for (gate, members) in s.zsets_of("l:") {
        for (place, id) in members {
            let expected = r.tasks.get(id).map(super::reference::Known::place);
            ensure!(
                expected == Some(*place),
                "{id}: its place in the line of {gate} is {place}, expected {expected:?}"
            );
            parked.insert(id.clone(), gate.to_owned());
        }
    }
    let empty = BTreeMap::new();
    let park = s.hashes.get("park").unwrap_or(&empty);
    for (id, value) in park {
        let gate = String::from_utf8_lossy(value.get(2..).unwrap_or_default()).into_owned();
        ensure!(parked.get(id) == Some(&gate), "{id}: park says {gate}, and its line is {:?}", parked.get(id));
        let priority = r.tasks[id].new.priority.value();
        ensure!(value.first() == Some(&priority), "{id}: park says priority {:?}, expected {priority}", value.first());
    }
    let lost = parked.iter().find(|(id, _)| !park.contains_key(*id));
    ensure!(lost.is_none(), "{lost:?} is in a line, and park does not say so");
    Ok(())
}

/// Marks belong to lines: one each, under the priority of its head. A new head may come to a line that is to be looked at anyhow.
fn ready(r: &Reference, s: &Snapshot) -> Verdict {
    let mut seen = BTreeSet::new();
    for priority in [20, 10, 5, 1] {
        for (due, gate) in s.zset(&format!("ready:{priority}")) {
            ensure!(seen.insert(gate), "{gate} is marked under two priorities");
            let Some((_, head)) = s.line(gate).first() else {
                return Err(Violation(format!("{gate} is marked ready:{priority}, and its line is empty")));
            };
            let of_head = s.hashes.get("park").and_then(|p| p.get(head)).and_then(|v| v.first()).copied();
            let soon = u64::try_from(*due).is_ok_and(|due| due <= r.high / 1000);
            ensure!(
                of_head == Some(priority) || soon,
                "{gate} is marked ready:{priority} for {due}, and its head {head} has priority {of_head:?}"
            );
        }
    }
    Ok(())
}

/// A line whose head could go on is marked, in time.
fn marked(r: &Reference, s: &Snapshot, gate: &str, members: &[(i64, String)]) -> Verdict {
    // After an edit lines are looked at when the refresh has met them; after a step back when the sweep has.
    let Some((place, head)) = members.first().filter(|_| !r.unrefreshed && r.now >= r.high) else { return Ok(()) };
    let task = &r.tasks[head];
    let due =
        [20, 10, 5, 1].iter().flat_map(|p| s.zset(&format!("ready:{p}"))).find(|(_, g)| g == gate).map(|(due, _)| *due);
    let rule = r.rules(&task.new).into_iter().find(|rule| rule.gate == gate);
    let state = s.slots.get(gate).cloned().unwrap_or_default();
    if state.reserved.as_ref().is_some_and(|(other, id)| other < place && id != head) {
        return Ok(());
    }
    if let Some(pause) = gate.strip_prefix("p/").and_then(|what| s.hashes.get("paused")?.get(what)) {
        let until = super::wire::Fields(pause).whole().unwrap_or(0);
        let in_time =
            until == 0 || due.is_some_and(|due| u64::try_from(due).is_ok_and(|due| due <= until.max(r.now_ms())));
        ensure!(in_time, "{gate}: paused until {until}, and it is marked for {due:?}");
        return Ok(());
    }
    let by = match rule.map(|rule| (rule.units(&r.book, &task.new), rule.kind)).map(|(units, kind)| (kind, units)) {
        Some((Kind::Slots(cap), units)) if state.used + units > cap && units <= cap => return Ok(()),
        Some((Kind::Rate(rate), units)) if rate.windows.iter().all(|w| units <= w.0) => {
            r.gates.fits_at(gate, &rate, units, r.now).max(r.now) + coarse(&rate)
        }
        Some((Kind::Budget(budget), units)) if budget.windows.iter().all(|w| units <= w.0) => r.now + longest(&budget),
        _ => r.now,
    };
    let by_ms = i64::try_from(by / 1000).unwrap_or(i64::MAX);
    ensure!(
        due.is_some_and(|due| due <= by_ms),
        "{gate}: its head {head} could go on at {by_ms} (now {}), and it is marked for {due:?}",
        r.now_ms()
    );
    Ok(())
}
