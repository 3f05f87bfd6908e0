//! The standing invariants of `cases.md`, asked at the end of every case.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidemill_common::keys::Lifetime;
use tidemill_common::task::Priority;

use super::events::Events;
use super::ledger::{End, Ledger, Run};
use super::snapshot::Snapshot;
use super::{Lab, Payload, WorkerProcess};

/// How long one of the last tasks runs: long enough for all workers to get one.
const LAST_MS: u64 = 150;
/// The clocks of handlers and of the server are one, read at slightly different moments.
const SKEW_MS: u64 = 5;

/// Stops the lab's workers; everything that does not hold then.
pub(super) async fn broken(lab: &Lab) -> Vec<String> {
    let alive = all_consume(lab).await;
    for worker in &alive {
        worker.term();
    }
    let mut wrong = Vec::new();
    for worker in &alive {
        let status = worker.exit(Duration::from_millis(worker.setup().grace_ms) + Duration::from_secs(10)).await;
        // 75: what ran was handed back, which is right as well.
        if !matches!(status.code(), Some(0 | 75)) {
            wrong.push(format!("worker {} was told to stop, and ended with {status}", worker.setup().name));
        }
    }
    let (snapshot, ledger, events) = (lab.snapshot(), lab.ledger(), lab.events());
    wrong.extend(snapshot.misplaced());
    lifetimes(&snapshot, &mut wrong);
    pending(&snapshot, &mut wrong);
    accepted(lab, &snapshot, &ledger, &events, &mut wrong);
    repeated(&ledger, &events, &mut wrong);
    counted(lab, &snapshot, &mut wrong).await;
    wrong
}

/// Every worker that runs takes new work, and whoever does not run is forgotten.
async fn all_consume(lab: &Lab) -> Vec<WorkerProcess> {
    if lab.alive().is_empty() {
        let agents = lab.seen().workers.iter().flat_map(|w| w.setup().agents.clone()).collect::<BTreeSet<_>>();
        let names: Vec<&str> =
            if agents.is_empty() { vec!["ledger"] } else { agents.iter().map(String::as_str).collect() };
        lab.start(lab.setup("closer").agents(&names));
    }
    let alive = lab.alive();
    let within = lab.profile.lease * 4 + Duration::from_secs(5);
    lab.until("the dead workers are forgotten", within, async || {
        let known = lab.raw(&["ZRANGE", &lab.key("w"), "0", "-1"]);
        let known = known.as_array().unwrap_or_default();
        if known.len() == alive.len() { Ok(()) } else { Err(format!("{} run, known are {known:?}", alive.len())) }
    })
    .await;
    let mut last: BTreeSet<String> = BTreeSet::new();
    lab.until("every worker runs one more task", within, async || {
        let ledger = lab.ledger();
        let ran: BTreeSet<u32> =
            ledger.all().filter(|run| last.contains(&run.start.id)).map(|run| run.start.pid).collect();
        let idle: Vec<_> = alive.iter().filter(|worker| !ran.contains(&worker.pid())).collect();
        if idle.is_empty() {
            return Ok(());
        }
        // A batch that keeps all of them busy; the next one when it is over.
        if last.iter().all(|id| ledger.of(id).iter().any(|run| run.end.is_some())) {
            let fill = |worker: &WorkerProcess| {
                let task = Payload::sleep(LAST_MS).task_of(&worker.setup().agents[0]).priority(Priority::Urgent);
                std::iter::repeat_with(move || task.clone()).take(worker.setup().concurrency.min(16) as usize)
            };
            let mut tasks: Vec<_> = alive.iter().flat_map(fill).collect();
            for task in &mut tasks {
                task.id = tidemill_common::name::TaskId::generate();
                last.insert(task.id.to_string());
            }
            lab.submit(&tasks).await;
        }
        Err(format!("no task for {:?}", idle.iter().map(|w| &w.setup().name).collect::<Vec<_>>()))
    })
    .await;
    lab.until("the last tasks have ended", within, async || {
        let events = lab.events();
        let ended: BTreeSet<&String> = events.ends.iter().map(|end| &end.id).collect();
        let open = last.iter().filter(|id| !ended.contains(id)).count();
        if open == 0 { Ok(()) } else { Err(format!("{open} have not")) }
    })
    .await;
    alive
}

/// Every key has a TTL, is one of the permanent kinds, or is owned by somebody who is there.
fn lifetimes(s: &Snapshot, wrong: &mut Vec<String>) {
    for (tail, key) in &s.keys {
        let Some((pattern, of_types, lifetime, _)) = key.kind else {
            wrong.push(format!("{tail}: of no kind that keys.rs knows"));
            continue;
        };
        if !of_types.split(" | ").any(|of_type| of_type == key.of_type) {
            wrong.push(format!("{tail}: a {} where keys.rs says {of_types}", key.of_type));
        }
        let ok = match lifetime {
            Lifetime::Permanent => true,
            Lifetime::Ttl => key.ttl > 0,
            Lifetime::Owned => key.ttl > 0 || owned(s, pattern, tail),
        };
        if !ok {
            wrong.push(format!("{tail}: no TTL, and nobody owns it ({:?})", &s.of(tail)[..s.of(tail).len().min(5)]));
        }
    }
    let stray = s.of("sweep").iter().find(|field| field.starts_with("rows:"));
    wrong.extend(stray.map(|field| format!("sweep has {field} of a worker that is gone")));
}

