//! Names and ids: parsed once at the edge, so that nothing inside has to doubt them.
//!
//! Queue and agent names become parts of keys, metric labels and log lines; they are held to a small alphabet. Tenants, order
//! keys and idempotency keys are data: any text up to 255 bytes, kept byte for byte.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Longest queue or agent name, in bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// Longest tenant, order key or idempotency key, in bytes: what one length byte can say.
pub const TEXT_BYTES_MAX: usize = 255;

/// Why a name, id or text was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Empty where something is needed.
    #[error("{what} is empty")]
    Empty {
        /// What was being read.
        what: &'static str,
    },
    /// Too long.
    #[error("{what} has {bytes} bytes; at most {max} are allowed")]
    TooLong {
        /// What was being read.
        what: &'static str,
        /// Its length in bytes.
        bytes: usize,
        /// The bound in bytes.
        max: usize,
    },
    /// A character outside the alphabet.
    #[error("{what} contains {found:?}; allowed are letters, digits and `{allowed}`")]
    Character {
        /// What was being read.
        what: &'static str,
        /// The first character that is not allowed.
        found: char,
        /// The punctuation that is.
        allowed: &'static str,
    },
}

fn check(what: &'static str, text: &str, max: usize, punctuation: &'static str) -> Result<(), Error> {
    if text.is_empty() {
        return Err(Error::Empty { what });
    }
    if text.len() > max {
        return Err(Error::TooLong { what, bytes: text.len(), max });
    }
    match text.chars().find(|c| !c.is_ascii_alphanumeric() && !punctuation.contains(*c)) {
        Some(found) => Err(Error::Character { what, found, allowed: punctuation }),
        None => Ok(()),
    }
}

/// A text that is only data: at most [`TEXT_BYTES_MAX`] bytes, any content but nothing.
///
/// # Errors
/// When it is empty or too long.
pub fn check_text(what: &'static str, text: &str) -> Result<(), Error> {
    match text.len() {
        0 => Err(Error::Empty { what }),
        bytes if bytes > TEXT_BYTES_MAX => Err(Error::TooLong { what, bytes, max: TEXT_BYTES_MAX }),
        _ => Ok(()),
    }
}

macro_rules! checked_text {
    ($(#[$doc:meta])* $name:ident, $what:literal, $max:expr, $punctuation:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl FromStr for $name {
            type Err = Error;
            fn from_str(text: &str) -> Result<Self, Error> {
                check($what, text, $max, $punctuation)?;
                Ok(Self(text.to_owned()))
            }
        }
        impl TryFrom<String> for $name {
            type Error = Error;
            fn try_from(text: String) -> Result<Self, Error> {
                check($what, &text, $max, $punctuation)?;
                Ok(Self(text))
            }
        }
        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

checked_text!(
    /// A queue: a name for a set of tasks inside a shard.
    QueueName, "queue name", NAME_BYTES_MAX, "_.-"
);
checked_text!(
    /// An agent type: selects the handler and the rules that apply.
    AgentName, "agent name", NAME_BYTES_MAX, "_.-"
);
checked_text!(
    /// A tier: what a tenant has paid for, say.
    TierName, "tier name", NAME_BYTES_MAX, "_.-"
);
checked_text!(
    /// A schedule.
    ScheduleName, "schedule name", NAME_BYTES_MAX, "_.-"
);
checked_text!(
    /// The identity of a task: unique, chosen by whoever submits it. Sending a submit twice under one id makes one task.
    TaskId, "task id", NAME_BYTES_MAX, "_-"
);
checked_text!(
    /// A worker process: its name and a random incarnation, so that it is never used twice.
    WorkerId, "worker id", 2 * NAME_BYTES_MAX, "_.-"
);

impl Default for QueueName {
    fn default() -> Self {
        Self("default".into())
    }
}

impl TaskId {
    /// A new id: UUID version 7 (RFC 9562), so that ids sort by the time they were made.
    #[must_use]
    pub fn generate() -> Self {
        Self(uuid::Uuid::now_v7().hyphenated().to_string())
    }
}

impl WorkerId {
    /// A worker's id for this process: `name` and a random incarnation.
    ///
    /// # Errors
    /// When the name is not one.
    pub fn incarnate(name: &str) -> Result<Self, Error> {
        check("worker name", name, NAME_BYTES_MAX, "_.-")?;
        Ok(Self(format!("{name}.{}", &uuid::Uuid::new_v4().simple().to_string()[..12])))
    }
}

/// A number that grows with every delivery; the newer one wins everywhere. Server microseconds, made strictly increasing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fence(pub u64);

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn awkward_names_are_refused_with_the_reason() {
        for bad in ["", "a:b", "{x}", "a b", "../x", "a\nb", "a\0b", "é", &"x".repeat(65)] {
            assert!(bad.parse::<QueueName>().is_err(), "{bad:?}");
            assert!(bad.parse::<AgentName>().is_err(), "{bad:?}");
        }
        assert_eq!(
            "a:b".parse::<QueueName>().unwrap_err().to_string(),
            "queue name contains ':'; allowed are letters, digits and `_.-`"
        );
        assert!("gpt-4.1_mini".parse::<AgentName>().is_ok());
        assert!("123".parse::<TaskId>().is_ok());
    }

    #[test]
    fn ids_differ_and_sort_by_time() {
        let (a, b) = (TaskId::generate(), TaskId::generate());
        assert_ne!(a, b);
        assert_ne!(WorkerId::incarnate("w").unwrap(), WorkerId::incarnate("w").unwrap());
        assert_eq!(Fence(7).to_string(), "0000000000000007");
    }
}
