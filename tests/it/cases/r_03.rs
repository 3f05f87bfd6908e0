//! failover. The server becomes a replica under load and a primary again; or it is gone, and its replica takes its place.
//!
//! Producers are told so, in an error that may pass; workers stay, and look for the primary again; what runs is settled then or
//! begins again, and no attempt is counted. What a failover forgets is in guarantee 1: replication is asynchronous.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use tidemill_common::store::{Accepted, Error, Reason, RedisOptions, Store};
use tidemill_common::task::NewTask;
use tidemill_tests::admin::{Watched, as_before, connections};
use tidemill_tests::lab::profile::{count, pick};
use tidemill_tests::lab::{End, Lab, Payload, WorkerProcess};
use tidemill_tests::program::Program;
use tidemill_tests::proxy::Proxy;
use tidemill_tests::server::{self, Options, Reply, Server, Tcp};
use tidemill_tests::watch::Watch;

use super::PATIENCE;

mod certain;
mod sentinel;

/// The producer's exit code for a server that does not do as asked.
const NO_ANSWER: i32 = 7;

/// The primary is made a replica (of nobody who is there) in the middle of a load, and a primary again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_primary_is_a_replica_for_a_while() {
    let lab = Lab::new().await;
    let workers: Vec<WorkerProcess> = ["w1", "w2"].map(|name| lab.worker(name)).to_vec();
    let watched = Watched::start(&lab, &lab.server().url()).await;
    asleep(&lab, 3).await;
    let before = connections(&lab);
    let watches: Vec<Watch> = workers.iter().map(Watch::on).collect();
    let mut tasks = lab.tasks(8, Payload::sleep(pick(600, 4_000)));
    tasks.extend(lab.tasks(count(1_000), Payload::sleep(20)));
    tasks.extend((0..10).map(|_| Payload::sleep(1).task().delay(Duration::from_millis(pick(400, 5_000)))));
    lab.submit(&tasks).await;
    lab.until("some run, and some have", PATIENCE, async || {
        let ledger = lab.ledger();
        if workers.iter().all(|w| ledger.running(w.pid()).count() > 1) { Ok(()) } else { Err("not yet".into()) }
    })
    .await;

    let url = lab.server().url();
    let options = RedisOptions { url: url.clone(), retry_for_ms: 0, ..RedisOptions::default() };
    let store = Store::connect(&options).await.expect("a producer that asks once");
    assert_eq!(lab.raw(&["REPLICAOF", "127.0.0.1", "1"]).as_error(), None);
    // A program says it plainly, once it has tried for as long as it may.
    let env = [("TIDEMILL__REDIS__URL", url.as_str()), ("TIDEMILL__REDIS__RETRY_FOR_MS", "200")];
    let refused = Program::run("producer", &["submit", "ledger", "1"], &env).await;
    assert_eq!(refused.code, Some(NO_ANSWER), "{refused:?}");
    assert!(refused.err.contains("READONLY"), "{}", refused.err);
    assert!(refused.err.contains("TM-0307") && refused.err.contains("safe"), "for certain: {}", refused.err);
    let refused = store.submit(&lab.tasks(1, Payload::sleep(1)), 0).await.expect_err("nothing is taken in");
    assert!(refused.is_transient() && refused.reason() == Reason::Readonly, "{refused:?}");
    watched.until_ready(&lab, false).await;
    tokio::time::sleep(Duration::from_millis(pick(1_500, 10_000))).await;
    assert!(!watched.ready(), "it does not take work, and says so");
    watches.iter().for_each(Watch::assert_calm);

    assert_eq!(lab.raw(&["REPLICAOF", "NO", "ONE"]).as_error(), None);
    // Whoever asks again with the same connection is served.
    let late = lab.tasks(5, Payload::sleep(1));
    lab.until("the producer is served again", PATIENCE, async || match store.submit(&late, 0).await {
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    })
    .await;
    store.close().await;
    lab.accepted(late.iter().map(|task| task.id.clone()));
    tasks.extend(late);
    watched.until_ready(&lab, true).await;
    lab.ended(tasks.len(), PATIENCE * 2).await;
    all_done(&lab, &tasks);
    as_before(&lab, &workers, before).await;
    watched.stop().await;
    lab.close_with_invariants().await;
}

