//! What the integration tests share. The tests themselves are one binary, `it/main.rs`.
//!
//! Everything here panics with a message that says what to do, since a test has nobody to hand an error to.

pub mod admin;
pub mod fake;
pub mod lab;
pub mod model;
pub mod program;
pub mod proxy;
pub mod sentinel;
pub mod server;
pub mod skew;
pub mod timed;
pub mod watch;

/// The Rust in documents, compiled as doctests.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../README.md")]
    struct Readme;

    #[doc = include_str!("../../docs/writing-a-handler.md")]
    struct Handlers;
}
