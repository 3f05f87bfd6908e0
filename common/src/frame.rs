//! Results that went through codecs: a frame around them that says which.
//!
//! - *It guarantees* that what is read is what was written: a plain result that begins as a frame does is put into a frame of no
//!   codecs, so nothing plain is ever taken for a frame. JSON never begins with the byte zero, so it never needs that.
//! - *It refuses* frames that end early, or name more codecs than any chain has.
//! - It holds nothing.

use bytes::{BufMut, Bytes, BytesMut};

/// What a frame begins with: no text does, and no JSON.
pub const MAGIC: &[u8; 4] = b"\0TMf";
/// Most codecs of one payload or result.
pub const CODECS_MAX: usize = 8;
/// Longest name of a codec with its key, in bytes.
pub const CODEC_BYTES_MAX: usize = 128;

/// A frame that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the result begins as a frame does, and is none")]
pub struct Broken;

/// Writes what went through these codecs, in their order. Without any, and when the content cannot be taken for a frame, it is left
/// as it is.
#[must_use]
pub fn wrap(codecs: &[String], content: Bytes) -> Bytes {
    if codecs.is_empty() && !content.starts_with(MAGIC) {
        return content;
    }
    let names: usize = codecs.iter().map(|name| 1 + name.len()).sum();
    let mut out = BytesMut::with_capacity(MAGIC.len() + 1 + names + content.len());
    out.put_slice(MAGIC);
    let codecs = &codecs[..codecs.len().min(CODECS_MAX)];
    out.put_u8(u8::try_from(codecs.len()).unwrap_or(0));
    for name in codecs {
        let name = &name.as_bytes()[..name.len().min(CODEC_BYTES_MAX)];
        out.put_u8(u8::try_from(name.len()).unwrap_or(0));
        out.put_slice(name);
    }
    out.put_slice(&content);
    out.freeze()
}

/// The codecs that a result went through, in their order, and what came out of them. What is no frame is plain.
///
/// # Errors
/// When it begins as a frame and cannot be read as one.
pub fn unwrap(result: &Bytes) -> Result<(Vec<String>, Bytes), Broken> {
    let Some(rest) = result.strip_prefix(MAGIC) else { return Ok((Vec::new(), result.clone())) };
    let (count, mut rest) = rest.split_first().ok_or(Broken)?;
    if usize::from(*count) > CODECS_MAX {
        return Err(Broken);
    }
    let mut codecs = Vec::with_capacity(usize::from(*count));
    for _ in 0..*count {
        let (length, after) = rest.split_first().ok_or(Broken)?;
        let (name, after) = after.split_at_checked(usize::from(*length)).ok_or(Broken)?;
        codecs.push(std::str::from_utf8(name).map_err(|_| Broken)?.to_owned());
        rest = after;
    }
    Ok((codecs, result.slice_ref(rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_plain_is_taken_for_a_frame() {
        let names = ["zstd".to_owned(), "xchacha20poly1305:2026-11".to_owned()];
        for content in [&b""[..], b"{}", b"\0TMf", b"\0TMf\x01", b"\0", &[0; 300]] {
            let content = Bytes::copy_from_slice(content);
            for codecs in [&names[..0], &names[..1], &names[..]] {
                assert_eq!(unwrap(&wrap(codecs, content.clone())), Ok((codecs.to_vec(), content.clone())));
            }
        }
        assert_eq!(wrap(&[], Bytes::from_static(b"{\"a\":1}")), "{\"a\":1}", "as it is");
        for broken in [&b"\0TMf"[..], b"\0TMf\x09", b"\0TMf\x01", b"\0TMf\x01\x05zs", b"\0TMf\x01\x01\xff"] {
            assert_eq!(unwrap(&Bytes::copy_from_slice(broken)), Err(Broken), "{broken:?}");
        }
    }
}
