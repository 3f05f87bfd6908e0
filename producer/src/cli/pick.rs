//! Ids, or a filter: what every verb for many tasks takes, and the tasks that it names.

use std::collections::HashSet;
use std::io::{BufRead as _, IsTerminal as _, Write as _};

use futures::FutureExt as _;
use tidemill_producer::{Client, State, TaskId};

use super::codes::Code;
use super::exit::{Exit, Failure};
use super::filter::FilterArgs;
use super::{Context, ids};

/// Most tasks of one command: their ids are remembered, so that each is met once.
const IDS_MAX: usize = 1_000_000;

/// Which tasks, and how carefully.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Pick {
    /// Ids of tasks; `-` reads them from stdin, one a line. Or name them by a filter
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// All that the verb can be done to: no filter
    #[arg(long, help_heading = "By a filter")]
    all: bool,
    /// At most so many of those that match; 0: all
    #[arg(long, short = 'n', value_name = "N", help_heading = "By a filter")]
    limit: Option<usize>,
    /// Only say how many match, and which
    #[arg(long, help_heading = "By a filter")]
    pub(crate) dry_run: bool,
    /// Do it to all that match without asking
    #[arg(long, short, help_heading = "By a filter")]
    yes: bool,
}

/// The tasks that were named.
#[derive(Debug)]
pub(crate) struct Picked {
    /// Each once, in order.
    pub(crate) ids: Vec<TaskId>,
    /// They came from a filter.
    pub(crate) by_filter: bool,
}

/// What a verb can be done to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct States {
    /// Those that it looks for.
    pub(crate) usual: &'static [State],
    /// Those that may be named.
    pub(crate) most: &'static [State],
}

impl Pick {
    /// Whether ids are given, and no filter.
    ///
    /// # Errors
    /// Neither, or both.
    pub(crate) fn is_by_id(&self, verb: &str) -> Result<bool, Failure> {
        let filtered = self.all || !self.filter.is_empty();
        match (self.ids.is_empty(), filtered) {
            (false, false) => Ok(true),
            (true, true) => Ok(false),
            (true, false) => {
                let text = format!("name tasks to {verb}: ids, a filter such as --queue or --agent, or --all");
                Err(Failure::usage(Code::NoChoice, text))
            }
            (false, true) => Err(Failure::usage(Code::NoChoice, "give ids or a filter, not both")),
        }
    }

    /// The ids that were given, each once; `verb` is who asks.
    ///
    /// # Errors
    /// One that is none; or none at all.
    pub(crate) fn given(&self, verb: &str) -> Result<Vec<TaskId>, Failure> {
        let mut seen = HashSet::new();
        let ids = ids::read(&self.ids, verb)?;
        Ok(ids.into_iter().filter(|id| seen.insert(id.clone())).collect())
    }

    /// The tasks that are named. Those of a filter are listed now, once: what dies after now is not among them.
    ///
    /// # Errors
    /// What is wrong with the arguments, and when Redis does not answer.
    pub(crate) async fn read(
        &self,
        verb: &str,
        states: States,
        client: &Client,
        context: &Context,
    ) -> Result<Picked, Failure> {
        if self.is_by_id(verb)? {
            return Ok(Picked { ids: self.given(verb)?, by_filter: false });
        }
        let wanted = self.filter.wanted(states.usual, states.most)?;
        let begun_ms = client.counts().await?.now_ms;
        let limit = self.limit.filter(|limit| *limit > 0).unwrap_or(usize::MAX);
        let most = limit.min(IDS_MAX);
        let (mut ids, mut over) = (Vec::new(), false);
        let list = client.list(&wanted.select, |found| {
            let died_later =
                found.state == State::Dead && found.outcome.as_ref().is_some_and(|o| o.ended_ms > begun_ms);
            if !died_later && wanted.matches(&found) {
                over = ids.len() == most;
                if !over {
                    ids.push(found.id);
                }
            }
            !over
        });
        tokio::select! {
            listed = list => listed?,
            () = context.interrupt.told(1) => {
                return Err(Failure::new(Exit::Interrupted, Code::Interrupted, "interrupted: nothing was done"));
            }
        }
        if over && limit > IDS_MAX {
            let text = format!("more than {IDS_MAX} tasks match: narrow the filter, or do it in parts with --limit");
            return Err(Failure::usage(Code::TooMany, text));
        }
        Ok(Picked { ids, by_filter: true })
    }

    /// Asks whether to do it to all that match, or goes by `--yes`.
    ///
    /// # Errors
    /// A no, and when nobody can be asked.
    pub(crate) async fn confirm(&self, picked: &Picked, verb: &str, context: &Context) -> Result<(), Failure> {
        if self.yes || !picked.by_filter || picked.ids.is_empty() {
            return Ok(());
        }
        let question = format!("{verb} {} tasks", picked.ids.len());
        if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
            let text = format!(
                "to {question}, and nobody is here to be asked: say --yes, or look at them first with --dry-run"
            );
            return Err(Failure::usage(Code::NeedsYes, text));
        }
        let _ = write!(std::io::stderr().lock(), "{question}? [y/N] ");
        let (sender, answer) = tokio::sync::oneshot::channel();
        // A read of a terminal cannot be given up; the program does not wait for this thread at its end.
        std::thread::spawn(move || {
            let mut line = String::new();
            let _ = std::io::stdin().lock().read_line(&mut line);
            let _ = sender.send(line);
        });
        let line = tokio::select! {
            line = answer => line.unwrap_or_default(),
            () = context.interrupt.told(1) => {
                return Err(Failure::new(Exit::Interrupted, Code::Interrupted, "interrupted: nothing was done"));
            }
        };
        if matches!(line.trim(), "y" | "Y" | "yes") {
            Ok(())
        } else {
            Err(Failure::new(Exit::Failure, Code::Declined, "nothing was done"))
        }
    }
}

/// Whether somebody wants the program to stop.
pub(crate) fn is_stopped(context: &Context) -> bool {
    context.interrupt.told(1).now_or_never().is_some()
}