/// Whether what owns a key without a TTL is there. All workers have left.
fn owned(s: &Snapshot, pattern: &str, tail: &str) -> bool {
    let live = |id: &str| s.generation(id).is_some();
    let rest = pattern.split('<').next().and_then(|stem| tail.strip_prefix(stem)).unwrap_or_default();
    let all = |of: &dyn Fn(&str) -> bool| s.of(tail).iter().all(|member| of(member));
    match pattern {
        "j:<id>" | "b:<id>" => live(rest),
        "k:<tenant, key>" => live(String::from_utf8_lossy(&s.keys[tail].head).trim_end()),
        "run" | "at" | "z" | "x" | "o:<order key>" | "l:<gate>" | "park" | "dead" | "waits" => all(&live),
        "g:s/<gate>" => !s.rows.is_empty() || s.of("reserved").iter().any(|gate| *gate == format!("s/{rest}")),
        "reserved" => all(&|gate| s.keys.contains_key(&format!("g:{gate}"))),
        "ready:<priority>" => all(&|gate| s.keys.contains_key(&format!("l:{gate}"))),
        "wants" => all(&|agent| s.keys.contains_key(&format!("l:want:{agent}"))),
        "live:<priority>" => all(&|queue| s.of("qs").iter().any(|known| known == queue)),
        "bell" => s.of(tail).len() <= 1,
        // w, wa, idle, op: of workers, who have left.
        _ => false,
    }
}

/// What was read and is still there is pending, for somebody who runs it.
fn pending(s: &Snapshot, wrong: &mut Vec<String>) {
    let rows: BTreeSet<(&str, &str)> = s.rows.values().map(|row| (row.entry.as_str(), row.worker.as_str())).collect();
    for (tail, stream) in &s.streams {
        let orphans =
            stream.pending.iter().filter(|(entry, worker)| !rows.contains(&(entry.as_str(), worker.as_str())));
        wrong.extend(
            orphans.map(|(entry, worker)| format!("{tail} {entry} is pending for {worker}, and nobody runs it")),
        );
        let left = stream.read.iter().filter(|entry| !stream.pending.contains_key(*entry));
        wrong.extend(left.map(|entry| format!("{tail} {entry} was read, is not pending, and is still there")));
        wrong.extend(stream.consumers.iter().map(|worker| format!("{tail} has consumer {worker}, which has left")));
    }
}

/// Every accepted task is in its place or has ended, and none has succeeded twice or unseen.
fn accepted(lab: &Lab, s: &Snapshot, ledger: &Ledger, events: &Events, wrong: &mut Vec<String>) {
    let mut ends: BTreeMap<&str, Vec<char>> = BTreeMap::new();
    for end in &events.ends {
        ends.entry(&end.id).or_default().push(end.letter);
    }
    for id in &lab.seen().accepted {
        let id = id.as_str();
        let ended = ends.get(id).map_or(&[][..], Vec::as_slice);
        if s.generation(id).is_none() && !s.has_outcome(id) && ended.is_empty() {
            wrong.push(format!("{id} was accepted, and is lost"));
        }
        let done = ended.iter().filter(|letter| **letter == 'd').count();
        if done > 1 {
            wrong.push(format!("{id} has {done} recorded successes"));
        }
        if done == 1 && !ledger.of(id).iter().any(|run| matches!(run.end, Some((End::Done, _)))) {
            wrong.push(format!("{id} has a recorded success, and no run succeeded: {:?}", ledger.of(id)));
        }
    }
}

/// Every run after the first has a reason: what the run before said, or a logged reclaim.
fn repeated(ledger: &Ledger, events: &Events, wrong: &mut Vec<String>) {
    let reclaims = events.reclaims_of();
    for (id, runs) in &ledger.runs {
        for pair in runs.windows(2) {
            let [before, after] = pair else { continue };
            if !is_explained(before, after, reclaims.get(id.as_str()).map_or(&[][..], Vec::as_slice)) {
                wrong.push(format!("{id} ran again at {} without a reason after {before:?}", after.start.at));
            }
        }
    }
}

fn is_explained(before: &Run, after: &Run, reclaims: &[u64]) -> bool {
    let said = matches!(before.end, Some((End::Retry | End::Throttled | End::Cut | End::Dropped, _)));
    said || reclaims.iter().any(|at| *at + SKEW_MS >= before.start.at && *at <= after.start.at + SKEW_MS)
}

/// The counts are what is there.
async fn counted(lab: &Lab, s: &Snapshot, wrong: &mut Vec<String>) {
    let counts = lab.counts().await;
    let waiting: u64 = counts.waiting.values().sum();
    let places = s.places();
    let found = places.values().flatten().filter(|place| !matches!(place.as_str(), "run" | "dead")).count();
    if usize::try_from(waiting) != Ok(found) {
        wrong.push(format!("{found} tasks wait, and the counts say {waiting}"));
    }
}
