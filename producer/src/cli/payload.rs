//! A payload: from an argument, a file or stdin, and whether it is JSON.

use std::fs::File;
use std::io::{IsTerminal as _, Read, stdin};
use std::path::Path;

use bytes::Bytes;
use serde_json::value::RawValue;

use super::codes::Code;
use super::exit::Failure;

/// Reads a payload, of at most `most` bytes. `-` is stdin.
///
/// # Errors
/// When it cannot be read or is too large, or stdin is a terminal: nobody would know what to type.
pub(crate) fn read(path: &Path, most: usize) -> Result<Bytes, Failure> {
    let shown = path.display();
    let failed = |e: std::io::Error| Failure::cannot_read(&format!("the payload from {shown}"), &e);
    if path.as_os_str() != "-" {
        return bounded(File::open(path).map_err(failed)?, most).map_err(failed)?;
    }
    if stdin().is_terminal() {
        return Err(Failure::at_terminal("the payload is to come", "submit"));
    }
    bounded(stdin().lock(), most).map_err(failed)?
}

fn bounded(from: impl Read, most: usize) -> std::io::Result<Result<Bytes, Failure>> {
    let mut bytes = Vec::new();
    from.take(most as u64 + 1).read_to_end(&mut bytes)?;
    Ok(if bytes.len() > most {
        let text = format!("the payload has more than {most} bytes, which is the most (submit.payload_bytes_max)");
        Err(Failure::usage(Code::Payload, text))
    } else {
        Ok(bytes.into())
    })
}

/// Whether bytes are one JSON value; it is passed on byte for byte all the same.
///
/// # Errors
/// Where they are not.
pub(crate) fn check_json(bytes: &[u8]) -> Result<(), String> {
    let text = std::str::from_utf8(bytes).map_err(|e| format!("it is not UTF-8 after {} bytes", e.valid_up_to()))?;
    serde_json::from_str::<&RawValue>(text).map(|_| ()).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_told_from_what_is_none() {
        for good in ["null", " {\"a\": [1, 1e400]}\n", "\"\u{e9}\"", "18446744073709551616"] {
            assert_eq!(check_json(good.as_bytes()), Ok(()), "{good}");
        }
        for bad in [&b""[..], b"{", b"{'a':1}", b"{} {}", b"hello", b"\"a\0b\"", b"\"\xff\"", b"NaN"] {
            assert!(check_json(bad).is_err(), "{bad:?}");
        }
        let deep = "[".repeat(100_000);
        assert!(check_json(deep.as_bytes()).is_err(), "no stack is used up");
    }

    #[test]
    fn a_payload_is_bounded() {
        assert_eq!(bounded(&b"1234"[..], 4).unwrap().unwrap(), "1234");
        assert!(bounded(&b"12345"[..], 4).unwrap().is_err());
    }
}
