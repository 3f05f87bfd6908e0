//! `producer workers`: who is there and what each does; `producer concurrency`: how much each does at once.

use clap::builder::NonEmptyStringValueParser;
use serde::Serialize;
use tidemill_common::store::{CONCURRENCY_MAX, Tuned, WorkerSeen};
use tidemill_producer::AgentName;

use super::Context;
use super::codes::Code;
use super::exit::{Exit, Failure, Outcome};
use super::output::{Format, Paint, printable};
use super::words::span;

const EXAMPLES: &str = "Examples:
  producer workers
  producer workers --output json | jq '.[] | select(.state == \"given_up\")'
";
const FIELDS: &str = "Fields (JSON): id; name (the id without the incarnation, for `concurrency --worker`); state: at_work, idle, or given_up
(its lease is over, and what it ran is being taken back); running; lease_left_ms, or null; agents; asleep (it waits for tasks,
with room). At most 1,000 are shown.";

const CONCURRENCY: &str = "Examples:
  producer concurrency                              what was said
  producer concurrency 32                           each worker runs 32 tasks at once
  producer concurrency 4 --agent gpt4               of agent gpt4 4 on each worker
  producer concurrency reset --worker big-box       as its own options say
";
const CONCURRENCY_FIELDS: &str = "It takes the place of what the workers' own options say, on those that run and on those that come. What runs above a lower number
runs on. To hold work back altogether: `producer pause`.

Fields (JSON): what (all, worker, agent); name, or null; most, or null when it was reset. Without a number, a list of them.";

/// Show the workers, and what each does
#[derive(Debug, clap::Args)]
#[command(before_long_help = EXAMPLES, after_long_help = FIELDS)]
pub(crate) struct Args {}

/// Say how many tasks workers run at once, while they run; or show what was said
#[derive(Debug, clap::Args)]
#[command(before_long_help = CONCURRENCY, after_long_help = CONCURRENCY_FIELDS)]
pub(crate) struct Concurrency {
    /// So many, 1 to 10000; or `reset`: as the workers' own options say. Without it: show what was said
    #[arg(value_name = "N|reset", value_parser = most)]
    most: Option<Most>,
    /// Workers of this name
    #[arg(long, value_name = "NAME", conflicts_with = "agent", value_parser = NonEmptyStringValueParser::new())]
    worker: Option<String>,
    /// Tasks of this agent, on each worker
    #[arg(long, short, value_name = "AGENT")]
    agent: Option<AgentName>,
}

/// A number, or none.
#[derive(Debug, Clone, Copy)]
enum Most {
    Reset,
    Tasks(u32),
}

fn most(word: &str) -> Result<Most, String> {
    if word == "reset" {
        return Ok(Most::Reset);
    }
    let number = word.parse().ok().filter(|number| (1..=CONCURRENCY_MAX).contains(number));
    number.map(Most::Tasks).ok_or_else(|| {
        format!("it is a number from 1 to {CONCURRENCY_MAX}, or `reset`; to hold work back altogether: producer pause")
    })
}

#[derive(Debug, Serialize)]
struct View {
    id: String,
    name: String,
    state: &'static str,
    running: u64,
    lease_left_ms: Option<u64>,
    agents: Vec<String>,
    asleep: bool,
}

impl View {
    fn of(worker: WorkerSeen, now_ms: u64) -> Self {
        let id = worker.id.to_string();
        let name = id.rsplit_once('.').map_or(id.as_str(), |(name, _)| name).to_owned();
        let lease_left_ms = worker.lease_ms.checked_sub(now_ms).filter(|left| *left > 0);
        let state = match (lease_left_ms, worker.running) {
            (None, _) => "given_up",
            (_, 0) => "idle",
            _ => "at_work",
        };
        Self { id, name, state, running: worker.running, lease_left_ms, agents: worker.agents, asleep: worker.idle }
    }

    fn row(self, context: &Context) -> Vec<String> {
        let (paint, state) = match self.state {
            "given_up" => (Paint::Bad, "given up"),
            "idle" => (Paint::Faint, "idle"),
            _ => (Paint::Good, "at work"),
        };
        vec![
            printable(&self.id),
            context.out.paint(paint, state),
            self.running.to_string(),
            self.lease_left_ms.map_or_else(|| "over".to_owned(), span),
            printable(&self.agents.join(", ")),
        ]
    }
}

