//! `producer tail`: follows a task's states, progress and output until it has ended.
//!
//! One task of the program reads the output and is never dropped in the middle of a read; another waits for the end, and a clock has
//! the status looked at. When the end is known, what was written before it is read to its last piece, and then the program ends.

mod lines;
mod source;

use std::time::Duration;

use tidemill_producer::{Client, Ended, State, TaskId, Waited};
use tokio::time::{MissedTickBehavior, interval, timeout};

use self::lines::Lines;
use self::source::Source;
use super::Context;
use super::codes::Code;
use super::exit::{Failure, Outcome};
use super::facts::Span;
use super::submit::say_badly;
use super::wait::exit_of;

/// How often the status is looked at; its end is heard of at once.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Longest wait where none is given: for ever, to people.
const FOR_EVER: Duration = Duration::from_secs(365 * 86_400);
/// How long the rest of the output is asked for, if the server does not answer.
const REST_WITHIN: Duration = Duration::from_secs(10);

const EXAMPLES: &str = "Examples:
  producer tail ID                       states and progress on stderr, the output on stdout
  producer tail ID > answer.txt
  producer tail ID --output ndjson --from 1764547200000-0
";

const FIELDS: &str = "The output is what the handler emits while it runs, byte for byte; on a terminal, control characters are written out. It is kept for
an hour after the last of it, 4 MiB at most. A new attempt begins it anew: what came before is void, which stderr says.

With --output ndjson (or json), a line each, as it comes:
  kind      state, progress, output, restart, gap, or end
  entry     the last piece of output that was shown; --from ENTRY goes on behind it. Null before the first
  state     of state: queued, scheduled, parked, running, …; with gate, worker, attempt
  text      of output, or hex when that piece is not UTF-8 by itself; with attempt and offset (bytes of this attempt before it)
            of progress: what the handler said
  attempt   of restart: the one that begins; output before this line is void
  missing   of gap: bytes that are not kept any more (at least 1), after those before this line
  id, state, timed_out, attempt, started_ms, ended_ms, error, and result, result_text or result_hex: of end, as in `wait`

Exit code as that of `wait`: 3 when it ended badly, 4 when --timeout was over before the end, 1 when nothing is known of it.";

/// Follow a task's output, progress and states until it ends
#[derive(Debug, clap::Args)]
#[command(before_long_help = EXAMPLES, after_long_help = FIELDS)]
pub(crate) struct Args {
    /// The task's id
    #[arg(value_name = "ID")]
    id: TaskId,
    /// Where to begin: start (what is kept), or an entry of an earlier tail, to go on behind it
    #[arg(long, value_name = "ENTRY", default_value = "start", value_parser = begin)]
    from: Begin,
    /// How long to follow it [default: until it ends]
    #[arg(long, value_name = "DURATION")]
    timeout: Option<Span>,
}

/// Where to begin.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Begin {
    Start,
    Behind { ms: u64, sequence: u64 },
}

fn begin(word: &str) -> Result<Begin, String> {
    let wrong = || format!("{word:?} is neither `start` nor an entry such as 1764547200000-0");
    if word == "start" {
        return Ok(Begin::Start);
    }
    let (ms, sequence) = word.split_once('-').ok_or_else(wrong)?;
    Ok(Begin::Behind { ms: ms.parse().map_err(|_| wrong())?, sequence: sequence.parse().map_err(|_| wrong())? })
}

impl Begin {
    fn entry(&self) -> Option<String> {
        match self {
            Self::Start => None,
            Self::Behind { ms, sequence } => Some(format!("{ms}-{sequence}")),
        }
    }

    /// The entry before it, so that it is read once more: what it says tells whether anything behind it is missing.
    fn before(&self) -> Option<String> {
        match *self {
            Self::Start | Self::Behind { ms: 0, sequence: 0 } => None,
            Self::Behind { ms, sequence: 0 } => Some(format!("{}-{}", ms - 1, u64::MAX)),
            Self::Behind { ms, sequence } => Some(format!("{ms}-{}", sequence - 1)),
        }
    }
}

pub(crate) async fn run(args: &Args, context: &Context) -> Outcome {
    let client = context.connect().await?;
    let mut lines = Lines::new(&context.out, args.from.entry());
    let waited = Box::pin(follow(&client, args, &mut lines)).await?;
    lines.end(&args.id, &waited)?;
    say_badly(&args.id, &waited, context);
    Ok(exit_of(&waited))
}

async fn follow(client: &Client, args: &Args, lines: &mut Lines<'_>) -> Result<Waited, Failure> {
    let id = &args.id;
    let mut source = Source::start(client, id, args.from.before());
    let wait = client.wait(id, args.timeout.map_or(FOR_EVER, |span| span.0));
    tokio::pin!(wait);
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let waited = loop {
        tokio::select! {
            waited = &mut wait => break waited?,
            _ = looks.tick() => look(client, id, lines).await?,
            pieces = source.next() => for piece in pieces? {
                if lines.is_new_run(&piece) {
                    look(client, id, lines).await?;
                }
                lines.piece(piece)?;
            },
        }
    };
    let rest = async {
        for piece in source.rest().await? {
            lines.piece(piece)?;
        }
        Ok::<(), Failure>(())
    };
    match timeout(REST_WITHIN, rest).await {
        Ok(rest) => rest?,
        Err(_) => lines.warn("the server does not answer: the end of the output may be missing"),
    }
    if let Waited::Ended(Ended { state: State::Succeeded, .. }) = &waited
        && let Ok(Ok(status)) = timeout(LOOK_EVERY, client.status(id)).await
    {
        lines.run(status.fence, status.attempt)?;
    }
    Ok(waited)
}

/// Looks at the status. That there is no answer is not told: the wait for the end goes on until there is one.
async fn look(client: &Client, id: &TaskId, lines: &mut Lines<'_>) -> Result<(), Failure> {
    match timeout(LOOK_EVERY, client.status(id)).await {
        Ok(Ok(status)) if status.state.is_some_and(|state| !state.has_ended()) => lines.status(&status),
        Ok(Err(error)) if !error.is_transient() => Err(error.into()),
        _ => Ok(()),
    }
}

/// What makes a tail end before the task does.
fn broken(text: &str) -> Failure {
    Failure::new(super::exit::Exit::Failure, Code::NoAnswer, text)
}
