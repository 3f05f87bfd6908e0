//! Groups of the dead: those that died of the same thing, whatever the numbers and names in their errors.

use std::fmt;
use std::str::FromStr;

use tidemill_common::store::Found;
use tidemill_producer::{State, reason_of};

/// Letters of a normalised error that tell groups apart: what follows is often cut off, and not always at the same place.
const ERROR_CHARS: usize = 120;
/// A quotation that is longer is none.
const QUOTED_CHARS_MAX: usize = 200;
/// Hexadecimal digits in a row from which on they are a number, if one of them is a digit.
const HEX_CHARS_MIN: usize = 8;

/// What tells a group: agent, reason and normalised error, as a number of 48 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Fingerprint(u64);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:012x}", self.0)
    }
}

impl FromStr for Fingerprint {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let digits = (text.len() == 12).then(|| u64::from_str_radix(text, 16).ok()).flatten();
        digits
            .map(Self)
            .ok_or_else(|| format!("{text:?} is no group: 12 hexadecimal digits, see `producer dead groups`"))
    }
}

/// Why a task failed, last time: what its outcome says, else its last error.
pub(crate) fn last_error(found: &Found) -> String {
    let ended = found.outcome.as_ref().filter(|_| found.state != State::Succeeded);
    match ended {
        Some(outcome) if !outcome.text.is_empty() => String::from_utf8_lossy(&outcome.text).into_owned(),
        _ => found.history.errors.first().map_or_else(String::new, |error| error.text.clone()),
    }
}

/// The group of a dead task.
pub(crate) fn fingerprint(found: &Found) -> Fingerprint {
    let agent = found.task.as_ref().map_or("", |task| task.agent.as_str());
    let reason = reason_of(found).map_or("", |reason| reason.as_str());
    of(agent, reason, &normal(&last_error(found)))
}

/// FNV-1a over the three, parted by a byte that is in none of them: the same for ever.
fn of(agent: &str, reason: &str, error: &str) -> Fingerprint {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for part in [agent, reason, error] {
        for byte in part.bytes().chain([0xff]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    Fingerprint((hash ^ (hash >> 48)) & 0xffff_ffff_ffff)
}

/// An error without what differs from one task to the next: numbers and ids are `#`, quotations `"…"`.
pub(crate) fn normal(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let (mut out, mut at, mut length) = (String::new(), 0, 0);
    while at < chars.len() && length < ERROR_CHARS {
        let rest = &chars[at..];
        let begins = at == 0 || !chars[at - 1].is_alphanumeric();
        let (word, taken) = quotation(rest, begins)
            .map(|n| ("\"…\"".to_owned(), n))
            .or_else(|| begins.then(|| uuid(rest)).flatten().map(|n| ("#".to_owned(), n)))
            .unwrap_or_else(|| word(rest));
        length += word.chars().count();
        out.push_str(&word);
        at += taken;
    }
    out.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(ERROR_CHARS).collect()
}

/// How long the quotation is that begins here, if one does. An apostrophe inside a word begins none.
fn quotation(rest: &[char], begins: bool) -> Option<usize> {
    let mark = *rest.first()?;
    if !matches!(mark, '"' | '\'' | '`') || (mark == '\'' && !begins) {
        return None;
    }
    let ends =
        |at: &usize| rest[*at] == mark && (mark != '\'' || rest.get(at + 1).is_none_or(|next| !next.is_alphanumeric()));
    (1..rest.len().min(QUOTED_CHARS_MAX)).find(ends).map(|at| at + 1)
}

/// How long the UUID is that begins here, if one does.
fn uuid(rest: &[char]) -> Option<usize> {
    const LONG: usize = 36;
    let whole = rest.get(..LONG)?;
    let fits = whole.iter().enumerate().all(|(at, char)| match at {
        8 | 13 | 18 | 23 => *char == '-',
        _ => char.is_ascii_hexdigit(),
    });
    (fits && rest.get(LONG).is_none_or(|next| !next.is_alphanumeric())).then_some(LONG)
}

/// The word that begins here, without its numbers, and how long it was.
fn word(rest: &[char]) -> (String, usize) {
    let taken = rest.iter().take_while(|char| char.is_alphanumeric()).count();
    let Some(letters) = rest.get(..taken).filter(|letters| !letters.is_empty()) else {
        return (rest.iter().take(1).collect(), 1);
    };
    let digits = letters.iter().any(char::is_ascii_digit);
    let is_hex = |part: &[char]| !part.is_empty() && part.iter().all(char::is_ascii_hexdigit);
    let prefixed = letters.len() > 2 && letters[0] == '0' && matches!(letters[1], 'x' | 'X') && is_hex(&letters[2..]);
    if prefixed || (digits && letters.len() >= HEX_CHARS_MIN && is_hex(letters)) {
        return ("#".to_owned(), taken);
    }
    let mut out = String::new();
    for (at, char) in letters.iter().enumerate() {
        if !char.is_ascii_digit() {
            out.push(*char);
        } else if at == 0 || !letters[at - 1].is_ascii_digit() {
            out.push('#');
        }
    }
    (out, taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_from_task_to_task_is_taken_out() {
        for (text, normalised) in [
            ("timeout after 30s at 10.0.0.12:443", "timeout after #s at #.#.#.#:#"),
            ("no file \"/data/7.json\"", "no file \"…\""),
            ("can't open 'a b' (it's gone)", "can't open \"…\" (it's gone)"),
            ("task 0198f3c2-7b1e-7c3d-9d9e-aaaaaaaaaaaa: no", "task #: no"),
            ("at 0xdeadBEEF, commit 4bf92f3577b34da6", "at #, commit #"),
            ("deadbeef is a word", "deadbeef is a word"),
            ("an open \" stays\n\n here", "an open \" stays here"),
            ("HTTP 429: é 7", "HTTP #: é #"),
            ("", ""),
        ] {
            assert_eq!(normal(text), normalised);
        }
        assert_eq!(normal(&"x".repeat(4_000)).len(), ERROR_CHARS);
    }

    #[test]
    fn groups_are_told_apart_and_their_names_are_read_back() {
        let one = of("a", "attempts", "x");
        assert_eq!(one.to_string().parse(), Ok(one));
        assert_eq!(one.to_string().len(), 12);
        for other in
            [of("b", "attempts", "x"), of("a", "poison", "x"), of("a", "attempts", "y"), of("aa", "ttempts", "x")]
        {
            assert_ne!(one, other);
        }
        assert!("xyz".parse::<Fingerprint>().is_err());
    }
}
