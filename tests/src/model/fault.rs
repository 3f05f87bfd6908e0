//! A kind of history of its own: a key is deleted, or is suddenly of another type, as by a hand or a foreign program. Calls go on
//! meanwhile; then the key is put back, the dead are reclaimed, and nothing may be missing but what that key stood for.

use std::collections::{BTreeMap, BTreeSet};

use super::broken::{Broken, known};
use super::call::{Answer, Call};
use super::reference::Reference;
use super::rng::Rng;
use super::snapshot::Snapshot;
use super::steps::Play;
use super::{Verdict, Violation, ensure, whole};

/// Keys of which there is one; the others are taken from those that are there.
const SINGLE: &[&str] = &[
    "run",
    "at",
    "z",
    "x",
    "park",
    "dead",
    "waits",
    "w",
    "wa",
    "idle",
    "op",
    "bell",
    "log",
    "books",
    "qs",
    "n",
    "book",
    "sweep",
    "live:5",
    "live:20",
    "ready:5",
    "ready:1",
    "wants",
    "reserved",
    "s:first",
    "s:line",
    "q:default:s:5",
    "q:default:s:20",
];

impl Play<'_> {
    pub fn break_some_key(&mut self, rng: &mut Rng) -> Verdict {
        self.forget_late();
        let before = self.w.snapshot()?;
        let (tail, deleted) = choose(rng, &before);
        let saved = self.break_key(rng, &tail, deleted, &before)?;
        self.w.broken = Some(Broken::new(tail, deleted, saved, before));
        Ok(())
    }

    /// The key is put back, the shard heals, and what cannot heal is made anew; the strict promises hold again from then on.
    pub fn mend(&mut self, rng: &mut Rng) -> Verdict {
        self.forget_late();
        self.put_back()?;
        self.heal(rng)?;
        let after = self.w.snapshot()?;
        let Some(broken) = self.w.broken.take() else { return Ok(()) };
        for task in &broken.perhaps {
            let id = task.id.as_str();
            let is_in = after.envelopes.contains_key(id) || after.outcomes.contains_key(id);
            if is_in && !self.w.r.tasks.contains_key(id) {
                known(&mut self.w.r, task);
            }
        }
        nothing_else_is_lost(&self.w.r, &broken.tail, &broken.before, &after)?;
        self.rebuild(&broken, &after)?;
        self.w.look()?;
        self.begin_one(rng, 7, false)?;
        self.begin_one(rng, 3, false).map(|_| ())
    }

    /// Breaks a key; what it was, if it will be put back.
    fn break_key(
        &mut self,
        rng: &mut Rng,
        tail: &str,
        deleted: bool,
        before: &Snapshot,
    ) -> Result<Option<Vec<u8>>, Violation> {
        self.w.note(|| format!("{tail} is {}", if deleted { "deleted" } else { "of another type" }));
        let key = self.w.key(tail);
        let saved = self.w.bytes(&[b"DUMP", key.as_bytes()])?.as_bytes().map(<[u8]>::to_vec);
        self.w.raw(&["DEL"], tail, &[])?;
        if !deleted {
            let was_list = before.keys.get(tail).is_some_and(|k| k.of_type == "list") || tail == "bell";
            let is_string =
                tail.starts_with("j:") || tail.starts_with("g:") || tail.starts_with("k:") || tail.starts_with("b:");
            match (was_list, is_string || rng.percent(30)) {
                (false, true) => self.w.raw(&["RPUSH"], tail, &["x"])?,
                _ => self.w.raw(&["SET"], tail, &["x"])?,
            };
        }
        Ok(saved.filter(|_| !deleted))
    }

    fn put_back(&mut self) -> Verdict {
        let Some(broken) = &mut self.w.broken else { return Ok(()) };
        let (tail, deleted, saved) = (broken.tail.clone(), broken.deleted, broken.saved.take());
        let broken_ttl = broken.before.keys.get(&tail).map_or(0, |k| k.ttl.max(0));
        self.w.note(|| format!("{tail} is put back"));
        if deleted {
            return Ok(());
        }
        self.w.raw(&["DEL"], &tail, &[])?;
        if let Some(saved) = saved {
            let key = self.w.key(&tail);
            let ttl = broken_ttl.to_string();
            let reply = self.w.bytes(&[b"RESTORE", key.as_bytes(), ttl.as_bytes(), &saved])?;
            ensure!(reply.as_error().is_none(), "{tail} cannot be put back: {reply:?}");
        }
        let refused = self.w.broken.as_mut().map(|b| std::mem::take(&mut b.refused)).unwrap_or_default();
        for call in refused {
            let answer = self.w.call(&call)?;
            ensure!(
                !matches!(answer, Answer::Failed(_)),
                "{tail} is back, and {} is still refused: {answer:?}",
                call.script()
            );
        }
        Ok(())
    }

    /// Every worker speaks once more, then all fall silent, and the sweep takes back what they had.
    fn heal(&mut self, rng: &mut Rng) -> Verdict {
        for worker in 0..self.w.r.fleet.workers.len() {
            self.w.call(&Call::Renew { worker, lease_ms: 10_000, begin: None, may_sweep: false })?;
            self.w.r.fleet.workers[worker].well = false;
        }
        let sweeper = self.w.add_worker(7, false);
        let mut quiet = 0;
        for round in 0..600 {
            let begin = (round == 0).then(Vec::new);
            self.w.call(&Call::Renew { worker: sweeper, lease_ms: 1_000_000_000, begin, may_sweep: true })?;
            let Answer::Swept(swept) = self.w.call(&Call::Sweep { worker: sweeper, lease_ms: 10_000 })? else {
                return Err(Violation("the sweep is refused, and all keys are back".into()));
            };
            if let Some(lost) = swept.expired {
                let worker =
                    self.w.r.fleet.by_name(lost.as_str()).ok_or_else(|| Violation(format!("{lost} is no worker")))?;
                self.w.call(&Call::Reclaim { worker, poison: 9 })?;
                quiet = 0;
                continue;
            }
            quiet += 1;
            if quiet > 4 && swept.held {
                self.w.call(&Call::Leave { worker: sweeper })?;
                return Ok(());
            }
            self.w.set_clock(self.w.r.now + 20_000_000 + rng.below(1_000))?;
        }
        Err(Violation("600 sweeps do not end the fleet".into()))
    }
}

