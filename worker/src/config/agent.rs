//! One agent's section of the configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tidemill_common::config::duration;
use tidemill_common::name::AgentName;
use tidemill_worker::handler::builtin::{Echo, Fail, Noop, Sleep};
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
    command: Option<Vec<String>>,
    directory: Option<PathBuf>,
    env: Option<BTreeMap<String, String>>,
    slots: Option<u32>,
    #[serde(default, with = "duration::optional")]
    ready_within: Option<Duration>,
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
}

impl AgentSection {
    /// Whether it is to be run.
    pub(super) fn enabled(&self) -> bool {
        self.enabled
    }

    /// What does not fit together: keys below the section, with what is wrong.
    pub(super) fn check(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let process = self.kind == Kind::Process;
        let only = [
            ("command", self.command.is_some()),
            ("directory", self.directory.is_some()),
            ("env", self.env.is_some()),
            ("slots", self.slots.is_some()),
            ("ready_within", self.ready_within.is_some()),
        ];
        for (key, _) in only.iter().filter(|(_, given)| *given && !process) {
            wrong.push(format!("{key}: is only for kind = \"process\""));
        }
        if self.allow_abort.is_some() && self.kind != Kind::Fail {
            wrong.push("allow_abort: is only for kind = \"fail\"".to_owned());
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
        if process && self.enabled {
            wrong.extend(self.check_command());
        }
        wrong
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
    pub(super) fn agent(&self, name: &AgentName, children: &Children) -> Agent {
        let handler: Arc<dyn Handler> = match self.kind {
            Kind::Echo => Arc::new(Echo),
            Kind::Noop => Arc::new(Noop),
            Kind::Sleep => Arc::new(Sleep),
            Kind::Fail => Arc::new(Fail::new(self.allow_abort.unwrap_or(false))),
            Kind::Process => Arc::new(children.agent(name, self.process())),
        };
        // One child, one task: what is not said to go at once may not be able to.
        let concurrency = self.concurrency.or((self.kind == Kind::Process).then_some(1));
        Agent { handler, concurrency, timeout: self.timeout.unwrap_or(TIMEOUT_DEFAULT) }
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
