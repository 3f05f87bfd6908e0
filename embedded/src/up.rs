//! Waiting for a started server to answer.

use std::io;
use std::process::Child;
use std::time::{Duration, Instant};

use crate::layout::Layout;
use crate::wait::poll_until;
use crate::{Error, Reply, lock};

/// A server that says it is loading its data is well; a large append-only file takes its time.
const LOADING_WITHIN: Duration = Duration::from_secs(600);

/// Asks until the server answers, has ended, or the time is over: `limit`, or [`LOADING_WITHIN`] once it says
/// that it is loading. The child is left as it is.
pub(crate) fn wait(child: &mut Child, layout: &Layout, limit: Duration, log_from: u64) -> Result<(), Error> {
    let started = Instant::now();
    let mut loading = false;
    let mut last = "never asked".to_owned();
    let verdict = poll_until(started + limit.max(LOADING_WITHIN), || {
        match child.try_wait() {
            Ok(Some(status)) => return Some(Err(Error::Exited { status, log: layout.log_tail(log_from) })),
            Ok(None) => {}
            Err(source) => return Some(Err(Error::Process { action: "wait for", source })),
        }
        match lock::ask(&layout.socket) {
            Ok(Reply::Error(text)) if text.starts_with("LOADING") => {
                loading = true;
                last = text;
            }
            // Any other answer, "authentication required" among them, comes from a server that is up.
            Ok(_) => return Some(Ok(())),
            Err(error) => last = describe(&error),
        }
        (!loading && started.elapsed() >= limit).then_some(Err(Error::NotRunning))
    });
    match verdict {
        None | Some(Err(Error::NotRunning)) => {
            Err(Error::NotReady { waited: started.elapsed(), last, log: layout.log_tail(log_from) })
        }
        Some(verdict) => verdict,
    }
}

fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "its socket is not there yet".to_owned(),
        io::ErrorKind::ConnectionRefused => "nothing listens on its socket yet".to_owned(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "it took the connection and said nothing".to_owned(),
        _ => error.to_string(),
    }
}
