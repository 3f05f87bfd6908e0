//! `producer book apply` and `diff`: what would change, and that it does.

use std::collections::BTreeMap;

use serde::Serialize;
use tidemill_producer::book::{BookEdit, Plan};
use tidemill_producer::{Applied, Book, Client};

use super::file::File;
use super::{BOOK, EXAMPLES, rules};
use crate::cli::Context;
use crate::cli::codes::Code;
use crate::cli::exit::{Exit, Failure, Outcome};
use crate::cli::output::{Out, Paint, printable};

/// Put a book in force, at once for all workers
#[derive(Debug, clap::Args)]
#[command(before_long_help = EXAMPLES, after_long_help = BOOK)]
pub(crate) struct Args {
    #[command(flatten)]
    file: File,
    /// Only say what would change, and which waiting tasks it touches
    #[arg(long)]
    dry_run: bool,
    /// Why, for whoever looks at the history
    #[arg(long, value_name = "TEXT", default_value = "")]
    note: String,
}

/// Show what a book would change, also for what waits
#[derive(Debug, clap::Args)]
#[command(before_long_help = EXAMPLES)]
pub(crate) struct Diff {
    #[command(flatten)]
    file: File,
}

#[derive(Debug, Serialize)]
struct AppliedView {
    outcome: &'static str,
    revision: u64,
    in_force: Option<u64>,
}

#[derive(Debug, Serialize)]
struct PlanView<'a> {
    revision: u64,
    in_force: u64,
    rules: Vec<RuleView<'a>>,
    tenants_with_another_tier: u64,
    waiting: u64,
    touched: BTreeMap<&'a str, u64>,
    stranded: u64,
    stranded_first: Vec<StrandedView<'a>>,
}

#[derive(Debug, Serialize)]
struct RuleView<'a> {
    rule: &'a str,
    kind: &'a str,
    before: Option<&'a str>,
    after: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct StrandedView<'a> {
    id: &'a str,
    gate: &'a str,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Outcome {
    let (book, text) = args.file.read()?;
    for warning in book.warnings() {
        context.out.warn(&format!("warning: {warning}"));
    }
    let client = context.connect().await?;
    if args.dry_run {
        return planned(&client, &book, &context.out).await;
    }
    let edit = BookEdit { follows: None, note: &args.note };
    let applied = client.apply_book_as(&book, text, edit).await?;
    said(applied, book.revision, &context.out)
}

pub(crate) async fn diff(args: &Diff, context: &Context) -> Outcome {
    let (book, _) = args.file.read()?;
    planned(&context.connect().await?, &book, &context.out).await
}

/// Says what became of a book.
pub(super) fn said(applied: Applied, revision: u64, out: &Out) -> Outcome {
    let (outcome, in_force, words) = match applied {
        Applied::Applied => ("applied", revision, format!("revision {revision} is in force")),
        Applied::Same => ("same", revision, format!("revision {revision} was in force already")),
        Applied::Conflict => (
            "conflict",
            revision,
            format!("revision {revision} is in force with other content: give the new one a higher number"),
        ),
        Applied::Older(newer) => (
            "older",
            newer,
            format!("revision {newer} is in force, which is newer than {revision}: give the new one a higher number"),
        ),
        Applied::Moved(other) => (
            "moved",
            other,
            format!("revision {other} came in between; nothing was changed: look at it, and say it again"),
        ),
    };
    if out.is_table() {
        if matches!(outcome, "applied" | "same") {
            out.line(&words)?;
        }
    } else {
        out.json(&AppliedView { outcome, revision, in_force: Some(in_force) })?;
    }
    match outcome {
        "applied" | "same" => Ok(Exit::Ok),
        _ => Err(Failure::new(Exit::Refused, Code::BookNewer, words)),
    }
}

async fn planned(client: &Client, book: &Book, out: &Out) -> Outcome {
    let kept = client.book().await?;
    let before = rules(kept.as_ref())?;
    let plan = client.plan_book(&before, book).await?;
    if !out.is_table() {
        out.json(&view(&plan, book.revision, before.revision))?;
        return Ok(Exit::Ok);
    }
    for line in lines(&plan, book.revision, before.revision, out) {
        out.line(&line)?;
    }
    Ok(Exit::Ok)
}

fn view(plan: &Plan, revision: u64, in_force: u64) -> PlanView<'_> {
    PlanView {
        revision,
        in_force,
        rules: plan
            .rules
            .iter()
            .map(|r| RuleView { rule: &r.rule, kind: r.kind, before: r.before.as_deref(), after: r.after.as_deref() })
            .collect(),
        tenants_with_another_tier: plan.tenants,
        waiting: plan.waiting,
        touched: plan.touched.iter().map(|(agent, n)| (agent.as_str(), *n)).collect(),
        stranded: plan.stranded,
        stranded_first: plan.stranded_first.iter().map(|(id, gate)| StrandedView { id: id.as_str(), gate }).collect(),
    }
}

fn lines(plan: &Plan, revision: u64, in_force: u64, out: &Out) -> Vec<String> {
    let now = if in_force == 0 { "no book is in force".to_owned() } else { format!("revision {in_force} is in force") };
    let mut lines = vec![format!("revision {revision}; {now}")];
    if plan.is_empty() {
        lines.push("no rule changes".into());
    }
    for r in &plan.rules {
        let rule = printable(&r.rule);
        lines.push(match (&r.before, &r.after) {
            (Some(before), Some(after)) => out.paint(Paint::Care, &format!("~ {rule}: {} {before} -> {after}", r.kind)),
            (None, Some(after)) => out.paint(Paint::Good, &format!("+ {rule}: {} {after}", r.kind)),
            (before, None) => {
                out.paint(Paint::Bad, &format!("- {rule}: {} {}", r.kind, before.as_deref().unwrap_or("")))
            }
        });
    }
    if plan.tenants > 0 {
        lines.push(format!("~ {} tenants get another tier", plan.tenants));
    }
    let touched: u64 = plan.touched.values().sum();
    lines.push(format!("{} tasks wait; for {touched} of them the limits change", plan.waiting));
    for (agent, n) in plan.touched.iter().take(10) {
        lines.push(format!("    {n} of {agent}"));
    }
    if plan.stranded > 0 {
        let text = format!("{} could never pass and would be dead at their turn (never_fits):", plan.stranded);
        lines.push(out.paint(Paint::Bad, &text));
        lines.extend(plan.stranded_first.iter().map(|(id, gate)| format!("    {id} at {}", printable(gate))));
    }
    lines
}
