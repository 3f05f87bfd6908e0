//! The kill test: workers die all the time under load, and nobody can tell from the results.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rand::seq::IndexedRandom as _;
use tidemill_common::book::{Limit, Match};
use tidemill_common::name::TaskId;
use tidemill_common::store::{Cancelled, Store};
use tidemill_common::task::{NewTask, Priority};
use tidemill_tests::lab::profile::pick;
use tidemill_tests::lab::{End, Events, Lab, Ledger, Payload, Run, WorkerProcess, now_ms};
use tokio::task::JoinSet;

use super::{PATIENCE, SLACK, as_ms};

const WORKERS: usize = 4;
const CONCURRENCY: u32 = 32;
/// Every so many-th task is of an agent with a slot limit.
const SLOTTED_EACH: usize = 20;
const AGENTS: [&str; 2] = ["ledger", "slotted"];
/// Tasks are handed in so often.
const OFFER_EVERY: Duration = Duration::from_millis(50);
/// A new worker is not killed before it can have work.
const LIVES_AT_LEAST: Duration = Duration::from_millis(500);
/// Calls at once when what waits behind is called off.
const CANCEL_AT_ONCE: usize = 64;

/// A kill: of which worker name, when.
struct Kill {
    name: String,
    pid: u32,
    at: u64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_die_under_load() {
    let (rate, seconds, kills, waiting, slots) = pick((100, 7, 6, 10_000, 2), (1_000, 20, 18, 100_000, 8));
    let lab = Lab::new().await;
    lab.book(vec![Limit::of_slots(Match::agent("slotted".parse().unwrap()), slots)]).await;
    let behind = wait_behind(&lab, waiting).await;
    let mut workers: Vec<_> = (0..WORKERS).map(|n| (Instant::now(), start(&lab, &format!("w{n}")))).collect();
    lab.until("the first tasks are done", PATIENCE, async || match lab.counts().await.ended.get("done") {
        Some(_) => Ok(()),
        None => Err("none is".into()),
    })
    .await;

    let began = Instant::now();
    let offering = tokio::spawn(offer(lab.store().clone(), rate, rate * seconds));
    let every = Duration::from_secs(seconds as u64) / kills;
    let mut killed = Vec::new();
    for n in 1..=kills {
        tokio::time::sleep_until((began + every * n - every / 4).into()).await;
        killed.push(kill_one(&lab, &mut workers));
    }
    let offered = offering.await.unwrap();
    lab.accepted(offered.iter().cloned());
    let all: BTreeSet<&str> = offered.iter().map(TaskId::as_str).collect();
    let (mut open, mut read) = (all.clone(), 0);
    lab.until("all that was offered has ended", PATIENCE, async || {
        let events = lab.events();
        for end in &events.ends[read..] {
            open.remove(end.id.as_str());
        }
        read = events.ends.len();
        if open.is_empty() { Ok(()) } else { Err(format!("{} have not", open.len())) }
    })
    .await;
    let offered_took = began.elapsed();
    let cancelled = call_off(lab.store(), &behind).await;
    lab.ended(all.len() + behind.len(), PATIENCE * 2).await;

    let (ledger, events) = (lab.ledger(), lab.events());
    println!(
        "kill test: {} offered in {seconds} s, all done after {offered_took:.1?}; {waiting} behind, {cancelled} of them called off",
        all.len()
    );
    ends_once(&all, &behind, &events);
    hits(&killed, &ledger);
    repeats(&lab, &killed, &ledger, &events);
    slots_hold(slots, &killed, &ledger);
    lab.close_with_invariants().await;
    println!("  all of it took {:.1?}", began.elapsed());
}

fn start(lab: &Lab, name: &str) -> WorkerProcess {
    lab.start(lab.setup(name).concurrency(CONCURRENCY).agents(&AGENTS))
}

fn kill_one(lab: &Lab, workers: &mut [(Instant, WorkerProcess)]) -> Kill {
    let old: Vec<usize> = (0..WORKERS).filter(|n| workers[*n].0.elapsed() >= LIVES_AT_LEAST).collect();
    let victim = *old.choose(&mut rand::rng()).unwrap_or_else(|| panic!("all workers are new"));
    let worker = &workers[victim].1;
    let kill = Kill { name: worker.setup().name.clone(), pid: worker.pid(), at: worker.kill() };
    workers[victim] = (Instant::now(), start(lab, &kill.name));
    kill
}

fn some_task(agent: &str) -> NewTask {
    Payload::sleep(rand::random_range(5..=200)).task_of(agent)
}

/// Hands low tasks in, more than the fleet can do.
async fn wait_behind(lab: &Lab, n: usize) -> Vec<TaskId> {
    let tasks: Vec<_> = (0..n).map(|_| some_task("ledger").priority(Priority::Low)).collect();
    lab.submit(&tasks).await;
    tasks.into_iter().map(|task| task.id).collect()
}

/// Hands tasks in at a steady rate.
async fn offer(store: Store, rate: usize, total: usize) -> Vec<TaskId> {
    let mut offered = Vec::with_capacity(total);
    let mut tick = tokio::time::interval(OFFER_EVERY);
    let began = Instant::now();
    while offered.len() < total {
        tick.tick().await;
        let due = (began.elapsed().as_millis() as usize * rate / 1_000).min(total);
        let of = |n: usize| if n.is_multiple_of(SLOTTED_EACH) { "slotted" } else { "ledger" };
        let tasks: Vec<_> = (offered.len()..due).map(|n| some_task(of(n))).collect();
        store.submit(&tasks, 0).await.unwrap();
        offered.extend(tasks.into_iter().map(|task| task.id));
    }
    offered
}

/// Cancels what still waits; returns how many did.
async fn call_off(store: &Store, ids: &[TaskId]) -> usize {
    let mut parts = JoinSet::new();
    for part in ids.chunks(ids.len().div_ceil(CANCEL_AT_ONCE)) {
        let (store, part) = (store.clone(), part.to_vec());
        parts.spawn(async move {
            let mut waited = 0;
            for id in &part {
                waited += usize::from(matches!(store.cancel(id).await.unwrap(), Cancelled::Now(_)));
            }
            waited
        });
    }
    parts.join_all().await.into_iter().sum()
}

/// Every id has one recorded end; those that were offered have succeeded.
fn ends_once(offered: &BTreeSet<&str>, behind: &[TaskId], events: &Events) {
    let mut ends: BTreeMap<&str, Vec<char>> = BTreeMap::new();
    for end in &events.ends {
        ends.entry(&end.id).or_default().push(end.letter);
    }
    for id in offered {
        assert_eq!(ends.get(id).map(Vec::as_slice), Some(&['d'][..]), "{id}");
    }
    for id in behind {
        assert!(
            matches!(ends.get(id.as_str()).map(Vec::as_slice), Some(['d' | 'c'])),
            "{id}: {:?}",
            ends.get(id.as_str())
        );
    }
}

fn hits(kills: &[Kill], ledger: &Ledger) {
    let hit: Vec<usize> = kills.iter().map(|kill| ledger.running(kill.pid).count()).collect();
    println!("  {} kills, which hit {hit:?} running tasks", kills.len());
    assert!(hit.iter().all(|n| *n > 0), "every kill hits running tasks: {hit:?}");
}

/// The death that ended a run: that of its worker, or of its worker's parent, which has the same name.
fn death_of<'a>(run: &Run, kills: &'a [Kill]) -> Option<&'a Kill> {
    let name = run.start.worker.rsplit_once('.').map_or("", |(name, _)| name);
    kills.iter().find(|kill| kill.name == name && kill.at >= run.start.at)
}

