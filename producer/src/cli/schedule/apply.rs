//! `producer schedule apply`: a file of schedules, put in force whole or not at all.

use std::collections::BTreeSet;
use std::io::{IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tidemill_common::name::ScheduleName;
use tidemill_common::schedule::Schedule;
use tidemill_common::store::Kept;
use tidemill_producer::{AgentName, Client};

use super::super::Context;
use super::super::exit::{Exit, Failure, Outcome};
use super::super::output::{Format, Paint, printable};
use super::draft::{Draft, plain};
use super::show::SaidView;
use super::{mistake, wrong};

/// A file is a few pages; more is a wrong path.
const FILE_BYTES_MAX: u64 = 4 << 20;

const EXAMPLES: &str = "Examples:
  producer schedule apply schedules.toml --dry-run
  producer schedule apply schedules.toml
  producer schedule apply schedules.toml --prune --dry-run
";

const FILE: &str = "A file:
  [[schedule]]
  name = \"nightly\"
  cron = \"30 2 * * *\"
  zone = \"Europe/Berlin\"
  agent = \"index\"
  payload = { full = true }       any value, handed on as JSON; without one, null
  overlap = \"skip\"                and missed, paused, queue, priority, tenant, start_within, max_age, order_key, cost, weight, tokens, cost_usd,
                                     max_attempts,
                                  timeout, retry_base, retry_cap, result: as the flags of `schedule set`

All mistakes are named at once, and then nothing is put in force. Schedules that the file does not name stay as they are,
or are deleted with --prune, after the others are in force; those that are as it says are left alone, with their next slot.

Fields (JSON), of each: name; outcome (new, changed, same, deleted); changes (names of fields that differ). Ndjson has a line each.";

/// Put a file of schedules in force
#[derive(Debug, clap::Args)]
#[command(before_long_help = EXAMPLES, after_long_help = FILE)]
pub(super) struct Args {
    /// The schedules, in TOML; `-` reads stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Delete the schedules that the file does not name; tasks that they have handed in stay
    #[arg(long)]
    prune: bool,
    /// Only check it, and say what would change
    #[arg(long)]
    dry_run: bool,
}

/// A schedule in a file.
#[derive(Debug, Deserialize)]
struct Entry {
    name: ScheduleName,
    agent: AgentName,
    payload: Option<toml::Value>,
    #[serde(default)]
    paused: bool,
    #[serde(flatten)]
    rest: toml::Table,
}

#[derive(Debug, Serialize)]
struct View<'a> {
    name: &'a ScheduleName,
    outcome: &'static str,
    changes: Vec<String>,
}

impl<'a> View<'a> {
    fn of(new: &'a Schedule, all: &[Kept]) -> Self {
        let name = &new.name;
        let Some(old) = all.iter().find(|kept| kept.name == *name) else {
            return Self { name, outcome: "new", changes: Vec::new() };
        };
        let changes = old.schedule.as_ref().map_or_else(|| vec!["readable".to_owned()], |old| differences(old, new));
        let outcome = if changes.is_empty() { "same" } else { "changed" };
        Self { name, outcome, changes }
    }

    /// Those that are there and in no file.
    fn gone(schedules: &[Schedule], all: &'a [Kept]) -> impl Iterator<Item = Self> {
        let gone = all.iter().filter(|kept| schedules.iter().all(|schedule| schedule.name != kept.name));
        gone.map(|kept| Self { name: &kept.name, outcome: DELETED, changes: Vec::new() })
    }
}

/// The outcome of one that the file does not name.
const DELETED: &str = "deleted";

