//! Running histories, and making a failing one short.

use std::fmt;

use super::Violation;
use super::plan::{Plan, Sort};
use super::rng::Rng;
use super::steps::Play;
use super::world::{Host, Watch, World};

impl Done {
    /// Adds another run.
    pub fn add(&mut self, other: Self) {
        self.histories += other.histories;
        self.calls += other.calls;
        self.checks += other.checks;
        self.tasks += other.tasks;
    }
}

/// What a run did.
#[derive(Debug, Clone, Copy, Default)]
pub struct Done {
    pub histories: u64,
    pub calls: u64,
    pub checks: u64,
    pub tasks: u64,
}

/// A history that broke the promise.
pub struct Failure {
    pub seed: u64,
    pub sort: Sort,
    pub why: String,
    /// The steps that are enough for it.
    pub steps: Vec<usize>,
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps: Vec<String> = self.steps.iter().map(usize::to_string).collect();
        writeln!(f, "seed {}: {}", self.seed, self.why)?;
        writeln!(f, "again: SORT={:?} SEED={} STEPS={}", self.sort, self.seed, steps.join(","))?;
        let n = self.trace.len();
        for (i, line) in self.trace.iter().enumerate() {
            if n <= 2 * SHOWN || i < SHOWN || i + SHOWN >= n {
                writeln!(f, "  {line}")?;
            } else if i == SHOWN {
                writeln!(f, "  … {} lines …", n - 2 * SHOWN)?;
            }
        }
        Ok(())
    }
}

/// How long to look for a shorter history.
const SHORTEN_FOR: std::time::Duration = std::time::Duration::from_secs(30);

/// Lines of a failing history that are shown, from each end.
const SHOWN: usize = 150;

/// One history.
fn play(host: &mut Host, plan: &Plan, watch: Watch) -> (Result<Done, Violation>, Vec<String>) {
    let world = match World::new(host, plan.style, watch, plan.seed) {
        Ok(world) => world,
        Err(e) => return (Err(e), Vec::new()),
    };
    let mut play = Play::new(world);
    let result = play.steps(plan).and_then(|()| play.drain(&mut Rng::new(plan.seed ^ 0xD7A1)));
    if result.is_err() && watch.trace {
        let shard = play.w.snapshot().map(|s| s.shown()).unwrap_or_default();
        play.w.trace.extend(shard);
    }
    let done = Done { histories: 1, calls: play.w.calls, checks: play.w.checked, tasks: play.w.r.tasks.len() as u64 };
    (result.map(|()| done), std::mem::take(&mut play.w.trace))
}

/// Runs the history of a seed. When it fails and is to be made `short`, it is run again with fewer and fewer steps, looking at
/// every one.
///
/// # Errors
/// The shortest failing history that was found.
pub fn history(host: &mut Host, sort: Sort, seed: u64, checks: u64, short: bool) -> Result<Done, Box<Failure>> {
    let plan = Plan::new(sort, seed);
    match play(host, &plan, Watch { checks, trace: false }).0 {
        Ok(done) => Ok(done),
        Err(why) if short => Err(Box::new(shorten(host, &plan, why))),
        Err(why) => Err(Box::new(Failure { seed, sort, why: why.0, steps: Vec::new(), trace: Vec::new() })),
    }
}

/// Runs only some steps of a seed's history, all of them looked at and written down.
///
/// # Errors
/// When it fails.
pub fn only(host: &mut Host, sort: Sort, seed: u64, steps: Option<Vec<usize>>) -> Result<Done, Box<Failure>> {
    let plan = Plan::new(sort, seed);
    let steps = steps.unwrap_or_else(|| (0..plan.steps.len()).collect());
    let (result, trace) = play(host, &plan.only(&steps), Watch { checks: 100, trace: true });
    result.map_err(|why| Box::new(Failure { seed, sort, why: why.0, steps, trace }))
}

/// Leaves out steps while it still fails, in ever smaller parts.
fn shorten(host: &mut Host, plan: &Plan, first: Violation) -> Failure {
    let close = Watch { checks: 100, trace: false };
    let mut kept: Vec<usize> = (0..plan.steps.len()).collect();
    let mut why = first;
    let began = std::time::Instant::now();
    let may_go_on = || began.elapsed() < SHORTEN_FOR;
    let mut part = kept.len() / 2;
    while part > 0 && may_go_on() {
        let mut from = 0;
        let mut shorter = false;
        while from < kept.len() && may_go_on() {
            let mut fewer = kept.clone();
            fewer.drain(from..(from + part).min(fewer.len()));
            match play(host, &plan.only(&fewer), close).0 {
                Err(e) => {
                    (kept, why, shorter) = (fewer, e, true);
                }
                Ok(_) => from += part,
            }
        }
        if !shorter || part > 1 {
            part /= 2;
        }
    }
    let (result, trace) = play(host, &plan.only(&kept), Watch { checks: 100, trace: true });
    let why = result.err().map_or_else(|| format!("{} (only when not every call is looked at)", why.0), |e| e.0);
    Failure { seed: plan.seed, sort: plan.sort, why, steps: kept, trace }
}
