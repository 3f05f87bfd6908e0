//! The section `[payloads]`, the same for producers and workers. `deploy/config` says what its keys mean.

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::compress::Zstd;
use crate::encrypt::XChaCha20;
use crate::keys::KeyRing;
use crate::payloads::Payloads;
use crate::store::Store;

/// Largest payload that anybody can be told to take.
const BYTES_LIMIT: usize = 64 << 20;

/// The secret key of the section, for `Loader::secret`.
pub const SECRET: &str = "payloads.store_secret_access_key";

/// `[payloads]`. The defaults change nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Section {
    /// Whether new payloads are compressed.
    pub compress: Compress,
    /// How hard, 1 to 19.
    pub compress_level: i32,
    /// Whether new payloads are encrypted.
    pub encrypt: Encrypt,
    /// The directory of the keys; empty: none.
    pub keys: String,
    /// The key that encrypts.
    pub active_key: String,
    /// The key that fingerprints are made with.
    pub fingerprint_key: String,
    /// Whether results are encoded as payloads are.
    pub results: bool,
    /// Largest payload, in bytes, before encoding and after decoding.
    pub bytes_max: usize,
    /// Where large payloads lie: `file:///…` or `s3://bucket/prefix`; empty: in Redis.
    pub store: String,
    /// The store's name in tasks.
    pub store_name: String,
    /// What is larger lies in the store, in bytes as stored.
    pub above_bytes: usize,
    /// The URL of a service that speaks S3; empty: AWS.
    pub store_endpoint: String,
    /// Its region.
    pub store_region: String,
    /// Who we are there; empty: as the environment says.
    pub store_access_key_id: String,
    /// The secret that goes with it.
    pub store_secret_access_key: Secret,
}

/// Compression of new payloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compress {
    /// None.
    Off,
    /// Zstandard.
    Zstd,
}

/// Encryption of new payloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encrypt {
    /// None.
    Off,
    /// XChaCha20-Poly1305.
    XChaCha20Poly1305,
}

/// A text that is not shown.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { "***" })
    }
}

impl Default for Section {
    fn default() -> Self {
        Self {
            compress: Compress::Off,
            compress_level: 3,
            encrypt: Encrypt::Off,
            keys: String::new(),
            active_key: String::new(),
            fingerprint_key: String::new(),
            results: true,
            bytes_max: tidemill_common::task::PAYLOAD_BYTES_MAX,
            store: String::new(),
            store_name: "main".to_owned(),
            above_bytes: 256 << 10,
            store_endpoint: String::new(),
            store_region: "us-east-1".to_owned(),
            store_access_key_id: String::new(),
            store_secret_access_key: Secret::default(),
        }
    }
}

impl Section {
    /// What is wrong with it, each mistake with its key. Reads the keys and looks for the directory; asks no service.
    #[must_use]
    pub fn check(&self) -> Vec<String> {
        self.build().err().unwrap_or_default()
    }

    /// Makes what it describes.
    ///
    /// # Errors
    /// All mistakes at once, each with its key. None holds a secret.
    pub fn build(&self) -> Result<Payloads, Vec<String>> {
        let mut wrong = Vec::new();
        if !Zstd::LEVELS.contains(&self.compress_level) {
            wrong.push("compress_level: 1 to 19".to_owned());
        }
        if !(1..=BYTES_LIMIT).contains(&self.bytes_max) {
            wrong.push(format!("bytes_max: 1 to {BYTES_LIMIT}"));
        }
        let mut payloads = Payloads::new().results(self.results).bytes_max(self.bytes_max);
        if self.compress == Compress::Zstd {
            payloads = payloads.encode(Arc::new(Zstd::new(self.compress_level)));
        }
        let ring = self.ring(&mut wrong);
        if let Some(key) = ring.get(&self.fingerprint_key) {
            payloads = payloads.fingerprint(key.0);
        }
        let cipher = Arc::new(XChaCha20::new(ring, &self.active_key));
        payloads = match self.encrypt {
            Encrypt::Off => payloads.decode(cipher),
            Encrypt::XChaCha20Poly1305 => payloads.encode(cipher),
        };
        if !self.store.is_empty() {
            match self.open() {
                Ok(store) => payloads = payloads.put_above(self.above_bytes, store),
                Err(what) => wrong.push(what),
            }
        }
        if wrong.is_empty() { Ok(payloads) } else { Err(wrong.into_iter().map(|w| format!("payloads.{w}")).collect()) }
    }

    fn ring(&self, wrong: &mut Vec<String>) -> KeyRing {
        let mut ring = KeyRing::new();
        if !self.keys.is_empty() {
            match KeyRing::read(Path::new(&self.keys)) {
                Ok(read) => ring = read,
                Err(mistakes) => {
                    wrong.extend(mistakes.into_iter().map(|what| format!("keys: {what}")));
                    return ring;
                }
            }
        }
        let encrypts = self.encrypt != Encrypt::Off;
        let names = [("active_key", &self.active_key), ("fingerprint_key", &self.fingerprint_key)];
        for (key, name) in names {
            if name.is_empty() && encrypts {
                wrong.push(format!("{key}: is missing; the name of a file in payloads.keys"));
            } else if !name.is_empty() && ring.get(name).is_none() {
                wrong.push(format!("{key}: there is no key {name:?} in {:?}", self.keys));
            }
        }
        if !self.active_key.is_empty() && self.active_key == self.fingerprint_key {
            wrong.push(
                "fingerprint_key: must be another key than active_key: it stays when that one is changed".to_owned(),
            );
        }
        ring
    }

    fn open(&self) -> Result<Store, String> {
        let fits = |b: u8| b.is_ascii_alphanumeric() || b"_-".contains(&b);
        if !(1..=32).contains(&self.store_name.len()) || !self.store_name.bytes().all(fits) {
            return Err("store_name: 1 to 32 of A-Z a-z 0-9 _ -".to_owned());
        }
        if let Some(path) = self.store.strip_prefix("file://") {
            let path = Path::new(path);
            if !path.is_absolute() {
                return Err("store: write file:///absolute/path".to_owned());
            }
            return Store::directory(&self.store_name, path).map_err(|what| format!("store: {what}"));
        }
        match self.store.strip_prefix("s3://") {
            Some(place) => self.open_s3(place),
            None => Err("store: is neither file:///absolute/path nor s3://bucket/prefix".to_owned()),
        }
    }

    #[cfg(feature = "s3")]
    fn open_s3(&self, place: &str) -> Result<Store, String> {
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        if bucket.is_empty() {
            return Err("store: names no bucket; write s3://bucket/prefix".to_owned());
        }
        let endpoint = &self.store_endpoint;
        if !endpoint.is_empty() && !endpoint.starts_with("https://") && !endpoint.starts_with("http://") {
            return Err("store_endpoint: is no URL; write https://host:port".to_owned());
        }
        if self.store_access_key_id.is_empty() != self.store_secret_access_key.0.is_empty() {
            return Err("store_access_key_id, store_secret_access_key: give both or neither".to_owned());
        }
        let s3 = crate::s3::S3 {
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
            endpoint: endpoint.clone(),
            region: self.store_region.clone(),
            access_key_id: self.store_access_key_id.clone(),
            secret_access_key: self.store_secret_access_key.0.clone(),
        };
        Store::s3(&self.store_name, &s3).map_err(|what| format!("store: {what}"))
    }

    #[cfg(not(feature = "s3"))]
    fn open_s3(&self, _: &str) -> Result<Store, String> {
        Err("store: this build knows no s3://; build the programs with --features s3".to_owned())
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
