//! What an operator does to waiting and dead tasks, many at once.

use std::time::Duration;

use fred::prelude::Value;

use super::{Error, Store};
use crate::envelope::Sealed;
use crate::name::{QueueName, TaskId};
use crate::task::Priority;

/// Most tasks in one call: keeps the scripts below 10 ms.
pub const ALTER_TASKS_MAX: usize = 128;

/// A change of a waiting task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Another priority.
    Priority(Priority),
    /// Another queue.
    Queue(QueueName),
    /// It is due now.
    Now,
}

/// What came of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Altered {
    /// It is changed.
    Done,
    /// It was so already.
    Same,
    /// It runs, and is left alone.
    Running,
    /// It has ended.
    Ended,
    /// Nothing is known of it.
    Unknown,
    /// There are as many queues as there may be.
    TooManyQueues,
    /// It cannot be read.
    Unreadable,
}

/// What is to become of a dead task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeadVerb {
    /// It waits again: attempts and losses begin anew, its errors are kept, and so is its idempotency key. The head of an order key
    /// that it holds stays the head; any other joins the end of its order.
    Replay {
        /// Not before so long from now.
        delay: Duration,
        /// Another payload: the envelope's parts, made by [`seal`](crate::envelope::seal) of the same task with that payload.
        patch: Option<Sealed>,
    },
    /// It is forgotten, and the next of its order key goes on.
    Purge,
    /// It stays dead, and the next of its order key goes on.
    Skip,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeadDone {
    /// It waits again.
    Replayed,
    /// It is forgotten.
    Purged,
    /// It holds nothing any more.
    Skipped,
    /// It is not dead: it never was, or somebody was quicker.
    NotDead,
    /// It cannot be read; it can be purged.
    Unreadable,
    /// The patch is of another queue, agent, tenant or key.
    Unfit,
}

impl Altered {
    fn read(letter: u8) -> Result<Self, Error> {
        Ok(match letter {
            b'o' => Self::Done,
            b's' => Self::Same,
            b'r' => Self::Running,
            b'e' => Self::Ended,
            b'u' => Self::Unknown,
            b't' => Self::TooManyQueues,
            b'!' => Self::Unreadable,
            other => return Err(unexpected("alter", other)),
        })
    }
}

impl DeadDone {
    fn read(letter: u8) -> Result<Self, Error> {
        Ok(match letter {
            b'r' => Self::Replayed,
            b'd' => Self::Purged,
            b's' => Self::Skipped,
            b'n' => Self::NotDead,
            b'!' => Self::Unreadable,
            b'i' => Self::Unfit,
            other => return Err(unexpected("dead", other)),
        })
    }
}

fn unexpected(op: &'static str, letter: u8) -> Error {
    Error::Reply { op, what: format!("{:?} was not expected", char::from(letter)) }
}

impl Store {
    /// Changes waiting tasks; one answer each, in order. Those that run or have ended are left alone.
    ///
    /// # Errors
    /// When Redis does not answer. Sending the same again is safe.
    pub async fn alter(&self, tasks: &[(TaskId, Change)]) -> Result<Vec<Altered>, Error> {
        let mut answers = Vec::with_capacity(tasks.len());
        for batch in tasks.chunks(ALTER_TASKS_MAX) {
            let mut args: Vec<Value> = Vec::with_capacity(batch.len() * 3);
            for (id, change) in batch {
                let (verb, value) = match change {
                    Change::Priority(priority) => ("P", priority.value().to_string()),
                    Change::Queue(queue) => ("Q", queue.to_string()),
                    Change::Now => ("N", String::new()),
                };
                args.extend([id.as_str().into(), Value::from_static_str(verb), value.into()]);
            }
            let letters = self.call(|s| &s.alter, args).await?.into_bytes().unwrap_or_default();
            answers.extend(letters.iter().map(|letter| Altered::read(*letter)).collect::<Result<Vec<_>, _>>()?);
        }
        Ok(answers)
    }

    /// Replays, purges or skips dead tasks; one answer each, in order. Each is taken by one caller: two that replay the same tasks
    /// at once replay each once.
    ///
    /// # Errors
    /// When Redis does not answer: a part may be done, and is [`DeadDone::NotDead`] when the same is sent again.
    pub async fn dead(&self, tasks: &[(TaskId, DeadVerb)]) -> Result<Vec<DeadDone>, Error> {
        let mut answers = Vec::with_capacity(tasks.len());
        for batch in tasks.chunks(ALTER_TASKS_MAX) {
            let mut args: Vec<Value> = Vec::with_capacity(batch.len() * 6);
            for (id, verb) in batch {
                args.push(id.as_str().into());
                push_verb(&mut args, verb);
            }
            let letters = self.call(|s| &s.dead, args).await?.into_bytes().unwrap_or_default();
            answers.extend(letters.iter().map(|letter| DeadDone::read(*letter)).collect::<Result<Vec<_>, _>>()?);
        }
        Ok(answers)
    }
}

fn push_verb(args: &mut Vec<Value>, verb: &DeadVerb) {
    let nothing = || Value::from_static_str("");
    match verb {
        DeadVerb::Replay { delay, patch } => {
            args.extend([Value::from_static_str("R"), delay.as_millis().to_string().into()]);
            match patch.clone() {
                Some(p) => args.extend([Value::Bytes(p.header), Value::Bytes(p.body), Value::Bytes(p.apart)]),
                None => args.extend([nothing(), nothing(), nothing()]),
            }
        }
        DeadVerb::Purge => args.extend([Value::from_static_str("D"), nothing(), nothing(), nothing(), nothing()]),
        DeadVerb::Skip => args.extend([Value::from_static_str("S"), nothing(), nothing(), nothing(), nothing()]),
    }
}
