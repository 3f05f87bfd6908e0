//! Budgets by their promise: what was charged, when, and no idea of how the scripts keep it.
//!
//! Whatever is not exact here is so in the scripts' favour: charges begin as early and leave their window as early as they possibly
//! can, so that the scripts, which keep theirs in buckets, never have more room than this.

use std::collections::BTreeMap;

use tidemill_common::spend::Spend;

use super::book::Budgeted;

const DAY_MS: u64 = 86_400_000;

/// What a run has taken of a gate.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taken {
    pub gate: String,
    pub units: u64,
    /// What it costs that the run is lost: `C`, `R`, `F`; `-`: it is no budget.
    pub loss: char,
}

impl Taken {
    /// What a run has used of it: tokens or money.
    fn of(&self, used: Spend) -> u64 {
        if self.gate.starts_with("t/") { used.tokens } else { used.micro_usd }
    }

    /// What is charged for a run in the end. `cut`: it did not end by itself.
    pub fn charged(&self, used: Option<Spend>, cut: bool) -> u64 {
        let known = used.map(|used| self.of(used));
        match (cut, self.loss) {
            (false, _) => known.unwrap_or(self.units),
            (true, 'C') => self.units.max(known.unwrap_or(0)),
            (true, 'R') => known.unwrap_or(0),
            (true, _) => 0,
        }
    }
}

/// Something charged.
#[derive(Debug, Clone, Copy)]
struct Charge {
    /// In time that never goes back, µs.
    real: u64,
    /// By which delivery; 0: debt that was paid.
    fence: u64,
    units: u64,
}

/// One window of a gate.
#[derive(Debug, Default)]
struct Window {
    charges: Vec<Charge>,
    debt: u64,
    /// Up to when debt was looked at, real time.
    looked: u64,
    /// The largest limit that it ever had.
    most: u64,
    /// Deliveries after this fence count.
    since: u64,
    /// The rule that it last belonged to.
    of: String,
    /// Until which age of the world it is certainly remembered.
    kept_until: u64,
    /// It has not been added by an edit, nor forgotten: while nothing has left it, the scripts know the very same.
    exact: bool,
}

impl Window {
    fn in_window(&self, ms: u64, real: u64) -> u64 {
        let counts = |c: &&Charge| c.real + ms * 1000 > real && (c.fence == 0 || c.fence > self.since);
        self.charges.iter().filter(counts).map(|c| c.units).sum()
    }

    /// Pays debt, each part as early as there was room for it.
    fn pay(&mut self, ms: u64, real: u64) {
        let mut at = self.looked;
        while self.debt > 0 {
            let pay = self.debt.min(self.most.saturating_sub(self.in_window(ms, at)));
            if pay > 0 {
                self.debt -= pay;
                self.charges.push(Charge { real: at, fence: 0, units: pay });
            }
            let next = self.charges.iter().map(|c| c.real + ms * 1000).filter(|t| *t > at && *t <= real).min();
            let Some(next) = next else { break };
            at = next;
        }
        self.looked = real;
    }
}

/// A run that was lost, and of which more may be heard.
#[derive(Debug)]
struct Lost {
    until: u64,
    used: Spend,
    charged: Vec<(Taken, u64)>,
}

/// All budgets that were ever used.
#[derive(Debug, Default)]
pub struct Budgets {
    windows: BTreeMap<(String, u64), Window>,
    lost: BTreeMap<(String, u64), Lost>,
    /// All that runs have said that they used.
    pub used: Spend,
    /// The fence before the last edit.
    edited: u64,
}

impl Budgets {
    /// An edit of the book: windows that it adds count from now on.
    pub fn edited(&mut self, fence: u64, added: impl Fn(&str, u64) -> bool) {
        self.edited = fence;
        for ((_, ms), window) in &mut self.windows {
            if added(&window.of, *ms) {
                (window.since, window.exact) = (fence, false);
            }
        }
    }

