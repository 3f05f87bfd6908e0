//! Which gates a task needs, by the book's own words, not by the compiled form that the scripts read.

use tidemill_common::book::{Book, Limit, Match, Rate};
use tidemill_common::task::NewTask;

use super::rng::Rng;

/// What a gate asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// At most so many at once.
    Slots(u64),
    /// At most so many units in any trailing window, in µs.
    Rate { limit: u64, window_us: u64 },
}

/// One gate that a task must pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub gate: String,
    pub kind: Kind,
}

impl Rule {
    /// The units that a task takes of it.
    pub fn units(&self, task: &NewTask) -> u64 {
        match self.kind {
            Kind::Slots(_) => 1,
            Kind::Rate { .. } => u64::from(task.cost.max(1)),
        }
    }
}

/// Mask and field of a match, as `B:book` names them.
fn named(m: &Match) -> (String, String) {
    let mut mask = String::new();
    let mut values = Vec::new();
    if let Some(queue) = &m.queue {
        mask.push('q');
        values.push(queue.as_str());
    }
    if let Some(agent) = &m.agent {
        mask.push('a');
        values.push(agent.as_str());
    }
    if let Some(tenant) = &m.tenant {
        mask.push('t');
        values.push(tenant);
    }
    let field = format!("{}/{}", if mask.is_empty() { "*" } else { &mask }, values.join("/"));
    (mask, field)
}

fn matches(m: &Match, task: &NewTask) -> bool {
    m.queue.as_ref().is_none_or(|q| *q == task.queue)
        && m.agent.as_ref().is_none_or(|a| *a == task.agent)
        && m.tenant.as_ref().is_none_or(|t| *t == task.tenant)
}

fn kind_of(limit: &Limit, slots: bool) -> Option<Kind> {
    if slots {
        limit.slots.map(Kind::Slots)
    } else {
        limit.rate.map(|r| Kind::Rate { limit: r.limit, window_us: r.window_ms * 1000 })
    }
}

/// The gates of a task in their fixed order: slots before rates, then by name.
pub fn rules_of(book: &Book, task: &NewTask) -> Vec<Rule> {
    let mut rules = Vec::new();
    for slots in [true, false] {
        let letter = if slots { 's' } else { 'r' };
        let mut own: Vec<(String, String, Kind)> = Vec::new();
        let mut global: Vec<Rule> = Vec::new();
        for limit in book.limits.iter().filter(|l| matches(&l.matches, task)) {
            let Some(kind) = kind_of(limit, slots) else { continue };
            let (mask, field) = named(&limit.matches);
            let gate = format!("{letter}/{field}");
            if mask.is_empty() { global.push(Rule { gate, kind }) } else { own.push((mask, gate, kind)) }
        }
        // More parts are more specific; the fixed order of masks decides between as many.
        own.sort_by_key(|(mask, ..)| (std::cmp::Reverse(mask.len()), mask.clone()));
        let mut of_kind: Vec<Rule> = own.into_iter().take(1).map(|(_, gate, kind)| Rule { gate, kind }).collect();
        of_kind.extend(global);
        of_kind.sort_by(|x, y| x.gate.as_bytes().cmp(y.gate.as_bytes()));
        rules.extend(of_kind);
    }
    rules
}

/// The rate gates of a book and their windows, µs.
pub fn rate_windows(book: &Book) -> std::collections::BTreeMap<String, u64> {
    let window = |l: &Limit| Some((format!("r/{}", named(&l.matches).1), l.rate?.window_ms * 1000));
    book.limits.iter().filter_map(window).collect()
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
        Match { agent: Some("a".parse().expect("a name")), tenant: Some("t2".into()), queue: None },
        Match { queue: name("default"), agent: Some("b".parse().expect("a name")), tenant: None },
    ];
    let mut limits = Vec::new();
    for matches in places {
        let slots = rng.percent(style.rules).then(|| rng.within(1, style.slots));
        let rate = rng
            .percent(style.rules / 2)
            .then(|| Rate { limit: rng.within(1, style.limit), window_ms: [10, 50, 300, 1_000, 7_000][rng.index(5)] });
        if slots.is_some() || rate.is_some() {
            limits.push(Limit { matches, slots, rate });
        }
    }
    Book { revision, limits }
}

/// The same rules with other numbers: what an operator does who turns a knob.
pub fn tweaked(rng: &mut Rng, book: &Book, style: Style) -> Book {
    let mut next = Book { revision: book.revision + 1, ..book.clone() };
    for limit in &mut next.limits {
        if rng.percent(60) {
            limit.slots = limit.slots.map(|_| rng.within(1, style.slots));
            limit.rate = limit.rate.map(|r| Rate { limit: rng.within(1, style.limit), ..r });
        }
    }
    next
}
