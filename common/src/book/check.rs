//! What a book that can be read may still have wrong.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{
    Book, DAY_MS, LIMIT_MAX, Limit, MONTH_MS, Mistake, OnLost, Part, Periods, RULES_MAX, Rate, Slots, Unit,
    WINDOW_MS_MAX, WINDOW_MS_MIN, Window,
};
use crate::name::{TierName, check_text};
use crate::spend::{UNITS_MAX, parse_usd};

/// A waking worker is late by so much at most: pacing that is finer than that would let fewer units through than the limit says.
const PACE_MS: u64 = 50;

impl Book {
    /// Everything that is wrong with it. For a book that was read from text, [`Book::parse`] has said so, with lines.
    #[must_use]
    pub fn wrong(&self) -> Vec<Mistake> {
        wrong(self, &[], &[])
    }

    /// What is allowed, and probably not meant.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.limits.iter().filter_map(pace_too_fine).collect()
    }
}

fn pace_too_fine(limit: &Limit) -> Option<String> {
    let rate = limit.rate.as_ref()?;
    let (burst, shortest) = (rate.burst?, rate.windows.first()?);
    let least = (shortest.limit * PACE_MS).div_ceil(shortest.ms);
    (burst < least).then(|| {
        format!(
            "the rate of {}: a burst of {burst} is less than passes in {PACE_MS} ms ({least}), so that fewer than {shortest} will start",
            limit.matches.words()
        )
    })
}

pub(super) fn wrong(book: &Book, lines: &[usize], agent_lines: &[usize]) -> Vec<Mistake> {
    let mut wrong = Vec::new();
    let mut say = |line: usize, what: String| wrong.push(Mistake { line, what });
    if book.revision == 0 {
        say(0, "revision must be at least 1, and grow with every edit".into());
    }
    if book.limits.len() > RULES_MAX || book.tenants.len() > RULES_MAX {
        say(0, format!("a book has at most {RULES_MAX} limits, and as many tenants with a tier"));
    }
    for (tenant, tier) in &book.tenants {
        if let Err(e) = check_text("tenant", tenant) {
            say(0, format!("tenants: {e}"));
        }
        if !book.tiers.contains(tier) {
            say(0, format!("tenants: {tenant:?} has the tier {tier}, which is none: {}", tiers(book)));
        }
    }
    if let Some(twice) = book.tiers.iter().enumerate().find(|(i, t)| book.tiers[..*i].contains(t)) {
        say(0, format!("tiers: {} is there twice", twice.1));
    }
    for (i, agent) in book.agents.iter().enumerate() {
        let line = agent_lines.get(i).copied().unwrap_or(0);
        if book.agents[..i].iter().any(|other| other.name == agent.name) {
            say(line, format!("the agent {} is there twice", agent.name));
        }
        if agent.estimate_tokens.is_some_and(|n| n > UNITS_MAX) {
            say(line, format!("estimate_tokens must be at most {UNITS_MAX}"));
        }
        if let Some(Err(e)) = agent.estimate_usd.map(|usd| parse_usd(&usd.to_string())) {
            say(line, format!("estimate_usd: {e}"));
        }
    }
    let mut seen = BTreeMap::new();
    for (i, limit) in book.limits.iter().enumerate() {
        let line = lines.get(i).copied().unwrap_or(0);
        // A book that was made in a program has no lines.
        let named =
            |i: usize| lines.get(i).map_or(format!("limit {}", i + 1), |line| format!("the rule of line {line}"));
        let mut of_limit = Vec::new();
        matched(limit, book, &mut of_limit);
        slots(limit, book, &mut of_limit);
        limit.rate.iter().for_each(|rate| check_rate(rate, &mut of_limit));
        check_budgets(limit, &mut of_limit);
        let kinds = [
            ("slots", limit.slots.is_some()),
            ("rate", limit.rate.is_some()),
            ("tokens", limit.tokens.is_some()),
            ("cost_usd", limit.cost_usd.is_some()),
        ];
        for (kind, on) in kinds {
            if on && let Some(other) = seen.insert((kind, limit.matches.field()), i) {
                of_limit.push(format!(
                    "ties with {}: two rules of the kind `{kind}` for {}",
                    named(other),
                    limit.matches.words()
                ));
            }
        }
        for what in of_limit {
            say(line, if line == 0 { format!("{}: {what}", named(i)) } else { what });
        }
    }
    wrong
}

fn tiers(book: &Book) -> String {
    if book.tiers.is_empty() {
        return "the book has no tiers; write tiers = [\"free\", \"pro\"], the lowest first".into();
    }
    let mut text = "the tiers are".to_owned();
    for (i, tier) in book.tiers.iter().enumerate() {
        let _ = write!(text, "{} {tier}", if i == 0 { "" } else { "," });
    }
    text
}

