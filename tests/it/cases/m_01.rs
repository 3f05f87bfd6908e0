//! M-01: finished entries stay for ever.

use std::collections::BTreeMap;

use tidemill_common::keys::Lifetime;
use tidemill_common::store::{Accepted, SUBMIT_TASKS_MAX};
use tidemill_common::task::NewTask;
use tidemill_tests::lab::profile::{count, pick};
use tidemill_tests::lab::{Lab, Mode, Payload, QUIET};

use super::PATIENCE;

/// What a round leaves behind, once the time of its outcomes is over.
#[derive(Debug)]
struct Left {
    /// Keys without a TTL that are not on the permanent list, but for the bell, which may have rung.
    owned: Vec<String>,
    /// Entries of all streams but the capped log.
    entries: usize,
    /// Bytes of each key on the permanent list.
    permanent: BTreeMap<String, i64>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finished_tasks_leave_nothing() {
    let lab = Lab::new().await;
    for name in ["w1", "w2"] {
        lab.start(lab.setup(name).concurrency(200).agents(&["ledger", QUIET]));
    }
    round(&lab, 1).await;
    let first = left(&lab).await;
    round(&lab, 2).await;
    let second = left(&lab).await;
    assert_eq!((first.entries, second.entries), (0, 0));
    assert_eq!(second.owned, first.owned, "the second round left more than the first");
    for (key, bytes) in &second.permanent {
        let before = first.permanent.get(key).copied().unwrap_or(0);
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
    let of = |mode| Payload::of(mode, 0).after(1).task_of(QUIET);
    match n % 100 {
        0..5 => of(Mode::FailOnce),
        5..10 => of(Mode::Sleep).delay(std::time::Duration::from_hours(1)),
        10 if n % 1_000 == 10 => of(Mode::Dead),
        _ => of(Mode::Sleep),
    }
}

/// Lets the time of all outcomes pass, drops the dead (they are kept for 90 days, and are 10,000 at most), and looks.
async fn left(lab: &Lab) -> Left {
    lab.until("both workers sleep", PATIENCE, async || match lab.counts().await.idle {
        2 => Ok(()),
        n => Err(format!("{n} do")),
    })
    .await;
    let snapshot = lab.snapshot();
    let dead = snapshot.of("dead").iter().flat_map(|id| [format!("j:{id}"), format!("r:{id}")]);
    let ended = snapshot.keys.iter().filter(|(_, key)| key.ttl > 0).map(|(tail, _)| tail.clone());
    let passed: Vec<String> =
        dead.chain(ended).chain(["dead".into(), "at".into()]).map(|tail| lab.key(&tail)).collect();
    for part in passed.chunks(1_000) {
        lab.raw(&[&["DEL".to_owned()], part].concat());
    }
    let after = lab.snapshot();
    let stay: Vec<&String> = after.keys.iter().filter(|(_, key)| key.ttl == -1).map(|(tail, _)| tail).collect();
    let is_permanent = |tail: &&&String| after.keys[**tail].kind.is_some_and(|kind| kind.2 == Lifetime::Permanent);
    let usage = |tail: &&String| {
        let bytes = lab.raw(&["MEMORY", "USAGE", &lab.key(tail), "SAMPLES", "0"]).as_int().unwrap();
        ((*tail).clone(), bytes)
    };
    Left {
        owned: stay.iter().filter(|tail| !is_permanent(tail) && **tail != "bell").map(|tail| (*tail).clone()).collect(),
        entries: after.streams.values().map(|stream| stream.unread.len() + stream.read.len()).sum(),
        permanent: stay.iter().filter(is_permanent).map(usage).collect(),
    }
}
