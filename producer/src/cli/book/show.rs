//! `producer book show`: what is in force, or was; and what a file compiles to.

use serde::Serialize;
use tidemill_producer::book::BookKept;

use super::file::File;
use super::{BOOK, EXAMPLES};
use crate::cli::Context;
use crate::cli::codes::Code;
use crate::cli::exit::{Exit, Failure, Outcome};
use crate::cli::output::{Out, printable};

/// Show the book in force, as it was applied
#[derive(Debug, clap::Args)]
#[command(before_long_help = EXAMPLES, after_long_help = BOOK)]
pub(crate) struct Args {
    /// Another one of the history
    #[arg(long, value_name = "N")]
    revision: Option<u64>,
}

#[derive(Debug, Serialize)]
struct KeptView<'a> {
    revision: u64,
    applied_ms: u64,
    note: &'a str,
    text: &'a str,
}

#[derive(Debug, Serialize)]
struct CompiledView<'a> {
    revision: u64,
    masks: Vec<&'a str>,
    rules: Vec<FieldView<'a>>,
}

#[derive(Debug, Serialize)]
struct FieldView<'a> {
    field: &'a str,
    rules: serde_json::Value,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Outcome {
    let client = context.connect().await?;
    let found = match args.revision {
        None => client.book().await?,
        Some(revision) => client.books().await?.into_iter().find(|kept| kept.revision == revision),
    };
    let Some(BookKept { revision, applied_ms, note, text }) = found else { return nothing(args, &context.out) };
    if context.out.is_table() {
        context.out.line(&text)?;
    } else {
        context.out.json(&KeptView { revision, applied_ms, note: &note, text: &text })?;
    }
    Ok(Exit::Ok)
}

fn nothing(args: &Args, out: &Out) -> Outcome {
    if let Some(revision) = args.revision {
        let text = format!("revision {revision} is not kept; `producer book history` lists those that are");
        return Err(Failure::new(Exit::Failure, Code::NothingKnown, text));
    }
    if out.is_table() {
        out.line("no book is in force: nothing is limited. `producer book --help` shows how one is written")?;
    } else {
        out.json(&serde_json::Value::Null)?;
    }
    Ok(Exit::Ok)
}

/// Shows what a book compiles to.
pub(super) fn compiled(file: &File, out: &Out) -> Outcome {
    let (book, text) = file.read()?;
    let compiled = book.compile_as(text);
    let masks = compiled.masks.split(',').filter(|mask| !mask.is_empty()).collect();
    let rules: Vec<_> = compiled
        .fields
        .iter()
        .map(|(field, rules)| FieldView { field, rules: rmp_serde::from_slice(rules).unwrap_or_default() })
        .collect();
    if out.is_table() {
        out.line(&format!("revision {}, masks {}", compiled.revision, compiled.masks))?;
        let row = |r: &FieldView<'_>| vec![printable(r.field), r.rules.to_string()];
        out.table(&["FIELD", "RULES"], rules.iter().map(row).collect())?;
    } else {
        out.json(&CompiledView { revision: compiled.revision, masks, rules })?;
    }
    Ok(Exit::Ok)
}
