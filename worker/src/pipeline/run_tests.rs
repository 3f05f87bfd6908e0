use super::*;
use crate::handler::testing::context;
use crate::handler::{Next, Registry, Running as Run};
use crate::testing::arrived;

fn task() -> Task {
    arrived(NewTask::new("a".parse().unwrap(), ""))
}

fn settled(outcome: Outcome, task: &Task) -> Verb {
    match verdict(Some(outcome), task, 1, Duration::from_secs(60), &Mutex::default()) {
        (Ended::Answered(verb), _) => verb,
        (Ended::Cut, _) => panic!("cut"),
    }
}

#[test]
fn answers_become_what_is_settled() {
    let mut of = task();
    assert_eq!(settled(Outcome::done("x"), &of), Verb::Done { result: "x".into(), keep_ms: 60_000 });
    assert_eq!(settled(Outcome::dead("no"), &of), Verb::Dead { error: "no".into() });
    let throttled = |until| settled(Outcome::Throttled { error: "429".into(), until }, &of);
    assert_eq!(throttled(Duration::from_secs(5)), Verb::Throttled { error: "429".into(), after_ms: 5_000 });
    assert_eq!(throttled(Duration::MAX), Verb::Throttled { error: "429".into(), after_ms: 3_600_000 });
    let retry = |after| settled(Outcome::Retry { error: "e".into(), after }, &of);
    assert_eq!(retry(Some(Duration::MAX)), Verb::Retry { error: "e".into(), after_ms: CAP_MS_MAX });
    let Verb::Retry { after_ms, .. } = retry(None) else { panic!() };
    assert!((100..=1_000).contains(&after_ms), "{after_ms}");
    let large = Outcome::done(vec![0; RESULT_BYTES_MAX + 1]);
    assert!(matches!(settled(large.clone(), &of), Verb::Dead { error } if error.starts_with("result too large")));
    for keep in [Keep::None, Keep::Failed] {
        of.meta.keep = keep;
        assert_eq!(settled(large.clone(), &of), Verb::Done { result: Bytes::new(), keep_ms: 0 });
    }
}

#[test]
fn a_policy_put_in_by_hand_is_not_believed() {
    let mut of = task();
    of.meta.retry = Some(tidemill_common::retry::RetryPolicy { base_ms: 0, cap_ms: u64::MAX });
    let Verb::Retry { after_ms, .. } = settled(Outcome::retry("e"), &of) else { panic!() };
    assert!((100..=1_000).contains(&after_ms), "{after_ms}");
}

#[test]
fn texts_are_cut_between_characters() {
    assert_eq!(cut("é".repeat(600)).len(), 1024);
    assert_eq!(cut(format!("x{}", "é".repeat(600))).len(), 1023);
    assert_eq!(cut("short".into()), "short");
}

#[test]
fn follow_ups_go_with_success_alone() {
    let outbox = || Mutex::new(vec![NewTask::new("b".parse().unwrap(), "x")]);
    let count = |outcome| verdict(outcome, &task(), 1, Duration::ZERO, &outbox()).1.len();
    assert_eq!(count(Some(Outcome::done(""))), 1);
    assert_eq!((count(Some(Outcome::retry(""))), count(Some(Outcome::dead(""))), count(None)), (0, 0, 0));
    let unfit = outbox();
    unfit.lock().unwrap()[0].meta.traceparent = Some("x".repeat(5_000));
    let (ended, follow_ups) = verdict(Some(Outcome::done("")), &task(), 1, Duration::ZERO, &unfit);
    assert!(matches!(ended, Ended::Answered(Verb::Dead { .. })) && follow_ups.is_empty());
}

#[test]
fn a_task_may_ask_for_less_time_than_its_agent_has() {
    let mut of = task();
    let agents = Duration::from_secs(10);
    assert_eq!(timeout(&of, agents, None), agents);
    of.meta.timeout_ms = 500;
    assert_eq!(timeout(&of, agents, None), Duration::from_millis(500));
    of.meta.timeout_ms = u64::MAX;
    assert_eq!(timeout(&of, agents, None), agents);
}

#[tokio::test]
async fn a_panic_of_a_middleware_is_one_of_the_run() {
    fn before<'a>(_: Context, _: Next<'a>) -> Run<'a> {
        panic!("before")
    }
    fn after<'a>(context: Context, next: Next<'a>) -> Run<'a> {
        Box::pin(async move {
            next.run(context).await;
            panic!("after")
        })
    }
    let answers = |_: Context| async { Outcome::done("") };
    let registry = || Registry::new().with("test".parse().unwrap(), answers);
    for (registry, error) in
        [(registry().with_middleware(before), "panic: before"), (registry().with_middleware(after), "panic: after")]
    {
        let crew = Crew::new(&registry);
        let outcome = attend(&*crew.member(0).agent.handler, context("", 1), Duration::from_secs(9)).await;
        assert_eq!(outcome, Some(Outcome::retry(error)));
    }
}
