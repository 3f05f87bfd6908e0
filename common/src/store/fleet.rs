//! The fleet: who is there, and how much it does at once.

use std::fmt;

use fred::interfaces::HashesInterface;
use fred::prelude::Value;

use super::reply::Reply;
use super::{Error, Store};
use crate::name::{AgentName, WorkerId};

/// Most workers that are listed.
const WORKERS_MAX: u32 = 1_000;
/// Most tasks at once that can be asked for.
pub const CONCURRENCY_MAX: u32 = 10_000;

/// A worker, as Redis knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerSeen {
    /// Its id.
    pub id: WorkerId,
    /// When its lease ends, server ms; 0: it was given up, and what it ran is being taken back.
    pub lease_ms: u64,
    /// The agents that it runs.
    pub agents: Vec<String>,
    /// It sleeps, with room.
    pub idle: bool,
    /// Deliveries that it has.
    pub running: u64,
}

/// What a number of tasks at once is said for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tuned {
    /// Each worker.
    All,
    /// Workers of this name: without the incarnation behind the dot.
    Worker(String),
    /// The tasks of this agent, on each worker.
    Agent(AgentName),
}

impl Tuned {
    fn field(&self) -> String {
        match self {
            Self::All => "*".to_owned(),
            Self::Worker(name) => format!("w/{name}"),
            Self::Agent(agent) => format!("a/{agent}"),
        }
    }
}

impl fmt::Display for Tuned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("each worker"),
            Self::Worker(name) => write!(f, "worker {name}"),
            Self::Agent(agent) => write!(f, "agent {agent} on each worker"),
        }
    }
}

impl Store {
    /// Who is there, by the end of their leases, and the server's time in ms.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn workers(&self) -> Result<(u64, Vec<WorkerSeen>), Error> {
        let mut r = Reply::array("workers", self.call(|s| &s.workers, vec![WORKERS_MAX.to_string().into()]).await?)?;
        let now_ms = r.number()?;
        let mut workers = Vec::new();
        while !r.is_empty() {
            let (id, lease_ms, agents, idle, running) = (r.text()?, r.number()?, r.text()?, r.flag()?, r.number()?);
            let agents = agents.split(',').filter(|a| !a.is_empty()).map(str::to_owned).collect();
            workers.extend(id.parse().ok().map(|id| WorkerSeen { id, lease_ms, agents, idle, running }));
        }
        Ok((now_ms, workers))
    }

    /// Says how many tasks run at once, in place of what workers' own options say (none: as they say), within moments on those that
    /// run and at once on those that come. What runs above a lower number runs on. False: 256 such numbers are said already.
    ///
    /// # Errors
    /// When Redis does not answer. Sending the same again is safe.
    pub async fn tune(&self, what: &Tuned, most: Option<u32>) -> Result<bool, Error> {
        let most = most.map_or_else(String::new, |n| n.min(CONCURRENCY_MAX).to_string());
        let answer = self.call(|s| &s.tune, vec![Value::from(what.field()), most.into()]).await?;
        Ok(answer.as_i64() == Some(1))
    }

    /// All numbers that were said.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn tunes(&self) -> Result<Vec<(Tuned, u32)>, Error> {
        let key = self.base.key("tune");
        let all: std::collections::BTreeMap<String, String> = self
            .retrying(|| async { self.client.hgetall(key.as_str()).await.map_err(|e| Error::of("tunes", e)) })
            .await?;
        let one = |(field, most): (&String, &String)| {
            let what = match field.split_once('/') {
                None => Tuned::All,
                Some(("w", name)) => Tuned::Worker(name.to_owned()),
                Some((_, agent)) => Tuned::Agent(agent.parse().ok()?),
            };
            Some((what, most.parse().ok()?))
        };
        Ok(all.iter().filter_map(one).collect())
    }
}
