//! What an operator holds back.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use fred::interfaces::HashesInterface;
use fred::prelude::Value;
use serde::{Deserialize, Serialize};

use super::{Error, Store};
use crate::name::{AgentName, QueueName};

/// What may be paused.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pausable {
    /// Everything in the shard.
    All,
    /// The tasks of a queue.
    Queue(QueueName),
    /// The tasks of an agent.
    Agent(AgentName),
    /// The tasks of a tenant.
    Tenant(String),
}

impl Pausable {
    /// Its field in `B:paused`; `p/` and this is its gate.
    #[must_use]
    pub fn field(&self) -> String {
        match self {
            Self::All => "*".to_owned(),
            Self::Queue(queue) => format!("q/{queue}"),
            Self::Agent(agent) => format!("a/{agent}"),
            Self::Tenant(tenant) => format!("t/{tenant}"),
        }
    }

    /// From such a field.
    #[must_use]
    pub fn from_field(field: &str) -> Option<Self> {
        match field.split_once('/') {
            None => (field == "*").then_some(Self::All),
            Some(("q", queue)) => queue.parse().ok().map(Self::Queue),
            Some(("a", agent)) => agent.parse().ok().map(Self::Agent),
            Some(("t", tenant)) => Some(Self::Tenant(tenant.to_owned())),
            Some(_) => None,
        }
    }
}

impl fmt::Display for Pausable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("everything"),
            Self::Queue(queue) => write!(f, "queue {queue}"),
            Self::Agent(agent) => write!(f, "agent {agent}"),
            Self::Tenant(tenant) => write!(f, "tenant {tenant}"),
        }
    }
}

/// A pause in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    /// What it holds back.
    pub what: Pausable,
    /// Until when, server ms; 0: until it is resumed.
    pub until_ms: u64,
    /// Why, if that was said.
    pub why: String,
}

impl Store {
    /// Holds something back from now on, perhaps only for so long: nothing of it is handed out any more; what runs, runs on. One
    /// write, however much waits. False: there are 256 pauses already, which is as many as there may be.
    ///
    /// # Errors
    /// When Redis does not answer. Sending the same again is safe.
    pub async fn pause(&self, what: &Pausable, for_: Option<Duration>, why: &str) -> Result<bool, Error> {
        let ms = for_.map_or(0, |d| d.as_millis().max(1)).to_string();
        let answer = self.call(|s| &s.pause, vec![what.field().into(), ms.into(), why.into()]).await?;
        Ok(answer.as_i64() == Some(1))
    }

    /// Lets it go on. False: it was not paused.
    ///
    /// # Errors
    /// When Redis does not answer. Sending the same again is safe.
    pub async fn resume(&self, what: &Pausable) -> Result<bool, Error> {
        let nothing = || Value::from_static_str("");
        let answer = self.call(|s| &s.pause, vec![what.field().into(), nothing(), nothing()]).await?;
        Ok(answer.as_i64() == Some(1))
    }

    /// All that is held back.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn pauses(&self) -> Result<Vec<Pause>, Error> {
        let key = self.base.key("paused");
        let all: std::collections::BTreeMap<String, Bytes> = self
            .retrying(|| async { self.client.hgetall(key.as_str()).await.map_err(|e| Error::of("pauses", e)) })
            .await?;
        Ok(all.iter().filter_map(|(field, value)| one(field, value)).collect())
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "server ms, or 0")]
fn one(field: &str, value: &[u8]) -> Option<Pause> {
    let (until, why) = value.split_at_checked(8)?;
    let until = f64::from_be_bytes(until.try_into().ok()?);
    let what = Pausable::from_field(field)?;
    Some(Pause { what, until_ms: until as u64, why: String::from_utf8_lossy(why).into_owned() })
}
