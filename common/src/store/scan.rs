//! Tasks by the page, for lists and for what is done to many.

use bytes::Bytes;
use fred::prelude::Value;

use super::reply::Reply;
use super::{Error, Store};
use crate::envelope;
use crate::history::{History, Outcome};
use crate::name::{AgentName, QueueName, TaskId};
use crate::state::State;
use crate::task::{Priority, Task};

/// Keys looked at in one call: keeps the script well below 10 ms.
const PAGE: u32 = 200;

/// Where to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Everywhere, in no order: all tasks that wait, run, are dead, or have ended and are remembered.
    All,
    /// What runs.
    Running,
    /// What is not due, by due time.
    Scheduled,
    /// What is parked in the line of a gate.
    Parked,
    /// The dead, by the time of their death.
    Dead,
}

/// Which tasks to see. An empty filter sees all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    /// Of this queue.
    pub queue: Option<QueueName>,
    /// Of this agent.
    pub agent: Option<AgentName>,
    /// On behalf of this tenant.
    pub tenant: Option<String>,
    /// Of this priority.
    pub priority: Option<Priority>,
    /// With an order key.
    pub ordered: bool,
}

/// A task that was met.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Its id.
    pub id: TaskId,
    /// Where it is.
    pub state: State,
    /// The worker that runs it, or the gate in whose line it is.
    pub detail: String,
    /// What its header says, without meta part and payload; none when it has ended and only its outcome is left, or it cannot be
    /// read.
    pub task: Option<Task>,
    /// What is kept of earlier runs.
    pub history: History,
    /// How it ended, if it has.
    pub outcome: Option<Outcome>,
}

/// A page, and where to go on.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// What was met.
    pub found: Vec<Found>,
    /// The next cursor; none: this was the last page.
    pub next: Option<String>,
}

impl Store {
    /// A page of tasks, from a cursor (none: from the start). A task that is there all the time is met at least once, one that
    /// moves meanwhile perhaps twice, or not.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn scan(&self, source: Source, filter: &Filter, cursor: Option<&str>) -> Result<Page, Error> {
        let source = match source {
            Source::All => "all",
            Source::Running => "run",
            Source::Scheduled => "scheduled",
            Source::Parked => "park",
            Source::Dead => "dead",
        };
        let name = |text: Option<&str>| Value::from(text.unwrap_or_default());
        let args: Vec<Value> = vec![
            Value::from_static_str(source),
            cursor.unwrap_or("0").into(),
            PAGE.to_string().into(),
            name(filter.queue.as_ref().map(QueueName::as_str)),
            name(filter.agent.as_ref().map(AgentName::as_str)),
            name(filter.tenant.as_deref()),
            filter.priority.map_or_else(String::new, |p| p.value().to_string()).into(),
            Value::from_static_str(if filter.ordered { "1" } else { "" }),
        ];
        let mut r = Reply::array("scan", self.call(|s| &s.scan, args).await?)?;
        let next = Some(r.text()?).filter(|cursor| cursor != "0");
        let mut found = Vec::new();
        while !r.is_empty() {
            found.extend(one(&mut r)?);
        }
        Ok(Page { found, next })
    }
}

/// None for what went while it was looked at, and for what has an id that no task has.
fn one(r: &mut Reply) -> Result<Option<Found>, Error> {
    let (id, state, detail) = (r.text()?, r.text()?, r.text()?);
    let (head, history, outcome): (Bytes, Bytes, Bytes) = (r.bytes()?, r.bytes()?, r.bytes()?);
    let (Ok(id), Ok(state)) = (id.parse::<TaskId>(), state.parse()) else { return Ok(None) };
    Ok(Some(Found {
        task: envelope::head(id.clone(), &head).ok(),
        id,
        state,
        detail,
        history: History::read(&history),
        outcome: Outcome::read(&outcome),
    }))
}