/// What repeated runs waited for, ms.
#[derive(Default)]
struct Waits {
    /// From the kill to the reclaim.
    reclaimed: Vec<u64>,
    /// From the reclaim to the start, of those that no gate holds.
    restarted: Vec<u64>,
    /// The same, of those that were lost twice: they wait for a child of their own.
    alone: Vec<u64>,
    /// Taken back from a worker that had lost its lease alive: the machine was too busy for it.
    of_living: usize,
}

/// Every second run is that of a killed worker's task, taken back in time and started in time.
fn repeats(lab: &Lab, kills: &[Kill], ledger: &Ledger, events: &Events) {
    let (reclaims, bound) = (events.reclaims_of(), as_ms(lab.profile.reclaimed_within() + SLACK));
    let (mut waits, mut late) = (Waits::default(), Vec::new());
    for (id, runs) in &ledger.runs {
        for pair in runs.windows(2) {
            let [before, after] = pair else { continue };
            let mut all = reclaims.get(id.as_str()).into_iter().flatten().copied();
            let back = all.find(|at| (before.start.at..=after.start.at + 1).contains(at));
            let Some(back) = back else { panic!("{id} ran again without a logged reclaim: {before:?}, {after:?}") };
            let restart = after.start.at.saturating_sub(back);
            if after.start.losses >= 2 {
                waits.alone.push(restart);
            } else if after.start.agent == "ledger" {
                waits.restarted.push(restart);
                if restart > 1_000 {
                    late.push(format!("{id} was started {restart} ms after it was taken back"));
                }
            }
            let Some(kill) = death_of(before, kills).filter(|kill| kill.at <= back) else {
                waits.of_living += 1;
                continue;
            };
            waits.reclaimed.push(back - kill.at);
            if back - kill.at > bound {
                late.push(format!(
                    "{id} was taken back {} ms after the kill of {}",
                    back - kill.at,
                    before.start.worker
                ));
            }
        }
    }
    let done = ledger.all().filter(|run| matches!(run.end, Some((End::Done, _)))).count();
    let twice = done - ledger.ended(End::Done);
    let repeated = waits.reclaimed.len() + waits.of_living;
    println!(
        "  {repeated} runs repeated after {} reclaims, {} of them of living workers; {twice} tasks done twice",
        events.reclaims.len(),
        waits.of_living
    );
    print_times("kill to reclaim", waits.reclaimed);
    print_times("reclaim to start", waits.restarted);
    print_times("reclaim to start, alone", waits.alone);
    assert!(late.is_empty(), "{} were late:\n  {}", late.len(), late[..late.len().min(20)].join("\n  "));
}

fn print_times(what: &str, mut ms: Vec<u64>) {
    ms.sort_unstable();
    let at = |part: usize| ms.get((ms.len() * part / 100).min(ms.len().saturating_sub(1))).copied().unwrap_or(0);
    println!("  {what}: p50 {} ms, p99 {} ms, max {} ms ({} runs)", at(50), at(99), at(100), ms.len());
}

/// At no time did more tasks run than there are slots. A killed run ends with its process.
fn slots_hold(slots: u64, kills: &[Kill], ledger: &Ledger) {
    let mut changes = Vec::new();
    for run in ledger.all().filter(|run| run.start.agent == "slotted") {
        let end = run.end.map(|(_, at)| at).or_else(|| death_of(run, kills).map(|kill| kill.at));
        changes.extend([(run.start.at, 1), (end.unwrap_or_else(now_ms), -1)]);
    }
    // In the same ms the end comes first.
    changes.sort_unstable();
    let (mut now, mut most) = (0_i64, 0);
    for (_, change) in &changes {
        now += change;
        most = most.max(now);
    }
    println!("  at most {most} of {slots} slots were in use, by {} runs", changes.len() / 2);
    assert!(most <= i64::try_from(slots).unwrap(), "{most} ran at once, with {slots} slots");
}
