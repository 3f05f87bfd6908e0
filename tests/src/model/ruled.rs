//! What the book in force means for a task.

use std::collections::BTreeSet;

use tidemill_common::book::Book;
use tidemill_common::task::NewTask;

use super::book::{Rule, budgets, rates, rules_of};
use super::reference::Reference;

impl Reference {
    /// The gates of a task in the book in force.
    pub fn rules(&self, task: &NewTask) -> Vec<Rule> {
        rules_of(&self.book, task)
    }

    /// Those of which it takes something.
    pub fn asks(&self, task: &NewTask) -> Vec<Rule> {
        self.rules(task).into_iter().filter(|rule| rule.units(&self.book, task) > 0).collect()
    }

    /// What holds a task back by an operator's hand.
    pub fn paused(&self, task: &NewTask) -> Option<&String> {
        let all =
            ["*".to_owned(), format!("q/{}", task.queue), format!("a/{}", task.agent), format!("t/{}", task.tenant)];
        self.pauses.keys().find(|what| all.contains(what))
    }

    /// A gate of the book in force that this task can never pass.
    pub fn never_fits(&self, task: &NewTask) -> Option<String> {
        self.rules(task).into_iter().find(|r| r.is_beyond(&self.book, task)).map(|r| r.gate)
    }

    /// Another book is in force.
    pub fn set_book(&mut self, book: Book) {
        let (old, new) = (budgets(&self.book), budgets(&book));
        let before = rates(&std::mem::replace(&mut self.book, book));
        self.gates.edited(self.real, &before, &rates(&self.book));
        let has = |all: &BTreeSet<(String, u64)>, of: &str, ms| all.contains(&(of.to_owned(), ms));
        self.gates.budgets.edited(self.fence, |of, ms| has(&new, of, ms) && !has(&old, of, ms));
        self.unrefreshed = true;
    }
}
