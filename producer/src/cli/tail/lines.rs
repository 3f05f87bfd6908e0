//! What a tail shows: for people, or a line of JSON each; and what is void, or missing.

use std::io::{self, Write as _};

use bytes::Bytes;
use serde::Serialize;
use tidemill_common::name::Fence;
use tidemill_common::store::Piece;
use tidemill_producer::{Ended, Status, TaskId, Waited};

use super::super::exit::Failure;
use super::super::output::{Out, printable};
use super::super::view::{WaitedView, state_name};
use super::super::words::{self, span};

/// A line of JSON.
#[derive(Debug, Serialize)]
struct Line<'a> {
    entry: Option<&'a str>,
    #[serde(flatten)]
    said: Said<'a>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Said<'a> {
    State {
        state: &'static str,
        gate: Option<&'a str>,
        worker: Option<&'a str>,
        attempt: u64,
    },
    Progress {
        text: &'a str,
        attempt: u64,
    },
    Output {
        attempt: u16,
        offset: u64,
        #[serde(flatten)]
        data: Data<'a>,
    },
    Restart {
        attempt: u64,
    },
    Gap {
        missing: u64,
    },
    End(WaitedView),
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Data<'a> {
    Text(&'a str),
    Hex(String),
}

/// The run whose output is shown.
#[derive(Debug, Clone, Copy)]
struct Run {
    fence: Fence,
    /// How much of its output was shown, or is told as missing.
    read: u64,
    /// Some of it, or of one before it, was shown.
    shown: bool,
}

/// Shows what comes.
pub(super) struct Lines<'a> {
    out: &'a Out,
    json: bool,
    /// The last entry that was shown.
    entry: Option<String>,
    /// Until it comes, what comes was shown by an earlier tail.
    resume: Option<String>,
    run: Option<Run>,
    state: String,
    progress: String,
    screen: Screen,
}

impl<'a> Lines<'a> {
    pub(super) fn new(out: &'a Out, from: Option<String>) -> Self {
        Self {
            out,
            json: out.asked.is_some_and(|format| format != super::super::output::Format::Table),
            entry: from.clone(),
            resume: from,
            run: None,
            state: String::new(),
            progress: String::new(),
            screen: Screen::default(),
        }
    }

    fn say(&self, said: Said<'_>) -> io::Result<()> {
        let line = Line { entry: self.entry.as_deref(), said };
        self.out.line(&serde_json::to_string(&line)?)
    }

    /// A remark for people, on a line of its own.
    fn note(&mut self, text: &str) {
        if !self.out.quiet {
            self.warn(text);
        }
    }

    pub(super) fn warn(&mut self, text: &str) {
        if self.out.terminal && std::mem::take(&mut self.screen.within_line) {
            let _ = io::stdout().lock().write_all(b"\n");
        }
        self.out.warn(text);
    }

    pub(super) fn status(&mut self, status: &Status) -> Result<(), Failure> {
        let now = words::brief(status);
        if now != self.state {
            if self.json {
                let worker = Some(status.worker.as_str()).filter(|worker| !worker.is_empty());
                let (state, gate, attempt) = (state_name(status.state), status.gate.as_deref(), status.attempt);
                self.say(Said::State { state, gate, worker, attempt })?;
            } else {
                self.note(&format!("  {now}"));
            }
            self.state = now;
            self.progress.clear();
        }
        if !status.progress.is_empty() && status.progress != self.progress {
            if self.json {
                self.say(Said::Progress { text: &status.progress, attempt: status.attempt })?;
            } else {
                self.note(&format!("  progress: {}", printable(&status.progress)));
            }
            self.progress.clone_from(&status.progress);
        }
        self.run(status.fence, status.attempt)
    }

    /// Whether it is the first piece of a run that was not met before.
    pub(super) fn is_new_run(&self, piece: &Piece) -> bool {
        self.run.is_none_or(|run| run.fence < piece.fence)
    }

    /// A run was met: of its output, or in the status. What came before is void.
    pub(super) fn run(&mut self, fence: Fence, attempt: u64) -> Result<(), Failure> {
        let shown = match self.run {
            Some(run) if run.fence >= fence => return Ok(()),
            Some(run) => run.shown,
            // Nothing is known of what an earlier tail has shown, until a piece tells.
            None if fence.0 == 0 || self.resume.is_some() => return Ok(()),
            None => false,
        };
        if shown {
            self.restart(attempt)?;
        }
        self.run = Some(Run { fence, read: 0, shown: false });
        Ok(())
    }

