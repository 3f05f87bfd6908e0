use super::*;

fn clock() -> ServerClock {
    ServerClock::new(1_000_000)
}

fn task(facts: Facts) -> Result<NewTask, String> {
    facts.task("a".parse().unwrap(), Bytes::new(), clock())
}

fn line(text: &str) -> Result<Facts, String> {
    Facts::read(text.as_bytes())
}

#[test]
fn a_line_says_all_that_flags_can() {
    let facts = line(
        r#"{"agent":"gpt4","payload":{"a":1e400, "b" : "\u0000"},"queue":"q","priority":20,"delay":"2h","start_within":"3h","key":"k",
        "tenant":"t","order_key":"o","hold_on_dead":true,"cost":4294967295,"max_attempts":65535,"timeout":"90s","retry_base":"250ms",
        "retry_cap":"5m","result":"failed","id":"x-1","traceparent":"00-ab"}"#,
    )
    .unwrap();
    assert_eq!(facts.payload.as_ref().unwrap().get(), r#"{"a":1e400, "b" : "\u0000"}"#, "as it was written");
    let task = task(facts).unwrap();
    assert_eq!((task.id.as_str(), task.queue.as_str(), task.priority), ("x-1", "q", Priority::Urgent));
    assert_eq!((task.delay, task.start_within), (Duration::from_secs(7200), Some(Duration::from_secs(10_800))));
    assert_eq!((task.cost, task.max_attempts, task.meta.timeout_ms), (u32::MAX, u16::MAX, 90_000));
    assert_eq!(task.meta.retry, Some(RetryPolicy { base_ms: 250, cap_ms: 300_000 }));
    assert_eq!(task.meta.traceparent.as_deref(), Some("00-ab"));
    assert_eq!((task.meta.keep, task.hold_on_dead), (Keep::Failed, true));
    assert_eq!(task.check(), Ok(()));
}

#[test]
fn bad_lines_say_what_is_wrong() {
    for (text, what) in [
        ("{", "EOF"),
        ("[]", "object"),
        (r#""a""#, "object"),
        (r#"{"agnet":"a"}"#, "unknown field `agnet`"),
        (r#"{"agent":"a:b"}"#, "':'"),
        (r#"{"agent":"{x}"}"#, "'{'"),
        (r#"{"queue":"a\nb"}"#, "'\\n'"),
        (r#"{"queue":"a\u0000b"}"#, "'\\0'"),
        (r#"{"priority":7}"#, "no priority"),
        (r#"{"priority":18446744073709551615}"#, "no priority"),
        (r#"{"delay":10}"#, "string"),
        (r#"{"delay":"99999999999999999999s"}"#, "no duration"),
        (r#"{"delay":"-1s"}"#, "no duration"),
        (r#"{"at":"2026-12-01T09:00:00"}"#, "offset"),
        (r#"{"cost":4294967296}"#, "4294967296"),
        (r#"{"max_attempts":65536}"#, "65536"),
        (r#"{"payload":{"a":}}"#, "expected value"),
    ] {
        let error = line(text).map(|facts| format!("{facts:?}")).unwrap_err();
        assert!(error.contains(what), "{text}: {error}");
    }
    assert!(line(r#"{"delay":"1s","at":"2026-12-01T09:00:00Z"}"#).and_then(task).is_err());
    assert!(line(r#"{"hold_on_dead":true}"#).and_then(task).is_err());
    assert!(line(r#"{"timeout":"0s"}"#).and_then(task).is_err());
}

#[test]
fn the_largest_numbers_reach_the_check() {
    let longest = Facts { delay: Some("18446744073709551615s".parse().unwrap()), ..Facts::default() };
    assert!(task(longest).unwrap().check().is_err());
    assert!("18446744073709551615ms".parse::<Span>().is_err());
    assert!("250us".parse::<Span>().is_err());
    assert_eq!("1s 500ms".parse::<Span>(), Ok(Span(Duration::from_millis(1500))));
}

#[test]
fn a_moment_is_the_servers_moment() {
    let at = |text: &str| text.parse::<At>().unwrap();
    let clock = ServerClock::new(u64::try_from(at("2026-12-01T08:00:00Z").0.as_millisecond()).unwrap());
    let hour = clock.until(at("2026-12-01T10:00:00+01:00"));
    assert!(hour <= Duration::from_secs(3600) && hour > Duration::from_secs(3590), "{hour:?}");
    assert_eq!(clock.until(at("1969-12-31T23:59:59Z")), Duration::ZERO);
}

#[test]
fn flags_are_defaults_of_lines_but_for_the_id() {
    let flags = Facts {
        queue: Some("flag".parse().unwrap()),
        delay: Some("1s".parse().unwrap()),
        id: Some("one".parse().unwrap()),
        ..Facts::default()
    };
    let merged = line(r#"{"at":"2026-12-01T09:00:00Z"}"#).unwrap().or(&flags);
    assert_eq!((merged.queue.unwrap().as_str(), merged.delay, merged.id), ("flag", None, None));
    let merged = line(r#"{"queue":"line"}"#).unwrap().or(&flags);
    assert_eq!((merged.queue.unwrap().as_str(), merged.delay), ("line", flags.delay));
}
