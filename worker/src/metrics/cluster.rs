//! What is true of the whole deployment, read from Redis when somebody asks, and the text that goes out.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use prometheus::{CounterVec, GaugeVec, IntCounterVec, IntGauge, IntGaugeVec, TextEncoder};
use tidemill_common::history::DeadReason;
use tidemill_common::store::Counts;
use tidemill_common::task::Priority;

use super::{Maker, Metrics, table};

/// As many queues as a deployment may have; their names become labels.
const QUEUES_MAX: usize = 256;

pub(super) struct Cluster {
    queue_tasks: IntGaugeVec,
    tasks: IntGaugeVec,
    workers: IntGaugeVec,
    oldest: GaugeVec,
    paused: IntGaugeVec,
    deaths: IntCounterVec,
    refused: IntCounterVec,
    limit_hits: IntCounterVec,
    tokens: IntCounterVec,
    cost: CounterVec,
    ended: IntCounterVec,
    up: IntGauge,
    /// Two scrapes at once must not see each other's half-filled values.
    scrape: Mutex<()>,
}

impl Cluster {
    pub(super) fn new(make: &Maker<'_>) -> Self {
        Self {
            queue_tasks: make.gauges(table::QUEUE_TASKS),
            tasks: make.gauges(table::TASKS),
            workers: make.gauges(table::WORKERS),
            oldest: make.float_gauges(table::QUEUE_OLDEST),
            paused: make.gauges(table::QUEUE_PAUSED),
            deaths: make.counters(table::DEAD_LETTERS),
            refused: make.counters(table::SUBMITS_REFUSED),
            limit_hits: make.counters(table::LIMIT_HITS),
            tokens: make.counters(table::TOKENS_USED),
            cost: make.float_counters(table::COST_USED),
            ended: make.counters(table::TASKS_ENDED),
            up: make.gauges(table::REDIS_UP).with_label_values::<&str>(&[]),
            scrape: Mutex::new(()),
        }
    }

    /// Takes over what Redis said. What it did not say is absent, not old.
    fn show(&self, counts: Option<&Counts>) {
        for gauges in [&self.queue_tasks, &self.tasks, &self.workers, &self.paused] {
            gauges.reset();
        }
        self.oldest.reset();
        for counters in [&self.ended, &self.deaths, &self.refused, &self.limit_hits, &self.tokens] {
            counters.reset();
        }
        self.cost.reset();
        self.up.set(i64::from(counts.is_some()));
        let Some(counts) = counts else { return };
        for ((queue, priority), n) in counts.waiting.iter().take(QUEUES_MAX * Priority::ALL.len()) {
            if let Some(priority) = Priority::from_value(*priority) {
                self.queue_tasks.with_label_values(&[queue.as_str(), priority.as_str()]).set(signed(*n));
            }
        }
        self.show_queues(counts);
        for reason in DeadReason::ALL {
            let n = counts.deaths.get(&reason).copied().unwrap_or(0);
            self.deaths.with_label_values(&[reason.as_str()]).inc_by(n);
        }
        self.refused.with_label_values::<&str>(&[]).inc_by(counts.refused);
        for (name, letter) in table::LIMIT_KINDS {
            let n = counts.limit_hits.get(&letter).copied().unwrap_or(0);
            self.limit_hits.with_label_values(&[name]).inc_by(n);
        }
        self.tokens.with_label_values::<&str>(&[]).inc_by(counts.used.tokens);
        #[expect(clippy::cast_precision_loss, reason = "at most 10^15 millionths")]
        self.cost.with_label_values::<&str>(&[]).inc_by(counts.used.micro_usd as f64 / 1e6);
        let states = [
            ("running", counts.running),
            ("scheduled", counts.scheduled),
            ("parked", counts.parked),
            ("dead", counts.dead),
        ];
        for (state, n) in states {
            self.tasks.with_label_values(&[state]).set(signed(n));
        }
        self.workers.with_label_values::<&str>(&[]).set(signed(counts.workers));
        for outcome in table::ENDS {
            self.ended.with_label_values(&[outcome]).inc_by(counts.ended.get(outcome).copied().unwrap_or(0));
        }
    }
}

impl Cluster {
    fn show_queues(&self, counts: &Counts) {
        for ((queue, priority), ms) in counts.oldest_ms.iter().take(QUEUES_MAX * Priority::ALL.len()) {
            if let Some(priority) = Priority::from_value(*priority) {
                #[expect(clippy::cast_precision_loss, reason = "an age in ms")]
                self.oldest.with_label_values(&[queue.as_str(), priority.as_str()]).set(*ms as f64 / 1_000.0);
            }
        }
        let all = counts.paused.iter().any(|what| what == "*");
        let queues: BTreeSet<&str> = counts.waiting.keys().map(|(queue, _)| queue.as_str()).collect();
        let held = counts.paused.iter().filter_map(|what| what.strip_prefix("q/"));
        for queue in held.chain(queues.into_iter().filter(|_| all)).take(QUEUES_MAX) {
            self.paused.with_label_values(&[queue]).set(1);
        }
    }
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

impl Metrics {
    /// Everything in Prometheus' text format, with what Redis said of the whole, if it did.
    #[must_use]
    pub fn text(&self, counts: Option<&Counts>) -> String {
        let _scrape = self.cluster.scrape.lock().unwrap_or_else(PoisonError::into_inner);
        self.cluster.show(counts);
        TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap_or_else(|error| {
            tracing::error!(%error, "metrics cannot be written");
            String::new()
        })
    }
}
