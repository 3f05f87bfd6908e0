//! `producer move`, `set-priority` and `run-now`: what an operator changes of tasks that wait.

use tidemill_producer::{Deed, Priority, QueueName, State};

use super::Context;
use super::deed::{self, Plan};
use super::exit::Outcome;
use super::filter::priority_parser;
use super::pick::{Pick, States};

const WAITING: States = States {
    usual: &[State::Queued, State::Scheduled, State::Parked],
    most: &[State::Queued, State::Scheduled, State::Parked],
};
const SCHEDULED: States = States { usual: &[State::Scheduled], most: &[State::Scheduled, State::Parked] };

const MOVE_EXAMPLES: &str = "Examples:
  producer move --to slow ID
  producer move --to slow --queue default --agent crawler --dry-run
  producer move --to default --queue old --yes
";

/// Move waiting tasks to another queue
///
/// They keep the place that they were accepted with. What runs or has ended is left alone.
#[derive(Debug, clap::Args)]
#[command(before_long_help = MOVE_EXAMPLES, after_long_help = deed::FIELDS)]
pub(crate) struct Move {
    /// Where to
    #[arg(long, value_name = "QUEUE")]
    to: QueueName,
    #[command(flatten)]
    pick: Pick,
}

const PRIORITY_EXAMPLES: &str = "Examples:
  producer set-priority urgent ID
  producer set-priority low --tenant trial --dry-run
  producer set-priority high --queue reports --older-than 10m --yes
";

/// Give waiting tasks another priority
///
/// They keep the place that they were accepted with, as far as the priority lets them. What runs or has ended is left alone.
#[derive(Debug, clap::Args)]
#[command(before_long_help = PRIORITY_EXAMPLES, after_long_help = deed::FIELDS)]
pub(crate) struct SetPriority {
    /// urgent, high, normal or low; or 20, 10, 5, 1
    #[arg(value_name = "NEW_PRIORITY", value_parser = priority_parser(), hide_possible_values = true)]
    new_priority: Priority,
    #[command(flatten)]
    pick: Pick,
}

const NOW_EXAMPLES: &str = "Examples:
  producer run-now ID
  producer run-now --agent gpt4 --error 'status 429' --yes
";

/// Make scheduled tasks due now: delayed ones, and those that wait for another try
#[derive(Debug, clap::Args)]
#[command(before_long_help = NOW_EXAMPLES, after_long_help = deed::FIELDS)]
pub(crate) struct RunNow {
    #[command(flatten)]
    pick: Pick,
}

pub(crate) async fn run_move(args: &Move, context: &Context) -> Outcome {
    let plan = Plan { verb: "move", done: "moved", states: WAITING, deed: Deed::Move(args.to.clone()) };
    deed::run(&args.pick, &plan, context).await
}

pub(crate) async fn run_set_priority(args: &SetPriority, context: &Context) -> Outcome {
    let deed = Deed::SetPriority(args.new_priority);
    let plan = Plan { verb: "set-priority", done: "changed", states: WAITING, deed };
    deed::run(&args.pick, &plan, context).await
}

pub(crate) async fn run_now(args: &RunNow, context: &Context) -> Outcome {
    let plan = Plan { verb: "run-now", done: "due now", states: SCHEDULED, deed: Deed::RunNow };
    deed::run(&args.pick, &plan, context).await
}
