use std::collections::{BTreeMap, BTreeSet};

use tidemill_common::store::Counts;

use super::Metrics;
use super::table::{self, Kind};

fn full() -> String {
    let metrics = Metrics::new(["echo"]);
    metrics.claimed(3);
    metrics.claim_seconds(0.001);
    metrics.finished("echo", "done", 0.1);
    metrics.finished("no such agent", "surprise", 0.1);
    metrics.settled("done");
    metrics.redis_error("claim", "timeout");
    metrics.reconnected(2);
    metrics.reclaimed(4);
    metrics.lease_lost();
    metrics.in_flight(1);
    metrics.concurrency(16);
    metrics.last_poll();
    let counts = Counts {
        running: 1,
        workers: 2,
        waiting: BTreeMap::from([(("default".to_owned(), 20), 7)]),
        oldest_ms: BTreeMap::from([(("default".to_owned(), 20), 1_500)]),
        paused: vec!["q/default".to_owned()],
        ended: BTreeMap::from([("done".to_owned(), 9), ("unheard of".to_owned(), 1)]),
        ..Counts::default()
    };
    metrics.text(Some(&counts))
}

#[test]
fn every_metric_of_the_table_is_there_and_no_other() {
    let text = full();
    let found: BTreeSet<&str> = text.lines().filter_map(|l| l.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let ours: BTreeSet<&str> = found.iter().copied().filter(|n| !n.starts_with("process_")).collect();
    assert_eq!(ours, table::ALL.iter().map(|m| m.name).collect());
    for line in [
        "tidemill_task_attempts_total{agent=\"echo\",outcome=\"done\"} 1",
        "tidemill_task_attempts_total{agent=\"other\",outcome=\"other\"} 1",
        "tidemill_queue_tasks{priority=\"urgent\",queue=\"default\"} 7",
        "tidemill_tasks{state=\"running\"} 1",
        "tidemill_workers 2",
        "tidemill_queue_oldest_task_age_seconds{priority=\"urgent\",queue=\"default\"} 1.5",
        "tidemill_queue_paused{queue=\"default\"} 1",
        "tidemill_tasks_ended_total{outcome=\"done\"} 9",
        "tidemill_redis_up 1",
        "tidemill_redis_reconnects_total 2",
        "tidemill_claim_batch_size_sum 3",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is missing in:\n{text}");
    }
    assert!(!text.contains("no such agent") && !text.contains("unheard of"), "labels come from closed sets");
}

/// The rules of `promtool check metrics`.
#[test]
fn names_keep_to_the_rules_of_prometheus() {
    for metric in table::ALL {
        let table::Metric { name, kind, labels, help } = *metric;
        assert!(name.starts_with("tidemill_") && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
        assert_eq!(kind == Kind::Counter, name.ends_with("_total"), "{name}: counters end in _total, others do not");
        for unit in ["_ms", "_milliseconds", "_minutes", "_kb", "_percent", "_count", "_sum", "_bucket"] {
            assert!(!name.ends_with(unit), "{name}: base units only, and no reserved endings");
        }
        assert!(!help.is_empty() && !labels.contains(&"le"), "{name}");
    }
    let names: BTreeSet<_> = table::ALL.iter().map(|m| m.name).collect();
    assert_eq!(names.len(), table::ALL.len());
    let text = full();
    for metric in table::ALL {
        assert!(text.contains(&format!("# HELP {} ", metric.name)), "{}", metric.name);
    }
}

#[test]
fn what_redis_does_not_say_is_absent() {
    let metrics = Metrics::default();
    let counts = Counts { workers: 2, ..Counts::default() };
    assert!(metrics.text(Some(&counts)).contains("\ntidemill_workers 2\n"));
    let text = metrics.text(None);
    assert!(text.contains("\ntidemill_redis_up 0\n") && !text.contains("\ntidemill_workers "), "{text}");
}

#[test]
fn the_document_has_this_table() {
    let document = include_str!("../../../docs/metrics.md");
    let expected = table::markdown();
    assert!(document.contains(&expected), "put this table into docs/metrics.md:\n{expected}");
}
