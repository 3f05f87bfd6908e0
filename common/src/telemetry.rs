//! Logs: lines on standard error, text for people and JSON for machines.
//!
//! Standard output belongs to results. On a terminal the lines are short text, in colour unless `NO_COLOR` says otherwise;
//! elsewhere each is one JSON object. `TIDEMILL_LOG` filters them as `tracing` does: `info`, `debug`, `warn,tidemill_worker=trace`.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Names the filter.
pub const ENV_LOG: &str = "TIDEMILL_LOG";
/// The Redis client tells of every lost connection itself, and we do too.
const FILTER_DEFAULT: &str = "info,fred=off";

/// How lines are written.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Plan {
    filter: String,
    json: bool,
    colour: bool,
}

impl Plan {
    fn new(filter: Option<String>, no_colour: Option<String>, terminal: bool) -> Self {
        let filter = filter.filter(|f| !f.trim().is_empty()).unwrap_or_else(|| FILTER_DEFAULT.to_owned());
        // https://no-color.org: present and not empty, whatever it says.
        let colour = terminal && no_colour.is_none_or(|value| value.is_empty());
        Self { filter, json: !terminal, colour }
    }
}

/// Begins to log. Only the first call of a process does anything; later ones, and those beside another subscriber, are ignored.
pub fn init() {
    let text = |name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    let plan = Plan::new(text(ENV_LOG), text("NO_COLOR"), std::io::stderr().is_terminal());
    let (filter, refused) = match EnvFilter::try_new(&plan.filter) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new(FILTER_DEFAULT), Some(error)),
    };
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let first = if plan.json {
        lines.json().flatten_event(true).with_span_list(false).finish().try_init()
    } else {
        lines.compact().with_ansi(plan.colour).with_target(false).finish().try_init()
    };
    if let (Ok(()), Some(error)) = (first, refused) {
        tracing::warn!(filter = plan.filter, %error, "{ENV_LOG} cannot be read; logging as by default");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_get_text_and_machines_get_json() {
        let plan = |filter: Option<&str>, no_colour: Option<&str>, tty| {
            Plan::new(filter.map(str::to_owned), no_colour.map(str::to_owned), tty)
        };
        assert_eq!(plan(None, None, false), Plan { filter: FILTER_DEFAULT.into(), json: true, colour: false });
        assert_eq!(plan(Some("debug"), None, true), Plan { filter: "debug".into(), json: false, colour: true });
        assert_eq!(
            plan(Some(" "), Some("1"), true),
            Plan { filter: FILTER_DEFAULT.into(), json: false, colour: false }
        );
        assert!(plan(None, Some(""), true).colour);
    }

    #[test]
    fn beginning_twice_is_harmless() {
        init();
        init();
    }
}
