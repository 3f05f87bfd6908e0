//! Schedules as they are shown: the fields of the JSON output are a promise.

use serde::Serialize;
use tidemill_common::name::ScheduleName;
use tidemill_common::schedule::{Missed, Overlap, Schedule};
use tidemill_common::store::Kept;
use tidemill_producer::{Client, Keep, TaskId};

use super::super::Context;
use super::super::codes::Code;
use super::super::exit::{Exit, Failure, Outcome};
use super::super::output::{Format, Out, Paint, printable};
use super::super::view::{self, EstimateView, PayloadView};
use super::super::words::{age, span};

/// Slots that are shown.
const SLOTS: usize = 5;

pub(super) const FIELDS: &str = "Fields (JSON; null where there is nothing to say):
  name, cron, zone, paused, missed, overlap
  readable          false: another build wrote it, and all but the name and the slots is left out
  next_ms, next     its next slot (server time; RFC 3339 in its zone), null while it is paused
  last_ms, last     the slot that it fired last
  last_task         the task of that slot
  agent, queue, priority, tenant, order_key, cost, weight, tokens, cost_usd, max_attempts, start_within_ms, max_age_ms, timeout_ms, retry_base_ms,
  retry_cap_ms, result, and payload, payload_text or payload_hex      of its tasks
  upcoming          (only of `show`) the next five slots: at_ms, local, utc";

/// A schedule.
#[derive(Debug, Serialize)]
pub(super) struct View {
    name: ScheduleName,
    readable: bool,
    next_ms: Option<u64>,
    next: Option<String>,
    last_ms: Option<u64>,
    last: Option<String>,
    last_task: Option<TaskId>,
    #[serde(flatten)]
    said: Option<SaidView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upcoming: Option<Vec<SlotView>>,
}

/// What is said of it.
#[derive(Debug, Serialize)]
pub(super) struct SaidView {
    cron: String,
    zone: String,
    paused: bool,
    missed: Missed,
    overlap: Overlap,
    agent: String,
    queue: String,
    priority: &'static str,
    tenant: Option<String>,
    order_key: Option<String>,
    cost: u32,
    weight: u16,
    #[serde(flatten)]
    estimate: EstimateView,
    max_attempts: u16,
    start_within_ms: Option<u64>,
    max_age_ms: Option<u64>,
    timeout_ms: Option<u64>,
    retry_base_ms: Option<u64>,
    retry_cap_ms: Option<u64>,
    result: &'static str,
    #[serde(flatten)]
    payload: PayloadView,
}

/// A slot.
#[derive(Debug, Serialize)]
struct SlotView {
    at_ms: u64,
    local: String,
    utc: String,
}

impl SaidView {
    pub(super) fn of(schedule: &Schedule) -> Self {
        let Schedule { cron, zone, missed, overlap, paused, task, .. } = schedule;
        Self {
            cron: cron.clone(),
            zone: zone.clone(),
            paused: *paused,
            missed: *missed,
            overlap: *overlap,
            agent: task.agent.to_string(),
            queue: task.queue.to_string(),
            priority: task.priority.as_str(),
            tenant: Some(task.tenant.clone()).filter(|tenant| !tenant.is_empty()),
            order_key: task.order_key.clone(),
            cost: task.cost,
            weight: task.weight,
            estimate: EstimateView::of(task.estimate),
            max_attempts: task.max_attempts,
            start_within_ms: view::time(task.start_within_ms),
            max_age_ms: view::time(task.max_age_ms),
            timeout_ms: view::time(task.meta.timeout_ms),
            retry_base_ms: task.meta.retry.map(|retry| retry.base_ms),
            retry_cap_ms: task.meta.retry.map(|retry| retry.cap_ms),
            result: match task.meta.keep {
                Keep::Keep => "keep",
                Keep::Failed => "failed",
                Keep::None => "none",
            },
            payload: PayloadView::of(&task.payload),
        }
    }
}

impl View {
    pub(super) fn of(kept: &Kept) -> Self {
        let (next_ms, last_ms) = (view::time(kept.next_ms), view::time(kept.last_ms));
        let zone = kept.schedule.as_ref().map_or("UTC", |schedule| schedule.zone.as_str());
        Self {
            name: kept.name.clone(),
            readable: kept.schedule.is_some(),
            next: next_ms.and_then(|ms| moment(ms, zone)),
            next_ms,
            last: last_ms.and_then(|ms| moment(ms, zone)),
            last_ms,
            last_task: kept.last_task.clone(),
            said: kept.schedule.as_ref().map(SaidView::of),
            upcoming: None,
        }
    }
}

