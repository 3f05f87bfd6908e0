//! Gates by their promise: a log of admissions, and no idea of how the scripts keep their state.

use std::collections::BTreeMap;

use super::book::{Kind, Paced, Rule};
use super::budgets::{Budgets, Taken};

/// One admission through a rate.
#[derive(Debug, Clone, Copy)]
struct Admission {
    /// When, in time that never goes back, µs.
    real: u64,
    /// By the server's clock of that moment, µs.
    clock: u64,
    units: u64,
}

/// What has gone through one window of a rate gate.
#[derive(Debug, Default)]
struct Passed {
    log: Vec<Admission>,
    /// Real time from which on admissions count: a window cannot look back beyond the edit that added it.
    since: u64,
    /// The rule that it last belonged to.
    of: String,
    /// Where in the log pacing begins: after the last edit, and the last time that the clock went back.
    paced_from: usize,
}

/// All gates that were ever used.
#[derive(Debug, Default)]
pub struct Gates {
    slots: BTreeMap<String, u64>,
    /// By gate and window, µs.
    rates: BTreeMap<(String, u64), Passed>,
    /// When the book was last edited, in real time.
    edited: u64,
    pub budgets: Budgets,
}

impl Passed {
    /// Units that went through in the trailing window.
    fn in_window(&self, window: u64, real: u64) -> u64 {
        let counts = |a: &&Admission| a.real + window > real && a.real >= self.since;
        self.log.iter().filter(counts).map(|a| a.units).sum()
    }

    /// Whether so many more, now, keep the pace: over any stretch no more than a burst, or the last of them if it is larger, and
    /// what the limit lets through in that time.
    fn keeps_pace(&mut self, burst: u64, limit: u64, window: u64, units: u64, now: u64) -> bool {
        if self.log.last().is_some_and(|last| last.clock > now) {
            self.paced_from = self.log.len();
        }
        let mut sum = u128::from(units);
        self.log[self.paced_from.min(self.log.len())..].iter().rev().all(|a| {
            sum += u128::from(a.units);
            let allowed = u128::from(now - a.clock + 1) * u128::from(limit);
            sum.saturating_sub(u128::from(burst.max(units))) * u128::from(window) <= allowed
        })
    }
}

impl Gates {
    /// Units in use of a slot gate.
    pub fn used(&self, gate: &str) -> u64 {
        self.slots.get(gate).copied().unwrap_or(0)
    }

    pub fn give_back(&mut self, taken: &[Taken]) {
        for of in taken.iter().filter(|t| t.gate.starts_with("s/")) {
            let used = self.slots.entry(of.gate.clone()).or_default();
            *used = used.saturating_sub(of.units);
        }
    }

    /// An edit of the book: a window that it adds counts from now on.
    pub fn edited(&mut self, real: u64, before: &BTreeMap<String, Paced>, after: &BTreeMap<String, Paced>) {
        let has = |rates: &BTreeMap<String, Paced>, of: &str, window: u64| {
            rates.get(of).is_some_and(|rate| rate.windows.iter().any(|w| w.1 == window))
        };
        self.edited = real;
        for ((_, window), passed) in &mut self.rates {
            passed.paced_from = passed.log.len();
            if has(after, &passed.of, *window) && !has(before, &passed.of, *window) {
                passed.since = real;
            }
        }
    }

    /// Takes a gate for a task; the reason if that breaks its promise.
    pub fn take(&mut self, rule: &Rule, units: u64, fence: u64, now: u64, at: (u64, u64)) -> Result<(), String> {
        let real = at.0;
        let gate = &rule.gate;
        match &rule.kind {
            Kind::Slots(cap) => {
                let used = self.slots.entry(gate.to_owned()).or_default();
                if *used + units > *cap {
                    return Err(format!("{gate}: {used} of {cap} slots were in use, and {units} more are"));
                }
                *used += units;
            }
            Kind::Budget(budget) => self.budgets.take((gate, &rule.of), budget, (units, fence), at)?,
            Kind::Rate(rate) => {
                for (i, (limit, window)) in rate.windows.iter().enumerate() {
                    let passed = self.rates.entry((gate.clone(), *window)).or_default();
                    if passed.of != rule.of {
                        // A tenant has changed its tier: the window of the new one counts from that edit.
                        (passed.since, passed.of, passed.paced_from) = (self.edited, rule.of.clone(), passed.log.len());
                    }
                    let before = passed.in_window(*window, real);
                    if before + units > *limit {
                        return Err(format!(
                            "{gate}: {before} of {limit} units had passed in the window of {window} µs, and {units} more did"
                        ));
                    }
                    if let Some(burst) = rate.burst.filter(|_| i == 0)
                        && !passed.keeps_pace(burst, *limit, *window, units, now)
                    {
                        return Err(format!(
                            "{gate}: {units} units passed faster than {limit} a {window} µs after a burst of {burst}"
                        ));
                    }
                    passed.log.push(Admission { real, clock: now, units });
                }
            }
        }
        Ok(())
    }

    /// By when so many units fit through a rate at the latest, by the server's clock, if nothing else passes; µs.
    pub fn fits_at(&self, gate: &str, rate: &Paced, units: u64, now: u64) -> u64 {
        let of_window = |(limit, window): &(u64, u64)| {
            let Some(passed) = self.rates.get(&(gate.to_owned(), *window)) else { return now };
            // The newest first: the admission with which the window would be too full must be a window old.
            let mut room = limit.saturating_sub(units);
            for a in passed.log.iter().rev() {
                if a.units > room {
                    return (a.clock + window).max(now);
                }
                room -= a.units;
            }
            now
        };
        // What pacing spreads, it spreads over its window.
        let paced = rate.burst.and(rate.windows.first()).map_or(now, |(_, window)| now + window);
        rate.windows.iter().map(of_window).max().unwrap_or(now).max(paced)
    }

    /// Nothing runs any more; and of one state nothing is remembered.
    pub fn forget(&mut self, state: Option<&str>) {
        self.slots.clear();
        if let Some(state) = state {
            self.rates.retain(|(gate, window), _| format!("{gate}#{}", window / 1000) != state);
            self.budgets.forget();
        }
    }
}

/// How much later than exact a rate's mark may be, µs: a bucket.
pub fn coarse(rate: &Paced) -> u64 {
    rate.windows.iter().map(|w| w.1 / 60).max().unwrap_or(0) + 2_000
}
