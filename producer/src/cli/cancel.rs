//! `producer cancel`: calls tasks off.

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde::Serialize;
use tidemill_producer::{Cancelled, Deed, State, TaskId};

use super::Context;
use super::codes::Code;
use super::deed::{self, Plan};
use super::exit::{Exit, Failure, Outcome};
use super::output::Paint;
use super::pick::{Pick, Picked, States};

/// Cancels under way at once.
const CALLS: usize = 32;

/// What waits or runs.
const ALIVE: [State; 4] = [State::Queued, State::Scheduled, State::Parked, State::Running];
const STATES: States = States { usual: &ALIVE, most: &ALIVE };

const EXAMPLES: &str = "Examples:
  producer cancel ID
  producer cancel --agent crawler --dry-run
  producer cancel --tenant trial --state queued,parked --yes
";

fn fields() -> String {
    format!(
        "With ids (JSON fields): id; outcome (cancelled, signalled, ended, unknown); state (before a cancel, or at the end). Exit code 6
when only a part could be called off, 1 when none: nothing is known of a task, or it had ended otherwise.

With a filter: {}",
        deed::FIELDS
    )
}

/// Call tasks off: at once if they wait, through their worker if they run
#[derive(Debug, clap::Args)]
#[command(before_long_help = EXAMPLES, after_long_help = fields())]
pub(crate) struct Args {
    #[command(flatten)]
    pick: Pick,
}

impl Args {
    /// Whether it is for many, by a filter.
    pub(crate) fn is_bulk(&self) -> bool {
        self.pick.is_by_id("cancel").is_ok_and(|by_id| !by_id)
    }
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
    let plan = Plan { verb: "cancel", done: "cancelled", states: STATES, deed: Deed::Cancel };
    if !args.pick.is_by_id(plan.verb)? {
        return deed::run(&args.pick, &plan, context).await;
    }
    let ids = args.pick.given(plan.verb)?;
    if args.pick.dry_run {
        return deed::dry(&Picked { ids, by_filter: false }, &plan, context);
    }
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
    match views.iter().filter(|view| view.is_off()).count() {
        off if off == views.len() => Ok(Exit::Ok),
        0 if views.iter().all(|view| view.state.is_none()) => {
            Err(Failure::new(Exit::Failure, Code::NothingKnown, "nothing is known of what was named"))
        }
        0 => Err(Failure::new(Exit::Failure, Code::NotInState, "all of them had ended already")),
        off => {
            let text = format!("of {} tasks {off} could be called off", views.len());
            Err(Failure::new(Exit::PartlyAccepted, Code::Partly, text))
        }
    }
}
