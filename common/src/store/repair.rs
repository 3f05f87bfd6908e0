//! Making anew what can be known from elsewhere: marks of lines and streams, and the counts of what waits.

use std::collections::BTreeMap;

use fred::prelude::Value;

use super::{Error, Store};

impl Store {
    /// Lets every line be looked at, page by page.
    ///
    /// # Errors
    /// When Redis does not answer. It changes nothing but when lines are looked at.
    pub async fn mark_lines(&self) -> Result<(), Error> {
        let mut cursor = "0".to_owned();
        loop {
            let next = self.call(|s| &s.refresh, vec![Value::from(cursor.as_str())]).await?;
            cursor = next.as_string().unwrap_or_else(|| "0".into());
            if cursor == "0" {
                return Ok(());
            }
        }
    }

    /// Lets every stream that has entries be looked at. Returns how many were not to be.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn mark_streams(&self) -> Result<u64, Error> {
        self.repair(vec![Value::from_static_str("live")]).await.map(|n| u64::try_from(n).unwrap_or(0))
    }

    /// What the counters are, in one word: it changes with whatever moves a task.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn counts_stamp(&self) -> Result<String, Error> {
        let stamp = self.call(|s| &s.repair, vec![Value::from_static_str("stamp")]).await?;
        stamp.as_string().ok_or_else(|| Error::Reply { op: "repair", what: "a stamp was expected".into() })
    }

    /// Sets the counts of what waits, by queue and priority number, if nothing has moved since the stamp. Returns how many were
    /// wrong; none: something has moved, and nothing was set.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn set_waiting(&self, stamp: &str, waiting: &BTreeMap<(String, u8), u64>) -> Result<Option<u64>, Error> {
        let mut args: Vec<Value> = vec![Value::from_static_str("count"), stamp.into()];
        for ((queue, priority), n) in waiting {
            args.push(format!("w:{priority}:{queue}").into());
            args.push(n.to_string().into());
        }
        self.repair(args).await.map(|n| u64::try_from(n).ok())
    }

    async fn repair(&self, args: Vec<Value>) -> Result<i64, Error> {
        let answer = self.call(|s| &s.repair, args).await?;
        answer.as_i64().ok_or_else(|| Error::Reply { op: "repair", what: "a number was expected".into() })
    }
}
