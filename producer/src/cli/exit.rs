//! How the program ends: its exit codes, and failures with the code that they mean.

use std::io;
use std::process::ExitCode;

use clap::CommandFactory as _;
use tidemill_common::book::Mistake;
use tidemill_common::store;
use tidemill_producer::Error;

use super::codes::Code;

/// The exit codes, which scripts rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Ok = 0,
    Failure = 1,
    Usage = 2,
    EndedBadly = 3,
    WaitTimedOut = 4,
    Refused = 5,
    PartlyAccepted = 6,
    Unreachable = 7,
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// The table of exit codes, for the help text.
pub(crate) const HELP: &str = "Exit codes:
  0    done
  1    failure
  2    usage: a flag, a name, a payload or a file is not right
  3    the task waited for ended badly (dead, cancelled or expired)
  4    the wait timed out; the task goes on
  5    refused: queue full, key conflict, or a duplicate with --fail-on-duplicate
  6    of many tasks, only a part was accepted, or done
  7    Redis cannot be reached, does not answer, or does nothing at present
  130  interrupted
Each failure has a code as well, such as TM-0102: producer explain TM-0102";

/// Why the program ends without having done what it was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) code: Code,
    /// For people; empty where nothing needs to be said.
    pub(crate) text: String,
}

/// What a verb comes to.
pub(crate) type Outcome = Result<Exit, Failure>;

impl Failure {
    pub(crate) fn usage(code: Code, text: impl Into<String>) -> Self {
        Self::new(Exit::Usage, code, text)
    }

    /// What was to be read cannot be.
    pub(crate) fn cannot_read(what: &str, error: &io::Error) -> Self {
        Self::usage(Code::CannotRead, format!("cannot read {what}: {error}"))
    }

    /// Data is to come from stdin, and stdin is a terminal where nobody knows what to type: help, and no wait.
    pub(crate) fn at_terminal(what: &str, verb: &str) -> Self {
        let mut command = super::args::Args::command();
        let help = command.find_subcommand_mut(verb).map(|verb| verb.render_help().to_string()).unwrap_or_default();
        let text = format!("{what} from stdin, which is a terminal: pipe it in, or name a file\n\n{}", help.trim_end());
        Self::usage(Code::Terminal, text)
    }

    pub(crate) fn new(exit: Exit, code: Code, text: impl Into<String>) -> Self {
        Self { exit, code, text: text.into() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let (exit, code) = (exit_of(&error), code_of(&error));
        let mut text = match &error {
            Error::Connect { url, source } => return Self::new(exit, code, unreachable_text(url, source.as_ref())),
            Error::Book(mistakes) => format!("the book has mistakes:{}", Mistake::lines(mistakes)),
            other => chain(other),
        };
        if let Error::Unknown { id, .. } = &error {
            text.push_str(&format!("\n  to send it again: the same command with --id {id}"));
        }
        Self { exit, code, text }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        // Whoever read our output has what it wanted.
        let text =
            if error.kind() == io::ErrorKind::BrokenPipe { String::new() } else { format!("cannot write: {error}") };
        Self::new(Exit::Failure, Code::CannotWrite, text)
    }
}

/// The exit code that an error means.
pub(crate) fn exit_of(error: &Error) -> Exit {
    match error {
        Error::Invalid(_) | Error::Book(_) | Error::Schedule(_) => Exit::Usage,
        Error::TooManySchedules { .. } => Exit::Refused,
        Error::Connect { .. } | Error::Unknown { .. } | Error::NotNow { .. } => Exit::Unreachable,
        Error::Store(store::Error::Settings(_)) => Exit::Usage,
        Error::Store(e) if e.is_transient() => Exit::Unreachable,
        e if e.is_refusal() => Exit::Refused,
        _ => Exit::Failure,
    }
}

/// The code that an error has.
pub(crate) fn code_of(error: &Error) -> Code {
    match error {
        Error::Invalid(_) => Code::NoTask,
        Error::Full { .. } => Code::QueueFull,
        Error::ServerFull => Code::MemoryFull,
        Error::TooManyQueues { .. } => Code::TooManyQueues,
        Error::Conflict { .. } => Code::KeyConflict,
        Error::NeverFits { .. } => Code::NeverFits,
        Error::Unknown { .. } => Code::Unknown,
        Error::NotNow { .. } | Error::Connect { source: Some(store::Error::NotNow { .. }), .. } => Code::NotNow,
        Error::Book(_) => Code::BookMistakes,
        Error::Schedule(_) => Code::ScheduleMistakes,
        Error::TooManySchedules { .. } => Code::TooManyKept,
        Error::Connect { source: Some(source), .. } if !source.is_transient() => Code::NotLetIn,
        Error::Connect { .. } => Code::Unreachable,
        Error::Store(store) => code_of_store(store),
        Error::Payload { .. } => Code::NoPayload,
        // Rejected, Failed, and what a later version of the library may add.
        _ => Code::NotTaken,
    }
}

fn code_of_store(error: &store::Error) -> Code {
    match error {
        store::Error::Unavailable { .. } => Code::NoAnswer,
        store::Error::NotNow { .. } => Code::NotNow,
        store::Error::Full => Code::MemoryFull,
        store::Error::Envelope(_) => Code::NoTask,
        store::Error::Settings(_) => Code::RedisSettings,
        store::Error::Unsuitable(_) => Code::Unsuitable,
        store::Error::Reply { .. } => Code::StrangeAnswer,
        _ => Code::RedisRefused,
    }
}

/// An error with its causes, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = plain(&error.to_string());
        // Some errors repeat their cause.
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}

