//! What is true of the whole deployment, read from Redis when somebody asks, and the text that goes out.

use std::sync::{Mutex, PoisonError};

use prometheus::{IntCounterVec, IntGauge, IntGaugeVec, TextEncoder};
use tidemill_common::store::Counts;
use tidemill_common::task::Priority;

use super::{Maker, Metrics, table};

/// As many queues as a deployment may have; their names become labels.
const QUEUES_MAX: usize = 256;

pub(super) struct Cluster {
    queue_tasks: IntGaugeVec,
    tasks: IntGaugeVec,
    workers: IntGaugeVec,
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
            ended: make.counters(table::TASKS_ENDED),
            up: make.gauges(table::REDIS_UP).with_label_values::<&str>(&[]),
            scrape: Mutex::new(()),
        }
    }

    /// Takes over what Redis said. What it did not say is absent, not old.
    fn show(&self, counts: Option<&Counts>) {
        for gauges in [&self.queue_tasks, &self.tasks, &self.workers] {
            gauges.reset();
        }
        self.ended.reset();
        self.up.set(i64::from(counts.is_some()));
        let Some(counts) = counts else { return };
        for ((queue, priority), n) in counts.waiting.iter().take(QUEUES_MAX * Priority::ALL.len()) {
            if let Some(priority) = Priority::from_value(*priority) {
                self.queue_tasks.with_label_values(&[queue.as_str(), priority.as_str()]).set(signed(*n));
            }
        }
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
