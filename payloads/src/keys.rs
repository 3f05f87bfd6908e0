//! Keys by name: one encrypts, all decrypt. So a key is changed by adding one, and removed when nothing needs it any more.
//!
//! - *It guarantees* that no key is shown: a ring knows names, and its `Debug` shows them alone.
//! - *It refuses* files that are not 32 bytes in base64, and tells all mistakes of a directory at once.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::Read as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;
/// Longest name of a key.
const NAME_BYTES_MAX: usize = 64;
/// Most keys of a ring: a wrong directory is noticed before it is read whole.
const KEYS_MAX: usize = 256;
/// A key's file has 44 characters and a line end.
const FILE_BYTES_MAX: u64 = 1024;

/// One key.
#[derive(Clone)]
pub(crate) struct Key(pub(crate) [u8; KEY_BYTES]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(***)")
    }
}

/// Keys by name.
#[derive(Debug, Clone, Default)]
pub struct KeyRing {
    keys: BTreeMap<String, Key>,
}

impl KeyRing {
    /// A ring without keys.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a key; one of the same name is replaced.
    ///
    /// # Errors
    /// When the name has not 1 to 64 characters of `A–Z a–z 0–9 _ . -`, or begins with a dot.
    pub fn with(mut self, name: &str, key: [u8; KEY_BYTES]) -> Result<Self, String> {
        if !is_name(name) {
            return Err(format!("{name:?} is no name of a key; 1 to {NAME_BYTES_MAX} of A-Z a-z 0-9 _ . -"));
        }
        self.keys.insert(name.to_owned(), Key(key));
        Ok(self)
    }

    /// Reads a directory: each file is a key, named as the file, with 32 bytes in base64 (`head -c 32 /dev/urandom | base64`). Names
    /// that begin with a dot are passed over, as are directories.
    ///
    /// # Errors
    /// All mistakes at once, one a line; none holds a part of a file.
    pub fn read(directory: &Path) -> Result<Self, Vec<String>> {
        let listed = fs::read_dir(directory).map_err(|e| vec![format!("{}: {e}", directory.display())])?;
        let (mut ring, mut wrong) = (Self::new(), Vec::new());
        for entry in listed {
            let Ok(path) = entry.map(|entry| entry.path()) else { continue };
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            if name.starts_with('.') || !path.is_file() {
                continue;
            }
            if ring.keys.len() + wrong.len() >= KEYS_MAX {
                wrong.push(format!("{}: has more than {KEYS_MAX} files", directory.display()));
                break;
            }
            match key_of(&path).and_then(|key| ring.clone().with(&name, key)) {
                Ok(more) => ring = more,
                Err(what) => wrong.push(format!("{}: {what}", path.display())),
            }
        }
        wrong.sort();
        if wrong.is_empty() { Ok(ring) } else { Err(wrong) }
    }

    /// The names of its keys, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.keys.keys().map(String::as_str)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Key> {
        self.keys.get(name)
    }
}

fn is_name(name: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"_.-".contains(&b);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(fits)
}

fn key_of(path: &Path) -> Result<[u8; KEY_BYTES], String> {
    let mut text = String::new();
    let file = fs::File::open(path).map_err(|e| format!("cannot be opened: {e}"))?;
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(|e| format!("cannot be read: {e}"))?;
    let bytes = STANDARD.decode(text.trim()).map_err(|_| "is not base64".to_owned())?;
    let length = bytes.len();
    bytes.try_into().map_err(|_| format!("has {length} bytes in base64; a key has {KEY_BYTES}"))
}
