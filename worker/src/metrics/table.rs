//! Every metric: its name, type, labels and meaning. `docs/metrics.md` repeats this table; a test compares the two.

/// What kind of metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, from 0 at the start of the process (or, cluster-wide, of the data).
    Counter,
    /// A value of the moment.
    Gauge,
    /// A distribution, in buckets.
    Histogram,
}

/// One metric.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// Its labels, all from closed sets.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
}

macro_rules! metrics {
    ($($id:ident $kind:ident $name:literal [$($label:literal),*] $help:literal)*) => {
        $(#[doc = $help] pub const $id: Metric =
            Metric { name: $name, kind: Kind::$kind, labels: &[$($label),*], help: $help };)*
        /// All of them.
        pub const ALL: &[Metric] = &[$($id),*];
    };
}

metrics! {
    TASK_ATTEMPTS Counter "tidemill_task_attempts_total" ["agent", "outcome"]
        "Runs of handlers that ended in this process; cut: stopped without an answer."
    TASK_RUN_DURATION Histogram "tidemill_task_run_duration_seconds" ["agent", "outcome"]
        "How long handlers ran."
    TASK_WAIT_DURATION Histogram "tidemill_task_wait_duration_seconds" ["priority"]
        "From when a task was due to the first start of its handler."
    TASKS_SETTLED Counter "tidemill_tasks_settled_total" ["result"]
        "Deliveries whose end was written down, by what that did."
    TASKS_IN_FLIGHT Gauge "tidemill_tasks_in_flight" []
        "Deliveries that this process holds now."
    CONCURRENCY_LIMIT Gauge "tidemill_concurrency_limit" []
        "Most tasks that this process runs at once."
    CLAIMS Counter "tidemill_claims_total" []
        "Requests for work that were answered."
    CLAIM_BATCH_SIZE Histogram "tidemill_claim_batch_size" []
        "Deliveries that came with one claim."
    CLAIM_DURATION Histogram "tidemill_claim_duration_seconds" []
        "How long a claim took, tries again included."
    RECLAIMS Counter "tidemill_reclaims_total" []
        "Deliveries that this process took back from workers whose lease had run out."
    SCHEDULE_SLOTS Counter "tidemill_schedule_slots_total" ["result"]
        "Slots of schedules that this process settled: fired, left out, overlapping, or refused."
    LEASE_LOST Counter "tidemill_lease_lost_total" []
        "How often this process lost its own lease, and with it all that it ran."
    LAST_POLL Gauge "tidemill_last_poll_timestamp_seconds" []
        "When this process last asked for work or was told that there is none."
    REDIS_ERRORS Counter "tidemill_redis_errors_total" ["op", "reason"]
        "Requests that Redis did not answer, or refused."
    REDIS_RECONNECTS Counter "tidemill_redis_reconnects_total" []
        "How often a connection to Redis was made again."
    REDIS_UP Gauge "tidemill_redis_up" []
        "1 when Redis answered for this scrape. If 0, the cluster-wide metrics below are absent."
    BUILD_INFO Gauge "tidemill_build_info" ["version"]
        "Always 1; the label is what matters."
    QUEUE_TASKS Gauge "tidemill_queue_tasks" ["queue", "priority"]
        "Cluster-wide: tasks that have not started, whatever they wait for."
    QUEUE_OLDEST Gauge "tidemill_queue_oldest_task_age_seconds" ["queue", "priority"]
        "Cluster-wide: since when the oldest task that could run waits unread; a delayed one counts from when it was due."
    QUEUE_PAUSED Gauge "tidemill_queue_paused" ["queue"]
        "Cluster-wide: 1 for each queue that an operator has paused, or that a pause of everything holds."
    DEAD_LETTERS Counter "tidemill_dead_letters_total" ["reason"]
        "Cluster-wide: tasks that died, by why, since the data began."
    SUBMITS_REFUSED Counter "tidemill_submits_refused_total" []
        "Cluster-wide: tasks that were refused since their queue was full, since the data began."
    LIMIT_HITS Counter "tidemill_limit_hits_total" ["kind"]
        "Cluster-wide: how often a task was held back at a limit, since the data began."
    TOKENS_USED Counter "tidemill_tokens_used_total" []
        "Cluster-wide: tokens that runs have used, as far as their handlers said so, since the data began."
    COST_USED Counter "tidemill_cost_used_usd_total" []
        "Cluster-wide: US dollars that runs have cost, as far as their handlers said so, since the data began."
    DETECTED Gauge "tidemill_detected" ["detector"]
        "1 while a detector of this process's sweep has found something; events and logs say what."
    TASKS Gauge "tidemill_tasks" ["state"]
        "Cluster-wide: tasks that run, are not due yet, are held at a gate, or are dead and kept."
    WORKERS Gauge "tidemill_workers" []
        "Cluster-wide: workers with a lease."
    TASKS_ENDED Counter "tidemill_tasks_ended_total" ["outcome"]
        "Cluster-wide: tasks that have ended, since the data began."
}

/// Ends of a handler's run; what else comes is `other`.
pub const OUTCOMES: [&str; 6] = ["done", "retry", "throttled", "dead", "cut", OTHER];
/// What settling a delivery did.
pub const RESULTS: [&str; 11] = [
    "done",
    "retry",
    "throttled",
    "released",
    "dead",
    "cancelled",
    "expired",
    "already",
    "stale",
    "gone",
    "quarantined",
];
/// What became of a slot of a schedule.
pub const SLOT_RESULTS: [&str; 4] = ["fired", "left_out", "overlap", "refused"];
/// What a sweep looks for.
pub const DETECTORS: [&str; 5] = ["backlog", "dead_letters", "limit_hits", "reclaims", "unknown_agent"];
/// Kinds of limits, and their letters in gates.
pub const LIMIT_KINDS: [(&str, char); 4] = [("slots", 's'), ("rate", 'r'), ("tokens", 't'), ("cost", 'c')];
/// Ends of a task.
pub const ENDS: [&str; 5] = ["done", "dead", "cancelled", "expired", "quarantined"];
/// What stands for everything outside a closed set.
pub const OTHER: &str = "other";

/// The table as Markdown.
#[must_use]
pub fn markdown() -> String {
    let mut text = String::from("| name | type | labels | meaning |\n|---|---|---|---|\n");
    for metric in ALL {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let labels: Vec<String> = metric.labels.iter().map(|l| format!("`{l}`")).collect();
        text.push_str(&format!("| `{}` | {kind} | {} | {} |\n", metric.name, labels.join(", "), metric.help));
    }
    text
}
