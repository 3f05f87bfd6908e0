//! `producer top`: all that waits, runs and fails, live, on a terminal.

mod draw;
mod errors;
mod keys;
mod model;

use std::io::IsTerminal as _;
use std::time::Duration;

use ratatui::DefaultTerminal;
use tidemill_common::store::Pausable;
use tidemill_producer::{Client, QueueName};
use tokio::time::{MissedTickBehavior, interval};

use self::errors::Errors;
use self::keys::{Key, Keys};
use self::model::{Look, Model};
use super::codes::Code;
use super::exit::{Exit, Failure, Outcome, chain};
use super::{Context, pause};

/// How often it looks.
const EVERY: Duration = Duration::from_secs(1);

const EXAMPLES: &str = "Examples:
  producer top
  producer top --redis redis://host:6379
";
const KEYS: &str = "Keys: up and down select a queue; p pauses it, or resumes it, after a question; q quits.

RATE is by how many tasks a second those that wait become more or fewer. Without a terminal: `producer queue --watch`.";

/// Watch queues, workers and errors, live
#[derive(Debug, clap::Args)]
#[command(before_long_help = EXAMPLES, after_long_help = KEYS)]
pub(crate) struct Args {}

/// The terminal, which is as it was once this is dropped. On a panic, ratatui's hook sees to that before the panic is told.
struct Screen(DefaultTerminal);

impl Screen {
    fn take() -> std::io::Result<Self> {
        ratatui::try_init().map(Self).inspect_err(|_| ratatui::restore())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

pub(crate) async fn run(_args: &Args, context: &Context) -> Outcome {
    if !context.out.terminal || !std::io::stdin().is_terminal() {
        let text = "there is no terminal to draw on; `producer queue --watch` shows the same line by line";
        return Err(Failure::usage(Code::NoTerminal, text));
    }
    let client = context.connect().await?;
    let mut model = Model::new(context.config.redis.shown_url());
    model.seen(Box::pin(look(&client)).await?);
    let failed = |e: std::io::Error| Failure::new(Exit::Failure, Code::NoTerminal, format!("the terminal fails: {e}"));
    let mut screen = Screen::take().map_err(failed)?;
    let mut keys = Keys::listen();
    let mut errors = Errors::watch(&client);
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.reset();
    loop {
        model.errors = errors.newest();
        screen.0.draw(|frame| draw::draw(frame, &mut model)).map_err(failed)?;
        tokio::select! {
            _ = ticks.tick() => match Box::pin(look(&client)).await {
                Ok(look) => model.seen(look),
                Err(error) if error.is_transient() => model.note = format!("no answer: {}", chain(&error)),
                Err(error) => return Err(error.into()),
            },
            key = keys.next() => match key {
                Key::Quit => return Ok(Exit::Ok),
                Key::Interrupt => return Ok(Exit::Interrupted),
                key => if let Some((queue, hold)) = model.pressed(key) {
                    model.note = change(&client, &queue, hold).await;
                    if let Ok(look) = Box::pin(look(&client)).await {
                        model.seen(look);
                    }
                },
            },
            () = errors.changed() => {}
        }
    }
}

async fn look(client: &Client) -> Result<Look, tidemill_producer::Error> {
    let (counts, pauses, (_, workers)) = tokio::try_join!(client.counts(), client.pauses(), client.workers())?;
    let pauses = pause::in_force(pauses, counts.now_ms);
    Ok(Look { counts, pauses, workers, at: std::time::Instant::now() })
}

/// Pauses a queue, or resumes it; what came of it in words.
async fn change(client: &Client, queue: &str, hold: bool) -> String {
    let Ok(name) = queue.parse::<QueueName>() else { return format!("{queue} is no name of a queue") };
    let what = Pausable::Queue(name);
    let done = if hold { client.pause(&what, None, "by hand, in top").await } else { client.resume(&what).await };
    match (done, hold) {
        (Ok(true), true) => format!("queue {queue} is paused"),
        (Ok(false), true) => "there are 256 pauses, which is as many as there may be".to_owned(),
        (Ok(_), false) => format!("queue {queue} goes on"),
        (Err(error), _) => format!("that failed: {}", chain(&error)),
    }
}
