//! `producer list`: tasks, by what they are, where they are and how they fared.

use serde::Serialize;
use tidemill_common::history::{DeadReason, PastError};
use tidemill_common::store::Found;
use tidemill_producer::{Client, State, TaskId, reason_of};

use super::exit::{Exit, Outcome};
use super::filter::{FilterArgs, Wanted};
use super::group::last_error;
use super::output::{Format, one_line, printable};
use super::view::{EstimateView, time};
use super::words::{self, span};
use super::{Context, output};

/// Columns that a table's last one has, where the terminal does not say how wide it is.
const DETAIL_WIDTH: usize = 80;
const DETAIL_WIDTH_MIN: usize = 24;

const EXAMPLES: &str = "Examples:
  producer list                                        the first 50 tasks that are met
  producer list --state parked,scheduled --agent gpt4
  producer list --state dead --reason attempts --error 'status 429' --limit 0
  producer list --state queued --older-than 5m --output ndjson | jq -r .id
";

/// The fields of a listed task, for the help text.
pub(crate) const FIELDS: &str = "Fields (JSON; null where there is nothing to say):
  id, state          queued, scheduled, parked, running, succeeded, dead, cancelled, expired
  agent, queue, priority, tenant, order_key, hold_on_dead, key, cost, weight, tokens, cost_usd, max_attempts
                     not of a task of which only the outcome is left, or that cannot be read
  gate               what holds a parked task back
  worker             that runs it
  accepted_ms        when it was accepted, or last replayed (server time, as all times)
  age_ms             how long that is ago; of a task of which only the outcome is left, how long it has ended
  due_ms             before which it does not start, if it was submitted or replayed with a delay
  too_old_ms         when it expires though it may have started
  attempts           runs that counted; of a running task, this one included
  losses, replays    runs lost with their worker; how often it was replayed
  started_ms, ended_ms   of the last run, once it has ended
  reason             why it is dead: attempts, rejected, poison, invalid, never_fits, unknown_agent
  error              why it failed, last time
  errors             the last five, the newest first: at_ms, attempt, text";

/// List tasks, by what they are and where they are
///
/// Those that wait, run or are dead, and those that have ended while their outcome is remembered.
///
/// The dead and the scheduled come in the order of their time, others in no order. It looks at all tasks of the states that are
/// named, and without --state at all tasks that there are.
#[derive(Debug, clap::Args)]
#[command(before_long_help = EXAMPLES, after_long_help = FIELDS)]
pub(crate) struct Args {
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    limit: Limit,
}

/// How many are shown.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Limit {
    /// Show at most so many; 0: all
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    limit: usize,
}

impl Limit {
    pub(crate) fn most(self) -> usize {
        if self.limit == 0 { usize::MAX } else { self.limit }
    }
}

/// A task in a list.
#[derive(Debug, Serialize)]
pub(crate) struct TaskView {
    id: TaskId,
    state: State,
    agent: Option<String>,
    queue: Option<String>,
    priority: Option<&'static str>,
    tenant: Option<String>,
    order_key: Option<String>,
    hold_on_dead: Option<bool>,
    key: Option<String>,
    cost: Option<u32>,
    weight: Option<u16>,
    #[serde(flatten)]
    estimate: EstimateView,
    max_attempts: Option<u16>,
    gate: Option<String>,
    worker: Option<String>,
    accepted_ms: Option<u64>,
    age_ms: Option<u64>,
    due_ms: Option<u64>,
    too_old_ms: Option<u64>,
    attempts: u16,
    losses: u32,
    replays: u16,
    started_ms: Option<u64>,
    ended_ms: Option<u64>,
    reason: Option<DeadReason>,
    error: Option<String>,
    errors: Vec<PastError>,
}

