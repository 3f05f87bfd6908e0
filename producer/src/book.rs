//! The book of rules: the one in force, those before it, and what another one would change.
//!
//! - *It guarantees* that a book is put in force as a whole, in one script, for every worker's next claim; that counters stay as they
//!   are; and that an edit made from one revision does not undo another that came in between ([`BookEdit::follows`]).
//! - *It refuses* a book with mistakes before anything is sent, all of them named.
//! - *On a crash* between the book and the look at the lines that follows, applying the same book again does the rest.

use std::collections::BTreeMap;

use tidemill_common::book::needs::{Allows, Need, Subject};
pub use tidemill_common::book::{
    AgentDefaults, Budget, Limit, Match, Mistake, OnLost, Part, Rate, Slots, TEXT_BYTES_MAX, Unit, Window,
};
use tidemill_common::name::TaskId;
use tidemill_common::spend::{Spend, usd};
use tidemill_common::state::State;
use tidemill_common::store::Applied;
pub use tidemill_common::store::{BookEdit, BookKept};
use tidemill_common::task::Task;

use crate::client::{Client, firmly};
use crate::error::Error;
use crate::many::Select;
use crate::{AgentName, Book};

/// Stranded tasks that a plan names; the rest are counted.
const STRANDED_MAX: usize = 20;

/// What another book would change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Rules that come, go, or say something else.
    pub rules: Vec<RuleChange>,
    /// Tenants whose tier changes.
    pub tenants: u64,
    /// Tasks that wait.
    pub waiting: u64,
    /// Those whose gates, or what these allow, change: by agent.
    pub touched: BTreeMap<AgentName, u64>,
    /// Tasks that would be dead at their turn, since they ask for more than a gate will ever have.
    pub stranded: u64,
    /// The first of them, and the gate.
    pub stranded_first: Vec<(TaskId, String)>,
}

/// One rule that changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleChange {
    /// What it applies to, in words.
    pub rule: String,
    /// `slots`, `rate`, `tokens`, `cost_usd` or, of an agent, `estimate`.
    pub kind: &'static str,
    /// What it says now; none: it is new.
    pub before: Option<String>,
    /// What it would say; none: it goes.
    pub after: Option<String>,
}

impl Client {
    /// Puts a book of rules in force, at once for all workers. Counters stay as they are, and what runs, runs on.
    ///
    /// # Errors
    /// [`Error::Book`] with all its mistakes, before anything is sent; or when Redis does not answer, and then applying the same
    /// book again is safe.
    pub async fn apply_book(&self, book: &Book) -> Result<Applied, Error> {
        self.apply_book_as(book, book.to_text(), BookEdit::default()).await
    }

    /// As [`Self::apply_book`], keeping the text that it was read from, with a note, and perhaps only if a certain revision is in
    /// force.
    ///
    /// # Errors
    /// As [`Self::apply_book`].
    pub async fn apply_book_as(&self, book: &Book, text: String, edit: BookEdit<'_>) -> Result<Applied, Error> {
        let wrong = book.wrong();
        if !wrong.is_empty() {
            return Err(Error::Book(wrong));
        }
        let compiled = book.compile_as(text);
        Ok(firmly(|| self.store().apply_book(&compiled, edit)).await?)
    }

    /// The book in force; none when nothing is limited.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn book(&self) -> Result<Option<BookKept>, Error> {
        Ok(firmly(|| self.store().book()).await?)
    }

    /// The last books, the newest first; at most 20.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn books(&self) -> Result<Vec<BookKept>, Error> {
        Ok(firmly(|| self.store().books()).await?)
    }

    /// What `after` would change, were it to follow `before`, also for each task that waits now. Nothing is changed by asking.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn plan_book(&self, before: &Book, after: &Book) -> Result<Plan, Error> {
        let tier_changes = before.tenants.keys().chain(after.tenants.keys()).collect::<std::collections::BTreeSet<_>>();
        let mut plan = Plan {
            rules: rule_changes(before, after),
            tenants: tier_changes.into_iter().filter(|t| before.tier_of(t) != after.tier_of(t)).count() as u64,
            ..Plan::default()
        };
        let waiting = Select { states: vec![State::Queued, State::Scheduled, State::Parked], ..Select::default() };
        self.list(&waiting, |found| {
            if let Some(task) = &found.task {
                plan.meet(task, before, after);
            }
            true
        })
        .await?;
        Ok(plan)
    }
}

