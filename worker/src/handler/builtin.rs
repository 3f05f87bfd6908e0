//! Agents that every worker can run: for a first try, for tests, and for load.
//!
//! `echo` answers with its payload; `noop` with nothing; `sleep` takes its time; `fail` fails as it is told.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{Context, Handler, Outcome, Running};

/// Answers with the payload.
#[derive(Debug, Clone, Copy, Default)]
pub struct Echo;

impl Handler for Echo {
    fn run(&self, context: Context) -> Running<'_> {
        Box::pin(async move { Outcome::Done(context.payload().clone()) })
    }
}

/// Answers with nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Noop;

impl Handler for Noop {
    fn run(&self, _: Context) -> Running<'_> {
        Box::pin(async { Outcome::done("") })
    }
}

/// Takes `{"ms":N}`, or a random time of `{"min_ms":A,"max_ms":B}`, and says how long it took. Ends at once when called off.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sleep;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Times {
    ms: Option<u64>,
    min_ms: Option<u64>,
    max_ms: Option<u64>,
}

impl Times {
    fn pick(&self) -> Result<u64, String> {
        match (self.ms, self.min_ms, self.max_ms) {
            (Some(ms), None, None) => Ok(ms),
            (None, Some(min), Some(max)) if min <= max => Ok(rand::random_range(min..=max)),
            _ => Err("give ms, or min_ms and max_ms with min_ms at most max_ms".into()),
        }
    }
}

impl Handler for Sleep {
    fn run(&self, context: Context) -> Running<'_> {
        Box::pin(async move {
            let ms = match payload::<Times>(&context).and_then(|times| times.pick()) {
                Ok(ms) => ms,
                Err(reason) => return Outcome::Dead { reason },
            };
            let slept = tokio::time::sleep(Duration::from_millis(ms));
            match context.cancellation().run_until_cancelled(slept).await {
                Some(()) => Outcome::done(format!("{{\"slept_ms\":{ms}}}")),
                None => Outcome::retry("called off while it slept"),
            }
        })
    }
}

/// Fails the first `times` runs as it is told, then succeeds; without `times` it always fails. Its payload:
/// `{"kind":"retry|dead|throttled|panic|abort","error":"…","times":N,"after_ms":N}`, all of which may be left out.
#[derive(Debug, Default)]
pub struct Fail {
    allow_abort: bool,
    /// Throttled runs do not count as attempts, so they are counted here, for as many tasks as fit.
    throttled: Mutex<HashMap<String, u64>>,
}

/// Tasks whose throttled runs are remembered: past that all are forgotten, and fail a few times more.
const REMEMBERED_MAX: usize = 10_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Failure {
    kind: Kind,
    error: String,
    times: Option<u64>,
    after_ms: Option<u64>,
}

impl Default for Failure {
    fn default() -> Self {
        Self { kind: Kind::Retry, error: "failed as it was told".into(), times: None, after_ms: None }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Retry,
    Dead,
    Throttled,
    Panic,
    Abort,
}

impl Fail {
    /// With `allow_abort` a payload may end the whole worker process, as a crash would.
    #[must_use]
    pub fn new(allow_abort: bool) -> Self {
        Self { allow_abort, throttled: Mutex::default() }
    }

    /// How often this task has failed so far, as far as we know.
    fn failures(&self, context: &Context) -> u64 {
        let throttled = self.throttled.lock().unwrap_or_else(PoisonError::into_inner);
        let before = throttled.get(context.id().as_str()).copied().unwrap_or(0);
        u64::from(context.attempt().saturating_sub(1)) + u64::from(context.losses()) + before
    }

