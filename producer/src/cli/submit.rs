//! `producer submit`: hands one task in, and may wait for its end. Many go by [`super::bulk`].

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use tidemill_producer::{AgentName, Client, Receipt, Taken, TaskId, Waited};

use super::codes::Code;
use super::exit::{Exit, Failure, Outcome};
use super::facts::{Facts, ServerClock, Span};
use super::output::{Format, printable};
use super::view::{StatusView, WaitedView};
use super::wait::{exit_of, result_text};
use super::{Context, bulk, payload, words};

/// How long a wait lasts before it looks for workers.
const ALONE_AFTER: Duration = Duration::from_secs(2);

const EXAMPLES: &str = "Examples:
  producer submit echo '{\"hi\":\"there\"}' --wait
  producer submit gpt4 --payload-file prompt.json --tenant acme --key report-7
  producer submit index '{\"repo\":\"a\"}' --key index-a --on-key debounce --delay 5s   # once, 5 s after the last of them
  producer submit crawler '{\"url\":\"…\"}' --at 2026-12-01T09:00:00+01:00 --start-within 1h
  jq -c '.[]' tasks.json | producer submit echo --ndjson - --output ndjson
";

const FIELDS: &str =
    "One task (JSON fields): id; duplicate (it was in already, under that id; ended tells how it ended, if it has);
replaced (its content has taken the place of the one that waited under its key). With --wait also those of `wait`;
in ndjson, the id comes first, then a line for each state seen, then the end.

Many tasks (--ndjson): each line of the file is an object with any of
  agent, payload (any JSON value), queue, priority, delay, at, start_within, max_age, key, on_key, tenant, order_key,
  hold_on_dead, cost, weight, tokens, cost_usd, max_attempts, timeout, retry_base, retry_cap, result, traceparent, id
and flags are the defaults of all lines. With --output ndjson there is a result line for each:
  line; outcome (accepted, replaced, duplicate, conflict, full, refused, invalid, unknown); id; code; error; retry_after_ms
else a summary: lines, accepted, replaced, duplicate, refused, invalid, unknown, last_line, seconds, problems (the first 100).
Bad lines are reported and skipped. After an interruption, --from-line goes on where it stopped.";

/// Hand tasks in: one, or a file of them
#[derive(Debug, clap::Args)]
#[command(before_long_help = EXAMPLES, after_long_help = FIELDS)]
pub(crate) struct Args {
    /// The agent: what is to run it
    #[arg(value_name = "AGENT", required_unless_present = "ndjson")]
    pub(crate) agent: Option<AgentName>,
    /// Its payload, in JSON; `-` reads stdin [default: null]
    #[arg(value_name = "PAYLOAD", conflicts_with_all = ["payload", "payload_file", "ndjson"], allow_hyphen_values = true)]
    payload_word: Option<String>,
    /// Its payload, in JSON
    #[arg(long, value_name = "JSON", conflicts_with_all = ["payload_file", "ndjson"], allow_hyphen_values = true)]
    payload: Option<String>,
    /// File with its payload; `-` reads stdin
    #[arg(long, value_name = "FILE", conflicts_with = "ndjson")]
    payload_file: Option<PathBuf>,
    /// The payload need not be JSON: any bytes
    #[arg(long, conflicts_with = "ndjson")]
    raw: bool,
    #[command(flatten)]
    pub(crate) facts: Facts,
    /// A duplicate is a refusal (exit code 5)
    #[arg(long)]
    pub(crate) fail_on_duplicate: bool,
    /// Wait for its end and print its result
    #[arg(long, short, conflicts_with = "ndjson", help_heading = "Waiting")]
    wait: bool,
    /// How long to wait [default: wait.timeout of the configuration, 1h]
    #[arg(long, value_name = "DURATION", requires = "wait", help_heading = "Waiting")]
    wait_timeout: Option<Span>,
    /// Many tasks: a JSON object a line; `-` reads stdin
    #[arg(long, value_name = "FILE", conflicts_with = "id", help_heading = "Many tasks")]
    pub(crate) ndjson: Option<PathBuf>,
    /// Stop at the first bad line
    #[arg(long, requires = "ndjson", help_heading = "Many tasks")]
    pub(crate) strict: bool,
    /// Begin with this line, counted from 1
    #[arg(long, value_name = "N", requires = "ndjson", default_value_t = 1, help_heading = "Many tasks")]
    pub(crate) from_line: u64,
}

impl Args {
    pub(crate) fn is_bulk(&self) -> bool {
        self.ndjson.is_some()
    }
}

#[derive(Debug, Serialize)]
struct View<'a> {
    id: &'a TaskId,
    duplicate: bool,
    replaced: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<WaitedView>,
}

#[derive(Debug, Serialize)]
struct EndView {
    duplicate: bool,
    #[serde(flatten)]
    end: WaitedView,
}

