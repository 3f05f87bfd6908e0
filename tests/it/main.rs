//! The integration tests: one binary, one module for each theme.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bad_input;
mod budgets;
mod cases;
mod docs;
mod gates;
mod lab;
mod lua;
mod model;
mod payloads;
mod rates;
mod retention;
mod schedules;
mod unknown_agent;

use tidemill_tests::server::{self, Reply};

#[test]
fn a_private_server_answers() {
    let server = server::start();
    assert_eq!(server.command(&["PING"]).unwrap(), Reply::Simple("PONG".to_owned()));
}
