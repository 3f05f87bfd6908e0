//! Payloads by reference: objects in a directory or a bucket, each under the SHA-256 of its bytes.
//!
//! - *It guarantees* that what is fetched is what was put: length and hash are checked. An object is there, whole, before the task
//!   that refers to it is handed in.
//! - *It refuses* places: an object's path is made of its hash and nothing else, so no task can name another file.
//! - *It deletes nothing*: equal payloads share an object, and nobody counts who refers to it. Each put writes it anew, so its age is
//!   that of the newest task; a lifetime on the bucket or directory ends it (docs/payloads.md).
//! - *On a crash* between put and submit an object stays that nobody refers to, until that lifetime is over.

use std::fmt;
use std::path::Path as File;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{Error as Said, ObjectStore, ObjectStoreExt as _};
use sha2::{Digest as _, Sha256};
use tidemill_common::task::Reference;
use tokio::time::timeout;

use crate::error::Error;

/// Longest put or fetch, tries included: a run that waits longer holds a slot for nothing.
const PATIENCE: Duration = Duration::from_secs(30);

/// A place for objects.
#[derive(Clone)]
pub struct Store {
    name: String,
    prefix: Path,
    objects: Arc<dyn ObjectStore>,
    patience: Duration,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("name", &self.name).field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl Store {
    /// A directory that is there already, seen by all producers and workers under whatever path. Objects are written whole and
    /// flushed to the disk before a put returns.
    ///
    /// # Errors
    /// When it is no directory.
    pub fn directory(name: impl Into<String>, directory: &File) -> Result<Self, String> {
        if !directory.is_dir() {
            return Err(format!("{} is no directory", directory.display()));
        }
        let files = LocalFileSystem::new_with_prefix(directory).map_err(|e| e.to_string())?;
        Ok(Self::of(name, Arc::new(files.with_fsync(true)), Path::default()))
    }

    /// Any store that the crate `object_store` knows, below a prefix of it.
    #[must_use]
    pub fn of(name: impl Into<String>, objects: Arc<dyn ObjectStore>, prefix: Path) -> Self {
        Self { name: name.into(), prefix, objects, patience: PATIENCE }
    }

    /// With another bound on one put or fetch.
    #[must_use]
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Its name, which stands in tasks.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Puts an object. The same bytes again are the same object, and make it young again. Cancel safe: it is there or not.
    ///
    /// # Errors
    /// [`Error::Away`].
    pub async fn put(&self, bytes: Bytes) -> Result<Reference, Error> {
        let (length, sha256) = (bytes.len() as u64, hash(&bytes));
        let path = self.path(&sha256);
        match timeout(self.patience, self.objects.put(&path, bytes.into())).await {
            Ok(Ok(_)) => Ok(Reference { store: self.name.clone(), bytes: length, sha256 }),
            Ok(Err(said)) => Err(self.away(said)),
            Err(late) => Err(self.away(late)),
        }
    }

    /// Fetches an object. Cancel safe.
    ///
    /// # Errors
    /// [`Error::Away`], [`Error::Gone`], [`Error::Differs`] when length or hash are others, [`Error::TooLarge`].
    pub async fn get(&self, reference: &Reference, bytes_max: usize) -> Result<Bytes, Error> {
        let differs = |what| Error::Differs { name: self.name.clone(), what };
        if !is_hash(&reference.sha256) {
            return Err(differs("the reference is no SHA-256"));
        }
        if reference.bytes > bytes_max as u64 {
            return Err(Error::TooLarge { what: "the payload in the store", max: bytes_max });
        }
        let path = self.path(&reference.sha256);
        let fetched = async {
            let found = self.objects.get(&path).await?;
            // Before it is read: an object is no larger than the task says.
            if found.meta.size == reference.bytes { found.bytes().await.map(Some) } else { Ok(None) }
        };
        match timeout(self.patience, fetched).await {
            Ok(Ok(Some(bytes))) if bytes.len() as u64 != reference.bytes => Err(differs("it has another length")),
            Ok(Ok(Some(bytes))) if hash(&bytes) != reference.sha256 => Err(differs("it has another hash")),
            Ok(Ok(Some(bytes))) => Ok(bytes),
            Ok(Ok(None)) => Err(differs("it has another length")),
            Ok(Err(Said::NotFound { .. })) => {
                Err(Error::Gone { name: self.name.clone(), sha256: reference.sha256.clone() })
            }
            Ok(Err(said)) => Err(self.away(said)),
            Err(late) => Err(self.away(late)),
        }
    }

    /// Two levels, so that no directory gets too full.
    fn path(&self, sha256: &str) -> Path {
        let (first, _) = sha256.split_at(2);
        self.prefix.clone().join(first).join(sha256)
    }

    fn away(&self, source: impl std::error::Error + Send + Sync + 'static) -> Error {
        Error::Away { name: self.name.clone(), source: Box::new(source) }
    }
}

fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

fn hash(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
