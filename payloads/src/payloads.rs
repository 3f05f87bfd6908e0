//! The chain: what a payload goes through on its way into a task, and back.

use std::sync::Arc;

use bytes::Bytes;
use hmac::{Hmac, Mac as _};
use sha2::Sha256;
use tidemill_common::name::TaskId;
use tidemill_common::task::{NewTask, PAYLOAD_BYTES_MAX, Task};
use tidemill_common::{envelope, frame};

use crate::codec::{Codec, Encoded, Facts, Part};
use crate::compress::Zstd;
use crate::encrypt::XChaCha20;
use crate::error::{Error, Fault};
use crate::keys::{KEY_BYTES, Key, KeyRing};
use crate::store::{Store, hex};

/// How much longer than a payload what is stored of it may be: nonces, tags, frames.
const SLACK: usize = 4096;
/// Largest result of a worker.
const RESULT_BYTES_MAX: usize = 1 << 20;
/// Bytes of a fingerprint: as many as that of a plain task has.
const FINGERPRINT_BYTES: usize = 16;

/// What is done to payloads and results. The default does nothing to them, and decodes what needs no key: compressed ones.
///
/// ```
/// use std::sync::Arc;
/// use tidemill_payloads::{KeyRing, Payloads, XChaCha20, Zstd};
///
/// let ring = KeyRing::new().with("2026-11", [7; 32])?;
/// let payloads = Payloads::new()
///     .encode(Arc::new(Zstd::default()))
///     .encode(Arc::new(XChaCha20::new(ring, "2026-11")))
///     .fingerprint([9; 32])
///     .results(true);
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone)]
pub struct Payloads {
    /// What encodes, in this order.
    chain: Vec<Arc<dyn Codec>>,
    /// What decodes.
    known: Vec<Arc<dyn Codec>>,
    stores: Vec<Store>,
    /// The number of the store that takes payloads above so many bytes.
    put: Option<(usize, usize)>,
    fingerprint: Option<Key>,
    results: bool,
    bytes_max: usize,
}

impl Default for Payloads {
    fn default() -> Self {
        Self {
            chain: Vec::new(),
            // The cipher without keys is here to say which one is missing.
            known: vec![Arc::new(Zstd::default()), Arc::new(XChaCha20::new(KeyRing::new(), ""))],
            stores: Vec::new(),
            put: None,
            fingerprint: None,
            results: false,
            bytes_max: PAYLOAD_BYTES_MAX,
        }
    }
}

impl Payloads {
    /// The default.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a codec to the chain: it gets what the codecs before it made. Put compression before encryption. It decodes as well.
    #[must_use]
    pub fn encode(mut self, codec: Arc<dyn Codec>) -> Self {
        self.chain.push(Arc::clone(&codec));
        self.decode(codec)
    }

    /// Adds a codec that only decodes. One of the same name is replaced.
    #[must_use]
    pub fn decode(mut self, codec: Arc<dyn Codec>) -> Self {
        self.known.retain(|other| other.name() != codec.name());
        self.known.push(codec);
        self
    }

    /// Adds a store to fetch from.
    #[must_use]
    pub fn store(mut self, store: Store) -> Self {
        self.stores.retain(|other| other.name() != store.name());
        self.stores.push(store);
        self
    }

    /// Puts what is larger than so many bytes, after the codecs, into this store.
    #[must_use]
    pub fn put_above(mut self, bytes: usize, store: Store) -> Self {
        self = self.store(store);
        self.put = Some((self.stores.len() - 1, bytes));
        self
    }

    /// Makes fingerprints of keyed tasks with this key, so that they tell nothing of the payload. It has to stay the same when other
    /// keys change, or repeats are taken for conflicts.
    #[must_use]
    pub fn fingerprint(mut self, key: [u8; KEY_BYTES]) -> Self {
        self.fingerprint = Some(Key(key));
        self
    }

    /// Whether results go through the codecs as well.
    #[must_use]
    pub fn results(mut self, results: bool) -> Self {
        self.results = results;
        self
    }

    /// Largest payload, in bytes, before it is encoded and after it is decoded.
    #[must_use]
    pub fn bytes_max(mut self, bytes: usize) -> Self {
        self.bytes_max = bytes;
        self
    }

