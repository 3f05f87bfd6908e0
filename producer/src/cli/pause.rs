//! `producer pause` and `producer resume`: holds back a queue, an agent, a tenant or everything, and lets it go on.

use clap::builder::{NonEmptyStringValueParser, TypedValueParser as _};
use serde::Serialize;
use tidemill_common::store::{Pausable, Pause};
use tidemill_producer::{AgentName, QueueName};

use super::codes::Code;
use super::exit::{Exit, Failure, Outcome};
use super::facts::Span;
use super::filter::quoted;
use super::output::{Paint, one_line, printable};
use super::words::span;
use super::{Context, output};

/// Longest reason, bytes: what is kept of it.
const WHY_BYTES_MAX: usize = 256;

const EXAMPLES: &str = "Examples:
  producer pause --queue slow --for 10m --why 'the index is rebuilt'
  producer pause --agent gpt4
  producer pause --list
";
const RESUME: &str = "Examples:
  producer resume --queue slow
  producer resume --all                    ends the pause of everything, and leaves those of single queues
";
const FIELDS: &str = "What runs, runs on; what is submitted, is taken in and waits. The pause is one write, however much waits.

Fields (JSON): what (all, queue, agent or tenant); name, or null; until_ms (server time), or null until it is resumed; left_ms, or
null; why, or null. With --list a list of them, in ndjson a line each.";
const RESUME_FIELDS: &str = "Fields (JSON): what (all, queue, agent or tenant); name, or null; resumed (false: it was not paused, which is no failure).";

/// What is meant.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(multiple = false)]
pub(crate) struct What {
    /// The tasks of this queue
    #[arg(long, short = 'Q', value_name = "QUEUE")]
    queue: Option<QueueName>,
    /// The tasks of this agent
    #[arg(long, short, value_name = "AGENT")]
    agent: Option<AgentName>,
    /// The tasks on behalf of this tenant
    #[arg(long, short, value_name = "TENANT", value_parser = NonEmptyStringValueParser::new())]
    tenant: Option<String>,
    /// Everything
    #[arg(long)]
    all: bool,
}

impl What {
    fn read(&self, verb: &str) -> Result<Pausable, Failure> {
        match self {
            Self { queue: Some(queue), .. } => Ok(Pausable::Queue(queue.clone())),
            Self { agent: Some(agent), .. } => Ok(Pausable::Agent(agent.clone())),
            Self { tenant: Some(tenant), .. } => Ok(Pausable::Tenant(tenant.clone())),
            Self { all: true, .. } => Ok(Pausable::All),
            _ => {
                let text = format!("say what to {verb}: --queue, --agent, --tenant, or --all");
                Err(Failure::usage(Code::Arguments, text))
            }
        }
    }
}

/// Hold back a queue, an agent, a tenant or everything: nothing of it is handed out any more
#[derive(Debug, clap::Args)]
#[command(before_long_help = EXAMPLES, after_long_help = FIELDS)]
pub(crate) struct Args {
    #[command(flatten)]
    what: What,
    /// Only so long: 10m, 2h [default: until it is resumed]
    #[arg(long = "for", value_name = "DURATION")]
    for_: Option<Span>,
    /// Why, for those who meet it
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new().try_map(short))]
    why: Option<String>,
    /// Show all that is held back
    #[arg(long, conflicts_with_all = ["What", "for_", "why"])]
    list: bool,
}

/// Let what is paused go on
#[derive(Debug, clap::Args)]
#[command(before_long_help = RESUME, after_long_help = RESUME_FIELDS)]
pub(crate) struct Resume {
    #[command(flatten)]
    what: What,
}

fn short(why: String) -> Result<String, String> {
    let bytes = why.len();
    if bytes <= WHY_BYTES_MAX { Ok(why) } else { Err(format!("it has {bytes} bytes, of at most {WHY_BYTES_MAX}")) }
}

/// A pause, as it is shown.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct View {
    what: &'static str,
    name: Option<String>,
    until_ms: Option<u64>,
    left_ms: Option<u64>,
    why: Option<String>,
}

#[derive(Debug, Serialize)]
struct ResumedView {
    what: &'static str,
    name: Option<String>,
    resumed: bool,
}

/// Its kind and its name.
fn parts(what: &Pausable) -> (&'static str, Option<String>) {
    match what {
        Pausable::All => ("all", None),
        Pausable::Queue(queue) => ("queue", Some(queue.to_string())),
        Pausable::Agent(agent) => ("agent", Some(agent.to_string())),
        Pausable::Tenant(tenant) => ("tenant", Some(tenant.clone())),
    }
}

impl View {
    pub(crate) fn of(pause: &Pause, now_ms: u64) -> Self {
        let (what, name) = parts(&pause.what);
        let until_ms = Some(pause.until_ms).filter(|ms| *ms > 0);
        let why = Some(pause.why.clone()).filter(|why| !why.is_empty());
        Self { what, name, until_ms, left_ms: until_ms.map(|ms| ms.saturating_sub(now_ms)), why }
    }
}

