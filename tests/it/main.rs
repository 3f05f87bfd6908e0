//! The integration tests: one binary, one module for each theme.

mod docs;

use tidemill_tests::server::{self, Reply};

#[test]
fn a_private_server_answers() {
    let server = server::start();
    assert_eq!(server.command(&["PING"]).unwrap(), Reply::Simple("PONG".to_owned()));
}