    fn restart(&mut self, attempt: u64) -> Result<(), Failure> {
        self.screen.carry.clear();
        if self.json {
            self.say(Said::Restart { attempt })?;
        } else {
            self.warn(&format!("  a new attempt ({attempt}): the output before it is void"));
        }
        Ok(())
    }

    pub(super) fn piece(&mut self, piece: Piece) -> Result<(), Failure> {
        let end = piece.offset + piece.data.len() as u64;
        if let Some(resume) = self.resume.take() {
            if resume == piece.entry {
                self.run = Some(Run { fence: piece.fence, read: end, shown: true });
                return Ok(());
            }
            // It is gone. A piece at the start of a run says that a new one has begun; any other that something may be missing.
            if piece.offset == 0 {
                self.restart(u64::from(piece.attempt))?;
            } else {
                self.gap(1)?;
            }
            self.run = Some(Run { fence: piece.fence, read: piece.offset, shown: true });
        }
        self.run(piece.fence, u64::from(piece.attempt))?;
        let Some(run) = self.run.filter(|run| run.fence == piece.fence) else { return Ok(()) };
        if piece.offset > run.read {
            self.gap(piece.offset - run.read)?;
        }
        self.run = Some(Run { read: end.max(run.read), shown: true, ..run });
        self.entry = Some(piece.entry);
        self.data(piece.attempt, piece.offset, &piece.data)?;
        Ok(())
    }

    fn gap(&mut self, missing: u64) -> Result<(), Failure> {
        self.screen.carry.clear();
        if self.json {
            self.say(Said::Gap { missing })?;
        } else {
            self.warn(&format!("  {missing} bytes or more of the output are not kept any more"));
        }
        Ok(())
    }

    fn data(&mut self, attempt: u16, offset: u64, data: &Bytes) -> io::Result<()> {
        if self.json {
            let hex = || data.iter().map(|byte| format!("{byte:02x}")).collect();
            let data = std::str::from_utf8(data).map_or_else(|_| Data::Hex(hex()), Data::Text);
            return self.say(Said::Output { attempt, offset, data });
        }
        let mut stdout = io::stdout().lock();
        if self.out.terminal {
            stdout.write_all(self.screen.fit(data).as_bytes())?;
        } else {
            stdout.write_all(data)?;
        }
        stdout.flush()
    }

    pub(super) fn end(&mut self, id: &TaskId, waited: &Waited) -> Result<(), Failure> {
        if self.json {
            self.say(Said::End(WaitedView::of(id, waited)))?;
        } else if let Waited::Ended(Ended { attempt, ended_ms, started_ms, result, .. }) = waited
            && waited.ended().is_some_and(Ended::is_success)
        {
            let more = if result.is_empty() { String::new() } else { format!("; its result: `producer status {id}`") };
            self.note(&format!(
                "  succeeded (attempt {attempt}, {}){more}",
                span(ended_ms.saturating_sub(*started_ms))
            ));
        } else if self.screen.within_line && self.out.terminal {
            io::stdout().lock().write_all(b"\n")?;
        }
        Ok(())
    }
}

/// Output on a terminal, which it must not steer, and whose letters may come in parts.
#[derive(Debug, Default)]
struct Screen {
    carry: Vec<u8>,
    within_line: bool,
}

impl Screen {
    fn fit(&mut self, data: &[u8]) -> String {
        self.carry.extend_from_slice(data);
        let whole = match std::str::from_utf8(&self.carry) {
            // Without an error length, a letter has only begun.
            Err(e) if e.error_len().is_none() => e.valid_up_to(),
            _ => self.carry.len(),
        };
        let rest = self.carry.split_off(whole);
        let text = printable(&String::from_utf8_lossy(&std::mem::replace(&mut self.carry, rest)));
        if let Some(last) = text.chars().last() {
            self.within_line = last != '\n';
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_that_is_no_text_is_shown_in_digits() {
        let said = Said::Output { attempt: 1, offset: 2, data: Data::Hex("ff".into()) };
        let line = serde_json::to_string(&Line { entry: Some("1-0"), said }).unwrap();
        assert_eq!(line, r#"{"entry":"1-0","kind":"output","attempt":1,"offset":2,"hex":"ff"}"#);
    }

    #[test]
    fn a_letter_that_comes_in_parts_is_whole_on_a_terminal() {
        let mut screen = Screen::default();
        assert_eq!(screen.fit(b"a\xc3"), "a");
        assert_eq!(screen.fit(b"\xa9\x1b[2J\n"), "\u{e9}\\u{1b}[2J\n");
        assert!(!screen.within_line);
        assert_eq!(screen.fit(b"\xff!"), "\u{fffd}!");
        assert!(screen.within_line && screen.carry.is_empty());
    }
}
