//! Durations as people write them: `250ms`, `10s`, `5m`, `2h`. For `#[serde(with = "…::duration")]`, and [`optional`] for keys that
//! may be absent.

use std::time::Duration;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

/// Reads one.
///
/// # Errors
/// What is wrong with it, and how it is written.
pub fn parse(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text.trim()).map_err(|_| format!("{text:?} is no duration; write 250ms, 10s, 5m or 2h"))
}

/// Writes one.
#[must_use]
pub fn text(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

/// Reads a duration.
///
/// # Errors
/// When it is not text, or no duration.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    parse(&text).map_err(D::Error::custom)
}

/// Writes a duration.
///
/// # Errors
/// The serializer's.
pub fn serialize<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&humantime::format_duration(*duration))
}

/// Durations that may be absent: `#[serde(default, with = "…::duration::optional")]`.
pub mod optional {
    use super::{Duration, Serializer};
    use serde::{Deserialize, Deserializer};

    /// Reads a duration.
    ///
    /// # Errors
    /// When it is there, and is not text or no duration.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        #[derive(Deserialize)]
        struct Given(#[serde(with = "super")] Duration);
        Ok(Option::<Given>::deserialize(from)?.map(|given| given.0))
    }

    /// Writes a duration, or nothing.
    ///
    /// # Errors
    /// The serializer's.
    pub fn serialize<S: Serializer>(duration: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => super::serialize(duration, to),
            None => to.serialize_none(),
        }
    }
}
