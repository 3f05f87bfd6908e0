//! What may be said of a schedule, by flags or in a file: the same names and the same forms in both.

use bytes::Bytes;
use clap::ValueEnum;
use serde::Deserialize;
use tidemill_common::name::ScheduleName;
use tidemill_common::schedule::{Missed, Overlap, Schedule, Template};
use tidemill_common::task::DELAY_MAX;
use tidemill_producer::{AgentName, Keep, Priority, QueueName, RetryPolicy};

use super::super::facts::{KeepResult, Span, Usd, amount, priority, text};
use super::super::filter::priority_parser;

/// What becomes of slots that nobody was there to fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum OnMissed {
    /// One task for all of them, for the latest.
    Latest,
    /// None.
    Skip,
    /// One task each, at most the newest hundred.
    All,
}

/// What becomes of a slot whose predecessor's task has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum OnOverlap {
    /// It is handed in all the same.
    Allow,
    /// It is left out.
    Skip,
}

/// All that may be said beside its name, its agent and its payload.
#[derive(Debug, Clone, Default, clap::Args, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Draft {
    /// When: minute hour day month weekday, with seconds in front if there are six; or @daily and the like
    #[arg(long, value_name = "PATTERN")]
    cron: Option<String>,
    /// The zone that the pattern is read in, such as Europe/Berlin [default: UTC]
    #[arg(long, value_name = "ZONE")]
    zone: Option<String>,
    /// Slots that nobody was there to fire: one task for the latest, none, or one each [default: latest]
    #[arg(long, value_name = "WHAT")]
    missed: Option<OnMissed>,
    /// A slot whose predecessor's task has not ended: handed in all the same, or left out [default: allow]
    #[arg(long, value_name = "WHAT")]
    overlap: Option<OnOverlap>,
    /// Queue that its tasks go to [default: default]
    #[arg(long, short = 'Q', value_name = "QUEUE")]
    queue: Option<QueueName>,
    /// urgent, high, normal or low; or 20, 10, 5, 1 [default: normal]
    #[arg(long, short, value_name = "PRIORITY", value_parser = priority_parser(), hide_possible_values = true)]
    #[serde(deserialize_with = "priority")]
    priority: Option<Priority>,
    /// A task expires if it has not started this long after its slot
    #[arg(long, value_name = "DURATION")]
    #[serde(deserialize_with = "text")]
    start_within: Option<Span>,
    /// A task expires if it has not ended this long after its slot
    #[arg(long, value_name = "DURATION")]
    #[serde(deserialize_with = "text")]
    max_age: Option<Span>,
    /// On whose behalf
    #[arg(long, short, value_name = "TENANT")]
    tenant: Option<String>,
    /// Tasks with the same order key run one after the other
    #[arg(long, value_name = "KEY")]
    order_key: Option<String>,
    /// Units that a task takes of rate limits [default: 1]
    #[arg(long, value_name = "N")]
    cost: Option<u32>,
    /// Slots its tasks take of slot limits [default: 1]
    #[arg(long, value_name = "N")]
    weight: Option<u16>,
    /// Tokens that a run is expected to use [default: as the book says of the agent]
    #[arg(long, value_name = "N")]
    tokens: Option<u64>,
    /// US dollars that a run is expected to cost: 0.02 [default: as the book says of the agent]
    #[arg(long, value_name = "USD")]
    #[serde(deserialize_with = "amount")]
    cost_usd: Option<Usd>,
    /// Runs that count before a task is dead [default: 3]
    #[arg(long, value_name = "N")]
    max_attempts: Option<u16>,
    /// Longest run [default: the agent's]
    #[arg(long, value_name = "DURATION")]
    #[serde(deserialize_with = "text")]
    timeout: Option<Span>,
    /// Bound of the first retry's delay; it doubles from run to run
    #[arg(long, value_name = "DURATION")]
    #[serde(deserialize_with = "text")]
    retry_base: Option<Span>,
    /// Bound of every retry's delay
    #[arg(long, value_name = "DURATION")]
    #[serde(deserialize_with = "text")]
    retry_cap: Option<Span>,
    /// What becomes of results [default: keep]
    #[arg(long, value_name = "WHAT")]
    result: Option<KeepResult>,
}

/// A schedule of which nothing else is said. Its pattern is yet to come.
pub(super) fn plain(name: ScheduleName, agent: AgentName, payload: Bytes) -> Schedule {
    let task = Template::new(agent, payload);
    let (missed, overlap) = (Missed::default(), Overlap::default());
    Schedule { name, cron: String::new(), zone: "UTC".to_owned(), missed, overlap, paused: false, task }
}

