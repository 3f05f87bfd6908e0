//! `producer book`: puts a book of rules in force, or shows what it compiles to.

use std::io::{IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};

use serde::Serialize;
use tidemill_producer::{Applied, Book};

use super::Context;
use super::codes::Code;
use super::exit::{Exit, Failure, Outcome};
use super::output::Out;

/// A book is a few pages; more is a wrong path.
const BOOK_BYTES_MAX: u64 = 4 << 20;

const EXAMPLES: &str = "Examples:
  producer book apply limits.toml
  producer book apply limits.toml --dry-run
  producer book show-compiled limits.toml
";

const BOOK: &str = "A book:
  revision = 7                      grows with every edit
  [[limit]]
  match = { agent = \"gpt4\" }        any of queue, agent, tenant; the most specific rule of a kind wins
  slots = 5                         at once
  rate = { limit = 60, window_ms = 60000 }    units that start in any such window

Exit code: 2 when the book has mistakes (all are named), 5 when a newer revision, or the same with other content, is in force.";

/// The book of rules: put one in force, or look at it
#[derive(Debug, clap::Args)]
#[command(before_long_help = EXAMPLES, after_long_help = BOOK)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) action: Action,
}

/// What to do with it.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Action {
    Apply(Apply),
    /// Show what a book compiles to, without a server
    #[command(before_long_help = EXAMPLES)]
    ShowCompiled(File),
}

/// A book's file.
#[derive(Debug, clap::Args)]
pub(crate) struct File {
    /// The book, in TOML; `-` reads stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Put a book in force, at once for all workers
#[derive(Debug, clap::Args)]
#[command(before_long_help = EXAMPLES, after_long_help = BOOK)]
pub(crate) struct Apply {
    #[command(flatten)]
    file: File,
    /// Only check it
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Serialize)]
struct AppliedView {
    outcome: &'static str,
    revision: u64,
    in_force: Option<u64>,
}

#[derive(Debug, Serialize)]
struct CompiledView<'a> {
    revision: u64,
    masks: Vec<&'a str>,
    rules: Vec<RuleView<'a>>,
}

#[derive(Debug, Serialize)]
struct RuleView<'a> {
    field: &'a str,
    rules: &'a str,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Outcome {
    let apply = match &args.action {
        Action::Apply(apply) if !apply.dry_run => apply,
        Action::Apply(Apply { file, .. }) | Action::ShowCompiled(file) => return show(file, &context.out),
    };
    let book = read(&apply.file.file)?;
    let client = context.connect().await?;
    let revision = book.revision;
    let (outcome, in_force, words) = match client.apply_book(&book).await? {
        Applied::Applied => ("applied", Some(revision), format!("revision {revision} is in force")),
        Applied::Same => ("same", Some(revision), format!("revision {revision} was in force already")),
        Applied::Conflict => (
            "conflict",
            Some(revision),
            format!("revision {revision} is in force with other content: give the new one a higher number"),
        ),
        Applied::Older(newer) => {
            ("older", Some(newer), format!("revision {newer} is in force, which is newer than {revision}"))
        }
    };
    if context.out.is_table() {
        context.out.line(&words)?;
    } else {
        context.out.json(&AppliedView { outcome, revision, in_force })?;
    }
    match outcome {
        "applied" | "same" => Ok(Exit::Ok),
        _ => Err(Failure::new(Exit::Refused, Code::BookNewer, words)),
    }
}

/// Shows what a book compiles to.
pub(crate) fn show(file: &File, out: &Out) -> Outcome {
    let compiled = read(&file.file)?.compile();
    let masks = compiled.masks.split(',').filter(|mask| !mask.is_empty()).collect();
    let rules: Vec<_> = compiled.fields.iter().map(|(field, rules)| RuleView { field, rules }).collect();
    if out.is_table() {
        out.line(&format!("revision {}, masks {}", compiled.revision, compiled.masks))?;
        out.table(
            &["FIELD", "RULES"],
            rules.iter().map(|r| vec![super::output::printable(r.field), r.rules.to_owned()]).collect(),
        )?;
    } else {
        out.json(&CompiledView { revision: compiled.revision, masks, rules })?;
    }
    Ok(Exit::Ok)
}

fn read(path: &Path) -> Result<Book, Failure> {
    let shown = path.display();
    let failed = |e: std::io::Error| Failure::cannot_read(&format!("the book {shown}"), &e);
    let mut text = String::new();
    if path.as_os_str() == "-" {
        let stdin = std::io::stdin();
        if stdin.is_terminal() {
            return Err(Failure::at_terminal("the book is to come", "book"));
        }
        stdin.lock().take(BOOK_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    } else {
        std::fs::File::open(path)
            .and_then(|file| file.take(BOOK_BYTES_MAX).read_to_string(&mut text))
            .map_err(failed)?;
    }
    Book::parse(&text).map_err(|mistakes| {
        let text = format!("the book {shown} has mistakes:\n  - {}", mistakes.join("\n  - "));
        Failure::usage(Code::BookMistakes, text)
    })
}
