//! The ear: one blocking read a process, on its control list and, while it sleeps with room, on the doorbell.
//!
//! The read is a task of its own that is never cancelled: a read that is dropped half-way may have taken a ring, or a note that a task
//! is called off. What it may listen to is decided anew each round:
//!
//! - *Asleep with room*: control list and bell. A ring means that there may be work.
//! - *Otherwise* (no room, or busy claiming): the control list alone, so that rings go to those who can use them. When such a worker
//!   falls asleep, its read would miss the bell until its time is up; so it nudges itself with a note on its own list, which ends the
//!   round at once. A note may be lost with the server's data before it is read: while the round does not end, another is sent.
//! - A worker that fills up while its read is on the bell may take one ring that it cannot use. It passes it on (see [`super::claim`]).
//!
//! After a ring the next round waits for the answer to the claim, which says what the worker will be: asleep again or full.

use std::sync::Arc;
use std::time::Duration;

use tidemill_common::name::WorkerId;
use tidemill_common::store::{Bell, Error, Heard, Store};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use super::Event;
use crate::trouble::{Trouble, pause};

/// How long one read blocks: an idle worker sends six of them a minute.
pub(crate) const BLOCK: Duration = Duration::from_secs(10);
/// How long a nudge has before another is sent.
const NUDGE_AGAIN: Duration = Duration::from_secs(1);

/// One read: whose control list, and whether the bell as well.
type Round = (WorkerId, bool);

/// The pipeline's side of the ear.
#[derive(Debug)]
pub(crate) struct Ear {
    rounds: UnboundedSender<Round>,
    /// The read that is under way.
    round: Option<Round>,
    /// When the read under way was told to end.
    nudged: Option<Instant>,
}

impl Ear {
    /// The ear, and the task that listens for as long as it is not dropped.
    pub(crate) fn new(
        store: Arc<Store>,
        trouble: Arc<Trouble>,
        events: UnboundedSender<Event>,
    ) -> (Self, impl Future<Output = ()>) {
        let (rounds, asked) = unbounded_channel();
        (Self { rounds, round: None, nudged: None }, listen(store, trouble, asked, events))
    }

    /// Listens as is wanted now. True: the read under way listens to something else; nudge it to its end, on the list of the id that
    /// [`Self::listens_as`] says.
    pub(crate) fn want(&mut self, who: &WorkerId, with_bell: bool, now: Instant) -> bool {
        match &self.round {
            None => {
                self.round = Some((who.clone(), with_bell));
                let _ = self.rounds.send((who.clone(), with_bell));
                false
            }
            // On the bell without need: left as it is, a ring will end it.
            Some((id, bell)) if id == who && (*bell || !with_bell) => false,
            Some(_) if self.nudged.is_some_and(|at| now < at + NUDGE_AGAIN) => false,
            Some(_) => {
                self.nudged = Some(now);
                true
            }
        }
    }

    /// The id on whose list the read under way is.
    pub(crate) fn listens_as(&self) -> Option<&WorkerId> {
        self.round.as_ref().map(|(id, _)| id)
    }

    /// A nudge could not be sent: it may be tried again.
    pub(crate) fn nudge_failed(&mut self) {
        self.nudged = None;
    }

    /// The read has ended. True: it was on the bell, and a ring may be one of the bell's.
    pub(crate) fn ended(&mut self) -> bool {
        self.nudged = None;
        self.round.take().is_some_and(|(_, bell)| bell)
    }
}

/// Reads, round by round, as asked.
async fn listen(
    store: Arc<Store>,
    trouble: Arc<Trouble>,
    mut asked: UnboundedReceiver<Round>,
    events: UnboundedSender<Event>,
) {
    let mut bell: Option<Bell> = None;
    let mut tries = 0;
    while let Some((who, with_bell)) = asked.recv().await {
        let heard = hear(&store, &mut bell, &who, with_bell).await;
        match &heard {
            Ok(_) => tries = 0,
            Err(error) => {
                trouble.tell("listen", error);
                tokio::time::sleep(pause(tries)).await;
                tries += 1;
            }
        }
        if events.send(Event::Heard(heard)).is_err() {
            break;
        }
    }
    if let Some(bell) = bell {
        bell.close().await;
    }
}

async fn hear(store: &Store, bell: &mut Option<Bell>, who: &WorkerId, with_bell: bool) -> Result<Heard, Error> {
    let bell = match bell {
        Some(bell) => bell,
        None => bell.insert(store.bell().await?),
    };
    bell.listen(who.as_str(), with_bell, BLOCK).await
}
