//! `producer dead groups`: what tasks died of, like errors together.

use std::collections::BTreeMap;

use serde::Serialize;
use tidemill_common::history::DeadReason;
use tidemill_producer::{State, TaskId, reason_of};

use super::exit::{Exit, Outcome};
use super::filter::FilterArgs;
use super::group::{Fingerprint, fingerprint, last_error, normal};
use super::list::Limit;
use super::output::{Format, cut, last_column, printable};
use super::{Context, words};

/// Columns of the error, where the terminal does not say how wide it is.
const ERROR_WIDTH: usize = 80;
const ERROR_WIDTH_MIN: usize = 24;

const EXAMPLES: &str = "Examples:
  producer dead groups
  producer dead groups --queue reports --older-than 1h
  producer dead groups --output json | jq -r '.[0].replay'
";

const FIELDS: &str = "Two of the dead are of one group when their agent, their reason and their last error are the same, once numbers, ids and
quoted texts are taken out of it.

Fields (JSON): group (its fingerprint, for --group); count; agent; reason; error (without numbers, ids and quotations);
oldest_ms, newest_ms (of their deaths, server time); example (an id, of the newest); replay (the command for exactly this group,
within the filter)";

/// What they died of: groups of like errors, the largest first
#[derive(Debug, clap::Args)]
#[command(before_long_help = EXAMPLES, after_long_help = FIELDS)]
pub(crate) struct Args {
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    limit: Limit,
}

#[derive(Debug, Serialize)]
struct GroupView {
    group: String,
    count: u64,
    agent: Option<String>,
    reason: Option<DeadReason>,
    error: String,
    oldest_ms: Option<u64>,
    newest_ms: Option<u64>,
    example: TaskId,
    replay: String,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Outcome {
    let wanted = args.filter.wanted(&[State::Dead], &[State::Dead])?;
    let client = context.connect().await?;
    let now_ms = client.counts().await?.now_ms;
    let mut groups: BTreeMap<Fingerprint, GroupView> = BTreeMap::new();
    client
        .list(&wanted.select, |found| {
            if wanted.matches(&found) {
                let print = fingerprint(&found);
                let ended_ms = found.outcome.as_ref().map(|outcome| outcome.ended_ms);
                let group = groups.entry(print).or_insert_with(|| GroupView {
                    group: print.to_string(),
                    count: 0,
                    agent: found.task.as_ref().map(|task| task.agent.to_string()),
                    reason: reason_of(&found),
                    error: normal(&last_error(&found)),
                    oldest_ms: ended_ms,
                    newest_ms: ended_ms,
                    example: found.id.clone(),
                    replay: format!("producer dead replay{}", args.filter.of_group(print)),
                });
                group.count += 1;
                // They come in the order of their deaths.
                (group.newest_ms, group.example) = (ended_ms.or(group.newest_ms), found.id);
            }
            true
        })
        .await?;
    let mut groups: Vec<GroupView> = groups.into_values().collect();
    groups.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.group.cmp(&b.group)));
    let all = groups.len();
    groups.truncate(args.limit.most());
    show(&groups, now_ms, context)?;
    if groups.len() < all {
        context.out.note(&format!("There are {all} groups: --limit 0 shows all."));
    }
    Ok(Exit::Ok)
}

fn show(groups: &[GroupView], now_ms: u64, context: &Context) -> std::io::Result<()> {
    let out = &context.out;
    match out.format {
        Format::Json => return out.json(&groups),
        Format::Ndjson => return groups.iter().try_for_each(|group| out.json(group)),
        Format::Table => {}
    }
    let Some(first) = groups.first() else {
        return out.line("Nothing is dead.");
    };
    let header = ["GROUP", "COUNT", "AGENT", "REASON", "OLDEST", "NEWEST", "EXAMPLE", "ERROR"];
    let age = |at: Option<u64>| at.map_or_else(|| "-".to_owned(), |at| words::age(now_ms.saturating_sub(at)));
    let mut rows: Vec<Vec<String>> = groups
        .iter()
        .map(|group| {
            vec![
                group.group.clone(),
                group.count.to_string(),
                group.agent.clone().unwrap_or_else(|| "-".to_owned()),
                group.reason.map_or("-", DeadReason::as_str).to_owned(),
                age(group.oldest_ms),
                age(group.newest_ms),
                group.example.to_string(),
                printable(&group.error),
            ]
        })
        .collect();
    let width = last_column(&header, &rows).unwrap_or(ERROR_WIDTH).max(ERROR_WIDTH_MIN);
    for error in rows.iter_mut().filter_map(|row| row.last_mut()) {
        *error = cut(error, width);
    }
    out.table(&header, rows)?;
    out.note(&format!("To replay a group: {}", first.replay));
    Ok(())
}
