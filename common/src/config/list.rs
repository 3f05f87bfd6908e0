//! Lists that may also be written as one text with commas, since the environment and flags have nothing else. For
//! `#[serde(with = "…::list")]`.

use std::fmt;

use serde::de::{Deserializer, SeqAccess, Visitor};
use serde::ser::Serializer;

/// Reads a list of texts, or a text with commas.
///
/// # Errors
/// When it is neither.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    struct Texts;
    impl<'de> Visitor<'de> for Texts {
        type Value = Vec<String>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of texts, or a text with commas")
        }
        fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
            Ok(text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect())
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
            let mut list = Vec::new();
            while let Some(item) = items.next_element()? {
                list.push(item);
            }
            Ok(list)
        }
    }
    from.deserialize_any(Texts)
}

/// Writes a list.
///
/// # Errors
/// The serializer's.
pub fn serialize<S: Serializer>(list: &[String], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(list)
}
