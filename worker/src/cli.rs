//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use tidemill_common::config::Loader;

const EXAMPLES: &str = "\
Examples:
  worker dev                         a server and a worker here, to try things out
  worker run --config worker.toml    a worker as in production
  worker run --redis redis://db:6379 --concurrency 8 --agents echo,words
  worker config show --origins       what is in force, and who says so
  worker health && echo consuming

Exit codes:
  0    stopped, all that ran has ended     7    Redis was not reached at the start
  1    failure                             75   stopped, unfinished tasks handed back
  2    wrong usage or configuration        130  stopped by force";

const ENVIRONMENT: &str = "\
Environment:
  TIDEMILL__SECTION__KEY       any key, e.g. TIDEMILL__WORKER__CONCURRENCY=8
  TIDEMILL__REDIS__URL_FILE    a file that holds the URL, for secrets
  TIDEMILL_CONFIG              as --config
  TIDEMILL_LOG                 info (default), debug, warn,tidemill_worker=trace
  TIDEMILL_REDIS_SERVER_BIN    the server that `worker dev` starts
  NO_COLOR                     no colour in logs";

/// Takes tasks of AI agents from Redis and runs them.
#[derive(Debug, Parser)]
#[command(name = "worker", version, after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{ENVIRONMENT}"))]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a worker until SIGTERM or Ctrl-C; a second one forces it to stop
    #[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{ENVIRONMENT}"))]
    Run(Settings),
    /// Run a private server and a worker on this machine, for development
    ///
    /// The server is a Redis or Valkey found on this machine; its data stays in .tidemill/dev. The worker is a process of its
    /// own: kill it, and see its tasks come back. `producer` and `worker run` in other terminals of this directory find the server
    /// by themselves.
    Dev(Dev),
    /// Ask a running worker whether it consumes: exit code 0 if so
    Health(Health),
    /// Show the configuration
    #[command(subcommand)]
    Config(Config),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// What is in force, secrets masked
    Show {
        /// Say where each value comes from
        #[arg(long)]
        origins: bool,
        #[command(flatten)]
        settings: Box<Settings>,
    },
    /// The annotated defaults: every key and what it means
    Defaults,
}

/// Flags that stand for keys of the configuration.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Settings {
    /// A configuration file (TOML); see `worker config defaults`
    #[arg(long, value_name = "FILE", env = "TIDEMILL_CONFIG", hide_env_values = true)]
    config: Option<PathBuf>,
    /// Where Redis is [redis.url]; a password is better given by TIDEMILL__REDIS__URL_FILE
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// The worker's name [worker.name]
    #[arg(long)]
    name: Option<String>,
    /// Most tasks at once [worker.concurrency]
    #[arg(long, short = 'c', value_name = "N")]
    concurrency: Option<String>,
    /// Which agents to run, with commas [worker.agents]
    #[arg(long, short = 'a', value_name = "A,B")]
    agents: Option<String>,
    /// weighted or strict [worker.order]
    #[arg(long)]
    order: Option<String>,
    /// default or fast: how soon a dead worker's tasks run elsewhere [worker.profile]
    #[arg(long)]
    profile: Option<String>,
    /// How long running tasks may take to end at a stop, e.g. 30s [worker.grace]
    #[arg(long, value_name = "TIME")]
    grace: Option<String>,
    /// Where /metrics, /readyz and the like answer, or "off" [admin.listen]
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Dev {
    /// Where the server's data is kept
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) settings: Settings,
}

#[derive(Debug, Args)]
pub(crate) struct Health {
    /// The worker's admin address; default: that of the configuration
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    #[command(flatten)]
    pub(crate) settings: Settings,
}

impl Settings {
    /// Each flag with its key.
    fn flags(&self) -> [(&'static str, &'static str, Option<&String>); 8] {
        [
            ("--redis", "redis.url", self.redis.as_ref()),
            ("--name", "worker.name", self.name.as_ref()),
            ("--concurrency", "worker.concurrency", self.concurrency.as_ref()),
            ("--agents", "worker.agents", self.agents.as_ref()),
            ("--order", "worker.order", self.order.as_ref()),
            ("--profile", "worker.profile", self.profile.as_ref()),
            ("--grace", "worker.grace", self.grace.as_ref()),
            ("--admin", "admin.listen", self.admin.as_ref()),
        ]
    }

    /// Adds the file, the environment and the flags to the layers below.
    pub(crate) fn add_to(&self, mut loader: Loader) -> Loader {
        if let Some(file) = &self.config {
            loader = loader.file(file);
        }
        self.flags()
            .into_iter()
            .fold(loader.env_of_process(), |l, (name, key, value)| l.flag(name, key, value.cloned()))
    }

    /// The same flags again, for a child.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let config = self.config.iter().flat_map(|path| [OsString::from("--config"), path.into()]);
        let given =
            self.flags().into_iter().filter_map(|(name, _, value)| Some(OsString::from(format!("{name}={}", value?))));
        config.chain(given).collect()
    }

    /// With other addresses: the dev command knows them itself.
    pub(crate) fn at(self, redis: String, admin: String) -> Self {
        Self { redis: Some(redis), admin: Some(admin), ..self }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_survive_the_way_to_a_child() {
        let line = ["worker", "run", "--concurrency", "8", "--agents=a,b", "--name", "-x-"];
        let read = |line: &[&str]| match Cli::try_parse_from(line).map(|c| c.command) {
            Ok(Command::Run(settings)) => Some(settings),
            _ => None,
        };
        assert!(read(&line).is_none(), "a value that looks like a flag needs an equals sign");
        let settings = read(&["worker", "run", "--concurrency", "8", "--agents=a,b", "--name=-x-"]).unwrap();
        let again: Vec<String> = settings.arguments().into_iter().map(|a| a.into_string().unwrap()).collect();
        let again: Vec<&str> = ["worker", "run"].into_iter().chain(again.iter().map(String::as_str)).collect();
        assert_eq!(read(&again).unwrap().arguments(), settings.arguments());
    }
}
