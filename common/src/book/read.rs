//! Reading a book: every mistake at once, each with its line.

use std::fmt;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Error, ValueDeserializer};

use super::{Book, TEXT_BYTES_MAX, check};

/// Something that is wrong with a book.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Where, counted from 1; 0 when it is about the whole.
    pub line: usize,
    /// What.
    pub what: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        f.write_str(&self.what)
    }
}

impl Mistake {
    /// All of them, in one line.
    #[must_use]
    pub fn listed(mistakes: &[Self]) -> String {
        mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    /// All of them, a line each.
    #[must_use]
    pub fn lines(mistakes: &[Self]) -> String {
        mistakes.iter().map(|mistake| format!("\n  - {mistake}")).collect()
    }
}

/// A text, and what was found wrong with it so far.
struct Reading<'a> {
    text: &'a str,
    mistakes: Vec<Mistake>,
}

impl Reading<'_> {
    fn line(&self, at: usize) -> usize {
        1 + self.text.as_bytes().iter().take(at).filter(|b| **b == b'\n').count()
    }

    fn say(&mut self, at: Option<usize>, what: impl Into<String>) {
        let line = at.map_or(0, |at| self.line(at));
        self.mistakes.push(Mistake { line, what: what.into() });
    }

    fn say_error(&mut self, error: &Error, or_at: usize) {
        self.say(Some(error.span().map_or(or_at, |s| s.start)), error.message());
    }

    fn read<'de, T: Deserialize<'de>>(&mut self, value: Spanned<DeValue<'de>>) -> Option<T> {
        let at = value.span().start;
        T::deserialize(ValueDeserializer::from(value)).map_err(|e| self.say_error(&e, at)).ok()
    }

    /// A list of tables, each with its line.
    fn listed<T: for<'a> Deserialize<'a>>(&mut self, value: Spanned<DeValue<'_>>, how: &str) -> Vec<(usize, T)> {
        let at = value.span().start;
        let DeValue::Array(items) = value.into_inner() else {
            self.say(Some(at), format!("{how}, one after the other"));
            return Vec::new();
        };
        let mut listed = Vec::new();
        for item in items {
            let line = self.line(item.span().start);
            listed.extend(self.read(item).map(|one| (line, one)));
        }
        listed
    }
}

impl Book {
    /// Reads a book from TOML.
    ///
    /// # Errors
    /// Every mistake in it, in the order of its lines.
    pub fn parse(text: &str) -> Result<Self, Vec<Mistake>> {
        let mut reading = Reading { text, mistakes: Vec::new() };
        if text.len() > TEXT_BYTES_MAX {
            reading.say(None, format!("the book has {} bytes; at most {TEXT_BYTES_MAX} are allowed", text.len()));
            return Err(reading.mistakes);
        }
        let (table, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            reading.say_error(error, 0);
        }
        if !errors.is_empty() {
            return Err(reading.mistakes);
        }
        let (mut book, mut lines, mut agent_lines) = (Self::default(), Vec::new(), Vec::new());
        for (key, value) in table.into_inner() {
            match key.get_ref().as_ref() {
                "revision" => book.revision = reading.read(value).unwrap_or(1),
                "tiers" => book.tiers = reading.read(value).unwrap_or_default(),
                "tenants" => book.tenants = reading.read(value).unwrap_or_default(),
                "agent" => {
                    (agent_lines, book.agents) =
                        reading.listed(value, "agents are written [[agent]]").into_iter().unzip()
                }
                "limit" => {
                    (lines, book.limits) = reading.listed(value, "limits are written [[limit]]").into_iter().unzip()
                }
                other => {
                    let what = format!(
                        "{other:?} is no part of a book; it has revision, tiers, tenants, [[agent]] and [[limit]]"
                    );
                    reading.say(Some(key.span().start), what);
                }
            }
        }
        reading.mistakes.extend(check::wrong(&book, &lines, &agent_lines));
        reading.mistakes.sort_by_key(|m| m.line);
        if reading.mistakes.is_empty() { Ok(book) } else { Err(reading.mistakes) }
    }
}
