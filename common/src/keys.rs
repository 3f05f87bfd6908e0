//! Every key in Redis, and what ends its life. `docs/redis-keys.md` is checked against [`KEYS`]; a test fails when a history
//! leaves a key behind that is neither here nor owned.
//!
//! All keys of a shard share the hash tag `{shard}`, hence one slot: whatever a script touches is atomic together. Names come
//! last in a key, or are held to an alphabet without `:` (queues), so that no text can collide with another key.

use std::fmt;

/// What ends a key's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// Stays: there is a fixed number of it (a shard's, or one a queue and priority).
    Permanent,
    /// Goes when what owns it ends: a task, a worker, a line, a unit in use.
    Owned,
    /// Has a TTL.
    Ttl,
}

/// One kind of key: its pattern below the base, its Redis type, its lifetime and what it holds.
pub type KeyKind = (&'static str, &'static str, Lifetime, &'static str);

/// All kinds of keys.
pub const KEYS: &[KeyKind] = &[
    (
        "j:<id>",
        "string",
        Lifetime::Owned,
        "envelope of a task that has not ended, or is dead; then, with a TTL, its outcome",
    ),
    ("b:<id>", "string", Lifetime::Owned, "payload above 16 KiB of such a task"),
    ("k:<tenant, key>", "string", Lifetime::Owned, "idempotency key: id and fingerprint; TTL once its task has ended"),
    ("r:<id>", "string", Lifetime::Ttl, "outcome of a dead task, beside its envelope"),
    ("p:<id>", "string", Lifetime::Ttl, "what a running task last said of its progress"),
    (
        "q:<queue>:s:<priority>",
        "stream",
        Lifetime::Permanent,
        "tasks that wait or run, one group; one stream a queue and priority",
    ),
    ("s:first", "stream", Lifetime::Permanent, "reclaimed and handed-back tasks, read first"),
    ("s:line", "stream", Lifetime::Permanent, "tasks pulled from lines, added and read in one claim"),
    ("run", "hash", Lifetime::Owned, "id: row of a running delivery, with what it has taken"),
    ("at", "hash", Lifetime::Owned, "id: attempts, losses, replays, last errors of a task that failed or was lost"),
    ("z", "zset", Lifetime::Owned, "scheduled and retrying ids by due ms"),
    ("x", "zset", Lifetime::Owned, "start deadlines by ms: an index, not a place"),
    ("o:<order key>", "zset", Lifetime::Owned, "ids of one order key by sequence; only the first is elsewhere"),
    ("l:<gate>", "zset", Lifetime::Owned, "line of a gate by place"),
    ("g:s/<gate>", "string", Lifetime::Owned, "slots in use, while some are, and a reservation"),
    ("g:t/<gate>", "string", Lifetime::Ttl, "tokens charged in the windows of a budget, and debt"),
    ("g:c/<gate>", "string", Lifetime::Ttl, "the same of money, in micro-dollars"),
    (
        "g:r/<gate and window>",
        "string",
        Lifetime::Ttl,
        "what has passed in a trailing window of a rate; its length and a minute",
    ),
    ("reserved", "set", Lifetime::Owned, "slot gates with a reservation"),
    ("park", "hash", Lifetime::Owned, "id: priority, moves, gate whose line it is in"),
    ("ready:<priority>", "zset", Lifetime::Owned, "gates worth a look by due ms, under their head's priority"),
    ("live:<priority>", "zset", Lifetime::Owned, "queues with unread entries, least recently served first"),
    ("wants", "set", Lifetime::Owned, "agents with a line of tasks that no claim offered to run"),
    ("dead", "zset", Lifetime::Owned, "dead ids by ms; 90 days or 10,000"),
    ("waits", "hash", Lifetime::Owned, "id: clients to wake at its end"),
    ("w", "zset", Lifetime::Owned, "workers by the ms at which their lease ends; 0: given up"),
    ("wa", "hash", Lifetime::Owned, "worker: the agents it runs"),
    ("idle", "set", Lifetime::Owned, "workers asleep with room"),
    ("op", "hash", Lifetime::Owned, "a worker's last claim and settle sequences with their answers"),
    ("ctl:<worker or client>", "list", Lifetime::Ttl, "what it is to be told at once"),
    ("bell", "list", Lifetime::Owned, "doorbell, at most one ring"),
    ("log", "stream", Lifetime::Permanent, "capped log of ends and events"),
    ("qs", "set", Lifetime::Permanent, "queues seen, at most 256"),
    ("n", "hash", Lifetime::Permanent, "counters: waiting per queue and priority, outcomes, sequence, fence"),
    ("c:<id>", "stream", Lifetime::Ttl, "output of a run, as it comes; 4 MiB, an hour after the last of it"),
    ("cron", "hash", Lifetime::Owned, "schedules, until they are deleted"),
    ("cz", "zset", Lifetime::Owned, "schedules by the ms of their next slot"),
    ("cl", "hash", Lifetime::Owned, "the last task of each schedule"),
    ("nobody", "zset", Lifetime::Ttl, "agents that tasks wait for and no worker knows, by since when"),
    ("tune", "hash", Lifetime::Owned, "most tasks at once, as an operator has said"),
    ("paused", "hash", Lifetime::Owned, "what an operator holds back: until when, and why"),
    ("drain", "hash", Lifetime::Ttl, "of queues that refused: how fast tasks were taken of late"),
    ("book", "hash", Lifetime::Permanent, "the rules in force"),
    ("books", "stream", Lifetime::Permanent, "the last 20 books, as text"),
    ("tier", "hash", Lifetime::Permanent, "the tiers of tenants, as the book in force says"),
    ("sweep", "hash", Lifetime::Permanent, "who holds the sweep, when it last ran"),
    ("used", "hash", Lifetime::Owned, "what runs say that they have used so far"),
    ("u:<id>:<fence>", "string", Lifetime::Ttl, "what was charged for a lost run, should more be heard of it; a day"),
    ("meta", "hash", Lifetime::Permanent, "schema of the layout"),
];

/// The base of one shard's keys: what scripts get as their only key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base(String);

impl Base {
    /// Shard `shard` of a deployment.
    #[must_use]
    pub fn new(shard: u16) -> Self {
        Self(format!("tidemill:{{{shard}}}"))
    }
    /// The base itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
    /// A key below the base.
    #[must_use]
    pub fn key(&self, tail: &str) -> String {
        format!("{}:{tail}", self.0)
    }
    /// The doorbell.
    #[must_use]
    pub fn bell(&self) -> String {
        self.key("bell")
    }
    /// The list on which a worker or client is told things.
    #[must_use]
    pub fn control(&self, who: &str) -> String {
        self.key(&format!("ctl:{who}"))
    }
    /// The payload that lies apart.
    #[must_use]
    pub fn payload(&self, id: &str) -> String {
        self.key(&format!("b:{id}"))
    }
    /// A task's envelope, or its outcome.
    #[must_use]
    pub fn envelope(&self, id: &str) -> String {
        self.key(&format!("j:{id}"))
    }
    /// The output of a task's run.
    #[must_use]
    pub fn output(&self, id: &str) -> String {
        self.key(&format!("c:{id}"))
    }
    /// The layout's schema.
    #[must_use]
    pub fn meta(&self) -> String {
        self.key("meta")
    }
}

impl fmt::Display for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The kind that a key (below the base) is of.
#[must_use]
pub fn kind_of(tail: &str) -> Option<&'static KeyKind> {
    let stem = |pattern: &'static str| pattern.split('<').next().unwrap_or(pattern);
    KEYS.iter().find(|k| k.0 == tail).or_else(|| KEYS.iter().find(|k| k.0.contains('<') && tail.starts_with(stem(k.0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_of_one_kind() {
        assert_eq!(Base::new(0).bell(), "tidemill:{0}:bell");
        assert_eq!(kind_of("j:abc").unwrap().0, "j:<id>");
        assert_eq!(kind_of("q:default:s:20").unwrap().1, "stream");
        assert_eq!(kind_of("l:want:a").unwrap().0, "l:<gate>");
        assert!(kind_of("unheard of").is_none());
    }
}
