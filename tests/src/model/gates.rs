//! Gates by their promise: a log of admissions, and no idea of how the scripts keep their state.

use std::collections::BTreeMap;

use super::book::Kind;

/// One admission through a rate.
#[derive(Debug, Clone, Copy)]
struct Admission {
    /// When, in time that never goes back, µs.
    real: u64,
    /// By the server's clock of that moment, µs.
    clock: u64,
    units: u64,
}

/// What a rate gate has let through.
#[derive(Debug, Default)]
struct Passed {
    log: Vec<Admission>,
    /// Real time from which on admissions count: a longer window cannot look back beyond its edit.
    since: u64,
    window: u64,
    /// The longest bucket that its state may have been in, µs: how late it may be.
    coarse: u64,
}

/// All gates that were ever used.
#[derive(Debug, Default)]
pub struct Gates {
    slots: BTreeMap<String, u64>,
    rates: BTreeMap<String, Passed>,
}

impl Gates {
    /// Units in use of a slot gate.
    pub fn used(&self, gate: &str) -> u64 {
        self.slots.get(gate).copied().unwrap_or(0)
    }

    pub fn give_back(&mut self, taken: &[(String, u64)]) {
        for (gate, units) in taken.iter().filter(|(g, _)| g.starts_with("s/")) {
            let used = self.slots.entry(gate.clone()).or_default();
            *used = used.saturating_sub(*units);
        }
    }

    /// An edit of the book: from when on a longer window counts.
    pub fn edited(&mut self, real: u64, windows: impl Fn(&str) -> Option<u64>) {
        for (gate, passed) in &mut self.rates {
            if let Some(window) = windows(gate) {
                if window > passed.window {
                    passed.since = real;
                }
                passed.window = window;
            }
        }
    }

    /// Units that went through in the trailing window.
    fn in_window(&self, gate: &str, window: u64, real: u64) -> u64 {
        let Some(passed) = self.rates.get(gate) else { return 0 };
        let counts = |a: &&Admission| a.real + window > real && a.real >= passed.since;
        passed.log.iter().filter(counts).map(|a| a.units).sum()
    }

    /// Takes a gate for a task; the reason if that breaks its promise.
    pub fn take(&mut self, gate: &str, kind: Kind, units: u64, now: u64, real: u64) -> Result<(), String> {
        match kind {
            Kind::Slots(cap) => {
                let used = self.slots.entry(gate.to_owned()).or_default();
                if *used + units > cap {
                    return Err(format!("{gate}: {used} of {cap} slots were in use"));
                }
                *used += units;
            }
            Kind::Rate { limit, window_us } => {
                let before = self.in_window(gate, window_us, real);
                if before + units > limit {
                    return Err(format!(
                        "{gate}: {before} of {limit} units had passed in the window of {window_us} µs, and {units} more did"
                    ));
                }
                let passed = self.rates.entry(gate.to_owned()).or_default();
                passed.window = window_us;
                passed.coarse = passed.coarse.max(window_us / 60);
                passed.log.push(Admission { real, clock: now, units });
            }
        }
        Ok(())
    }

    /// By when so many units fit through a rate at the latest, by the server's clock, if nothing else passes; µs.
    pub fn fits_at(&self, gate: &str, limit: u64, window: u64, units: u64, now: u64) -> u64 {
        let Some(passed) = self.rates.get(gate) else { return now };
        // The newest first: the admission with which the window would be too full must be a window old.
        let mut room = limit.saturating_sub(units);
        for a in passed.log.iter().rev() {
            if a.units > room {
                return (a.clock + window).max(now);
            }
            room -= a.units;
        }
        now
    }

    /// How much later than exact a rate's mark may be, µs.
    pub fn coarse(&self, gate: &str, window: u64) -> u64 {
        self.rates.get(gate).map_or(0, |p| p.coarse).max(window / 60) + 2_000
    }

    /// Nothing runs any more; and of one gate nothing is remembered.
    pub fn forget(&mut self, gate: Option<&str>) {
        self.slots.clear();
        if let Some(gate) = gate {
            self.rates.remove(gate);
        }
    }
}
