//! A submit that takes the place of what waits under its key.

use tidemill_common::envelope;
use tidemill_common::store::Accepted;
use tidemill_common::task::{Mode, NewTask};

use super::reference::{KeyOwner, Reference, expires};

impl Reference {
    /// The answer, if a task waits under its key; it then has the new one's content, and its own id and place.
    pub fn replace(&mut self, task: &NewTask) -> Option<Accepted> {
        let key = (task.tenant.clone(), task.key.clone()?);
        let id = self.owner(&key)?.id.clone();
        let was = self.tasks.get(&id).filter(|t| t.waits())?;
        let name = id.parse().expect("an id");
        if was.new.order_key != task.order_key {
            return Some(Accepted::Conflict(name));
        }
        let sealed = envelope::seal(task).expect("histories make sealable tasks");
        let now = self.now_ms();
        let delay = u64::try_from(task.delay.as_millis()).expect("short");
        let mut due = if delay > 0 { now + delay } else { 0 };
        if task.mode == Mode::Debounce {
            due = due.min(was.seq / 1000 + 10 * delay);
        }
        let behind = task.order_key.as_ref().is_some_and(|order| self.order_head(order) != Some(&id));
        let task_of_key = self.tasks.get_mut(&id).expect("it waits");
        let seq = task_of_key.seq;
        task_of_key.new = NewTask { id: task_of_key.new.id.clone(), ..task.clone() };
        (task_of_key.header, task_of_key.body) = (sealed.header, sealed.body);
        task_of_key.generation = next_generation(task_of_key.generation);
        task_of_key.due = due;
        task_of_key.expires = expires(task, seq, now);
        task_of_key.indexed = task_of_key.deadline();
        // One that waits for its next try keeps that time; whether it had been promoted is not known here.
        task_of_key.not_before = match &task_of_key.past {
            Some(_) if !behind => task_of_key.not_before,
            _ => due,
        };
        if task_of_key.not_before <= now {
            task_of_key.not_before = 0;
        }
        self.queues.insert(task.queue.to_string());
        self.keys.insert(key, KeyOwner { id, fingerprint: sealed.fingerprint, until: None });
        Some(Accepted::Replaced(name))
    }
}

/// The generation after this one.
pub fn next_generation(generation: u32) -> u32 {
    generation.wrapping_add(2_654_435_761)
}
