//! What becomes of a run, for each way in which it can end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tidemill_common::envelope;
use tidemill_common::state::State;
use tidemill_common::store::Cancelled;
use tidemill_common::task::Keep;
use tidemill_worker::{Agent, Context, Exit, Outcome, Registry};
use tokio::sync::mpsc::unbounded_channel;

use crate::harness::{Lab, fast, name, task};

fn echo(context: Context) -> impl Future<Output = Outcome> + Send {
    std::future::ready(Outcome::done(context.payload().clone()))
}

#[tokio::test]
async fn done_with_its_result_kept_as_asked() {
    let lab = Lab::new().await;
    let worker = lab.start(Registry::new().with(name("echo"), echo), fast());
    let plain = task("echo");
    let mut unkept = task("echo");
    unkept.meta.keep = Keep::None;
    let mut only_failures = task("echo");
    only_failures.meta.keep = Keep::Failed;
    let mut large = task("echo");
    large.payload = vec![b'l'; 100_000].into();
    for task in [&plain, &unkept, &only_failures, &large] {
        lab.submit(task).await;
    }
    for (task, data) in [
        (&plain, plain.payload.clone()),
        (&unkept, "".into()),
        (&only_failures, "".into()),
        (&large, large.payload.clone()),
    ] {
        let status = lab.until(&task.id, State::Succeeded).await;
        assert_eq!((status.data, status.attempt), (data, 1));
    }
    assert_eq!(worker.drain().await, Exit::Drained);
    let counts = lab.store.counts().await.unwrap();
    assert_eq!((counts.running, counts.workers, counts.idle), (0, 0, 0), "it has left nothing behind");
}

#[tokio::test]
async fn failures_are_tried_again_and_then_dead() {
    let lab = Lab::new().await;
    let handler = |context: Context| async move {
        match (context.task().agent.as_str(), context.attempt()) {
            ("second-time", 1) => Outcome::Retry { error: "not yet".into(), after: Some(Duration::from_millis(30)) },
            ("second-time", n) => Outcome::done(n.to_string()),
            ("never", _) => Outcome::Retry { error: "é".repeat(2_000), after: Some(Duration::from_millis(1)) },
            ("panics", _) => panic!("of number {}", context.attempt()),
            ("too-large", _) => Outcome::done(vec![0; (1 << 20) + 1]),
            _ => Outcome::dead("hopeless"),
        }
    };
    let agents = ["second-time", "never", "panics", "too-large", "dead"];
    let registry = agents.iter().fold(Registry::new(), |all, agent| all.with(name(agent), handler));
    let worker = lab.start(registry, fast());
    let tasks = agents.map(|agent| task(agent).max_attempts(2));
    let mut quick = tasks.clone();
    quick[2].meta.retry = Some(tidemill_common::retry::RetryPolicy { base_ms: 1, cap_ms: 1 });
    lab.store.submit(&quick, 0).await.unwrap();

    let status = lab.until(&tasks[0].id, State::Succeeded).await;
    assert_eq!((&status.data[..], status.attempt), (&b"2"[..], 2));
    let status = lab.until(&tasks[1].id, State::Dead).await;
    assert_eq!((status.data.len(), status.attempt), (1024, 2), "errors are cut between characters");
    let status = lab.until(&tasks[2].id, State::Dead).await;
    assert_eq!((&status.data[..], status.attempt), (&b"panic: of number 2"[..], 2));
    let status = lab.until(&tasks[3].id, State::Dead).await;
    assert!(status.data.starts_with(b"result too large"), "{status:?}");
    let status = lab.until(&tasks[4].id, State::Dead).await;
    assert_eq!((&status.data[..], status.attempt), (&b"hopeless"[..], 1));
    worker.drain().await;
}

#[tokio::test]
async fn throttled_does_not_count() {
    let lab = Lab::new().await;
    let runs = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&runs);
    let handler = move |context: Context| {
        let run = counted.fetch_add(1, Ordering::Relaxed);
        async move {
            match run {
                0..3 => Outcome::Throttled { error: "429".into(), until: Duration::from_millis(5) },
                _ => Outcome::done(context.attempt().to_string()),
            }
        }
    };
    let worker = lab.start(Registry::new().with(name("a"), handler), fast());
    let once = task("a").max_attempts(1);
    lab.submit(&once).await;
    assert_eq!(lab.until(&once.id, State::Succeeded).await.data, "1");
    worker.drain().await;
}