/// Those that are in force now: of one whose time is over the server may not have taken note yet.
pub(crate) fn in_force(pauses: Vec<Pause>, now_ms: u64) -> Vec<Pause> {
    pauses.into_iter().filter(|pause| pause.until_ms == 0 || pause.until_ms > now_ms).collect()
}

/// The command that ends a pause.
pub(crate) fn resume_command(what: &Pausable) -> String {
    match parts(what) {
        (kind, Some(name)) => format!("producer resume --{kind} {}", quoted(&name)),
        (_, None) => "producer resume --all".to_owned(),
    }
}

/// `for 9m more`, or `until it is resumed`.
pub(crate) fn how_long(pause: &Pause, now_ms: u64) -> String {
    match pause.until_ms {
        0 => "until it is resumed".to_owned(),
        until => format!("for {} more", span(until.saturating_sub(now_ms))),
    }
}

/// A pause in a sentence, with what ends it.
pub(crate) fn sentence(pause: &Pause, now_ms: u64) -> String {
    let what = printable(&pause.what.to_string());
    let what = what.replacen(|c: char| c.is_ascii_lowercase(), &what[..1].to_ascii_uppercase(), 1);
    let why = if pause.why.is_empty() { String::new() } else { format!(" ({})", said(&pause.why)) };
    let (how_long, command) = (how_long(pause, now_ms), resume_command(&pause.what));
    format!("{what} is paused {how_long}{why}. `{}` lets it go on.", printable(&command))
}

fn said(why: &str) -> String {
    one_line(&printable(why))
}

pub(crate) async fn run(args: &Args, context: &Context) -> Outcome {
    if args.list {
        return list(context).await;
    }
    let what = args.what.read("pause")?;
    let client = context.connect().await?;
    let why = args.why.as_deref().unwrap_or_default();
    if !client.pause(&what, args.for_.map(|span| span.0), why).await? {
        let text =
            "there are 256 pauses, which is as many as there may be: resume one, or pause all of them with --all";
        return Err(Failure::new(Exit::Refused, Code::TooManyKept, text));
    }
    let (pauses, counts) = tokio::try_join!(client.pauses(), client.counts()).map_err(Failure::from)?;
    let Some(pause) = in_force(pauses, counts.now_ms).into_iter().find(|pause| pause.what == what) else {
        context.out.note(&format!("{} was paused, and that is over already", printable(&what.to_string())));
        return Ok(Exit::Ok);
    };
    if context.out.is_table() {
        context.out.line(&sentence(&pause, counts.now_ms))?;
    } else {
        context.out.json(&View::of(&pause, counts.now_ms))?;
    }
    Ok(Exit::Ok)
}

async fn list(context: &Context) -> Outcome {
    let client = context.connect().await?;
    let (pauses, counts) = tokio::try_join!(client.pauses(), client.counts()).map_err(Failure::from)?;
    let pauses = in_force(pauses, counts.now_ms);
    let out = &context.out;
    let views: Vec<View> = pauses.iter().map(|pause| View::of(pause, counts.now_ms)).collect();
    match out.format {
        output::Format::Json => out.json(&views)?,
        output::Format::Ndjson => out.json_each(&views)?,
        output::Format::Table if pauses.is_empty() => out.note("Nothing is paused."),
        output::Format::Table => {
            let row = |pause: &Pause| {
                let what = printable(&pause.what.to_string());
                let until = out.paint(Paint::Care, &how_long(pause, counts.now_ms));
                vec![what, until, said(&pause.why), printable(&resume_command(&pause.what))]
            };
            out.table(&["PAUSED", "HOW LONG", "WHY", "TO RESUME"], pauses.iter().map(row).collect())?;
        }
    }
    Ok(Exit::Ok)
}

pub(crate) async fn resume(args: &Resume, context: &Context) -> Outcome {
    let what = args.what.read("resume")?;
    let client = context.connect().await?;
    let resumed = client.resume(&what).await?;
    let (kind, name) = parts(&what);
    let shown = printable(&what.to_string());
    if !context.out.is_table() {
        context.out.json(&ResumedView { what: kind, name, resumed })?;
    } else if resumed {
        context.out.line(&format!("{shown} goes on"))?;
    } else {
        context.out.line(&format!("{shown} was not paused"))?;
    }
    let others = in_force(client.pauses().await?, client.counts().await?.now_ms);
    if !others.is_empty() {
        let others: Vec<String> = others.iter().map(|pause| printable(&pause.what.to_string())).collect();
        context.out.note(&format!("still paused: {}", others.join(", ")));
    }
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_put_in_a_sentence() {
        let pause = Pause { what: Pausable::Tenant("a b".into()), until_ms: 61_000, why: "too\nmuch".into() };
        assert_eq!(
            sentence(&pause, 1_000),
            "Tenant a b is paused for 1m more (too much). `producer resume --tenant 'a b'` lets it go on."
        );
        let all = Pause { what: Pausable::All, until_ms: 0, why: String::new() };
        assert_eq!(
            sentence(&all, 0),
            "Everything is paused until it is resumed. `producer resume --all` lets it go on."
        );
        assert_eq!(in_force(vec![pause, all], 61_000).len(), 1);
    }
}
