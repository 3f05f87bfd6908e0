//! What may be said about a task, by flags or by a line of a file: the same names and the same forms in both.

use std::str::FromStr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::ValueEnum;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use tidemill_common::config::duration;
use tidemill_common::spend::{Estimate, parse_usd};
use tidemill_common::task::{DELAY_MAX, Mode};
use tidemill_producer::{AgentName, Keep, Meta, NewTask, Priority, QueueName, RetryPolicy, TaskId};

/// A duration such as `250ms`, `10s`, `5m` or `2h`, in whole ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

impl FromStr for Span {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let span = duration::parse(text)?;
        if span.subsec_nanos() % 1_000_000 != 0 {
            return Err(format!("{text:?} is finer than 1ms, which nobody keeps to"));
        }
        Ok(Self(span))
    }
}

impl Span {
    fn ms(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }
}

/// A moment such as `2026-12-01T09:00:00+01:00` (RFC 3339). Without an offset it would mean another moment on another machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct At(jiff::Timestamp);

impl FromStr for At {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.trim().parse().map(Self);
        parsed.map_err(|e| {
            format!(
                "{text:?} is no moment with an offset ({e}); write 2026-12-01T09:00:00Z or 2026-12-01T09:00:00+01:00"
            )
        })
    }
}

/// An amount of US dollars such as `12` or `0.02`, kept in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Usd(pub(crate) u64);

impl FromStr for Usd {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        parse_usd(text).map(Self)
    }
}

/// In a file it is a number, or a text to be exact.
pub(crate) fn amount<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Usd>, D::Error> {
    let value = Option::<serde_json::Value>::deserialize(from)?;
    let text = match value {
        None | Some(serde_json::Value::Null) => return Ok(None),
        Some(serde_json::Value::String(text)) => text,
        Some(other) => other.to_string(),
    };
    text.parse().map(Some).map_err(serde::de::Error::custom)
}

/// What becomes of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum KeepResult {
    /// Kept for its lifetime.
    Keep,
    /// Kept only when the task failed.
    Failed,
    /// Never kept.
    None,
}

/// What becomes of a task while another waits under its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnKey {
    /// It is a duplicate, or a conflict if it differs.
    Reject,
    /// Its content and timing take that one's place.
    Replace,
    /// The same, and that one is put off again by this one's delay.
    Debounce,
}

impl OnKey {
    fn mode(self) -> Mode {
        match self {
            Self::Reject => Mode::Reject,
            Self::Replace => Mode::Replace,
            Self::Debounce => Mode::Debounce,
        }
    }
}

/// The server's time, read once and counted on from there: what "at nine" means does not depend on this machine's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerClock {
    read_ms: u64,
    read_at: Instant,
}

impl ServerClock {
    pub(crate) fn new(now_ms: u64) -> Self {
        Self { read_ms: now_ms, read_at: Instant::now() }
    }

    /// How long until then; zero when it has passed.
    fn until(&self, at: At) -> Duration {
        let at_ms = u64::try_from(at.0.as_millisecond()).unwrap_or(0);
        Duration::from_millis(at_ms.saturating_sub(self.read_ms)).saturating_sub(self.read_at.elapsed())
    }
}

