//! Which gates a task needs, by the book's own words, not by the compiled form that the scripts read.

use std::collections::{BTreeMap, BTreeSet};

use tidemill_common::book::{AgentDefaults, Book, Budget, Limit, Match, OnLost, Part, Rate, Slots, Unit, Window};
use tidemill_common::name::TierName;
use tidemill_common::task::NewTask;

use super::rng::Rng;

/// What a gate asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// At most so many at once.
    Slots(u64),
    /// At most so many units in each of these trailing windows, in µs; and no faster than pacing lets them.
    Rate(Paced),
    /// At most so much used in each of these windows.
    Budget(Budgeted),
}

/// A budget: limits and trailing windows in ms, and the letter of what the loss of a run costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budgeted {
    pub windows: Vec<(u64, u64)>,
    pub loss: char,
}

/// A rate, in µs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Paced {
    /// Limit and window, the shortest first.
    pub windows: Vec<(u64, u64)>,
    /// Of the shortest window.
    pub burst: Option<u64>,
}

/// One gate that a task must pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub gate: String,
    pub kind: Kind,
    /// Which rule of the book it is, in whatever edition.
    pub of: String,
}

impl Rule {
    /// The units that a task takes of it.
    pub fn units(&self, book: &Book, task: &NewTask) -> u64 {
        let estimate = task.estimate.or(book.estimate_of(task.agent.as_str()));
        match self.kind {
            Kind::Budget(_) if self.gate.starts_with("t/") => estimate.tokens,
            Kind::Budget(_) => estimate.micro_usd,
            Kind::Slots(_) => u64::from(task.weight),
            Kind::Rate(_) => u64::from(task.cost.max(1)),
        }
    }

    /// More than it will ever let through.
    pub fn is_beyond(&self, book: &Book, task: &NewTask) -> bool {
        let units = self.units(book, task);
        match &self.kind {
            Kind::Slots(cap) => units > *cap,
            Kind::Rate(Paced { windows, .. }) | Kind::Budget(Budgeted { windows, .. }) => {
                windows.iter().any(|(limit, _)| units > *limit)
            }
        }
    }
}

/// The tier that counts for a tenant.
fn tier(book: &Book, tenant: &str) -> String {
    book.tenants.get(tenant).or(book.tiers.first()).map(ToString::to_string).unwrap_or_default()
}

/// The letters of a match, and of what a rule counts apart.
fn letters(limit: &Limit) -> (String, String) {
    let m = &limit.matches;
    let asked =
        [("q", m.queue.is_some()), ("a", m.agent.is_some()), ("r", m.tier.is_some()), ("t", m.tenant.is_some())];
    let mask: String = asked.into_iter().filter(|(_, on)| *on).map(|(letter, _)| letter).collect();
    let per = |part, letter: &'static str| limit.per.contains(&part).then_some(letter);
    let per = [per(Part::Queue, "q"), per(Part::Agent, "a"), per(Part::Tier, "r"), per(Part::Tenant, "t")];
    (mask, per.into_iter().flatten().collect())
}

/// What a rule's gates are named by, but for the values: the fixed order is by this.
fn prefix(limit: &Limit, letter: char) -> String {
    let (mask, per) = letters(limit);
    let per = if per.is_empty() { per } else { format!("+{per}") };
    format!("{letter}/{}{per}/", if mask.is_empty() { "*" } else { &mask })
}

/// The gate of a rule for a task: each part that is matched or counted apart, the tier only where the tenant is not.
fn gate(limit: &Limit, letter: char, book: &Book, task: &NewTask) -> String {
    let (mask, per) = letters(limit);
    let parts = mask + &per;
    let tier = tier(book, &task.tenant);
    let values = [("q", task.queue.as_str()), ("a", task.agent.as_str()), ("r", &tier), ("t", &task.tenant)];
    let named = values.into_iter().filter(|(l, _)| parts.contains(l) && !(*l == "r" && parts.contains('t')));
    prefix(limit, letter) + &named.map(|(_, value)| value).collect::<Vec<_>>().join("/")
}

fn matches(m: &Match, book: &Book, task: &NewTask) -> bool {
    m.queue.as_ref().is_none_or(|q| *q == task.queue)
        && m.agent.as_ref().is_none_or(|a| *a == task.agent)
        && m.tier.as_ref().is_none_or(|r| r.as_str() == tier(book, &task.tenant))
        && m.tenant.as_ref().is_none_or(|t| *t == task.tenant)
}

