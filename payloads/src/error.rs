//! Why a payload could not be encoded or decoded.

use tidemill_common::frame;

/// What is wrong. Texts never hold a payload or a key; names come from tasks and are shown quoted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The task names a codec that this process does not have.
    #[error("no codec named {name:?} is here: set [payloads] as where the task comes from")]
    NoCodec {
        /// Its name.
        name: String,
    },
    /// The task names a key that this process does not have.
    #[error("no key named {key:?} is here, for codec {codec}: put its file into payloads.keys and start again")]
    NoKey {
        /// The codec.
        codec: String,
        /// The key's name.
        key: String,
    },
    /// The task names a store that this process does not have.
    #[error("no store named {name:?} is here: set payloads.store as where the task comes from")]
    NoStore {
        /// Its name.
        name: String,
    },
    /// The store does not answer, or not as it should; also when it does not let us in.
    #[error("store {name:?} cannot be used")]
    Away {
        /// Its name.
        name: String,
        /// What it said.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The store has no such object (any more).
    #[error("its payload is gone from store {name:?}: there is no object {sha256:?}")]
    Gone {
        /// The store.
        name: String,
        /// The object.
        sha256: String,
    },
    /// The object is not what the task says, or the reference is none.
    #[error("its payload in store {name:?} is not the one that was put there: {what}")]
    Differs {
        /// The store.
        name: String,
        /// What differs.
        what: &'static str,
    },
    /// Larger than this process takes.
    #[error("{what} is larger than {max} bytes (payloads.bytes_max)")]
    TooLarge {
        /// What is.
        what: &'static str,
        /// The bound in bytes.
        max: usize,
    },
    /// What a codec is given is not what it made, for this task.
    #[error("{codec}: {what}")]
    Damaged {
        /// The codec.
        codec: &'static str,
        /// What is wrong.
        what: &'static str,
    },
    /// More codecs than any chain has.
    #[error("it names more than {} codecs", frame::CODECS_MAX)]
    TooManyCodecs,
    /// A result that begins as a frame and is none.
    #[error(transparent)]
    Frame(#[from] frame::Broken),
    /// What a codec of the application's own says.
    #[error("codec {name} failed")]
    Codec {
        /// Its name.
        name: String,
        /// Whose fault it is: a service that does not answer is no fault of the payload's.
        fault: Fault,
        /// What it says.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Whose fault it is that a payload cannot be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// This process lacks something that another may have: a codec, a key, a store.
    Lacking,
    /// The store is away: later it may answer.
    Away,
    /// The payload itself: no process will ever read it.
    Payload,
}

impl Error {
    /// Whose fault it is.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::NoCodec { .. } | Self::NoKey { .. } | Self::NoStore { .. } => Fault::Lacking,
            Self::Away { .. } => Fault::Away,
            Self::Codec { fault, .. } => *fault,
            _ => Fault::Payload,
        }
    }

    /// The error with its causes, in one line.
    #[must_use]
    pub fn told(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            let more = error.to_string();
            if !text.contains(&more) {
                text.push_str(": ");
                text.push_str(&more);
            }
            cause = error.source();
        }
        text
    }
}