/// Names of the fields that differ.
fn differences(old: &Schedule, new: &Schedule) -> Vec<String> {
    let shown = |schedule: &Schedule| match serde_json::to_value(SaidView::of(schedule)) {
        Ok(serde_json::Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let (before, after) = (shown(old), shown(new));
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let mut differ: Vec<String> =
        names.into_iter().filter(|name| before.get(*name) != after.get(*name)).cloned().collect();
    // What is not shown, such as spaces in a payload.
    if differ.is_empty() && old != new {
        differ.push("payload".to_owned());
    }
    differ
}

pub(super) async fn run(args: &Args, context: &Context) -> Outcome {
    let schedules = parse(&read(&args.file)?).map_err(|mistakes| {
        mistake(format!("{} has mistakes:\n  - {}", args.file.display(), mistakes.join("\n  - ")))
    })?;
    let client = context.connect().await?;
    let all = client.schedules().await?;
    let mut views: Vec<View<'_>> = schedules.iter().map(|schedule| View::of(schedule, &all)).collect();
    if args.prune {
        views.extend(View::gone(&schedules, &all));
    }
    if !args.dry_run {
        put_in_force(&client, &schedules, &views).await?;
    }
    match context.out.format {
        Format::Json => context.out.json(&views)?,
        Format::Ndjson => context.out.json_each(&views)?,
        Format::Table => table(&views, args.dry_run, context)?,
    }
    Ok(Exit::Ok)
}

/// Sets what differs, and then deletes what is gone: the views of the schedules come first, in their order.
async fn put_in_force(client: &Client, schedules: &[Schedule], views: &[View<'_>]) -> Result<(), Failure> {
    let failed = |name: &ScheduleName, error| {
        let failure = Failure::from(error);
        let text = format!(
            "schedule {name}: {}\n  those before it are done; the same command again does the rest",
            failure.text
        );
        Failure { text, ..failure }
    };
    for (schedule, _) in schedules.iter().zip(views).filter(|(_, view)| view.outcome != "same") {
        client.set_schedule(schedule).await.map_err(|error| failed(&schedule.name, error))?;
    }
    for View { name, .. } in views.iter().filter(|view| view.outcome == DELETED) {
        // That somebody else was faster is as good.
        client.delete_schedule(name).await.map_err(|error| failed(name, error))?;
    }
    Ok(())
}

fn table(views: &[View<'_>], dry_run: bool, context: &Context) -> std::io::Result<()> {
    for View { name, outcome, changes } in views {
        let paint = match *outcome {
            "same" => Paint::Faint,
            DELETED => Paint::Care,
            _ => Paint::Good,
        };
        let said = context.out.paint(paint, outcome);
        let changes = if changes.is_empty() { String::new() } else { format!(": {}", changes.join(", ")) };
        context.out.line(&format!("{name}  {said}{changes}"))?;
    }
    if dry_run {
        context.out.note("Nothing was changed: this was a dry run.");
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, Failure> {
    let failed = |e: std::io::Error| Failure::cannot_read(&format!("the schedules {}", path.display()), &e);
    let mut text = String::new();
    if path.as_os_str() == "-" {
        let stdin = std::io::stdin();
        if stdin.is_terminal() {
            return Err(Failure::at_terminal("the schedules are to come", "schedule"));
        }
        stdin.lock().take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    } else {
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    }
    Ok(text)
}

/// Reads a file, and finds all that is wrong with it.
fn parse(text: &str) -> Result<Vec<Schedule>, Vec<String>> {
    let mut file: toml::Table = text.parse().map_err(|e: toml::de::Error| vec![e.to_string().trim_end().to_owned()])?;
    let mut mistakes = Vec::new();
    let entries = match file.remove("schedule") {
        Some(toml::Value::Array(entries)) => entries,
        Some(_) => return Err(vec!["schedule is no list: begin each with [[schedule]]".to_owned()]),
        None => Vec::new(),
    };
    mistakes.extend(
        file.keys().map(|key| format!("{} is not known: begin each schedule with [[schedule]]", printable(key))),
    );
    if entries.is_empty() && mistakes.is_empty() {
        return Err(vec!["it has no schedule: begin each with [[schedule]]".to_owned()]);
    }
    let here = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_ms = u64::try_from(here.as_millis()).unwrap_or(u64::MAX);
    let (mut schedules, mut names) = (Vec::new(), BTreeSet::new());
    for (at, entry) in entries.into_iter().enumerate() {
        let name = entry.get("name").and_then(toml::Value::as_str).map(printable);
        let name = name.unwrap_or_else(|| format!("schedule number {}", at + 1));
        if !names.insert(name.clone()) {
            mistakes.push(format!("{name}: there are two of this name"));
        }
        match one(entry) {
            Ok(schedule) => match wrong(&schedule, now_ms) {
                None => schedules.push(schedule),
                Some(error) => mistakes.push(format!("{name}: {error}")),
            },
            Err(text) => mistakes.push(format!("{name}: {text}")),
        }
    }
    if mistakes.is_empty() { Ok(schedules) } else { Err(mistakes) }
}

fn one(entry: toml::Value) -> Result<Schedule, String> {
    let said = |e: toml::de::Error| e.message().to_owned();
    let Entry { name, agent, payload, paused, rest } = entry.try_into().map_err(said)?;
    let draft: Draft = toml::Value::Table(rest).try_into().map_err(said)?;
    let payload = payload.map_or(Ok(serde_json::Value::Null), json)?;
    let payload = Bytes::from(payload.to_string());
    draft.over(Schedule { paused, ..plain(name, agent, payload) }, true)
}

/// A value as JSON; a date is its text.
fn json(value: toml::Value) -> Result<serde_json::Value, String> {
    Ok(match value {
        toml::Value::String(text) => text.into(),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Float(number) => serde_json::Number::from_f64(number)
            .ok_or_else(|| format!("payload: {number} is no number in JSON"))?
            .into(),
        toml::Value::Boolean(yes) => yes.into(),
        toml::Value::Datetime(date) => date.to_string().into(),
        toml::Value::Array(items) => items.into_iter().map(json).collect::<Result<Vec<_>, _>>()?.into(),
        toml::Value::Table(fields) => {
            let fields = fields.into_iter().map(|(name, value)| Ok((name, json(value)?)));
            serde_json::Value::Object(fields.collect::<Result<_, String>>()?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_mistakes_are_named_at_once() {
        let text = r#"
            top = 1
            [[schedule]]
            name = "a"
            cron = "61 * * * *"
            agent = "x"
            [[schedule]]
            name = "b"
            cron = "@daily"
            zone = "Europe/Berlinn"
            agent = "x"
            [[schedule]]
            name = "b"
            agent = "x"
            [[schedule]]
            name = "c"
            cron = "@daily"
            agent = "x"
            start_within = "soon"
            [[schedule]]
            cron = "@daily"
            [[schedule]]
            name = "d"
            cron = "@daily"
            agent = "x"
            ovrlap = "skip"
        "#;
        let mistakes = parse(text).unwrap_err();
        for (mistake, part) in mistakes.iter().zip([
            "top is not known",
            "a: \"61 * * * *\" is no cron pattern",
            "b: \"Europe/Berlinn\" is no time zone",
            "b: there are two",
            "b: it has no pattern",
            "c: \"soon\" is no duration",
            "schedule number 5: missing field `name`",
            "d: unknown field `ovrlap`",
        ]) {
            assert!(mistake.contains(part), "{part:?}: {mistake}");
        }
        assert_eq!(mistakes.len(), 8, "{mistakes:#?}");
        assert!(parse("").is_err() && parse("x = ").is_err() && parse("schedule = 1").is_err());
    }

    #[test]
    fn a_payload_becomes_json() {
        let text = "[[schedule]]\nname='a'\ncron='@daily'\nagent='x'\npriority='high'\npayload={ d = 2026-12-01, n = [1, 1.5, true] }";
        let schedule = &parse(text).unwrap()[0];
        assert_eq!(schedule.task.payload, r#"{"d":"2026-12-01","n":[1,1.5,true]}"#);
        assert_eq!(differences(schedule, schedule), [""; 0]);
        let other = Schedule { cron: "@hourly".into(), ..schedule.clone() };
        assert_eq!(differences(schedule, &other), ["cron"]);
    }
}
