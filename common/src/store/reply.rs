//! Replies of scripts, read by position with the script's name in every complaint.

use bytes::Bytes;
use fred::prelude::Value;

use super::error::Error;
use crate::name::Fence;

impl Fence {
    /// As scripts keep it; see [`Reply::fence`].
    #[expect(clippy::cast_precision_loss, reason = "fences are server microseconds, below 2^53")]
    pub(super) fn to_value(self) -> Value {
        Value::Bytes(Bytes::copy_from_slice(&(self.0 as f64).to_be_bytes()))
    }
}

/// A flat reply, read from the front.
pub(super) struct Reply {
    op: &'static str,
    values: std::vec::IntoIter<Value>,
}

impl Reply {
    pub(super) fn array(op: &'static str, value: Value) -> Result<Self, Error> {
        match value {
            Value::Array(values) => Ok(Self { op, values: values.into_iter() }),
            other => Err(Error::Reply { op, what: format!("a list was expected, not {:?}", other.kind()) }),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.values.len() == 0
    }

    fn next(&mut self) -> Result<Value, Error> {
        self.values.next().ok_or_else(|| Error::Reply { op: self.op, what: "it ends early".into() })
    }

    pub(super) fn bytes(&mut self) -> Result<Bytes, Error> {
        let op = self.op;
        let value = self.next()?;
        value.into_bytes().ok_or_else(|| Error::Reply { op, what: "bytes were expected".into() })
    }

    pub(super) fn text(&mut self) -> Result<String, Error> {
        let bytes = match self.next()? {
            Value::Integer(n) => return Ok(n.to_string()),
            other => other.into_bytes().unwrap_or_default(),
        };
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    pub(super) fn number(&mut self) -> Result<u64, Error> {
        let op = self.op;
        let value = self.next()?;
        let number = match &value {
            Value::Integer(n) => u64::try_from(*n).ok(),
            Value::Double(n) if *n >= 0.0 => Some(n.round() as u64),
            other => other.as_str().and_then(|s| s.parse().ok()),
        };
        number.ok_or_else(|| Error::Reply { op, what: format!("a number was expected, not {:?}", value.kind()) })
    }

    /// A fence as scripts keep it: the 8 bytes of a double, whole and below 2^53.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked: a whole number below 2^53")]
    pub(super) fn fence(&mut self) -> Result<Fence, Error> {
        let bytes = self.bytes()?;
        let number = <[u8; 8]>::try_from(&bytes[..]).map(f64::from_be_bytes);
        match number {
            Ok(n) if (0.0..9_007_199_254_740_992.0).contains(&n) => Ok(Fence(n as u64)),
            _ => Err(Error::Reply { op: self.op, what: "a fence was expected".into() }),
        }
    }

    pub(super) fn flag(&mut self) -> Result<bool, Error> {
        Ok(self.number()? != 0)
    }

    pub(super) fn list(&mut self) -> Result<Self, Error> {
        let value = self.next()?;
        Self::array(self.op, value)
    }

    pub(super) fn parse<T: std::str::FromStr>(&mut self) -> Result<T, Error> {
        let text = self.text()?;
        text.parse().map_err(|_| Error::Reply { op: self.op, what: format!("{text:?} was not expected") })
    }
}
