//! `producer book top`: the gates at which tasks wait, the longest lines first.

use serde::Serialize;

use super::EXAMPLES;
use crate::cli::Context;
use crate::cli::exit::{Exit, Outcome};
use crate::cli::output::{Paint, printable};
use crate::cli::words;

/// List the gates at which tasks wait, the longest lines first
#[derive(Debug, clap::Args)]
#[command(before_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// At most so many; 0: all
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
    limit: usize,
}

#[derive(Debug, Serialize)]
struct Line {
    gate: String,
    words: String,
    waiting: u64,
    in_use: Option<u64>,
    due_ms: Option<u64>,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Outcome {
    let client = context.connect().await?;
    let (lines, now_ms) = (client.lines().await?, client.counts().await?.now_ms);
    let mut lines: Vec<Line> = lines
        .into_iter()
        .map(|(gate, seen)| Line {
            words: words::gate_name(&gate),
            in_use: gate.starts_with("s/").then_some(seen.used),
            due_ms: (seen.due_ms > 0).then_some(seen.due_ms),
            waiting: seen.waiting,
            gate,
        })
        .collect();
    lines.sort_by(|a, b| b.waiting.cmp(&a.waiting).then_with(|| a.gate.cmp(&b.gate)));
    let most = if args.limit == 0 { usize::MAX } else { args.limit };
    let more = lines.len().saturating_sub(most);
    lines.truncate(most);
    if !context.out.is_table() {
        context.out.json(&lines)?;
        return Ok(Exit::Ok);
    }
    if lines.is_empty() {
        context.out.line("nothing waits at a gate")?;
        return Ok(Exit::Ok);
    }
    let row = |line: &Line| {
        let due = line.due_ms.map_or_else(String::new, |due| format!("in {}", words::span(due.saturating_sub(now_ms))));
        let in_use = line.in_use.map_or_else(String::new, |n| n.to_string());
        vec![printable(&line.gate), line.waiting.to_string(), in_use, due, context.out.paint(Paint::Faint, &line.words)]
    };
    context.out.table(&["GATE", "WAITING", "IN USE", "OPENS", "WHAT IT IS"], lines.iter().map(row).collect())?;
    if more > 0 {
        context.out.note(&format!("and {more} more; -n 0 shows all"));
    }
    Ok(Exit::Ok)
}
