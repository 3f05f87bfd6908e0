//! All that can be derived is made anew from the envelopes, as an operator's repair would, and the reference with it.

use std::collections::BTreeSet;

use super::Verdict;
use tidemill_common::book::Book;

use super::broken::Broken;
use super::fleet::Fleet;
use super::reference::{End, KEY_MS, KeyOwner, Known, Life, Past};
use super::snapshot::Snapshot;
use super::steps::Play;
use super::wire::{At, Envelope};

/// Keys that say what no other key says.
const KEPT: &[&str] = &["j:", "b:", "k:", "r:", "book", "books", "tier", "qs", "meta", "log", "dead", "n", "at"];

impl Play<'_> {
    /// Makes places, marks and counters anew; nobody runs anything, and there are no workers.
    pub fn rebuild(&mut self, broken: &Broken, s: &Snapshot) -> Verdict {
        self.w.note(|| "rebuild".into());
        for tail in s.keys.keys().filter(|t| !KEPT.iter().any(|k| t == k || (k.ends_with(':') && t.starts_with(k)))) {
            // What has passed a rate stays on record, so that its promise holds.
            if !tail.starts_with("g:r/") {
                self.w.raw(&["DEL"], tail, &[])?;
            }
        }
        self.w.r.fleet = Fleet { workers: std::mem::take(&mut self.w.r.fleet.workers), ..Fleet::default() };
        for worker in &mut self.w.r.fleet.workers {
            worker.forget();
            worker.well = false;
            worker.held.clear();
        }
        self.w.r.gates.forget(broken.tail.strip_prefix("g:"));
        self.w.r.waits.clear();
        self.w.r.woken.clear();
        self.w.r.orders.clear();
        self.w.r.high = self.w.r.now;
        self.tasks_from(s)?;
        self.places_anew()?;
        self.counters_anew(s)?;
        self.keys_from(s)?;
        self.book_from(broken, s);
        Ok(())
    }

    /// The book that is in force: none when it was deleted.
    fn book_from(&mut self, broken: &Broken, s: &Snapshot) {
        let field = |name: &str| {
            s.hashes.get("book").and_then(|h| h.get(name)).map(|v| String::from_utf8_lossy(v).into_owned())
        };
        let sent = broken.books.iter().chain([&self.w.r.book]);
        let in_force = |book: &&Book| {
            field("revision") == Some(book.revision.to_string()) && field("print") == Some(book.compile().print)
        };
        let book = sent.cloned().collect::<Vec<_>>().iter().find(in_force).cloned().unwrap_or_default();
        self.w.r.set_book(book);
        self.w.r.unrefreshed = false;
    }

    /// The reference's tasks, by what is there.
    fn tasks_from(&mut self, s: &Snapshot) -> Verdict {
        let age = self.w.r.age;
        let ids: BTreeSet<String> = self.w.r.tasks.keys().chain(s.envelopes.keys()).cloned().collect();
        for id in ids {
            let outcome = s.outcomes.get(&id).map(|(o, ttl)| End {
                letter: o.letter,
                why: o.why,
                attempt: o.attempt,
                losses: o.losses,
                fence: o.fence,
                start: o.start,
                at: o.at,
                data: o.data.clone().into(),
                record_until: age + u64::try_from(*ttl).unwrap_or(0),
                kept: s.envelopes.contains_key(&id),
            });
            let Some(task) = self.w.r.tasks.get_mut(&id) else { continue };
            match (s.envelopes.get(&id), outcome) {
                (Some((envelope, _)), outcome) => waits_or_dead(task, envelope, s.at.get(&id), outcome),
                (None, Some(end)) => (task.life, task.past, task.indexed) = (Life::Ended(end), None, 0),
                (None, None) => {
                    self.w.r.tasks.remove(&id);
                }
            }
        }
        Ok(())
    }

    fn places_anew(&mut self) -> Verdict {
        let now = self.w.r.now_ms();
        self.w.raw(&["DEL"], "dead", &[])?;
        let mut live: Vec<(u64, String)> =
            self.w.r.tasks.iter().filter(|(_, t)| t.is_kept()).map(|(id, t)| (t.seq, id.clone())).collect();
        live.sort();
        for (seq, id) in live {
            let task = self.w.r.tasks.get_mut(&id).expect("it is known");
            task.not_before = if task.due > now { task.due } else { 0 };
            let task = task.clone();
            if let Some(order) = task.new.order_key.as_ref().filter(|_| task.leads()) {
                self.w.raw(&["ZADD"], &format!("o:{order}"), &[&seq.to_string(), &id])?;
                self.w.r.orders.entry(order.clone()).or_default().insert((seq, id.clone()));
            }
            if let Some(end) = task.end() {
                self.w.raw(&["ZADD"], "dead", &[&end.at.to_string(), &id])?;
                continue;
            }
            if task.indexed > 0 {
                self.w.raw(&["ZADD"], "x", &[&task.indexed.to_string(), &id])?;
            }
            let behind = task.new.order_key.as_ref().is_some_and(|o| self.w.r.order_head(o) != Some(&id));
            if behind {
                continue;
            }
            if task.due > now && task.past.is_none() {
                self.w.raw(&["ZADD"], "z", &[&task.due.to_string(), &id])?;
            } else {
                let key = self.w.key("s:first");
                let generation = task.generation.to_be_bytes();
                self.w.bytes(&[b"XADD", key.as_bytes(), b"*", &generation, id.as_bytes()])?;
            }
        }
        Ok(())
    }

    fn counters_anew(&mut self, s: &Snapshot) -> Verdict {
        let old = s.hashes.get("n").cloned().unwrap_or_default();
        let number =
            |field: &str| old.get(field).and_then(|v| String::from_utf8_lossy(v).parse::<u64>().ok()).unwrap_or(0);
        let highest = self.w.r.tasks.values().map(|t| t.seq).max().unwrap_or(0);
        let fences = self.w.r.tasks.values().map(|t| t.past().fence).max().unwrap_or(0).max(self.w.r.fence);
        self.w.r.seq = number("seq").max(highest);
        self.w.r.fence = number("fence").max(fences);
        self.w.r.ended.clear();
        let deaths = old.keys().filter_map(|field| field.strip_prefix("d:"));
        self.w.r.deaths = deaths.map(|why| (why.as_bytes()[0], number(&format!("d:{why}")))).collect();
        self.w.r.refused = number("refused");
        self.w.raw(&["DEL"], "n", &[])?;
        let taken = old.keys().filter_map(|field| field.strip_prefix("t:"));
        self.w.r.taken = taken.map(|of| (format!("w:{of}"), number(&format!("t:{of}")))).collect();
        for outcome in ["done", "dead", "cancelled", "expired", "reclaimed", "replayed"] {
            self.w.r.count(outcome, number(&format!("o:{outcome}")));
        }
        let behind: u64 = self.w.r.orders.values().map(|o| o.len() as u64 - 1).sum();
        let ended = self.w.r.ended.iter().map(|(outcome, n)| (format!("o:{outcome}"), *n));
        let mut fields: Vec<(String, u64)> = ended.collect();
        fields.extend(self.w.r.deaths.iter().map(|(why, n)| (format!("d:{}", char::from(*why)), *n)));
        fields.push(("refused".into(), self.w.r.refused));
        fields.extend(self.w.r.taken.iter().map(|(of, n)| (format!("t{}", &of[1..]), *n)));
        fields.extend([("seq".into(), self.w.r.seq), ("fence".into(), self.w.r.fence), ("behind".into(), behind)]);
        let waits: BTreeSet<String> = self.w.r.tasks.values().filter(|t| t.waits()).map(Known::waits_field).collect();
        fields.extend(waits.into_iter().map(|field| {
            let n = self.w.r.waiting_in(&field);
            (field, n)
        }));
        for (field, n) in fields.iter().filter(|(_, n)| *n > 0) {
            self.w.raw(&["HSET"], "n", &[field, &n.to_string()])?;
        }
        Ok(())
    }

    /// Idempotency keys, queues and histories are what they are; a key that is gone is owned by nobody.
    fn keys_from(&mut self, s: &Snapshot) -> Verdict {
        self.w.r.keys.clear();
        for (tail, value) in s.strings.iter().filter(|(t, _)| t.starts_with("k:")) {
            let rest = tail[2..].split_once(':').and_then(|(n, rest)| rest.split_at_checked(n.parse().ok()?));
            let (Some((tenant, key)), Some((id, print))) = (rest, value.split_at_checked(64)) else { continue };
            let id = String::from_utf8_lossy(id).trim().to_owned();
            let owns = |t: &Known| t.is_kept() && t.new.tenant == tenant && t.new.key.as_deref() == Some(key);
            let lives = self.w.r.tasks.get(&id).is_some_and(owns);
            let ttl = s.keys[tail].ttl;
            let mut until = u64::try_from(ttl).ok().map(|ttl| self.w.r.age + ttl);
            if !lives && until.is_none() {
                // It was out of reach when its task ended.
                self.w.raw(&["PEXPIRE"], tail, &[&KEY_MS.to_string()])?;
                until = Some(self.w.r.age + KEY_MS);
            }
            // A live task owns its key for as long as it lives.
            if lives && until.is_some() {
                self.w.raw(&["PERSIST"], tail, &[])?;
            }
            let owner = KeyOwner {
                id,
                fingerprint: String::from_utf8_lossy(print).into_owned(),
                until: until.filter(|_| !lives),
            };
            self.w.r.keys.insert((tenant.to_owned(), key.to_owned()), owner);
        }
        let named = self.w.r.tasks.values().filter(|t| t.is_kept()).map(|t| t.new.queue.to_string());
        self.w.r.queues = s.sets.get("qs").cloned().unwrap_or_default().into_iter().chain(named).collect();
        for queue in self.w.r.queues.clone() {
            self.w.raw(&["SADD"], "qs", &[&queue])?;
        }
        let stray: Vec<&String> =
            s.at.keys().filter(|id| !self.w.r.tasks.get(*id).is_some_and(|t| t.past.is_some())).collect();
        for id in stray {
            self.w.raw(&["HDEL"], "at", &[id])?;
        }
        Ok(())
    }
}

/// A task whose envelope is here waits, unless it has a record of its death.
fn waits_or_dead(task: &mut Known, envelope: &Envelope, at: Option<&At>, outcome: Option<End>) {
    (task.seq, task.due, task.expires) = (envelope.seq, envelope.due, envelope.expires);
    task.past = at.map(|a| Past {
        attempts: a.attempts,
        losses: a.losses,
        lone: a.lone,
        backs: a.backs,
        replays: a.replays,
        fence: a.fence,
        errors: a.errors.clone(),
    });
    task.generation = u32::try_from(envelope.generation).unwrap_or(0);
    task.indexed = task.deadline();
    task.life = outcome.map_or(Life::Waiting, Life::Ended);
    if !task.waits() {
        task.indexed = 0;
    }
}
