//! The wire form of a task: a fixed binary header that scripts read, then msgpack and the payload, which they never do.
//!
//! `docs/wire.md` is the description for other languages, `common/lua/lib/header.lua` the reader in scripts. The first 31 bytes
//! (version, generation, sequence, due, deadline, header length) are written by the submit script; a producer sends the header and
//! the body.
//!
//! Nothing here trusts its input: an envelope put in by hand is refused with a reason, in bounded time and stack.

use bytes::{BufMut, Bytes, BytesMut};

use crate::name::{AgentName, QueueName, TaskId};
use crate::spend::Estimate;
use crate::task::{Meta, NewTask, Priority, Task};

/// The version that this build writes and reads.
pub const VERSION: u8 = 1;
/// Bytes written by the submit script.
pub const SERVER_BYTES: usize = 31;
/// A body above this many bytes lies under a key of its own, so that what a claim returns is bounded.
pub const INLINE_BYTES_MAX: usize = 16 * 1024;
/// Most bytes of the msgpack part.
pub const META_BYTES_MAX: usize = 4 * 1024;

const FLAG_ORDER: u8 = 1;
const FLAG_KEY: u8 = 2;
const FLAG_APART: u8 = 4;
const FLAG_HOLD: u8 = 8;
const FLAG_AGE: u8 = 16;
const FLAG_WEIGHT: u8 = 32;
const FLAG_ESTIMATE: u8 = 64;
/// An estimate that is not known.
const UNKNOWN: f64 = -1.0;

/// Why an envelope could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It ends before it should.
    #[error("the envelope ends early, at {part}")]
    Short {
        /// The part that is missing.
        part: &'static str,
    },
    /// Written by a newer build.
    #[error("the envelope has version {found}; this build reads {VERSION}")]
    Version {
        /// The version found.
        found: u8,
    },
    /// A part has a value that it cannot have.
    #[error("the envelope's {part} is not one")]
    Value {
        /// The part.
        part: &'static str,
    },
    /// The msgpack part cannot be decoded.
    #[error("the envelope's meta part cannot be decoded")]
    Meta(#[source] rmp_serde::decode::Error),
    /// The msgpack part cannot be encoded, or is too large.
    #[error("the meta part has {bytes} bytes; at most {META_BYTES_MAX} are allowed")]
    MetaSize {
        /// Its size in bytes.
        bytes: usize,
    },
}

/// What a producer sends for one task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// The header: what scripts read. Tasks of one kind have the same.
    pub header: Bytes,
    /// The body: msgpack and payload.
    pub body: Bytes,
    /// The payload, when it is too large to ride along.
    pub apart: Bytes,
    /// For a keyed task: a fingerprint of agent, queue and payload, by which a repeat is told from a conflict.
    pub fingerprint: String,
}

/// Writes a task that has been checked.
///
/// # Errors
/// When its meta part is too large.
pub fn seal(task: &NewTask) -> Result<Sealed, Error> {
    let meta = rmp_serde::to_vec_named(&task.meta).map_err(|_| Error::MetaSize { bytes: 0 })?;
    if meta.len() > META_BYTES_MAX {
        return Err(Error::MetaSize { bytes: meta.len() });
    }
    let apart = task.payload.len() > INLINE_BYTES_MAX;
    let mut flags = 0;
    for (on, flag) in [
        (task.order_key.is_some(), FLAG_ORDER),
        (task.key.is_some(), FLAG_KEY),
        (apart, FLAG_APART),
        (task.hold_on_dead, FLAG_HOLD),
        (task.max_age.is_some(), FLAG_AGE),
        (task.weight != 1, FLAG_WEIGHT),
        (!task.estimate.is_unknown(), FLAG_ESTIMATE),
    ] {
        flags |= if on { flag } else { 0 };
    }
    let mut out = BytesMut::with_capacity(64);
    out.put_u8(flags);
    out.put_u8(task.priority.value());
    out.put_u16(task.max_attempts);
    out.put_u32(task.cost);
    out.put_u8(task.depth);
    let none = String::new();
    for text in [
        task.queue.as_str(),
        task.agent.as_str(),
        &task.tenant,
        task.order_key.as_ref().unwrap_or(&none),
        task.key.as_ref().unwrap_or(&none),
    ] {
        out.put_u8(u8::try_from(text.len()).map_err(|_| Error::Value { part: "texts" })?);
        out.put_slice(text.as_bytes());
    }
    if task.weight != 1 {
        out.put_u16(task.weight);
    }
    if let Some(age) = task.max_age {
        out.put_f64(whole(age));
    }
    if !task.estimate.is_unknown() {
        let Estimate { tokens, micro_usd } = task.estimate;
        [tokens, micro_usd].into_iter().for_each(|n| out.put_f64(n.map_or(UNKNOWN, float)));
    }
    let mut body = BytesMut::with_capacity(2 + meta.len() + if apart { 0 } else { task.payload.len() });
    body.put_u16(u16::try_from(meta.len()).map_err(|_| Error::MetaSize { bytes: meta.len() })?);
    body.put_slice(&meta);
    if !apart {
        body.put_slice(&task.payload);
    }
    Ok(Sealed {
        header: out.freeze(),
        body: body.freeze(),
        apart: if apart { task.payload.clone() } else { Bytes::new() },
        fingerprint: match (&task.key, &task.fingerprint) {
            (None, _) => String::new(),
            (Some(_), Some(given)) => given.clone(),
            (Some(_), None) => fingerprint(task),
        },
    })
}

