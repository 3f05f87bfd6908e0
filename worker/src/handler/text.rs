//! What strangers wrote, made fit for where it goes.
//!
//! An error text is bounded, on one line, and has no characters that move a terminal's cursor or turn the order of letters. A header
//! and a variable of an environment have visible ASCII alone.

use std::fmt::Write as _;

/// Most bytes of a stranger's text that an error repeats.
pub(crate) const EXCERPT_BYTES_MAX: usize = 512;

/// At most [`EXCERPT_BYTES_MAX`] bytes of the text's beginning; blanks and control characters in a row become one space.
pub(crate) fn beginning(bytes: &[u8]) -> String {
    // Control characters may shrink to nothing, so a little more is looked at than is kept.
    let mut text = printable(&bytes[..bytes.len().min(4 * EXCERPT_BYTES_MAX)]);
    text.truncate(text.floor_char_boundary(EXCERPT_BYTES_MAX));
    text
}

/// As [`beginning`], of the text's end: the cause of a failure is what was printed last.
pub(crate) fn end(bytes: &[u8]) -> String {
    let text = printable(&bytes[bytes.len().saturating_sub(4 * EXCERPT_BYTES_MAX)..]);
    text[text.ceil_char_boundary(text.len().saturating_sub(EXCERPT_BYTES_MAX))..].to_owned()
}

fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let words = text.split(|c: char| c.is_whitespace() || c.is_control() || turns_text(c));
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Marks, embeddings, overrides and isolates of direction, and what is not seen at all.
fn turns_text(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Percent-encoded, as far as it is not visible ASCII: two texts never become the same.
pub(crate) fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'%' | 0..=b' ' | 0x7f.. => drop(write!(encoded, "%{byte:02X}")),
            _ => encoded.push(char::from(byte)),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_header_or_an_environment_cannot_have_is_percent_encoded() {
        assert_eq!(encoded("acme/eu-1:~x"), "acme/eu-1:~x");
        assert_eq!(encoded("100% é\r\nX: y\0"), "100%25%20%C3%A9%0D%0AX:%20y%00");
    }

    #[test]
    fn excerpts_are_bounded_printable_and_cut_between_characters() {
        assert_eq!(beginning(b"  a\r\n\tb\x1b[2Jc\0\0 "), "a b [2Jc");
        assert_eq!(beginning("x\u{202e}y".as_bytes()), "x y");
        assert_eq!(beginning(b"\xff!"), "\u{fffd}!");
        let long = format!("x{}", "é".repeat(600));
        assert_eq!((beginning(long.as_bytes()).len(), end(long.as_bytes()).len()), (511, 512));
        assert_eq!(end(format!("{}the cause", "-".repeat(9_000)).as_bytes()).get(503..), Some("the cause"));
        assert_eq!((beginning(b""), end(b"")), (String::new(), String::new()));
    }
}