fn matched(limit: &Limit, book: &Book, wrong: &mut Vec<String>) {
    if limit.is_empty() {
        wrong.push("limits nothing: it has none of `slots`, `rate`, `tokens` and `cost_usd`".into());
    }
    if let Some(Err(e)) = limit.matches.tenant.as_ref().map(|t| check_text("tenant", t)) {
        wrong.push(e.to_string());
    }
    if let Some(tier) = limit.matches.tier.as_ref().filter(|t| !book.tiers.contains(t)) {
        wrong.push(format!("the tier {tier} is none: {}", tiers(book)));
    }
    for (i, part) in limit.per.iter().enumerate() {
        if limit.per[..i].contains(part) {
            wrong.push(format!("`per` names {part:?} twice").to_lowercase());
        } else if limit.matches.part(*part).is_some() {
            wrong.push(format!("`per` names {part:?}, of which it matches one only").to_lowercase());
        }
    }
}

fn slots(limit: &Limit, book: &Book, wrong: &mut Vec<String>) {
    let range = || format!("slots must be 1 to {LIMIT_MAX}; to stop an agent, pause it");
    match &limit.slots {
        Some(Slots::Count(n)) if *n == 0 || *n > LIMIT_MAX => wrong.push(range()),
        Some(Slots::ByTier(by_tier)) => {
            if !limit.per.contains(&Part::Tenant) && limit.matches.tenant.is_none() {
                wrong.push("slots by tier belong to a tenant: add per = [\"tenant\"]".into());
            }
            if by_tier.is_empty() || by_tier.values().any(|n| *n == 0 || *n > LIMIT_MAX) {
                wrong.push(range());
            }
            let unknown: Vec<&TierName> = by_tier.keys().filter(|t| !book.tiers.contains(t)).collect();
            wrong.extend(unknown.into_iter().map(|tier| format!("the tier {tier} is none: {}", tiers(book))));
        }
        _ => {}
    }
}

fn check_budgets(limit: &Limit, wrong: &mut Vec<String>) {
    if limit.on_lost != OnLost::Charge && limit.budgets().next().is_none() {
        wrong.push("`on_lost` belongs to a budget, and there is none".into());
    }
    for (unit, budget) in limit.budgets() {
        let name = if unit == Unit::Tokens { "tokens" } else { "cost_usd" };
        if budget.windows.is_empty() {
            wrong.push(format!("{name} has no window; write {name} = {{ day = 5 }}"));
        }
        let said = |w: &Window| format!("{} per {}", unit.said(w.limit), w.name());
        for w in &budget.windows {
            let said = said(w);
            if w.limit == 0 || w.limit > UNITS_MAX {
                wrong.push(format!(
                    "{name}: {said}: the limit must be more than nothing and at most {}; to stop an agent, pause it",
                    unit.said(UNITS_MAX)
                ));
            }
            if w.ms < WINDOW_MS_MIN || w.ms > WINDOW_MS_MAX {
                wrong.push(format!("{name}: {said}: a window lasts {WINDOW_MS_MIN} ms to 31 days"));
            }
        }
        for pair in budget.windows.windows(2) {
            if pair[1].limit < pair[0].limit {
                wrong.push(format!("{name}: {} can never be reached with {}", said(&pair[0]), said(&pair[1])));
            }
        }
        let Some(zone) = &budget.zone else { continue };
        if !Periods::knows(zone) {
            wrong.push(format!("{name}: {zone:?} is no time zone, as in \"Europe/Berlin\""));
        }
        if !budget.windows.iter().any(|w| w.ms == DAY_MS || w.ms == MONTH_MS) {
            wrong.push(format!("{name}: a zone is for `day` and `month`, and there is neither"));
        }
    }
}

fn check_rate(rate: &Rate, wrong: &mut Vec<String>) {
    if rate.windows.is_empty() {
        wrong.push("rate has no window; write rate = { minute = 60 }".into());
    }
    for w in &rate.windows {
        if w.limit == 0 || w.limit > LIMIT_MAX {
            wrong.push(format!("rate: {w}: the limit must be 1 to {LIMIT_MAX}; to stop an agent, pause it"));
        }
        if w.ms < WINDOW_MS_MIN || w.ms > WINDOW_MS_MAX {
            wrong.push(format!("rate: {w}: a window lasts {WINDOW_MS_MIN} ms to 31 days"));
        }
    }
    // A longer window with a smaller limit is the one that counts; the shorter one would never be met.
    for pair in rate.windows.windows(2) {
        if pair[1].limit < pair[0].limit {
            wrong.push(format!("rate: {} can never be reached with {}", pair[0], pair[1]));
        }
    }
    if let (Some(burst), Some(shortest)) = (rate.burst, rate.windows.first())
        && (burst == 0 || burst > shortest.limit)
    {
        wrong.push(format!("rate: burst must be 1 to the limit of the shortest window, {shortest}"));
    }
}
