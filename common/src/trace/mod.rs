//! Spans: what is told of a task's way to those who trace it, from the process that handed it in to the one that ran it.
//!
//! | span | when | kind | belongs to |
//! |---|---|---|---|
//! | `submit` | a call that hands tasks in | producer | whatever was under way in the caller |
//! | `claim` | a claim of a worker | consumer | nothing; has links to the tasks that it brought |
//! | `run` | one run of a handler | consumer | the task's creation context, as parent and as link |
//! | `settle` | a batch of settled runs | client | nothing; has links to these runs |
//!
//! They are `tracing` spans of the target [`TARGET`] at level debug, with the attributes of OpenTelemetry's messaging conventions.
//! When nobody listens to that target, one costs what a disabled log line does. There is one a run; the others are one a request to
//! Redis.
//!
//! Between processes the context is [`Meta::traceparent`], in W3C's form. With the feature `otlp` the span `submit` writes itself
//! there; without it, what the producer gave is passed on as it is.
//!
//! [`Meta::traceparent`]: crate::task::Meta::traceparent

#[cfg(feature = "otlp")]
mod otlp;

use tracing::Span;
use tracing::field::Empty;

use crate::name::Fence;
use crate::task::{NewTask, Task};

#[cfg(feature = "otlp")]
pub(crate) use otlp::{end, exporter};

/// The target of all spans.
pub const TARGET: &str = "tidemill::trace";

/// A call that hands these tasks in. With a single one that has a creation context, it belongs to that.
#[must_use]
pub fn submit(tasks: &[NewTask]) -> Span {
    let span = tracing::debug_span!(
        target: TARGET,
        "submit",
        otel.name = Empty,
        otel.kind = "producer",
        messaging.system = "tidemill",
        messaging.operation.name = "submit",
        messaging.operation.r#type = "send",
        messaging.destination.name = Empty,
        messaging.message.id = Empty,
        messaging.batch.message_count = Empty,
        tidemill.agent = Empty,
    );
    if span.is_disabled() {
        return span;
    }
    if let [task] = tasks {
        come_from(&span, task.meta.traceparent.as_deref());
        span.record("messaging.message.id", task.id.as_str());
    } else {
        span.record("messaging.batch.message_count", tasks.len());
    }
    let Some(first) = tasks.first() else { return span };
    if tasks.iter().all(|task| task.queue == first.queue) {
        span.record("otel.name", format!("submit {}", first.queue));
        span.record("messaging.destination.name", first.queue.as_str());
    }
    if tasks.iter().all(|task| task.agent == first.agent) {
        span.record("tidemill.agent", first.agent.as_str());
    }
    span
}

/// Writes a span into the tasks that it hands in, as their creation context. Of several, those that have one keep it.
pub fn stamp(span: &Span, tasks: &mut [NewTask]) {
    let Some(context) = context(span).or_else(|| context(&Span::current())) else { return };
    let alone = tasks.len() == 1;
    for task in tasks {
        if alone || task.meta.traceparent.is_none() {
            task.meta.traceparent = Some(context.clone());
        }
    }
}

/// A claim of a worker.
#[must_use]
pub fn claim() -> Span {
    tracing::debug_span!(
        target: TARGET,
        parent: None,
        "claim",
        otel.kind = "consumer",
        messaging.system = "tidemill",
        messaging.operation.name = "claim",
        messaging.operation.r#type = "receive",
        messaging.batch.message_count = Empty,
    )
}

/// One run of a task.
#[must_use]
pub fn run(task: &Task, attempt: u16, fence: Fence) -> Span {
    let span = tracing::debug_span!(
        target: TARGET,
        parent: None,
        "run",
        otel.name = %format_args!("run {}", task.queue),
        otel.kind = "consumer",
        otel.status_code = Empty,
        messaging.system = "tidemill",
        messaging.operation.name = "run",
        messaging.operation.r#type = "process",
        messaging.destination.name = task.queue.as_str(),
        messaging.message.id = task.id.as_str(),
        tidemill.agent = task.agent.as_str(),
        tidemill.attempt = attempt,
        tidemill.fence = fence.0,
        tidemill.outcome = Empty,
        error.r#type = Empty,
    );
    come_from(&span, task.meta.traceparent.as_deref());
    link(&span, task.meta.traceparent.as_deref());
    span
}

/// What became of a run. One that was put off or cut short has not failed.
pub fn ended(span: &Span, outcome: &'static str) {
    span.record("tidemill.outcome", outcome);
    if matches!(outcome, "retry" | "dead") {
        span.record("otel.status_code", "ERROR");
        span.record("error.type", outcome);
    }
}

/// A batch of so many runs that is settled.
#[must_use]
pub fn settle(runs: usize) -> Span {
    tracing::debug_span!(
        target: TARGET,
        parent: None,
        "settle",
        otel.kind = "client",
        messaging.system = "tidemill",
        messaging.operation.name = "settle",
        messaging.operation.r#type = "settle",
        messaging.batch.message_count = runs,
    )
}

/// How many were in a batch, once it is known.
pub fn count(span: &Span, tasks: usize) {
    span.record("messaging.batch.message_count", tasks);
}

/// A span as the context for others, in W3C's form; none when nobody collects it. Its parent cannot be changed after that.
#[cfg_attr(not(feature = "otlp"), expect(unused_variables, reason = "nobody can collect it"))]
#[must_use]
pub fn context(span: &Span) -> Option<String> {
    #[cfg(feature = "otlp")]
    return otlp::context(span);
    #[cfg(not(feature = "otlp"))]
    None
}

/// Links a span to a context. One that cannot be read is none.
#[cfg_attr(not(feature = "otlp"), expect(unused_variables, reason = "nobody can collect it"))]
pub fn link(span: &Span, traceparent: Option<&str>) {
    #[cfg(feature = "otlp")]
    otlp::link(span, traceparent);
}

#[cfg_attr(not(feature = "otlp"), expect(unused_variables, reason = "nobody can collect it"))]
fn come_from(span: &Span, traceparent: Option<&str>) {
    #[cfg(feature = "otlp")]
    otlp::come_from(span, traceparent);
}
