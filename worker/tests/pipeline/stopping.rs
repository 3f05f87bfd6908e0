//! How a worker stops, and what it leaves to others.

use std::time::{Duration, Instant};

use tidemill_common::state::State;
use tidemill_worker::{Context, Exit, Options, Outcome, Registry};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::harness::{Lab, fast, name, task};

/// An agent that says when it begins and ends when its payload (ms) is over.
fn sleeper() -> (Registry, UnboundedReceiver<u16>) {
    let (begun, begins) = unbounded_channel();
    let handler = move |context: Context| {
        let begun = begun.clone();
        async move {
            let _ = begun.send(context.attempt());
            let ms = std::str::from_utf8(context.payload()).unwrap().parse().unwrap();
            tokio::time::sleep(Duration::from_millis(ms)).await;
            Outcome::done("")
        }
    };
    (Registry::new().with(name("sleep"), handler), begins)
}

fn sleep_task(ms: u64) -> tidemill_common::task::NewTask {
    let mut task = task("sleep");
    task.payload = ms.to_string().into();
    task
}

#[tokio::test]
async fn draining_lets_what_runs_end_and_takes_nothing_more() {
    let lab = Lab::new().await;
    let (registry, mut begins) = sleeper();
    let worker = lab.start(registry, fast());
    let (first, second) = (sleep_task(200), sleep_task(0));
    lab.submit(&first).await;
    begins.recv().await.unwrap();
    worker.shutdown.drain.cancel();
    crate::harness::until("not ready", || async { !worker.handle.ready() }).await;
    lab.submit(&second).await;
    assert_eq!(worker.drain().await, Exit::Drained);
    assert_eq!(lab.status(&first.id).await.state, Some(State::Succeeded));
    assert_eq!(lab.status(&second.id).await.state, Some(State::Queued));
}

#[tokio::test]
async fn after_the_grace_it_hands_back_and_another_goes_on_at_once() {
    let lab = Lab::new().await;
    let (registry, mut begins) = sleeper();
    let worker = lab.start(registry.clone(), Options { grace: Duration::from_millis(50), ..fast() });
    let tasks = [sleep_task(3_600_000), sleep_task(3_600_000)];
    lab.store.submit(&tasks, 0).await.unwrap();
    for _ in &tasks {
        begins.recv().await.unwrap();
    }
    assert_eq!(worker.drain().await, Exit::HandedBack(2));
    for task in &tasks {
        let status = lab.status(&task.id).await;
        assert_eq!((status.state, status.losses), (Some(State::Queued), 0));
    }
    let next = lab.start(registry, fast());
    assert_eq!(begins.recv().await, Some(1), "an attempt that was handed back does not count");
    next.shutdown.force.cancel();
    assert_eq!(next.drain().await, Exit::Forced);
}

#[tokio::test(flavor = "multi_thread")]
async fn force_is_quick_even_if_a_handler_blocks_and_redis_is_away() {
    let mut lab = Lab::new().await;
    let (begun, mut begins) = unbounded_channel();
    let handler = move |_: Context| {
        let begun = begun.clone();
        async move {
            let _ = begun.send(());
            block_for(Duration::from_secs(4));
            Outcome::done("")
        }
    };
    let worker = lab.start(Registry::new().with(name("block"), handler), fast());
    lab.submit(&task("block")).await;
    begins.recv().await.unwrap();
    lab.server.freeze().unwrap();
    let asked = Instant::now();
    worker.shutdown.force.cancel();
    assert_eq!(worker.drain().await, Exit::Forced);
    assert!(asked.elapsed() < Duration::from_millis(2_500), "{:?}", asked.elapsed());
    lab.server.thaw().unwrap();
}

#[tokio::test]
async fn force_hands_back_what_it_can() {
    let lab = Lab::new().await;
    let (registry, mut begins) = sleeper();
    let worker = lab.start(registry, fast());
    let long = sleep_task(3_600_000);
    lab.submit(&long).await;
    begins.recv().await.unwrap();
    worker.shutdown.force.cancel();
    assert_eq!(worker.drain().await, Exit::Forced);
    assert_eq!(lab.status(&long.id).await.state, Some(State::Queued));
    assert_eq!(lab.store.counts().await.unwrap().workers, 0);
}

#[tokio::test]
async fn a_worker_that_never_reached_redis_stops_when_told() {
    let lab = Lab::new().await;
    let redis = tidemill_common::store::RedisOptions {
        url: "redis+unix:///nonexistent/redis.sock".into(),
        connect_timeout_ms: 100,
        ..lab.redis()
    };
    let (registry, _begins) = sleeper();
    let worker = crate::harness::start(tidemill_worker::Worker::new(redis, registry, fast()).unwrap());
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!worker.run.is_finished() && !worker.handle.ready());
    assert_eq!(worker.drain().await, Exit::Drained);
}

/// Computes for so long, as seen by the scheduler: no await, the thread is not given back.
pub(crate) fn block_for(time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        std::hint::spin_loop();
        std::thread::yield_now();
    }
}
