//! Submit: (none) → queued, scheduled or parked.

use fred::prelude::Value;

use super::reply::Reply;
use super::{Error, Store};
use crate::envelope::{Sealed, seal};
use crate::name::TaskId;
use crate::task::{Mode, NewTask};

/// Most tasks in one call: keeps the script well below 10 ms.
pub const SUBMIT_TASKS_MAX: usize = 256;
/// Most bytes in one call.
const SUBMIT_BYTES_MAX: usize = 4 << 20;

/// What became of one task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Accepted {
    /// It is in.
    New(TaskId),
    /// It was in already, under this id.
    Duplicate(TaskId),
    /// Its idempotency key belongs to another task, with other content.
    Conflict(TaskId),
    /// It has taken the place of the task that waited under its key: [`Mode`].
    Replaced(TaskId),
    /// Its queue and priority hold as many waiting tasks as they may.
    Full {
        /// When there may be room, in ms, by the rate at which tasks were taken of late.
        retry_after_ms: u64,
    },
    /// There are as many queues as there may be (256).
    TooManyQueues,
    /// It could never pass this gate: it asks for more than there will ever be.
    NeverFits {
        /// The gate.
        gate: String,
    },
    /// The server could not read it.
    Invalid,
}

impl Accepted {
    fn read(id: &TaskId, reply: &str) -> Result<Self, Error> {
        let other = || {
            reply[1..]
                .trim()
                .parse()
                .map_err(|_| Error::Reply { op: "submit", what: format!("{reply:?} names no task") })
        };
        Ok(match reply.chars().next() {
            Some('q') => Self::New(id.clone()),
            Some('d') => Self::Duplicate(other()?),
            Some('c') => Self::Conflict(other()?),
            Some('p') => Self::Replaced(other()?),
            Some('f') => Self::Full { retry_after_ms: reply[1..].parse().unwrap_or(1_000) },
            Some('u') => Self::TooManyQueues,
            Some('n') => Self::NeverFits { gate: reply[1..].to_owned() },
            Some('i') => Self::Invalid,
            _ => return Err(Error::Reply { op: "submit", what: format!("{reply:?} was not expected") }),
        })
    }

    /// The id under which the task is known, if it is.
    #[must_use]
    pub fn id(&self) -> Option<&TaskId> {
        match self {
            Self::New(id) | Self::Duplicate(id) | Self::Replaced(id) => Some(id),
            _ => None,
        }
    }
}

/// A task's six arguments.
pub(super) fn push_args(args: &mut Vec<Value>, task: &NewTask, sealed: Sealed) {
    let ms = |d: std::time::Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX).to_string();
    args.push(task.id.as_str().into());
    let plain = task.delay.is_zero() && task.start_within.is_none() && task.mode == Mode::Reject;
    let mode = match task.mode {
        Mode::Reject => "",
        Mode::Replace => ":r",
        Mode::Debounce => ":b",
    };
    args.push(if plain {
        Value::from_static_str("")
    } else {
        format!("{}:{}{mode}", ms(task.delay), ms(task.start_within.unwrap_or_default())).into()
    });
    args.push(sealed.fingerprint.into());
    args.push(Value::Bytes(sealed.header));
    args.push(Value::Bytes(sealed.body));
    args.push(Value::Bytes(sealed.apart));
}

pub(super) fn read_replies<'a>(
    tasks: impl Iterator<Item = &'a NewTask>,
    reply: &mut Reply,
) -> Result<Vec<Accepted>, Error> {
    tasks.map(|task| Accepted::read(&task.id, &reply.text()?)).collect()
}

impl Store {
    /// Hands tasks in; one answer a task, in order. Large lists go in several calls, each of which is atomic.
    ///
    /// `waiting_max` bounds the waiting tasks of one queue and priority; low ones are refused from four fifths of it; 0: no bound. Sending the same tasks again after an error
    /// is safe: those that are in are [`Accepted::Duplicate`].
    ///
    /// # Errors
    /// When Redis does not answer in time or is full. Tasks of earlier calls are in then, and so may be those of the last.
    pub async fn submit(&self, tasks: &[NewTask], waiting_max: u64) -> Result<Vec<Accepted>, Error> {
        let mut answers = Vec::with_capacity(tasks.len());
        let mut from = 0;
        while from < tasks.len() {
            let mut args: Vec<Value> = vec![waiting_max.to_string().into()];
            let (mut bytes, mut to) = (0, from);
            while to < tasks.len() && to - from < SUBMIT_TASKS_MAX && bytes < SUBMIT_BYTES_MAX {
                let sealed = seal(&tasks[to])?;
                bytes += sealed.header.len() + sealed.body.len() + sealed.apart.len();
                push_args(&mut args, &tasks[to], sealed);
                to += 1;
            }
            let called = self.call(|s| &s.submit, args).await;
            let value = called.map_err(|e| if from == 0 { e } else { e.in_part() })?;
            answers.extend(read_replies(tasks[from..to].iter(), &mut Reply::array("submit", value)?)?);
            from = to;
        }
        Ok(answers)
    }
}
