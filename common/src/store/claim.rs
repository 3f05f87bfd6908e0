//! Claim: queued or parked → running, with everything granted; or parked, with the gate that refused.

use bytes::Bytes;
use fred::prelude::Value;

use super::reply::Reply;
use super::{Error, Store};
use crate::name::{AgentName, Fence, TaskId, WorkerId};

/// An agent that a claim offers to run, and how many more of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The agent.
    pub agent: AgentName,
    /// How many more this worker has room for.
    pub room: u32,
}

/// A request for work.
#[derive(Debug, Clone)]
pub struct Claim<'a> {
    /// Who asks.
    pub worker: &'a WorkerId,
    /// Grows with every claim of this worker; the same number again asks for the same answer. One claim at a time.
    pub sequence: u64,
    /// Most tasks.
    pub most: u32,
    /// For a worker that runs alone what was lost before.
    pub lone: bool,
    /// How many of `most` each priority may have before the rest is shared out: urgent, high, normal, low.
    pub shares: [u32; 4],
    /// What it can run.
    pub offers: &'a [Offer],
}

/// One hand-over of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The task.
    pub id: TaskId,
    /// The delivery's number: newer ones win.
    pub fence: Fence,
    /// Which attempt this is, from 1.
    pub attempt: u16,
    /// How often it was lost with its worker.
    pub losses: u16,
    /// The envelope as stored; see [`crate::envelope::open`].
    pub envelope: Bytes,
}

/// The answer to a claim.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Claimed {
    /// What was handed over.
    pub deliveries: Vec<Delivery>,
    /// Server time, ms.
    pub now_ms: u64,
    /// When something becomes due next, server time in ms; 0: nothing is.
    pub next_due_ms: u64,
    /// Tasks wait that may only run alone.
    pub lone_work: bool,
    /// It was cut short before it had looked at all that waits: ask again at once.
    pub cut_short: bool,
}

impl Store {
    /// Asks for work. Send the very same claim again after an error: it returns the same deliveries, as far as they are current.
    ///
    /// # Errors
    /// [`Error::Gone`] when this worker was given up, [`Error::Stale`] for an old sequence, or when Redis does not answer.
    pub async fn claim(&self, claim: &Claim<'_>) -> Result<Claimed, Error> {
        let mut args: Vec<Value> = vec![
            claim.worker.as_str().into(),
            claim.sequence.to_string().into(),
            claim.most.to_string().into(),
            Value::from_static_str(if claim.lone { "1" } else { "0" }),
            self.reads.to_string().into(),
        ];
        args.extend(claim.shares.iter().map(|s| Value::from(s.to_string())));
        for offer in claim.offers {
            args.push(offer.agent.as_str().into());
            args.push(offer.room.to_string().into());
        }
        let mut reply = Reply::array("claim", self.call(|s| &s.claim, args).await?)?;
        match reply.text()?.as_str() {
            "ok" => {}
            "gone" => return Err(Error::Gone),
            "stale" => return Err(Error::Stale),
            other => return Err(Error::Reply { op: "claim", what: format!("{other:?} was not expected") }),
        }
        let mut claimed = Claimed {
            deliveries: Vec::new(),
            now_ms: reply.number()?,
            next_due_ms: reply.number()?,
            lone_work: reply.flag()?,
            cut_short: reply.flag()?,
        };
        while !reply.is_empty() {
            claimed.deliveries.push(Delivery {
                id: reply.parse()?,
                fence: reply.fence()?,
                attempt: u16::try_from(reply.number()?).unwrap_or(u16::MAX),
                losses: u16::try_from(reply.number()?).unwrap_or(u16::MAX),
                envelope: reply.bytes()?,
            });
        }
        Ok(claimed)
    }
}
