//! `producer dead`: the dead, one by one and by groups; and what may become of them again.

use std::str::FromStr;

use tidemill_common::task::DELAY_MAX;
use tidemill_producer::{Deed, State};

use super::codes::Code;
use super::deed::{self, Plan};
use super::exit::{Exit, Failure, Outcome};
use super::filter::FilterArgs;
use super::list::Limit;
use super::pick::{Pick, States};
use super::{Context, dead_groups, dead_show, ids, list};

const ONLY_DEAD: States = States { usual: &[State::Dead], most: &[State::Dead] };

const EXAMPLES: &str = "Examples:
  producer dead groups                                 what they died of, how many of each
  producer dead list --agent gpt4 --error 'status 429'
  producer dead show ID                                all of one, with its payload and its errors
  producer dead replay ID
  producer dead replay --group 1f0c66a2d0b3 --rate 5/s
  producer dead purge --older-than 720h --yes
  producer dead skip ID                                let the next of its order key go
";

/// The dead: what they died of; replay, purge or skip them
///
/// A dead task is kept for 90 days, or until there are more than 10,000: with its payload, its last five errors and its keys.
#[derive(Debug, clap::Args)]
#[command(before_long_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) action: Action,
}

/// What to do with them. What each does is said where its arguments are.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Action {
    List(List),
    Groups(dead_groups::Args),
    Show(dead_show::Args),
    Replay(Replay),
    Purge(Purge),
    Skip(Skip),
}

const LIST_EXAMPLES: &str = "Examples:
  producer dead list --agent gpt4 --limit 0
  producer dead list --group 1f0c66a2d0b3 --output ndjson | jq -r .id
";

/// List the dead, the oldest first
#[derive(Debug, clap::Args)]
#[command(before_long_help = LIST_EXAMPLES, after_long_help = list::FIELDS)]
pub(crate) struct List {
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    limit: Limit,
}

const REPLAY_EXAMPLES: &str = "Examples:
  producer dead replay ID
  producer dead replay --agent gpt4 --reason attempts --dry-run
  producer dead replay --group 1f0c66a2d0b3 --rate 5/s --yes
  producer dead replay ID --set model=small --set retries=3     other values for fields of its payload
";

/// Let dead tasks wait again
///
/// Attempts and losses begin anew; errors, keys and the number of replays are kept. A task that holds its order key stays its head;
/// any other joins the end of its order. Those of a filter are listed once, before the first is replayed: one that dies again is not
/// met a second time.
#[derive(Debug, Clone, clap::Args)]
#[command(before_long_help = REPLAY_EXAMPLES, after_long_help = deed::FIELDS)]
pub(crate) struct Replay {
    #[command(flatten)]
    pick: Pick,
    /// Spread them: at most so many a second, minute or hour (5/s, 100/m, 1000/h)
    #[arg(long, value_name = "N/s")]
    rate: Option<Rate>,
    /// Another value for a field of the payload, in JSON or as text; null removes it
    #[arg(long, value_name = "FIELD=VALUE")]
    set: Vec<Field>,
    /// Changes of the payload, as a JSON merge patch (RFC 7396); --set comes after it
    #[arg(long, value_name = "JSON")]
    patch: Option<Patch>,
}

const PURGE_EXAMPLES: &str = "Examples:
  producer dead purge ID
  producer dead purge --reason unknown_agent --older-than 24h --dry-run
  producer dead purge --all --yes
";

/// Forget dead tasks
///
/// Payload, errors and outcome go, and the next of their order keys go on. Their idempotency keys are remembered for another day.
#[derive(Debug, Clone, clap::Args)]
#[command(before_long_help = PURGE_EXAMPLES, after_long_help = deed::FIELDS)]
pub(crate) struct Purge {
    #[command(flatten)]
    pick: Pick,
}

const SKIP_EXAMPLES: &str = "Examples:
  producer dead skip ID
";

/// Let the next of a dead task's order key go
///
/// The task stays dead, and holds nothing any more.
///
/// JSON: a list, or one object for one id: id; outcome (done, not_in_state, unfit). Exit code 6 when only a part was done, 1 when none.
#[derive(Debug, clap::Args)]
#[command(before_long_help = SKIP_EXAMPLES)]
pub(crate) struct Skip {
    #[command(flatten)]
    ids: ids::Ids,
}

/// Tasks a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rate(f64);

