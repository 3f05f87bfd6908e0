//! What is known while a key is broken: which calls got no answer, which deliveries there were; and what never may happen.

use std::collections::BTreeMap;

use tidemill_common::book::Book;
use tidemill_common::envelope::{open, seal};
use tidemill_common::store::{Accepted, Delivery};
use tidemill_common::task::NewTask;

use super::call::{Answer, Call};
use super::reference::{Known, Life, Reference};
use super::snapshot::Snapshot;
use super::{Verdict, ensure};

/// One broken key.
#[derive(Debug)]
pub struct Broken {
    /// Its name below the base.
    pub tail: String,
    /// It was deleted; else it is of another type.
    pub deleted: bool,
    /// What it was, to be put back.
    pub saved: Option<Vec<u8>>,
    /// The world before.
    pub before: Snapshot,
    /// Calls that were refused, to be sent again once it is repaired.
    pub refused: Vec<Call>,
    /// Books that were sent; one may be in force though its call was refused half-way.
    pub books: Vec<Book>,
    /// Tasks of refused calls: they may be in all the same.
    pub perhaps: Vec<NewTask>,
    fences: BTreeMap<String, u64>,
}

impl Broken {
    pub fn new(tail: String, deleted: bool, saved: Option<Vec<u8>>, before: Snapshot) -> Self {
        Self {
            tail,
            deleted,
            saved,
            before,
            refused: Vec::new(),
            books: Vec::new(),
            perhaps: Vec::new(),
            fences: BTreeMap::new(),
        }
    }

    /// Learns from an answer. A script may refuse because of a key of another type; it always ends, and an empty place is none.
    pub fn learn(&mut self, r: &mut Reference, call: &Call, answer: &Answer) -> Verdict {
        if let Answer::Failed(why) = answer {
            ensure!(
                !why.contains("imed out") && !why.contains("no answer"),
                "with {} broken {} does not end: {why}",
                self.tail,
                call.script()
            );
            ensure!(!self.deleted, "with {} deleted {} is refused: {why}", self.tail, call.script());
            if matches!(call, Call::Submit { .. } | Call::Settle { .. }) {
                self.refused.push(call.clone());
            }
            match call {
                Call::Submit { tasks, .. } => self.perhaps.extend(tasks.iter().cloned()),
                Call::Settle { items, .. } => {
                    self.perhaps.extend(items.iter().flat_map(|i| i.follow_ups.iter().cloned()))
                }
                _ => {}
            }
        }
        match (call, answer) {
            (Call::Submit { tasks, .. }, Answer::Submitted(answers)) => accepted(r, tasks.iter().zip(answers)),
            (Call::Settle { items, .. }, Answer::Settled(settled, answers)) => {
                let done = items.iter().zip(settled).filter(|(_, s)| **s == tidemill_common::store::Settled::Done);
                accepted(r, done.flat_map(|(i, _)| &i.follow_ups).zip(answers));
            }
            (Call::Claim { .. }, Answer::Claimed(claimed)) => {
                claimed.deliveries.iter().try_for_each(|d| self.delivered(r, d))?
            }
            (Call::Book { book }, _) => self.books.push(book.clone()),
            _ => {}
        }
        Ok(())
    }

    /// Its payload is what was handed in, and its fence never goes back.
    fn delivered(&mut self, r: &Reference, d: &Delivery) -> Verdict {
        let id = d.id.as_str();
        let Some(task) = r.tasks.get(id) else {
            return Err(super::Violation(format!("{id} was delivered, and never accepted")));
        };
        let opened = open(d.id.clone(), &d.envelope);
        let same = opened.is_ok_and(|t| t.payload_apart || t.payload == task.new.payload);
        ensure!(same, "{id}: its payload has changed");
        let last = self.fences.insert(id.to_owned(), d.fence.0).unwrap_or(0);
        ensure!(d.fence.0 >= last || self.tail == "n", "{id}: fence {} after {last}", d.fence.0);
        Ok(())
    }
}

fn accepted<'a>(r: &mut Reference, answers: impl Iterator<Item = (&'a NewTask, &'a Accepted)>) {
    for (task, answer) in answers {
        // A first try that was refused half-way may have taken it in.
        let again = *answer == Accepted::Duplicate(task.id.clone()) && !r.tasks.contains_key(task.id.as_str());
        if !again && !matches!(answer, Accepted::New(_)) {
            continue;
        }
        known(r, task);
    }
}

/// A task that is in; when it came is seen later.
pub fn known(r: &mut Reference, task: &NewTask) {
    let sealed = seal(task).expect("histories make sealable tasks");
    let known = Known {
        new: task.clone(),
        header: sealed.header,
        body: sealed.body,
        seq: 0,
        generation: 0,
        due: 0,
        expires: 0,
        life: Life::Waiting,
        past: None,
        indexed: 0,
        not_before: 0,
    };
    r.tasks.insert(task.id.to_string(), known);
}