/// What the operating system said, out of the client's `IO Error: Os { code: 111, …, message: "Connection refused" }`.
fn plain(text: &str) -> String {
    let quoted = ["message: \"", "error: \""].iter().find_map(|mark| text.split_once(mark)?.1.split_once('"'));
    match quoted {
        Some((words, _)) if text.starts_with("IO Error") => words.to_owned(),
        _ => text.trim_end_matches('.').to_owned(),
    }
}

fn unreachable_text(url: &str, source: Option<&store::Error>) -> String {
    let why = source.map_or_else(|| "no answer in time".to_owned(), |e| chain(e));
    if source.is_some_and(|e| !e.is_transient()) {
        return format!(
            "Redis at {url} does not let us in: {why}\n  \
             check the user and password in the URL (redis://user:password@host:port); a file can hold it: TIDEMILL__REDIS__URL_FILE"
        );
    }
    if matches!(source, Some(store::Error::NotNow { .. })) {
        return format!("Redis at {url} does nothing at present: {why}\n  ask again a little later");
    }
    format!(
        "Redis cannot be reached at {url}: {why}\n  \
         get a server: `worker dev` (nothing to install), `apt-get install redis-server`, or `docker run -p 6379:6379 redis:7`\n  \
         or name yours: --redis URL, TIDEMILL__REDIS__URL, or redis.url in a file for --config"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_every_code() {
        for exit in [
            Exit::Ok,
            Exit::Failure,
            Exit::Usage,
            Exit::EndedBadly,
            Exit::WaitTimedOut,
            Exit::Refused,
            Exit::PartlyAccepted,
            Exit::Unreachable,
            Exit::Interrupted,
        ] {
            assert!(HELP.lines().any(|line| line.trim().starts_with(&format!("{} ", exit as u8))), "{exit:?}");
        }
    }

    #[test]
    fn the_systems_own_words_are_shown() {
        let refused = r#"IO Error: Os { code: 111, kind: ConnectionRefused, message: "Connection refused" }"#;
        assert_eq!(plain(refused), "Connection refused");
        assert_eq!(plain("Timeout Error: no connection in time"), "Timeout Error: no connection in time");
    }

    #[test]
    fn an_unreachable_server_is_said_in_three_lines() {
        let failure = Failure::from(Error::Connect { url: "redis://h:1".into(), source: None });
        assert_eq!(failure.exit, Exit::Unreachable);
        assert_eq!(failure.text.lines().count(), 3);
    }
}
