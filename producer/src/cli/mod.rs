//! The program `producer`: what it is asked, and the verbs that do it, a file each.

mod alter;
mod args;
mod book;
mod bulk;
mod cancel;
mod codes;
mod codes_table;
mod completions;
mod config;
mod dead;
mod dead_groups;
mod dead_show;
mod deed;
mod dev;
mod doctor;
mod doctor_server;
mod doctor_tasks;
mod exit;
mod explain;
mod facts;
mod filter;
mod group;
mod ids;
mod interrupt;
mod lines;
mod list;
mod man;
mod output;
mod pause;
mod payload;
mod pick;
mod queue;
mod schedule;
mod status;
mod submit;
mod tail;
mod top;
mod view;
mod wait;
mod words;
mod workers;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _};
use tidemill_common::config::Origin;
use tidemill_producer::Client;

use args::{Args, Global, Verb};
use codes::Code;
use config::{Config, Sources};
use exit::{Exit, Failure, Outcome};
use interrupt::Interrupt;
use output::{Color, Out};

/// What every verb is given.
struct Context {
    out: Out,
    config: Config,
    interrupt: Interrupt,
}

impl Context {
    async fn connect(&self) -> Result<Client, Failure> {
        Ok(Client::connect(self.config.options()).await?)
    }
}

/// Reads the arguments and does what they say.
pub(crate) fn main() -> ExitCode {
    let args = match read_args() {
        Ok(args) => args,
        Err((error, color)) => return not_understood(&error, color).into(),
    };
    let out = Out::new(args.global.output, args.global.color, args.global.quiet);
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            out.error(Code::CannotStart, &format!("cannot start: {error}"));
            return Exit::Failure.into();
        }
    };
    let outcome = runtime.block_on(run(args, out.clone()));
    // A read of stdin that nobody waits for any more would hold up the end.
    runtime.shutdown_background();
    tidemill_common::telemetry::end();
    match outcome {
        Ok(exit) => exit.into(),
        Err(failure) => {
            if !failure.text.is_empty() {
                out.error(failure.code, &output::printable(&failure.text));
            }
            failure.exit.into()
        }
    }
}

/// Says what is wrong with the arguments, with its code; or shows help, or the version, which are no failure.
fn not_understood(error: &clap::Error, color: Color) -> Exit {
    if !error.use_stderr() {
        // Nobody is left to tell when that cannot be written.
        let _ = error.print();
        return Exit::Ok;
    }
    let text = error.render();
    let text = if output::on_stderr(color) { text.ansi().to_string() } else { text.to_string() };
    let coded = text.replacen("error:", &format!("error[{}]:", Code::Arguments), 1);
    let said = if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand { text } else { coded };
    let _ = std::io::stderr().lock().write_all(said.as_bytes());
    Exit::Usage
}

/// Parses the arguments, in the colours that they ask for.
fn read_args() -> Result<Args, (clap::Error, Color)> {
    let mut words = std::env::args_os().skip_while(|word| !word.to_string_lossy().starts_with("--color"));
    let color = words.next().map(|word| word.to_string_lossy().into_owned());
    let color = match color.as_deref().map(|word| word.strip_prefix("--color=")) {
        Some(Some(value)) => value.to_owned(),
        Some(None) => words.next().map_or_else(String::new, |value| value.to_string_lossy().into_owned()),
        None => String::new(),
    };
    let (choice, color) = match color.as_str() {
        "always" => (clap::ColorChoice::Always, Color::Always),
        "never" => (clap::ColorChoice::Never, Color::Never),
        _ => (clap::ColorChoice::Auto, Color::Auto),
    };
    let matches = Args::command().color(choice).try_get_matches();
    matches.and_then(|matches| Args::from_arg_matches(&matches)).map_err(|error| (error, color))
}

async fn run(args: Args, out: Out) -> Outcome {
    tidemill_common::telemetry::init("tidemill-producer");
    match &args.verb {
        // These need neither configuration nor server.
        Verb::Completions(args) => return completions::run(args, &out),
        Verb::Man(args) => return man::run(args, &out),
        Verb::Explain(args) if args.code().is_some() => {
            return explain::show_code(args.code().unwrap_or_default(), &out);
        }
        Verb::Schedule(args) => {
            if let Some(outcome) = args.alone(&out) {
                return outcome;
            }
        }
        Verb::Book(args) => {
            if let Some(outcome) = args.alone(&out) {
                return outcome;
            }
        }
        _ => {}
    }
    let failed = |e| Failure::new(Exit::Failure, Code::CannotStart, format!("cannot listen for signals: {e}"));
    let interrupt = Interrupt::listen().map_err(failed)?;
    let patience = if args.verb.ends_itself() { 2 } else { 1 };
    let config = load(args.global, &out)?;
    let context = Context { out, config, interrupt: interrupt.clone() };
    tokio::select! {
        () = interrupt.told(patience) => Ok(Exit::Interrupted),
        outcome = dispatch(args.verb, &context) => outcome,
    }
}

async fn dispatch(verb: Verb, context: &Context) -> Outcome {
    match verb {
        Verb::Submit(args) => Box::pin(submit::run(*args, context)).await,
        Verb::Status(args) => status::run(&args, context).await,
        Verb::Wait(args) => wait::run(&args, context).await,
        Verb::Tail(args) => tail::run(&args, context).await,
        Verb::Cancel(args) => Box::pin(cancel::run(&args, context)).await,
        Verb::Dead(args) => Box::pin(dead::run(&args, context)).await,
        Verb::Retry(args) => Box::pin(dead::replay(&args, context)).await,
        Verb::Purge(args) => Box::pin(dead::purge(&args, context)).await,
        Verb::Move(args) => Box::pin(alter::run_move(&args, context)).await,
        Verb::SetPriority(args) => Box::pin(alter::run_set_priority(&args, context)).await,
        Verb::RunNow(args) => Box::pin(alter::run_now(&args, context)).await,
        Verb::Explain(args) => explain::run(&args, context).await,
        Verb::List(args) => list::run(&args, context).await,
        Verb::Queue(args) => queue::run(&args, context).await,
        Verb::Top(args) => Box::pin(top::run(&args, context)).await,
        Verb::Pause(args) => pause::run(&args, context).await,
        Verb::Resume(args) => pause::resume(&args, context).await,
        Verb::Workers(args) => workers::run(&args, context).await,
        Verb::Concurrency(args) => workers::concurrency(&args, context).await,
        Verb::Schedule(args) => Box::pin(schedule::run(*args, context)).await,
        Verb::Book(args) => book::run(&args, context).await,
        Verb::Doctor(args) => doctor::run(&args, context).await,
        Verb::Completions(args) => completions::run(&args, &context.out),
        Verb::Man(args) => man::run(&args, &context.out),
    }
}

/// Loads the configuration, and says so when the development server was found.
fn load(global: Global, out: &Out) -> Result<Config, Failure> {
    let dir = std::env::current_dir().ok();
    let named = std::env::var_os("TIDEMILL_PRODUCER_CONFIG").filter(|name| !name.is_empty()).map(PathBuf::from);
    let file = global.config.or(named);
    let sources = Sources { dir: dir.as_deref(), file: file.as_deref(), env: None, redis_flag: global.redis };
    let loaded = config::load(sources).map_err(|mistakes| Failure::usage(Code::Configuration, mistakes.to_string()))?;
    if let Origin::File(path) = loaded.origin("redis.url")
        && path.ends_with(dev::URL_FILE)
    {
        out.note(&format!("using the development server {} (from {})", loaded.value.redis.shown_url(), path.display()));
    }
    Ok(loaded.value)
}