impl FromStr for Rate {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (number, unit) = text.split_once('/').unwrap_or((text, "s"));
        let seconds = match unit.trim() {
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(format!("{text:?} is no rate; write 5/s, 100/m or 1000/h")),
        };
        let number: f64 =
            number.trim().parse().map_err(|_| format!("{text:?} is no rate; write 5/s, 100/m or 1000/h"))?;
        let rate = number / seconds;
        // The slowest that makes sense puts off the second task by the longest delay.
        if rate.is_finite() && rate * DELAY_MAX.as_secs_f64() >= 1.0 {
            Ok(Self(rate))
        } else {
            Err("a rate is more than 0".into())
        }
    }
}

/// A field of a payload and its new value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Field(String, serde_json::Value);

impl FromStr for Field {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').ok_or_else(|| format!("{text:?} is not FIELD=VALUE"))?;
        if name.is_empty() {
            return Err(format!("{text:?} names no field"));
        }
        let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
        Ok(Self(name.to_owned(), value))
    }
}

/// Changes of a payload.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Patch(serde_json::Map<String, serde_json::Value>);

impl FromStr for Patch {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map(Self).map_err(|e| format!("it is no JSON object: {e}"))
    }
}

pub(crate) async fn run(args: &Args, context: &Context) -> Outcome {
    match &args.action {
        Action::List(args) => {
            let wanted = args.filter.wanted(ONLY_DEAD.usual, ONLY_DEAD.most)?;
            list::show(&context.connect().await?, &wanted, args.limit, context).await
        }
        Action::Groups(args) => dead_groups::run(args, context).await,
        Action::Show(args) => dead_show::run(args, context).await,
        Action::Replay(args) => replay(args, context).await,
        Action::Purge(args) => purge(args, context).await,
        Action::Skip(args) => skip(args, context).await,
    }
}

/// `dead replay`, and `retry`.
pub(crate) async fn replay(args: &Replay, context: &Context) -> Outcome {
    let mut patch = args.patch.clone().map_or_else(serde_json::Map::new, |patch| patch.0);
    patch.extend(args.set.iter().map(|Field(name, value)| (name.clone(), value.clone())));
    let patch = Some(patch).filter(|patch| !patch.is_empty()).map(serde_json::Value::Object);
    let deed = Deed::Replay { rate: args.rate.map(|rate| rate.0), patch };
    deed::run(&args.pick, &Plan { verb: "replay", done: "replayed", states: ONLY_DEAD, deed }, context).await
}

/// `dead purge`, and `purge`.
pub(crate) async fn purge(args: &Purge, context: &Context) -> Outcome {
    let plan = Plan { verb: "purge", done: "forgotten", states: ONLY_DEAD, deed: Deed::Purge };
    deed::run(&args.pick, &plan, context).await
}

async fn skip(args: &Skip, context: &Context) -> Outcome {
    let ids = args.ids.read("dead")?;
    let client = context.connect().await?;
    let done = client.to_each(&ids, &Deed::Skip).await?;
    let views: Vec<_> =
        ids.into_iter().zip(&done).map(|(id, done)| deed::DoneView { id, outcome: done.as_str() }).collect();
    if context.out.is_table() {
        views.iter().try_for_each(|view| {
            context.out.line(&format!("{}  {}", view.id, deed::word(view.outcome, "the next of its order key may go")))
        })?;
    } else {
        context.out.json_each(&views)?;
    }
    match done.iter().filter(|done| done.is_good()).count() {
        good if good == done.len() => Ok(Exit::Ok),
        0 => Err(Failure::new(Exit::Failure, Code::NotInState, "none of them is a dead task that can be read")),
        _ => Err(Failure::new(Exit::PartlyAccepted, Code::Partly, "not all of them are dead tasks that can be read")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_fields_and_patches_are_read() {
        assert_eq!("5/s".parse(), Ok(Rate(5.0)));
        assert_eq!("120/m".parse(), Ok(Rate(2.0)));
        assert_eq!("0.5".parse(), Ok(Rate(0.5)));
        for bad in ["0/s", "-1", "x/s", "5/d", "NaN", "inf", "1e-300/h"] {
            assert!(bad.parse::<Rate>().is_err(), "{bad}");
        }
        assert_eq!("n=3".parse(), Ok(Field("n".into(), 3.into())));
        assert_eq!("t=a=b".parse(), Ok(Field("t".into(), "a=b".into())));
        assert!("t".parse::<Field>().is_err() && "=1".parse::<Field>().is_err());
        assert!("[1]".parse::<Patch>().is_err() && "{\"a\":null}".parse::<Patch>().is_ok());
    }
}
