//! Logs: lines on standard error, text for people and JSON for machines.
//!
//! Standard output belongs to results. On a terminal the lines are short text, in colour unless `NO_COLOR` says otherwise;
//! elsewhere each is one JSON object. `TIDEMILL_LOG` filters them as `tracing` does: `info`, `debug`, `warn,tidemill_worker=trace`.

use std::io::IsTerminal as _;

use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, Registry};

/// Names the filter.
pub const ENV_LOG: &str = "TIDEMILL_LOG";
/// The Redis client tells of every lost connection itself, and we do too.
const FILTER_DEFAULT: &str = "info,fred=off";
/// The target of [`crate::trace`].
const TRACES_OFF: &str = "tidemill::trace=off";

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

/// The filter of log lines: spans for traces would only repeat in them what they say.
fn filter_of(text: &str) -> Result<EnvFilter, tracing_subscriber::filter::ParseError> {
    EnvFilter::try_new(format!("{TRACES_OFF},{text}"))
}

/// Begins to log, and to export spans of this service if the feature `otlp` is on and the environment says where to (see
/// [`crate::trace`]). Only the first call of a process does anything; later ones, and those beside another subscriber, are ignored.
pub fn init(service: &str) {
    let text = |name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    let plan = Plan::new(text(ENV_LOG), text("NO_COLOR"), std::io::stderr().is_terminal());
    let (filter, refused) = match filter_of(&plan.filter) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new(FILTER_DEFAULT), Some(error)),
    };
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = if plan.json {
        lines.json().flatten_event(true).with_span_list(false).boxed()
    } else {
        lines.compact().with_ansi(plan.colour).with_target(false).boxed()
    };
    let (first, traces) = begin(lines, filter, service);
    if first && let Some(error) = refused {
        tracing::warn!(filter = plan.filter, %error, "{ENV_LOG} cannot be read; logging as by default");
    }
    if first && let Err(error) = traces {
        tracing::warn!(error, "no spans are exported");
    }
}

/// How lines are written.
type Lines = Box<dyn Layer<Registry> + Send + Sync>;

/// Whether nobody had begun before, and why no spans are exported that should be.
#[cfg(feature = "otlp")]
fn begin(lines: Lines, filter: EnvFilter, service: &str) -> (bool, Result<(), String>) {
    match crate::trace::exporter(service) {
        Ok(Some(traces)) => {
            let ours = tracing_subscriber::filter::filter_fn(|of| of.target() == crate::trace::TARGET)
                .with_max_level_hint(tracing::Level::DEBUG);
            let all = Registry::default().with(lines.with_filter(filter)).with(traces.with_filter(ours));
            (all.try_init().is_ok(), Ok(()))
        }
        Ok(None) => (lines_alone(lines, filter), Ok(())),
        Err(error) => (lines_alone(lines, filter), Err(error)),
    }
}

/// Whether nobody had begun before.
#[cfg(not(feature = "otlp"))]
fn begin(lines: Lines, filter: EnvFilter, _service: &str) -> (bool, Result<(), String>) {
    (lines_alone(lines, filter), Ok(()))
}

fn lines_alone(lines: Lines, filter: EnvFilter) -> bool {
    Registry::default().with(lines).with(filter).try_init().is_ok()
}

/// Ends what [`init`] began: the last spans are sent, within two seconds.
pub fn end() {
    #[cfg(feature = "otlp")]
    crate::trace::end();
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
        init("test");
        init("test");
        end();
    }

    #[test]
    fn spans_for_traces_are_in_no_line_unless_somebody_says_so() {
        assert!(TRACES_OFF.starts_with(crate::trace::TARGET));
        let lines = |text| filter_of(text).unwrap().to_string();
        assert!(lines("debug").contains("tidemill::trace=off"));
        assert!(lines("debug,tidemill::trace=debug").contains("tidemill::trace=debug"));
    }
}
