//! What strangers wrote, made fit for an error text: bounded, on one line, and without characters that move a terminal's cursor or
//! turn the order of letters.

/// Most bytes of a stranger's text that an error repeats.
pub(crate) const EXCERPT_BYTES_MAX: usize = 512;

/// At most [`EXCERPT_BYTES_MAX`] bytes of the text's beginning; blanks and control characters in a row become one space.
pub(crate) fn beginning(bytes: &[u8]) -> String {
    // Control characters may shrink to nothing, so a little more is looked at than is kept.
    let mut text = printable(&bytes[..bytes.len().min(4 * EXCERPT_BYTES_MAX)]);
    text.truncate(text.floor_char_boundary(EXCERPT_BYTES_MAX));
    text
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpts_are_bounded_printable_and_cut_between_characters() {
        assert_eq!(beginning(b"  a\r\n\tb\x1b[2Jc\0\0 "), "a b [2Jc");
        assert_eq!(beginning("x\u{202e}y".as_bytes()), "x y");
        assert_eq!(beginning(b"\xff!"), "\u{fffd}!");
        let long = format!("x{}", "é".repeat(600));
        assert_eq!((beginning(long.as_bytes()).len(), beginning(b"").len()), (511, 0));
    }
}
