//! Something done to many tasks: listed once, in batches, each task at most once, with a summary that says how to go on.

use std::collections::BTreeMap;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use tidemill_common::store::ALTER_TASKS_MAX;
use tidemill_producer::{Client, Deed, Done, TaskId};

use super::Context;
use super::codes::Code;
use super::exit::{Exit, Failure, Outcome};
use super::output::Format;
use super::pick::{Pick, Picked, States, is_stopped};

/// Problems that the summary lists, and that are shown to people.
const PROBLEMS_LISTED: usize = 100;
const PROBLEMS_SHOWN: usize = 20;
/// Ids that a dry run shows, unless it is asked for lines.
const DRY_IDS: usize = 20;

/// The fields, for the help texts.
pub(crate) const FIELDS: &str = "JSON is a summary: dry_run; matched; good; outcomes (how many of each); seconds; problems (the first 100: id, outcome).
With --dry-run: dry_run; matched; ids (the first 20). Ndjson has a line for each task instead: id; outcome (not in a dry run).
Outcomes: done, signalled (it runs, and its worker was told), same (it was so already), not_in_state (or somebody was quicker),
unknown, unfit (it cannot be read, or its payload cannot be changed), too_many_queues. The first three are good.

Over a filter it asks first, or wants --yes. Exit code 0: all good, or none matched; 6: only a part; 1: none. Ctrl-C stops between
two batches and says how to go on; a second one stops at once. The same command again is safe: it does what is left.";

/// What is to be done.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The verb, as in `replay 12 tasks`.
    pub(crate) verb: &'static str,
    /// What is said of those that it was done to.
    pub(crate) done: &'static str,
    pub(crate) states: States,
    pub(crate) deed: Deed,
}

#[derive(Debug, Serialize)]
struct DryView<'a> {
    dry_run: bool,
    matched: usize,
    ids: &'a [TaskId],
}

#[derive(Debug, Serialize)]
struct IdView<'a> {
    id: &'a TaskId,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct DoneView {
    pub(crate) id: TaskId,
    pub(crate) outcome: &'static str,
}

#[derive(Debug, Default, Serialize)]
struct Summary {
    dry_run: bool,
    matched: usize,
    good: usize,
    outcomes: BTreeMap<&'static str, usize>,
    seconds: f64,
    problems: Vec<DoneView>,
}

pub(crate) async fn run(pick: &Pick, plan: &Plan, context: &Context) -> Outcome {
    pick.is_by_id(plan.verb)?;
    let client = context.connect().await?;
    let picked = pick.read(plan.verb, plan.states, &client, context).await?;
    if pick.dry_run {
        return dry(&picked, plan, context);
    }
    pick.confirm(&picked, plan.verb, context).await?;
    all(&client, &picked, plan, context).await
}

/// Shows what would be done.
pub(crate) fn dry(picked: &Picked, plan: &Plan, context: &Context) -> Outcome {
    let (out, ids) = (&context.out, &picked.ids);
    let first = ids.get(..DRY_IDS).unwrap_or(ids);
    match out.format {
        Format::Ndjson => ids.iter().try_for_each(|id| out.json(&IdView { id }))?,
        Format::Json => out.json(&DryView { dry_run: true, matched: ids.len(), ids: first })?,
        Format::Table => {
            out.line(&format!("would {} {} tasks", plan.verb, ids.len()))?;
            first.iter().try_for_each(|id| out.line(&format!("  {id}")))?;
            if ids.len() > first.len() {
                out.line(&format!("  and {} more; --output ndjson shows all", ids.len() - first.len()))?;
            }
        }
    }
    Ok(Exit::Ok)
}

