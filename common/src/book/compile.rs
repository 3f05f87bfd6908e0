//! What a book compiles to: the masks in use and one field for each match, which `lib/book.lua` reads.
//!
//! A field is msgpack: a list of rules `{ k kind, p what is counted apart, c slots, t slots by tier, w { {limit, window ms}… },
//! b burst, l what the loss of a run costs (C R F), z zone }`, without what is not said. Kinds: `s` slots, `r` rate, `t` tokens, `c` money
//! (micro-dollars; of budgets a window of -1 ms is a calendar day, -2 a month). `e/<agent>`: what its tasks are expected to use.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Book, Limit, Part, Slots, Unit, budget};
use crate::name::TierName;
use crate::spend::Spend;

/// A book as scripts read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    /// The revision.
    pub revision: u64,
    /// A fingerprint of the content: of all but the revision.
    pub print: String,
    /// Masks, most specific first, joined by commas.
    pub masks: String,
    /// Letters of the parts of a task that its gates depend on.
    pub parts: String,
    /// The tiers, the lowest first, joined by commas.
    pub tiers: String,
    /// Field and rules.
    pub fields: Vec<(String, Vec<u8>)>,
    /// Zones whose days and months budgets go by.
    pub zones: Vec<String>,
    /// Tenant and tier.
    pub tenants: Vec<(String, String)>,
    /// The book, in TOML: for people, and for what came before it.
    pub text: String,
}

#[derive(Debug, Default, Serialize)]
struct Rule<'a> {
    k: char,
    p: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    c: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    t: Option<&'a BTreeMap<TierName, u64>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    w: Vec<(u64, i64)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    b: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    l: Option<char>,
    #[serde(skip_serializing_if = "Option::is_none")]
    z: Option<&'a str>,
}

fn rules_of<'a>(limit: &'a Limit, tiers: &[TierName]) -> Vec<Rule<'a>> {
    let p: String = Part::ALL.into_iter().filter(|part| limit.per.contains(part)).map(Part::letter).collect();
    let mut rules = Vec::new();
    match &limit.slots {
        Some(Slots::Count(n)) => rules.push(Rule { k: 's', p: p.clone(), c: Some(*n), ..Rule::default() }),
        Some(Slots::ByTier(by_tier)) => {
            let lowest = tiers.iter().find_map(|tier| by_tier.get(tier)).or(by_tier.values().min());
            rules.push(Rule { k: 's', p: p.clone(), c: lowest.copied(), t: Some(by_tier), ..Rule::default() });
        }
        None => {}
    }
    if let Some(rate) = &limit.rate {
        let w = rate.windows.iter().map(|w| (w.limit, i64::try_from(w.ms).unwrap_or(i64::MAX))).collect();
        rules.push(Rule { k: 'r', p: p.clone(), w, b: rate.burst, ..Rule::default() });
    }
    for (unit, budget) in limit.budgets() {
        let k = if unit == Unit::Tokens { 't' } else { 'c' };
        let w = budget.windows.iter().map(|w| (w.limit, budget.script_ms(w))).collect();
        let (l, z) = (Some(limit.on_lost.letter()), budget.zone.as_deref());
        rules.push(Rule { k, p: p.clone(), w, l, z, ..Rule::default() });
    }
    rules
}

/// As scripts read it.
#[expect(clippy::cast_precision_loss, reason = "at most 10^15")]
fn packed(spend: Spend) -> Vec<u8> {
    [spend.tokens, spend.micro_usd].into_iter().flat_map(|n| (n as f64).to_be_bytes()).collect()
}

/// FNV-1a, 64 bits. It tells one content of a revision from another one, written by the same operators.
fn fingerprint(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

impl Book {
    /// Compiles it. `text` is what is kept for people: [`Book::to_text`], or what it was read from.
    #[must_use]
    pub fn compile(&self) -> Compiled {
        self.compile_as(self.to_text())
    }

    /// As [`Book::compile`], keeping the text that it was read from, with its comments.
    #[must_use]
    pub fn compile_as(&self, text: String) -> Compiled {
        let mut fields: BTreeMap<String, Vec<Rule<'_>>> = BTreeMap::new();
        let mut masks: Vec<String> = Vec::new();
        let mut parts = String::new();
        for limit in &self.limits {
            let mask = limit.matches.mask();
            let rules = rules_of(limit, &self.tiers);
            let by_tier = rules.iter().any(|r| r.t.is_some());
            parts.extend(
                Part::ALL.into_iter().filter(|p| mask.contains(p.letter()) || limit.per.contains(p)).map(Part::letter),
            );
            parts.extend(by_tier.then_some('r'));
            if !masks.contains(&mask) {
                masks.push(mask);
            }
            fields.entry(limit.matches.field()).or_default().extend(rules);
        }
        // More parts first; `*` last. Among as many the order of the letters decides, so that no two rules can tie.
        masks.sort_by_key(|m| (std::cmp::Reverse(if m == "*" { 0 } else { m.len() }), m.clone()));
        let parts = Part::ALL.into_iter().map(Part::letter).filter(|letter| parts.contains(*letter)).collect();
        let estimates = self.agents.iter().filter_map(|agent| Some((agent, agent.estimate()?)));
        let estimates = estimates.map(|(agent, spend)| (format!("e/{}", agent.name), packed(spend)));
        let fields = fields
            .into_iter()
            .map(|(field, rules)| (field, rmp_serde::to_vec_named(&rules).unwrap_or_default()))
            .chain(estimates)
            .collect();
        let zones = budget::zones(self.limits.iter().flat_map(Limit::budgets).map(|(_, budget)| budget));
        let content = Self { revision: 0, ..self.clone() };
        Compiled {
            revision: self.revision,
            print: fingerprint(content.to_text().as_bytes()),
            masks: masks.join(","),
            parts,
            tiers: self.tiers.iter().map(TierName::as_str).collect::<Vec<_>>().join(","),
            fields,
            zones: zones.into_iter().collect(),
            tenants: self.tenants.iter().map(|(tenant, tier)| (tenant.clone(), tier.as_str().to_owned())).collect(),
            text,
        }
    }
}
