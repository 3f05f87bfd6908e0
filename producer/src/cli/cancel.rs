//! `producer cancel`: calls tasks off.

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde::Serialize;
use tidemill_producer::{Cancelled, State, TaskId};

use super::Context;
use super::exit::{Exit, Outcome};
use super::ids::Ids;
use super::output::Paint;

/// Cancels under way at once.
const CALLS: usize = 32;

/// Call tasks off: at once if they wait, through their worker if they run
///
/// JSON fields: id; outcome (cancelled, signalled, ended, unknown); state (before a cancel, or at the end). Exit code 1 when
/// nothing is known of a task, or it had ended otherwise.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    ids: Ids,
}

#[derive(Debug, Serialize)]
struct View {
    id: TaskId,
    outcome: &'static str,
    state: Option<State>,
}

impl View {
    fn of(id: &TaskId, cancelled: Cancelled) -> Self {
        let (outcome, state) = match cancelled {
            Cancelled::Now(before) => ("cancelled", Some(before)),
            Cancelled::Signalled => ("signalled", Some(State::Running)),
            Cancelled::Ended(state) => ("ended", Some(state)),
            Cancelled::Unknown => ("unknown", None),
        };
        Self { id: id.clone(), outcome, state }
    }

    /// Whether it is called off, now or before.
    fn is_off(&self) -> bool {
        match self.outcome {
            "cancelled" | "signalled" => true,
            _ => self.state == Some(State::Cancelled),
        }
    }

    fn words(&self) -> String {
        match (self.outcome, self.state) {
            ("cancelled", Some(before)) => format!("cancelled (it was {before})"),
            ("signalled", _) => "its worker was told to stop it".to_owned(),
            ("ended", Some(state)) => format!("it had ended already: {state}"),
            _ => "nothing is known of it".to_owned(),
        }
    }
}

pub(crate) async fn run(args: &Args, context: &Context) -> Outcome {
    let ids = args.ids.read("cancel")?;
    let client = &context.connect().await?;
    let calls = stream::iter(&ids).map(|id| async move { client.cancel(id).await.map(|done| View::of(id, done)) });
    let views: Vec<View> = calls.buffered(CALLS).try_collect().await?;
    if context.out.is_table() {
        for view in &views {
            let paint = if view.is_off() { Paint::Good } else { Paint::Bad };
            context.out.line(&format!("{}  {}", view.id, context.out.paint(paint, &view.words())))?;
        }
    } else {
        context.out.json_each(&views)?;
    }
    Ok(if views.iter().all(View::is_off) { Exit::Ok } else { Exit::Failure })
}
