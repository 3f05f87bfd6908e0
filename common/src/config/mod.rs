//! Configuration: one loader for all programs.
//!
//! ```text
//! embedded defaults  <  development server found  <  file  <  TIDEMILL__SECTION__KEY  <  flags
//! ```
//!
//! - *The defaults file is the documentation*: it is embedded, annotated, and names every key that has a default.
//! - *All mistakes at once*: a wrong value, an unknown key (with the nearest known one), a missing one, a secret's file that cannot
//!   be read, and what the caller's own check finds, each with the place that said it.
//! - *Values stay what they were written as*: a password `0123` in the environment is text; a number is read from text only where
//!   a number is wanted.
//! - *Secrets* may be given as a file's path: for a key declared by [`Loader::secret`], `KEY_file` in a file or
//!   `TIDEMILL__SECTION__KEY_FILE` in the environment. They are shown masked.
//!
//! ```
//! use tidemill_common::config::{Loader, Origin};
//!
//! #[derive(serde::Deserialize)]
//! #[serde(deny_unknown_fields)]
//! struct Settings { rooms: u32 }
//!
//! let env = [("TIDEMILL__ROOMS".to_owned(), "3".to_owned())];
//! let loaded = Loader::new("rooms = 1").env(env).load(|s: &Settings| {
//!     if s.rooms == 0 { vec!["rooms: at least one".to_owned()] } else { vec![] }
//! })?;
//! assert_eq!(loaded.value.rooms, 3);
//! assert_eq!(loaded.origins["rooms"], Origin::Env("TIDEMILL__ROOMS".to_owned()));
//! # Ok::<(), tidemill_common::config::Mistakes>(())
//! ```

pub mod duration;
mod layer;
pub mod list;
mod near;
mod reader;
mod show;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use ::config::{Config, Map, Value, ValueKind};
use serde::de::DeserializeOwned;

use layer::Layer;
pub use near::nearest;
use tree::{Fault, Segment, What};

/// What the names of all environment variables begin with; sections and keys follow, parted by two underscores.
pub const ENV_PREFIX: &str = "TIDEMILL";
/// Faults found before the search for more is given up: nobody reads on.
const FAULTS_MAX: usize = 64;

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The embedded defaults.
    Default,
    /// A file.
    File(PathBuf),
    /// An environment variable.
    Env(String),
    /// A flag.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Env(name) => write!(f, "env {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// Everything that is wrong, one line each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} in the configuration:\n  - {}", if .0.len() == 1 { "a mistake".to_owned() } else { format!("{} mistakes", .0.len()) }, .0.join("\n  - "))]
pub struct Mistakes(pub Vec<String>);

/// What was loaded, and where each value comes from.
#[derive(Debug, Clone)]
pub struct Loaded<T> {
    /// The configuration, checked.
    pub value: T,
    /// The origin of each key (dotted) that has a value.
    pub origins: BTreeMap<String, Origin>,
    /// Each key's value, as TOML; secrets are masked.
    shown: BTreeMap<String, String>,
}

impl<T> Loaded<T> {
    /// Where a key's value comes from; [`Origin::Default`] when it has none.
    #[must_use]
    pub fn origin(&self, key: &str) -> &Origin {
        self.origins.get(key).unwrap_or(&Origin::Default)
    }

    /// All of it as TOML with dotted keys, secrets masked; with the origins, as comments.
    #[must_use]
    pub fn show(&self, with_origins: bool) -> String {
        show::toml(&self.shown, with_origins.then_some(&self.origins))
    }
}

