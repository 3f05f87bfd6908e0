//! What an operator does and sees, beyond single tasks: pauses, schedules, workers, output.

use std::time::Duration;

use tidemill_common::name::{ScheduleName, TaskId};
use tidemill_common::schedule::{self, Schedule};
use tidemill_common::store::{Kept, Pausable, Pause, ScheduleSet, ServerFacts, Tail, Tuned, WorkerSeen};

use crate::client::{Client, firmly};
use crate::error::Error;

impl Client {
    /// Holds back a queue, an agent, a tenant or everything, perhaps only for so long; what runs, runs on. One write, however much
    /// waits. False: 256 things are paused already.
    ///
    /// # Errors
    /// When Redis does not answer. Asking again is safe.
    pub async fn pause(&self, what: &Pausable, for_: Option<Duration>, why: &str) -> Result<bool, Error> {
        Ok(firmly(|| self.store().pause(what, for_, why)).await?)
    }

    /// Lets it go on. False: it was not paused.
    ///
    /// # Errors
    /// When Redis does not answer. Asking again is safe.
    pub async fn resume(&self, what: &Pausable) -> Result<bool, Error> {
        Ok(firmly(|| self.store().resume(what)).await?)
    }

    /// All that is held back.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn pauses(&self) -> Result<Vec<Pause>, Error> {
        Ok(firmly(|| self.store().pauses()).await?)
    }

    /// Puts a schedule in force, in place of one of its name. Its first slot is the next one from now, by the server's clock. Returns
    /// that slot, server ms; none: it is paused.
    ///
    /// # Errors
    /// [`Error::Schedule`] before anything is sent; [`Error::TooManySchedules`]; or when Redis does not answer, and then asking again
    /// is safe.
    pub async fn set_schedule(&self, schedule: &Schedule) -> Result<Option<u64>, Error> {
        self.check(&schedule.task())?;
        let now_ms = self.counts().await?.now_ms;
        let first = schedule.check(now_ms)?;
        let next = (!schedule.paused).then_some(first);
        match firmly(|| self.store().set_schedule(schedule, next)).await? {
            ScheduleSet::Set => Ok(next),
            ScheduleSet::Full => Err(Error::TooManySchedules { most: schedule::SCHEDULES_MAX }),
        }
    }

    /// Deletes a schedule; tasks that it has handed in stay. False: there was none.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn delete_schedule(&self, name: &ScheduleName) -> Result<bool, Error> {
        Ok(firmly(|| self.store().delete_schedule(name)).await?)
    }

    /// All schedules, by name.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn schedules(&self) -> Result<Vec<Kept>, Error> {
        Ok(firmly(|| self.store().schedules()).await?)
    }

    /// Who is there and what each runs, and the server's time in ms.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn workers(&self) -> Result<(u64, Vec<WorkerSeen>), Error> {
        Ok(firmly(|| self.store().workers()).await?)
    }

    /// Says how many tasks run at once, while workers run; none: as their own options say. False: 256 such numbers are said already.
    ///
    /// # Errors
    /// When Redis does not answer. Asking again is safe.
    pub async fn tune(&self, what: &Tuned, most: Option<u32>) -> Result<bool, Error> {
        Ok(firmly(|| self.store().tune(what, most)).await?)
    }

    /// All numbers that were said so.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn tunes(&self) -> Result<Vec<(Tuned, u32)>, Error> {
        Ok(firmly(|| self.store().tunes()).await?)
    }

    /// Follows the output of a task's run, on a connection of its own: from what is kept of it, or after an entry that was read before.
    ///
    /// # Errors
    /// When Redis cannot be reached.
    pub async fn tail(&self, id: &TaskId, after: Option<String>) -> Result<Tail, Error> {
        Ok(self.store().tail(id, after).await?)
    }

    /// What the server says of itself.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn server_facts(&self) -> Result<ServerFacts, Error> {
        Ok(firmly(|| self.store().server_facts()).await?)
    }
}
