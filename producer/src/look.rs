//! One task, as it is: its state, its result, its payload, both as they were before any codec.

use std::collections::BTreeMap;

use tidemill_common::envelope;
use tidemill_common::name::TaskId;
use tidemill_common::state::State;
use tidemill_common::store::{self, GateSeen, LineSeen, Status};
use tidemill_common::task::Task;
use tidemill_payloads::Payloads;

use crate::client::{Client, firmly};
use crate::error::Error;

impl Client {
    /// A gate, and where a task stands in its line.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn gate(&self, gate: &str, id: &TaskId) -> Result<GateSeen, Error> {
        Ok(firmly(|| self.store().gate(gate, id)).await?)
    }

    /// The gates at which tasks wait, by name.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn lines(&self) -> Result<BTreeMap<String, LineSeen>, Error> {
        Ok(firmly(|| self.store().lines()).await?)
    }

    /// Where a task is and how it fared. Its result is decoded.
    ///
    /// # Errors
    /// When Redis does not answer; [`Error::Payload`] when it has a result that cannot be decoded here.
    pub async fn status(&self, id: &TaskId) -> Result<Status, Error> {
        let mut status = self.status_encoded(id).await?;
        self.decode_result(id, &mut status)?;
        Ok(status)
    }

    /// As [`Self::status`], with the result as it is kept: [`Self::decode_result`] decodes it.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn status_encoded(&self, id: &TaskId) -> Result<Status, Error> {
        Ok(firmly(|| self.store().status(id, None)).await?)
    }

    /// Decodes the result that a status has, if it has one.
    ///
    /// # Errors
    /// [`Error::Payload`], which says which key is missing; the status is as it was then.
    pub fn decode_result(&self, id: &TaskId, status: &mut Status) -> Result<(), Error> {
        if status.state == Some(State::Succeeded) {
            let decoded = self.payloads().decode_result(id, &status.data);
            status.data = decoded.map_err(|source| Error::Payload { id: id.clone(), source })?;
        }
        Ok(())
    }

    /// A task that has not ended, or is dead, with its payload as it was handed in. None: there is no such task (any more).
    ///
    /// # Errors
    /// When Redis does not answer; [`Error::Payload`] when the payload cannot be had here; [`store::Error::Reply`] when what it has cannot
    /// be read.
    pub async fn task(&self, id: &TaskId) -> Result<Option<Task>, Error> {
        let Some(envelope) = firmly(|| self.store().envelope(id)).await? else { return Ok(None) };
        let unreadable = |e: envelope::Error| store::Error::Reply { op: "envelope", what: e.to_string() };
        let mut task = envelope::open(id.clone(), &envelope).map_err(unreadable)?;
        if task.payload_apart {
            // Gone between the two looks: so has the task.
            let Some(payload) = firmly(|| self.store().payload(id.as_str())).await? else { return Ok(None) };
            (task.payload, task.payload_apart) = (payload, false);
        }
        if Payloads::is_encoded(&task) {
            let decoded = self.payloads().decode_task(&mut task).await;
            decoded.map_err(|source| Error::Payload { id: id.clone(), source })?;
        }
        Ok(Some(task))
    }
}
