//! What an operator does to one task: cancel.

use fred::prelude::Value;

use super::reply::Reply;
use super::{Error, Store};
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
}