fn zoned(ms: u64, zone: &str) -> Option<jiff::Zoned> {
    let at = jiff::Timestamp::from_millisecond(i64::try_from(ms).ok()?).ok()?;
    Some(at.to_zoned(jiff::tz::TimeZone::get(zone).ok()?))
}

/// A moment for programs: `2026-12-01T02:30:00+01:00`.
fn moment(ms: u64, zone: &str) -> Option<String> {
    Some(zoned(ms, zone)?.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string())
}

/// A moment for people: `Tue 2026-12-01 02:30:00 CET`.
fn day(ms: u64, zone: &str) -> String {
    zoned(ms, zone).map_or_else(|| format!("{ms} ms"), |at| at.strftime("%a %Y-%m-%d %H:%M:%S %Z").to_string())
}

fn slots(schedule: &Schedule, now_ms: u64) -> Result<Vec<u64>, Failure> {
    let slots = schedule.slots(now_ms, SLOTS);
    let slots = slots.map_err(|error| Failure::usage(Code::ScheduleMistakes, error.to_string()))?;
    Ok(slots.iter().map(|at| u64::try_from(at.timestamp().as_millisecond()).unwrap_or(0)).collect())
}

fn slot_views(slots: &[u64], zone: &str) -> Vec<SlotView> {
    let one = |at_ms: &u64| SlotView {
        at_ms: *at_ms,
        local: moment(*at_ms, zone).unwrap_or_default(),
        utc: moment(*at_ms, "UTC").unwrap_or_default().replace("+00:00", "Z"),
    };
    slots.iter().map(one).collect()
}

fn slot_table(slots: &[u64], zone: &str, now_ms: u64, out: &Out) -> std::io::Result<()> {
    let row = |at: &u64| vec![day(*at, zone), day(*at, "UTC"), age(at.saturating_sub(now_ms))];
    out.table(&[&zone.to_uppercase(), "UTC", "IN"], slots.iter().map(row).collect())
}

/// The next slots.
pub(super) fn next(schedule: &Schedule, now_ms: u64, out: &Out) -> Outcome {
    let slots = slots(schedule, now_ms)?;
    match out.format {
        Format::Json => out.json(&slot_views(&slots, &schedule.zone))?,
        Format::Ndjson => out.json_each(&slot_views(&slots, &schedule.zone))?,
        Format::Table if slots.is_empty() => out.note("It never comes again."),
        Format::Table => slot_table(&slots, &schedule.zone, now_ms, out)?,
    }
    Ok(Exit::Ok)
}

/// That it is in force, in a sentence.
pub(super) fn in_force(schedule: &Schedule, next_ms: u64, now_ms: u64) -> String {
    let name = &schedule.name;
    match next_ms {
        0 => format!("schedule {name} is paused: `producer schedule resume {name}` lets it fire"),
        next => format!(
            "schedule {name} is in force: next {}, in {}",
            day(next, &schedule.zone),
            span(next.saturating_sub(now_ms))
        ),
    }
}

pub(super) async fn list(client: &Client, context: &Context) -> Outcome {
    let (all, counts) = tokio::try_join!(client.schedules(), client.counts()).map_err(Failure::from)?;
    let (out, now_ms) = (&context.out, counts.now_ms);
    let views = || all.iter().map(View::of).collect::<Vec<_>>();
    match out.format {
        Format::Json => out.json(&views())?,
        Format::Ndjson => out.json_each(&views())?,
        Format::Table if all.is_empty() => {
            out.note("There is no schedule. `producer schedule set --help` shows how to make one.");
        }
        Format::Table => {
            let header = ["NAME", "CRON", "ZONE", "NEXT", "IN", "LAST", "LAST TASK", "MISSED", "OVERLAP"];
            out.table(&header, all.iter().map(|kept| row(kept, now_ms, out)).collect())?;
        }
    }
    Ok(Exit::Ok)
}

