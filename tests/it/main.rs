//! The integration tests: one binary, one module for each theme.

#![expect(clippy::unwrap_used, reason = "a panic with its line is a test's report, in its helpers too")]

mod docs;

use tidemill_tests::server::{self, Reply};

#[test]
fn a_private_server_answers() {
    let server = server::start();
    assert_eq!(server.command(&["PING"]).unwrap(), Reply::Simple("PONG".to_owned()));
}
