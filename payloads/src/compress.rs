//! Compression by Zstandard.
//!
//! - *It guarantees* that a payload is never larger for it: what it does not make smaller is left as it is.
//! - *It refuses* to unpack more than the bound, by the size that the frame itself states, before anything is unpacked; and frames
//!   that state none, which it never writes.

use bytes::Bytes;

use crate::codec::{Codec, Encoded, Facts};
use crate::error::Error;

/// The codec's name in tasks.
pub const ZSTD: &str = "zstd";
/// Below this there is nothing to save.
const BYTES_MIN: usize = 64;
/// What naming it in the task costs, about.
const NAME_COST: usize = 16;

/// Zstandard at a level.
#[derive(Debug, Clone, Copy)]
pub struct Zstd {
    level: i32,
}

impl Zstd {
    /// Levels that may be chosen: above it, time and memory grow and little is won.
    pub const LEVELS: std::ops::RangeInclusive<i32> = 1..=19;

    /// At this level, brought into [`Self::LEVELS`].
    #[must_use]
    pub fn new(level: i32) -> Self {
        Self { level: level.clamp(*Self::LEVELS.start(), *Self::LEVELS.end()) }
    }
}

impl Default for Zstd {
    fn default() -> Self {
        Self::new(3)
    }
}

fn damaged(what: &'static str) -> Error {
    Error::Damaged { codec: ZSTD, what }
}

impl Codec for Zstd {
    fn name(&self) -> &str {
        ZSTD
    }

    fn encode(&self, plain: Bytes, _: &Facts<'_>) -> Result<Encoded, Error> {
        if plain.len() < BYTES_MIN {
            return Ok(Encoded::Same(plain));
        }
        let packed = zstd::bulk::compress(&plain, self.level).map_err(|_| damaged("cannot be packed"))?;
        if packed.len() + NAME_COST >= plain.len() {
            return Ok(Encoded::Same(plain));
        }
        Ok(Encoded::Other { bytes: packed.into(), label: String::new() })
    }

    fn decode(&self, coded: Bytes, _: &str, _: &Facts<'_>, bytes_max: usize) -> Result<Bytes, Error> {
        let stated = zstd::zstd_safe::get_frame_content_size(&coded).map_err(|_| damaged("is no frame"))?;
        let stated = stated.ok_or_else(|| damaged("the frame does not state its size"))?;
        let too_large = || Error::TooLarge { what: "the unpacked payload", max: bytes_max };
        let bytes = usize::try_from(stated).ok().filter(|bytes| *bytes <= bytes_max).ok_or_else(too_large)?;
        // It unpacks into these bytes and no others: no window is set aside, however large a one the frame asks for.
        let plain = zstd::bulk::decompress(&coded, bytes).map_err(|_| damaged("cannot be unpacked"))?;
        if plain.len() == bytes { Ok(plain.into()) } else { Err(damaged("the frame states another size")) }
    }
}