    /// Whether a task is handed in as it is.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.chain.is_empty() && self.put.is_none() && self.fingerprint.is_none()
    }

    /// Makes of a task what is handed in: its payload encoded, put into a store if it is large, and its fingerprint that of the plain
    /// payload. Do it once a task, not once a try: each time gives other bytes.
    ///
    /// Cancel safe: an object may stay in the store to which no task refers.
    ///
    /// # Errors
    /// What a codec or the store says; [`Error::TooLarge`] before or after the codecs.
    pub async fn encode_task(&self, mut task: NewTask) -> Result<NewTask, Error> {
        if self.is_plain() {
            return Ok(task);
        }
        if task.payload.len() > self.bytes_max {
            return Err(Error::TooLarge { what: "the payload", max: self.bytes_max });
        }
        task.fingerprint = task.key.is_some().then(|| self.fingerprint_of(&task));
        let facts = Facts {
            part: Part::Payload,
            id: &task.id,
            agent: task.agent.as_str(),
            tenant: &task.tenant,
            key: task.key.as_deref(),
            may_move: task.mode != tidemill_common::task::Mode::Reject,
            before: &[],
        };
        let (codec, payload) = self.forth(task.payload.clone(), facts)?;
        if payload.len() > self.bytes_max.saturating_add(SLACK) {
            return Err(Error::TooLarge { what: "the encoded payload", max: self.bytes_max.saturating_add(SLACK) });
        }
        (task.meta.codec, task.meta.at, task.payload) = (codec, None, payload);
        if let Some((store, _)) = self.put.filter(|(_, above)| task.payload.len() > *above) {
            task.meta.at = Some(self.stores[store].put(std::mem::take(&mut task.payload)).await?);
        }
        Ok(task)
    }

    /// Whether [`Self::decode_task`] has anything to do.
    #[must_use]
    pub fn is_encoded(task: &Task) -> bool {
        task.meta.at.is_some() || !task.meta.codec.is_empty()
    }

    /// Makes of a task what was handed in. A payload that lies apart has to be there already. On an error the task is as it was.
    ///
    /// Cancel safe.
    ///
    /// # Errors
    /// Everything that can be wrong with a task that somebody else has made: [`Error::fault`] says whose fault it is.
    pub async fn decode_task(&self, task: &mut Task) -> Result<(), Error> {
        let coded = match &task.meta.at {
            None => task.payload.clone(),
            Some(at) => {
                let store = self.stores.iter().find(|store| store.name() == at.store);
                let store = store.ok_or_else(|| Error::NoStore { name: at.store.clone() })?;
                store.get(at, self.bytes_max.saturating_add(SLACK)).await?
            }
        };
        let facts = Facts {
            part: Part::Payload,
            id: &task.id,
            agent: task.agent.as_str(),
            tenant: &task.tenant,
            key: task.key.as_deref(),
            may_move: false,
            before: &[],
        };
        let payload = self.back(coded, &task.meta.codec, facts, self.bytes_max)?;
        (task.meta.codec, task.meta.at, task.payload) = (Vec::new(), None, payload);
        Ok(())
    }

    /// Makes of a result what is kept: encoded and framed if results are, else as it is. An empty one is no result and stays so.
    ///
    /// # Errors
    /// What a codec says.
    pub fn encode_result(&self, id: &TaskId, result: Bytes) -> Result<Bytes, Error> {
        if result.is_empty() || !self.results {
            return Ok(frame::wrap(&[], result));
        }
        let (codecs, result) = self.forth(result, of_result(id))?;
        Ok(frame::wrap(&codecs, result))
    }

    /// Makes of what is kept the result.
    ///
    /// # Errors
    /// When it cannot: [`Error::NoKey`] says which key is missing.
    pub fn decode_result(&self, id: &TaskId, kept: &Bytes) -> Result<Bytes, Error> {
        let (codecs, coded) = frame::unwrap(kept)?;
        self.back(coded, &codecs, of_result(id), self.bytes_max.max(RESULT_BYTES_MAX))
    }

    fn forth(&self, plain: Bytes, facts: Facts<'_>) -> Result<(Vec<String>, Bytes), Error> {
        let (mut names, mut bytes) = (Vec::new(), plain);
        for codec in &self.chain {
            bytes = match codec.encode(bytes, &Facts { before: &names, ..facts })? {
                Encoded::Same(bytes) => bytes,
                Encoded::Other { bytes, label } => {
                    names.push(named(codec.name(), &label)?);
                    bytes
                }
            };
        }
        if names.len() > frame::CODECS_MAX { Err(Error::TooManyCodecs) } else { Ok((names, bytes)) }
    }

    fn back(&self, coded: Bytes, names: &[String], facts: Facts<'_>, bytes_max: usize) -> Result<Bytes, Error> {
        if names.len() > frame::CODECS_MAX {
            return Err(Error::TooManyCodecs);
        }
        let mut bytes = coded;
        for (at, named) in names.iter().enumerate().rev() {
            let (name, label) = named.split_once(':').unwrap_or((named, ""));
            let codec = self.known.iter().find(|codec| codec.name() == name);
            let codec = codec.ok_or_else(|| Error::NoCodec { name: name.to_owned() })?;
            // Between two codecs a little more may lie than after the last.
            let most = if at == 0 { bytes_max } else { bytes_max.saturating_add(SLACK) };
            bytes = codec.decode(bytes, label, &Facts { before: &names[..at], ..facts }, most)?;
        }
        if bytes.len() > bytes_max { Err(Error::TooLarge { what: "the payload", max: bytes_max }) } else { Ok(bytes) }
    }

    /// As that of a plain task, but keyed: who reads Redis cannot try payloads until one fits.
    fn fingerprint_of(&self, task: &NewTask) -> String {
        let Some(Key(key)) = &self.fingerprint else { return envelope::fingerprint(task) };
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return envelope::fingerprint(task) };
        for part in
            [b"tidemill fingerprint 1", task.queue.as_str().as_bytes(), task.agent.as_str().as_bytes(), &task.payload]
        {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        hex(&mac.finalize().into_bytes()[..FINGERPRINT_BYTES])
    }
}

/// All that is known of a result's task when it is read.
fn of_result(id: &TaskId) -> Facts<'_> {
    Facts { part: Part::Result, id, agent: "", tenant: "", key: None, may_move: false, before: &[] }
}

/// A codec as it stands in a task.
fn named(name: &str, label: &str) -> Result<String, Error> {
    let fits = |text: &str, most| text.len() <= most && text.bytes().all(|b| b.is_ascii_graphic());
    if name.is_empty() || !fits(name, 32) || name.contains(':') || !fits(label, 64) {
        let source = "its name or label is not of the right form".into();
        return Err(Error::Codec { name: name.to_owned(), fault: Fault::Payload, source });
    }
    Ok(if label.is_empty() { name.to_owned() } else { format!("{name}:{label}") })
}
