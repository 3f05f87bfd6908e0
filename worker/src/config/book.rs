//! `[book]`: a book of rules that the worker brings along, applied at its start if its revision is higher than the one in force.

use std::path::PathBuf;

use serde::Deserialize;
use tidemill_common::book::Book;
use tidemill_common::store::{Applied, BookEdit, Error, Store};

/// Where the book is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Section {
    /// Empty: the worker brings none.
    file: PathBuf,
}

impl Section {
    /// The book and its text; none if the worker brings none.
    ///
    /// # Errors
    /// When it cannot be read, and every mistake in it.
    fn read(&self) -> Result<Option<(Book, String)>, Vec<String>> {
        if self.file.as_os_str().is_empty() {
            return Ok(None);
        }
        let shown = self.file.display();
        let text = std::fs::read_to_string(&self.file).map_err(|e| vec![format!("book.file: {shown}: {e}")])?;
        let of_book = |mistake: &_| format!("book.file: {shown}: {mistake}");
        Book::parse(&text).map(|book| Some((book, text))).map_err(|all| all.iter().map(of_book).collect())
    }

    pub(super) fn check(&self) -> Vec<String> {
        self.read().err().unwrap_or_default()
    }

    /// Puts it in force, unless a newer one is. Workers of one deployment bring the same book; whoever is first applies it.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub(crate) async fn apply(&self, store: &Store) -> Result<(), Error> {
        // It was read and checked with the configuration; one that was taken away since is not in force, and that is said.
        let (book, text) = match self.read() {
            Ok(Some(read)) => read,
            Ok(None) => return Ok(()),
            Err(wrong) => {
                tracing::error!(wrong = wrong.join("; "), "the book that this worker brings cannot be read any more");
                return Ok(());
            }
        };
        let (revision, edit) = (book.revision, BookEdit { follows: None, note: "brought by a worker" });
        match store.apply_book(&book.compile_as(text), edit).await? {
            Applied::Applied => tracing::info!(revision, "the book that this worker brings is in force now"),
            Applied::Same => tracing::info!(revision, "the book that this worker brings is in force"),
            Applied::Older(in_force) | Applied::Moved(in_force) => {
                tracing::info!(revision, in_force, "a newer book is in force than the one that this worker brings");
            }
            Applied::Conflict => tracing::error!(
                revision,
                "the book that this worker brings is not the one in force, and has its revision: give it a higher one"
            ),
        }
        Ok(())
    }
}
