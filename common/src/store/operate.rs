//! What an operator does: cancel, apply the book.

use fred::prelude::Value;

use super::reply::Reply;
use super::{Error, Store};
use crate::book::Compiled;
use crate::name::TaskId;
use crate::state::State;

/// What a cancel did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// It waited, and is cancelled.
    Now(State),
    /// It runs: its worker was told.
    Signalled,
    /// It had ended already.
    Ended(State),
    /// Nothing is known of it.
    Unknown,
}

/// What became of a book.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// It is in force.
    Applied,
    /// It was in force already.
    Same,
    /// Its revision is in force with other content.
    Conflict,
    /// A newer revision is in force.
    Older(u64),
}

impl Store {
    /// Calls a task off: at once if it waits, through its worker if it runs.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn cancel(&self, id: &TaskId) -> Result<Cancelled, Error> {
        let mut r = Reply::array("cancel", self.call(|s| &s.cancel, vec![Value::from(id.as_str())]).await?)?;
        let (what, before) = (r.text()?, r.text()?);
        Ok(match (what.as_str(), before.parse::<State>()) {
            ("cancelled", Ok(before)) if !before.has_ended() => Cancelled::Now(before),
            ("signalled", _) => Cancelled::Signalled,
            (_, Ok(state)) => Cancelled::Ended(state),
            _ => Cancelled::Unknown,
        })
    }

    /// Puts a book in force, at once for every claim; then lets those in line meet it, page by page.
    ///
    /// # Errors
    /// When Redis does not answer. Applying the same book again is safe.
    pub async fn apply_book(&self, book: &Compiled) -> Result<Applied, Error> {
        let mut args: Vec<Value> = vec![book.revision.to_string().into(), book.print.as_str().into()];
        args.push(Value::from_static_str("masks"));
        args.push(book.masks.as_str().into());
        for (field, rules) in &book.fields {
            args.push(field.as_str().into());
            args.push(rules.as_str().into());
        }
        let mut r = Reply::array("book", self.call(|s| &s.book, args).await?)?;
        let (what, revision) = (r.text()?, r.number()?);
        let applied = match what.as_str() {
            "applied" => Applied::Applied,
            "same" => Applied::Same,
            "conflict" => return Ok(Applied::Conflict),
            _ => return Ok(Applied::Older(revision)),
        };
        let mut cursor = "0".to_owned();
        loop {
            let next = self.call(|s| &s.refresh, vec![Value::from(cursor.as_str())]).await?;
            cursor = next.as_string().unwrap_or_else(|| "0".into());
            if cursor == "0" {
                return Ok(applied);
            }
        }
    }
}
