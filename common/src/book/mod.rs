//! The book: every limit of a shard, under one revision.
//!
//! A rule applies to what it matches (any of queue, agent, tier and tenant; none: everything). Of a kind, the most specific rule that
//! matches a task wins; a rule that matches all is a cap on everything and applies as well. With `per`, a rule counts each queue,
//! agent, tier or tenant by itself.
//!
//! Applying a book changes rules and nothing else: what was counted stays counted, what runs runs on. [`Book::parse`] names every mistake
//! of a book at once, with its line; [`Book::compile`] turns it into what the claim script reads.

mod budget;
mod check;
mod compile;
pub mod needs;
mod periods;
mod rate;
mod read;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::budget::{Budget, DAY_MS, MONTH_MS, OnLost, Unit};
pub use self::compile::Compiled;
pub use self::periods::Periods;
pub use self::rate::{Rate, Window};
pub use self::read::Mistake;
use crate::name::{AgentName, QueueName, TierName};
use crate::spend::{Spend, UNITS_MAX, parse_usd};

/// Longest window of a rate: 31 days, in ms.
pub const WINDOW_MS_MAX: u64 = 31 * 86_400_000;
/// Shortest window of a rate, in ms.
pub const WINDOW_MS_MIN: u64 = 10;
/// Largest limit and slot count.
pub const LIMIT_MAX: u64 = 1_000_000_000;
/// Most bytes of a book's text: it is kept beside the rules, with those before it.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
/// Most limits of a book, and most tenants with a tier.
pub const RULES_MAX: usize = 10_000;

/// The whole book.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Book {
    /// Grows with every edit; an older one, or other content under the same one, is refused.
    pub revision: u64,
    /// The tiers, the lowest first: a tenant without one, or of one that is not listed, counts as the lowest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<TierName>,
    /// The tier of each tenant that has one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tenants: BTreeMap<String, TierName>,
    /// What is so for all tasks of an agent.
    #[serde(default, rename = "agent", skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<AgentDefaults>,
    /// The limits.
    #[serde(default, rename = "limit", skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<Limit>,
}

/// What is so for the tasks of an agent, unless they say otherwise themselves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentDefaults {
    /// The agent.
    pub name: AgentName,
    /// Tokens that a run is expected to use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate_tokens: Option<u64>,
    /// Money that a run is expected to use, in US dollars: `0.02`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate_usd: Option<f64>,
}

impl AgentDefaults {
    /// What a run is expected to use; of what is not said, the least that there is.
    #[must_use]
    pub fn estimate(&self) -> Option<Spend> {
        let micro = self.estimate_usd.map(|usd| parse_usd(&usd.to_string()).unwrap_or(UNITS_MAX));
        (self.estimate_tokens.is_some() || micro.is_some())
            .then(|| Spend { tokens: self.estimate_tokens.unwrap_or(1), micro_usd: micro.unwrap_or(1) })
    }
}

/// One rule: what it applies to, and at least one kind of limit.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// What it applies to.
    #[serde(default, rename = "match", skip_serializing_if = "Match::is_all")]
    pub matches: Match,
    /// What it counts apart: one counter for each. Empty: one for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub per: Vec<Part>,
    /// How many slots there are: what runs holds them, each task as many as its weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<Slots>,
    /// How many units may start in trailing windows, each task as many as its cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// How many tokens may be used in windows.
    #[serde(default, with = "budget::in_tokens", skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Budget>,
    /// How much money may be used in windows: in a book in US dollars, here in micro-dollars.
    #[serde(default, with = "budget::in_usd", skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<Budget>,
    /// What a run costs that did not end by itself.
    #[serde(default, skip_serializing_if = "OnLost::is_default")]
    pub on_lost: OnLost,
}

impl Limit {
    /// So many slots for what matches.
    #[must_use]
    pub fn of_slots(matches: Match, slots: u64) -> Self {
        Self { matches, slots: Some(Slots::Count(slots)), ..Self::default() }
    }