fn paced(rate: &Rate) -> Paced {
    Paced { windows: rate.windows.iter().map(|w| (w.limit, w.ms * 1000)).collect(), burst: rate.burst }
}

fn kind_of(limit: &Limit, letter: char, book: &Book, task: &NewTask) -> Option<Kind> {
    if let Some((_, budget)) = limit.budgets().find(|(unit, _)| (*unit == Unit::Tokens) == (letter == 't')) {
        if "tc".contains(letter) {
            let windows = budget.windows.iter().map(|w| (w.limit, w.ms)).collect();
            return Some(Kind::Budget(Budgeted { windows, loss: limit.on_lost.letter() }));
        }
    } else if "tc".contains(letter) {
        return None;
    }
    if letter == 'r' {
        return limit.rate.as_ref().map(|r| Kind::Rate(paced(r)));
    }
    Some(Kind::Slots(match limit.slots.as_ref()? {
        Slots::Count(n) => *n,
        Slots::ByTier(by_tier) => {
            let own = tier(book, &task.tenant);
            let lowest = book.tiers.iter().find(|t| by_tier.contains_key(*t)).expect("a tier is named");
            *by_tier.iter().find(|(t, _)| t.as_str() == own).map_or(&by_tier[lowest], |(_, n)| n)
        }
    }))
}

/// The gates of a task in their fixed order: slots, rates, tokens, money, then by name.
pub fn rules_of(book: &Book, task: &NewTask) -> Vec<Rule> {
    let mut rules = Vec::new();
    for letter in ['s', 'r', 't', 'c'] {
        let mut own: Vec<(String, String, Rule)> = Vec::new();
        let mut of_kind: Vec<(String, Rule)> = Vec::new();
        for limit in book.limits.iter().filter(|l| matches(&l.matches, book, task)) {
            let Some(kind) = kind_of(limit, letter, book, task) else { continue };
            let (mask, _) = letters(limit);
            let rule = Rule { gate: gate(limit, letter, book, task), kind, of: named(limit, letter) };
            let prefix = prefix(limit, letter);
            if mask.is_empty() { of_kind.push((prefix, rule)) } else { own.push((mask, prefix, rule)) }
        }
        // More parts are more specific; the fixed order of masks decides between as many.
        own.sort_by_key(|(mask, ..)| (std::cmp::Reverse(mask.len()), mask.clone()));
        of_kind.extend(own.into_iter().take(1).map(|(_, prefix, rule)| (prefix, rule)));
        of_kind.sort_by(|x, y| x.0.as_bytes().cmp(y.0.as_bytes()));
        rules.extend(of_kind.into_iter().map(|(_, rule)| rule));
    }
    rules
}

/// A rule's name over all editions of the book.
fn named(limit: &Limit, letter: char) -> String {
    format!("{}{:?}", prefix(limit, letter), limit.matches)
}

/// The rates of a book, by the names of their rules.
pub fn rates(book: &Book) -> BTreeMap<String, Paced> {
    let of = |l: &Limit| Some((named(l, 'r'), paced(l.rate.as_ref()?)));
    book.limits.iter().filter_map(of).collect()
}

/// The windows of a book's budgets, by the names of their rules, ms.
pub fn budgets(book: &Book) -> BTreeSet<(String, u64)> {
    let of = |l: &Limit| {
        let windows = |(unit, budget): (Unit, &Budget)| {
            let named = named(l, if unit == Unit::Tokens { 't' } else { 'c' });
            budget.windows.iter().map(|w| (named.clone(), w.ms)).collect::<Vec<_>>()
        };
        l.budgets().flat_map(windows).collect::<Vec<_>>()
    };
    book.limits.iter().flat_map(of).collect()
}

/// How a history's books look.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    /// Chance of each rule, in percent.
    pub rules: u64,
    /// Largest slot cap.
    pub slots: u64,
    /// Largest rate limit.
    pub limit: u64,
}