async fn all(client: &Client, picked: &Picked, plan: &Plan, context: &Context) -> Outcome {
    let out = &context.out;
    let began = Instant::now();
    let bar = progress(picked.ids.len(), context);
    let mut summary = Summary { matched: picked.ids.len(), ..Summary::default() };
    let mut before = 0;
    for batch in picked.ids.chunks(ALTER_TASKS_MAX) {
        if is_stopped(context) {
            bar.finish_and_clear();
            let text = format!("interrupted: {}", on(&summary, before, picked, plan));
            return Err(Failure::new(Exit::Interrupted, Code::Interrupted, text));
        }
        let done = client.to_each_from(batch, &plan.deed, before as u64).await.map_err(|error| {
            bar.finish_and_clear();
            let failure = Failure::from(error);
            Failure { text: format!("{}\n  {}", failure.text, on(&summary, before, picked, plan)), ..failure }
        })?;
        for (id, done) in batch.iter().zip(done) {
            summary.add(id, done, context)?;
        }
        before += batch.len();
        bar.set_position(before as u64);
    }
    bar.finish_and_clear();
    summary.seconds = began.elapsed().as_secs_f64();
    close(&summary, plan, context)?;
    if picked.ids.is_empty() && picked.by_filter {
        out.note("No task matches, so there was nothing to do.");
    }
    let text = format!("not all of it could be done: {}", summary.words(plan));
    match summary.good {
        good if good == summary.matched => Ok(Exit::Ok),
        0 if summary.outcomes.get(Done::Unknown.as_str()) == Some(&summary.matched) => {
            Err(Failure::new(Exit::Failure, Code::NothingKnown, "nothing is known of what was named"))
        }
        0 => Err(Failure::new(Exit::Failure, Code::NotInState, text)),
        _ => Err(Failure::new(Exit::PartlyAccepted, Code::Partly, text)),
    }
}

impl Summary {
    fn add(&mut self, id: &TaskId, done: Done, context: &Context) -> std::io::Result<()> {
        let view = DoneView { id: id.clone(), outcome: done.as_str() };
        *self.outcomes.entry(view.outcome).or_default() += 1;
        if context.out.format == Format::Ndjson {
            context.out.json(&view)?;
        }
        if done.is_good() {
            self.good += 1;
        } else if self.problems.len() < PROBLEMS_LISTED {
            self.problems.push(view);
        }
        Ok(())
    }

    fn words(&self, plan: &Plan) -> String {
        let parts = self.outcomes.iter().map(|(outcome, n)| format!("{n} {}", word(outcome, plan.done)));
        let parts: Vec<String> = parts.collect();
        if parts.is_empty() { format!("0 {}", plan.done) } else { parts.join(", ") }
    }
}

/// An outcome for people; `done` is what is said of the good ones.
pub(crate) fn word<'a>(outcome: &'a str, done: &'a str) -> &'a str {
    match outcome {
        "done" => done,
        "signalled" => "told to stop",
        "same" => "as it was to be already",
        "not_in_state" => "not in a state for it",
        "unfit" => "not readable, or its payload cannot be changed so",
        "too_many_queues" => "refused: there are as many queues as there may be",
        other => other,
    }
}

/// Says what all came to.
fn close(summary: &Summary, plan: &Plan, context: &Context) -> std::io::Result<()> {
    let out = &context.out;
    let words = summary.words(plan);
    match out.format {
        Format::Json => out.json(summary)?,
        Format::Ndjson => out.note(&words),
        Format::Table => {
            out.line(&words)?;
            for DoneView { id, outcome } in summary.problems.iter().take(PROBLEMS_SHOWN) {
                out.note(&format!("  {id}: {}", word(outcome, plan.done)));
            }
        }
    }
    Ok(())
}

/// What is done, and how to do the rest.
fn on(summary: &Summary, before: usize, picked: &Picked, plan: &Plan) -> String {
    let so_far = format!("{} of {}: {}", before, summary.matched, summary.words(plan));
    let again = match (&plan.deed, picked.by_filter, picked.ids.get(before)) {
        (Deed::Replay { .. }, true, _) => {
            "the same command, which lists anew; those that died again since are among them, unless --older-than says \
             longer ago than this run"
        }
        (_, true, _) => "the same command, which lists what is left",
        (_, false, Some(id)) => return format!("{so_far}\n  to go on: the same command with the ids from {id} on"),
        _ => "the same command",
    };
    format!("{so_far}\n  to go on: {again}")
}

fn progress(tasks: usize, context: &Context) -> ProgressBar {
    // On one terminal, result lines and a bar would overwrite each other; and what is over at once needs none.
    let crowded = context.out.terminal && context.out.format == Format::Ndjson;
    if context.out.quiet || crowded || tasks <= ALTER_TASKS_MAX {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len}  {eta}");
    // Stderr that is no terminal hides it by itself.
    ProgressBar::with_draw_target(Some(tasks as u64), ProgressDrawTarget::stderr_with_hz(10))
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
