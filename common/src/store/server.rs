//! What the server is, and whether it is one that this build can work with.

use std::collections::BTreeMap;

use fred::interfaces::{ClientLike, ConfigInterface, HashesInterface};
use fred::prelude::Value;
use fred::types::InfoKind;

use super::{Error, SCHEMA, Store};

/// What a server says of itself. What it does not say, or does not let us ask, is absent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerFacts {
    /// Its version, such as `7.0.15`, or `Valkey 9.1.2`.
    pub version: Option<String>,
    /// `master` or `slave`.
    pub role: Option<String>,
    /// Replicas that are connected.
    pub replicas: Option<u64>,
    /// Most memory that it may use, bytes; 0: no bound.
    pub maxmemory: Option<u64>,
    /// Memory in use, bytes.
    pub used_memory: Option<u64>,
    /// What it does when that is reached.
    pub maxmemory_policy: Option<String>,
    /// It writes an append-only file.
    pub appendonly: Option<bool>,
    /// When that reaches the disk: `always`, `everysec` or `no`.
    pub appendfsync: Option<String>,
    /// When it writes snapshots; empty: never.
    pub save: Option<String>,
    /// The last snapshot failed: with its default settings it refuses writes then.
    pub last_save_failed: bool,
    /// Its clock, ms.
    pub now_ms: Option<u64>,
    /// The layout of the data in this shard.
    pub schema: Option<String>,
}

impl Store {
    /// What the server says of itself.
    ///
    /// # Errors
    /// When Redis does not answer at all.
    pub async fn server_facts(&self) -> Result<ServerFacts, Error> {
        let info: String = self
            .retrying(|| async { self.client.info(Some(InfoKind::Default)).await.map_err(|e| Error::of("info", e)) })
            .await?;
        let settings: BTreeMap<String, String> = self.settings().await;
        let field = |name: &str| info.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
        let number = |name: &str| field(name).and_then(|v| v.parse().ok());
        let setting = |name: &str| settings.get(name).cloned();
        let valkey = field("valkey_version").map(|version| format!("Valkey {version}"));
        let key = self.base.meta();
        let schema: Result<Option<String>, _> = self.client.hget(key.as_str(), "schema").await;
        Ok(ServerFacts {
            version: valkey.or_else(|| field("redis_version").map(str::to_owned)),
            role: field("role").map(str::to_owned),
            replicas: number("connected_slaves"),
            maxmemory: number("maxmemory"),
            used_memory: number("used_memory"),
            maxmemory_policy: field("maxmemory_policy").map(str::to_owned),
            appendonly: field("aof_enabled").map(|on| on == "1"),
            appendfsync: setting("appendfsync"),
            save: setting("save"),
            last_save_failed: field("rdb_last_bgsave_status").is_some_and(|status| status != "ok"),
            now_ms: self.counts().await.ok().map(|counts| counts.now_ms),
            schema: schema.ok().flatten(),
        })
    }

    /// Settings, as far as the server lets us read them.
    async fn settings(&self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        for name in ["appendfsync", "save"] {
            match self.client.config_get::<Value, _>(name).await {
                Ok(value) => all.extend(pairs(value)),
                Err(error) => tracing::debug!(%error, name, "the server does not tell this setting"),
            }
        }
        all
    }

    /// Whether the server and what lies on it are ones that this build can work with.
    pub(super) async fn check_server(&self) -> Result<(), Error> {
        // Whoever may not ask is served, and warned; whoever got no answer has to ask again, since it would decide.
        let info = async || self.client.info(Some(InfoKind::Server)).await.map_err(|e| Error::of("info", e));
        let info: String = known(self.retrying(info).await, "the version")?.unwrap_or_default();
        if let Some(text) = too_old(&info) {
            return Err(Error::Unsuitable(text));
        }
        let policy = async || self.client.config_get("maxmemory-policy").await.map_err(|e| Error::of("config", e));
        let policy = known(self.retrying(policy).await, "maxmemory-policy; make sure that it is noeviction")?;
        if let Some((_, policy)) = policy.map(pairs).unwrap_or_default().iter().find(|(_, p)| p != "noeviction") {
            return Err(Error::Unsuitable(evicts(policy)));
        }
        let key = self.base.meta();
        let ours = SCHEMA.to_string();
        let _: Result<bool, _> = self.client.hsetnx(key.as_str(), "schema", ours.as_str()).await;
        let found: Option<String> = self
            .retrying(|| async { self.client.hget(key.as_str(), "schema").await.map_err(|e| Error::of("meta", e)) })
            .await?;
        match found {
            Some(found) if found != ours => Err(Error::Unsuitable(format!(
                "the data of shard {} has layout {found}; this build reads layout {ours}: run the build that wrote it, or migrate",
                self.base
            ))),
            _ => Ok(()),
        }
    }
}

/// What the server says; none: it does not let us ask.
fn known<T>(answer: Result<T, Error>, what: &str) -> Result<Option<T>, Error> {
    match answer {
        Ok(said) => Ok(Some(said)),
        Err(error) if error.is_transient() => Err(error),
        Err(error) => {
            tracing::warn!(%error, cause = std::error::Error::source(&error), "cannot read {what}");
            Ok(None)
        }
    }
}

fn evicts(policy: &str) -> String {
    format!(
        "the server evicts keys when memory is full (maxmemory-policy {policy}), which would lose tasks; set it to noeviction"
    )
}

fn pairs(value: Value) -> Vec<(String, String)> {
    match value {
        Value::Array(items) => {
            items.chunks(2).filter_map(|c| Some((c.first()?.as_string()?, c.get(1)?.as_string()?))).collect()
        }
        Value::Map(map) => {
            map.inner().into_iter().filter_map(|(k, v)| Some((k.into_string()?, v.as_string()?))).collect()
        }
        _ => Vec::new(),
    }
}

/// Redis 7.0 or Valkey 7.2 at least: script flags, and group reads that answer as we read them.
fn too_old(info: &str) -> Option<String> {
    let field = |name: &str| info.lines().find_map(|l| l.strip_prefix(name)).map(str::trim);
    let version = field("redis_version:")?;
    let mut parts = version.split('.').filter_map(|p| p.parse::<u32>().ok());
    let (major, minor) = (parts.next()?, parts.next().unwrap_or(0));
    (major < 7).then(|| format!("the server is Redis {major}.{minor}; Tidemill needs Redis 7.0 or Valkey 7.2 at least"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_servers_are_told_apart() {
        assert!(too_old("redis_version:6.2.5\r\n").unwrap().contains("6.2"));
        assert_eq!(too_old("redis_version:7.0.15\r\n"), None);
        assert_eq!(too_old("redis_version:7.2.4\r\nvalkey_version:9.1.2\r\n"), None);
        assert_eq!(too_old(""), None);
    }
}
