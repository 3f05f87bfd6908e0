//! The worker's configuration: read, checked whole, and turned into what the library takes.

mod agent;
mod book;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use tidemill_common::config::{Loaded, Loader, Mistakes, duration, list, nearest};
use tidemill_common::name::{AgentName, NAME_BYTES_MAX};
use tidemill_common::store::RedisOptions;
use tidemill_worker::handler::process::Children;
use tidemill_worker::payloads::config::{SECRET, Section as Payloads};
use tidemill_worker::{Options, Order, Registry};

use agent::AgentSection;

/// The annotated defaults: also the documentation.
pub(crate) const DEFAULTS: &str = include_str!("../../../deploy/config/worker.toml");
/// What stands for "no admin listener".
pub(crate) const OFF: &str = "off";
/// The dev command's data, below the directory of fetched tools, and the file there that holds its server's URL.
pub(crate) const DEV_DIR: &str = "dev";
pub(crate) const DEV_URL: &str = "redis.url";

/// All of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) redis: RedisOptions,
    pub(crate) worker: Section,
    pub(crate) admin: Admin,
    pub(crate) book: book::Section,
    pub(crate) payloads: Payloads,
    pub(crate) agents: BTreeMap<AgentName, AgentSection>,
}

/// `[worker]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Section {
    name: String,
    concurrency: u32,
    #[serde(with = "list")]
    agents: Vec<String>,
    order: Order,
    profile: Profile,
    #[serde(default, with = "duration::optional")]
    lease: Option<Duration>,
    #[serde(default, with = "duration::optional")]
    renew: Option<Duration>,
    #[serde(default, with = "duration::optional")]
    sweep: Option<Duration>,
    #[serde(with = "duration")]
    grace: Duration,
    #[serde(with = "duration")]
    result_ttl: Duration,
    poison_after: u32,
    #[serde(with = "duration")]
    unknown_agent_after: Duration,
    #[serde(with = "duration")]
    pub(crate) connect_within: Duration,
}

/// Times that go together.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Profile {
    Default,
    Fast,
}

impl Profile {
    /// Lease, renew, sweep.
    fn times(self) -> [Duration; 3] {
        match self {
            Self::Default => [10_000, 2_500, 1_000],
            Self::Fast => [3_000, 750, 500],
        }
        .map(Duration::from_millis)
    }
}

/// `[admin]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Admin {
    listen: String,
}

/// The first layers, with the development server's URL if one runs here.
pub(crate) fn loader(home: Option<&Path>) -> Loader {
    let mask = |url: &str| RedisOptions { url: url.to_owned(), ..RedisOptions::default() }.shown_url();
    let hidden = |_: &str| "***".to_owned();
    let loader = Loader::new(DEFAULTS)
        .secret("redis.url", mask)
        .secret("agents.*.env.*", hidden)
        .secret("agents.*.headers.*", hidden)
        .secret(SECRET, hidden);
    let dev = home.map(|home| home.join(DEV_DIR));
    let alive = dev.filter(|dev| tidemill_embedded::running_socket(dev).is_some()).map(|dev| dev.join(DEV_URL));
    match alive.and_then(|path| Some((std::fs::read_to_string(&path).ok()?, path))) {
        Some((url, path)) => loader.found(path, "redis.url", url.trim()),
        None => loader,
    }
}

/// Merges, reads and checks.
pub(crate) fn load(loader: Loader) -> Result<Loaded<Config>, Mistakes> {
    loader.load(Config::check)
}

impl Config {
    /// What does not fit together.
    fn check(&self) -> Vec<String> {
        let mut wrong: Vec<String> = self.options().check().into_iter().map(|what| format!("worker.{what}")).collect();
        if let Err(error) = self.redis.check() {
            let text = error.to_string();
            wrong.push(format!("redis.url: {}", text.strip_prefix("redis settings: ").unwrap_or(&text)));
        }
        if let Err(what) = self.admin() {
            wrong.push(what);
        }
        for name in &self.worker.agents {
            let known = || self.agents.keys().map(AgentName::as_str);
            if !known().any(|k| k == name) {
                let near = nearest(name, known()).map_or(String::new(), |near| format!("; did you mean `{near}`?"));
                wrong.push(format!("worker.agents: there is no agent `{name}`{near}"));
            }
        }
        if !self.agents.iter().any(|(name, agent)| self.runs(name, agent)) {
            wrong.push("worker.agents: no agent is left to run; enable one".to_owned());
        }
        wrong.extend(self.book.check());
        wrong.extend(self.payloads.check());
        for (name, agent) in &self.agents {
            wrong.extend(agent.check().into_iter().map(|what| format!("agents.{name}.{what}")));
        }
        wrong
    }

    fn runs(&self, name: &AgentName, agent: &AgentSection) -> bool {
        let chosen = &self.worker.agents;
        agent.enabled() && (chosen.is_empty() || chosen.iter().any(|c| c == name.as_str()))
    }

    /// Where the admin listener binds; none: nowhere.
    pub(crate) fn admin(&self) -> Result<Option<SocketAddr>, String> {
        match self.admin.listen.trim() {
            OFF => Ok(None),
            text => match text.parse() {
                Ok(address) => Ok(Some(address)),
                Err(_) => {
                    Err(format!("admin.listen: {text:?} is no address; write 127.0.0.1:9464, [::1]:9464 or {OFF}"))
                }
            },
        }
    }

    /// What the library wants to know.
    pub(crate) fn options(&self) -> Options {
        let w = &self.worker;
        let [lease, renew, sweep] = w.profile.times();
        Options {
            name: if w.name.is_empty() { host_name() } else { w.name.clone() },
            concurrency: w.concurrency,
            lease: w.lease.unwrap_or(lease),
            renew: w.renew.unwrap_or(renew),
            sweep: w.sweep.unwrap_or(sweep),
            grace: w.grace,
            order: w.order,
            result_ttl: w.result_ttl,
            poison_after: w.poison_after,
            unknown_agent_after: w.unknown_agent_after,
            lone: false,
        }
    }

    /// The agents to run. Children of process agents live on the given thread.
    ///
    /// # Errors
    /// When one cannot be made on this machine.
    pub(crate) fn registry(&self, children: &Children) -> anyhow::Result<Registry> {
        let mut chosen = self.agents.iter().filter(|(name, agent)| self.runs(name, agent));
        chosen.try_fold(Registry::new(), |registry, (name, agent)| {
            Ok(registry.with_agent(name.clone(), agent.agent(name, children)?))
        })
    }

    /// The names of the agents to run.
    pub(crate) fn agent_names(&self) -> Vec<&str> {
        self.agents.iter().filter(|(name, agent)| self.runs(name, agent)).map(|(name, _)| name.as_str()).collect()
    }
}

/// The host's name, as far as a worker's name may have its letters.
fn host_name() -> String {
    let host = nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let letter = |c: char| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '-' };
    let name: String = host.chars().take(NAME_BYTES_MAX).map(letter).collect();
    if name.is_empty() { "worker".to_owned() } else { name }
}
