//! `producer status`: where tasks are and how they fared.

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use tidemill_producer::{Client, Error, Status, TaskId};

use super::exit::{Exit, Outcome};
use super::ids::Ids;
use super::output::printable;
use super::view::{PayloadView, STATUS_FIELDS, StatusView, look};
use super::{Context, words};

/// Questions under way at once.
const LOOKS: usize = 32;

const EXAMPLES: &str = "Examples:
  producer status ID
  producer list --state running --output ndjson | jq -r .id | producer status -
";

/// Where tasks are and how they fared
///
/// JSON is one object for one id and a list for several; ndjson has a line for each. Exit code 1 when nothing is known of one.
#[derive(Debug, clap::Args)]
#[command(before_long_help = EXAMPLES, after_long_help = STATUS_FIELDS)]
pub(crate) struct Args {
    #[command(flatten)]
    ids: Ids,
    /// Show payloads too, of tasks that have not ended or are dead
    #[arg(long)]
    payload: bool,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Outcome {
    let ids = args.ids.read("status")?;
    let client = context.connect().await?;
    let looks = stream::iter(&ids).map(|id| see(&client, id, args.payload)).buffered(LOOKS);
    let (statuses, views): (Vec<Status>, Vec<StatusView>) = looks.try_collect().await?;
    let known = statuses.iter().all(|status| status.state.is_some());
    if context.out.is_table() {
        let now_ms = client.counts().await?.now_ms;
        let rows = views.iter().zip(&statuses).map(|(view, status)| row(context, view, status, now_ms)).collect();
        context.out.table(&["ID", "STATE", "AGENT", "QUEUE", "PRIORITY", "ATTEMPT", "WHAT"], rows)?;
        for (view, text) in views.iter().filter_map(|view| Some((view, view.payload.text()?))) {
            context.out.line(&format!("{}  payload: {}", view.id, printable(&text)))?;
        }
    } else {
        context.out.json_each(&views)?;
    }
    Ok(if known { Exit::Ok } else { Exit::Failure })
}

async fn see(client: &Client, id: &TaskId, with_payload: bool) -> Result<(Status, StatusView), Error> {
    let (status, unread) = look(client, id).await?;
    let mut view = StatusView::of(id, &status).unread(unread);
    if with_payload {
        view.payload = PayloadView::read(client.task(id).await)?;
    }
    Ok((status, view))
}

fn row(context: &Context, view: &StatusView, status: &Status, now_ms: u64) -> Vec<String> {
    let text = |part: &Option<String>| part.as_deref().map_or_else(|| "-".to_owned(), printable);
    let lost = (view.losses > 0).then(|| format!("lost with its worker: {}", view.losses));
    let replayed = (view.replays > 0).then(|| format!("replayed: {}", view.replays));
    let reason = view.reason.map(|reason| reason.to_string());
    let again = if view.attempt > 0 { "tried again" } else { "due" };
    let due = view.due_ms.map(|due| format!("{again} in {}", words::span(due.saturating_sub(now_ms))));
    let what = [
        &view.gate,
        &view.worker,
        &view.progress,
        &due,
        &lost,
        &replayed,
        &reason,
        &view.error,
        &view.result.result_error,
    ];
    let what = what.into_iter().flatten().map(|t| printable(t));
    vec![
        view.id.to_string(),
        context.out.paint(words::paint(status.state), view.state),
        text(&view.agent),
        text(&view.queue),
        view.priority.unwrap_or("-").to_owned(),
        view.attempt.to_string(),
        what.collect::<Vec<_>>().join("; "),
    ]
}
