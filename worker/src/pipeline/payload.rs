//! Payloads on their way to a handler, results and follow-ups on their way back.
//!
//! - *It guarantees* that a handler gets the bytes that were handed in, or is not run.
//! - *It refuses* a payload that is not the one: the task is dead, `invalid: …`, and can be replayed. What this worker merely lacks (a
//!   codec, a key, a store) spoils no task: it comes again in about a minute, here or elsewhere, and says why in its status. A store
//!   that is away is asked again sooner. Neither counts as an attempt.
//! - *On a crash* nothing is said; an object that a follow-up was to refer to may stay in its store.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use tidemill_common::envelope;
use tidemill_common::store::{RedisOptions, Store, Verb};
use tidemill_common::task::{NewTask, Task};
use tidemill_payloads::{Error, Fault, Payloads as Chain};
use tokio::sync::OnceCell;

use super::run::{dead, delay_ms, retry, unreadable};
use super::stage::Ended;

/// How soon a task comes again that this worker lacks something for.
const LACKING: Duration = Duration::from_secs(60);
/// How soon one comes again whose store is away.
const AWAY: Duration = Duration::from_secs(10);
/// Follow-ups of one run that are encoded at once, some of them into a store.
const PUTS: usize = 16;

/// Fetches payloads that lie apart, on a connection of its own: megabytes must not stand before a renewal. Decodes and encodes.
#[derive(Debug)]
pub(crate) struct Payloads {
    redis: RedisOptions,
    store: OnceCell<Store>,
    chain: Arc<Chain>,
}

impl Payloads {
    pub(crate) fn new(redis: RedisOptions, chain: Arc<Chain>) -> Self {
        Self { redis, store: OnceCell::new(), chain }
    }

    /// Whether [`Self::read`] has anything to do.
    pub(crate) fn is_to_be_read(task: &Task) -> bool {
        task.payload_apart || Chain::is_encoded(task)
    }

    /// Makes the payload what was handed in, or says how the run ends without it.
    pub(crate) async fn read(&self, task: &mut Task) -> Result<(), Ended> {
        if task.payload_apart {
            self.fetch(task).await?;
        }
        if Chain::is_encoded(task) {
            self.chain.decode_task(task).await.map_err(|error| Ended::Answered(unread(task, &error)))?;
        }
        Ok(())
    }

    async fn fetch(&self, task: &mut Task) -> Result<(), Ended> {
        let fetched = async {
            let store = self.store.get_or_try_init(|| Store::connect(&self.redis)).await?;
            store.payload(task.id.as_str()).await
        };
        match fetched.await {
            Ok(Some(payload)) => {
                task.payload = payload;
                Ok(())
            }
            Ok(None) => Err(Ended::Answered(unreadable("invalid: its payload is gone".to_owned()))),
            // Redis is away: no fault of the task's. It is handed back, to run where its payload can be had.
            Err(e) if e.is_transient() => Err(Ended::Answered(Verb::Release)),
            Err(e) => Err(Ended::Answered(unreadable(format!("invalid: its payload cannot be read: {e}")))),
        }
    }

    /// Makes of a run's result and follow-ups what is settled. A run that has not succeeded has neither.
    pub(crate) async fn write(
        &self,
        task: &Task,
        attempt: u16,
        ended: Ended,
        follow_ups: Vec<NewTask>,
    ) -> (Ended, Vec<NewTask>) {
        let Ended::Answered(Verb::Done { result, keep_ms }) = ended else { return (ended, follow_ups) };
        let encoded = match self.chain.encode_result(&task.id, result) {
            Ok(result) => self.encode(follow_ups).await.map(|follow_ups| (result, follow_ups)),
            Err(error) => Err(error),
        };
        let failed = match encoded {
            Ok((result, follow_ups)) => {
                // What the codecs have added to it may be too much; plain ones were looked at before.
                let coded = if self.chain.is_plain() { &[][..] } else { &follow_ups };
                match coded.iter().find_map(|task| envelope::seal(task).err()) {
                    None => return (Ended::Answered(Verb::Done { result, keep_ms }), follow_ups),
                    Some(unfit) => dead(format!("a follow-up cannot be handed in: {unfit}")),
                }
            }
            Err(error) => {
                let said = format!("its result or a follow-up cannot be encoded: {}", error.told());
                // The run is repeated, and this one counts: it may have done something.
                if error.fault() == Fault::Payload { dead(said) } else { retry(said, delay_ms(task, attempt)) }
            }
        };
        (Ended::Answered(failed), Vec::new())
    }

    async fn encode(&self, follow_ups: Vec<NewTask>) -> Result<Vec<NewTask>, Error> {
        if self.chain.is_plain() {
            return Ok(follow_ups);
        }
        stream::iter(follow_ups).map(|task| self.chain.encode_task(task)).buffered(PUTS).try_collect().await
    }
}

/// How a run ends that has no payload.
fn unread(task: &Task, error: &Error) -> Verb {
    let after = match error.fault() {
        Fault::Payload => return unreadable(format!("invalid: {}", error.told())),
        Fault::Lacking => LACKING,
        Fault::Away => AWAY,
    };
    tracing::warn!(task = %task.id, agent = %task.agent, error = error.told(), "a payload cannot be had here");
    // Many such tasks should not all come back together.
    let after = after.mul_f64(rand::random_range(0.8..1.2));
    super::run::throttled(format!("its payload cannot be had: {}", error.told()), after)
}
