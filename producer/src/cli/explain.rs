//! `producer explain`: a task's state in words, or what a code means.

use serde::Serialize;
use tidemill_common::book::needs::{Need, Subject};
use tidemill_common::store::{Filter, Pausable, Pause};
use tidemill_producer::{Book, Client, Counts, Select, State, Status, TaskId};

use super::codes::{Code, Entry, looks_like_one};
use super::exit::{Exit, Failure, Outcome};
use super::output::Out;
use super::view::{StatusView, look};
use super::words::Around;
use super::{Context, pause, words};

/// How the gate of an order key begins.
const ORDER: &str = "order:";

const EXAMPLES: &str = "Examples:
  producer explain ID             where a task is, what holds it back, and what to do
  producer explain TM-0102        what the code of a failure means
";

/// Say in words where a task is and what holds it back, or what a code means
///
/// JSON: the fields of `status`, and `words`, a list of sentences. Exit code 1 when nothing is known of the task. Of a code: code,
/// title, means, todo; no server is asked. Of a task whose id looks like a code, `status` tells.
#[derive(Debug, clap::Args)]
#[command(before_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The task's id, or a code such as TM-0102
    #[arg(value_name = "ID|CODE")]
    what: String,
}

impl Args {
    /// The code, if it is one that is to be explained.
    pub(crate) fn code(&self) -> Option<&str> {
        looks_like_one(&self.what).then_some(self.what.as_str())
    }
}

#[derive(Debug, Serialize)]
struct View {
    #[serde(flatten)]
    status: StatusView,
    words: Vec<String>,
}

#[derive(Debug, Serialize)]
struct CodeView {
    code: String,
    title: &'static str,
    means: &'static str,
    todo: &'static str,
}

/// Shows what a code means.
pub(crate) fn show_code(code: &str, out: &Out) -> Outcome {
    let entry: &'static Entry = code.parse().map_err(|text: String| Failure::usage(Code::Arguments, text))?;
    let Entry { code, title, means, todo } = *entry;
    if out.is_table() {
        out.line(&format!("{code}: {title}\n\n{means}\n\nWhat to do: {todo}"))?;
    } else {
        out.json(&CodeView { code: code.to_string(), title, means, todo })?;
    }
    Ok(Exit::Ok)
}

/// What is to be known beside a task's status. A dead head is looked for only where one may be.
pub(crate) async fn around(client: &Client, id: &TaskId, status: &Status, counts: &Counts) -> Result<Around, Failure> {
    let mut around = Around { now_ms: counts.now_ms, workers: counts.workers, ..Around::default() };
    around.pauses = paused(client, id, status, counts.now_ms).await?;
    let gate = status.gate.as_deref().filter(|_| status.state == Some(State::Parked));
    if let Some(gate) = gate {
        around.gate = Some(client.gate(gate, id).await?);
        around.need = need(client, id, status, gate).await?;
    }
    let Some(key) = gate.and_then(|gate| gate.strip_prefix(ORDER)) else { return Ok(around) };
    let select = Select { filter: Filter { ordered: true, ..Filter::default() }, ..Select::state(State::Dead) };
    client
        .list(&select, |found| {
            let holds = found.task.is_some_and(|task| task.hold_on_dead && task.order_key.as_deref() == Some(key));
            if holds {
                around.held_by = Some(found.id);
            }
            !holds
        })
        .await?;
    Ok(around)
}

/// What the book in force says of the gate.
async fn need(client: &Client, id: &TaskId, status: &Status, gate: &str) -> Result<Option<Need>, Failure> {
    let (Some(task), true) = (super::view::head(id, status), gate.starts_with("s/") || gate.starts_with("r/")) else {
        return Ok(None);
    };
    let Some(book) = client.book().await?.and_then(|kept| Book::parse(&kept.text).ok()) else { return Ok(None) };
    let subject = Subject { queue: task.queue.as_str(), agent: task.agent.as_str(), tenant: &task.tenant };
    Ok(book.needs(subject).into_iter().find(|need| need.gate == gate))
}

/// The pauses that hold it back: also those that it has not met yet, since a paused queue is not looked at.
async fn paused(client: &Client, id: &TaskId, status: &Status, now_ms: u64) -> Result<Vec<Pause>, Failure> {
    if !matches!(status.state, Some(State::Queued | State::Scheduled | State::Parked)) {
        return Ok(Vec::new());
    }
    let task = super::view::head(id, status);
    let holds = |pause: &Pause| match (&pause.what, &task) {
        (Pausable::All, _) => true,
        (_, None) => false,
        (Pausable::Queue(queue), Some(task)) => *queue == task.queue,
        (Pausable::Agent(agent), Some(task)) => *agent == task.agent,
        (Pausable::Tenant(tenant), Some(task)) => *tenant == task.tenant,
    };
    Ok(pause::in_force(client.pauses().await?, now_ms).into_iter().filter(holds).collect())
}

pub(crate) async fn run(args: &Args, context: &Context) -> Outcome {
    let id: &TaskId =
        &args.what.parse().map_err(|e| Failure::usage(Code::NoId, format!("{:?} is no id: {e}", args.what)))?;
    let client = context.connect().await?;
    let looks = tokio::try_join!(look(&client, id), client.counts());
    let ((status, unread), counts) = looks.map_err(Failure::from)?;
    let sentences = words::explain(id, &status, &around(&client, id, &status, &counts).await?);
    if context.out.is_table() {
        let state = context.out.paint(words::paint(status.state), super::view::state_name(status.state));
        context.out.line(&format!("{id}  {state}\n{}", sentences.join("\n")))?;
    } else {
        context.out.json(&View { status: StatusView::of(id, &status).unread(unread), words: sentences })?;
    }
    Ok(if status.state.is_some() { Exit::Ok } else { Exit::Failure })
}
