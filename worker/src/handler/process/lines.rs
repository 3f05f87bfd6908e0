//! A child's output, line by line, bounded.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidemill_common::name::AgentName;
use tidemill_common::task::PAYLOAD_BYTES_MAX;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, BufReader};
use tokio::process::ChildStderr;
use tokio::time::Instant;

use crate::handler::text;

/// Longest line of the protocol: the largest payload as base64 (four thirds of it), and room for what is around it.
pub(super) const LINE_BYTES_MAX: usize = PAYLOAD_BYTES_MAX / 3 * 4 + (64 << 10);
/// Longest line of a log; the rest of it is dropped.
const LOG_BYTES_MAX: usize = 4 << 10;
/// Most lines of one child in a log, in one [`LOG_SPAN`].
const LOG_LINES_MAX: u32 = 100;
const LOG_SPAN: Duration = Duration::from_secs(1);
/// How much of the last word of a dead child is told.
const LAST_CHARS_MAX: usize = 200;

/// What came of reading a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// A line, without its end.
    Line(Vec<u8>),
    /// A line longer than allowed: its beginning.
    Long(Vec<u8>),
    /// There is no more.
    End,
}

/// Reads a line of at most `most` bytes. Of a longer one the rest is skipped, up to its end.
pub(super) async fn read_line(from: &mut (impl AsyncBufRead + Unpin), most: usize) -> io::Result<Read> {
    let (mut line, mut long) = (Vec::new(), false);
    loop {
        let buffer = from.fill_buf().await?;
        if buffer.is_empty() {
            return Ok(if line.is_empty() { Read::End } else { whole(line, long) });
        }
        let end = buffer.iter().position(|b| *b == b'\n');
        let part = &buffer[..end.unwrap_or(buffer.len())];
        let room = most - line.len();
        long |= part.len() > room;
        line.extend_from_slice(&part[..part.len().min(room)]);
        let used = end.map_or(buffer.len(), |at| at + 1);
        from.consume(used);
        if end.is_some() {
            return Ok(whole(line, long));
        }
    }
}

fn whole(line: Vec<u8>, long: bool) -> Read {
    if long { Read::Long(line) } else { Read::Line(line) }
}

/// The end of what a child has written to its standard error.
#[derive(Debug, Clone, Default)]
pub(super) struct LastWords(Arc<Mutex<Vec<u8>>>);

impl LastWords {
    fn hear(&self, line: &[u8]) {
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        heard.extend_from_slice(line);
        heard.push(b'\n');
        let excess = heard.len().saturating_sub(LOG_BYTES_MAX);
        heard.drain(..excess);
    }

    /// The last line that is not blank, shortened.
    pub(super) fn line(&self) -> String {
        let heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = heard.split(|byte| *byte == b'\n').rev().map(String::from_utf8_lossy);
        let mut lines = lines.map(|line| line.trim_end().chars().take(LAST_CHARS_MAX).collect::<String>());
        lines.find(|line| !line.trim().is_empty()).unwrap_or_default()
    }

    /// The last lines, made fit for an error.
    pub(super) fn excerpt(&self) -> String {
        text::end(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Puts what a child writes to its standard error into our log, at a bounded rate.
pub(super) async fn log(agent: AgentName, pid: u32, errors: ChildStderr, last: LastWords) {
    let mut from = BufReader::new(errors);
    let (mut span, mut lines, mut dropped) = (Instant::now(), 0_u32, 0_u64);
    while let Ok(Read::Line(line) | Read::Long(line)) = read_line(&mut from, LOG_BYTES_MAX).await {
        if span.elapsed() >= LOG_SPAN {
            (span, lines) = (Instant::now(), 0);
        }
        last.hear(&line);
        lines += 1;
        if lines > LOG_LINES_MAX {
            dropped += 1;
            continue;
        }
        if dropped > 0 {
            tracing::warn!(%agent, pid, dropped, "the child writes faster than its log may grow; lines were dropped");
            dropped = 0;
        }
        tracing::info!(%agent, pid, line = String::from_utf8_lossy(&line).trim_end(), "child");
    }
}
