//! `producer explain`: a task's state in words.

use serde::Serialize;
use tidemill_producer::TaskId;

use super::exit::{Exit, Failure, Outcome};
use super::view::{StatusView, look};
use super::{Context, words};

/// Say in words where a task is, what holds it back and what that means
///
/// JSON: the fields of `status`, and `words`, a list of sentences. Exit code 1 when nothing is known of the task.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The task's id
    #[arg(value_name = "ID")]
    id: TaskId,
}

#[derive(Debug, Serialize)]
struct View {
    #[serde(flatten)]
    status: StatusView,
    words: Vec<String>,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Outcome {
    let client = context.connect().await?;
    let looks = tokio::try_join!(look(&client, &args.id), client.counts());
    let ((status, unread), counts) = looks.map_err(Failure::from)?;
    let sentences = words::explain(&args.id, &status, counts.now_ms, counts.workers);
    if context.out.is_table() {
        let state = context.out.paint(words::paint(status.state), super::view::state_name(status.state));
        context.out.line(&format!("{}  {state}\n{}", args.id, sentences.join("\n")))?;
    } else {
        context.out.json(&View { status: StatusView::of(&args.id, &status).unread(unread), words: sentences })?;
    }
    Ok(if status.state.is_some() { Exit::Ok } else { Exit::Failure })
}
