//! Encryption by XChaCha20-Poly1305, with keys that can be changed.
//!
//! - *It guarantees* that what is decrypted is what was encrypted, for the same task: agent, tenant, id (or idempotency key) and the
//!   codecs before it are authenticated with it. A ciphertext that was moved to another task, from payload to result, or behind other
//!   codecs, is refused.
//! - *It refuses* to hide what it cannot: lengths stay, and so do a task's names, keys, times and error texts.
//! - The nonce is random, 24 bytes: any number of tasks may share a key.
//!
//! Content that may replace that of a waiting task comes to lie under the id of that one, which nobody knows beforehand. It is bound
//! to tenant and idempotency key in place of the id; a byte says so, and is authenticated too.

use bytes::Bytes;
use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305, XNonce};

use crate::codec::{Codec, Encoded, Facts, Part};
use crate::error::Error;
use crate::keys::{Key, KeyRing};

/// The codec's name in tasks; the key's name is its label.
pub const XCHACHA20POLY1305: &str = "xchacha20poly1305";
/// Told apart from all other uses of a key.
const DOMAIN: &[u8] = b"tidemill payload 1";
const NONCE_BYTES: usize = 24;
/// What stands before the nonce: what the content is bound to.
const BY_ID: u8 = 1;
const BY_KEY: u8 = 2;

/// Encrypts with one key of a ring, and decrypts with any.
#[derive(Debug, Clone)]
pub struct XChaCha20 {
    ring: KeyRing,
    active: String,
}

impl XChaCha20 {
    /// With a ring, and the name of the key that encrypts. A name that is not in the ring makes one that only decrypts.
    #[must_use]
    pub fn new(ring: KeyRing, active: impl Into<String>) -> Self {
        Self { ring, active: active.into() }
    }

    fn key(&self, name: &str) -> Result<&Key, Error> {
        let missing = || Error::NoKey { codec: XCHACHA20POLY1305.to_owned(), key: name.to_owned() };
        self.ring.get(name).ok_or_else(missing)
    }
}

fn damaged(what: &'static str) -> Error {
    Error::Damaged { codec: XCHACHA20POLY1305, what }
}

/// What is authenticated with the content: each part behind its length, so that no two tasks have the same.
fn bound_to(bound: u8, facts: &Facts<'_>) -> Result<Vec<u8>, Error> {
    let who = match (bound, facts.key) {
        (BY_ID, _) => facts.id.as_str(),
        (BY_KEY, Some(key)) => key,
        _ => return Err(damaged("is bound to nothing that the task has")),
    };
    let part = match facts.part {
        Part::Payload => b"payload".as_slice(),
        Part::Result => b"result",
    };
    let before = facts.before.iter().map(String::as_bytes);
    let mut out = Vec::with_capacity(128);
    for part in [DOMAIN, part, &[bound], who.as_bytes(), facts.agent.as_bytes(), facts.tenant.as_bytes()]
        .into_iter()
        .chain(before)
    {
        out.extend_from_slice(&(part.len() as u64).to_be_bytes());
        out.extend_from_slice(part);
    }
    Ok(out)
}

impl Codec for XChaCha20 {
    fn name(&self) -> &str {
        XCHACHA20POLY1305
    }

    fn encode(&self, plain: Bytes, facts: &Facts<'_>) -> Result<Encoded, Error> {
        let key = self.key(&self.active)?;
        let bound = if facts.may_move && facts.key.is_some() { BY_KEY } else { BY_ID };
        let aad = bound_to(bound, facts)?;
        let nonce: [u8; NONCE_BYTES] = rand::random();
        let sealed = XChaCha20Poly1305::new(&key.0.into())
            .encrypt(&XNonce::from(nonce), Payload { msg: &plain, aad: &aad })
            .map_err(|_| damaged("cannot be encrypted"))?;
        let mut out = Vec::with_capacity(1 + NONCE_BYTES + sealed.len());
        out.push(bound);
        out.extend_from_slice(&nonce);
        out.extend_from_slice(&sealed);
        Ok(Encoded::Other { bytes: out.into(), label: self.active.clone() })
    }

    fn decode(&self, coded: Bytes, label: &str, facts: &Facts<'_>, bytes_max: usize) -> Result<Bytes, Error> {
        let key = self.key(label)?;
        let (bound, rest) = coded.split_first().ok_or_else(|| damaged("ends early"))?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_BYTES>().ok_or_else(|| damaged("ends early"))?;
        let aad = bound_to(*bound, facts)?;
        if sealed.len() > bytes_max.saturating_add(1024) {
            return Err(Error::TooLarge { what: "the encrypted payload", max: bytes_max });
        }
        XChaCha20Poly1305::new(&key.0.into())
            .decrypt(&XNonce::from(*nonce), Payload { msg: sealed, aad: &aad })
            .map(Bytes::from)
            .map_err(|_| damaged("is not what was encrypted for this task with this key"))
    }
}
