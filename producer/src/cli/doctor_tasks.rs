//! What `producer doctor` finds by looking at tasks: those that nobody can run, workers that died, order keys that are held.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidemill_common::store::{Filter, Found};
use tidemill_producer::{Client, Counts, Error, Select, State};

use super::doctor::{Check, Verdict, check};
use super::output::printable;

/// How long any one look at tasks may take. What was not seen by then is not judged.
const LOOK_FOR: Duration = Duration::from_secs(5);
/// Names and ids that a text lists.
const LISTED: usize = 5;
/// How the gate begins in whose line tasks of an agent wait for a worker that runs it.
const WANT: &str = "want:";

/// What a look came to: whether all was seen.
async fn look(client: &Client, select: &Select, mut see: impl FnMut(Found)) -> Result<bool, Error> {
    let all = client.list(select, |found| {
        see(found);
        true
    });
    match tokio::time::timeout(LOOK_FOR, all).await {
        Ok(seen) => seen.map(|()| true),
        Err(_) => Ok(false),
    }
}

/// All checks that look at tasks.
pub(crate) async fn checks(client: &Client, counts: &Counts) -> Result<Vec<Check>, Error> {
    let (mut workers, mut agents) = (BTreeSet::new(), BTreeSet::new());
    if counts.running > 0 {
        let running = Select::state(State::Running);
        look(client, &running, |found| {
            agents.extend(found.task.map(|task| task.agent.to_string()));
            workers.insert(found.detail);
        })
        .await?;
    }
    let mut checks = vec![lost_workers(workers.len() as u64, counts.workers)];
    checks.extend(unwanted(client, counts, &agents).await?);
    checks.push(held(client, counts).await?);
    Ok(checks)
}

/// A worker that runs something and has no lease is dead. Only their number is known: those that live may be idle.
fn lost_workers(running_on: u64, alive: u64) -> Check {
    match running_on.saturating_sub(alive) {
        0 => check("reclaim", Verdict::Ok, "no dead worker is known to have tasks"),
        _ if alive == 0 => check("reclaim", Verdict::Bad, format!("tasks are held by {running_on} workers, all dead"))
            .advise("start a worker (`worker run`): it takes their tasks back"),
        dead => check("reclaim", Verdict::Warn, format!("at least {dead} dead workers still have tasks")).advise(
            "wait a lease and an interval of the sweep (11 s by default); if it stays so, see the workers' logs",
        ),
    }
}

/// Tasks in the line of an agent of which nothing runs: nobody seems to know it. Queues in which nothing else waits are orphaned.
async fn unwanted(client: &Client, counts: &Counts, running: &BTreeSet<String>) -> Result<Vec<Check>, Error> {
    let (mut agents, mut queues): (BTreeMap<String, u64>, BTreeMap<String, u64>) = (BTreeMap::new(), BTreeMap::new());
    let mut all = true;
    if counts.parked > 0 {
        all = look(client, &Select::state(State::Parked), |found| {
            let agent = found.detail.strip_prefix(WANT).filter(|agent| !running.contains(*agent));
            if let Some(agent) = agent {
                *agents.entry(agent.to_owned()).or_default() += 1;
                if let Some(task) = &found.task {
                    *queues.entry(task.queue.to_string()).or_default() += 1;
                }
            }
        })
        .await?;
    }
    let orphaned: Vec<&str> = queues
        .iter()
        .filter(|(queue, n)| {
            counts.waiting.iter().filter(|((name, _), _)| name == *queue).map(|(_, n)| n).sum::<u64>() <= **n
        })
        .map(|(queue, _)| queue.as_str())
        .collect();
    let seen = if all { "" } else { " (of those that could be looked at in 5 s)" };
    let nobody = if agents.is_empty() {
        check("agents", Verdict::Ok, format!("no task waits for a worker that runs its agent{seen}"))
    } else {
        let names = agents.iter().map(|(agent, n)| format!("{} ({n} tasks)", printable(agent)));
        check("agents", Verdict::Warn, format!("no worker seems to run {}{seen}", some(names))).advise(
            "start workers that run them; or `producer cancel --agent AGENT --state parked`, if the name is a mistake",
        )
    };
    let orphans = if orphaned.is_empty() {
        check("queues", Verdict::Ok, "each queue in which tasks wait has some that can run, or are held by a limit")
    } else {
        let names = orphaned.iter().map(|queue| printable(queue));
        check("queues", Verdict::Warn, format!("orphaned: nothing in {} can run", some(names)))
            .advise("start workers that run those agents, or cancel the tasks: `producer cancel --queue QUEUE`")
    };
    Ok(vec![nobody, orphans])
}

/// Dead tasks that hold their order key: what is behind them waits until somebody decides.
async fn held(client: &Client, counts: &Counts) -> Result<Check, Error> {
    let mut heads = Vec::new();
    let mut more = 0_usize;
    if counts.dead > 0 {
        let select = Select { filter: Filter { ordered: true, ..Filter::default() }, ..Select::state(State::Dead) };
        look(client, &select, |found| {
            if found.task.is_some_and(|task| task.hold_on_dead) {
                if heads.len() < LISTED { heads.push(found.id.to_string()) } else { more += 1 }
            }
        })
        .await?;
    }
    Ok(match heads.len() + more {
        0 => check("order keys", Verdict::Ok, "none is held by a dead task"),
        n => check("order keys", Verdict::Warn, format!("{n} are held by dead tasks: {}", with_more(heads, more)))
            .advise(
                "`producer explain ID`, then `producer dead replay ID`, or `producer dead skip ID` to let the next go",
            ),
    })
}

/// A few of them, and how many more there are.
fn some(names: impl ExactSizeIterator<Item = String>) -> String {
    let more = names.len().saturating_sub(LISTED);
    with_more(names.take(LISTED).collect(), more)
}

fn with_more(names: Vec<String>, more: usize) -> String {
    let listed = names.join(", ");
    if more == 0 { listed } else { format!("{listed} and {more} more") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_that_hold_tasks_and_do_not_live_are_found_out() {
        assert_eq!(lost_workers(0, 0).verdict, Verdict::Ok);
        assert_eq!(lost_workers(2, 3).verdict, Verdict::Ok);
        assert_eq!(lost_workers(3, 2).verdict, Verdict::Warn);
        assert_eq!(lost_workers(1, 0).verdict, Verdict::Bad);
    }

    #[test]
    fn long_lists_are_cut() {
        let names: Vec<String> = (0..7).map(|n| n.to_string()).collect();
        assert_eq!(some(names.into_iter()), "0, 1, 2, 3, 4 and 2 more");
    }
}
