//! `producer schedule`: tasks that are handed in by the clock.

mod apply;
mod draft;
mod show;

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde::Serialize;
use tidemill_common::name::ScheduleName;
use tidemill_common::schedule::{self, Schedule};
use tidemill_common::store::Kept;
use tidemill_producer::{AgentName, Client, TaskId};

use self::draft::Draft;
use super::codes::Code;
use super::exit::{Exit, Failure, Outcome};
use super::output::{Out, printable};
use super::{Context, payload};

const EXAMPLES: &str = "Examples:
  producer schedule set nightly --cron '30 2 * * *' --zone Europe/Berlin index '{\"full\":true}' --overlap skip
  producer schedule list                  producer schedule show nightly
  producer schedule next --cron '0 9 * * MON-FRI' --zone America/New_York
  producer schedule apply schedules.toml --dry-run
";
const SET: &str = "Examples:
  producer schedule set nightly --cron '30 2 * * *' --zone Europe/Berlin index '{\"full\":true}'
  producer schedule set probe --cron '*/15 * * * * *' ping --missed skip --start-within 10s
";
const EDIT: &str = "Examples:
  producer schedule edit nightly --cron '45 2 * * *'
  producer schedule edit nightly --tenant '' --start-within 0s       neither any more
";
const LIST: &str = "Examples:
  producer schedule list
  producer schedule list --output json | jq -r '.[] | select(.paused) | .name'
";
const SHOW: &str = "Examples:
  producer schedule show nightly
";
const NEXT: &str = "Examples:
  producer schedule next nightly
  producer schedule next --cron '30 2 * * *' --zone Europe/Berlin --output json
";
const RUN: &str = "Examples:
  producer wait $(producer schedule run nightly --output table)
  producer schedule run nightly
";
const PAUSE: &str = "Examples:
  producer schedule pause nightly
";
const RESUME: &str = "Examples:
  producer schedule resume nightly
";
const DELETE: &str = "Examples:
  producer schedule delete nightly
";

const PATTERNS: &str = "A pattern has five fields (minute, hour, day, month, weekday), or six with seconds in front, or is @hourly, @daily and the like. It is
read in its zone. Where clocks go forward, a time that does not exist that day runs at the first moment after the gap; where they go
back, a time that comes twice runs the first time. Workers hand the tasks in: one a slot, with any number of workers.

Fields (JSON): those of `schedule show` but for upcoming. Exit code 2 when it is none, 5 when there are 1,000 already.";

/// Schedules: tasks that are handed in by the clock
#[derive(Debug, clap::Args)]
#[command(before_long_help = EXAMPLES, after_long_help = PATTERNS)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

/// What to do with them.
#[derive(Debug, clap::Subcommand)]
enum Action {
    Set(Box<Set>),
    Edit(Box<Edit>),
    /// List all schedules
    #[command(before_long_help = LIST, after_long_help = show::FIELDS)]
    List,
    /// Show one, with its next five slots
    #[command(before_long_help = SHOW, after_long_help = show::FIELDS)]
    Show(One),
    Next(Next),
    /// Hand its task in now, beside its slots
    #[command(before_long_help = RUN, after_long_help = "Field (JSON): id. A pause does not hold it back, nor does an earlier task that has not ended.")]
    Run(One),
    /// Let it not fire until it is resumed; slots that pass meanwhile are not missed
    #[command(before_long_help = PAUSE, after_long_help = "Fields (JSON): as of `schedule set`.")]
    Pause(One),
    /// Let it fire again, from its next slot on
    #[command(before_long_help = RESUME, after_long_help = "Fields (JSON): as of `schedule set`.")]
    Resume(One),
    /// Delete it; tasks that it has handed in stay
    #[command(before_long_help = DELETE, after_long_help = "Fields (JSON): name, deleted.")]
    Delete(One),
    Apply(apply::Args),
}

