//! The task: what a producer hands in, and what a worker gets.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::name::{AgentName, Error as NameError, QueueName, TaskId, check_text};
use crate::retry::RetryPolicy;
use crate::spend::{Estimate, Spend};

/// Largest payload, in bytes, unless a deployment says otherwise.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// Longest delay and longest start deadline: ten years, in ms.
pub const DELAY_MAX: Duration = Duration::from_millis(315_576_000_000);
/// Deepest nesting of tasks that submit tasks.
pub const DEPTH_MAX: u8 = 32;

/// How urgent a task is. The number is also its weight: under load a priority gets its number's share of the deliveries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    /// 1.
    Low,
    /// 5, the default.
    #[default]
    Normal,
    /// 10.
    High,
    /// 20.
    Urgent,
}

impl Priority {
    /// All four, the most urgent first: the order in which scripts look at them.
    pub const ALL: [Self; 4] = [Self::Urgent, Self::High, Self::Normal, Self::Low];

    /// Its number: 20, 10, 5 or 1.
    #[must_use]
    pub const fn value(self) -> u8 {
        match self {
            Self::Urgent => 20,
            Self::High => 10,
            Self::Normal => 5,
            Self::Low => 1,
        }
    }

    /// The priority with this number.
    #[must_use]
    pub fn from_value(value: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.value() == value)
    }

    /// Its name, as in metrics and the CLI.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Urgent => "urgent",
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Priority {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|p| p.as_str() == text || p.value().to_string() == text)
            .ok_or_else(|| format!("{text:?} is no priority; it is one of urgent (20), high (10), normal (5), low (1)"))
    }
}

/// What becomes of a handler's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Keep {
    /// Kept for the result lifetime.
    #[default]
    Keep,
    /// Kept only when the task failed.
    Failed,
    /// Never kept; the outcome itself stays for the re-send window.
    None,
}

/// What becomes of a task whose idempotency key is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// It is not taken in: a duplicate, or a conflict when its content is another.
    #[default]
    Reject,
    /// While the key's task waits, this one's content and timing take the place of that one's; its id and its place in line stay.
    /// Once that one runs or has ended, this is a task of its own and has the key from then on.
    Replace,
    /// As [`Self::Replace`], and the waiting task is put off again, by this one's delay: it runs once nothing more has come for so
    /// long, or ten delays after it was accepted. Needs a delay.
    Debounce,
}

/// A task to be handed in.
///
/// ```
/// use tidemill_common::task::{NewTask, Priority};
/// let task = NewTask::new("summarize".parse()?, r#"{"text":"…"}"#).priority(Priority::High).tenant("acme");
/// task.check()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct NewTask {
    /// Its identity. Sending the same id again makes no second task, so keep it over retries of a submit.
    pub id: TaskId,
    /// The queue it goes to.
    pub queue: QueueName,
    /// Selects the handler and the rules.
    pub agent: AgentName,
    /// On whose behalf; empty for nobody's.
    pub tenant: String,
    /// Its urgency.
    pub priority: Priority,
    /// Opaque bytes; JSON text by convention. Identical when the handler gets them.
    pub payload: Bytes,
    /// Not before this long after its acceptance, by the server's clock.
    pub delay: Duration,
    /// It expires if it has not started this long after its acceptance.
    pub start_within: Option<Duration>,
    /// It expires when this long after its acceptance it has not ended: no further attempt begins, and the one under way is given
    /// no more time than that.
    pub max_age: Option<Duration>,
    /// Runs that count against the task before it is dead: at least 1.
    pub max_attempts: u16,
    /// Units it takes of rate gates; 0 counts as 1.
    pub cost: u32,
    /// Slots it takes of each slot gate: at least 1.
    pub weight: u16,
    /// What a run of it is expected to use: what budgets are charged when it starts. What it does not say, the book says of its agent.
    pub estimate: Estimate,
    /// Tasks with the same order key run one after the other, in the order of their acceptance.
    pub order_key: Option<String>,
    /// A dead head of its order key keeps the others waiting until it is replayed or purged.
    pub hold_on_dead: bool,
    /// Idempotency key, per tenant: a second task under it is a duplicate (same content) or a conflict.
    pub key: Option<String>,
    /// What becomes of it when that key is taken.
    pub mode: Mode,
    /// How deep it is nested: 0 for a producer's, one more than its parent's for a follow-up.
    pub depth: u8,
    /// What only the worker reads.
    pub meta: Meta,
    /// By what a repeat of a keyed task is told from another one, when the payload is not what it was handed in as; none: computed
    /// from queue, agent and payload.
    pub fingerprint: Option<String>,
}

