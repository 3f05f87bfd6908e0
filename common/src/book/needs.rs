//! Which gates a task needs under a book: what `lib/book.lua` finds, for whoever plans an edit.

use super::{Book, Budget, Limit, Match, Part, Slots, Unit};
use crate::name::TierName;
use crate::spend::Spend;

/// What a task says that rules ask for.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// Its queue.
    pub queue: &'a str,
    /// Its agent.
    pub agent: &'a str,
    /// Its tenant; may be empty.
    pub tenant: &'a str,
}

/// One gate that a task must pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// The gate's name, as `explain` and the keys of Redis have it.
    pub gate: String,
    /// What it allows.
    pub allows: Allows,
}

/// What a gate allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allows {
    /// So many slots.
    Slots(u64),
    /// So many units in each of these windows: limit and ms, the shortest first; and the burst of the first.
    Rate(Vec<(u64, u64)>, Option<u64>),
    /// So much may be used.
    Budget(Unit, Budget),
}

impl Need {
    /// Whether a task of this weight and cost, which is expected to use so much, can ever pass.
    #[must_use]
    pub fn fits(&self, weight: u64, cost: u64, estimate: Spend) -> bool {
        match &self.allows {
            Allows::Budget(unit, budget) => {
                let units = if *unit == Unit::Tokens { estimate.tokens } else { estimate.micro_usd };
                budget.windows.iter().all(|w| units <= w.limit)
            }
            Allows::Slots(n) => weight <= *n,
            Allows::Rate(windows, _) => windows.iter().all(|(limit, _)| cost.max(1) <= *limit),
        }
    }
}

impl Book {
    /// What a task of this agent is expected to use, unless it says so itself.
    #[must_use]
    pub fn estimate_of(&self, agent: &str) -> Spend {
        let own = self.agents.iter().find(|defaults| defaults.name.as_str() == agent);
        own.and_then(super::AgentDefaults::estimate).unwrap_or(Spend { tokens: 1, micro_usd: 1 })
    }

    /// The tier of a tenant: the lowest if it has none; none if the book has no tiers.
    #[must_use]
    pub fn tier_of(&self, tenant: &str) -> Option<&TierName> {
        self.tenants.get(tenant).or(self.tiers.first())
    }

    /// The gates of a task, in their fixed order.
    #[must_use]
    pub fn needs(&self, subject: Subject<'_>) -> Vec<Need> {
        let tier = self.tier_of(subject.tenant).map_or("", TierName::as_str);
        let value = |part: Part| match part {
            Part::Queue => subject.queue,
            Part::Agent => subject.agent,
            Part::Tier => tier,
            Part::Tenant => subject.tenant,
        };
        let matches = |m: &Match| Part::ALL.into_iter().all(|p| m.part(p).is_none_or(|asked| asked == value(p)));
        let specific = |limit: &&Limit| {
            let mask = limit.matches.mask();
            (std::cmp::Reverse(mask.len()), mask)
        };
        let mut needs = Vec::new();
        for kind in ['s', 'r', 't', 'c'] {
            let of_kind = |limit: &&Limit| matches(&limit.matches) && allows(limit, kind, self, tier).is_some();
            let all: Vec<&Limit> = self.limits.iter().filter(of_kind).collect();
            let own = all.iter().copied().filter(|l| !l.matches.is_all()).min_by_key(specific);
            let mut chosen: Vec<(String, Need)> = Vec::new();
            for limit in own.into_iter().chain(all.iter().copied().filter(|l| l.matches.is_all())) {
                let Some(allows) = allows(limit, kind, self, tier) else { continue };
                let per: String = Part::ALL.into_iter().filter(|p| limit.per.contains(p)).map(Part::letter).collect();
                let plus = if per.is_empty() { "" } else { "+" };
                let prefix = format!("{kind}/{}{plus}{per}/", limit.matches.mask());
                let named: Vec<&str> = named(limit).into_iter().map(value).collect();
                chosen.push((prefix.clone(), Need { gate: prefix + &named.join("/"), allows }));
            }
            chosen.sort_by(|x, y| x.0.cmp(&y.0));
            needs.extend(chosen.into_iter().map(|(_, need)| need));
        }
        needs
    }
}

/// The parts that a rule's gates are named by: the tier is left out where the tenant is in.
fn named(limit: &Limit) -> Vec<Part> {
    let is_in = |p: &Part| limit.matches.part(*p).is_some() || limit.per.contains(p);
    Part::ALL.into_iter().filter(is_in).filter(|p| *p != Part::Tier || !is_in(&Part::Tenant)).collect()
}

fn allows(limit: &Limit, kind: char, book: &Book, tier: &str) -> Option<Allows> {
    if let Some(unit) = [('t', Unit::Tokens), ('c', Unit::MicroUsd)].into_iter().find(|(k, _)| *k == kind) {
        return limit.budgets().find(|(of, _)| *of == unit.1).map(|(of, budget)| Allows::Budget(of, budget.clone()));
    }
    if kind == 'r' {
        let rate = limit.rate.as_ref()?;
        return Some(Allows::Rate(rate.windows.iter().map(|w| (w.limit, w.ms)).collect(), rate.burst));
    }
    match limit.slots.as_ref()? {
        Slots::Count(n) => Some(Allows::Slots(*n)),
        Slots::ByTier(by_tier) => {
            let own = by_tier.iter().find(|(name, _)| name.as_str() == tier).map(|(_, n)| *n);
            let lowest = || book.tiers.iter().find_map(|t| by_tier.get(t)).or(by_tier.values().min()).copied();
            own.or_else(lowest).map(Allows::Slots)
        }
    }
}