/// The trace that this program was started in, if its caller says so and it is of the form that a task can have.
fn trace_of_caller() -> Option<String> {
    let said = std::env::var("TRACEPARENT").ok()?;
    (said.len() == 55 && said.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')).then_some(said)
}

pub(crate) async fn run(mut args: Args, context: &Context) -> Outcome {
    args.facts.traceparent = args.facts.traceparent.or_else(trace_of_caller);
    if let Some(path) = args.ndjson.clone() {
        return bulk::run(args, &path, context).await;
    }
    let wrong = |text| Failure::usage(Code::NoTask, text);
    let agent =
        args.agent.clone().ok_or_else(|| Failure::usage(Code::Arguments, "name the agent: producer submit AGENT"))?;
    let payload = read_payload(&args, context)?;
    // What is wrong with the task itself is said before a server is looked for.
    let timeless = Facts { at: None, ..args.facts.clone() };
    let draft = timeless.task(agent.clone(), payload.clone(), ServerClock::new(0)).map_err(wrong)?;
    draft.check_within(context.config.submit.payload_bytes_max).map_err(|e| wrong(e.to_string()))?;

    let client = context.connect().await?;
    let now_ms = if args.facts.at.is_some() { client.counts().await?.now_ms } else { 0 };
    let task = args.facts.clone().task(agent, payload, ServerClock::new(now_ms)).map_err(wrong)?;
    // An id of our own making is new: if it is in already, our own first try had brought it there.
    let (made, own_id) = (task.id.clone(), args.facts.id.is_none());
    let receipt = client.submit(task).await?;
    let duplicate = receipt.is_duplicate() && !(own_id && *receipt.id() == made);
    if !args.wait || context.out.format != Format::Json {
        accepted(&receipt, duplicate, context).await?;
    }
    if duplicate && args.fail_on_duplicate {
        return Err(Failure::new(Exit::Refused, Code::Duplicate, format!("task {} was in already", receipt.id())));
    }
    if args.wait {
        let timeout = args.wait_timeout.map_or(context.config.wait.timeout, |span| span.0);
        return see_it_end(&client, receipt.id(), duplicate, timeout, context).await;
    }
    Ok(Exit::Ok)
}

async fn accepted(receipt: &Receipt, duplicate: bool, context: &Context) -> Result<(), Failure> {
    let id = receipt.id();
    // A late caller gets the answer that the first one got.
    let ended = if duplicate { receipt.wait(Duration::ZERO).await? } else { Waited::Forgotten };
    let replaced = receipt.taken() == Taken::Replaced;
    if context.out.is_table() {
        match ended.ended() {
            Some(end) => context
                .out
                .note(&format!("it was in already, and has ended: {}; see `producer status {id}`", end.state)),
            None if duplicate => context.out.note("it was in already"),
            None if replaced => context.out.note("it has taken the place of the task that waited under its key"),
            None => {}
        }
        context.out.line(id.as_str())?;
    } else {
        let ended = ended.ended().map(|_| WaitedView::of(id, &ended));
        context.out.json(&View { id, duplicate, replaced, ended })?;
    }
    Ok(())
}

fn read_payload(args: &Args, context: &Context) -> Result<Bytes, Failure> {
    let most = context.config.submit.payload_bytes_max;
    let bytes = match (&args.payload_word, &args.payload, &args.payload_file) {
        (Some(word), _, _) if word == "-" => payload::read(word.as_ref(), most)?,
        (Some(text), _, _) | (_, Some(text), _) => Bytes::copy_from_slice(text.as_bytes()),
        (_, _, Some(path)) => payload::read(path, most)?,
        _ => Bytes::from_static(b"null"),
    };
    if !args.raw {
        payload::check_json(&bytes).map_err(|e| {
            Failure::usage(Code::Payload, format!("the payload is not JSON: {e}\n  with --raw it may be anything"))
        })?;
    }
    Ok(bytes)
}

/// Waits, and shows the states on the way: on stderr for people, as lines for ndjson.
async fn see_it_end(client: &Client, id: &TaskId, duplicate: bool, timeout: Duration, context: &Context) -> Outcome {
    let out = &context.out;
    let mut last = String::new();
    let waited = client.watch(id, timeout, |status| {
        let now = words::brief(status);
        if now != last && status.state.is_some_and(|state| !state.has_ended()) {
            if out.format == Format::Ndjson {
                // A closed stdout is noticed at the next line that matters.
                let _ = out.json(&StatusView::of(id, status));
            } else {
                out.note(&format!("  {now}"));
            }
            last = now;
        }
    });
    let waited = tokio::select! {
        waited = waited => waited?,
        never = say_if_alone(client, context) => never,
    };
    match (&waited, out.is_table()) {
        (_, false) => out.json(&EndView { duplicate, end: WaitedView::of(id, &waited) })?,
        (Waited::Ended(end), true) if end.is_success() => {
            out.note(&format!(
                "  succeeded (attempt {}, {})",
                end.attempt,
                words::span(end.ended_ms.saturating_sub(end.started_ms))
            ));
            if !end.result.is_empty() {
                out.line(&result_text(&end.result, out.terminal))?;
            }
        }
        _ => {}
    }
    say_badly(id, &waited, context);
    Ok(exit_of(&waited))
}

/// Says, after a while, that nobody is there to run anything: the usual reason for a first wait that does not end.
async fn say_if_alone(client: &Client, context: &Context) -> Waited {
    tokio::time::sleep(ALONE_AFTER).await;
    if client.counts().await.is_ok_and(|counts| counts.workers == 0) {
        context.out.note("  no worker is alive: start one with `worker run`, or `worker dev` on this machine");
    }
    std::future::pending().await
}

/// The last words of a wait that did not end well.
pub(crate) fn say_badly(id: &TaskId, waited: &Waited, context: &Context) {
    let (code, text) = match waited {
        Waited::Ended(end) if end.is_success() => return,
        Waited::Ended(end) if end.error.is_empty() => (Code::EndedBadly, format!("task {id} is {}", end.state)),
        Waited::Ended(end) => (Code::EndedBadly, format!("task {id} is {}: {}", end.state, printable(&end.error))),
        Waited::TimedOut { last } => {
            let state = super::view::state_name(*last);
            let text = format!("task {id} has not ended in time ({state}) and goes on; see `producer explain {id}`");
            (Code::WaitOver, text)
        }
        Waited::Forgotten => (Code::NothingKnown, format!("nothing is known of task {id} any more")),
    };
    context.out.error(code, &text);
}
