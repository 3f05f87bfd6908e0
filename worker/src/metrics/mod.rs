//! What a worker counts, for Prometheus.
//!
//! Names and meanings are in [`table`]. Labels come from closed sets alone: registered agents (anything else is `other`), fixed
//! words, and queues, of which a deployment has at most 256. What is counted per task costs a look-up and an atomic addition.

mod cluster;
pub mod table;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus::{
    Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};
use tidemill_common::store::Fired;
use tidemill_common::task::{Priority, Task};

use cluster::Cluster;
use table::{Metric, OTHER, OUTCOMES};

/// From a cache hit to an hour of an agent's work.
const RUN_BUCKETS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0];
/// From "was asleep and heard the bell" to a backlog of hours.
const WAIT_BUCKETS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0];
/// One script: well below a millisecond up to its time limit.
const CLAIM_BUCKETS: &[f64] = &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0];
/// A claim asks for at most 256.
const BATCH_BUCKETS: &[f64] = &[0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// The worker's metrics.
pub struct Metrics {
    registry: Registry,
    agents: HashMap<String, AgentCounts>,
    other: AgentCounts,
    runs: HistogramVec,
    waits: [Histogram; 4],
    settled: IntCounterVec,
    in_flight: IntGauge,
    concurrency: IntGauge,
    claims: IntCounter,
    batches: Histogram,
    claim_seconds: Histogram,
    reclaims: IntCounter,
    slots: IntCounterVec,
    detected: IntGaugeVec,
    lease_lost: IntCounter,
    last_poll: Gauge,
    redis_errors: IntCounterVec,
    reconnects: IntCounter,
    cluster: Cluster,
}

/// One agent's children. A histogram has many series, so one exists only for outcomes that occur.
struct AgentCounts {
    label: String,
    attempts: [IntCounter; OUTCOMES.len()],
    seconds: [OnceLock<Histogram>; OUTCOMES.len()],
}

impl AgentCounts {
    fn new(agent: &str, attempts: &IntCounterVec) -> Self {
        let attempts = OUTCOMES.map(|outcome| attempts.with_label_values(&[agent, outcome]));
        Self { label: agent.to_owned(), attempts, seconds: Default::default() }
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").field("agents", &self.agents.keys()).finish_non_exhaustive()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new(std::iter::empty::<&str>())
    }
}

impl Metrics {
    /// Metrics with these agents as labels, in a registry of their own.
    #[must_use]
    pub fn new<A: AsRef<str>>(agents: impl IntoIterator<Item = A>) -> Self {
        let registry = Registry::new();
        let make = Maker { registry: &registry };
        let attempts = make.counters(table::TASK_ATTEMPTS);
        let waits = make.histograms(table::TASK_WAIT_DURATION, WAIT_BUCKETS);
        let settled = make.counters(table::TASKS_SETTLED);
        for result in table::RESULTS {
            settled.with_label_values(&[result]);
        }
        let slots = make.counters(table::SCHEDULE_SLOTS);
        for result in table::SLOT_RESULTS {
            slots.with_label_values(&[result]);
        }
        let detected = make.gauges(table::DETECTED);
        for detector in table::DETECTORS {
            detected.with_label_values(&[detector]).set(0);
        }
        make.gauges(table::BUILD_INFO).with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        // Memory, open files and CPU time of this process, under the names that every dashboard knows.
        if let Err(error) = registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self())) {
            tracing::debug!(%error, "no process metrics");
        }
        let (single, none) = (|m| make.counters(m).with_label_values::<&str>(&[]), [""; 0]);
        Self {
            agents: agents
                .into_iter()
                .map(|a| (a.as_ref().to_owned(), AgentCounts::new(a.as_ref(), &attempts)))
                .collect(),
            other: AgentCounts::new(OTHER, &attempts),
            runs: make.histograms(table::TASK_RUN_DURATION, RUN_BUCKETS),
            waits: Priority::ALL.map(|p| waits.with_label_values(&[p.as_str()])),
            settled,
            in_flight: make.gauges(table::TASKS_IN_FLIGHT).with_label_values(&none),
            concurrency: make.gauges(table::CONCURRENCY_LIMIT).with_label_values(&none),
            claims: single(table::CLAIMS),
            batches: make.histograms(table::CLAIM_BATCH_SIZE, BATCH_BUCKETS).with_label_values(&none),
            claim_seconds: make.histograms(table::CLAIM_DURATION, CLAIM_BUCKETS).with_label_values(&none),
            reclaims: single(table::RECLAIMS),
            slots,
            detected,
            lease_lost: single(table::LEASE_LOST),
            last_poll: make.float_gauge(table::LAST_POLL),
            redis_errors: make.counters(table::REDIS_ERRORS),
            reconnects: single(table::REDIS_RECONNECTS),
            cluster: Cluster::new(&make),
            registry,
        }
    }

    /// A claim was answered, with so many deliveries.
    pub fn claimed(&self, n: u64) {
        self.claims.inc();
        #[expect(clippy::cast_precision_loss, reason = "at most 256")]
        self.batches.observe(n as f64);
    }
    /// How long a claim took.
    pub fn claim_seconds(&self, seconds: f64) {
        self.claim_seconds.observe(seconds);
    }
    /// A handler starts, so long after its task was due.
    pub fn started(&self, task: &Task, wait_ms: u64) {
        let at = Priority::ALL.iter().position(|p| *p == task.priority).unwrap_or_default();
        #[expect(clippy::cast_precision_loss, reason = "a bucket is wider than what is lost")]
        self.waits[at].observe(wait_ms as f64 / 1_000.0);
    }
    /// A handler's run ended.
    pub fn finished(&self, agent: &str, outcome: &'static str, seconds: f64) {
        let counts = self.agents.get(agent).unwrap_or(&self.other);
        let at = OUTCOMES.iter().position(|o| *o == outcome).unwrap_or(OUTCOMES.len() - 1);
        counts.attempts[at].inc();
        counts.seconds[at]
            .get_or_init(|| self.runs.with_label_values(&[counts.label.as_str(), OUTCOMES[at]]))
            .observe(seconds);
    }
    /// A delivery's end was written down.
    pub fn settled(&self, how: &'static str) {
        self.settled.with_label_values(&[how]).inc();
    }
    /// This process lost its lease.
    pub fn lease_lost(&self) {
        self.lease_lost.inc();
    }
    /// So many deliveries were taken back from a dead worker.
    pub fn reclaimed(&self, n: u64) {
        self.reclaims.inc_by(n);
    }
    /// A slot of a schedule was settled here.
    pub fn fired(&self, how: &Fired) {
        let result = match how {
            Fired::Stale => return,
            Fired::In(_) => "fired",
            Fired::LeftOut => "left_out",
            Fired::Overlaps => "overlap",
            Fired::Refused => "refused",
        };
        self.slots.with_label_values(&[result]).inc();
    }
    /// A detector has found something, or finds it no more.
    pub fn detected(&self, detector: &'static str, found: bool) {
        self.detected.with_label_values(&[detector]).set(i64::from(found));
    }
    /// Redis did not answer, or refused.
    pub fn redis_error(&self, op: &'static str, reason: &'static str) {
        self.redis_errors.with_label_values(&[op, reason]).inc();
    }
    /// A connection was made again.
    pub fn reconnected(&self, times: u64) {
        self.reconnects.inc_by(times);
    }
    /// So many deliveries are held now.
    pub fn in_flight(&self, n: i64) {
        self.in_flight.set(n);
    }
    /// So many may be held at once.
    pub fn concurrency(&self, n: i64) {
        self.concurrency.set(n);
    }
    /// Work was asked for, or the doorbell listened to.
    pub fn last_poll(&self) {
        self.last_poll.set(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64());
    }
}

