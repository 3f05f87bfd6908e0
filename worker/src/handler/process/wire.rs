//! The lines between worker and child. `docs/process-agents.md` is their description.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use tidemill_common::name::{AgentName, QueueName};
use tidemill_common::spend::{Spend, micro_usd, parse_usd};
use tidemill_common::task::{NewTask, PAYLOAD_BYTES_MAX, Priority};

use super::{Context, Outcome};

/// The version of the protocol.
const PROTOCOL: u32 = 1;
/// How long a throttled task waits when the child does not say.
const THROTTLED_DEFAULT: Duration = Duration::from_secs(1);
/// Longest wait that a child may ask for: a week.
const AFTER_MS_MAX: u64 = 7 * 86_400_000;
/// How much of a strange line is told.
const STRANGE_CHARS_MAX: usize = 120;

/// The first line to a child.
pub(super) fn hello(agent: &AgentName, slots: usize) -> Vec<u8> {
    line(&serde_json::json!({ "hello": { "protocol": PROTOCOL, "agent": agent, "slots": slots } }))
}

/// The line that calls a task off.
pub(super) fn cancel(request: u64) -> Vec<u8> {
    line(&serde_json::json!({ "cancel": request }))
}

/// The line that hands a task over.
pub(super) fn task(request: u64, context: &Context) -> Vec<u8> {
    #[derive(Serialize)]
    struct Line<'a> {
        task: Fields<'a>,
    }
    #[derive(Serialize)]
    struct Fields<'a> {
        request: u64,
        id: &'a str,
        agent: &'a AgentName,
        queue: &'a QueueName,
        priority: Priority,
        tenant: &'a str,
        attempt: u16,
        losses: u16,
        fence: u64,
        key: &'a str,
        deadline_ms: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        traceparent: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        payload: Option<&'a RawValue>,
        #[serde(skip_serializing_if = "Option::is_none")]
        payload_base64: Option<String>,
    }
    let (task, bytes) = (context.task(), context.payload());
    let payload: Option<&RawValue> = serde_json::from_slice(bytes).ok();
    line(&Line {
        task: Fields {
            request,
            id: context.id().as_str(),
            agent: &task.agent,
            queue: &task.queue,
            priority: task.priority,
            tenant: &task.tenant,
            attempt: context.attempt(),
            losses: context.losses(),
            fence: context.fence().0,
            key: context.idempotency_key(),
            deadline_ms: u64::try_from(context.remaining().as_millis()).unwrap_or(u64::MAX),
            traceparent: context.traceparent(),
            payload,
            payload_base64: payload.is_none().then(|| BASE64.encode(bytes)),
        },
    })
}