/// ms as scripts keep them.
fn whole(time: std::time::Duration) -> f64 {
    float(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

#[expect(clippy::cast_precision_loss, reason = "at most 2^52")]
fn float(n: u64) -> f64 {
    n.min(1 << 52) as f64
}

/// What tells tasks of one key apart: FNV-1a, 128 bits, of queue, agent and payload. It tells a repeated submit from a reused key. Not a defence against somebody who seeks a collision; a key is
/// the producer's own.
#[must_use]
pub fn fingerprint(task: &NewTask) -> String {
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013B;
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for part in [task.queue.as_str().as_bytes(), task.agent.as_str().as_bytes(), &task.payload] {
        for byte in (part.len() as u64).to_be_bytes().iter().chain(part) {
            hash = (hash ^ u128::from(*byte)).wrapping_mul(PRIME);
        }
    }
    format!("{hash:032x}")
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize, part: &'static str) -> Result<&'a [u8], Error> {
        let end = self.at.checked_add(n).filter(|end| *end <= self.bytes.len()).ok_or(Error::Short { part })?;
        let slice = &self.bytes[self.at..end];
        self.at = end;
        Ok(slice)
    }
    fn array<const N: usize>(&mut self, part: &'static str) -> Result<[u8; N], Error> {
        self.take(N, part)?.try_into().map_err(|_| Error::Short { part })
    }
    fn text(&mut self, part: &'static str) -> Result<&'a str, Error> {
        let [len] = self.array(part)?;
        std::str::from_utf8(self.take(usize::from(len), part)?).map_err(|_| Error::Value { part })
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked: a whole number below 2^53")]
    fn number(&mut self, part: &'static str) -> Result<u64, Error> {
        let n = f64::from_be_bytes(self.array(part)?);
        if (0.0..9_007_199_254_740_992.0).contains(&n) { Ok(n as u64) } else { Err(Error::Value { part }) }
    }
    fn estimate(&mut self, part: &'static str) -> Result<Option<u64>, Error> {
        if self.bytes.get(self.at..).is_some_and(|rest| rest.starts_with(&UNKNOWN.to_be_bytes())) {
            self.at += size_of::<f64>();
            return Ok(None);
        }
        self.number(part).map(Some)
    }
}

/// Reads an envelope as it is stored. The payload shares the envelope's memory.
///
/// # Errors
/// When it is not an envelope of this version.
pub fn open(id: TaskId, envelope: &Bytes) -> Result<Task, Error> {
    let mut r = Reader { bytes: envelope, at: 0 };
    let mut task = read_head(id, &mut r)?;
    let meta_bytes = usize::from(u16::from_be_bytes(r.array("meta")?));
    if meta_bytes > META_BYTES_MAX {
        return Err(Error::Value { part: "meta length" });
    }
    let mut decoder = rmp_serde::Deserializer::from_read_ref(r.take(meta_bytes, "meta")?);
    decoder.set_max_depth(16);
    task.meta = <Meta as serde::Deserialize>::deserialize(&mut decoder).map_err(Error::Meta)?;
    task.payload = envelope.slice(r.at..);
    Ok(task)
}

/// Reads the part that scripts read, for lists: the task has no meta part and no payload then.
///
/// # Errors
/// When it is not the head of an envelope of this version.
pub fn head(id: TaskId, envelope: &[u8]) -> Result<Task, Error> {
    read_head(id, &mut Reader { bytes: envelope, at: 0 })
}

fn read_head(id: TaskId, r: &mut Reader<'_>) -> Result<Task, Error> {
    let [version] = r.array("version")?;
    if version != VERSION {
        return Err(Error::Version { found: version });
    }
    r.take(4, "generation")?;
    let (seq_us, due_ms) = (r.number("sequence")?, r.number("due time")?);
    r.number("deadline")?;
    let header_bytes = usize::from(u16::from_be_bytes(r.array("header length")?));
    let [flags, priority] = r.array("flags")?;
    let max_attempts = u16::from_be_bytes(r.array("attempts")?);
    let cost = u32::from_be_bytes(r.array("cost")?);
    let [depth] = r.array("depth")?;
    let queue: QueueName = r.text("queue")?.parse().map_err(|_| Error::Value { part: "queue" })?;
    let agent: AgentName = r.text("agent")?.parse().map_err(|_| Error::Value { part: "agent" })?;
    let tenant = r.text("tenant")?.to_owned();
    let order_key = Some(r.text("order key")?.to_owned()).filter(|t| !t.is_empty());
    let key = Some(r.text("idempotency key")?.to_owned()).filter(|t| !t.is_empty());
    let weight = if flags & FLAG_WEIGHT == 0 { 1 } else { u16::from_be_bytes(r.array("weight")?) };
    let age_ms = if flags & FLAG_AGE == 0 { 0 } else { r.number("most age")? };
    let mut estimate = Estimate::default();
    if flags & FLAG_ESTIMATE != 0 {
        estimate = Estimate { tokens: r.estimate("tokens")?, micro_usd: r.estimate("money")? };
    }
    if r.at != SERVER_BYTES + header_bytes {
        return Err(Error::Value { part: "header length" });
    }
    Ok(Task {
        id,
        queue,
        agent,
        tenant,
        priority: Priority::from_value(priority).ok_or(Error::Value { part: "priority" })?,
        seq_us,
        due_ms,
        too_old_ms: if age_ms == 0 { 0 } else { seq_us / 1000 + age_ms },
        max_attempts,
        cost,
        weight,
        estimate,
        order_key,
        hold_on_dead: flags & FLAG_HOLD != 0,
        key,
        depth,
        meta: Meta::default(),
        payload: Bytes::new(),
        payload_apart: flags & FLAG_APART != 0,
    })
}

#[cfg(test)]
#[path = "envelope_tests.rs"]
mod tests;
