//! Tasks as they are shown: the fields of the JSON output are a promise.

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use tidemill_common::history::{DeadReason, PastError};
use tidemill_common::spend::usd;
use tidemill_common::task::Task;
use tidemill_common::{envelope, store};
use tidemill_producer::{Client, Ended, Error, Estimate, State, Status, TaskId, Waited};

use super::exit::chain;

/// The fields of a status, for the help text.
pub(crate) const STATUS_FIELDS: &str =
    "Fields (JSON; null where there is nothing to say, and no result field without a result):
  id, state         queued, scheduled, parked, running, succeeded, dead, cancelled, expired, or unknown
  agent, queue, priority, tenant   queue to tenant only while the task has not ended, or is dead
  gate              what holds a parked task back
  attempt, losses   runs that counted, runs lost with their worker
  replays           how often it was replayed after it was dead
  worker, progress  of a running task
  due_ms, started_ms, ended_ms     server time; due_ms of a scheduled task, also of one that waits for another try
  reason            why it is dead: attempts, rejected, poison, invalid, never_fits, unknown_agent
  error             why it failed, last time
  errors            the last five, the newest first: at_ms, attempt, text
  result            what the handler returned, as JSON; or result_text, or result_hex; or result_error, why it cannot be read here
  payload           with --payload, of a task that has not ended or is dead: as JSON; or payload_text, payload_hex, payload_error";

/// A result: as JSON if it is that, else as text, else in hexadecimal digits.
/// What a task is expected to use, as far as it says so.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct EstimateView {
    tokens: Option<u64>,
    /// US dollars, as a text, which is exact.
    cost_usd: Option<String>,
}

impl EstimateView {
    pub(crate) fn of(estimate: Estimate) -> Self {
        Self { tokens: estimate.tokens, cost_usd: estimate.micro_usd.map(usd) }
    }

    /// In words; none when nothing is known.
    pub(crate) fn words(&self) -> Option<String> {
        let tokens = self.tokens.map(|n| format!("{n} tokens"));
        let cost = self.cost_usd.as_ref().map(|usd| format!("${usd}"));
        let both: Vec<String> = tokens.into_iter().chain(cost).collect();
        (!both.is_empty()).then(|| both.join(", "))
    }
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct ResultView {
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result_text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) result_error: Option<String>,
}

/// A payload, in the same way.
#[derive(Debug, Default, Serialize)]
pub(crate) struct PayloadView {
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_error: Option<String>,
}

impl PayloadView {
    /// Of these bytes.
    pub(crate) fn of(bytes: &Bytes) -> Self {
        if bytes.is_empty() {
            return Self { payload_text: Some(String::new()), ..Self::default() };
        }
        let ResultView { result, result_text, result_hex, .. } = ResultView::of(bytes);
        Self { payload: result, payload_text: result_text, payload_hex: result_hex, payload_error: None }
    }

    /// Of a task, as it was handed in; of one that cannot be read here, why.
    pub(crate) fn read(task: Result<Option<Task>, Error>) -> Result<Self, Error> {
        match task {
            Ok(None) => Ok(Self::default()),
            Ok(Some(task)) if task.payload.is_empty() => Ok(Self::default()),
            Ok(Some(task)) => Ok(Self::of(&task.payload)),
            Err(error @ (Error::Payload { .. } | Error::Store(store::Error::Reply { .. }))) => {
                Ok(Self { payload_error: Some(chain(&error)), ..Self::default() })
            }
            Err(error) => Err(error),
        }
    }

    /// For people, in one line if it came in one; none when there is nothing to show.
    pub(crate) fn text(&self) -> Option<String> {
        self.shown(str::to_owned)
    }

    /// For people, JSON in lines.
    pub(crate) fn lines(&self) -> Option<String> {
        self.shown(indented)
    }

    fn shown(&self, json: impl FnOnce(&str) -> String) -> Option<String> {
        let error = self.payload_error.as_ref().map(|error| format!("cannot be read: {error}"));
        let json = self.payload.as_ref().map(|value| json(value.get()));
        json.or_else(|| self.payload_text.clone()).or_else(|| self.payload_hex.clone()).or(error)
    }
}

/// JSON in lines; numbers, texts and the order of fields stay as they are written.
fn indented(json: &str) -> String {
    let (mut out, mut depth, mut quoted, mut escaped, mut last) = (String::new(), 0_usize, false, false, ' ');
    for char in json.chars() {
        if quoted {
            out.push(char);
            (quoted, escaped) = (escaped || char != '"', !escaped && char == '\\');
        } else if !char.is_ascii_whitespace() {
            let closes = matches!(char, '}' | ']');
            depth = depth.saturating_sub(usize::from(closes));
            let begins = matches!(last, '{' | '[');
            if (begins && !closes) || last == ',' || (closes && !begins) {
                out.push('\n');
                out.push_str(&"  ".repeat(depth));
            }
            out.push(char);
            if char == ':' {
                out.push(' ');
            }
            depth += usize::from(matches!(char, '{' | '['));
            (quoted, last) = (char == '"', char);
        }
    }
    out
}

/// A status, and why its result cannot be read here, if it cannot: the rest of it is shown all the same.
pub(crate) async fn look(client: &Client, id: &TaskId) -> Result<(Status, Option<String>), Error> {
    let mut status = client.status_encoded(id).await?;
    let unread = client.decode_result(id, &mut status).err().map(|error| chain(&error));
    if unread.is_some() {
        status.data = Bytes::new();
    }
    Ok((status, unread))
}