fn row(kept: &Kept, now_ms: u64, out: &Out) -> Vec<String> {
    let none = || "-".to_owned();
    let Some(schedule) = &kept.schedule else {
        let mut row = vec![kept.name.to_string(), out.paint(Paint::Care, "of another build")];
        row.resize(9, none());
        return row;
    };
    let (next, until) = match kept.next_ms {
        0 if schedule.paused => (out.paint(Paint::Care, "paused"), none()),
        0 => (none(), none()),
        ms => (day(ms, &schedule.zone), age(ms.saturating_sub(now_ms))),
    };
    vec![
        kept.name.to_string(),
        printable(&schedule.cron),
        printable(&schedule.zone),
        next,
        until,
        view::time(kept.last_ms).map_or_else(none, |ms| day(ms, &schedule.zone)),
        kept.last_task.as_ref().map_or_else(none, ToString::to_string),
        word(schedule.missed),
        word(schedule.overlap),
    ]
}

/// A policy's name.
fn word(policy: impl Serialize) -> String {
    let name = serde_json::to_value(policy).ok();
    name.as_ref().and_then(|name| name.as_str()).unwrap_or("-").to_owned()
}

pub(super) fn one(kept: &Kept, now_ms: u64, out: &Out) -> Outcome {
    let slots = kept.schedule.as_ref().map_or(Ok(Vec::new()), |schedule| slots(schedule, now_ms))?;
    let zone = kept.schedule.as_ref().map_or("UTC", |schedule| schedule.zone.as_str());
    let view = View { upcoming: Some(slot_views(&slots, zone)), ..View::of(kept) };
    if !out.is_table() {
        out.json(&view)?;
        return Ok(Exit::Ok);
    }
    let Some(said) = &view.said else {
        out.line(&format!("{}: another build wrote it, which this one cannot read", kept.name))?;
        return Ok(Exit::Ok);
    };
    let state = if said.paused { out.paint(Paint::Care, "paused") } else { out.paint(Paint::Good, "in force") };
    out.line(&format!("{}  {state}", kept.name))?;
    facts(kept, said).iter().try_for_each(|fact| out.line(fact))?;
    slot_table(&slots, zone, now_ms, out)?;
    Ok(Exit::Ok)
}

fn facts(kept: &Kept, said: &SaidView) -> Vec<String> {
    let mut facts = Vec::new();
    let mut say = |name: &str, value: Option<String>| {
        facts.extend(value.map(|value| format!("{name}: {}", printable(&value))));
    };
    let time = |ms: Option<u64>| ms.map(span);
    say("cron", Some(format!("{} in {}", said.cron, said.zone)));
    say("missed", Some(word(said.missed)));
    say("overlap", Some(word(said.overlap)));
    let task = kept.last_task.as_ref().map_or_else(String::new, |task| format!(", task {task}"));
    say("last", view::time(kept.last_ms).map(|ms| format!("{}{task}", day(ms, &said.zone))));
    say("agent", Some(said.agent.clone()));
    say("queue", Some(said.queue.clone()));
    say("priority", Some(said.priority.to_owned()));
    say("tenant", said.tenant.clone());
    say("order key", said.order_key.clone());
    say("cost", Some(said.cost).filter(|cost| *cost != 1).map(|cost| cost.to_string()));
    say("weight", Some(said.weight).filter(|weight| *weight != 1).map(|weight| weight.to_string()));
    say("expected to use", said.estimate.words());
    say("attempts", Some(said.max_attempts.to_string()));
    say("start within", time(said.start_within_ms));
    say("most age", time(said.max_age_ms));
    say("timeout", time(said.timeout_ms));
    say("retry from", time(said.retry_base_ms));
    say("retry to", time(said.retry_cap_ms));
    say("result", Some(said.result.to_owned()).filter(|result| result != "keep"));
    say("payload", said.payload.lines());
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_told_in_their_zone() {
        let ms = 1_764_552_600_000; // 2025-12-01T01:30:00Z
        assert_eq!(day(ms, "Europe/Berlin"), "Mon 2025-12-01 02:30:00 CET");
        assert_eq!(moment(ms, "Europe/Berlin").unwrap(), "2025-12-01T02:30:00+01:00");
        assert_eq!(slot_views(&[ms], "Europe/Berlin")[0].utc, "2025-12-01T01:30:00Z");
    }
}
