use std::panic::AssertUnwindSafe;

use bytes::Bytes;
use serde_json::json;
use tidemill_common::task::Keep;
use tokio::sync::Notify;

use super::*;
use crate::handler::{Next, Running};

fn task(payload: impl Into<Bytes>) -> NewTask {
    NewTask::new("test".parse().unwrap(), payload)
}

/// What an assertion says when it does not hold.
fn broken<T>(assertion: impl FnOnce() -> T) -> String {
    let panic = std::panic::catch_unwind(AssertUnwindSafe(assertion)).err().expect("it held");
    *panic.downcast::<String>().unwrap()
}

#[tokio::test]
async fn a_handler_sees_the_task_and_what_was_set() {
    let sees = |c: Context| async move {
        c.progress("one");
        c.progress("two");
        let task = c.task();
        let facts = json!([task.tenant, c.attempt(), c.losses(), c.fence().0, c.idempotency_key(), c.payload().len()]);
        Outcome::done(facts.to_string())
    };
    let ran = Trial::of(sees).attempt(3).losses(1).fence(99).run(task("xyz").tenant("acme").key("k")).await;
    ran.assert_done(json!(["acme", 3, 1, 99, "k", 3]));
    assert_eq!(ran.progress, ["one", "two"]);
}

#[tokio::test]
async fn outcomes_are_judged_as_in_a_worker() {
    let answers = |outcome: Outcome| run(move |_: Context| std::future::ready(outcome.clone()), task(""));
    assert!(answers(Outcome::retry("no")).await.assert_retry("no") <= Duration::from_secs(1), "by the policy");
    let throttled = Outcome::Throttled { error: "429".into(), until: Duration::MAX };
    assert_eq!(answers(throttled).await.assert_throttled("429"), Duration::from_hours(1), "at most");
    answers(Outcome::dead("never")).await.assert_dead("never");
    answers(Outcome::done(vec![0; (1 << 20) + 1])).await.assert_dead("result too large");
    run(|_: Context| async { panic!("oh no") }, task("")).await.assert_retry("panic: oh no");
    let mut unwanted = task("");
    unwanted.meta.keep = Keep::None;
    assert!(run(|_: Context| async { Outcome::done("x") }, unwanted).await.result().is_empty());
}

#[tokio::test]
async fn follow_ups_count_with_a_success_alone() {
    let submits = |c: Context| async move {
        c.submit(NewTask::new("check".parse().unwrap(), c.payload().clone())).unwrap();
        if c.attempt() == 1 { Outcome::retry("not yet") } else { Outcome::done("1") }
    };
    let ran = run(submits, task("x")).await;
    ran.assert_retry("not yet");
    assert!(broken(|| ran.assert_submitted("check")).contains("there are []"));
    let parent = task("x");
    let ran = Trial::of(submits).attempt(2).run(parent.clone()).await;
    let follow_up = ran.assert_done(1).assert_submitted("check");
    assert_eq!((&follow_up.meta.parent, follow_up.depth), (&Some(parent.id), 1));
    assert!(broken(|| ran.assert_submitted("other")).contains("there are [\"check\"]"));
}

#[tokio::test(start_paused = true)]
async fn a_paused_clock_is_turned_by_hand() {
    let sleeps = |c: Context| async move {
        tokio::time::sleep(Duration::from_secs(240)).await;
        Outcome::done(c.remaining().as_secs().to_string())
    };
    let began = Instant::now();
    run(sleeps, task("")).await.assert_done(60);
    assert_eq!(began.elapsed(), Duration::from_secs(240));
    Trial::of(sleeps).timeout(Duration::from_secs(10)).run(task("")).await.assert_retry("timed out after 10s");
    let mut hasty = task("");
    hasty.meta.timeout_ms = 500;
    run(sleeps, hasty).await.assert_retry("timed out after 500ms");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_called_off_may_succeed_and_else_does_not_count() {
    let waits = |last: fn() -> Outcome| {
        let begun = Arc::new(Notify::new());
        let signal = Arc::clone(&begun);
        let handler = move |c: Context| {
            let begun = Arc::clone(&begun);
            async move {
                begun.notify_one();
                c.cancelled().await;
                last()
            }
        };
        Trial::of(handler).called_off_when(async move { signal.notified().await }).run(task(""))
    };
    waits(|| Outcome::done("1")).await.assert_done(1);
    waits(|| Outcome::retry("stopped")).await.assert_handed_back();
    let deaf = Trial::of(|_: Context| std::future::pending()).called_off_when(async {});
    deaf.run(task("")).await.assert_handed_back();
}

#[tokio::test(start_paused = true)]
async fn a_registered_agent_has_its_middleware_and_its_time() {
    fn adds<'a>(context: Context, next: Next<'a>) -> Running<'a> {
        Box::pin(async move {
            context.progress("around");
            next.run(context).await
        })
    }
    let agent = crate::Agent {
        handler: Arc::new(|_: Context| std::future::pending()),
        concurrency: None,
        timeout: Duration::from_secs(7),
    };
    let registry = Registry::new().with_agent("test".parse().unwrap(), agent).with_middleware(adds);
    let ran = Trial::of_agent(&registry, &"test".parse().unwrap()).run(task("")).await;
    ran.assert_retry("timed out after 7s");
    assert_eq!(ran.progress, ["around"]);
    let missing = broken(|| Trial::of_agent(&registry, &"tset".parse().unwrap()));
    assert!(missing.contains("no agent tset"), "{missing}");
}

#[tokio::test]
async fn what_does_not_hold_is_told_with_what_is() {
    let ran = run(|_: Context| async { Outcome::done("{\"a\": 1}") }, task("")).await;
    ran.assert_done(json!({ "a": 1 }));
    assert!(broken(|| ran.assert_done(json!({ "a": 2 }))).contains("Number(2)"));
    assert!(broken(|| ran.assert_dead("x")).contains("Done(b\"{\\\"a\\\": 1}\")"));
    assert!(broken(|| ran.assert_handed_back()).contains("Done"));
    let ran = run(|_: Context| async { Outcome::done("text") }, task("")).await;
    assert!(broken(|| ran.assert_done("text")).contains("no JSON"));
    assert_eq!(ran.result(), "text");
}

#[tokio::test]
#[should_panic(expected = "the task is not valid")]
async fn a_task_that_no_producer_could_hand_in_is_refused() {
    run(|_: Context| async { Outcome::done("") }, task("").max_attempts(0)).await;
}
