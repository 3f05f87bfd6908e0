//! Indexes, counters, records, workers: all that is no place and no gate.

use std::collections::{BTreeMap, BTreeSet};

use tidemill_common::envelope::INLINE_BYTES_MAX;

use super::fleet::Known as Lease;
use super::reference::Reference;
use super::snapshot::Snapshot;
use super::{Verdict, ensure};

pub fn check(r: &Reference, s: &Snapshot) -> Verdict {
    indexes(r, s)?;
    counters(r, s)?;
    records(r, s)?;
    keys(r, s)?;
    fleet(r, s)?;
    traces(r, s)
}

fn same<T: Ord + std::fmt::Debug>(what: &str, found: &BTreeSet<T>, expected: &BTreeSet<T>) -> Verdict {
    let more: Vec<_> = found.difference(expected).take(3).collect();
    let less: Vec<_> = expected.difference(found).take(3).collect();
    ensure!(more.is_empty() && less.is_empty(), "{what}: there is {more:?} too much, {less:?} is missing");
    Ok(())
}

fn indexes(r: &Reference, s: &Snapshot) -> Verdict {
    for (tail, stream) in s.streams.iter().filter(|(tail, _)| tail.starts_with("q:")) {
        let unread = stream.entries.keys().any(|e| *e > stream.last);
        let (queue, priority) = tail[2..].split_once(":s:").unwrap_or((tail, ""));
        // A paused queue is not to be looked at.
        let paused =
            s.hashes.get("paused").is_some_and(|p| p.contains_key("*") || p.contains_key(&format!("q/{queue}")));
        let live = paused || s.zset(&format!("live:{priority}")).iter().any(|(_, q)| q == queue);
        ensure!(live || !unread, "{tail} has unread entries, and is not live");
    }
    let at = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let deadlines = s.zset("x").iter().cloned().collect();
    let expected = r.tasks.iter().filter(|(_, t)| t.indexed > 0).map(|(id, t)| (at(t.indexed), id.clone())).collect();
    same("start deadlines", &deadlines, &expected)?;
    let orders: BTreeSet<_> = s
        .zsets_of("o:")
        .flat_map(|(key, m)| m.iter().map(move |(seq, id)| (key.to_owned(), *seq, id.clone())))
        .collect();
    let expected = r
        .orders
        .iter()
        .flat_map(|(key, m)| m.iter().map(move |(seq, id)| (key.clone(), at(*seq), id.clone())))
        .collect();
    same("order keys", &orders, &expected)?;
    let queues = s.sets.get("qs").cloned().unwrap_or_default();
    same("queues", &queues, &r.queues)
}

fn counters(r: &Reference, s: &Snapshot) -> Verdict {
    let empty = BTreeMap::new();
    let n = s.hashes.get("n").unwrap_or(&empty);
    let mut found = BTreeSet::new();
    for (field, value) in n {
        let value = String::from_utf8_lossy(value).into_owned();
        // How often limits were hit is for people; nothing is decided by it.
        if value != "0" && !field.starts_with("h:") {
            found.insert((field.clone(), value));
        }
    }
    let mut waits: BTreeMap<String, u64> = BTreeMap::new();
    for task in r.tasks.values().filter(|t| t.waits()) {
        *waits.entry(task.waits_field()).or_default() += 1;
    }
    let ended = r.ended.iter().map(|(outcome, n)| (format!("o:{outcome}"), *n));
    let behind = r.orders.values().map(|o| o.len() as u64 - 1).sum();
    let numbers = [("seq".to_owned(), r.seq), ("fence".to_owned(), r.fence), ("behind".to_owned(), behind)];
    let taken = r.taken.iter().map(|(field, n)| (format!("t{}", &field[1..]), *n));
    let deaths = r.deaths.iter().map(|(why, n)| (format!("d:{}", char::from(*why)), *n));
    let used = r.gates.budgets.used;
    let used = [("u:t".to_owned(), used.tokens), ("u:c".to_owned(), used.micro_usd)];
    let numbers = numbers.into_iter().chain(deaths).chain(used).chain([("refused".to_owned(), r.refused)]);
    let all = waits.into_iter().chain(taken).chain(ended).chain(numbers).filter(|(_, n)| *n > 0);
    same("counters", &found, &all.map(|(field, n)| (field, n.to_string())).collect())
}

/// Whether a TTL is what it should be, but for the time that the test itself took.
fn is_ttl(r: &Reference, ttl: i64, expected: u64) -> bool {
    let (expected, slack) = (i64::try_from(expected).unwrap_or(i64::MAX), i64::try_from(r.slack).unwrap_or(0));
    ttl <= expected && ttl >= expected - slack
}