impl ResultView {
    pub(crate) fn of(bytes: &Bytes) -> Self {
        if bytes.is_empty() {
            return Self::default();
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => match serde_json::from_str(text) {
                Ok(json) => Self { result: Some(json), ..Self::default() },
                Err(_) => Self { result_text: Some(text.to_owned()), ..Self::default() },
            },
            Err(_) => Self { result_hex: Some(bytes.iter().map(|b| format!("{b:02x}")).collect()), ..Self::default() },
        }
    }
}

/// One task's status.
#[derive(Debug, Serialize)]
pub(crate) struct StatusView {
    pub(crate) id: TaskId,
    pub(crate) state: &'static str,
    pub(crate) agent: Option<String>,
    pub(crate) queue: Option<String>,
    pub(crate) priority: Option<&'static str>,
    pub(crate) tenant: Option<String>,
    pub(crate) gate: Option<String>,
    pub(crate) attempt: u64,
    pub(crate) losses: u64,
    pub(crate) replays: u64,
    pub(crate) worker: Option<String>,
    pub(crate) progress: Option<String>,
    pub(crate) due_ms: Option<u64>,
    pub(crate) started_ms: Option<u64>,
    pub(crate) ended_ms: Option<u64>,
    pub(crate) reason: Option<DeadReason>,
    pub(crate) error: Option<String>,
    pub(crate) errors: Vec<PastError>,
    #[serde(flatten)]
    pub(crate) result: ResultView,
    #[serde(flatten)]
    pub(crate) payload: PayloadView,
}

fn said(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// A time in ms; none for 0, which stands for none.
pub(crate) fn time(ms: u64) -> Option<u64> {
    (ms > 0).then_some(ms)
}

/// A state's name; a task of which nothing is known is `unknown`.
pub(crate) fn state_name(state: Option<State>) -> &'static str {
    state.map_or("unknown", |state| state.as_str())
}

impl StatusView {
    pub(crate) fn of(id: &TaskId, status: &Status) -> Self {
        let ended = Ended::of(id, status);
        let task = head(id, status);
        let agent = task.as_ref().map(|t| t.agent.to_string()).or_else(|| said(&status.agent));
        let error = ended.as_ref().map_or(status.error(), |end| end.error.as_str());
        Self {
            id: id.clone(),
            state: state_name(status.state),
            agent,
            queue: task.as_ref().map(|t| t.queue.to_string()),
            priority: task.as_ref().map(|t| t.priority.as_str()),
            tenant: task.as_ref().and_then(|t| said(&t.tenant)),
            gate: status.gate.clone(),
            attempt: status.attempt,
            losses: status.losses,
            replays: status.replays,
            worker: said(&status.worker),
            progress: said(&status.progress),
            due_ms: time(status.due_ms),
            started_ms: time(status.started_ms),
            ended_ms: time(status.ended_ms),
            reason: status.reason,
            error: said(error),
            errors: status.errors.clone(),
            result: ended.map_or_else(ResultView::default, |end| ResultView::of(&end.result)),
            payload: PayloadView::default(),
        }
    }

    /// With why its result cannot be read here.
    pub(crate) fn unread(mut self, unread: Option<String>) -> Self {
        self.result.result_error = unread;
        self
    }
}

/// What a status's header says of its task.
pub(crate) fn head(id: &TaskId, status: &Status) -> Option<Task> {
    if status.header.is_empty() { None } else { envelope::head(id.clone(), &status.header).ok() }
}

/// What waiting for one task came to.
#[derive(Debug, Serialize)]
pub(crate) struct WaitedView {
    pub(crate) id: TaskId,
    pub(crate) state: &'static str,
    pub(crate) timed_out: bool,
    pub(crate) attempt: Option<u64>,
    pub(crate) started_ms: Option<u64>,
    pub(crate) ended_ms: Option<u64>,
    pub(crate) error: Option<String>,
    #[serde(flatten)]
    pub(crate) result: ResultView,
}

impl WaitedView {
    pub(crate) fn of(id: &TaskId, waited: &Waited) -> Self {
        let ended = waited.ended();
        Self {
            id: id.clone(),
            state: state_name(waited.state()),
            timed_out: matches!(waited, Waited::TimedOut { .. }),
            attempt: ended.map(|end| end.attempt),
            started_ms: ended.and_then(|end| time(end.started_ms)),
            ended_ms: ended.and_then(|end| time(end.ended_ms)),
            error: ended.and_then(|end| said(&end.error)),
            result: ended.map_or_else(ResultView::default, |end| ResultView::of(&end.result)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_shown_as_what_it_is() {
        let json = |bytes: &'static [u8]| serde_json::to_string(&ResultView::of(&Bytes::from_static(bytes))).unwrap();
        assert_eq!(json(b"{\"a\": 18446744073709551616}"), r#"{"result":{"a": 18446744073709551616}}"#);
        assert_eq!(json(b"hello"), r#"{"result_text":"hello"}"#);
        assert_eq!(json(b"\xff\x00"), r#"{"result_hex":"ff00"}"#);
        assert_eq!(json(b""), "{}");
    }

    #[test]
    fn payloads_are_shown_as_they_are() {
        let lines = |bytes: &'static [u8]| PayloadView::of(&Bytes::from_static(bytes)).lines().unwrap();
        assert_eq!(lines(b"{\"b\":1}"), "{\n  \"b\": 1\n}");
        assert_eq!(
            lines(b"{\"z\":[1e400,{}, []],\"a\": \"x\\\": {,\"}"),
            "{\n  \"z\": [\n    1e400,\n    {},\n    []\n  ],\n  \"a\": \"x\\\": {,\"\n}"
        );
        assert_eq!(lines(b"hello"), "hello");
        assert_eq!(lines(b"\xff"), "ff");
    }
}
