//! Reading a value with serde, so that each fault knows its path.

use std::collections::BTreeMap;

use config::{Map, Value, ValueKind};
use serde::de::value::StringDeserializer;
use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer, Visitor};

use super::tree::{Fault, Segment, What};

/// Reads a value. Text is taken for a number or a truth value only where one is wanted, since the environment has nothing else.
pub(super) struct Reader<'v>(pub(super) &'v Value);

macro_rules! numbers {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            match &self.0.kind {
                ValueKind::String(text) => match (text.trim().parse::<i64>(), text.trim().parse::<u64>()) {
                    (Ok(n), _) => visitor.visit_i64(n),
                    (_, Ok(n)) => visitor.visit_u64(n),
                    _ => Err(Fault::wrong(format!("{text:?} is no whole number"))),
                },
                _ => self.deserialize_any(visitor),
            }
        })*
    };
}

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.0.kind {
            ValueKind::Nil => visitor.visit_unit(),
            ValueKind::Boolean(b) => visitor.visit_bool(*b),
            ValueKind::I64(n) => visitor.visit_i64(*n),
            ValueKind::I128(n) => visitor.visit_i128(*n),
            ValueKind::U64(n) => visitor.visit_u64(*n),
            ValueKind::U128(n) => visitor.visit_u128(*n),
            ValueKind::Float(n) => visitor.visit_f64(*n),
            ValueKind::String(text) => visitor.visit_str(text),
            ValueKind::Array(items) => visitor.visit_seq(Items { items: items.iter(), at: 0 }),
            ValueKind::Table(table) => visitor.visit_map(Entries::new(table)),
        }
    }

    numbers! { deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.0.kind {
            ValueKind::String(text) => match text.trim().to_ascii_lowercase().as_str() {
                "true" | "yes" | "on" | "1" => visitor.visit_bool(true),
                "false" | "no" | "off" | "0" => visitor.visit_bool(false),
                _ => Err(Fault::wrong(format!("{text:?} is neither true nor false"))),
            },
            _ => self.deserialize_any(visitor),
        }
    }
    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_f64(visitor)
    }
    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.0.kind {
            ValueKind::String(text) => match text.trim().parse() {
                Ok(n) => visitor.visit_f64(n),
                Err(_) => Err(Fault::wrong(format!("{text:?} is no number"))),
            },
            _ => self.deserialize_any(visitor),
        }
    }
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.0.kind {
            ValueKind::Nil => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }
    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match &self.0.kind {
            ValueKind::String(text) => visitor.visit_enum(variant(text.clone())),
            _ => Err(Fault::wrong("must be one word, as text")),
        }
    }

    serde::forward_to_deserialize_any! {
        i128 u128 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

fn variant(text: String) -> StringDeserializer<Fault> {
    text.into_deserializer()
}

struct Items<'v> {
    items: std::slice::Iter<'v, Value>,
    at: usize,
}

impl<'de> de::SeqAccess<'de> for Items<'_> {
    type Error = Fault;
    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Fault> {
        let Some(value) = self.items.next() else { return Ok(None) };
        let at = self.at;
        self.at += 1;
        seed.deserialize(Reader(value)).map(Some).map_err(|fault| fault.within(Segment::Index(at)))
    }
}

struct Entries<'v> {
    /// Sorted, so that the same mistakes are told in the same order.
    entries: std::collections::btree_map::IntoIter<&'v String, &'v Value>,
    current: Option<(&'v String, &'v Value)>,
}

impl<'v> Entries<'v> {
    fn new(table: &'v Map<String, Value>) -> Self {
        Self { entries: table.iter().collect::<BTreeMap<_, _>>().into_iter(), current: None }
    }
}

impl<'de> de::MapAccess<'de> for Entries<'_> {
    type Error = Fault;
    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        self.current = self.entries.next();
        let Some((key, _)) = self.current else { return Ok(None) };
        let key_reader: StringDeserializer<Fault> = key.clone().into_deserializer();
        seed.deserialize(key_reader).map(Some).map_err(|fault| match fault.what {
            // Says its key itself.
            What::Unknown(_) => fault,
            _ => fault.within(Segment::Key(key.clone())),
        })
    }
    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Fault> {
        let Some((key, value)) = self.current.take() else { return Err(Fault::wrong("a value without its key")) };
        seed.deserialize(Reader(value)).map_err(|fault| fault.within(Segment::Key(key.clone())))
    }
}
