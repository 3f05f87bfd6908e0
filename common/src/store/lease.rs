//! Leases and upkeep: renew, own, sweep, reclaim, leave.

use std::time::Duration;

use fred::prelude::Value;

use super::reply::Reply;
use super::schedule::Slot;
use super::{Error, SCHEMA, Store};
use crate::name::{AgentName, Fence, TaskId, WorkerId};

/// Pending entries looked at, and deliveries taken back, in one call: keeps the scripts well below 10 ms.
const PAGE: u32 = 100;

/// The times of a deployment's leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// How long a worker may stay silent before its deliveries are reclaimed.
    pub lease: Duration,
    /// How long the holder of the sweep may stay silent before another takes over.
    pub sweep_hold: Duration,
    /// After how long tasks of an agent that no worker knows are dead; zero: never.
    pub unknown_agent_after: Duration,
}

/// The answer to a renewal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Renewed {
    /// Server time, ms.
    pub now_ms: u64,
    /// This worker holds the sweep.
    pub sweeps: bool,
    /// Tasks wait that may only run alone.
    pub lone_work: bool,
    /// Most tasks at once, if an operator has said so: see [`Store::tune`].
    pub concurrency: Option<u32>,
    /// Most tasks at once of these agents.
    pub agents: Vec<(AgentName, u32)>,
}

/// The answer to a sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swept {
    /// This worker still holds the sweep.
    pub held: bool,
    /// Server time, ms.
    pub now_ms: u64,
    /// When something becomes due next, server time in ms; 0: nothing is.
    pub next_due_ms: u64,
    /// A worker whose lease has run out: reclaim it.
    pub expired: Option<WorkerId>,
    /// There was more to do than one call does.
    pub more: bool,
    /// The next slot of a schedule, server ms; 0: there is none.
    pub next_slot_ms: u64,
    /// Schedules whose slot has come: to be fired.
    pub slots: Vec<Slot>,
}

/// A delivery that a worker owns, as Redis says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedDelivery {
    /// The task.
    pub id: TaskId,
    /// The delivery.
    pub fence: Fence,
    /// It was called off. The note that says so may have been lost; this is not.
    pub called_off: bool,
}

/// A page of what a worker owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owned {
    /// The deliveries.
    pub deliveries: Vec<OwnedDelivery>,
    /// Where to go on; none after the last page.
    pub next: Option<(u64, String)>,
}

fn ms(d: Duration) -> Value {
    d.as_millis().to_string().into()
}

impl Store {
    /// Says that a worker is alive. With `begin` it is new and names its agents.
    ///
    /// # Errors
    /// [`Error::Gone`] when it was given up; then nothing brings it back. Or when Redis does not answer.
    pub async fn renew(
        &self,
        worker: &WorkerId,
        lease: Lease,
        begin: Option<&[AgentName]>,
        may_sweep: bool,
    ) -> Result<Renewed, Error> {
        let mut agents = begin.unwrap_or_default().iter().fold(String::from(","), |all, a| all + a.as_str() + ",");
        // It is woken for what earlier workers cannot read.
        (2..=self.reads).for_each(|version| agents.push_str(&format!("@{version},")));
        let args: Vec<Value> = vec![
            worker.as_str().into(),
            ms(lease.lease),
            if may_sweep { ms(lease.sweep_hold) } else { Value::from_static_str("0") },
            Value::from_static_str(if begin.is_some() { "1" } else { "0" }),
            agents.into(),
            SCHEMA.to_string().into(),
        ];
        let mut reply = Reply::array("renew", self.call(|s| &s.renew, args).await?)?;
        if !reply.flag()? {
            return Err(Error::Gone);
        }
        let mut renewed = Renewed {
            now_ms: reply.number()?,
            sweeps: reply.flag()?,
            lone_work: reply.flag()?,
            concurrency: reply.text()?.parse().ok(),
            agents: Vec::new(),
        };
        while !reply.is_empty() {
            let (agent, most) = (reply.text()?, reply.text()?);
            // What cannot be read was put there by hand, and says nothing.
            renewed.agents.extend(agent.parse().ok().zip(most.parse().ok()));
        }
        Ok(renewed)
    }

    /// Upkeep, if this worker holds it: promotes what is due, expires what is too late, drops old dead tasks, names a worker to
    /// reclaim. Safe on any number of workers at once.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn sweep(&self, worker: &WorkerId, lease: Lease) -> Result<Swept, Error> {
        let args: Vec<Value> = vec![
            worker.as_str().into(),
            ms(lease.sweep_hold),
            ms(lease.lease),
            PAGE.to_string().into(),
            ms(lease.unknown_agent_after),
        ];
        let mut reply = Reply::array("sweep", self.call(|s| &s.sweep, args).await?)?;
        Ok(Swept {
            held: reply.flag()?,
            now_ms: reply.number()?,
            next_due_ms: reply.number()?,
            expired: Some(reply.text()?).filter(|w| !w.is_empty()).and_then(|w| w.parse().ok()),
            more: reply.flag()?,
            next_slot_ms: reply.number()?,
            slots: Slot::read_all(&mut reply)?,
        })
    }

    /// Takes back a part of what a dead worker ran. `poison_after` lone losses make a task dead. Returns how many, and whether
    /// nothing is left of that worker.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn reclaim(&self, dead: &WorkerId, poison_after: u32) -> Result<(u64, bool), Error> {
        let args: Vec<Value> = vec![dead.as_str().into(), PAGE.to_string().into(), poison_after.to_string().into()];
        let mut reply = Reply::array("reclaim", self.call(|s| &s.reclaim, args).await?)?;
        Ok((reply.number()?, reply.flag()?))
    }

    /// A page of what a living worker owns, so that it can hand back what it does not hold: the reply to a claim may be lost.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn own(&self, worker: &WorkerId, from: Option<&(u64, String)>) -> Result<Owned, Error> {
        let (stream, entry) = from.map_or((1, "-"), |(s, e)| (*s, e.as_str()));
        let args: Vec<Value> =
            vec![worker.as_str().into(), stream.to_string().into(), entry.into(), PAGE.to_string().into()];
        let mut reply = Reply::array("own", self.call(|s| &s.own, args).await?)?;
        let (stream, entry) = (reply.number()?, reply.text()?);
        let mut deliveries = Vec::new();
        while !reply.is_empty() {
            deliveries.push(OwnedDelivery { id: reply.parse()?, fence: reply.fence()?, called_off: reply.flag()? });
        }
        Ok(Owned { deliveries, next: (stream != 0).then_some((stream, entry)) })
    }

    /// Says goodbye. False: it still owns deliveries, which the sweep will take back.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn leave(&self, worker: &WorkerId) -> Result<bool, Error> {
        let value = self.call(|s| &s.leave, vec![Value::from(worker.as_str())]).await?;
        Ok(value.as_i64() == Some(1))
    }
}
