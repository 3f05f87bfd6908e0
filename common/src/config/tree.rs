//! The merged values as a tree: places and faults in it, walking and mending it.

use std::collections::BTreeMap;
use std::fmt;

use config::{Value, ValueKind};
use serde::de::{self, Expected, Unexpected};

use super::{Origin, near};

/// One step from a value into what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Segment {
    Key(String),
    Index(usize),
}

/// What is wrong at a place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A key that nobody knows, and those that are known beside it.
    Unknown(&'static [&'static str]),
    /// A key without which it does not go.
    Missing(&'static str),
    /// A value that does not fit.
    Wrong(String),
}

/// Something wrong, and where.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) path: Vec<Segment>,
    pub(super) what: What,
}

impl Fault {
    fn new(what: What) -> Self {
        Self { path: Vec::new(), what }
    }
    pub(super) fn wrong(text: impl Into<String>) -> Self {
        Self::new(What::Wrong(text.into()))
    }
    pub(super) fn within(mut self, segment: Segment) -> Self {
        self.path.insert(0, segment);
        self
    }
    /// The place as a dotted key.
    pub(super) fn key(&self) -> String {
        let mut key = String::new();
        for segment in &self.path {
            match segment {
                Segment::Key(part) => push(&mut key, part),
                Segment::Index(at) => key.push_str(&format!("[{at}]")),
            }
        }
        key
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.key(), self.what)
    }
}
impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::wrong(message.to_string())
    }
    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::wrong(format!("must be {}, not {found}", plain(&expected.to_string())))
    }
    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }
    fn unknown_field(field: &str, known: &'static [&'static str]) -> Self {
        Self::new(What::Unknown(known)).within(Segment::Key(field.to_owned()))
    }
    fn missing_field(field: &'static str) -> Self {
        Self::new(What::Missing(field))
    }
    fn unknown_variant(found: &str, known: &'static [&'static str]) -> Self {
        let hint =
            near::nearest(found, known.iter().copied()).map(|n| format!("; did you mean `{n}`?")).unwrap_or_default();
        Self::wrong(format!("{found:?} is not one of {}{hint}", known.join(", ")))
    }
}

/// Type names as a person says them.
fn plain(expected: &str) -> String {
    match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number, not below 0",
        "i32" | "i64" | "isize" => "a whole number",
        "a string" => "text",
        "a sequence" => "a list",
        "a boolean" => "true or false",
        other if other.starts_with("struct ") || other == "a map" => "a table",
        other => other,
    }
    .to_owned()
}

/// Whether there is a table at a path.
pub(super) fn is_table_at(root: &Value, path: &[Segment]) -> bool {
    let found = path.iter().try_fold(root, |value, segment| match segment {
        Segment::Key(key) => child(value, key),
        Segment::Index(_) => None,
    });
    found.is_some_and(|value| matches!(value.kind, ValueKind::Table(_)))
}

/// Puts the default in the place of what is wrong at `path`, or nothing where there is no default. False when that changes nothing.
pub(super) fn repair(merged: &mut Value, defaults: &Value, path: &[Segment]) -> bool {
    // A list is one value: what is wrong in it is mended whole.
    let keys: Vec<&str> =
        path.iter().map_while(|s| if let Segment::Key(k) = s { Some(k.as_str()) } else { None }).collect();
    let Some((last, parents)) = keys.split_last() else { return false };
    let mut default = Some(defaults);
    let mut place = merged;
    for key in parents {
        default = default.and_then(|d| child(d, key));
        match &mut place.kind {
            ValueKind::Table(table) if table.contains_key(*key) => match table.get_mut(*key) {
                Some(next) => place = next,
                None => return false,
            },
            _ => return false,
        }
    }
    let ValueKind::Table(table) = &mut place.kind else { return false };
    match default.and_then(|d| child(d, last)) {
        Some(default) if table.get(*last).is_none_or(|now| now.kind != default.kind) => {
            table.insert((*last).to_owned(), default.clone());
            true
        }
        _ => table.remove(*last).is_some(),
    }
}

fn child<'v>(value: &'v Value, key: &str) -> Option<&'v Value> {
    match &value.kind {
        ValueKind::Table(table) => table.get(key),
        _ => None,
    }
}

/// Adds a part to a dotted key, quoted where TOML would quote it.
fn push(key: &mut String, part: &str) {
    if !key.is_empty() {
        key.push('.');
    }
    let bare = !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if bare { key.push_str(part) } else { key.push_str(&toml::Value::String(part.to_owned()).to_string()) }
}

/// Calls `see` with each leaf below a value: its dotted key and the value. An empty table is a leaf.
pub(super) fn walk(value: &Value, key: &mut String, see: &mut impl FnMut(&str, &Value)) {
    match &value.kind {
        ValueKind::Table(table) if !table.is_empty() => {
            for (part, value) in table.iter().collect::<BTreeMap<_, _>>() {
                let before = key.len();
                push(key, part);
                walk(value, key, see);
                key.truncate(before);
            }
        }
        ValueKind::Nil => {}
        _ => see(key, value),
    }
}

/// Drops the leaves below a value that `keep` refuses.
pub(super) fn retain(value: &mut Value, key: &mut String, keep: &mut impl FnMut(&str, &Value) -> bool) {
    if let ValueKind::Table(table) = &mut value.kind {
        table.retain(|part, value| {
            let before = key.len();
            push(key, part);
            let kept = matches!(value.kind, ValueKind::Table(_)) || keep(key, value);
            if kept {
                retain(value, key, keep);
            }
            key.truncate(before);
            kept
        });
    }
}

/// Who said what is at a key: the key itself, what is below it, or the value that it is a part of.
pub(super) fn origin_of<'o>(origins: &'o BTreeMap<String, Origin>, key: &str) -> Option<&'o Origin> {
    let whole = key.split('[').next().unwrap_or(key);
    let below = format!("{whole}.");
    let part = || origins.iter().find(|(other, origin)| other.starts_with(&below) && **origin != Origin::Default);
    origins.get(whole).or_else(|| part().map(|(_, origin)| origin))
}
