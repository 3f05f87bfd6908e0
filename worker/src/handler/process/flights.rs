//! The tasks that one child has in hand.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::time::Instant;

use super::Outcome;
use super::pool::Request;
use super::wire::Word;

/// A task with the child, or waiting for it to be ready.
pub(super) struct Flight {
    pub(super) request: Request,
    /// The child has been given it.
    pub(super) sent: bool,
    /// When it was called off.
    pub(super) called_off: Option<Instant>,
    /// Why its success cannot count: a follow-up of it was refused.
    spoiled: Option<String>,
}

type CalledOff = Pin<Box<dyn Future<Output = u64> + Send>>;

/// All of them, by request number.
#[derive(Default)]
pub(super) struct Flights {
    open: BTreeMap<u64, Flight>,
    last: u64,
    called_off: FuturesUnordered<CalledOff>,
}

impl Flights {
    /// Takes a task in, under a new number.
    pub(super) fn begin(&mut self, request: Request) -> u64 {
        self.last += 1;
        let (number, stop) = (self.last, request.stop.clone());
        self.called_off.push(Box::pin(async move {
            stop.cancelled().await;
            number
        }));
        self.open.insert(number, Flight { request, sent: false, called_off: None, spoiled: None });
        number
    }

    /// The next one that is called off; pending for ever when there is none. Cancel safe.
    pub(super) async fn next_called_off(&mut self) -> u64 {
        match self.called_off.next().await {
            Some(number) => number,
            None => std::future::pending().await,
        }
    }

    pub(super) fn get(&mut self, number: u64) -> Option<&mut Flight> {
        self.open.get_mut(&number)
    }

    /// Those that the child has not been given yet.
    pub(super) fn unsent(&mut self) -> impl Iterator<Item = (u64, &mut Flight)> {
        self.open.iter_mut().filter(|(_, f)| !f.sent).map(|(number, f)| (*number, f))
    }

    /// When the first of those that were called off was.
    pub(super) fn first_called_off(&self) -> Option<Instant> {
        self.open.values().filter_map(|f| f.called_off).min()
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<Flight> {
        self.open.remove(&number)
    }

    /// All that are left, in order.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Flight> {
        std::mem::take(&mut self.open).into_values()
    }

    /// Which flight a word is about. None: one that is over, which is no mistake, since answers and calls may cross.
    ///
    /// # Errors
    /// When the number is missing and needed, or was never given out.
    pub(super) fn about(&self, number: Option<u64>) -> Result<Option<u64>, String> {
        match number {
            Some(number) if number > self.last || number == 0 => {
                Err(format!("the child speaks of request {number}, which it was not given"))
            }
            Some(number) => Ok(self.open.get(&number).filter(|f| f.sent).map(|_| number)),
            None => {
                let mut sent = self.open.iter().filter(|(_, f)| f.sent);
                match (sent.next(), sent.next()) {
                    (Some((number, _)), None) => Ok(Some(*number)),
                    (None, _) => Ok(None),
                    _ => Err("the child has several tasks and does not say which request it means".into()),
                }
            }
        }
    }

    /// Takes a word about a flight; true when the flight is over.
    pub(super) fn hear(&mut self, number: u64, word: Word) -> bool {
        let Some(flight) = self.open.get_mut(&number) else { return false };
        let context = &flight.request.context;
        match word {
            Word::Progress(text) => context.progress(text),
            Word::Spend(used) => context.spend(used),
            // Taken by whoever reads the child, since it may have to wait.
            Word::Output(_) => {}
            Word::Submit(task) => {
                let accepted = task.and_then(|task| context.submit(*task).map_err(|e| e.to_string()));
                if let Err(why) = accepted {
                    flight.spoiled.get_or_insert(format!("a follow-up was refused: {why}"));
                }
            }
            Word::End(outcome) => {
                if let Some(flight) = self.open.remove(&number) {
                    let outcome = match (outcome, flight.spoiled) {
                        (Outcome::Done(_), Some(reason)) => Outcome::Dead { reason },
                        (outcome, _) => outcome,
                    };
                    flight.request.answer(outcome);
                }
                return true;
            }
        }
        false
    }
}
