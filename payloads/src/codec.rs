//! What a codec is, and what it is told of the task.

use std::fmt;

use bytes::Bytes;
use tidemill_common::name::TaskId;

use crate::error::Error;

/// Which bytes of a task: what is made of one can never stand for the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// What the handler gets.
    Payload,
    /// What the handler returned.
    Result,
}

/// What a codec is told. Of a result's task only the id is known, the texts are empty then.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// Which bytes they are.
    pub part: Part,
    /// The task.
    pub id: &'a TaskId,
    /// Its agent.
    pub agent: &'a str,
    /// On whose behalf.
    pub tenant: &'a str,
    /// Its idempotency key.
    pub key: Option<&'a str>,
    /// While encoding: the content may come to lie under the id of another task of the same idempotency key, since it is handed in
    /// with a mode that replaces.
    pub may_move: bool,
    /// The codecs that the bytes went through before this one, in their order.
    pub before: &'a [String],
}

/// What a codec made of bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Encoded {
    /// It left them as they are, and is not to be named in the task.
    Same(Bytes),
    /// Other bytes.
    Other {
        /// The bytes.
        bytes: Bytes,
        /// What decoding has to know, such as a key's name: printable ASCII, at most 64 bytes; may be empty. It stands in the task
        /// behind the codec's name and a colon.
        label: String,
    },
}

/// Changes payloads on their way into a task, and back. Called on the threads of handlers and of the producer's runtime: it should
/// take ms, not s, and must not block on anything.
///
/// ```
/// use bytes::Bytes;
/// use tidemill_payloads::{Codec, Encoded, Error, Facts};
///
/// #[derive(Debug)]
/// struct Reversed;
///
/// impl Codec for Reversed {
///     fn name(&self) -> &str {
///         "reversed"
///     }
///     fn encode(&self, plain: Bytes, _: &Facts<'_>) -> Result<Encoded, Error> {
///         Ok(Encoded::Other { bytes: plain.iter().rev().copied().collect(), label: String::new() })
///     }
///     fn decode(&self, coded: Bytes, _: &str, _: &Facts<'_>, _: usize) -> Result<Bytes, Error> {
///         Ok(coded.iter().rev().copied().collect())
///     }
/// }
/// ```
pub trait Codec: fmt::Debug + Send + Sync {
    /// Its name in tasks: 1 to 32 characters of `a–z 0–9 _ -`. It stands for the format: another format is another name.
    fn name(&self) -> &str;

    /// Encodes.
    ///
    /// # Errors
    /// When it cannot: the task is not handed in.
    fn encode(&self, plain: Bytes, facts: &Facts<'_>) -> Result<Encoded, Error>;

    /// Decodes what [`Self::encode`] made under this label, of a task with the same facts (`may_move` is unknown, and false). The
    /// bytes may come from anybody who may write to Redis. The answer has at most `bytes_max` bytes, and making it takes memory of
    /// that order.
    ///
    /// # Errors
    /// When it cannot. [`Error::fault`] says what becomes of the task, so use [`Error::Codec`] with the fault that it is.
    fn decode(&self, coded: Bytes, label: &str, facts: &Facts<'_>, bytes_max: usize) -> Result<Bytes, Error>;
}