impl TaskView {
    pub(crate) fn of(found: Found, now_ms: u64) -> Self {
        let (reason, error) = (reason_of(&found), last_error(&found));
        let Found { id, state, detail, task, history, outcome } = found;
        let task = task.as_ref();
        let detail = Some(detail).filter(|detail| !detail.is_empty());
        let accepted_ms = task.map(|t| t.seq_us / 1000);
        let ended_ms = outcome.as_ref().and_then(|o| time(o.ended_ms));
        let since = accepted_ms.or(ended_ms);
        Self {
            id,
            state,
            agent: task.map(|t| t.agent.to_string()),
            queue: task.map(|t| t.queue.to_string()),
            priority: task.map(|t| t.priority.as_str()),
            tenant: task.map(|t| t.tenant.clone()).filter(|t| !t.is_empty()),
            order_key: task.and_then(|t| t.order_key.clone()),
            hold_on_dead: task.map(|t| t.hold_on_dead),
            key: task.and_then(|t| t.key.clone()),
            cost: task.map(|t| t.cost),
            weight: task.map(|t| t.weight),
            estimate: task.map_or_else(EstimateView::default, |t| EstimateView::of(t.estimate)),
            max_attempts: task.map(|t| t.max_attempts),
            gate: detail.clone().filter(|_| state == State::Parked),
            worker: detail.filter(|_| state == State::Running),
            accepted_ms,
            age_ms: since.map(|since| now_ms.saturating_sub(since)),
            due_ms: task.and_then(|t| time(t.due_ms)),
            too_old_ms: task.and_then(|t| time(t.too_old_ms)),
            attempts: outcome.as_ref().map_or(history.attempts + u16::from(state == State::Running), |o| o.attempt),
            losses: outcome.as_ref().map_or(history.losses, |o| u32::from(o.losses)),
            replays: history.replays,
            started_ms: outcome.as_ref().and_then(|o| time(o.started_ms)),
            ended_ms,
            reason,
            error: Some(error).filter(|error| !error.is_empty()),
            errors: history.errors,
        }
    }

    /// What there is to say of it in a few words.
    fn detail(&self, now_ms: u64) -> String {
        let mut parts: Vec<String> = [&self.gate, &self.worker].into_iter().flatten().cloned().collect();
        if self.state == State::Scheduled {
            let due = self.due_ms.filter(|due| *due > now_ms);
            parts.push(due.map_or("for another try".to_owned(), |due| format!("due in {}", span(due - now_ms))));
        }
        parts.extend(self.reason.map(|reason| reason.to_string()));
        parts.extend(self.error.clone());
        one_line(&printable(&parts.join(": ")))
    }
}

pub(crate) async fn run(args: &Args, context: &Context) -> Outcome {
    let client = context.connect().await?;
    let wanted = args.filter.wanted(&[], &State::ALL)?;
    show(&client, &wanted, args.limit, context).await?;
    Ok(Exit::Ok)
}

/// Shows what matches; ndjson while it is met.
pub(crate) async fn show(client: &Client, wanted: &Wanted, limit: Limit, context: &Context) -> Outcome {
    let out = &context.out;
    let now_ms = client.counts().await?.now_ms;
    let (most, mut shown, mut views, mut cut, mut failed) = (limit.most(), 0, Vec::new(), false, None);
    client
        .list(&wanted.select, |found| {
            if !wanted.matches(&found) {
                return true;
            }
            if shown == most {
                cut = true;
                return false;
            }
            shown += 1;
            let view = TaskView::of(found, now_ms);
            if out.format == Format::Ndjson {
                failed = out.json(&view).err();
            } else {
                views.push(view);
            }
            failed.is_none()
        })
        .await?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    match out.format {
        Format::Json => out.json(&views)?,
        Format::Table if shown > 0 => table(&views, now_ms, context)?,
        Format::Table | Format::Ndjson => {}
    }
    if shown == 0 {
        out.note("No task matches. `producer queue` counts what there is; without a filter all are listed.");
    } else if cut {
        out.note(&format!("There are more than these {shown}: --limit 0 lists all."));
    }
    Ok(Exit::Ok)
}

fn table(views: &[TaskView], now_ms: u64, context: &Context) -> std::io::Result<()> {
    let header = ["ID", "STATE", "AGENT", "QUEUE", "PRIORITY", "TENANT", "AGE", "ATTEMPT", "DETAIL"];
    let text = |part: &Option<String>| part.as_deref().map_or_else(|| "-".to_owned(), printable);
    let mut rows: Vec<Vec<String>> = views
        .iter()
        .map(|view| {
            vec![
                view.id.to_string(),
                view.state.to_string(),
                text(&view.agent),
                text(&view.queue),
                view.priority.unwrap_or("-").to_owned(),
                text(&view.tenant),
                view.age_ms.map_or_else(|| "-".to_owned(), words::age),
                view.attempts.to_string(),
                view.detail(now_ms),
            ]
        })
        .collect();
    let width = output::last_column(&header, &rows).unwrap_or(DETAIL_WIDTH).max(DETAIL_WIDTH_MIN);
    for (row, view) in rows.iter_mut().zip(views) {
        row[1] = context.out.paint(words::paint(Some(view.state)), &row[1]);
        if let Some(detail) = row.last_mut() {
            *detail = output::cut(detail, width);
        }
    }
    context.out.table(&header, rows)
}