/// Makes and registers what the table says.
struct Maker<'r> {
    registry: &'r Registry,
}

/// Names, labels and buckets are constants, and each is registered once in a registry of its own: a test makes them all.
const CONSTANTS: &str = "the metrics table is valid";

impl Maker<'_> {
    fn register<C: prometheus::core::Collector + Clone + 'static>(&self, made: prometheus::Result<C>) -> C {
        let collector = made.expect(CONSTANTS);
        self.registry.register(Box::new(collector.clone())).expect(CONSTANTS);
        collector
    }
    fn counters(&self, m: Metric) -> IntCounterVec {
        self.register(IntCounterVec::new(Opts::new(m.name, m.help), m.labels))
    }
    fn float_counters(&self, m: Metric) -> prometheus::CounterVec {
        self.register(prometheus::CounterVec::new(Opts::new(m.name, m.help), m.labels))
    }
    fn gauges(&self, m: Metric) -> prometheus::IntGaugeVec {
        self.register(prometheus::IntGaugeVec::new(Opts::new(m.name, m.help), m.labels))
    }
    fn float_gauge(&self, m: Metric) -> Gauge {
        self.register(Gauge::with_opts(Opts::new(m.name, m.help)))
    }
    fn float_gauges(&self, m: Metric) -> prometheus::GaugeVec {
        self.register(prometheus::GaugeVec::new(Opts::new(m.name, m.help), m.labels))
    }
    fn histograms(&self, m: Metric, buckets: &[f64]) -> HistogramVec {
        self.register(HistogramVec::new(HistogramOpts::new(m.name, m.help).buckets(buckets.to_vec()), m.labels))
    }
}