/// One line, ended. A payload's JSON may have line breaks between its tokens (inside of texts they are escaped): there a space
/// means the same.
fn line(of: &impl Serialize) -> Vec<u8> {
    // None of the types has a key that is no text, or fails by itself.
    let mut bytes = serde_json::to_vec(of).unwrap_or_default();
    for byte in &mut bytes {
        if matches!(*byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    bytes.push(b'\n');
    bytes
}

/// What a child says.
#[derive(Debug)]
pub(super) enum Said {
    /// It can take tasks.
    Ready,
    /// Something about a task: the request's number, if it gave one.
    About(Option<u64>, Word),
}

/// What a child says about a task.
#[derive(Debug)]
pub(super) enum Word {
    /// How it ended.
    End(Outcome),
    /// How far it is.
    Progress(String),
    /// A part of its output, as it comes.
    Output(String),
    /// What it has used since it last said so.
    Spend(Spend),
    /// A follow-up, or why it cannot be one.
    Submit(Result<Box<NewTask>, String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    request: Option<u64>,
    #[serde(default, deserialize_with = "present")]
    ready: Option<IgnoredAny>,
    #[serde(default, deserialize_with = "present")]
    done: Option<Box<RawValue>>,
    done_base64: Option<String>,
    retry: Option<Failure>,
    throttled: Option<Failure>,
    dead: Option<Failure>,
    progress: Option<String>,
    spend: Option<Used>,
    output: Option<String>,
    submit: Option<Submit>,
}

/// `null` is a value too: `{"done":null}` is an answer.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Failure {
    error: String,
    after_ms: Option<u64>,
}

impl Failure {
    fn after(&self) -> Option<Duration> {
        self.after_ms.map(|ms| Duration::from_millis(ms.min(AFTER_MS_MAX)))
    }
}

/// What was used: tokens, and US dollars as a number or, to be exact, a text.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Used {
    #[serde(default)]
    tokens: u64,
    #[serde(default)]
    cost_usd: Option<serde_json::Value>,
}

impl Used {
    fn read(self) -> Result<Spend, String> {
        let micro_usd = match self.cost_usd {
            None => 0,
            Some(serde_json::Value::String(text)) => parse_usd(&text)?,
            Some(serde_json::Value::Number(n)) => micro_usd(n.as_f64().unwrap_or(-1.0))?,
            Some(other) => return Err(format!("cost_usd: {other} is no amount of US dollars")),
        };
        let spend = Spend { tokens: self.tokens, micro_usd };
        if spend.is_countable() { Ok(spend) } else { Err("spend: that is more than can be counted".to_owned()) }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Submit {
    agent: String,
    #[serde(default, deserialize_with = "present")]
    payload: Option<Box<RawValue>>,
    payload_base64: Option<String>,
    id: Option<String>,
    queue: Option<String>,
    priority: Option<Priority>,
    tenant: Option<String>,
    delay_ms: Option<u64>,
    order_key: Option<String>,
    key: Option<String>,
    max_attempts: Option<u16>,
    timeout_ms: Option<u64>,
}

/// Reads a line of a child.
///
/// # Errors
/// What is wrong with it: it is not of the protocol.
pub(super) fn read(bytes: &[u8]) -> Result<Said, String> {
    let strange = |why: &str| {
        let start: String = String::from_utf8_lossy(bytes).chars().take(STRANGE_CHARS_MAX).collect();
        format!(
            "the child wrote a line that is not of the protocol ({why}): {start:?}; what is not for the worker belongs on standard error"
        )
    };
    let line: Line = serde_json::from_slice(bytes).map_err(|e| strange(&e.to_string()))?;
    let request = line.request;
    let mut words = Vec::new();
    words.extend(line.done.map(|json| Word::End(done(Bytes::from(json.get().to_owned())))));
    words.extend(line.done_base64.map(|text| {
        Word::End(match BASE64.decode(text) {
            Ok(bytes) => done(bytes.into()),
            Err(error) => Outcome::dead(format!("the child's done_base64 is not base64: {error}")),
        })
    }));
    words.extend(line.retry.map(|f| Word::End(Outcome::Retry { after: f.after(), error: f.error })));
    words.extend(line.throttled.map(|f| {
        let until = f.after().unwrap_or(THROTTLED_DEFAULT);
        Word::End(Outcome::Throttled { error: f.error, until })
    }));
    words.extend(line.dead.map(|f| Word::End(Outcome::Dead { reason: f.error })));
    words.extend(line.progress.map(Word::Progress));
    if let Some(used) = line.spend {
        words.push(Word::Spend(used.read().map_err(|e| strange(&e))?));
    }
    words.extend(line.output.map(Word::Output));
    words.extend(line.submit.map(|submit| Word::Submit(submit.into_task().map(Box::new))));
    match (line.ready.is_some(), words.pop(), words.is_empty()) {
        (true, None, _) => Ok(Said::Ready),
        (false, Some(word), true) => Ok(Said::About(request, word)),
        _ => Err(strange("it must say exactly one thing")),
    }
}

/// What cannot be kept will not be smaller the next time.
fn done(result: Bytes) -> Outcome {
    match result.len() {
        bytes if bytes > PAYLOAD_BYTES_MAX => {
            Outcome::dead(format!("the result has {bytes} bytes; at most {PAYLOAD_BYTES_MAX} are allowed"))
        }
        _ => Outcome::Done(result),
    }
}

impl Submit {
    fn into_task(self) -> Result<NewTask, String> {
        let payload: Bytes = match (self.payload, self.payload_base64) {
            (Some(json), None) => json.get().to_owned().into(),
            (None, Some(text)) => BASE64.decode(text).map_err(|e| format!("payload_base64 is not base64: {e}"))?.into(),
            (None, None) => Bytes::new(),
            (Some(_), Some(_)) => return Err("payload and payload_base64 are both given".into()),
        };
        let say = |e: tidemill_common::name::Error| e.to_string();
        let mut task = NewTask::new(self.agent.parse().map_err(say)?, payload);
        if let Some(id) = self.id {
            task.id = id.parse().map_err(say)?;
        }
        if let Some(queue) = self.queue {
            task.queue = queue.parse().map_err(say)?;
        }
        task.priority = self.priority.unwrap_or_default();
        task.tenant = self.tenant.unwrap_or_default();
        task.delay = Duration::from_millis(self.delay_ms.unwrap_or(0));
        task.order_key = self.order_key;
        task.key = self.key;
        task.max_attempts = self.max_attempts.unwrap_or(task.max_attempts);
        task.meta.timeout_ms = self.timeout_ms.unwrap_or(0);
        Ok(task)
    }
}
