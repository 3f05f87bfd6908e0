//! One agent's section of the configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use serde::Deserialize;
use tidemill_common::config::{duration, list};
use tidemill_common::name::AgentName;
use tidemill_worker::handler::builtin::{Echo, Fail, Noop, Sleep};
use tidemill_worker::handler::http::{HttpAgent, HttpOptions};
use tidemill_worker::handler::process::{Children, ProcessOptions};
use tidemill_worker::handler::{Agent, Handler, TIMEOUT_DEFAULT};

/// `[agents.NAME]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgentSection {
    kind: Kind,
    #[serde(default = "yes")]
    enabled: bool,
    concurrency: Option<u32>,
    #[serde(default, with = "duration::optional")]
    timeout: Option<Duration>,
    allow_abort: Option<bool>,
    mode: Option<Mode>,
    command: Option<Vec<String>>,
    directory: Option<PathBuf>,
    env: Option<BTreeMap<String, String>>,
    slots: Option<u32>,
    #[serde(default, with = "duration::optional")]
    ready_within: Option<Duration>,
    url: Option<String>,
    headers: Option<BTreeMap<String, String>>,
    #[serde(default, with = "duration::optional")]
    connect_timeout: Option<Duration>,
    #[serde(default, with = "duration::optional")]
    call_timeout: Option<Duration>,
    response_bytes_max: Option<usize>,
    #[serde(default, with = "list")]
    allow_private: Vec<String>,
}

fn yes() -> bool {
    true
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Echo,
    Noop,
    Sleep,
    Fail,
    Process,
    Http,
}

/// How a process serves tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    /// A child that stays, and speaks JSON lines.
    Serve,
    /// A child for each task.
    Once,
}

impl AgentSection {
    /// Whether it is to be run.
    pub(super) fn enabled(&self) -> bool {
        self.enabled
    }

    /// What does not fit together: keys below the section, with what is wrong.
    pub(super) fn check(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let only = [
            ("mode", Kind::Process, self.mode.is_some()),
            ("command", Kind::Process, self.command.is_some()),
            ("directory", Kind::Process, self.directory.is_some()),
            ("env", Kind::Process, self.env.is_some()),
            ("slots", Kind::Process, self.slots.is_some()),
            ("ready_within", Kind::Process, self.ready_within.is_some()),
            ("url", Kind::Http, self.url.is_some()),
            ("headers", Kind::Http, self.headers.is_some()),
            ("connect_timeout", Kind::Http, self.connect_timeout.is_some()),
            ("call_timeout", Kind::Http, self.call_timeout.is_some()),
            ("response_bytes_max", Kind::Http, self.response_bytes_max.is_some()),
            ("allow_private", Kind::Http, !self.allow_private.is_empty()),
            ("allow_abort", Kind::Fail, self.allow_abort.is_some()),
        ];
        for (key, kind, _) in only.iter().filter(|(_, kind, given)| *given && *kind != self.kind) {
            wrong.push(format!("{key}: is only for kind = \"{}\"", format!("{kind:?}").to_lowercase()));
        }
        let of_one_that_stays = [("slots", self.slots.is_some()), ("ready_within", self.ready_within.is_some())];
        for (key, _) in of_one_that_stays.iter().filter(|(_, given)| *given && self.mode == Some(Mode::Once)) {
            wrong.push(format!("{key}: is only for mode = \"serve\""));
        }
        for (key, number) in [("concurrency", self.concurrency), ("slots", self.slots)] {
            if number == Some(0) {
                wrong.push(format!("{key}: must be at least 1"));
            }
        }
        for (key, time) in [("timeout", self.timeout), ("ready_within", self.ready_within)] {
            if time == Some(Duration::ZERO) {
                wrong.push(format!("{key}: must be above zero"));
            }
        }
        match self.kind {
            Kind::Process if self.enabled => {
                wrong.extend(self.check_command());
                // The first task of a child waits for it within its own time.
                wrong.extend(self.outside_of_the_run("ready_within", self.ready_within));
            }
            Kind::Http if self.enabled => wrong.extend(self.check_http()),
            _ => {}
        }
        wrong
    }