pub(crate) async fn run(_args: &Args, context: &Context) -> Outcome {
    let client = context.connect().await?;
    let (now_ms, workers) = client.workers().await?;
    let views: Vec<View> = workers.into_iter().map(|worker| View::of(worker, now_ms)).collect();
    let out = &context.out;
    match out.format {
        Format::Json => out.json(&views)?,
        Format::Ndjson => out.json_each(&views)?,
        Format::Table if views.is_empty() => {
            out.note("No worker is there: start one with `worker run`, or `worker dev` on this machine.");
        }
        Format::Table => {
            let rows = views.into_iter().map(|view| view.row(context)).collect();
            out.table(&["WORKER", "STATE", "RUNNING", "LEASE LEFT", "AGENTS"], rows)?;
        }
    }
    Ok(Exit::Ok)
}

#[derive(Debug, Serialize)]
struct TunedView {
    what: &'static str,
    name: Option<String>,
    most: Option<u32>,
}

impl TunedView {
    fn of(what: &Tuned, most: Option<u32>) -> Self {
        let (what, name) = match what {
            Tuned::All => ("all", None),
            Tuned::Worker(name) => ("worker", Some(name.clone())),
            Tuned::Agent(agent) => ("agent", Some(agent.to_string())),
        };
        Self { what, name, most }
    }
}

impl Concurrency {
    fn what(&self) -> Tuned {
        match (&self.worker, &self.agent) {
            (Some(name), _) => Tuned::Worker(name.clone()),
            (None, Some(agent)) => Tuned::Agent(agent.clone()),
            (None, None) => Tuned::All,
        }
    }
}

pub(crate) async fn concurrency(args: &Concurrency, context: &Context) -> Outcome {
    let what = args.what();
    let client = context.connect().await?;
    let most = match args.most {
        None => return said(client.tunes().await?, (what != Tuned::All).then_some(&what), context),
        Some(Most::Reset) => None,
        Some(Most::Tasks(most)) => Some(most),
    };
    if !client.tune(&what, most).await? {
        let text = "256 such numbers are said, which is as many as there may be: reset one";
        return Err(Failure::new(Exit::Refused, Code::TooManyKept, text));
    }
    if !context.out.is_table() {
        context.out.json(&TunedView::of(&what, most))?;
    } else {
        let shown = printable(&what.to_string());
        let words = match most {
            Some(most) => format!("{shown}: {most} tasks at once"),
            None => format!("{shown}: as the workers' own options say"),
        };
        context.out.line(&words)?;
    }
    Ok(Exit::Ok)
}

/// What was said; of one thing, if one is named.
fn said(tunes: Vec<(Tuned, u32)>, of: Option<&Tuned>, context: &Context) -> Outcome {
    let tunes: Vec<_> = tunes.into_iter().filter(|(what, _)| of.is_none_or(|of| of == what)).collect();
    let views: Vec<TunedView> = tunes.iter().map(|(what, most)| TunedView::of(what, Some(*most))).collect();
    let out = &context.out;
    match out.format {
        Format::Json => out.json(&views)?,
        Format::Ndjson => out.json_each(&views)?,
        Format::Table if tunes.is_empty() => out.note("Nothing was said: each worker goes by its own options."),
        Format::Table => {
            let row = |(what, most): &(Tuned, u32)| vec![printable(&what.to_string()), most.to_string()];
            out.table(&["WHAT", "AT ONCE"], tunes.iter().map(row).collect())?;
        }
    }
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_without_a_lease_is_given_up() {
        let seen = |lease_ms, running| WorkerSeen {
            id: "big-box.0123456789ab".parse().unwrap(),
            lease_ms,
            agents: vec![],
            idle: false,
            running,
        };
        assert_eq!(View::of(seen(0, 3), 1_000).state, "given_up");
        assert_eq!(View::of(seen(900, 0), 1_000).lease_left_ms, None);
        let at_work = View::of(seen(1_900, 1), 1_000);
        assert_eq!((at_work.state, at_work.name.as_str(), at_work.lease_left_ms), ("at_work", "big-box", Some(900)));
        assert_eq!(View::of(seen(1_900, 0), 1_000).state, "idle");
    }
}
