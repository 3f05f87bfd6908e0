//! The pipeline against a real server: one private server and one worker or more a test, waiting on what is observed, not on time.

#![expect(clippy::unwrap_used, reason = "a test's panic with its line is the report")]

mod faults;
mod harness;
mod outcomes;
mod room;
mod stopping;
