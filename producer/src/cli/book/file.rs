//! A book's file.

use std::io::{IsTerminal as _, Read as _};
use std::path::PathBuf;

use tidemill_producer::Book;
use tidemill_producer::book::{Mistake, TEXT_BYTES_MAX};

use crate::cli::codes::Code;
use crate::cli::exit::Failure;

/// A book's file.
#[derive(Debug, clap::Args)]
pub(crate) struct File {
    /// The book, in TOML; `-` reads stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

impl File {
    /// The book, and its text.
    ///
    /// # Errors
    /// When it cannot be read, and every mistake in it.
    pub(crate) fn read(&self) -> Result<(Book, String), Failure> {
        let shown = self.file.display();
        let failed = |e: std::io::Error| Failure::cannot_read(&format!("the book {shown}"), &e);
        let mut text = String::new();
        // One byte more than it may have, so that a larger one is told from one that is cut.
        let most = TEXT_BYTES_MAX as u64 + 1;
        if self.file.as_os_str() == "-" {
            let stdin = std::io::stdin();
            if stdin.is_terminal() {
                return Err(Failure::at_terminal("the book is to come", "book"));
            }
            stdin.lock().take(most).read_to_string(&mut text).map_err(failed)?;
        } else {
            std::fs::File::open(&self.file)
                .and_then(|file| file.take(most).read_to_string(&mut text))
                .map_err(failed)?;
        }
        match Book::parse(&text) {
            Ok(book) => Ok((book, text)),
            Err(mistakes) => {
                let text = format!("the book {shown} has mistakes:{}", Mistake::lines(&mistakes));
                Err(Failure::usage(Code::BookMistakes, text))
            }
        }
    }
}
