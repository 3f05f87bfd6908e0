//! The arguments: what `producer --help` shows.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use super::output::{Color, Format};
use super::{
    alter, book, cancel, completions, dead, doctor, exit, explain, list, man, pause, queue, schedule, status, submit,
    tail, top, wait, workers,
};

const EXAMPLES: &str = "Examples:
  producer submit echo '{\"hi\":\"there\"}' --wait      hand a task in, wait, print its result
  producer submit gpt4 --payload-file prompt.json --priority high --key report-7
  producer submit --ndjson tasks.ndjson --output ndjson   many tasks, one result line each
  producer status ID    producer tail ID    producer explain ID    producer cancel ID
  producer queue --watch    producer top              what waits and runs
  producer pause --queue slow --for 10m    producer resume --queue slow
  producer list --state parked    producer dead groups    producer dead replay ID
  producer schedule set nightly --cron '30 2 * * *' --zone Europe/Berlin index
  producer book apply limits.toml                    put rules in force
";

const RETRY: &str = "Examples:
  producer retry ID
  producer retry --agent gpt4 --reason attempts --rate 5/s
";
const PURGE: &str = "Examples:
  producer purge ID
  producer purge --reason unknown_agent --older-than 24h --dry-run
";

const ENVIRONMENT: &str = "Environment (flags win, then these, then --config FILE, then the defaults):
  TIDEMILL__REDIS__URL             where Redis is; TIDEMILL__REDIS__URL_FILE names a file that says it
  TIDEMILL__SUBMIT__WAITING_MAX    most waiting tasks of a queue and priority
  TIDEMILL__SECTION__KEY           any other key of the configuration file
  TIDEMILL_PRODUCER_CONFIG         the configuration file
  TIDEMILL_LOG                     what is logged to stderr, such as debug
  NO_COLOR, CLICOLOR_FORCE         colours
With nothing configured, the development server of `worker dev` is used if .tidemill/dev/redis.url is in this directory or above.";

/// Hands tasks in to Tidemill, asks after them and waits for their ends.
#[derive(Debug, Parser)]
#[command(name = "producer", version, max_term_width = 110, before_long_help = EXAMPLES, after_long_help = after())]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

fn after() -> String {
    format!("{ENVIRONMENT}\n\n{}", exit::HELP)
}

/// What any verb takes.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Where Redis is, such as redis://host:6379 [env: TIDEMILL__REDIS__URL]
    ///
    /// Other users of this machine can see it: give a URL with a password by TIDEMILL__REDIS__URL_FILE.
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) redis: Option<String>,
    /// Configuration file, in TOML [env: TIDEMILL_PRODUCER_CONFIG]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Form of the results [default: table on a terminal, else json]
    #[arg(long, short, global = true, value_name = "FORM")]
    pub(crate) output: Option<Format>,
    /// Colours: auto, always or never
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide_possible_values = true)]
    pub(crate) color: Color,
    /// Only results and errors
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
}

/// What to do. What a verb does is said where its arguments are.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Submit(Box<submit::Args>),
    Status(status::Args),
    Wait(wait::Args),
    Tail(tail::Args),
    Cancel(Box<cancel::Args>),
    Explain(explain::Args),
    List(Box<list::Args>),
    Queue(queue::Args),
    Top(top::Args),
    Pause(pause::Args),
    Resume(pause::Resume),
    Dead(Box<dead::Args>),
    #[command(before_long_help = RETRY, about = "Let dead tasks wait again: `dead replay`")]
    Retry(Box<dead::Replay>),
    #[command(before_long_help = PURGE, about = "Forget dead tasks: `dead purge`")]
    Purge(Box<dead::Purge>),
    Move(Box<alter::Move>),
    SetPriority(Box<alter::SetPriority>),
    RunNow(Box<alter::RunNow>),
    Workers(workers::Args),
    Concurrency(workers::Concurrency),
    Schedule(Box<schedule::Args>),
    Book(book::Args),
    Doctor(doctor::Args),
    Completions(completions::Args),
    Man(man::Args),
}

impl Verb {
    /// Whether it looks after the first Ctrl-C itself, and ends well: what is done to many.
    pub(crate) fn ends_itself(&self) -> bool {
        match self {
            Self::Submit(submit) => submit.is_bulk(),
            Self::Dead(dead) => matches!(dead.action, dead::Action::Replay(_) | dead::Action::Purge(_)),
            Self::Cancel(cancel) => cancel.is_bulk(),
            Self::Retry(_) | Self::Purge(_) | Self::Move(_) | Self::SetPriority(_) | Self::RunNow(_) => true,
            _ => false,
        }
    }
}
