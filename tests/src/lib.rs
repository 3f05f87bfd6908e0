//! What the integration tests share. The tests themselves are one binary, `it/main.rs`.
//!
//! Everything here panics with a message that says what to do, since a test has nobody to hand an error to.

pub mod server;