/// Put a schedule in force, in place of one of its name
#[derive(Debug, clap::Args)]
#[command(before_long_help = SET, after_long_help = PATTERNS)]
struct Set {
    #[command(flatten)]
    name: One,
    /// The agent of its tasks
    #[arg(value_name = "AGENT")]
    agent: AgentName,
    /// Their payload, in JSON; `-` reads stdin [default: null]
    #[arg(value_name = "PAYLOAD", conflicts_with = "payload_file", allow_hyphen_values = true)]
    payload: Option<String>,
    #[command(flatten)]
    file: PayloadFile,
    #[command(flatten)]
    draft: Draft,
    /// It does not fire until it is resumed
    #[arg(long)]
    paused: bool,
}

/// Change what is said of a schedule, and leave the rest
#[derive(Debug, clap::Args)]
#[command(before_long_help = EDIT, after_long_help = "An empty text, or 0s, takes a fact away. Fields (JSON): as of `schedule set`.")]
struct Edit {
    #[command(flatten)]
    name: One,
    /// The agent of its tasks
    #[arg(long, short, value_name = "AGENT")]
    agent: Option<AgentName>,
    /// Their payload, in JSON
    #[arg(long, value_name = "JSON", conflicts_with = "payload_file", allow_hyphen_values = true)]
    payload: Option<String>,
    #[command(flatten)]
    file: PayloadFile,
    #[command(flatten)]
    draft: Draft,
}

/// Show when it fires: the next five slots
#[derive(Debug, clap::Args)]
#[command(before_long_help = NEXT, after_long_help = "With --cron no server is asked, and this machine's clock counts.\n\nFields (JSON), of each slot: at_ms; local (RFC 3339, in its zone); utc.")]
struct Next {
    /// The schedule's name
    #[arg(value_name = "NAME", required_unless_present = "cron")]
    name: Option<ScheduleName>,
    /// A pattern, in place of a name
    #[arg(long, value_name = "PATTERN", conflicts_with = "name")]
    cron: Option<String>,
    /// Its zone
    #[arg(long, value_name = "ZONE", requires = "cron", default_value = "UTC")]
    zone: String,
}

/// A schedule's name.
#[derive(Debug, clap::Args)]
struct One {
    /// The schedule's name
    #[arg(value_name = "NAME")]
    name: ScheduleName,
}

/// A payload from a file.
#[derive(Debug, clap::Args)]
struct PayloadFile {
    /// File with their payload; `-` reads stdin
    #[arg(long, value_name = "FILE")]
    payload_file: Option<PathBuf>,
    /// The payload need not be JSON: any bytes
    #[arg(long)]
    raw: bool,
}

#[derive(Debug, Serialize)]
struct RunView<'a> {
    id: &'a TaskId,
}

#[derive(Debug, Serialize)]
struct DeletedView<'a> {
    name: &'a ScheduleName,
    deleted: bool,
}

impl Args {
    /// What needs neither configuration nor server, done.
    pub(crate) fn alone(&self, out: &Out) -> Option<Outcome> {
        match &self.action {
            Action::Next(Next { cron: Some(cron), zone, .. }) => {
                let here = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let now_ms = u64::try_from(here.as_millis()).unwrap_or(u64::MAX);
                Some(show::next(&draft::pattern(cron, zone), now_ms, out))
            }
            _ => None,
        }
    }
}

pub(crate) async fn run(args: Args, context: &Context) -> Outcome {
    match args.action {
        Action::Set(set) => {
            let payload = read_payload(set.payload.as_deref(), &set.file, context)?;
            let payload = payload.unwrap_or_else(|| Bytes::from_static(b"null"));
            let plain = Schedule { paused: set.paused, ..draft::plain(set.name.name, set.agent, payload) };
            keep(&set.draft.over(plain, true).map_err(mistake)?, &context.connect().await?, context).await
        }
        Action::Edit(edit) => {
            let payload = read_payload(edit.payload.as_deref(), &edit.file, context)?;
            let client = context.connect().await?;
            let mut schedule = readable(find(&client, &edit.name.name).await?)?;
            schedule.task.payload = payload.unwrap_or(schedule.task.payload);
            schedule.task.agent = edit.agent.unwrap_or(schedule.task.agent);
            keep(&edit.draft.over(schedule, false).map_err(mistake)?, &client, context).await
        }
        Action::Pause(One { name }) => set_paused(&name, true, context).await,
        Action::Resume(One { name }) => set_paused(&name, false, context).await,
        Action::List => show::list(&context.connect().await?, context).await,
        Action::Show(One { name }) => {
            let client = context.connect().await?;
            show::one(&find(&client, &name).await?, client.counts().await?.now_ms, &context.out)
        }
        Action::Next(Next { name, .. }) => {
            let name = name.ok_or_else(|| Failure::usage(Code::Arguments, "name a schedule, or give --cron"))?;
            let client = context.connect().await?;
            let schedule = readable(find(&client, &name).await?)?;
            show::next(&schedule, client.counts().await?.now_ms, &context.out)
        }
        Action::Run(One { name }) => {
            let client = context.connect().await?;
            let receipt = client.submit(readable(find(&client, &name).await?)?.task()).await?;
            let id = receipt.id();
            if context.out.is_table() {
                context.out.line(id.as_str())?
            } else {
                context.out.json(&RunView { id })?
            }
            Ok(Exit::Ok)
        }
        Action::Delete(One { name }) => delete(&name, context).await,
        Action::Apply(args) => apply::run(&args, context).await,
    }
}