/// A pattern in a zone, for a look at its slots.
pub(super) fn pattern(cron: &str, zone: &str) -> Schedule {
    let (mut schedule, shown) = (plain(fixed("pattern"), fixed("agent"), Bytes::new()), cron.to_owned());
    (schedule.cron, schedule.zone) = (shown, zone.to_owned());
    schedule
}

/// A fixed name, which is always a good one.
#[expect(clippy::expect_used, reason = "words of our own that a test reads")]
fn fixed<T: std::str::FromStr<Err: std::fmt::Debug>>(name: &str) -> T {
    name.parse().expect("a good name")
}

impl Draft {
    /// The schedule, with what is said here in place of what it says itself. A text that is empty, or a time of 0s, takes a fact away.
    ///
    /// # Errors
    /// What is wrong, in words; `whole`: also when there is no pattern.
    pub(super) fn over(self, mut schedule: Schedule, whole: bool) -> Result<Schedule, String> {
        let ms = |span: Span| u64::try_from(span.0.as_millis()).unwrap_or(u64::MAX);
        if self.timeout.is_some_and(|span| span.0 > DELAY_MAX) {
            return Err("timeout must be at most ten years; 0s, or none, is the agent's own".into());
        }
        match self.cron {
            Some(cron) => schedule.cron = cron,
            None if whole => {
                return Err(
                    "it has no pattern: say when, for instance --cron '30 2 * * *'; in a file, cron = \"30 2 * * *\""
                        .into(),
                );
            }
            None => {}
        }
        schedule.zone = self.zone.unwrap_or(schedule.zone);
        schedule.missed = self.missed.map_or(schedule.missed, |missed| match missed {
            OnMissed::Latest => Missed::Latest,
            OnMissed::Skip => Missed::Skip,
            OnMissed::All => Missed::All,
        });
        schedule.overlap = self.overlap.map_or(schedule.overlap, |overlap| match overlap {
            OnOverlap::Allow => Overlap::Allow,
            OnOverlap::Skip => Overlap::Skip,
        });
        let task = &mut schedule.task;
        task.queue = self.queue.unwrap_or_else(|| task.queue.clone());
        task.priority = self.priority.unwrap_or(task.priority);
        task.start_within_ms = self.start_within.map_or(task.start_within_ms, ms);
        task.max_age_ms = self.max_age.map_or(task.max_age_ms, ms);
        task.tenant = self.tenant.unwrap_or_else(|| std::mem::take(&mut task.tenant));
        task.order_key = self.order_key.or_else(|| task.order_key.take()).filter(|key| !key.is_empty());
        task.cost = self.cost.unwrap_or(task.cost);
        task.weight = self.weight.unwrap_or(task.weight);
        task.estimate.tokens = self.tokens.or(task.estimate.tokens);
        task.estimate.micro_usd = self.cost_usd.map(|usd| usd.0).or(task.estimate.micro_usd);
        task.max_attempts = self.max_attempts.unwrap_or(task.max_attempts);
        task.meta.timeout_ms = self.timeout.map_or(task.meta.timeout_ms, ms);
        if self.retry_base.is_some() || self.retry_cap.is_some() {
            let usual = task.meta.retry.unwrap_or_default();
            let base_ms = self.retry_base.map_or(usual.base_ms, ms);
            let cap_ms = self.retry_cap.map_or(usual.cap_ms.max(base_ms), ms);
            task.meta.retry = Some(RetryPolicy { base_ms, cap_ms });
        }
        task.meta.keep = self.result.map_or(task.meta.keep, |result| match result {
            KeepResult::Keep => Keep::Keep,
            KeepResult::Failed => Keep::Failed,
            KeepResult::None => Keep::None,
        });
        Ok(schedule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_takes_the_place_of_what_was_and_nothing_else_does() {
        let before = pattern("@daily", "Europe/Berlin");
        assert_eq!(Draft::default().over(before.clone(), false).unwrap(), before);
        let draft = Draft {
            tenant: Some("acme".into()),
            order_key: Some("k".into()),
            retry_base: "5m".parse().ok(),
            ..Draft::default()
        };
        let after = draft.over(before.clone(), false).unwrap();
        assert_eq!(after.task.meta.retry, Some(RetryPolicy { base_ms: 300_000, cap_ms: 300_000 }));
        let draft = Draft { tenant: Some(String::new()), order_key: Some(String::new()), ..Draft::default() };
        let last = draft.over(after, false).unwrap();
        assert!(last.task.tenant.is_empty() && last.task.order_key.is_none() && last.cron == "@daily");
        assert!(Draft::default().over(before, true).is_err());
    }
}