fn records(r: &Reference, s: &Snapshot) -> Verdict {
    let remembered = |id: &String| r.tasks.get(id).and_then(|t| t.end()).is_some_and(|e| e.record_until > r.age);
    let odd = s.outcomes.keys().find(|id| !remembered(id));
    ensure!(
        odd.is_none(),
        "{odd:?} has an outcome, expected {:?}",
        odd.and_then(|id| r.tasks.get(id)).map(|t| &t.life)
    );
    for (id, task) in &r.tasks {
        let Some(end) = task.end().filter(|e| e.record_until > r.age) else { continue };
        let Some((found, ttl)) = s.outcomes.get(id) else {
            return Err(super::Violation(format!("{id} has ended, and has no outcome")));
        };
        let is = (found.letter, found.why, found.attempt, found.losses, found.fence, found.start, found.at)
            == (end.letter, end.why, end.attempt, end.losses, end.fence, end.start, end.at);
        ensure!(is && found.data == end.data, "{id}: its outcome is {found:?}, expected {end:?}");
        ensure!(
            is_ttl(r, *ttl, end.record_until - r.age),
            "{id}: its outcome stays {ttl} ms, expected {}",
            end.record_until - r.age
        );
    }
    let found: BTreeSet<String> =
        s.at.iter()
            .map(|(id, a)| {
                let counted = (a.attempts, a.losses, a.lone, a.backs, a.replays);
                format!("{id} {counted:?} {} {:?}", a.fence, a.errors)
            })
            .collect();
    let with_past = r.tasks.iter().filter_map(|(id, t)| Some((id, t.past.as_ref()?)));
    let expected = with_past
        .map(|(id, a)| {
            let counted = (a.attempts, a.losses, a.lone, a.backs, a.replays);
            format!("{id} {counted:?} {} {:?}", a.fence, a.errors)
        })
        .collect();
    same("histories", &found, &expected)?;
    let apart = s.strings.keys().filter_map(|k| k.strip_prefix("b:")).map(str::to_owned).collect();
    let large = |t: &super::reference::Known| t.is_kept() && t.new.payload.len() > INLINE_BYTES_MAX;
    same("payloads apart", &apart, &r.tasks.iter().filter(|(_, t)| large(t)).map(|(id, _)| id.clone()).collect())?;
    for id in &apart {
        ensure!(s.strings[&format!("b:{id}")] == r.tasks[id].new.payload, "{id}: its payload has changed");
    }
    Ok(())
}

fn keys(r: &Reference, s: &Snapshot) -> Verdict {
    let owned = r.keys.iter().filter(|(_, o)| o.until.is_none_or(|until| until > r.age));
    let name = |(tenant, key): &(String, String)| format!("k:{}:{tenant}{key}", tenant.len());
    let expected: BTreeSet<_> =
        owned.clone().map(|(key, o)| (name(key), format!("{:<64}{}", o.id, o.fingerprint))).collect();
    let found = s.strings.iter().filter(|(k, _)| k.starts_with("k:"));
    same(
        "idempotency keys",
        &found.map(|(k, v)| (k.clone(), String::from_utf8_lossy(v).into_owned())).collect(),
        &expected,
    )?;
    for (key, owner) in owned {
        let ttl = s.keys[&name(key)].ttl;
        let right = owner.until.map_or(ttl == -1, |until| is_ttl(r, ttl, until - r.age));
        ensure!(right, "{key:?}: stays {ttl} ms, expected {:?} from age {}", owner.until, r.age);
    }
    Ok(())
}

fn fleet(r: &Reference, s: &Snapshot) -> Verdict {
    let at = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let known = r.fleet.workers.iter().filter_map(|w| Some((at(w.score()?), w.id.to_string())));
    same("workers", &s.zset("w").iter().cloned().collect(), &known.clone().collect())?;
    let names: BTreeSet<String> = known.map(|(_, name)| name).collect();
    let abilities: BTreeSet<String> = s.hashes.get("wa").map(|h| h.keys().cloned().collect()).unwrap_or_default();
    let idle = s.sets.get("idle").cloned().unwrap_or_default();
    let consumers: BTreeSet<String> = s.streams.values().flat_map(|st| st.consumers.iter().cloned()).collect();
    for (what, of) in [("abilities", abilities), ("idle", idle), ("consumers", consumers)] {
        let stray: Vec<_> = of.difference(&names).collect();
        ensure!(stray.is_empty(), "{what}: {stray:?} are no workers");
    }
    let ops: BTreeSet<String> = s.hashes.get("op").map(|h| h.keys().cloned().collect()).unwrap_or_default();
    let mut expected = BTreeSet::new();
    for w in &r.fleet.workers {
        expected.extend(w.claim.iter().map(|_| format!("c:{}", w.id)));
        expected
            .extend(w.lanes.iter().enumerate().filter(|(_, l)| l.is_some()).map(|(i, _)| format!("s:{}:{i}", w.id)));
    }
    same("answers kept", &ops, &expected)?;
    for field in s.hashes.get("sweep").into_iter().flat_map(|h| h.keys()) {
        let of_lost = field.strip_prefix("rows:").and_then(|w| r.fleet.by_name(w)).map(|w| r.fleet.workers[w].known);
        let ours = ["holder", "until", "last", "grace", "beat"].contains(&field.as_str());
        ensure!(ours || of_lost == Some(Lease::GivenUp), "sweep has a field {field}");
    }
    Ok(())
}

fn traces(r: &Reference, s: &Snapshot) -> Verdict {
    let reported = s.hashes.get("used").into_iter().flatten();
    let found = reported.filter_map(|(id, said)| {
        let mut said = super::wire::Fields(said);
        Some((id.clone(), said.whole()?, said.whole()?, said.whole()?))
    });
    let of_run = |(id, t): (&String, &super::reference::Known)| {
        let (run, said) = (t.run()?, t.run()?.reported?);
        Some((id.clone(), run.fence, said.tokens, said.micro_usd))
    };
    same("use of runs", &found.collect(), &r.tasks.iter().filter_map(of_run).collect())?;
    let waits = s.hashes.get("waits").into_iter().flatten();
    let found = waits.map(|(id, who)| (id.clone(), String::from_utf8_lossy(who).into_owned())).collect();
    same("waiters", &found, &r.waits.iter().map(|(id, who)| (id.clone(), who.join(","))).collect())?;
    let rings = s.lists.get("bell").map_or(0, Vec::len);
    ensure!(rings <= 1, "the bell has {rings} rings");
    Ok(())
}