/// The primary dies, its replica is promoted and has its address from then on: what ran goes on, what waited runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_is_promoted() {
    // The lab's own server is the replica, which is asked in the end.
    let lab = Lab::with(Options::new().tcp(Tcp::Free)).await;
    let mut primary = server::start_with(Options::new().tcp(Tcp::Free).config_line("repl-diskless-sync-delay 0"));
    let port = primary.port().expect("a port").to_string();
    assert_eq!(lab.raw(&["REPLICAOF", "127.0.0.1", &port]).as_error(), None);
    lab.until("the replica has all", PATIENCE, async || in_step(&lab, &primary)).await;
    let folder = tempfile::tempdir().expect("a folder");
    let address = folder.path().join("primary");
    point(&address, &primary);
    let proxy = Proxy::to(&address);
    let options = RedisOptions { url: proxy.url(), ..RedisOptions::default() };
    let producer = Store::connect(&options).await.expect("a producer");
    let workers = ["w1", "w2"].map(|name| {
        let mut setup = lab.setup(name);
        setup.redis.url = proxy.url();
        lab.start(setup)
    });
    let watches = workers.each_ref().map(Watch::on);
    let first = lab.tasks(count(100), Payload::sleep(2));
    hand_in(&lab, &producer, &first).await;
    lab.until("the first have run", PATIENCE, async || match lab.ledger().ended(End::Done) {
        n if n == first.len() => Ok(()),
        n => Err(format!("{n} have")),
    })
    .await;

    // Long ones in hand, others behind them, and the replica knows all of it.
    let rest: Vec<NewTask> =
        [lab.tasks(8, Payload::sleep(pick(800, 6_000))), lab.tasks(20, Payload::sleep(1))].concat();
    hand_in(&lab, &producer, &rest).await;
    lab.until("both have their hands full", PATIENCE, async || {
        let ledger = lab.ledger();
        let full = workers.iter().all(|w| ledger.running(w.pid()).count() == 4);
        if full { in_step(&lab, &primary) } else { Err("not yet".into()) }
    })
    .await;
    primary.kill().expect("it dies");
    let one = lab.tasks(1, Payload::sleep(1));
    let refused = tokio::time::timeout(Duration::from_millis(pick(100, 2_000)), producer.submit(&one, 0)).await;
    assert!(!matches!(refused, Ok(Ok(_))), "nobody takes it in: {refused:?}");
    assert_eq!(lab.raw(&["REPLICAOF", "NO", "ONE"]).as_error(), None);
    std::fs::remove_file(&address).expect("the old address");
    point(&address, lab.server());

    let late = lab.tasks(10, Payload::sleep(1));
    hand_in(&lab, &producer, &late).await;
    let all = [first, rest, late].concat();
    lab.until("all have run", PATIENCE, async || match lab.ledger().ended(End::Done) {
        n if n >= all.len() => Ok(()),
        n => Err(format!("{n} of {} have", all.len())),
    })
    .await;
    all_done(&lab, &all);
    watches.iter().for_each(Watch::assert_calm);
    producer.close().await;
    lab.close_with_invariants().await;
}

/// Each has one success, and no attempt was counted that failed.
fn all_done(lab: &Lab, tasks: &[NewTask]) {
    let ledger = lab.ledger();
    for task in tasks {
        let runs = ledger.of(task.id.as_str());
        assert!(runs.iter().any(|run| matches!(run.end, Some((End::Done, _)))), "{} is lost: {runs:?}", task.id);
        assert!(runs.iter().all(|run| run.start.attempt == 1), "no attempt is spent: {runs:?}");
    }
}

async fn hand_in(lab: &Lab, producer: &Store, tasks: &[NewTask]) {
    let answers: Result<Vec<Accepted>, Error> = producer.submit(tasks, 0).await;
    let answers = answers.expect("the producer asks until it is answered");
    assert!(answers.iter().all(|answer| matches!(answer, Accepted::New(_) | Accepted::Duplicate(_))), "{answers:?}");
    lab.accepted(tasks.iter().map(|task| task.id.clone()));
}

async fn asleep(lab: &Lab, n: u64) {
    lab.until("all are at work", PATIENCE, async || match lab.counts().await.idle {
        idle if idle == n => Ok(()),
        idle => Err(format!("{idle} sleep")),
    })
    .await;
}

/// Whether the lab's server, a replica, has acknowledged all that its primary has written.
fn in_step(lab: &Lab, primary: &Server) -> Result<(), String> {
    // A sentinel that promotes it cuts its connections.
    let linked = lab.server().command(&["INFO", "replication"]).map_err(|e| e.to_string())?;
    let linked = linked.as_str().is_some_and(|text| text.contains("master_link_status:up"));
    let mut connection = primary.connect().map_err(|e| e.to_string())?;
    // A write of its own: WAIT is about those of its connection.
    for command in [&["SET", "probe", "1"][..], &["DEL", "probe"]] {
        connection.command(command).map_err(|e| e.to_string())?;
    }
    match connection.command(&["WAIT", "1", "1000"]) {
        Ok(Reply::Int(1)) if linked => Ok(()),
        other => Err(format!("linked: {linked}, WAIT says {other:?}")),
    }
}

fn point(address: &Path, server: &Server) {
    symlink(server.socket_path(), address).expect("an address");
}