    /// It limits nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_none() && self.rate.is_none() && self.tokens.is_none() && self.cost_usd.is_none()
    }

    /// Its budgets, with what they are counted in.
    pub fn budgets(&self) -> impl Iterator<Item = (Unit, &Budget)> {
        let tokens = self.tokens.iter().map(|budget| (Unit::Tokens, budget));
        tokens.chain(self.cost_usd.iter().map(|budget| (Unit::MicroUsd, budget)))
    }

    /// A rate for what matches.
    #[must_use]
    pub fn of_rate(matches: Match, rate: Rate) -> Self {
        Self { matches, rate: Some(rate), ..Self::default() }
    }
}

/// How many slots there are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "slots are a number, or a table of tiers and numbers: { free = 1, pro = 5 }")]
pub enum Slots {
    /// So many.
    Count(u64),
    /// So many by the tier of the task's tenant. Tiers that are not named have what the lowest one named has.
    ByTier(BTreeMap<TierName, u64>),
}

/// What a rule can be about, and what it can count apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// The queue.
    Queue,
    /// The agent.
    Agent,
    /// The tier of the tenant.
    Tier,
    /// The tenant.
    Tenant,
}

impl Part {
    /// All, in the order in which they stand in a gate's name. The tenant is last, since it may be any text.
    pub const ALL: [Self; 4] = [Self::Queue, Self::Agent, Self::Tier, Self::Tenant];

    /// Its letter in masks.
    #[must_use]
    pub const fn letter(self) -> char {
        match self {
            Self::Queue => 'q',
            Self::Agent => 'a',
            Self::Tier => 'r',
            Self::Tenant => 't',
        }
    }
}

/// What a rule applies to; absent parts match all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Match {
    /// A queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueName>,
    /// An agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// The tier of the tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<TierName>,
    /// A tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

impl Match {
    /// Tasks of this agent.
    #[must_use]
    pub fn agent(agent: AgentName) -> Self {
        Self { agent: Some(agent), ..Self::default() }
    }

    /// It matches everything.
    #[must_use]
    pub fn is_all(&self) -> bool {
        *self == Self::default()
    }

    /// The value of a part, if it asks for one.
    #[must_use]
    pub fn part(&self, part: Part) -> Option<&str> {
        match part {
            Part::Queue => self.queue.as_ref().map(QueueName::as_str),
            Part::Agent => self.agent.as_ref().map(AgentName::as_str),
            Part::Tier => self.tier.as_ref().map(TierName::as_str),
            Part::Tenant => self.tenant.as_deref(),
        }
    }

    /// The letters of the parts that it asks for; `*` for everything.
    #[must_use]
    pub fn mask(&self) -> String {
        let mask: String = Part::ALL.into_iter().filter(|p| self.part(*p).is_some()).map(Part::letter).collect();
        if mask.is_empty() { "*".to_owned() } else { mask }
    }

    /// Where its rules lie in the compiled book: mask and values. Also the beginning of its gates' names.
    #[must_use]
    pub fn field(&self) -> String {
        let values: Vec<&str> = Part::ALL.into_iter().filter_map(|p| self.part(p)).collect();
        format!("{}/{}", self.mask(), values.join("/"))
    }

    /// For people: `agent gpt4, tenant acme`, or `everything`.
    #[must_use]
    pub fn words(&self) -> String {
        let named = [("queue", Part::Queue), ("agent", Part::Agent), ("tier", Part::Tier), ("tenant", Part::Tenant)];
        let words: Vec<String> =
            named.into_iter().filter_map(|(word, part)| Some(format!("{word} {}", self.part(part)?))).collect();
        if words.is_empty() { "everything".to_owned() } else { words.join(", ") }
    }
}

impl Book {
    /// Its text in TOML, as [`Book::parse`] reads it.
    #[must_use]
    pub fn to_text(&self) -> String {
        toml::to_string(self).unwrap_or_default()
    }
}