/// The part of a task that only workers read; msgpack, named fields, unknown ones are skipped.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Meta {
    /// Longest run in ms; 0 for the agent's default.
    #[serde(skip_serializing_if = "is_zero")]
    pub timeout_ms: u64,
    /// When to try again; absent for the worker's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
    /// What becomes of the answer.
    #[serde(skip_serializing_if = "is_default")]
    pub keep: Keep,
    /// The task that submitted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<TaskId>,
    /// W3C trace context of its creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// The codecs that the payload went through, in their order: the last is to be undone first. Empty: it is as it was handed in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub codec: Vec<String>,
    /// Where the payload lies, when it is not in Redis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Reference>,
}

/// A payload that lies in an object store, under its own hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    /// The store's name in the configuration of producers and workers.
    pub store: String,
    /// Its length in bytes, as it lies there.
    pub bytes: u64,
    /// The SHA-256 of these bytes, 64 hexadecimal digits in lower case: also its place in the store.
    pub sha256: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Why a task was refused before it was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// A name, key or id is not one.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The payload is too large.
    #[error("the payload has {bytes} bytes; at most {max} are allowed")]
    Payload {
        /// Its size in bytes.
        bytes: usize,
        /// The bound in bytes.
        max: usize,
    },
    /// A number out of its range.
    #[error("{what} must be {range}")]
    Range {
        /// Which number.
        what: &'static str,
        /// What is allowed.
        range: &'static str,
    },
}

impl NewTask {
    /// A task with defaults: queue `default`, priority normal, three attempts, its result kept.
    #[must_use]
    pub fn new(agent: AgentName, payload: impl Into<Bytes>) -> Self {
        Self {
            id: TaskId::generate(),
            queue: QueueName::default(),
            agent,
            tenant: String::new(),
            priority: Priority::Normal,
            payload: payload.into(),
            delay: Duration::ZERO,
            start_within: None,
            max_age: None,
            max_attempts: 3,
            cost: 1,
            weight: 1,
            estimate: Estimate::default(),
            order_key: None,
            hold_on_dead: false,
            key: None,
            mode: Mode::Reject,
            depth: 0,
            meta: Meta::default(),
            fingerprint: None,
        }
    }

    /// Sets the queue.
    #[must_use]
    pub fn queue(mut self, queue: QueueName) -> Self {
        self.queue = queue;
        self
    }
    /// Sets the priority.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }
    /// Sets the tenant.
    #[must_use]
    pub fn tenant(mut self, tenant: impl Into<String>) -> Self {
        self.tenant = tenant.into();
        self
    }
    /// Sets the delay.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }
    /// Sets how many tokens it is expected to use.
    #[must_use]
    pub fn estimate_tokens(mut self, tokens: u64) -> Self {
        self.estimate.tokens = Some(tokens);
        self
    }
    /// Sets what it is expected to cost, in millionths of a US dollar.
    #[must_use]
    pub fn estimate_micro_usd(mut self, micro_usd: u64) -> Self {
        self.estimate.micro_usd = Some(micro_usd);
        self
    }
    /// Sets the order key.
    #[must_use]
    pub fn order_key(mut self, key: impl Into<String>) -> Self {
        self.order_key = Some(key.into());
        self
    }
    /// Sets the idempotency key.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }
    /// Sets the idempotency key, and that a waiting task under it takes this one's content.
    #[must_use]
    pub fn replacing(mut self, key: impl Into<String>) -> Self {
        (self.key, self.mode) = (Some(key.into()), Mode::Replace);
        self
    }
    /// Sets how old it may become: see [`Self::max_age`].
    #[must_use]
    pub fn max_age(mut self, age: Duration) -> Self {
        self.max_age = Some(age);
        self
    }
    /// Sets how many runs may count.
    #[must_use]
    pub fn max_attempts(mut self, attempts: u16) -> Self {
        self.max_attempts = attempts;
        self
    }

    /// Everything that can be known to be wrong before it is sent.
    ///
    /// # Errors
    /// The first thing that is.
    pub fn check(&self) -> Result<(), Invalid> {
        self.check_within(PAYLOAD_BYTES_MAX)
    }