/// All that may be said of a task. A line of a file has these fields, and as flags they are the defaults of all lines.
#[derive(Debug, Clone, Default, clap::Args, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Facts {
    /// Only in a file.
    #[arg(skip)]
    pub(crate) agent: Option<AgentName>,
    /// Only in a file: any JSON value, passed on as it is written.
    #[arg(skip)]
    pub(crate) payload: Option<Box<RawValue>>,
    /// Queue it goes to [default: default]
    #[arg(long, short = 'Q', value_name = "QUEUE")]
    pub(crate) queue: Option<QueueName>,
    /// urgent, high, normal or low; or 20, 10, 5, 1 [default: normal]
    #[arg(long, short, value_name = "PRIORITY", value_parser = super::filter::priority_parser(), hide_possible_values = true)]
    #[serde(deserialize_with = "priority")]
    pub(crate) priority: Option<Priority>,
    /// Not before this long from now, by the server's clock: 250ms, 10s, 5m, 2h
    #[arg(long, short, value_name = "DURATION", conflicts_with = "at")]
    #[serde(deserialize_with = "text")]
    pub(crate) delay: Option<Span>,
    /// Not before this moment (RFC 3339, with an offset), by the server's clock
    #[arg(long, value_name = "TIME")]
    #[serde(deserialize_with = "text")]
    pub(crate) at: Option<At>,
    /// It expires if it has not started this long from now
    #[arg(long, value_name = "DURATION")]
    #[serde(deserialize_with = "text")]
    pub(crate) start_within: Option<Span>,
    /// It expires if it has not ended this long from now; no attempt gets more time than is left
    #[arg(long, value_name = "DURATION")]
    #[serde(deserialize_with = "text")]
    pub(crate) max_age: Option<Span>,
    /// Idempotency key, per tenant: a second task under it is a duplicate, or a conflict if it differs
    #[arg(long, short, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// What becomes of it while another task waits under its key [default: reject]
    #[arg(long, value_name = "WHAT", requires = "key")]
    pub(crate) on_key: Option<OnKey>,
    /// On whose behalf
    #[arg(long, short, value_name = "TENANT")]
    pub(crate) tenant: Option<String>,
    /// Tasks with the same order key run one after the other, in the order of their acceptance
    #[arg(long, value_name = "KEY")]
    pub(crate) order_key: Option<String>,
    /// If it is dead, those behind its order key wait until it is replayed or purged
    #[arg(long)]
    pub(crate) hold_on_dead: bool,
    /// Units it takes of rate limits [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) cost: Option<u32>,
    /// Slots it takes of slot limits [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) weight: Option<u16>,
    /// Tokens that a run is expected to use; budgets are charged with them when it starts [default: as the book says of its agent]
    #[arg(long, value_name = "N")]
    pub(crate) tokens: Option<u64>,
    /// US dollars that a run is expected to cost: 0.02 [default: as the book says of its agent]
    #[arg(long, value_name = "USD")]
    #[serde(deserialize_with = "amount")]
    pub(crate) cost_usd: Option<Usd>,
    /// Runs that count before it is dead [default: 3]
    #[arg(long, value_name = "N")]
    pub(crate) max_attempts: Option<u16>,
    /// Longest run [default: the agent's]
    #[arg(long, value_name = "DURATION")]
    #[serde(deserialize_with = "text")]
    pub(crate) timeout: Option<Span>,
    /// Bound of the first retry's delay; it doubles from run to run
    #[arg(long, value_name = "DURATION")]
    #[serde(deserialize_with = "text")]
    pub(crate) retry_base: Option<Span>,
    /// Bound of every retry's delay
    #[arg(long, value_name = "DURATION")]
    #[serde(deserialize_with = "text")]
    pub(crate) retry_cap: Option<Span>,
    /// What becomes of its result [default: keep]
    #[arg(long, value_name = "WHAT")]
    pub(crate) result: Option<KeepResult>,
    /// Trace that it belongs to, in W3C's form [default: TRACEPARENT of the environment, if that is one]
    #[arg(long, value_name = "TEXT")]
    pub(crate) traceparent: Option<String>,
    /// Its id; sending the same id again makes no second task [default: a new one]
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<TaskId>,
}

impl Facts {
    /// Reads a line of a file.
    ///
    /// # Errors
    /// What is wrong with it, and at which column.
    pub(crate) fn read(line: &[u8]) -> Result<Self, String> {
        // A list would be read too, its values by the order of the fields.
        if line.trim_ascii_start().first() != Some(&b'{') {
            return Err("is not a JSON object".into());
        }
        // The parser sees one line, and calls it line 1.
        serde_json::from_slice(line).map_err(|e| e.to_string().replace(" at line 1 column ", " at column "))
    }

