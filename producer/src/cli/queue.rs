//! `producer queue`: what waits, runs and has ended.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use tidemill_common::store::{Pausable, Pause};
use tidemill_producer::{Client, Counts, Error, Priority};

use super::Context;
use super::exit::{Exit, Outcome};
use super::facts::Span;
use super::output::{Format, Paint};
use super::pause;

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
/// JSON fields: queues (name, urgent, high, normal, low, waiting, paused), running, scheduled, parked, dead, workers, idle, ended (by
/// outcome, since the beginning), pauses (as those of `pause --list`), now_ms (server time). Waiting counts queued, scheduled and
/// parked tasks. A queue is paused when it is itself, or everything is.
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
    pauses: Vec<pause::View>,
    now_ms: u64,
    #[serde(skip)]
    held: Vec<String>,
}

#[derive(Debug, Default, Serialize)]
struct QueueView {
    name: String,
    urgent: u64,
    high: u64,
    normal: u64,
    low: u64,
    waiting: u64,
    paused: bool,
}

impl View {
    fn of(counts: &Counts, pauses: &[Pause]) -> Self {
        let mut queues: BTreeMap<&str, QueueView> = BTreeMap::new();
        // A paused queue is shown though nothing of it waits: it is where the next task would wait.
        for pause in pauses {
            if let Pausable::Queue(queue) = &pause.what {
                queues.entry(queue.as_str()).or_default().paused = true;
            }
        }
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
        let all = pauses.iter().any(|pause| pause.what == Pausable::All);
        let one = |(name, queue): (&str, QueueView)| QueueView {
            name: name.to_owned(),
            paused: queue.paused || all,
            ..queue
        };
        let queues = queues.into_iter().map(one).collect();
        let Counts { running, scheduled, parked, dead, workers, idle, now_ms, .. } = *counts;
        let ended = counts.ended.clone();
        let held = pauses.iter().map(|held| pause::sentence(held, now_ms)).collect();
        let pauses = pauses.iter().map(|pause| pause::View::of(pause, now_ms)).collect();
        Self { queues, running, scheduled, parked, dead, workers, idle, ended, pauses, now_ms, held }
    }

    fn is_empty(&self) -> bool {
        self.running == 0 && self.queues.iter().all(|queue| queue.waiting == 0)
    }
}

pub(crate) async fn run(args: &Args, context: &Context) -> Outcome {
    let client = context.connect().await?;
    let Some(every) = args.watch else {
        return show(&look(&client).await?, context);
    };
    watch(&client, every.0.max(WATCH_EVERY_MIN), context).await
}

async fn look(client: &Client) -> Result<View, Error> {
    let (counts, pauses) = tokio::try_join!(client.counts(), client.pauses())?;
    Ok(View::of(&counts, &pause::in_force(pauses, counts.now_ms)))
}

async fn watch(client: &Client, every: Duration, context: &Context) -> Outcome {
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let view = look(client).await?;
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
    if view.is_empty() && view.held.is_empty() {
        out.line(
            "Nothing waits and nothing runs. Hand a task in:\n  producer submit echo '{\"hi\":\"there\"}' --wait",
        )?;
    } else {
        let row = |q: &QueueView| {
            let mut row = vec![q.name.clone()];
            row.extend([q.urgent, q.high, q.normal, q.low, q.waiting].map(|n| n.to_string()));
            row.push(if q.paused { out.paint(Paint::Care, "paused") } else { String::new() });
            row
        };
        out.table(
            &["QUEUE", "URGENT", "HIGH", "NORMAL", "LOW", "WAITING", "HELD"],
            view.queues.iter().map(row).collect(),
        )?;
    }
    let dead = format!("{} dead", view.dead);
    let dead = if view.dead > 0 { out.paint(Paint::Bad, &dead) } else { dead };
    let workers = format!("{} workers ({} idle)", view.workers, view.idle);
    let workers = if view.workers == 0 && !view.is_empty() { out.paint(Paint::Care, &workers) } else { workers };
    let View { running, scheduled, parked, .. } = view;
    out.line(&format!("{running} running  {scheduled} scheduled  {parked} parked  {dead}  {workers}"))?;
    view.held.iter().try_for_each(|held| out.line(&out.paint(Paint::Care, held)))?;
    if !view.ended.is_empty() {
        let ended: Vec<String> = view.ended.iter().map(|(outcome, count)| format!("{count} {outcome}")).collect();
        out.line(&out.paint(Paint::Faint, &format!("ended so far: {}", ended.join(", "))))?;
    }
    Ok(Exit::Ok)
}
