//! D-01: a long healthy task is taken for dead.

use std::time::Duration;

use tidemill_tests::lab::profile::ms;
use tidemill_tests::lab::{Lab, Mode, Payload, now_ms};
use tidemill_tests::server::Reply;

use super::PATIENCE;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_tasks_run_once() {
    let lab = Lab::new().await;
    let long = ms(15_000);
    let awaits = Payload::sleep(long).task();
    // As many as the runtime has threads, so that nothing else can turn on it.
    let block = [(); 2].map(|()| Payload::of(Mode::Busy, long).task());
    let delayed = Payload::sleep(10).task().delay(lab.profile.lease * 2);
    for name in ["w1", "w2"] {
        lab.start(lab.setup(name).threads(2));
    }
    lab.submit(&[awaits, block[0].clone(), block[1].clone(), delayed]).await;

    let half = Duration::from_millis(long / 2);
    lab.until("half of the long time is over", PATIENCE, async || {
        let snapshot = lab.snapshot();
        let began = lab.ledger().all().map(|run| run.start.at).min().unwrap_or(u64::MAX);
        let now = now_ms();
        if now >= began.saturating_add(u64::try_from(half.as_millis()).unwrap_or(0)) {
            return Ok(());
        }
        Err(format!("{} run", snapshot.rows.len()))
    })
    .await;
    let pending = lab.raw(&["XPENDING", &lab.key("q:default:s:5"), "w", "-", "+", "100"]);
    // The delayed one may be there as well: handed to a worker whose threads are all blocked, it waits for one.
    for entry in pending.as_array().unwrap() {
        assert_eq!(
            entry.as_array().unwrap()[3],
            Reply::Int(1),
            "renewals do not raise the delivery count: {pending:?}"
        );
    }

    lab.ended(4, PATIENCE).await;
    let ledger = lab.ledger();
    for runs in ledger.runs.values() {
        assert_eq!(runs.len(), 1, "one start each: {runs:?}");
        assert_eq!((runs[0].start.attempt, runs[0].start.losses), (1, 0));
    }
    assert_eq!(lab.events().reclaims, []);
    for worker in lab.alive() {
        assert!(!worker.log().contains("the lease is lost"), "a blocked runtime cost a lease");
    }
    lab.close_with_invariants().await;
}
