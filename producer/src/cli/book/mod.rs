//! `producer book`: the rules in force, how they came to be, and how others take their place.

mod apply;
mod file;
mod history;
mod set;
mod show;
mod top;

use tidemill_producer::Book;
use tidemill_producer::book::BookKept;

use super::Context;
use super::codes::Code;
use super::exit::{Exit, Failure, Outcome};
use super::output::Out;

const EXAMPLES: &str = "Examples:
  producer book apply limits.toml --dry-run          what would change, also for what waits
  producer book apply limits.toml --note 'new key'
  producer book show                                 what is in force
  producer book diff limits.toml
  producer book set --agent gpt4 slots=5 rate.minute=60
  producer book set --tenant acme cost_usd.day=5.00 cost_usd.zone=Europe/Berlin
  producer book tier acme pro
  producer book history
  producer book top                                  where tasks wait
  producer book show --revision 6 > limits.toml      as it was
  producer book show-compiled limits.toml            what the scripts will read, without a server
";

const BOOK: &str = "A book:
  revision = 7                       grows with every edit
  tiers = [\"free\", \"pro\"]            the lowest first
  [tenants]
  acme = \"pro\"                       a tenant without a tier has the lowest
  [[limit]]
  match = { agent = \"gpt4\" }         any of queue, agent, tier, tenant; the most specific rule of a kind wins;
                                     one that matches everything is a cap on everything
  per = [\"tenant\"]                   one counter each; absent: one for all
  slots = 5                          at once, each task by its weight; or by tier: { free = 1, pro = 5 }
  rate = { second = 10, minute = 60, \"5m\" = 200, burst = 10 }
                                     units that start in any such window, each task by its cost; after a burst
                                     those of the shortest window start evenly spread
  tokens = { minute = 90000, day = 2000000 }
  cost_usd = { day = 5.00, month = 100.00, zone = \"Europe/Berlin\" }
                                     what may be used in any such window; with a zone, day and month are the calendar's
  on_lost = \"charge\"                what a run costs that did not end by itself: charge, reported or refund
  [[agent]]
  name = \"gpt4\"                      what its tasks are expected to use, unless they say so themselves
  estimate_tokens = 3000
  estimate_usd = 0.02

Exit code: 2 when a book has mistakes (all are named, with their lines), 5 when a newer revision, or the same with other content, is in force.";

/// The book of rules: what is in force, and how to change it
#[derive(Debug, clap::Args)]
#[command(before_long_help = EXAMPLES, after_long_help = BOOK)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) action: Action,
}

/// What to do with it.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Action {
    Apply(apply::Args),
    Show(show::Args),
    Diff(apply::Diff),
    Set(set::Args),
    Tier(set::Tier),
    History(history::Args),
    Top(top::Args),
    /// Show what a book compiles to, without a server
    #[command(before_long_help = EXAMPLES)]
    ShowCompiled(file::File),
}

impl Args {
    /// Does what needs no server.
    pub(crate) fn alone(&self, out: &Out) -> Option<Outcome> {
        match &self.action {
            Action::ShowCompiled(file) => Some(show::compiled(file, out)),
            _ => None,
        }
    }
}

pub(crate) async fn run(args: &Args, context: &Context) -> Outcome {
    match &args.action {
        Action::Apply(args) => apply::run(args, context).await,
        Action::Diff(args) => apply::diff(args, context).await,
        Action::Show(args) => show::run(args, context).await,
        Action::Set(args) => set::run(args, context).await,
        Action::Tier(args) => set::tier(args, context).await,
        Action::History(args) => history::run(args, context).await,
        Action::Top(args) => top::run(args, context).await,
        Action::ShowCompiled(file) => show::compiled(file, &context.out),
    }
}

/// The rules in force, and their revision; an empty book of revision 0 when there are none.
fn rules(kept: Option<&BookKept>) -> Result<Book, Failure> {
    let Some(kept) = kept else { return Ok(Book::default()) };
    Book::parse(&kept.text).map_err(|_| {
        let text = format!("the book in force, revision {}, is not one that this build reads", kept.revision);
        Failure::new(Exit::Failure, Code::StrangeAnswer, text)
    })
}