    /// As [`Self::check`], with the deployment's own bound on the payload, in bytes.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check_within(&self, payload_bytes_max: usize) -> Result<(), Invalid> {
        for (what, text) in [("order key", &self.order_key), ("idempotency key", &self.key)] {
            if let Some(text) = text {
                check_text(what, text)?;
            }
        }
        if !self.tenant.is_empty() {
            check_text("tenant", &self.tenant)?;
        }
        let bytes = self.payload.len();
        if bytes > payload_bytes_max {
            return Err(Invalid::Payload { bytes, max: payload_bytes_max });
        }
        if self.max_attempts == 0 {
            return Err(Invalid::Range { what: "max attempts", range: "1 to 65535" });
        }
        if self.weight == 0 {
            return Err(Invalid::Range { what: "weight", range: "1 to 65535" });
        }
        if !self.estimate.or(Spend::default()).is_countable() {
            return Err(Invalid::Range { what: "estimate", range: "at most 10^15 tokens and a billion US dollars" });
        }
        let deadlines = [self.start_within, self.max_age];
        let wrong = |d: Option<Duration>| d.is_some_and(|d| d > DELAY_MAX || d.as_millis() == 0);
        if self.delay > DELAY_MAX || deadlines.into_iter().any(wrong) {
            return Err(Invalid::Range {
                what: "delay, start deadline and most age",
                range: "at most ten years, the last two at least 1 ms",
            });
        }
        if self.mode != Mode::Reject && self.key.is_none() {
            return Err(Invalid::Range { what: "a mode", range: "for tasks with an idempotency key" });
        }
        if self.mode == Mode::Debounce && self.delay.as_millis() == 0 {
            return Err(Invalid::Range { what: "a debounce", range: "with a delay: how long nothing more may come" });
        }
        if self.depth > DEPTH_MAX {
            return Err(Invalid::Range { what: "depth", range: "at most 32: a task submits a task submits a task…" });
        }
        if let Some(retry) = &self.meta.retry {
            retry.check().map_err(|range| Invalid::Range { what: "retry policy", range })?;
        }
        Ok(())
    }
}

/// A task as a worker gets it.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// Its identity.
    pub id: TaskId,
    /// The queue it came by.
    pub queue: QueueName,
    /// Its agent.
    pub agent: AgentName,
    /// On whose behalf; empty for nobody's.
    pub tenant: String,
    /// Its urgency.
    pub priority: Priority,
    /// When it was accepted: server time in µs, strictly increasing, the base of its place in every line.
    pub seq_us: u64,
    /// When it was due, server time in ms; 0 when it had no delay.
    pub due_ms: u64,
    /// When it is too old to be run, server time in ms; 0: never.
    pub too_old_ms: u64,
    /// Runs that may count.
    pub max_attempts: u16,
    /// Units it takes of rate gates.
    pub cost: u32,
    /// Slots it takes of each slot gate.
    pub weight: u16,
    /// What a run of it is expected to use, as far as it says so itself.
    pub estimate: Estimate,
    /// Its order key.
    pub order_key: Option<String>,
    /// When it is dead, it keeps those behind it in its order key waiting.
    pub hold_on_dead: bool,
    /// Its idempotency key.
    pub key: Option<String>,
    /// How deep it is nested.
    pub depth: u8,
    /// What only workers read.
    pub meta: Meta,
    /// The payload; empty and to be fetched when [`Self::payload_apart`] is set.
    pub payload: Bytes,
    /// The payload lies under a key of its own, since it is large.
    pub payload_apart: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_have_the_fixed_numbers_and_names() {
        for (p, n, s) in [
            (Priority::Urgent, 20, "urgent"),
            (Priority::High, 10, "high"),
            (Priority::Normal, 5, "normal"),
            (Priority::Low, 1, "low"),
        ] {
            assert_eq!((p.value(), p.as_str()), (n, s));
            assert_eq!(s.parse::<Priority>().unwrap(), p);
            assert_eq!(Priority::from_value(n), Some(p));
        }
        assert!("7".parse::<Priority>().is_err());
        assert!("-9223372036854775808".parse::<Priority>().is_err());
    }

    #[test]
    fn what_is_wrong_is_said_before_it_is_sent() {
        let ok = || NewTask::new("a".parse().unwrap(), "x");
        assert_eq!(ok().check(), Ok(()));
        assert!(ok().order_key("x".repeat(256)).check().is_err());
        assert!(ok().key("").check().is_err());
        assert!(ok().max_attempts(0).check().is_err());
        assert!(ok().delay(Duration::MAX).check().is_err());
        assert!(NewTask::new("a".parse().unwrap(), vec![0; PAYLOAD_BYTES_MAX + 1]).check().is_err());
    }
}