#[tokio::test]
async fn what_cannot_be_read_is_dead_with_the_reason() {
    let lab = Lab::new().await;
    let (garbled, missing) = (task("echo"), {
        let mut t = task("echo");
        t.payload = vec![0; 20_000].into();
        t
    });
    lab.submit(&garbled).await;
    lab.submit(&missing).await;
    // The first byte of its meta part: one that msgpack never uses.
    let key = lab.store.base().key(&format!("j:{}", garbled.id));
    let at = envelope::SERVER_BYTES + envelope::seal(&garbled).unwrap().header.len() + 2;
    lab.server.command(&[b"SETRANGE", key.as_bytes(), at.to_string().as_bytes(), &[0xc1]]).unwrap();
    lab.server.command(&["DEL", &lab.store.base().payload(missing.id.as_str())]).unwrap();
    let worker = lab.start(Registry::new().with(name("echo"), echo), fast());
    for id in [&garbled.id, &missing.id] {
        let status = lab.until(id, State::Dead).await;
        assert!(status.data.starts_with(b"invalid: "), "{status:?}");
    }
    worker.drain().await;
}

#[tokio::test]
async fn out_of_time() {
    let lab = Lab::new().await;
    let handler = |context: Context| async move {
        if &context.payload()[..] == b"polite" {
            context.cancelled().await;
            return Outcome::retry("stopped at page 3");
        }
        std::future::pending().await
    };
    let worker = lab.start(Registry::new().with(name("slow"), handler), fast());
    let mut tasks = [task("slow").max_attempts(1), task("slow").max_attempts(1)];
    tasks[1].payload = "polite".into();
    for task in &mut tasks {
        task.meta.timeout_ms = 50;
        lab.submit(task).await;
    }
    assert_eq!(lab.until(&tasks[0].id, State::Dead).await.data, "timed out after 50ms");
    assert_eq!(lab.until(&tasks[1].id, State::Dead).await.data, "timed out after 50ms: stopped at page 3");
    worker.drain().await;
}

#[tokio::test]
async fn the_agents_own_time_is_a_bound_too() {
    let lab = Lab::new().await;
    let handler: Arc<dyn tidemill_worker::Handler> = Arc::new(|_: Context| std::future::pending::<Outcome>());
    let agent = Agent { handler, concurrency: None, timeout: Duration::from_millis(30) };
    let worker = lab.start(Registry::new().with_agent(name("slow"), agent), fast());
    let mut long = task("slow").max_attempts(1);
    long.meta.timeout_ms = 3_600_000;
    lab.submit(&long).await;
    assert_eq!(lab.until(&long.id, State::Dead).await.data, "timed out after 30ms");
    worker.drain().await;
}

#[tokio::test]
async fn called_off_while_it_runs() {
    let lab = Lab::new().await;
    let (begun, mut begins) = unbounded_channel();
    let handler = move |context: Context| {
        let begun = begun.clone();
        async move {
            let _ = begun.send(context.payload().clone());
            match &context.payload()[..] {
                // A result that is there counts.
                b"quick" => {
                    context.cancelled().await;
                    Outcome::done("made it")
                }
                _ => std::future::pending().await,
            }
        }
    };
    let worker = lab.start(Registry::new().with(name("long"), handler), fast());
    let mut tasks = [task("long"), task("long")];
    tasks[1].payload = "quick".into();
    for task in &tasks {
        lab.submit(task).await;
        begins.recv().await.unwrap();
        assert_eq!(lab.store.cancel(&task.id).await.unwrap(), Cancelled::Signalled);
    }
    lab.until(&tasks[0].id, State::Cancelled).await;
    assert_eq!(lab.until(&tasks[1].id, State::Succeeded).await.data, "made it");
    assert_eq!(worker.drain().await, Exit::Drained);
}

#[tokio::test]
async fn follow_ups_come_with_success_alone() {
    let lab = Lab::new().await;
    let (submitted, mut ids) = unbounded_channel();
    let handler = move |context: Context| {
        let submitted = submitted.clone();
        async move {
            let child = context.submit(task("leaf")).unwrap();
            let _ = submitted.send(child);
            if context.attempt() == 1 {
                return Outcome::Retry { error: "once more".into(), after: Some(Duration::from_millis(1)) };
            }
            Outcome::done("")
        }
    };
    let leaf = |context: Context| async move {
        Outcome::done(context.task().meta.parent.as_ref().unwrap().as_str().to_owned())
    };
    let worker = lab.start(Registry::new().with(name("root"), handler).with(name("leaf"), leaf), fast());
    let root = task("root");
    lab.submit(&root).await;
    let (of_failure, of_success) = (ids.recv().await.unwrap(), ids.recv().await.unwrap());
    assert_eq!(lab.until(&of_success, State::Succeeded).await.data, root.id.as_str());
    assert_eq!(lab.status(&of_failure).await.state, None);
    worker.drain().await;
}

#[tokio::test]
async fn progress_is_seen_from_outside() {
    let lab = Lab::new().await;
    let handler = |context: Context| async move {
        for page in 0..3 {
            context.progress(format!("page {page}"));
        }
        context.cancelled().await;
        Outcome::retry("")
    };
    let worker = lab.start(Registry::new().with(name("a"), handler), fast());
    let one = task("a");
    lab.submit(&one).await;
    crate::harness::until("progress", || async { lab.status(&one.id).await.progress == "page 2" }).await;
    worker.shutdown.force.cancel();
    assert_eq!(worker.drain().await, Exit::Forced);
}
