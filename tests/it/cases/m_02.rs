//! M-02: trimming throws away work that was not done.

use tidemill_common::store::Accepted;
use tidemill_tests::lab::profile::{count, pick};
use tidemill_tests::lab::{End, Lab, Payload};

use super::PATIENCE;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_trims_what_waits() {
    let lab = Lab::new().await;
    let tasks = count(50_000);
    lab.submit(&lab.tasks(tasks, Payload::default())).await;
    let places = lab.snapshot().places().len();
    assert_eq!(places, tasks, "all of them wait");

    // A bound is an answer, not a trim.
    let more = lab.tasks(2, Payload::default());
    let answers = lab.store().submit(&more, tasks as u64 + 1).await.unwrap();
    assert!(matches!(&answers[..], [Accepted::New(id), Accepted::Full { .. }] if *id == more[0].id), "{answers:?}");
    lab.accepted([more[0].id.clone()]);

    lab.start(lab.setup("w").concurrency(100));
    lab.ended(tasks + 1, PATIENCE * pick(1, 4)).await;
    assert_eq!(lab.ledger().ended(End::Done), tasks + 1);
    lab.close_with_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pending_entries_trimmed_by_hand() {
    let lab = Lab::new().await;
    let w1 = lab.start(lab.setup("w1").concurrency(10));
    lab.submit(&lab.tasks(10, Payload::sleep(1_000))).await;
    lab.until("ten run", PATIENCE, async || {
        if lab.ledger().running(w1.pid()).count() == 10 { Ok(()) } else { Err("fewer".into()) }
    })
    .await;
    w1.kill();
    assert_eq!(lab.raw(&["XTRIM", &lab.key("q:default:s:5"), "MAXLEN", "0"]).as_int(), Some(10));

    let w2 = lab.start(lab.setup("w2").concurrency(10));
    // Their envelopes and rows are there, so that they are not even lost.
    lab.ended(10, PATIENCE).await;
    let ledger = lab.ledger();
    assert!(ledger.runs.values().all(|runs| runs.len() == 2 && runs[1].start.losses == 1), "{ledger:?}");
    let pending = lab.raw(&["XPENDING", &lab.key("q:default:s:5"), "w"]);
    assert_eq!(pending.as_array().and_then(|p| p[0].as_int()), Some(0), "{pending:?}");
    assert!(w2.ended().is_none(), "it did not crash");
    lab.close_with_invariants().await;
}
