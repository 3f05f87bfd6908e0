//! The codes of failures: one table ([`super::codes_table`]), which `producer explain CODE` and `docs/errors.md` show.
//!
//! A code is a promise: it keeps its number and its meaning for ever; one that is not used any more stays in the table.

use std::fmt;
use std::str::FromStr;

pub(crate) use super::codes_table::ALL;

/// What went wrong. The number is the code: `TM-0102`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Code {
    NoTask = 101,
    QueueFull = 102,
    MemoryFull = 103,
    TooManyQueues = 104,
    KeyConflict = 105,
    Duplicate = 106,
    Unknown = 107,
    NotTaken = 108,
    NeverFits = 109,
    Arguments = 201,
    NoId = 202,
    Payload = 203,
    CannotRead = 204,
    Configuration = 205,
    Terminal = 206,
    BookMistakes = 207,
    NeedsYes = 208,
    NoChoice = 209,
    RedisSettings = 210,
    TooMany = 211,
    Declined = 212,
    ScheduleMistakes = 213,
    NoTerminal = 214,
    Unreachable = 301,
    NotLetIn = 302,
    NoAnswer = 303,
    RedisRefused = 304,
    StrangeAnswer = 305,
    Unsuitable = 306,
    NotNow = 307,
    NothingKnown = 401,
    NotInState = 402,
    EndedBadly = 403,
    WaitOver = 404,
    Partly = 405,
    BookNewer = 406,
    NoPayload = 407,
    TooManyKept = 408,
    NoSchedule = 409,
    CannotWrite = 501,
    Interrupted = 502,
    CannotStart = 503,
}

/// A row of the table.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) code: Code,
    pub(crate) title: &'static str,
    pub(crate) means: &'static str,
    pub(crate) todo: &'static str,
}

pub(crate) const fn entry(code: Code, title: &'static str, means: &'static str, todo: &'static str) -> Entry {
    Entry { code, title, means, todo }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TM-{:04}", *self as u16)
    }
}

impl FromStr for &'static Entry {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let upper = text.to_ascii_uppercase();
        let found = ALL.iter().find(|entry| entry.code.to_string() == upper);
        found.ok_or_else(|| format!("{upper} is no code of this version; docs/errors.md has them all"))
    }
}

/// Whether a word has the form of a code.
pub(crate) fn looks_like_one(word: &str) -> bool {
    let digits = word.get(..3).filter(|start| start.eq_ignore_ascii_case("TM-")).and_then(|_| word.get(3..));
    digits.is_some_and(|digits| digits.len() == 4 && digits.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
#[path = "codes_tests.rs"]
mod tests;
