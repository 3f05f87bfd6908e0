//! One layer of configuration: what a file, the environment or a flag says.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

use config::{Environment, File, FileFormat, Map, Source, Value, ValueKind};

use super::{ENV_PREFIX, Origin, show, tree};

/// A configuration or a secret is a page or two; more is a wrong path.
const FILE_BYTES_MAX: u64 = 1 << 20;
const FILE_SUFFIX: &str = "_file";

/// Values by dotted key, each with its origin, in the order in which they apply.
#[derive(Debug, Clone)]
pub(super) struct Layer {
    entries: Vec<(String, Value, Origin)>,
    /// Variables that may be Kubernetes' and not ours: dropped when nobody knows their keys.
    links: Vec<Origin>,
}

impl Source for Layer {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, config::ConfigError> {
        Ok(self.entries.iter().map(|(key, value, _)| (key.clone(), value.clone())).collect())
    }
}

impl Layer {
    /// Of a TOML text. An error says the line and not its content, which may be a secret.
    pub(super) fn toml(text: &str, origin: &Origin) -> Result<Self, String> {
        if let Err(error) = text.parse::<toml::Table>() {
            let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            return Err(format!("line {line} is not TOML: {}", error.message()));
        }
        let map = File::from_str(text, FileFormat::Toml).collect().map_err(|_| "cannot be read as TOML".to_owned())?;
        let mut entries: Vec<_> = map.into_iter().map(|(key, value)| (key, value, origin.clone())).collect();
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(Self { entries, links: Vec::new() })
    }

    /// Of one value.
    pub(super) fn one(key: &str, value: &str, origin: Origin) -> Self {
        Self { entries: vec![(key.to_owned(), Value::new(None, value), origin)], links: Vec::new() }
    }

    /// Of environment variables. Each goes through the crate's own source alone, so that its name stays known.
    pub(super) fn env(pairs: impl IntoIterator<Item = (String, String)>) -> Result<Self, String> {
        let mut pairs: Vec<_> = pairs.into_iter().filter(|(name, _)| is_ours(name)).collect();
        pairs.sort();
        let (mut entries, mut links) = (Vec::new(), Vec::new());
        for (name, value) in pairs {
            if is_service_link(&name, &value) {
                links.push(Origin::Env(name.clone()));
            }
            let one = Map::from_iter([(name.clone(), value)]);
            let source = Environment::with_prefix(ENV_PREFIX)
                .prefix_separator("__")
                .separator("__")
                .ignore_empty(true)
                .source(Some(one));
            let map = source.collect().map_err(|e| format!("{name}: {e}"))?;
            entries.extend(map.into_iter().map(|(key, value)| (key, value, Origin::Env(name.clone()))));
        }
        Ok(Self { entries, links })
    }

    /// Whether what an origin says may be ignored when nobody knows its key.
    pub(super) fn may_ignore(&self, origin: &Origin) -> bool {
        self.links.contains(origin)
    }

    /// Puts the content of a secret's file in the secret's place: `redis.url_file` becomes `redis.url`. Returns what is wrong.
    pub(super) fn read_secret_files(&mut self, secrets: &[&str]) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut found = Vec::new();
        for (key, value, origin) in &mut self.entries {
            let mut read = |key: &str, value: &Value| {
                let secret = key.strip_suffix(FILE_SUFFIX).filter(|s| secrets.iter().any(|p| show::matches(p, s)))?;
                match secret_in(value) {
                    Ok(text) => found.push((secret.to_owned(), text, origin.clone())),
                    Err(what) => wrong.push(format!("{key}: {what} ({origin})")),
                }
                Some(())
            };
            if read(key, value).is_some() {
                value.kind = ValueKind::Nil;
            }
            tree::retain(value, &mut key.clone(), &mut |key, value| read(key, value).is_none());
        }
        self.entries.retain(|(_, value, _)| value.kind != ValueKind::Nil);
        for (key, text, origin) in found {
            if self.keys().contains(&key) {
                wrong.push(format!("{key}: given as itself and as {key}{FILE_SUFFIX}; give one ({origin})"));
            }
            self.entries.push((key, Value::new(None, text), origin));
        }
        wrong
    }

    fn keys(&self) -> Vec<String> {
        let mut keys = Vec::new();
        for (key, value, _) in &self.entries {
            tree::walk(value, &mut key.clone(), &mut |key, _| keys.push(key.to_owned()));
        }
        keys
    }

    /// Writes down who says what; what this layer replaces is forgotten.
    pub(super) fn note_origins(&self, origins: &mut BTreeMap<String, Origin>) {
        for (key, value, origin) in &self.entries {
            tree::walk(value, &mut key.clone(), &mut |key, _| {
                let below = format!("{key}.");
                origins.retain(|other, _| !other.starts_with(&below) && !key.starts_with(&format!("{other}.")));
                origins.insert(key.to_owned(), origin.clone());
            });
        }
    }
}

/// Reads a small text file.
pub(super) fn read_bounded(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|e| format!("cannot be opened: {e}"))?;
    let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|e| format!("cannot be read: {e}"))?;
    if read as u64 > FILE_BYTES_MAX {
        return Err(format!("is larger than {FILE_BYTES_MAX} bytes"));
    }
    Ok(text)
}

/// The secret in the file that `path` names, without the line ends that editors and `echo` leave.
fn secret_in(path: &Value) -> Result<String, String> {
    let ValueKind::String(path) = &path.kind else { return Err("must be a path".to_owned()) };
    let text = read_bounded(Path::new(path)).map_err(|what| format!("{path} {what}"))?;
    let text = text.trim_end_matches(['\n', '\r']);
    if text.is_empty() { Err(format!("{path} is empty")) } else { Ok(text.to_owned()) }
}

/// Whether an environment variable speaks to us.
pub(super) fn is_ours(name: &str) -> bool {
    name.to_ascii_uppercase().starts_with(&format!("{ENV_PREFIX}__"))
}

/// Whether a variable is one that Kubernetes sets for each service of the namespace: a service named `tidemill--redis` becomes
/// `TIDEMILL__REDIS_PORT=tcp://…` and more. It says nothing to us, and must not keep us from starting.
fn is_service_link(name: &str, value: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let of_a_port = name.split_once("_PORT_").is_some_and(|(_, rest)| rest.starts_with(|c: char| c.is_ascii_digit()));
    of_a_port
        || name.ends_with("_SERVICE_HOST")
        || (name.ends_with("_SERVICE_PORT") || name.contains("_SERVICE_PORT_")) && is_number(value)
        || name.ends_with("_PORT") && value.contains("://")
}
