//! What `producer doctor` finds by looking at tasks: those that nobody can run, workers that died, order keys that are held.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidemill_common::store::{Filter, Found, WorkerSeen};
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
    let (now_ms, workers) = client.workers().await?;
    let (alive, gone): (Vec<WorkerSeen>, Vec<WorkerSeen>) = workers.into_iter().partition(|w| w.lease_ms > now_ms);
    let mut checks = vec![lost_workers(&gone, alive.len())];
    let agents = alive.into_iter().flat_map(|worker| worker.agents).collect();
    checks.extend(unwanted(client, counts, &agents).await?);
    checks.push(held(client, counts).await?);
    Ok(checks)
}

/// Workers whose lease is over and that still have tasks: another takes those back.
fn lost_workers(gone: &[WorkerSeen], alive: usize) -> Check {
    let dead: Vec<&WorkerSeen> = gone.iter().filter(|worker| worker.running > 0).collect();
    let names = dead.iter().map(|worker| format!("{} ({} tasks)", printable(worker.id.as_str()), worker.running));
    match dead.len() {
        0 => check("reclaim", Verdict::Ok, "no dead worker has tasks"),
        _ if alive == 0 => check("reclaim", Verdict::Bad, format!("tasks are held by dead workers: {}", some(names)))
            .advise("start a worker (`worker run`): it takes their tasks back"),
        _ => check("reclaim", Verdict::Warn, format!("dead workers still have tasks: {}", some(names))).advise(
            "wait a lease and an interval of the sweep (11 s by default); if it stays so, see the workers' logs",
        ),
    }
}

/// Waiting tasks of agents that no worker runs. Queues in which nothing else waits are orphaned.
async fn unwanted(client: &Client, counts: &Counts, known: &BTreeSet<String>) -> Result<Vec<Check>, Error> {
    let (mut agents, mut queues): (BTreeMap<String, u64>, BTreeMap<String, u64>) = (BTreeMap::new(), BTreeMap::new());
    let mut all = true;
    if counts.waiting.values().any(|n| *n > 0) {
        let waiting = Select { states: vec![State::Parked, State::Queued, State::Scheduled], ..Select::default() };
        all = look(client, &waiting, |found| {
            let gate = found.detail.strip_prefix(WANT).filter(|agent| *agent != "*").map(str::to_owned);
            let agent = found.task.as_ref().map(|task| task.agent.to_string()).or(gate);
            let Some(agent) = agent.filter(|agent| !known.contains(agent)) else { return };
            *agents.entry(agent).or_default() += 1;
            if let Some(task) = &found.task {
                *queues.entry(task.queue.to_string()).or_default() += 1;
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
        check("agents", Verdict::Ok, format!("each agent of a waiting task is run by a worker{seen}"))
    } else {
        let names = agents.iter().map(|(agent, n)| format!("{} ({n} tasks)", printable(agent)));
        check("agents", Verdict::Warn, format!("no worker runs {}{seen}", some(names)))
            .advise("start workers that run them; or `producer cancel --agent AGENT`, if the name is a mistake")
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
        let gone =
            |running| WorkerSeen { id: "w.0123".parse().unwrap(), lease_ms: 0, agents: vec![], idle: false, running };
        assert_eq!(lost_workers(&[], 0).verdict, Verdict::Ok);
        assert_eq!(lost_workers(&[gone(0)], 3).verdict, Verdict::Ok);
        assert_eq!(lost_workers(&[gone(2)], 2).verdict, Verdict::Warn);
        assert_eq!(lost_workers(&[gone(1)], 0).verdict, Verdict::Bad);
    }

    #[test]
    fn long_lists_are_cut() {
        let names: Vec<String> = (0..7).map(|n| n.to_string()).collect();
        assert_eq!(some(names.into_iter()), "0, 1, 2, 3, 4 and 2 more");
    }
}
