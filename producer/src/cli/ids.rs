//! Ids of tasks: given as arguments, or one a line on stdin.

use std::io::{BufRead as _, IsTerminal as _, Read as _};

use tidemill_producer::TaskId;

use super::codes::Code;
use super::exit::Failure;

/// An id and its line end fit in this; a longer line is none.
const LINE_BYTES_MAX: u64 = 1024;

/// The arguments of a verb about tasks.
#[derive(Debug, clap::Args)]
pub(crate) struct Ids {
    /// Ids of tasks; `-` reads them from stdin, one a line
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
}

impl Ids {
    /// All ids, in their order; `verb` is who asks.
    ///
    /// # Errors
    /// As [`read`].
    pub(crate) fn read(&self, verb: &str) -> Result<Vec<TaskId>, Failure> {
        read(&self.ids, verb)
    }
}

/// All ids, in their order; `verb` is who asks.
///
/// # Errors
/// The first that is none, and an empty list: a pipeline whose first part found nothing should say so.
pub(crate) fn read(words: &[String], verb: &str) -> Result<Vec<TaskId>, Failure> {
    let mut ids = Vec::new();
    for word in words {
        if word == "-" { read_stdin(&mut ids, verb)? } else { ids.push(parse(word)?) }
    }
    if ids.is_empty() { Err(Failure::usage(Code::NoId, "no id on stdin")) } else { Ok(ids) }
}

fn parse(word: &str) -> Result<TaskId, Failure> {
    word.parse().map_err(|e| Failure::usage(Code::NoId, format!("{word:?} is no id: {e}")))
}

fn read_stdin(ids: &mut Vec<TaskId>, verb: &str) -> Result<(), Failure> {
    let mut stdin = std::io::stdin().lock();
    if stdin.is_terminal() {
        return Err(Failure::at_terminal("the ids are to come", verb));
    }
    loop {
        let mut line = Vec::new();
        let read = stdin.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        match read.map_err(|e| Failure::cannot_read("stdin", &e))? {
            0 => return Ok(()),
            _ => match String::from_utf8_lossy(&line).trim() {
                "" => {}
                word => ids.push(parse(word)?),
            },
        }
    }
}