/// What is wrong with a schedule.
fn mistake(text: String) -> Failure {
    Failure::usage(Code::ScheduleMistakes, text)
}

async fn find(client: &Client, name: &ScheduleName) -> Result<Kept, Failure> {
    let all = client.schedules().await?;
    let names: Vec<&str> = all.iter().map(|kept| kept.name.as_str()).take(10).collect();
    let known = if names.is_empty() { "there is none at all".to_owned() } else { names.join(", ") };
    let text = format!("there is no schedule {name}; known are: {known}");
    let found = all.into_iter().find(|kept| kept.name == *name);
    found.ok_or_else(|| Failure::new(Exit::Failure, Code::NoSchedule, text))
}

fn readable(kept: Kept) -> Result<Schedule, Failure> {
    let text = format!("schedule {} was written by another build, which this one cannot read", kept.name);
    kept.schedule.ok_or_else(|| Failure::new(Exit::Failure, Code::StrangeAnswer, text))
}

/// Puts it in force and says so.
async fn keep(schedule: &Schedule, client: &Client, context: &Context) -> Outcome {
    let next_ms = client.set_schedule(schedule).await?.unwrap_or(0);
    let kept = find(client, &schedule.name).await?;
    let now_ms = client.counts().await?.now_ms;
    if context.out.is_table() {
        context.out.line(&show::in_force(schedule, next_ms, now_ms))?;
    } else {
        context.out.json(&show::View::of(&kept))?;
    }
    Ok(Exit::Ok)
}

async fn set_paused(name: &ScheduleName, paused: bool, context: &Context) -> Outcome {
    let client = context.connect().await?;
    let mut schedule = readable(find(&client, name).await?)?;
    schedule.paused = paused;
    keep(&schedule, &client, context).await
}

async fn delete(name: &ScheduleName, context: &Context) -> Outcome {
    let client = context.connect().await?;
    if !client.delete_schedule(name).await? {
        find(&client, name).await?;
    }
    if context.out.is_table() {
        context.out.line(&format!("schedule {} is deleted", printable(name.as_str())))?;
    } else {
        context.out.json(&DeletedView { name, deleted: true })?;
    }
    Ok(Exit::Ok)
}

fn read_payload(word: Option<&str>, file: &PayloadFile, context: &Context) -> Result<Option<Bytes>, Failure> {
    let most = context.config.submit.payload_bytes_max;
    let bytes = match (word, &file.payload_file) {
        (Some("-"), _) => payload::read("-".as_ref(), most)?,
        (Some(text), _) => Bytes::copy_from_slice(text.as_bytes()),
        (None, Some(path)) => payload::read(path, most)?,
        (None, None) => return Ok(None),
    };
    if !file.raw {
        payload::check_json(&bytes).map_err(|e| {
            Failure::usage(Code::Payload, format!("the payload is not JSON: {e}\n  with --raw it may be anything"))
        })?;
    }
    Ok(Some(bytes))
}

/// What is wrong with it, seen from a moment; the client checks it again by the server's clock.
fn wrong(schedule: &Schedule, now_ms: u64) -> Option<schedule::Error> {
    schedule.check(now_ms).err()
}