    fn fail(&self, context: &Context, failure: Failure) -> Outcome {
        let Failure { kind, error, after_ms, .. } = failure;
        match kind {
            Kind::Retry => Outcome::Retry { error, after: after_ms.map(Duration::from_millis) },
            Kind::Dead => Outcome::Dead { reason: error },
            Kind::Throttled => {
                let mut throttled = self.throttled.lock().unwrap_or_else(PoisonError::into_inner);
                if throttled.len() >= REMEMBERED_MAX {
                    throttled.clear();
                }
                *throttled.entry(context.id().as_str().to_owned()).or_default() += 1;
                Outcome::Throttled { error, until: Duration::from_millis(after_ms.unwrap_or(1_000)) }
            }
            Kind::Panic => panic!("{error}"),
            Kind::Abort if self.allow_abort => std::process::abort(),
            Kind::Abort => {
                Outcome::dead("kind abort needs agents.fail.allow_abort = true in the worker's configuration")
            }
        }
    }
}

impl Handler for Fail {
    fn run(&self, context: Context) -> Running<'_> {
        Box::pin(async move {
            let failure =
                if context.payload().is_empty() { Ok(Failure::default()) } else { payload::<Failure>(&context) };
            match failure {
                Err(reason) => Outcome::Dead { reason },
                Ok(f) if f.times.is_some_and(|times| self.failures(&context) >= times) => {
                    self.throttled.lock().unwrap_or_else(PoisonError::into_inner).remove(context.id().as_str());
                    Outcome::done("")
                }
                Ok(failure) => self.fail(&context, failure),
            }
        })
    }
}

/// A payload as JSON; what cannot be read will not be readable the next time.
fn payload<T: DeserializeOwned>(context: &Context) -> Result<T, String> {
    serde_json::from_slice(context.payload()).map_err(|e| format!("the payload is not what this agent takes: {e}"))
}

#[cfg(test)]
mod tests {
    use super::super::testing::context;
    use super::*;

    async fn run(handler: &impl Handler, payload: &'static str, attempt: u16) -> Outcome {
        handler.run(context(payload, attempt)).await
    }

    #[tokio::test]
    async fn echo_and_noop_answer() {
        assert_eq!(run(&Echo, "\u{0}x", 1).await, Outcome::done("\u{0}x"));
        assert_eq!(run(&Noop, "x", 1).await, Outcome::done(""));
    }

    #[tokio::test]
    async fn sleep_takes_its_time_and_stops_when_called_off() {
        assert_eq!(run(&Sleep, r#"{"ms":1}"#, 1).await, Outcome::done(r#"{"slept_ms":1}"#));
        assert!(matches!(run(&Sleep, r#"{"min_ms":1,"max_ms":3}"#, 1).await, Outcome::Done(_)));
        for wrong in ["", "{}", "5", r#"{"min_ms":3,"max_ms":1}"#, r#"{"ms":1,"min_ms":1}"#, r#"{"sm":1}"#] {
            assert!(matches!(run(&Sleep, wrong, 1).await, Outcome::Dead { .. }), "{wrong}");
        }
        let long = context(r#"{"ms":600000}"#, 1);
        long.cancellation().cancel();
        assert!(matches!(Sleep.run(long).await, Outcome::Retry { .. }));
    }

    #[tokio::test]
    async fn fail_fails_so_often_and_then_succeeds() {
        let fail = Fail::default();
        let twice = r#"{"times":2,"error":"no","after_ms":7}"#;
        let no = Outcome::Retry { error: "no".into(), after: Some(Duration::from_millis(7)) };
        assert_eq!(run(&fail, twice, 1).await, no);
        assert_eq!(run(&fail, twice, 2).await, no);
        assert_eq!(run(&fail, twice, 3).await, Outcome::done(""));
        assert!(matches!(run(&fail, "", 9).await, Outcome::Retry { .. }), "without times it always fails");
        assert!(matches!(run(&fail, r#"{"kind":"dead"}"#, 1).await, Outcome::Dead { .. }));
        assert!(matches!(run(&fail, r#"{"kind":"maybe"}"#, 1).await, Outcome::Dead { .. }));
        assert!(matches!(run(&fail, r#"{"kind":"abort"}"#, 1).await, Outcome::Dead { .. }), "only when it is allowed");
        let throttled = context(r#"{"kind":"throttled","times":1}"#, 1);
        assert!(matches!(fail.run(throttled.clone()).await, Outcome::Throttled { .. }));
        assert_eq!(
            fail.run(throttled).await,
            Outcome::done(""),
            "throttled runs are counted although they are no attempts"
        );
    }

    #[tokio::test]
    #[should_panic(expected = "boom")]
    async fn fail_panics_when_told_to() {
        run(&Fail::default(), r#"{"kind":"panic","error":"boom"}"#, 1).await;
    }
}
