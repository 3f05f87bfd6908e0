//! `producer wait`: waits for the ends of tasks.

use futures::stream::{FuturesUnordered, StreamExt as _};
use tidemill_producer::{TaskId, Waited};

use super::exit::{Exit, Outcome};
use super::facts::Span;
use super::ids::Ids;
use super::output::printable;
use super::view::{ResultView, WaitedView};
use super::{Context, words};

const FIELDS: &str =
    "Fields (JSON): id, state, timed_out, attempt, started_ms, ended_ms, error, and result, result_text or
result_hex. JSON is one object for one id and a list for several; ndjson has a line for each, as soon as it has ended.

Exit code: 3 when one ended badly, else 4 when one has not ended in time, else 1 when nothing is known of one.";

const EXAMPLES: &str = "Examples:
  producer wait ID --timeout 5m
  producer wait ID-1 ID-2 --output ndjson        each as soon as it has ended
";

/// Wait for the ends of tasks
#[derive(Debug, clap::Args)]
#[command(before_long_help = EXAMPLES, after_long_help = FIELDS)]
pub(crate) struct Args {
    #[command(flatten)]
    ids: Ids,
    /// How long [default: wait.timeout of the configuration, 1h]
    #[arg(long, value_name = "DURATION")]
    timeout: Option<Span>,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Outcome {
    let ids = args.ids.read("wait")?;
    let client = &context.connect().await?;
    let timeout = args.timeout.map_or(context.config.wait.timeout, |span| span.0);
    let mut waits: FuturesUnordered<_> =
        ids.iter().enumerate().map(|(at, id)| async move { (at, client.wait(id, timeout).await) }).collect();
    let mut done: Vec<Option<Waited>> = vec![None; ids.len()];
    while let Some((at, waited)) = waits.next().await {
        let waited = waited?;
        match context.out.format {
            super::output::Format::Table => table_line(context, &ids[at], &waited)?,
            super::output::Format::Ndjson => context.out.json(&WaitedView::of(&ids[at], &waited))?,
            super::output::Format::Json => {}
        }
        done[at] = Some(waited);
    }
    if context.out.format == super::output::Format::Json {
        let all = ids.iter().zip(&done);
        let views: Vec<_> = all.filter_map(|(id, waited)| Some(WaitedView::of(id, waited.as_ref()?))).collect();
        context.out.json_each(&views)?;
    }
    Ok(done.iter().flatten().map(exit_of).max_by_key(|exit| weight(*exit)).unwrap_or(Exit::Ok))
}

fn table_line(context: &Context, id: &TaskId, waited: &Waited) -> std::io::Result<()> {
    let view = WaitedView::of(id, waited);
    let state = context.out.paint(words::paint(waited.state()), view.state);
    let more = match waited {
        Waited::Ended(end) if end.is_success() => result_text(&end.result, context.out.terminal),
        Waited::Ended(end) => printable(&end.error),
        Waited::TimedOut { .. } => "has not ended in time".to_owned(),
        Waited::Forgotten => "nothing is known of it".to_owned(),
    };
    context.out.line(format!("{id}  {state}  {more}").trim_end())
}

/// A result for people; on a terminal it cannot steer it.
pub(crate) fn result_text(result: &bytes::Bytes, terminal: bool) -> String {
    match std::str::from_utf8(result) {
        Ok(text) if terminal => printable(text),
        Ok(text) => text.to_owned(),
        Err(_) => serde_json::to_string(&ResultView::of(result)).unwrap_or_default(),
    }
}

/// What one wait means for the exit code.
pub(crate) fn exit_of(waited: &Waited) -> Exit {
    match waited {
        Waited::Ended(end) if end.is_success() => Exit::Ok,
        Waited::Ended(_) => Exit::EndedBadly,
        Waited::TimedOut { .. } => Exit::WaitTimedOut,
        Waited::Forgotten => Exit::Failure,
    }
}

/// Of several, the one that says most.
fn weight(exit: Exit) -> u8 {
    match exit {
        Exit::EndedBadly => 3,
        Exit::WaitTimedOut => 2,
        Exit::Ok => 0,
        _ => 1,
    }
}