    /// Each time is a part of the next: connecting, the call, the run.
    fn check_http(&self) -> Vec<String> {
        if self.url.is_none() {
            return vec!["url: is missing; for instance url = \"https://agents.example/run\"".to_owned()];
        }
        let mut wrong = self.http().check();
        wrong.extend(self.outside_of_the_run("call_timeout", self.call_timeout));
        if self.call_timeout.is_none() {
            wrong.extend(self.outside_of_the_run("connect_timeout", self.connect_timeout));
        }
        wrong
    }

    /// A part that may take longer than the whole: its own error would never be seen.
    fn outside_of_the_run(&self, key: &str, part: Option<Duration>) -> Option<String> {
        let (part, longest) = (part?, self.longest());
        (part > longest)
            .then(|| format!("{key}: {part:?} is more than the agent's timeout, {longest:?}, of which it is a part"))
    }

    /// Its longest run.
    fn longest(&self) -> Duration {
        self.timeout.unwrap_or(TIMEOUT_DEFAULT)
    }

    /// What would fail at the first task is said at the start.
    fn check_command(&self) -> Option<String> {
        let Some(program) = self.command.as_ref().and_then(|c| c.first()) else {
            return Some("command: is missing; for instance command = [\"python3\", \"agent.py\"]".to_owned());
        };
        if let Some(directory) = self.directory.as_ref().filter(|d| !d.is_dir()) {
            return Some(format!("directory: {} is no directory", directory.display()));
        }
        let here = self.directory.clone().or_else(|| std::env::current_dir().ok()).unwrap_or_default();
        let path =
            self.env.as_ref().and_then(|env| env.get("PATH").map(Into::into)).or_else(|| std::env::var_os("PATH"));
        let found = which::which_in(program, path, here).is_ok();
        (!found).then(|| format!("command: {program:?} is no program that can be run here"))
    }

    /// Its handler and bounds.
    ///
    /// # Errors
    /// When it cannot be made on this machine.
    pub(super) fn agent(&self, name: &AgentName, children: &Children) -> anyhow::Result<Agent> {
        let handler: Arc<dyn Handler> = match self.kind {
            Kind::Echo => Arc::new(Echo),
            Kind::Noop => Arc::new(Noop),
            Kind::Sleep => Arc::new(Sleep),
            Kind::Fail => Arc::new(Fail::new(self.allow_abort.unwrap_or(false))),
            Kind::Process if self.mode == Some(Mode::Once) => Arc::new(children.once(name, self.process())),
            Kind::Process => Arc::new(children.agent(name, self.process())),
            Kind::Http => Arc::new(HttpAgent::new(&self.http()).with_context(|| format!("the agent {name}"))?),
        };
        // One child, one task: what is not said to go at once may not be able to.
        let concurrency = self.concurrency.or((self.kind == Kind::Process).then_some(1));
        Ok(Agent { handler, concurrency, timeout: self.longest() })
    }

    fn http(&self) -> HttpOptions {
        let mut options = HttpOptions::new(self.url.clone().unwrap_or_default());
        options.headers = self.headers.clone().unwrap_or_default();
        options.call_timeout = self.call_timeout;
        // The default gives way to a shorter call; what was chosen has to fit.
        let most = self.call_timeout.unwrap_or_else(|| self.longest());
        options.connect_timeout = self.connect_timeout.unwrap_or_else(|| options.connect_timeout.min(most));
        options.response_bytes_max = self.response_bytes_max.unwrap_or(options.response_bytes_max);
        options.allow_private = self.allow_private.clone();
        options
    }

    fn process(&self) -> ProcessOptions {
        let (tasks, slots) = (self.concurrency.unwrap_or(1), self.slots.unwrap_or(1));
        let mut options = ProcessOptions::new(self.command.clone().unwrap_or_default());
        options.directory.clone_from(&self.directory);
        options.env = self.env.clone().unwrap_or_default();
        options.slots = slots.min(tasks) as usize;
        options.children = tasks.div_ceil(slots) as usize;
        options.ready_within = self.ready_within.unwrap_or(options.ready_within);
        options
    }
}