/// A random book over the names that histories use.
pub fn random(rng: &mut Rng, revision: u64, style: Style) -> Book {
    let name = |text: &str| text.parse().ok();
    let places = [
        Match::default(),
        Match { agent: Some("a".parse().expect("a name")), ..Match::default() },
        Match { agent: Some("b".parse().expect("a name")), ..Match::default() },
        Match { queue: name("slow"), ..Match::default() },
        Match { tenant: Some("t/1 :x".into()), ..Match::default() },
        Match { agent: Some("a".parse().expect("a name")), tenant: Some("t2".into()), ..Match::default() },
        Match { queue: name("default"), agent: Some("b".parse().expect("a name")), ..Match::default() },
        Match { tier: Some("pro".parse().expect("a name")), ..Match::default() },
    ];
    let tiers: Vec<TierName> = ["free", "pro"].map(|t| t.parse().expect("a name")).into();
    let tenants = ["t/1 :x", "t2"].into_iter().filter(|_| rng.percent(50)).collect::<Vec<_>>();
    let tenants = tenants.into_iter().map(|t| (t.to_owned(), tiers[rng.index(2)].clone())).collect();
    let mut limits = Vec::new();
    for matches in places {
        let mut per: Vec<Part> =
            [Part::Tenant, Part::Queue, Part::Tier].into_iter().filter(|_| rng.percent(7)).collect();
        per.retain(|part| matches.part(*part).is_none());
        let by_tenant = per.contains(&Part::Tenant) || matches.tenant.is_some();
        let slots = rng.percent(style.rules).then(|| {
            if by_tenant && rng.percent(50) {
                Slots::ByTier(tiers.iter().map(|t| (t.clone(), rng.within(1, style.slots))).collect())
            } else {
                Slots::Count(rng.within(1, style.slots))
            }
        });
        let rate = rng.percent(style.rules / 2).then(|| random_rate(rng, style));
        let tokens = rng.percent(style.rules / 4).then(|| random_budget(rng, style));
        let cost_usd = rng.percent(style.rules / 8).then(|| random_budget(rng, style));
        let on_lost = [OnLost::Charge, OnLost::Charge, OnLost::Reported, OnLost::Refund][rng.index(4)];
        let limit = Limit { matches, per, slots, rate, tokens, cost_usd, on_lost };
        if !limit.is_empty() {
            limits.push(limit);
        }
    }
    let agents = ["a", "b"].into_iter().filter(|_| rng.percent(30)).collect::<Vec<_>>();
    let defaults = |name: &&str, rng: &mut Rng| AgentDefaults {
        name: name.parse().expect("a name"),
        estimate_tokens: rng.percent(60).then(|| rng.below(5)),
        estimate_usd: rng.percent(40).then_some(0.000_003),
    };
    let agents = agents.iter().map(|name| defaults(name, rng)).collect();
    Book { revision, tiers, tenants, agents, limits }
}

fn random_budget(rng: &mut Rng, style: Style) -> Budget {
    Budget { windows: random_rate(rng, style).windows, zone: None }
}

/// The same windows with other limits, or other windows.
fn other_limits(rng: &mut Rng, rate: &Rate, style: Style) -> Rate {
    if rng.percent(30) {
        return random_rate(rng, style);
    }
    let mut next = Rate { burst: None, ..rate.clone() };
    let mut least = 1;
    for window in &mut next.windows {
        window.limit = rng.within(1, style.limit).max(least);
        least = window.limit;
    }
    next
}

fn random_rate(rng: &mut Rng, style: Style) -> Rate {
    let lengths = [10, 50, 300, 1_000, 7_000];
    let mut windows: Vec<Window> = Vec::new();
    for _ in 0..[1, 1, 2, 3][rng.index(4)] {
        let ms = lengths[rng.index(5)];
        if windows.iter().all(|w| w.ms != ms) {
            windows.push(Window { ms, limit: rng.within(1, style.limit) });
        }
    }
    windows.sort_unstable();
    for i in 1..windows.len() {
        windows[i].limit = windows[i].limit.max(windows[i - 1].limit);
    }
    let burst = rng.percent(25).then(|| rng.within(1, windows[0].limit));
    Rate { windows, burst }
}

/// The same rules with other numbers: what an operator does who turns a knob.
pub fn tweaked(rng: &mut Rng, book: &Book, style: Style) -> Book {
    let mut next = Book { revision: book.revision + 1, ..book.clone() };
    if let (true, Some(tier)) = (rng.percent(30), rng.pick(&next.tiers).cloned()) {
        next.tenants.insert("t2".to_owned(), tier);
    }
    for limit in &mut next.limits {
        if rng.percent(60) {
            for n in limit.slots.iter_mut().flat_map(|slots| match slots {
                Slots::Count(n) => vec![n],
                Slots::ByTier(by_tier) => by_tier.values_mut().collect(),
            }) {
                *n = rng.within(1, style.slots);
            }
            limit.rate = limit.rate.as_ref().map(|rate| other_limits(rng, rate, style));
            for budget in limit.tokens.iter_mut().chain(&mut limit.cost_usd) {
                let rate = Rate { windows: budget.windows.clone(), burst: None };
                budget.windows = other_limits(rng, &rate, style).windows;
            }
        }
    }
    next
}