    /// These, and what they do not say from `defaults`. An id is never a default: it would name one task for all lines.
    pub(crate) fn or(mut self, defaults: &Self) -> Self {
        let d = defaults.clone();
        if self.delay.is_none() && self.at.is_none() {
            (self.delay, self.at) = (d.delay, d.at);
        }
        self.agent = self.agent.or(d.agent);
        self.payload = self.payload.or(d.payload);
        self.queue = self.queue.or(d.queue);
        self.priority = self.priority.or(d.priority);
        self.start_within = self.start_within.or(d.start_within);
        self.max_age = self.max_age.or(d.max_age);
        self.key = self.key.or(d.key);
        self.on_key = self.on_key.or(d.on_key);
        self.tenant = self.tenant.or(d.tenant);
        self.order_key = self.order_key.or(d.order_key);
        self.hold_on_dead |= d.hold_on_dead;
        self.cost = self.cost.or(d.cost);
        self.weight = self.weight.or(d.weight);
        self.tokens = self.tokens.or(d.tokens);
        self.cost_usd = self.cost_usd.or(d.cost_usd);
        self.max_attempts = self.max_attempts.or(d.max_attempts);
        self.timeout = self.timeout.or(d.timeout);
        self.retry_base = self.retry_base.or(d.retry_base);
        self.retry_cap = self.retry_cap.or(d.retry_cap);
        self.result = self.result.or(d.result);
        self.traceparent = self.traceparent.or(d.traceparent);
        self
    }

    /// The task; the client checks the ranges.
    ///
    /// # Errors
    /// What does not fit together.
    pub(crate) fn task(self, agent: AgentName, payload: Bytes, clock: ServerClock) -> Result<NewTask, String> {
        if self.hold_on_dead && self.order_key.is_none() {
            return Err("hold_on_dead says nothing without an order key".into());
        }
        if self.timeout.is_some_and(|t| t.0.is_zero() || t.0 > DELAY_MAX) {
            return Err("timeout must be 1ms to ten years; leave it out for the agent's own".into());
        }
        let delay = match (self.delay, self.at) {
            (Some(_), Some(_)) => return Err("delay and at say the same thing; give one".into()),
            (Some(delay), None) => delay.0,
            (None, Some(at)) => clock.until(at),
            (None, None) => Duration::ZERO,
        };
        let retry = (self.retry_base.is_some() || self.retry_cap.is_some()).then(|| {
            let usual = RetryPolicy::default();
            let base_ms = self.retry_base.map_or(usual.base_ms, Span::ms);
            RetryPolicy { base_ms, cap_ms: self.retry_cap.map_or(usual.cap_ms.max(base_ms), Span::ms) }
        });
        let keep = match self.result {
            Some(KeepResult::Failed) => Keep::Failed,
            Some(KeepResult::None) => Keep::None,
            Some(KeepResult::Keep) | None => Keep::Keep,
        };
        let usual = NewTask::new(agent, payload);
        Ok(NewTask {
            id: self.id.unwrap_or(usual.id),
            queue: self.queue.unwrap_or(usual.queue),
            tenant: self.tenant.unwrap_or(usual.tenant),
            priority: self.priority.unwrap_or(usual.priority),
            delay,
            start_within: self.start_within.map(|d| d.0),
            max_age: self.max_age.map(|d| d.0),
            max_attempts: self.max_attempts.unwrap_or(usual.max_attempts),
            cost: self.cost.unwrap_or(usual.cost),
            weight: self.weight.unwrap_or(usual.weight),
            estimate: Estimate { tokens: self.tokens, micro_usd: self.cost_usd.map(|usd| usd.0) },
            order_key: self.order_key,
            hold_on_dead: self.hold_on_dead,
            key: self.key,
            mode: self.on_key.map_or(Mode::Reject, OnKey::mode),
            meta: Meta {
                timeout_ms: self.timeout.map_or(0, Span::ms),
                retry,
                keep,
                traceparent: self.traceparent,
                ..usual.meta
            },
            agent: usual.agent,
            payload: usual.payload,
            depth: usual.depth,
            fingerprint: None,
        })
    }
}

/// A field that is written as text in a form of its own.
pub(crate) fn text<'de, D: Deserializer<'de>, T: FromStr<Err = String>>(from: D) -> Result<Option<T>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    text.map(|text| text.parse().map_err(serde::de::Error::custom)).transpose()
}

/// A priority by name or number.
pub(crate) fn priority<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Priority>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Word {
        Name(String),
        Number(serde_json::Number),
    }
    let text = match Option::<Word>::deserialize(from)? {
        None => return Ok(None),
        Some(Word::Name(name)) => name,
        Some(Word::Number(number)) => number.to_string(),
    };
    text.parse().map(Some).map_err(serde::de::Error::custom)
}

#[cfg(test)]
#[path = "facts_tests.rs"]
mod tests;
