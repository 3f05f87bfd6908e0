//! `producer book history`: the last books, who came after whom, and why.

use serde::Serialize;

use super::EXAMPLES;
use crate::cli::Context;
use crate::cli::exit::{Exit, Outcome};
use crate::cli::output::{one_line, printable};

/// List the last books, the newest first; at most 20 are kept
#[derive(Debug, clap::Args)]
#[command(before_long_help = EXAMPLES)]
pub(crate) struct Args {}

#[derive(Debug, Serialize)]
struct Entry<'a> {
    revision: u64,
    applied_ms: u64,
    note: &'a str,
    limits: Option<usize>,
}

fn moment(ms: u64) -> String {
    let at = i64::try_from(ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    at.map_or_else(|| "?".to_owned(), |at| at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string())
}

pub(crate) async fn run(_: &Args, context: &Context) -> Outcome {
    let books = context.connect().await?.books().await?;
    let limits = |text: &str| tidemill_producer::Book::parse(text).ok().map(|book| book.limits.len());
    let entries: Vec<Entry<'_>> = books
        .iter()
        .map(|b| Entry { revision: b.revision, applied_ms: b.applied_ms, note: &b.note, limits: limits(&b.text) })
        .collect();
    if !context.out.is_table() {
        context.out.json(&entries)?;
    } else if entries.is_empty() {
        context.out.line("no book was ever applied: nothing is limited")?;
    } else {
        let row = |e: &Entry<'_>| {
            let limits = e.limits.map_or_else(|| "?".to_owned(), |n| n.to_string());
            vec![e.revision.to_string(), moment(e.applied_ms), limits, printable(&one_line(e.note))]
        };
        context.out.table(&["REVISION", "APPLIED", "RULES", "NOTE"], entries.iter().map(row).collect())?;
    }
    Ok(Exit::Ok)
}
