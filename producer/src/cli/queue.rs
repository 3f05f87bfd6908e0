//! `producer queue`: what waits, runs and has ended.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use tidemill_producer::{Client, Counts, Priority};

use super::Context;
use super::exit::{Exit, Outcome};
use super::facts::Span;
use super::output::{Format, Paint};

/// Looking more often than this would be work for its own sake.
const WATCH_EVERY_MIN: Duration = Duration::from_millis(100);
/// Clears a terminal and goes to its top.
const CLEAR: &str = "\u{1b}[2J\u{1b}[H";

const EXAMPLES: &str = "Examples:
  producer queue
  producer queue --watch
  producer queue --output json | jq .parked
";

/// What waits, runs and has ended
///
/// JSON fields: queues (name, urgent, high, normal, low, waiting), running, scheduled, parked, dead, workers, idle, ended (by
/// outcome, since the beginning), now_ms (server time). Waiting counts queued, scheduled and parked tasks.
#[derive(Debug, clap::Args)]
#[command(before_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Look again and again, every 2s or as often as said; in JSON, a line each time
    #[arg(long, short, value_name = "DURATION", num_args = 0..=1, require_equals = true, default_missing_value = "2s")]
    watch: Option<Span>,
}

#[derive(Debug, Serialize)]
struct View {
    queues: Vec<QueueView>,
    running: u64,
    scheduled: u64,
    parked: u64,
    dead: u64,
    workers: u64,
    idle: u64,
    ended: BTreeMap<String, u64>,
    now_ms: u64,
}

#[derive(Debug, Default, Serialize)]
struct QueueView {
    name: String,
    urgent: u64,
    high: u64,
    normal: u64,
    low: u64,
    waiting: u64,
}

impl View {
    fn of(counts: &Counts) -> Self {
        let mut queues: BTreeMap<&str, QueueView> = BTreeMap::new();
        for ((name, priority), count) in &counts.waiting {
            let queue = queues.entry(name).or_default();
            queue.waiting += count;
            match Priority::from_value(*priority) {
                Some(Priority::Urgent) => queue.urgent += count,
                Some(Priority::High) => queue.high += count,
                Some(Priority::Normal) => queue.normal += count,
                Some(Priority::Low) => queue.low += count,
                None => {}
            }
        }
        let queues = queues.into_iter().map(|(name, queue)| QueueView { name: name.to_owned(), ..queue }).collect();
        let Counts { running, scheduled, parked, dead, workers, idle, now_ms, .. } = *counts;
        Self { queues, running, scheduled, parked, dead, workers, idle, ended: counts.ended.clone(), now_ms }
    }

    fn is_empty(&self) -> bool {
        self.running == 0 && self.queues.iter().all(|queue| queue.waiting == 0)
    }
}

pub(crate) async fn run(args: &Args, context: &Context) -> Outcome {
    let client = context.connect().await?;
    let Some(every) = args.watch else {
        return show(&View::of(&client.counts().await?), context);
    };
    watch(&client, every.0.max(WATCH_EVERY_MIN), context).await
}

async fn watch(client: &Client, every: Duration, context: &Context) -> Outcome {
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let view = View::of(&client.counts().await?);
        match context.out.format {
            Format::Table => {
                if context.out.terminal {
                    context.out.line(CLEAR)?;
                }
                show(&view, context)?;
            }
            // A list without an end is a line each.
            Format::Json | Format::Ndjson => {
                context.out.line(&serde_json::to_string(&view).map_err(std::io::Error::from)?)?
            }
        }
    }
}

fn show(view: &View, context: &Context) -> Outcome {
    let out = &context.out;
    if !out.is_table() {
        out.json(view)?;
        return Ok(Exit::Ok);
    }
    if view.is_empty() {
        out.line(
            "Nothing waits and nothing runs. Hand a task in:\n  producer submit echo '{\"hi\":\"there\"}' --wait",
        )?;
    } else {
        let row = |q: &QueueView| [q.urgent, q.high, q.normal, q.low, q.waiting].map(|n| n.to_string());
        let rows = view.queues.iter().map(|q| std::iter::once(q.name.clone()).chain(row(q)).collect()).collect();
        out.table(&["QUEUE", "URGENT", "HIGH", "NORMAL", "LOW", "WAITING"], rows)?;
    }
    let dead = format!("{} dead", view.dead);
    let dead = if view.dead > 0 { out.paint(Paint::Bad, &dead) } else { dead };
    let workers = format!("{} workers ({} idle)", view.workers, view.idle);
    let workers = if view.workers == 0 && !view.is_empty() { out.paint(Paint::Care, &workers) } else { workers };
    let View { running, scheduled, parked, .. } = view;
    out.line(&format!("{running} running  {scheduled} scheduled  {parked} parked  {dead}  {workers}"))?;
    if !view.ended.is_empty() {
        let ended: Vec<String> = view.ended.iter().map(|(outcome, count)| format!("{count} {outcome}")).collect();
        out.line(&out.paint(Paint::Faint, &format!("ended so far: {}", ended.join(", "))))?;
    }
    Ok(Exit::Ok)
}
