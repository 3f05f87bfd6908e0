//! Redis away, frozen, emptied; leases lost; answers lost; handlers that block.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tidemill_common::name::WorkerId;
use tidemill_common::state::State;
use tidemill_common::store::{Claim, Claimed, Lease, Offer};
use tidemill_worker::{Context, Exit, Options, Outcome, Registry, Worker, lone};
use tokio::sync::mpsc::unbounded_channel;

use crate::harness::{Lab, fast, name, start, task, until};
use crate::stopping::block_for;

/// Claims for agent `agent` as `worker`.
async fn claim_as(lab: &Lab, worker: &WorkerId, sequence: u64, agent: &str) -> Claimed {
    let offers = [Offer { agent: name(agent), room: 10 }];
    lab.store.claim(&Claim { worker, sequence, most: 10, lone: false, shares: [10; 4], offers: &offers }).await.unwrap()
}

/// A task whose run is lost with its worker.
async fn lose_once(lab: &Lab, agent: &str) {
    let dead = WorkerId::incarnate("dead").unwrap();
    let lease = Lease {
        lease: Duration::from_millis(1),
        sweep_hold: Duration::from_millis(1),
        unknown_agent_after: Duration::ZERO,
    };
    lab.store.renew(&dead, lease, Some(&[name(agent)]), false).await.unwrap();
    assert_eq!(claim_as(lab, &dead, 1, agent).await.deliveries.len(), 1);
    // "Nothing to do" is also what is said of a lease that has not run out.
    let taken = AtomicU32::new(0);
    until("its lease has run out and all is taken back", || async {
        let (some, done) = lab.store.reclaim(&dead, 3).await.unwrap();
        taken.fetch_add(u32::try_from(some).unwrap(), Ordering::Relaxed) + u32::try_from(some).unwrap() > 0 && done
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn handlers_that_block_every_thread_keep_their_lease() {
    let lab = Lab::new().await;
    let begins = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&begins);
    let handler = move |context: Context| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move {
            block_for(Duration::from_secs(4));
            Outcome::done(context.losses().to_string())
        }
    };
    let options = fast();
    assert!(options.lease * 2 < Duration::from_secs(4));
    let registry = Registry::new().with(name("burn"), handler);
    let (one, other) = (lab.start(registry.clone(), options.clone()), lab.start(registry, options));
    let tasks: Vec<_> = (0..4).map(|_| task("burn")).collect();
    lab.store.submit(&tasks, 0).await.unwrap();
    for task in &tasks {
        let status = lab.until(&task.id, State::Succeeded).await;
        assert_eq!((&status.data[..], status.attempt, status.losses), (&b"0"[..], 1, 0));
    }
    assert_eq!(begins.load(Ordering::SeqCst), 4, "each was delivered once");
    one.drain().await;
    other.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_cannot_renew_stops_its_handlers_in_time_and_begins_anew() {
    let mut lab = Lab::new().await;
    let (told, mut stopped) = unbounded_channel();
    let handler = move |context: Context| {
        let told = told.clone();
        async move {
            if context.losses() > 0 {
                return Outcome::done("of the second life");
            }
            let _ = told.send(Instant::now());
            context.cancelled().await;
            let _ = told.send(Instant::now());
            Outcome::done("a result that must not count")
        }
    };
    let options = fast();
    let lease = options.lease;
    let worker = lab.start(Registry::new().with(name("a"), handler), options);
    let one = task("a");
    lab.submit(&one).await;
    stopped.recv().await.unwrap();
    let first_life = worker.handle.id();
    lab.server.freeze().unwrap();
    let frozen = Instant::now();
    let at = stopped.recv().await.unwrap();
    assert!(at - frozen < lease, "told to stop {:?} after the last renewal at the earliest", at - frozen);
    until("not ready", || async { !worker.handle.ready() }).await;
    lab.server.thaw().unwrap();
    until("a new life", || async { worker.handle.ready() && worker.handle.id() != first_life }).await;
    let status = lab.until(&one.id, State::Succeeded).await;
    assert_eq!(status.data, "of the second life", "what the first one said does not count");
    assert!(worker.handle.live());
    assert_eq!(worker.drain().await, Exit::Drained);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_had_finished_before_the_lease_was_lost_is_settled_after() {
    let mut lab = Lab::new().await;
    let begins = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&begins);
    let (begun, mut begin) = unbounded_channel();
    let handler = move |_: Context| {
        counted.fetch_add(1, Ordering::SeqCst);
        let _ = begun.send(());
        async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            Outcome::done("once")
        }
    };
    let worker = lab.start(Registry::new().with(name("a"), handler), fast());
    let one = task("a");
    lab.submit(&one).await;
    begin.recv().await.unwrap();
    let first_life = worker.handle.id();
    lab.server.freeze().unwrap();
    until("a new life", || async { worker.handle.id() != first_life }).await;
    lab.server.thaw().unwrap();
    let status = lab.until(&one.id, State::Succeeded).await;
    // The sweep gives those who live half a lease after an outage: the settle is there first.
    assert_eq!((&status.data[..], status.losses, begins.load(Ordering::SeqCst)), (&b"once"[..], 0, 1));
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_or_restarted_server_is_gone_to_again() {
    let mut lab = Lab::new().await;
    let registry = Registry::new().with(name("a"), |_: Context| async { Outcome::done("") });
    let worker = lab.start(registry, fast());
    for round in 0..3 {
        let before = worker.handle.id();
        let one = task("a");
        lab.submit(&one).await;
        lab.until(&one.id, State::Succeeded).await;
        match round {
            0 => drop(lab.server.command(&["FLUSHALL"]).unwrap()),
            1 => {
                lab.server.kill().unwrap();
                lab.server.restart().unwrap();
            }
            _ => drop(lab.server.command(&["SCRIPT", "FLUSH"]).unwrap()),
        }
        if round < 2 {
            until("a new life", || async { worker.handle.id() != before && worker.handle.ready() }).await;
        }
    }
    let one = task("a");
    lab.submit(&one).await;
    lab.until(&one.id, State::Succeeded).await;
    assert_eq!(worker.drain().await, Exit::Drained);
}

#[tokio::test]
async fn cut_connections_lose_nothing() {
    let lab = Lab::new().await;
    let registry = Registry::new().with(name("a"), |_: Context| async {
        tokio::time::sleep(Duration::from_millis(2)).await;
        Outcome::done("")
    });
    let worker = lab.start(registry, fast());
    let tasks: Vec<_> = (0..400).map(|_| task("a")).collect();
    for some in tasks.chunks(40) {
        lab.store.submit(some, 0).await.unwrap();
        lab.server.command(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for task in &tasks {
        lab.until(&task.id, State::Succeeded).await;
    }
    worker.drain().await;
}

#[tokio::test]
async fn a_delivery_of_which_the_worker_never_heard_is_handed_back() {
    let lab = Lab::new().await;
    let worker = lab.start(Registry::new().with(name("a"), |_: Context| async { Outcome::done("") }), fast());
    until("ready", || async { worker.handle.ready() }).await;
    // A claim in the worker's name, whose answer it does not get: for an agent that it does not run, so that it does not run it after.
    let (one, id) = (task("other"), worker.handle.id());
    lab.submit(&one).await;
    until("it is delivered", || async {
        // The bell has woken the worker, which parks the task as nobody's; a claim that offers the agent takes it from there.
        claim_as(&lab, &id, 1 << 40, "other").await;
        lab.server.command(&["HDEL", &lab.store.base().key("op"), &format!("c:{id}")]).unwrap();
        lab.status(&one.id).await.state == Some(State::Running)
    })
    .await;
    let status = lab.until(&one.id, State::Parked).await;
    assert_eq!((status.gate.as_deref(), status.losses), (Some("want:other"), 0));
    assert_eq!(worker.handle.id(), id, "in the same life");
    worker.drain().await;
}

#[tokio::test]
async fn lone_work_starts_a_child_and_a_lone_worker_ends_when_it_is_done() {
    let lab = Lab::new().await;
    let one = task("a");
    lab.submit(&one).await;
    for _ in 0..2 {
        lose_once(&lab, "a").await;
    }
    let registry =
        Registry::new().with(name("a"), |context: Context| async move { Outcome::done(context.losses().to_string()) });
    let dir = tempfile::tempdir().unwrap();
    let seen = dir.path().join("seen");
    let script = format!("echo ${} > {}", lone::ENV, seen.display());
    let parent = Worker::new(lab.redis(), registry.clone(), fast()).unwrap();
    let parent = start(parent.with_lone_command("/bin/sh", ["-c".into(), script.into()]));
    until("a child was started", || async { std::fs::read_to_string(&seen).is_ok_and(|s| s == "1\n") }).await;
    assert_eq!(lab.status(&one.id).await.state, Some(State::Parked), "it waits for a process of its own");
    let child = lab.start(registry, Options { lone: true, ..fast() });
    assert_eq!(
        tokio::time::timeout(Duration::from_secs(20), child.run).await.unwrap().unwrap().unwrap(),
        Exit::Drained
    );
    assert_eq!(lab.status(&one.id).await.data, "2");
    parent.drain().await;
}

#[tokio::test]
async fn a_parent_that_drains_lets_its_child_end() {
    let lab = Lab::new().await;
    let one = task("sleep");
    let mut one = one;
    one.payload = r#"{"ms":1500}"#.into();
    lab.submit(&one).await;
    for _ in 0..2 {
        lose_once(&lab, "sleep").await;
    }
    let registry = Registry::new().with(name("sleep"), |_: Context| async { Outcome::dead("not in the parent") });
    let parent = Worker::new(lab.redis(), registry, fast()).unwrap();
    let args = ["run", "--redis", &lab.server.url(), "--agents", "sleep", "--profile", "fast"].map(Into::into);
    let parent = start(parent.with_lone_command(env!("CARGO_BIN_EXE_worker"), args));
    lab.until(&one.id, State::Running).await;
    assert_eq!(parent.drain().await, Exit::Drained);
    let status = lab.status(&one.id).await;
    assert_eq!(status.state, Some(State::Succeeded), "{status:?}");
    assert_eq!(lab.store.counts().await.unwrap().workers, 0, "the child has said goodbye too");
}
