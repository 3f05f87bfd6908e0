//! Payloads of tasks: compressed, encrypted, or kept in an object store with a reference in the task.
//!
//! ```text
//! producer   plain ──compress──► ──encrypt──► large? ──put──► reference       Payloads::encode_task
//! worker     plain ◄──unpack──── ◄──decrypt── ◄──────fetch─── reference       Payloads::decode_task
//! worker     result ──compress──► ──encrypt──► framed       producer: unframed, decoded       …_result
//! ```
//!
//! - *It guarantees* that a handler gets the bytes that were handed in, or does not run. A task says itself what was done to it, so
//!   old tasks are read whatever the configuration has become, as long as codec, key and store are there.
//! - *It refuses* what was changed, moved to another task, or unpacks to more than the bound.
//! - *On a crash* nothing is half done: the object is whole before the task is handed in, and stays if it never is.
//!
//! What is not hidden: names, tenant, keys, times, lengths, progress and error texts. `docs/payloads.md` is for operators,
//! `docs/wire.md` has the bytes, `docs/adr/0007-payload-codecs.md` the reasons.

mod codec;
mod compress;
pub mod config;
mod encrypt;
mod error;
mod keys;
mod payloads;
#[cfg(feature = "s3")]
mod s3;
mod store;
#[cfg(test)]
mod tests;

pub use codec::{Codec, Encoded, Facts, Part};
pub use compress::{ZSTD, Zstd};
pub use encrypt::{XCHACHA20POLY1305, XChaCha20};
pub use error::{Error, Fault};
pub use keys::{KEY_BYTES, KeyRing};
pub use payloads::Payloads;
#[cfg(feature = "s3")]
pub use s3::S3;
pub use store::Store;