fn choose(rng: &mut Rng, s: &Snapshot) -> (String, bool) {
    let deleted = rng.percent(50);
    let kinds: BTreeMap<&str, Vec<&String>> = s.keys.iter().fold(BTreeMap::new(), |mut all, (tail, key)| {
        all.entry(key.kind.0).or_insert_with(Vec::new).push(tail);
        all
    });
    let kinds: Vec<_> = kinds.into_iter().filter(|(kind, _)| *kind != "meta").collect();
    if rng.percent(50)
        && let Some((_, tails)) = rng.pick(&kinds)
        && let Some(tail) = rng.pick(tails)
    {
        return ((*tail).clone(), deleted);
    }
    ((*rng.pick(SINGLE).unwrap_or(&"run")).to_owned(), deleted)
}

/// Places from which a task goes on by itself.
fn places(s: &Snapshot) -> BTreeMap<String, BTreeSet<String>> {
    let found = whole::found(s).into_iter();
    found.map(|(id, at)| (id, at.into_iter().map(|(_, at)| at).collect())).collect()
}

/// Whether the place that a task had is the broken key.
fn stood_in(tail: &str, at: &str) -> bool {
    match tail.split_once(':') {
        Some(("l", gate)) => at == format!("line of {gate}"),
        Some(("o", key)) => at == format!("behind the head of {key}"),
        Some(("q" | "s", _)) => at.starts_with(&format!("{tail} ")),
        _ => at == tail,
    }
}

/// Every task that was accepted is still here or has ended; and it has a place, unless that was the key.
fn nothing_else_is_lost(r: &Reference, tail: &str, before: &Snapshot, after: &Snapshot) -> Verdict {
    let (old, new) = (places(before), places(after));
    for (id, task) in &r.tasks {
        if tail == format!("j:{id}") || tail == format!("r:{id}") {
            continue;
        }
        let ended = task.end().is_some() || after.outcomes.contains_key(id);
        let here = after.envelopes.contains_key(id);
        ensure!(here || ended, "{id} is gone, and the broken key was {tail}");
        if !here {
            continue;
        }
        let its_own = old.get(id).is_some_and(|at| at.iter().any(|at| stood_in(tail, at)));
        ensure!(
            new.contains_key(id) || its_own,
            "{id} has no place any more (it had {:?}), and the broken key was {tail}",
            old.get(id)
        );
    }
    Ok(())
}
