//! Gates and their lines, as people want to see them.

use std::collections::BTreeMap;

use fred::prelude::Value;

use super::reply::Reply;
use super::{Error, Store};
use crate::name::TaskId;

/// Most pages that [`Store::lines`] reads: two million waiting tasks.
const PAGES_MAX: usize = 4_096;

/// A gate and its line, as one task sees it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GateSeen {
    /// Tasks in its line.
    pub waiting: u64,
    /// The task's place in it, from 1; 0: it is not in it (any more).
    pub place: u64,
    /// The first in line.
    pub first: Option<TaskId>,
    /// When the first is looked at next, server ms; 0: when something is given back.
    pub due_ms: u64,
    /// Slots in use.
    pub used: u64,
    /// The task that its slots are kept for.
    pub reserved: Option<TaskId>,
    /// The windows of a budget, as they are stored.
    pub windows: Vec<WindowSeen>,
    /// Tasks that hold slots of it, or are charged to it, and how many units; at most eight.
    pub holders: Vec<(TaskId, u64)>,
    /// All that run were looked at for holders.
    pub whole: bool,
}

/// One window of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WindowSeen {
    /// Its length, ms; -1: a calendar day, -2: a calendar month.
    pub ms: i64,
    /// Most that may be charged.
    pub limit: u64,
    /// What is charged.
    pub charged: u64,
    /// What was used beyond, and is charged as soon as there is room.
    pub debt: u64,
    /// When its period ends, server ms; 0: it is a trailing one.
    pub ends_ms: u64,
}

/// A gate at which tasks wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LineSeen {
    /// Tasks in its line.
    pub waiting: u64,
    /// Slots in use, if it has slots.
    pub used: u64,
    /// When its first is looked at next, server ms; 0: when something is given back.
    pub due_ms: u64,
}

impl Store {
    /// A gate, and where a task stands in its line.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn gate(&self, gate: &str, id: &TaskId) -> Result<GateSeen, Error> {
        let args = vec![Value::from(gate), id.as_str().into()];
        let mut r = Reply::array("gate", self.call(|s| &s.gate, args).await?)?;
        let mut seen = GateSeen {
            waiting: r.number()?,
            place: r.number()?,
            first: r.text()?.parse().ok(),
            due_ms: r.number()?,
            used: r.number()?,
            reserved: r.text()?.parse().ok(),
            whole: r.flag()?,
            ..GateSeen::default()
        };
        let mut windows = r.list()?;
        while !windows.is_empty() {
            seen.windows.push(WindowSeen {
                ms: windows.parse()?,
                limit: windows.number()?,
                charged: windows.number()?,
                debt: windows.number()?,
                ends_ms: windows.number()?,
            });
        }
        while !r.is_empty() {
            seen.holders.push((r.parse()?, r.number()?));
        }
        Ok(seen)
    }

    /// The gates at which tasks wait, by name. With very many waiting tasks it takes a while, and is no picture of one moment.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn lines(&self) -> Result<BTreeMap<String, LineSeen>, Error> {
        let (mut lines, mut cursor) = (BTreeMap::new(), "0".to_owned());
        for _ in 0..PAGES_MAX {
            let mut r = Reply::array("lines", self.call(|s| &s.lines, vec![cursor.as_str().into()]).await?)?;
            cursor = r.text()?;
            while !r.is_empty() {
                let (gate, waiting) = (r.text()?, r.number()?);
                lines.insert(gate, LineSeen { waiting, used: r.number()?, due_ms: r.number()? });
            }
            if cursor == "0" {
                break;
            }
        }
        Ok(lines)
    }
}