    /// Charges what a task is expected to use; the reason if that is above a limit.
    pub fn take(
        &mut self,
        (gate, of): (&str, &str),
        budget: &Budgeted,
        (units, fence): (u64, u64),
        (real, age): (u64, u64),
    ) -> Result<(), String> {
        for (limit, ms) in &budget.windows {
            let fresh = || Window { looked: real, exact: true, ..Window::default() };
            let window = self.windows.entry((gate.to_owned(), *ms)).or_insert_with(fresh);
            if window.kept_until > 0 && age >= window.kept_until {
                // Nothing is known any more of what ran before.
                let of = std::mem::take(&mut window.of);
                *window = Window { since: fence.saturating_sub(1), of, looked: real, ..Window::default() };
            }
            if window.of != of {
                window.exact &= window.of.is_empty();
                (window.since, window.of) = (self.edited, of.to_owned());
            }
            window.most = window.most.max(*limit);
            window.pay(*ms, real);
            let before = window.in_window(*ms, real);
            if units > 0 && (window.debt > 0 || before + units > *limit) {
                return Err(format!(
                    "{gate}: {before} of {limit} were charged in {ms} ms, {} were owed, and {units} more are charged",
                    window.debt
                ));
            }
            window.charges.push(Charge { real, fence, units });
            window.kept_until = age + ms + DAY_MS;
        }
        Ok(())
    }

    fn reconcile(&mut self, taken: &Taken, fence: u64, charged: u64, used: u64, (real, age): (u64, u64)) {
        let of_gate = self.windows.iter_mut().filter(|((gate, _), _)| *gate == taken.gate);
        for ((_, ms), window) in of_gate.filter(|(_, w)| fence > w.since && age < w.kept_until && used != charged) {
            window.pay(*ms, real);
            // Its own charge may have been made smaller before.
            let own = window.charges.iter_mut().find(|c| c.fence == fence);
            if used < charged {
                if let Some(own) = own {
                    own.units -= (charged - used).min(own.units);
                }
            } else {
                window.debt += used - charged;
            }
            window.pay(*ms, real);
            window.kept_until = window.kept_until.max(age + ms + DAY_MS);
        }
    }

    /// A run has ended.
    pub fn ended(&mut self, taken: &[Taken], fence: u64, used: Option<Spend>, cut: bool, at: (u64, u64)) {
        self.used = self.used.and(used.unwrap_or_default());
        for of in taken.iter().filter(|t| t.loss != '-') {
            self.reconcile(of, fence, of.units, of.charged(used, cut), at);
        }
    }

    /// A run is lost.
    pub fn lost(&mut self, id: &str, taken: &[Taken], fence: u64, reported: Option<Spend>, at: (u64, u64)) {
        self.ended(taken, fence, Some(reported.unwrap_or_default()), true, at);
        let of_budgets = taken.iter().filter(|t| t.loss != '-');
        let charged: Vec<(Taken, u64)> =
            of_budgets.map(|t| (t.clone(), t.charged(Some(reported.unwrap_or_default()), true))).collect();
        if !charged.is_empty() {
            let lost = Lost { until: at.1 + DAY_MS, used: reported.unwrap_or_default(), charged };
            self.lost.insert((id.to_owned(), fence), lost);
        }
    }

    /// A run that is lost says what it has used; `last`: and that is all. False: nobody knows it.
    pub fn late(&mut self, id: &str, fence: u64, said: Spend, last: bool, at: (u64, u64)) -> bool {
        let Some(mut lost) = self.lost.remove(&(id.to_owned(), fence)).filter(|lost| lost.until > at.1) else {
            return false;
        };
        let used =
            Spend { tokens: said.tokens.max(lost.used.tokens), micro_usd: said.micro_usd.max(lost.used.micro_usd) };
        self.used = self
            .used
            .and(Spend { tokens: used.tokens - lost.used.tokens, micro_usd: used.micro_usd - lost.used.micro_usd });
        for (taken, charged) in &mut lost.charged {
            let now = if last { taken.of(used) } else { taken.of(used).max(*charged) };
            self.reconcile(&taken.clone(), fence, *charged, now, at);
            *charged = now;
        }
        lost.used = used;
        self.lost.insert((id.to_owned(), fence), lost);
        true
    }

    /// What is charged and owed together in each window that nothing can have left yet.
    pub fn exact(&self, real: u64, age: u64) -> impl Iterator<Item = (&str, u64, u64)> {
        let whole = move |(_, w): &(&(String, u64), &Window)| w.exact && age < w.kept_until;
        self.windows.iter().filter(whole).filter_map(move |((gate, ms), w)| {
            let all: u64 = w.charges.iter().map(|c| c.units).sum();
            let stayed = w.charges.iter().all(|c| c.real + ms * 1000 > real);
            stayed.then_some((gate.as_str(), *ms, all + w.debt))
        })
    }

    /// Nothing is known of any window any more: a key was broken.
    pub fn forget(&mut self) {
        self.windows.clear();
    }
}

/// Until when a head may have to wait that fits at all, µs from the look at it.
pub fn longest(budget: &Budgeted) -> u64 {
    budget.windows.iter().map(|(_, ms)| ms * 1000 * 62 / 60).max().unwrap_or(0) + 2_000
}
