//! the server hands something to a connection whose other end does not hear it, while the worker lives and renews.
//!
//! What is lost on the way is found, in two leases at most: a worker's lease protects only what it really holds. All that the
//! worker sends arrives; only replies do not, for a while.

use std::time::{Duration, Instant};

use tidemill_common::task::NewTask;
use tidemill_tests::lab::profile::ms;
use tidemill_tests::lab::{End, Lab, Payload, WorkerProcess, now_ms};
use tidemill_tests::proxy::{Flow, Proxy, Toward};
use tidemill_tests::watch::{Watch, is_stopped};

use super::{PATIENCE, SLACK, as_ms};

/// The ring that should wake the worker goes to a connection that is dead, for longer than a lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ring_handed_to_a_dead_connection() {
    let (lab, proxy, worker) = asleep_behind_a_proxy().await;
    let watch = Watch::on(&worker);
    proxy.set(Toward::Client, Flow::Held);
    let task = one(&lab).await;
    lab.until("the ring was taken", PATIENCE, async || match proxy.counts().waiting[Toward::Client as usize] {
        0 => Err("it is still there".into()),
        _ => Ok(()),
    })
    .await;
    tokio::time::sleep(Duration::from_millis(ms(5_000))).await;
    assert!(lab.ledger().of(task.id.as_str()).is_empty(), "nothing has arrived at the worker");
    comes_back(&lab, &proxy, &worker, &task).await;
    watch.assert_calm();
    lab.close_with_invariants().await;
}

/// The answer to a claim is lost, and the connection with it; the hole is shorter than the lease, so the worker asks again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_answered_to_a_dead_connection() {
    let (lab, proxy, worker) = asleep_behind_a_proxy().await;
    let task = lost_on_the_way(&lab, &proxy).await;
    tokio::time::sleep(lab.profile.lease / 4).await;
    comes_back(&lab, &proxy, &worker, &task).await;
    let run = lab.ledger().of(task.id.as_str())[0].start.clone();
    assert_eq!((run.attempt, run.losses), (1, 0), "nobody counts this as a loss");
    lab.close_with_invariants().await;
}

/// The same, for longer than the lease: the worker, which hears nothing, gives itself up and begins anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_answered_to_a_connection_that_stays_dead() {
    let (lab, proxy, worker) = asleep_behind_a_proxy().await;
    let watch = Watch::on(&worker);
    let task = lost_on_the_way(&lab, &proxy).await;
    tokio::time::sleep(Duration::from_millis(ms(5_000))).await;
    comes_back(&lab, &proxy, &worker, &task).await;
    watch.assert_calm();
    lab.close_with_invariants().await;
}

/// Another worker lives: nobody has to wait for the network to come back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_worker_takes_over_while_the_connection_is_dead() {
    let (lab, proxy, _cut_off) = asleep_behind_a_proxy().await;
    let task = lost_on_the_way(&lab, &proxy).await;
    let since = now_ms();
    let well = lab.worker("well");
    done(&lab, &task, PATIENCE).await;
    let run = lab.ledger().of(task.id.as_str())[0].start.clone();
    assert_eq!(run.pid, well.pid());
    let bound = as_ms(lab.profile.lease * 2 + lab.profile.sweep * 3 + SLACK);
    assert!(run.at - since <= bound, "it ran {} ms after its loss; {bound} are allowed", run.at - since);
    proxy.resume();
    lab.close_with_invariants().await;
}

/// The entry is pending under a living worker's name, and no claim of that worker has ever asked for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_that_the_worker_never_asked_for() {
    let (lab, proxy, worker) = asleep_behind_a_proxy().await;
    let known = lab.raw(&["ZRANGE", &lab.key("w"), "0", "-1"]);
    let me = known.as_array().and_then(|all| all[0].as_str()).expect("one worker is known").to_owned();
    // Frozen for a moment, so that it does not claim it before.
    worker.stop();
    lab.until("it is frozen", PATIENCE, async || if is_stopped(worker.pid()) { Ok(()) } else { Err("not yet".into()) })
        .await;
    let task = one(&lab).await;
    let read = lab.raw(&["XREADGROUP", "GROUP", "w", &me, "COUNT", "1", "STREAMS", &lab.key("q:default:s:5"), ">"]);
    assert!(!read.is_nil(), "the entry is pending under the worker's name");
    worker.cont();
    comes_back(&lab, &proxy, &worker, &task).await;
    let run = lab.ledger().of(task.id.as_str())[0].start.clone();
    assert_eq!((run.attempt, run.losses), (1, 0), "a hand-over that nobody heard of is no loss");
    lab.close_with_invariants().await;
}

/// One worker that reaches its server by a proxy, has run something, and sleeps.
async fn asleep_behind_a_proxy() -> (Lab, Proxy, WorkerProcess) {
    let lab = Lab::new().await;
    let proxy = Proxy::start(lab.server());
    let mut setup = lab.setup("far");
    setup.redis.url = proxy.url();
    let worker = lab.start(setup);
    let task = one(&lab).await;
    done(&lab, &task, PATIENCE).await;
    asleep(&lab).await;
    (lab, proxy, worker)
}

/// The worker has nothing to ask for: it claimed in vain, and its settles are answered.
async fn asleep(lab: &Lab) {
    lab.until("the worker sleeps", PATIENCE, async || {
        let counts = lab.counts().await;
        if (counts.idle, counts.running) == (1, 0) { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await;
}

async fn one(lab: &Lab) -> NewTask {
    let task = Payload::sleep(1).task();
    lab.submit(std::slice::from_ref(&task)).await;
    task
}

/// A task that Redis has handed to the worker, in a reply that is dropped with its connection.
async fn lost_on_the_way(lab: &Lab, proxy: &Proxy) -> NewTask {
    // Replies take a while, so that there is one on its way when the task has just been claimed.
    proxy.set(Toward::Client, Flow::Delayed(lab.profile.lease / 5));
    let task = one(lab).await;
    lab.until("it is claimed", PATIENCE, async || match lab.counts().await.running {
        0 => Err("it is not".into()),
        _ => Ok(()),
    })
    .await;
    proxy.set(Toward::Client, Flow::Dropped);
    lab.until("the reply is lost", PATIENCE, async || match proxy.counts().lost[Toward::Client as usize] {
        0 => Err("not yet".into()),
        _ => Ok(()),
    })
    .await;
    assert!(lab.ledger().of(task.id.as_str()).is_empty(), "the worker has not heard of it");
    task
}

/// The network is well again, and the task is run by that very process within two leases.
async fn comes_back(lab: &Lab, proxy: &Proxy, worker: &WorkerProcess, task: &NewTask) {
    proxy.resume();
    let (restored, bound) = (Instant::now(), lab.profile.lease * 2 + SLACK);
    done(lab, task, PATIENCE).await;
    let took = restored.elapsed();
    assert!(took <= bound, "it ran {took:?} after the network was well; {bound:?} are allowed");
    let runs = lab.ledger().of(task.id.as_str()).to_vec();
    assert_eq!((runs.len(), runs[0].start.pid), (1, worker.pid()), "once, by the same process: {runs:?}");
}

async fn done(lab: &Lab, task: &NewTask, within: Duration) {
    lab.until("the task has run", within, async || {
        let runs = lab.ledger().of(task.id.as_str()).to_vec();
        if matches!(runs.last().and_then(|run| run.end), Some((End::Done, _))) {
            Ok(())
        } else {
            Err(format!("{runs:?}"))
        }
    })
    .await;
}