impl Plan {
    /// Nothing would be otherwise.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.tenants == 0
    }

    fn meet(&mut self, task: &Task, before: &Book, after: &Book) {
        let subject = Subject { queue: task.queue.as_str(), agent: task.agent.as_str(), tenant: &task.tenant };
        let (old, new) = (before.needs(subject), after.needs(subject));
        self.waiting += 1;
        if old != new {
            *self.touched.entry(task.agent.clone()).or_default() += 1;
        }
        let estimate = task.estimate.or(after.estimate_of(task.agent.as_str()));
        let fits = |need: &&Need| !need.fits(u64::from(task.weight), u64::from(task.cost), estimate);
        if let Some(need) = new.iter().find(fits) {
            self.stranded += 1;
            if self.stranded_first.len() < STRANDED_MAX {
                self.stranded_first.push((task.id.clone(), need.gate.clone()));
            }
        }
    }
}

/// What a limit of a kind says, in words.
fn said(limit: &Limit, kind: &str) -> Option<String> {
    let budget = |unit| {
        let (unit, budget) = limit.budgets().find(|(of, _)| *of == unit)?;
        let on_lost = (limit.on_lost != OnLost::Charge).then(|| format!("on_lost {:?}", limit.on_lost).to_lowercase());
        Some(budget.said(unit).into_iter().chain(on_lost).collect::<Vec<_>>().join(", "))
    };
    match (kind, &limit.slots, &limit.rate) {
        ("tokens", ..) => budget(Unit::Tokens),
        ("cost_usd", ..) => budget(Unit::MicroUsd),
        ("slots", Some(Slots::Count(n)), _) => Some(n.to_string()),
        ("slots", Some(Slots::ByTier(by_tier)), _) => {
            Some(by_tier.iter().map(|(tier, n)| format!("{tier} {n}")).collect::<Vec<_>>().join(", "))
        }
        ("rate", _, Some(rate)) => {
            let mut words: Vec<String> = rate.windows.iter().map(ToString::to_string).collect();
            words.extend(rate.burst.map(|burst| format!("burst {burst}")));
            Some(words.join(", "))
        }
        _ => None,
    }
}

/// What a rule applies to, and what it counts apart.
fn subject_of(limit: &Limit) -> String {
    let words = limit.matches.words();
    let named = |part: &Part| format!("{part:?}").to_lowercase();
    match limit.per.iter().map(named).collect::<Vec<_>>() {
        per if per.is_empty() => words,
        per => format!("{words}, each {}", per.join(" and ")),
    }
}

/// Rules that come, go, or say something else.
fn rule_changes(before: &Book, after: &Book) -> Vec<RuleChange> {
    let rules = |book: &Book| -> BTreeMap<(String, &'static str), String> {
        let of = |limit: &Limit| {
            ["slots", "rate", "tokens", "cost_usd"].map(|kind| Some(((subject_of(limit), kind), said(limit, kind)?)))
        };
        let estimate = |agent: &AgentDefaults| {
            let Spend { tokens, micro_usd } = agent.estimate()?;
            Some(((format!("agent {}", agent.name), "estimate"), format!("{tokens} tokens, ${}", usd(micro_usd))))
        };
        book.limits.iter().flat_map(of).flatten().chain(book.agents.iter().filter_map(estimate)).collect()
    };
    let (old, new) = (rules(before), rules(after));
    let both: std::collections::BTreeSet<_> = old.keys().chain(new.keys()).collect();
    both.into_iter()
        .filter(|key| old.get(*key) != new.get(*key))
        .map(|key| RuleChange {
            rule: key.0.clone(),
            kind: key.1,
            before: old.get(key).cloned(),
            after: new.get(key).cloned(),
        })
        .collect()
}

/// What a gate allows, in words.
#[must_use]
pub fn allows(need: &Need) -> String {
    match &need.allows {
        Allows::Slots(1) => "one at once".to_owned(),
        Allows::Slots(n) => format!("{n} at once"),
        Allows::Budget(unit, budget) => budget.said(*unit).join(", "),
        Allows::Rate(windows, _) => {
            let words =
                windows.iter().map(|(limit, ms)| tidemill_common::book::Window { ms: *ms, limit: *limit }.to_string());
            words.collect::<Vec<_>>().join(", ")
        }
    }
}
