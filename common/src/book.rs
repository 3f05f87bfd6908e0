//! The book of rules: limits, compiled to what the claim script reads.
//!
//! A rule matches any of queue, agent and tenant (none: everything). Of a kind, the most specific rule that matches a task wins;
//! a match-all rule is a global cap and applies as well. Counters are never touched by an edit.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::name::{AgentName, QueueName, check_text};

/// Longest window of a rate: 31 days, in ms.
pub const WINDOW_MS_MAX: u64 = 31 * 86_400_000;
/// Largest limit and slot count.
pub const LIMIT_MAX: u64 = 1_000_000_000;

/// The whole book.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Book {
    /// Grows with every edit; an older one, or other content under the same one, is refused.
    pub revision: u64,
    /// The limits.
    #[serde(default, rename = "limit")]
    pub limits: Vec<Limit>,
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// What it applies to.
    #[serde(default, rename = "match")]
    pub matches: Match,
    /// How many such tasks may run at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u64>,
    /// How many units may start in any trailing window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
}

/// A rate: `limit` units in any window of `window_ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// Units.
    pub limit: u64,
    /// The trailing window, in ms.
    pub window_ms: u64,
}

/// What a rule applies to; absent parts match all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Match {
    /// A queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueName>,
    /// An agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// A tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// A book as scripts read it: the masks in use and one field per match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    /// The revision.
    pub revision: u64,
    /// A fingerprint of the content.
    pub print: String,
    /// Masks, most specific first, joined by commas.
    pub masks: String,
    /// Field and rules.
    pub fields: Vec<(String, String)>,
}

impl Match {
    fn mask_and_field(&self) -> (String, String) {
        let parts = [
            ('q', self.queue.as_ref().map(QueueName::as_str)),
            ('a', self.agent.as_ref().map(AgentName::as_str)),
            ('t', self.tenant.as_deref()),
        ];
        let mask: String = parts.iter().filter(|p| p.1.is_some()).map(|p| p.0).collect();
        let mask = if mask.is_empty() { "*".to_owned() } else { mask };
        let values: Vec<&str> = parts.iter().filter_map(|p| p.1).collect();
        let field = format!("{mask}/{}", values.join("/"));
        (mask, field)
    }
}

impl Book {
    /// Reads a book from TOML.
    ///
    /// # Errors
    /// Where it cannot be read, and every rule that is wrong, all at once.
    pub fn parse(text: &str) -> Result<Self, Vec<String>> {
        let book: Self = toml::from_str(text).map_err(|e| vec![e.to_string()])?;
        let wrong = book.wrong();
        if wrong.is_empty() { Ok(book) } else { Err(wrong) }
    }

    /// Everything that is wrong with it.
    #[must_use]
    pub fn wrong(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut seen = BTreeMap::new();
        for (i, limit) in self.limits.iter().enumerate() {
            let n = i + 1;
            let mut say = |text: String| wrong.push(format!("limit {n}: {text}"));
            if limit.slots.is_none() && limit.rate.is_none() {
                say("says neither `slots` nor `rate`".into());
            }
            if limit.slots.is_some_and(|s| s == 0 || s > LIMIT_MAX) {
                say(format!("slots must be 1 to {LIMIT_MAX}; to stop an agent, pause it"));
            }
            if let Some(rate) = limit.rate {
                if rate.limit == 0 || rate.limit > LIMIT_MAX {
                    say(format!("rate.limit must be 1 to {LIMIT_MAX}"));
                }
                if rate.window_ms < 10 || rate.window_ms > WINDOW_MS_MAX {
                    say(format!("rate.window_ms must be 10 to {WINDOW_MS_MAX}"));
                }
            }
            if let Some(tenant) = &limit.matches.tenant
                && let Err(e) = check_text("tenant", tenant)
            {
                say(e.to_string());
            }
            for (kind, on) in [("slots", limit.slots.is_some()), ("rate", limit.rate.is_some())] {
                if on && let Some(other) = seen.insert((kind, limit.matches.mask_and_field().1), n) {
                    say(format!("ties with limit {other}: the same match has two rules of the kind `{kind}`"));
                }
            }
        }
        if self.revision == 0 {
            wrong.push("revision must be at least 1, and grow with every edit".into());
        }
        wrong
    }

    /// Compiles it.
    #[must_use]
    pub fn compile(&self) -> Compiled {
        let mut fields: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut masks: Vec<String> = Vec::new();
        for limit in &self.limits {
            let (mask, field) = limit.matches.mask_and_field();
            if !masks.contains(&mask) {
                masks.push(mask);
            }
            let rules = fields.entry(field).or_default();
            rules.extend(limit.slots.map(|s| format!("s:{s}")));
            rules.extend(limit.rate.map(|r| format!("r:{}:{}", r.limit, r.window_ms)));
        }
        // More parts first; `*` last. Among equals the fixed order q, a, t decides, so that no two rules can tie.
        masks.sort_by_key(|m| (std::cmp::Reverse(if m == "*" { 0 } else { m.len() }), m.clone()));
        let fields: Vec<_> = fields.into_iter().map(|(f, rules)| (f, rules.join(";"))).collect();
        Compiled { revision: self.revision, print: format!("{masks:?}{fields:?}"), masks: masks.join(","), fields }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_book_compiles_to_masks_and_fields() {
        let book = Book::parse(
            "revision = 7\n[[limit]]\nmatch = { agent = \"gpt4\" }\nslots = 5\nrate = { limit = 60, window_ms = 60000 }\n[[limit]]\nslots = 100\n\
             [[limit]]\nmatch = { agent = \"gpt4\", tenant = \"a/b\" }\nslots = 1\n",
        )
        .unwrap();
        let c = book.compile();
        assert_eq!(c.masks, "at,a,*");
        assert_eq!(
            c.fields,
            [
                ("*/".into(), "s:100".into()),
                ("a/gpt4".into(), "s:5;r:60:60000".into()),
                ("at/gpt4/a/b".into(), "s:1".into())
            ]
        );
    }

    #[test]
    fn all_mistakes_are_named_at_once() {
        let wrong = Book::parse(
            "revision = 0\n[[limit]]\n[[limit]]\nslots = 0\n[[limit]]\nrate = { limit = 0, window_ms = 1 }\n[[limit]]\nslots = 1\n",
        )
        .unwrap_err();
        assert_eq!(wrong.len(), 6, "{wrong:#?}");
        assert!(Book::parse("revision = 1\n[[limit]]\nslots = -1\n").is_err());
        assert!(Book::parse("revision = 1\nsurprise = 1\n").is_err());
    }
}
