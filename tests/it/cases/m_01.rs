//! M-01: finished entries stay for ever.

use std::collections::BTreeMap;

use tidemill_common::store::{Accepted, SUBMIT_TASKS_MAX};
use tidemill_common::task::NewTask;
use tidemill_tests::lab::profile::{count, pick};
use tidemill_tests::lab::{Lab, Mode, Payload, QUIET};

use super::PATIENCE;

/// What a round leaves behind, once the time of its outcomes is over.
#[derive(Debug, PartialEq, Eq)]
struct Left {
    keys: i64,
    without_ttl: Vec<String>,
    entries: i64,
    memory: BTreeMap<String, i64>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finished_tasks_leave_nothing() {
    let lab = Lab::new().await;
    for name in ["w1", "w2"] {
        lab.start(lab.setup(name).concurrency(200).agents(&["ledger", QUIET]));
    }
    round(&lab, 1).await;
    let first = left(&lab);
    round(&lab, 2).await;
    let second = left(&lab);
    // The numbers in it grow, its fields do not.
    let flat = |left: &Left| (left.keys, left.without_ttl.clone(), left.entries);
    assert_eq!(flat(&second), flat(&first), "the second round left more than the first");
    for (key, bytes) in &second.memory {
        let before = first.memory.get(key).copied().unwrap_or(0);
        assert!(*bytes <= before * 2 + 4_096, "{key} grew from {before} to {bytes} bytes");
    }
    lab.close_with_invariants().await;
}

/// Tasks of all fates, to their end.
async fn round(lab: &Lab, number: usize) {
    let tasks = count(200_000);
    let (mut called_off, mut ended) = (Vec::new(), 0);
    for batch in 0..tasks.div_ceil(SUBMIT_TASKS_MAX) {
        let batch: Vec<NewTask> = (0..SUBMIT_TASKS_MAX).map(|n| of_fate(batch * SUBMIT_TASKS_MAX + n)).collect();
        let answers = lab.store().submit(&batch, 0).await.unwrap();
        assert!(answers.iter().all(|answer| matches!(answer, Accepted::New(_))));
        called_off.extend(batch.iter().filter(|task| !task.delay.is_zero()).map(|task| task.id.clone()));
        ended += batch.len();
    }
    for id in &called_off {
        lab.store().cancel(id).await.unwrap();
    }
    lab.ended(number * ended, PATIENCE * pick(1, 6)).await;
}

/// Most succeed; of a hundred, five fail first, five are called off, and one in a thousand is dead.
fn of_fate(n: usize) -> NewTask {
    let of = |mode| Payload { mode, ms: 0, after_ms: Some(1) }.task_of(QUIET);
    match n % 100 {
        0..5 => of(Mode::FailOnce),
        5..10 => of(Mode::Sleep).delay(std::time::Duration::from_hours(1)),
        10 if n % 1_000 == 10 => of(Mode::Dead),
        _ => of(Mode::Sleep),
    }
}

/// Lets the time of all outcomes pass, drops the dead (they are kept for 90 days, and are 10,000 at most), and looks.
fn left(lab: &Lab) -> Left {
    let snapshot = lab.snapshot();
    for id in snapshot.of("dead") {
        lab.raw(&["DEL", &lab.key(&format!("j:{id}")), &lab.key(&format!("r:{id}"))]);
        lab.raw(&["HDEL", &lab.key("at"), id]);
    }
    lab.raw(&["DEL", &lab.key("dead")]);
    for tail in snapshot.keys.iter().filter(|(_, key)| key.ttl > 0).map(|(tail, _)| tail) {
        lab.raw(&["DEL", &lab.key(tail)]);
    }
    let after = lab.snapshot();
    let of_key = |tail: &String| {
        let bytes = lab.raw(&["MEMORY", "USAGE", &lab.key(tail), "SAMPLES", "0"]).as_int().unwrap_or(0);
        (tail.clone(), bytes)
    };
    Left {
        keys: lab.raw(&["DBSIZE"]).as_int().unwrap_or(0),
        without_ttl: after.keys.iter().filter(|(_, key)| key.ttl == -1).map(|(tail, _)| tail.clone()).collect(),
        entries: after.streams.keys().map(|tail| lab.raw(&["XLEN", &lab.key(tail)]).as_int().unwrap_or(0)).sum(),
        memory: after.keys.keys().map(of_key).collect(),
    }
}