/// A secret key: its pattern (`*` stands for one part) and how to show its value.
type Secret = (&'static str, fn(&str) -> String);

/// Gathers the layers; the later call wins, so call in the order of the module's picture.
#[derive(Debug)]
pub struct Loader {
    layers: Vec<Layer>,
    secrets: Vec<Secret>,
    wrong: Vec<String>,
}

impl Loader {
    /// Begins with the embedded defaults, in TOML.
    #[must_use]
    pub fn new(defaults: &str) -> Self {
        let mut loader = Self { layers: Vec::new(), secrets: Vec::new(), wrong: Vec::new() };
        loader.take("the embedded defaults", Layer::toml(defaults, &Origin::Default));
        loader
    }

    /// Declares a key as secret (call it before the layers): it may be given by a file, and is shown as `shown` makes it.
    /// `agents.*.env.*` declares many.
    #[must_use]
    pub fn secret(mut self, pattern: &'static str, shown: fn(&str) -> String) -> Self {
        self.secrets.push((pattern, shown));
        self
    }

    /// Adds one value that was found in a file's place, such as the URL of a development server.
    #[must_use]
    pub fn found(mut self, path: PathBuf, key: &str, value: &str) -> Self {
        self.layers.push(Layer::one(key, value, Origin::File(path)));
        self
    }

    /// Adds a TOML file. A file that cannot be read is a mistake.
    #[must_use]
    pub fn file(mut self, path: &Path) -> Self {
        let read = layer::read_bounded(path).and_then(|text| Layer::toml(&text, &Origin::File(path.to_owned())));
        self.take(&path.display().to_string(), read);
        self
    }

    /// Adds the process's environment.
    #[must_use]
    pub fn env_of_process(mut self) -> Self {
        let mut pairs = Vec::new();
        for (name, value) in std::env::vars_os() {
            match (name.into_string(), value.into_string()) {
                (Ok(name), Ok(value)) => pairs.push((name, value)),
                (Ok(name), Err(_)) if layer::is_ours(&name) => self.wrong.push(format!("{name}: is not UTF-8")),
                _ => {}
            }
        }
        self.env(pairs)
    }

    /// Adds environment variables, given as pairs so that a test need not touch the process's. Empty ones count as absent.
    #[must_use]
    pub fn env(mut self, pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        let layer = Layer::env(pairs);
        self.take("the environment", layer);
        self
    }

    /// Adds a flag's value for a key, if the flag was given.
    #[must_use]
    pub fn flag(mut self, name: &'static str, key: &str, value: Option<String>) -> Self {
        if let Some(value) = value {
            self.layers.push(Layer::one(key, &value, Origin::Flag(name)));
        }
        self
    }

    fn take(&mut self, from: &str, layer: Result<Layer, String>) {
        match layer {
            Ok(layer) => self.layers.push(layer),
            Err(what) => self.wrong.push(format!("{from}: {what}")),
        }
    }

    /// Merges, reads and checks. `check` gets a configuration in which every value is of the right type, and says what does not
    /// fit together.
    ///
    /// # Errors
    /// Everything that is wrong, by whichever means it was found.
    pub fn load<T: DeserializeOwned>(mut self, check: impl FnOnce(&T) -> Vec<String>) -> Result<Loaded<T>, Mistakes> {
        let secret_patterns: Vec<&str> = self.secrets.iter().map(|s| s.0).collect();
        for layer in &mut self.layers {
            self.wrong.extend(layer.read_secret_files(&secret_patterns));
        }
        let mut origins = BTreeMap::new();
        for layer in &self.layers {
            layer.note_origins(&mut origins);
        }
        let (Ok(defaults), Ok(mut merged)) = (merge(&self.layers[..self.layers.len().min(1)]), merge(&self.layers))
        else {
            return Err(Mistakes(self.wrong));
        };
        let value = self.read(&defaults, &mut merged, &origins);
        if let Some(value) = &value {
            self.wrong.extend(check(value));
        }
        let shown = show::leaves(&merged, &self.secrets);
        match value {
            Some(value) if self.wrong.is_empty() => Ok(Loaded { value, origins, shown }),
            _ => Err(Mistakes(self.wrong)),
        }
    }

    /// Reads until it fits: notes each fault, puts the default in its place, and tries again, so that one fault hides no other.
    fn read<T: DeserializeOwned>(
        &mut self,
        defaults: &Value,
        merged: &mut Value,
        origins: &BTreeMap<String, Origin>,
    ) -> Option<T> {
        for _ in 0..FAULTS_MAX {
            let fault = match T::deserialize(reader::Reader(merged)) {
                Ok(value) => return Some(value),
                Err(fault) => fault,
            };
            let key = fault.key();
            let origin = tree::origin_of(origins, &key);
            if !origin.is_some_and(|o| self.layers.iter().any(|l| l.may_ignore(o))) {
                // A table is known by its keys, which are no secrets; a plain value in a table's place may be one.
                let plain = !tree::is_table_at(merged, &fault.path);
                let secret = plain && self.secrets.iter().any(|s| show::concerns(s.0, &key));
                self.wrong.push(line(&key, &fault, secret, origin));
            }
            if !tree::repair(merged, defaults, &fault.path) {
                return None;
            }
        }
        None
    }
}

fn merge(layers: &[Layer]) -> Result<Value, ()> {
    let mut builder = Config::builder();
    for layer in layers {
        builder = builder.add_source(layer.clone());
    }
    let merged = builder.build().map_err(|_| ())?;
    let table: Map<String, Value> = match merged.cache.kind {
        ValueKind::Table(table) => table,
        _ => return Err(()),
    };
    Ok(table.into())
}

fn line(key: &str, fault: &Fault, secret: bool, origin: Option<&Origin>) -> String {
    let what = match &fault.what {
        What::Unknown(known) => match fault.path.last() {
            Some(Segment::Key(last)) => near::unknown(last, known),
            _ => "unknown key".to_owned(),
        },
        What::Missing(field) => format!("`{field}` is missing"),
        What::Wrong(_) if secret => "is not of the right form".to_owned(),
        What::Wrong(text) => text.clone(),
    };
    match (key, origin) {
        ("", _) => what,
        (_, None | Some(Origin::Default)) => format!("{key}: {what}"),
        (_, Some(origin)) => format!("{key}: {what} ({origin})"),
    }
}
