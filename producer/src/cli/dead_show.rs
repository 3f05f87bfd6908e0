//! `producer dead show`: all that is kept of one task.

use std::io::Write as _;

use serde::Serialize;
use tidemill_common::store;
use tidemill_common::task::Task;
use tidemill_producer::{Error, TaskId};

use super::codes::Code;
use super::exit::{Exit, Failure, Outcome, chain};
use super::output::printable;
use super::view::{EstimateView, PayloadView, StatusView, look};
use super::{Context, explain, words};

const EXAMPLES: &str = "Examples:
  producer dead show ID
  producer dead show ID --raw > payload.bin      the payload, byte for byte
  producer dead show ID --output json | jq .payload
";

const FIELDS: &str = "Fields (JSON): those of `status`, and
  max_attempts, cost, weight, tokens, cost_usd, depth, order_key, hold_on_dead, key, accepted_ms, too_old_ms, timeout_ms, parent
  payload           as JSON; or payload_text, or payload_hex; none of them when it cannot be read";

/// All of one task: facts, payload, its last errors, its outcome
///
/// Of one that waits or runs as well; of one that ended otherwise only the outcome is kept. Exit code 1 when nothing is known of it.
#[derive(Debug, clap::Args)]
#[command(before_long_help = EXAMPLES, after_long_help = FIELDS)]
pub(crate) struct Args {
    /// The task's id
    #[arg(value_name = "ID")]
    id: TaskId,
    /// Only its payload, byte for byte
    #[arg(long)]
    raw: bool,
}

#[derive(Debug, Serialize)]
struct View {
    #[serde(flatten)]
    status: StatusView,
    max_attempts: Option<u16>,
    cost: Option<u32>,
    weight: Option<u16>,
    #[serde(flatten)]
    estimate: EstimateView,
    depth: Option<u8>,
    order_key: Option<String>,
    hold_on_dead: Option<bool>,
    key: Option<String>,
    accepted_ms: Option<u64>,
    too_old_ms: Option<u64>,
    timeout_ms: Option<u64>,
    parent: Option<TaskId>,
    #[serde(flatten)]
    payload: PayloadView,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Outcome {
    let (id, out) = (&args.id, &context.out);
    let client = context.connect().await?;
    let task = match client.task(id).await {
        Err(Error::Store(store::Error::Reply { what, .. })) => {
            out.note(&format!("its envelope cannot be read: {}", printable(&what)));
            None
        }
        // Its status is shown all the same.
        Err(error @ Error::Payload { .. }) if !args.raw => {
            out.note(&printable(&chain(&error)));
            None
        }
        task => task?,
    };
    if args.raw {
        let Some(task) = &task else {
            return Err(Failure::new(
                Exit::Failure,
                Code::NoPayload,
                format!("no payload of task {id} is kept, or it cannot be read"),
            ));
        };
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(&task.payload)?;
        stdout.flush()?;
        return Ok(Exit::Ok);
    }
    let ((status, unread), counts) = tokio::try_join!(look(&client, id), client.counts())?;
    if status.state.is_none() {
        return Err(Failure::new(Exit::Failure, Code::NothingKnown, format!("nothing is known of task {id}")));
    }
    let state = status.state;
    let view = View::of(StatusView::of(id, &status).unread(unread), task.as_ref());
    if out.is_table() {
        let shown = out.paint(words::paint(state), view.status.state);
        let mut lines = vec![format!("{id}  {shown}")];
        lines.extend(words::explain(id, &status, &explain::around(&client, id, &status, &counts).await?));
        lines.push(String::new());
        lines.extend(view.facts(counts.now_ms));
        if let Some(payload) = view.payload.lines() {
            lines.push(format!("payload:\n{}", printable(&payload)));
        }
        out.line(&lines.join("\n"))?;
    } else {
        out.json(&view)?;
    }
    Ok(Exit::Ok)
}

impl View {
    fn of(status: StatusView, task: Option<&Task>) -> Self {
        let time = |ms: u64| (ms > 0).then_some(ms);
        Self {
            status,
            max_attempts: task.map(|t| t.max_attempts),
            cost: task.map(|t| t.cost),
            weight: task.map(|t| t.weight),
            estimate: task.map_or_else(EstimateView::default, |t| EstimateView::of(t.estimate)),
            depth: task.map(|t| t.depth),
            order_key: task.and_then(|t| t.order_key.clone()),
            hold_on_dead: task.map(|t| t.hold_on_dead),
            key: task.and_then(|t| t.key.clone()),
            accepted_ms: task.map(|t| t.seq_us / 1000),
            too_old_ms: task.and_then(|t| time(t.too_old_ms)),
            timeout_ms: task.and_then(|t| time(t.meta.timeout_ms)),
            parent: task.and_then(|t| t.meta.parent.clone()),
            payload: task.map_or_else(PayloadView::default, |t| PayloadView::of(&t.payload)),
        }
    }

    /// What is known of it, a line each.
    fn facts(&self, now_ms: u64) -> Vec<String> {
        let text = |part: &Option<String>| part.as_deref().map(printable);
        let status = &self.status;
        let facts = [
            ("agent", text(&status.agent)),
            ("queue", text(&status.queue)),
            ("priority", status.priority.map(str::to_owned)),
            ("tenant", text(&status.tenant)),
            ("order key", text(&self.order_key)),
            ("holds it when dead", self.hold_on_dead.filter(|hold| *hold).map(|_| "yes".to_owned())),
            ("key", text(&self.key)),
            ("attempts", self.max_attempts.map(|most| format!("{} of {most}", status.attempt))),
            ("cost", self.cost.filter(|cost| *cost > 1).map(|cost| cost.to_string())),
            ("weight", self.weight.filter(|weight| *weight > 1).map(|weight| weight.to_string())),
            ("expected to use", self.estimate.words()),
            ("timeout", self.timeout_ms.map(words::span)),
            ("parent", self.parent.as_ref().map(ToString::to_string)),
            ("accepted", self.accepted_ms.map(|ms| format!("{} ago", words::span(now_ms.saturating_sub(ms))))),
        ];
        facts.into_iter().filter_map(|(name, value)| Some(format!("{name}: {}", value?))).collect()
    }
}
