//! A configuration for people: TOML with dotted keys, secrets masked.

use std::collections::BTreeMap;

use config::{Value, ValueKind};

use super::{Origin, Secret, tree};

/// Whether a dotted key is of a pattern, where `*` stands for one part.
pub(super) fn matches(pattern: &str, key: &str) -> bool {
    parts(key).count() == pattern.split('.').count() && concerns(pattern, key)
}

/// Whether a dotted key is of a pattern, or holds what is: a value in the wrong place may be a secret too.
pub(super) fn concerns(pattern: &str, key: &str) -> bool {
    let mut pattern = pattern.split('.');
    parts(key).all(|part| pattern.next().is_some_and(|p| p == "*" || p == part))
}

/// The parts of a dotted key, some of which may be quoted and hold dots.
fn parts(key: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    key.split(move |c| {
        quoted ^= c == '"';
        c == '.' && !quoted
    })
}

/// Each key's value as TOML.
pub(super) fn leaves(merged: &Value, secrets: &[Secret]) -> BTreeMap<String, String> {
    let mut shown = BTreeMap::new();
    tree::walk(merged, &mut String::new(), &mut |key, value| {
        let text = match secrets.iter().find(|s| matches(s.0, key)) {
            Some((_, mask)) => match &value.kind {
                ValueKind::String(text) => toml::Value::String(mask(text)).to_string(),
                _ => "\"***\"".to_owned(),
            },
            None => as_toml(value).to_string(),
        };
        shown.insert(key.to_owned(), text);
    });
    shown
}

fn as_toml(value: &Value) -> toml::Value {
    match &value.kind {
        ValueKind::Boolean(b) => toml::Value::Boolean(*b),
        ValueKind::I64(n) => toml::Value::Integer(*n),
        ValueKind::Float(n) => toml::Value::Float(*n),
        ValueKind::Array(items) => toml::Value::Array(items.iter().map(as_toml).collect()),
        ValueKind::Table(items) => toml::Value::Table(items.iter().map(|(k, v)| (k.clone(), as_toml(v))).collect()),
        _ => toml::Value::String(value.to_string()),
    }
}

pub(super) fn toml(shown: &BTreeMap<String, String>, origins: Option<&BTreeMap<String, Origin>>) -> String {
    let width = shown.iter().map(|(k, v)| k.len() + v.len() + 3).filter(|w| *w <= 60).max().unwrap_or(0);
    let mut text = String::new();
    for (key, value) in shown {
        let line = format!("{key} = {value}");
        match origins {
            Some(origins) => {
                let origin = origins.get(key).unwrap_or(&Origin::Default);
                text.push_str(&format!("{line:width$}  # {origin}\n"));
            }
            None => text.push_str(&format!("{line}\n")),
        }
    }
    text
}
