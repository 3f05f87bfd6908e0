//! Room: never more than there is, never less than can be used.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tidemill_common::state::State;
use tidemill_embedded::Reply;
use tidemill_worker::{Agent, Context, Handler, Options, Outcome, Registry};
use tokio::sync::mpsc::unbounded_channel;

use crate::harness::{Lab, fast, name, task, until};

/// Counts how many of it run at once.
fn counted(now: &Arc<AtomicU32>, most: &Arc<AtomicU32>) -> Arc<dyn Handler> {
    let (now, most) = (Arc::clone(now), Arc::clone(most));
    Arc::new(move |_: Context| {
        let (now, most) = (Arc::clone(&now), Arc::clone(&most));
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(5)).await;
            now.fetch_sub(1, Ordering::SeqCst);
            Outcome::done("")
        }
    })
}

#[tokio::test]
async fn never_more_than_the_worker_and_the_agent_have_room_for() {
    let lab = Lab::new().await;
    let counts = || (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let ((few_now, few_most), (many_now, many_most)) = (counts(), counts());
    let agent = |handler, concurrency| Agent { handler, concurrency, timeout: Duration::from_secs(60) };
    let registry = Registry::new()
        .with_agent(name("few"), agent(counted(&few_now, &few_most), Some(2)))
        .with_agent(name("many"), agent(counted(&many_now, &many_most), None));
    let tasks: Vec<_> = (0..120).map(|i| task(if i % 2 == 0 { "few" } else { "many" })).collect();
    lab.store.submit(&tasks, 0).await.unwrap();
    let worker = lab.start(registry, Options { concurrency: 6, ..fast() });
    until("all are done", || async { lab.store.counts().await.unwrap().ended.get("done") == Some(&120) }).await;
    assert_eq!(few_most.load(Ordering::SeqCst), 2, "all of its room, and no more");
    assert!(many_most.load(Ordering::SeqCst) <= 6);
    worker.drain().await;
}

#[tokio::test]
async fn a_ring_that_a_full_worker_took_is_passed_on() {
    let lab = Lab::new().await;
    let (begun, mut begins) = unbounded_channel();
    let handler = move |context: Context| {
        let begun = begun.clone();
        async move {
            if &context.payload()[..] == b"hold" {
                context.cancelled().await;
            } else {
                let _ = begun.send(Instant::now());
            }
            Outcome::done("")
        }
    };
    // No sweep to help out within the test.
    let slow = Options {
        concurrency: 1,
        lease: Duration::from_secs(60),
        renew: Duration::from_secs(20),
        sweep: Duration::from_secs(30),
        ..fast()
    };
    let registry = Registry::new().with(name("a"), handler);
    for _ in 0..5 {
        let full = lab.start(registry.clone(), slow.clone());
        until("the first is asleep", || async { lab.store.counts().await.unwrap().idle == 1 }).await;
        let mut hold = task("a");
        hold.payload = "hold".into();
        lab.submit(&hold).await;
        lab.until(&hold.id, State::Running).await;
        let free = lab.start(registry.clone(), slow.clone());
        for _ in 0..5 {
            until("the second is asleep", || async { lab.store.counts().await.unwrap().idle == 1 }).await;
            let quick = task("a");
            lab.submit(&quick).await;
            let submitted = Instant::now();
            let began =
                tokio::time::timeout(Duration::from_secs(5), begins.recv()).await.expect("a ring was lost").unwrap();
            assert!(began.saturating_duration_since(submitted) < Duration::from_secs(2));
        }
        lab.store.cancel(&hold.id).await.unwrap();
        full.drain().await;
        free.drain().await;
    }
}

#[tokio::test]
async fn an_idle_worker_sends_next_to_nothing() {
    let lab = Lab::new().await;
    let registry = Registry::new().with(name("a"), |_: Context| async { Outcome::done("") });
    let worker = lab.start(registry, Options { name: "idle".into(), ..Options::default() });
    let one = task("a");
    lab.submit(&one).await;
    lab.until(&one.id, State::Succeeded).await;
    until("it is asleep", || async { lab.store.counts().await.unwrap().idle == 1 }).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    lab.server.command(&["CONFIG", "RESETSTAT"]).unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let Reply::Bulk(stats) = lab.server.command(&["INFO", "commandstats"]).unwrap() else { panic!() };
    let stats = String::from_utf8(stats).unwrap();
    let calls = |command: &str| -> u32 {
        let line = stats.lines().find_map(|l| l.strip_prefix(&format!("cmdstat_{command}:calls=")));
        line.map_or(0, |l| l.split(',').next().unwrap().parse().unwrap())
    };
    // It holds the sweep: one a second. All else is a renewal each half lease and a blocking read each 10 s.
    let sent = calls("evalsha") + calls("blpop") + calls("rpush");
    assert!(sent <= 5, "{sent} in 3 s: {stats}");
    worker.drain().await;
}

#[tokio::test]
async fn what_is_scheduled_runs_when_it_is_due() {
    let lab = Lab::new().await;
    let (begun, mut begins) = unbounded_channel();
    let handler = move |_: Context| {
        let _ = begun.send(Instant::now());
        async { Outcome::done("") }
    };
    // The sweep is far too slow to be of help.
    let options = Options {
        lease: Duration::from_secs(60),
        renew: Duration::from_secs(20),
        sweep: Duration::from_secs(30),
        ..fast()
    };
    let worker = lab.start(Registry::new().with(name("a"), handler), options);
    until("it is asleep", || async { lab.store.counts().await.unwrap().idle == 1 }).await;
    for delay in [300, 100, 50] {
        let delay = Duration::from_millis(delay);
        let submitted = Instant::now();
        lab.submit(&task("a").delay(delay)).await;
        let waited = begins.recv().await.unwrap() - submitted;
        assert!(waited >= delay && waited < delay + Duration::from_secs(2), "{waited:?} for {delay:?}");
    }
    worker.drain().await;
}
