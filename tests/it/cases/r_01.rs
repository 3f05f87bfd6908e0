//! the data is gone while workers sleep (a flush, an empty restart, a lost stream or group, and all that with memory full).
//!
//! Each time: all later tasks run without a restart of any worker, upkeep goes on as well, and meanwhile nobody spins or floods
//! the log.

use std::time::Duration;

use tidemill_common::task::NewTask;
use tidemill_tests::lab::profile::{count, ms};
use tidemill_tests::lab::{End, Lab, Payload, WorkerProcess};
use tidemill_tests::server::Reply;
use tidemill_tests::watch::Watch;

use super::{PATIENCE, SLACK, as_ms};

/// The streams of a shard with one queue, below its base.
const STREAMS: [&str; 3] = ["q:default:s:5", "s:first", "s:line"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushall() {
    let (mut lab, workers) = asleep().await;
    recovers(&mut lab, &workers, &[], |lab| assert_eq!(lab.raw(&["FLUSHALL"]), Reply::Simple("OK".into()))).await;
    lab.close_with_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_without_data() {
    let (mut lab, workers) = asleep().await;
    recovers(&mut lab, &workers, &[], |lab| lab.server_mut().restart().expect("the server comes back, empty")).await;
    lab.close_with_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_deleted() {
    let (mut lab, workers) = asleep().await;
    let long = one_runs(&lab).await;
    recovers(&mut lab, &workers, &[long], |lab| {
        for stream in STREAMS {
            lab.raw(&["DEL", &lab.key(stream)]);
        }
    })
    .await;
    lab.close_with_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_destroyed() {
    let (mut lab, workers) = asleep().await;
    let long = one_runs(&lab).await;
    recovers(&mut lab, &workers, &[long], destroy_groups).await;
    lab.close_with_invariants().await;
}

/// The groups go, and the server refuses to make new ones by hand: tasks that were accepted before run all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_destroyed_with_memory_full() {
    let (mut lab, workers) = asleep().await;
    for worker in &workers {
        worker.stop();
    }
    let tasks = lab.tasks(count(100), Payload::sleep(5));
    lab.submit(&tasks).await;
    destroy_groups(&mut lab);
    lab.raw(&["CONFIG", "SET", "maxmemory", "1mb"]);
    let refused = lab.raw(&["XGROUP", "CREATE", &lab.key(STREAMS[0]), "w", "0"]);
    assert!(refused.as_error().is_some_and(|why| why.starts_with("OOM")), "the memory is full: {refused:?}");

    let watches: Vec<_> = workers.iter().map(Watch::on).collect();
    for worker in &workers {
        worker.cont();
    }
    all_run(&lab, &tasks).await;
    let refused = lab.store().submit(&lab.tasks(1, Payload::sleep(0)), 0).await;
    assert!(matches!(refused, Err(tidemill_common::store::Error::Full)), "{refused:?}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    watches.iter().for_each(Watch::assert_calm);

    lab.raw(&["CONFIG", "SET", "maxmemory", "0"]);
    recovers(&mut lab, &workers, &[], destroy_groups).await;
    lab.close_with_invariants().await;
}

fn destroy_groups(lab: &mut Lab) {
    for stream in STREAMS {
        lab.raw(&["XGROUP", "DESTROY", &lab.key(stream), "w"]);
    }
}

/// Two workers that have run something, so that all streams and groups are there, and sleep.
async fn asleep() -> (Lab, [WorkerProcess; 2]) {
    let lab = Lab::new().await;
    let workers = [lab.worker("w1"), lab.worker("w2")];
    let tasks = lab.tasks(10, Payload::sleep(1));
    lab.submit(&tasks).await;
    lab.ended(tasks.len(), PATIENCE).await;
    lab.until("both workers sleep", PATIENCE, async || match lab.counts().await.idle {
        2 => Ok(()),
        n => Err(format!("{n} do")),
    })
    .await;
    // What has ended is known, whatever becomes of the log.
    let _ = lab.events();
    (lab, workers)
}

/// A task that runs for longer than the fault takes.
async fn one_runs(lab: &Lab) -> NewTask {
    let task = Payload::sleep(ms(3_000)).task();
    lab.submit(std::slice::from_ref(&task)).await;
    lab.until("it runs", PATIENCE, async || match lab.ledger().of(task.id.as_str()).len() {
        0 => Err("it does not".into()),
        _ => Ok(()),
    })
    .await;
    task
}

/// The fault, and then: new tasks run, what ran through it ran once, and a killed worker's task is taken back.
async fn recovers(lab: &mut Lab, workers: &[WorkerProcess; 2], through: &[NewTask], fault: impl FnOnce(&mut Lab)) {
    let watches = workers.each_ref().map(Watch::on);
    fault(lab);
    let tasks = lab.tasks(count(100), Payload::sleep(5));
    lab.submit(&tasks).await;
    all_run(lab, &tasks).await;
    all_run(lab, through).await;
    for task in through.iter().chain(&tasks) {
        assert_eq!(lab.ledger().of(task.id.as_str()).len(), 1, "{} ran once", task.id);
    }
    assert!(lab.alive().len() >= workers.len(), "nobody has ended");
    let survivor = the_sweep_goes_on(lab, workers).await;
    watches[survivor].assert_calm();
}

/// Kills the worker that runs a task; the other takes it back. Returns that other's number.
async fn the_sweep_goes_on(lab: &Lab, workers: &[WorkerProcess; 2]) -> usize {
    let task = one_runs(lab).await;
    let runs = lab.ledger().of(task.id.as_str()).to_vec();
    let victim = workers.iter().position(|worker| worker.pid() == runs[0].start.pid).expect("one of the two runs it");
    let killed = workers[victim].kill();
    all_run(lab, std::slice::from_ref(&task)).await;
    let again = lab.ledger().of(task.id.as_str())[1].start.at - killed;
    let bound = as_ms(lab.profile.reclaimed_within() + SLACK);
    assert!(again <= bound, "started again {again} ms after the kill; {bound} ms are allowed");
    1 - victim
}

async fn all_run(lab: &Lab, tasks: &[NewTask]) {
    // A worker that has lost its name notices with its next renewal, half a lease away at most.
    let within = lab.profile.lease * 3 + Duration::from_secs(2);
    lab.until("all tasks have run", within, async || {
        let ledger = lab.ledger();
        let done =
            |task: &&NewTask| ledger.of(task.id.as_str()).iter().any(|run| matches!(run.end, Some((End::Done, _))));
        let n = tasks.iter().filter(done).count();
        if n == tasks.len() { Ok(()) } else { Err(format!("{n} of {} have", tasks.len())) }
    })
    .await;
}
