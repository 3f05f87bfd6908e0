//! Each key of the product is deleted while everything is under way, as an eviction or a hand would.
//!
//! Nobody crashes, spins or floods the log, and what is handed in afterwards runs. What the key itself stood for is lost, runs
//! again, or waits for a hand, as [`ALL`] says; `docs/guarantees.md` ("What deleting a key by hand costs") says it for people.

use std::collections::BTreeMap;
use std::time::Duration;

use tidemill_common::book::{Limit, Match, Rate};
use tidemill_common::state::State;
use tidemill_common::task::NewTask;
use tidemill_tests::lab::profile::{full, pick};
use tidemill_tests::lab::{Lab, Mode, Payload};
use tidemill_tests::watch::Watch;
use tokio::task::LocalSet;

use super::super::PATIENCE;

/// What deleting a key costs.
#[derive(Debug, Clone, Copy)]
struct Cost {
    /// The key below the base; `<task>` stands for the id of that task, `<worker>` for the worker's.
    key: &'static str,
    /// Only in the full form.
    rare: bool,
    /// These tasks run no more: they say this state, or are not known.
    lost: &'static [(&'static str, Option<State>)],
    /// These run once the book is applied again (and, for `run`, the slots that nobody holds are deleted).
    waiting: &'static [&'static str],
    /// The shard is as it should be afterwards, all counts included.
    whole: bool,
}

const fn cost(key: &'static str) -> Cost {
    Cost { key, rare: false, lost: &[], waiting: &[], whole: true }
}

impl Cost {
    const fn rare(mut self) -> Self {
        self.rare = true;
        self
    }
    /// Loses these for good; they are still counted, or have no place.
    const fn loses(mut self, tasks: &'static [(&'static str, Option<State>)]) -> Self {
        (self.lost, self.whole) = (tasks, false);
        self
    }
    const fn waits(mut self, tasks: &'static [&'static str]) -> Self {
        self.waiting = tasks;
        self
    }
    /// Runs again what ran, or counts anew.
    const fn not_whole(mut self) -> Self {
        self.whole = false;
        self
    }
}

const QUEUED: Option<State> = Some(State::Queued);
const PARKED: Option<State> = Some(State::Parked);

const ALL: &[Cost] = &[
    // A task's envelope: the task. If it runs, its end is recorded all the same; those behind it in an order go on.
    cost("j:<queued>").loses(&[("queued", None)]),
    cost("j:<scheduled>").loses(&[("scheduled", None)]).rare(),
    cost("j:<slot_parked>").loses(&[("slot_parked", None)]).rare(),
    cost("j:<rated_parked>").loses(&[("rated_parked", None)]).rare(),
    cost("j:<order_next>").loses(&[("order_next", None)]).rare(),
    cost("j:<running>").rare(),
    cost("j:<slot_running>").rare(),
    cost("j:<order_head>"),
    cost("j:<dead>").not_whole().rare(),
    // A payload: its task is dead, with the reason.
    cost("b:<big>"),
    cost("k:0:k"),
    cost("r:<dead>").rare(),
    // A place: those who were in it.
    cost("q:default:s:5").loses(&[("queued", QUEUED), ("keyed", QUEUED), ("big", QUEUED), ("deadline", QUEUED)]),
    cost("s:first"),
    cost("s:line").rare(),
    cost("z").loses(&[("scheduled", QUEUED), ("retrying", QUEUED)]),
    cost("o:o").loses(&[("order_next", QUEUED)]),
    cost("l:s/a/slotted").loses(&[("slot_parked", PARKED)]),
    cost("l:r/a/rated").loses(&[("rated_parked", PARKED)]).rare(),
    cost("l:want:nobody").loses(&[("wanted", PARKED)]).rare(),
    cost("dead").loses(&[("dead", QUEUED)]),
    // What runs: it runs again, and its slots stay taken.
    cost("run").waits(&["slot_running", "slot_parked", "fresh_slotted"]).not_whole(),
    cost("at").not_whole(),
    cost("x"),
    // Gates: too many run for a while. Their marks: a line that only time opens waits for a hand.
    cost("g:s/a/slotted"),
    cost("g:r/a/rated#<window>"),
    cost("park").not_whole(),
    cost("ready:5").waits(&["rated_parked", "fresh_rated"]),
    cost("live:5"),
    cost("wants").rare(),
    // Workers: they begin new lives, or notice nothing.
    cost("w").not_whole(),
    cost("wa"),
    cost("idle"),
    cost("op"),
    cost("ctl:<worker>").rare(),
    cost("bell").rare(),
    cost("qs"),
    cost("n").not_whole(),
    cost("book"),
    cost("books").rare(),
    cost("sweep"),
    cost("log").rare(),
    cost("meta").rare(),
];

/// How many labs run at once.
const AT_ONCE: usize = 6;

/// How long what runs when the key goes takes, and how long a rate stays closed, ms.
fn a_while() -> u64 {
    pick(1_300, 2_000)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_key_deleted_in_turn() {
    let costs: Vec<Cost> = ALL.iter().filter(|cost| full() || !cost.rare).copied().collect();
    LocalSet::new()
        .run_until(async {
            for some in costs.chunks(AT_ONCE) {
                let labs: Vec<_> =
                    some.iter().map(|cost| (cost.key, tokio::task::spawn_local(without(*cost)))).collect();
                for (key, lab) in labs {
                    lab.await.unwrap_or_else(|e| panic!("without {key}: {e}"));
                }
            }
        })
        .await;
}

/// All sorts of tasks are under way; the key goes; more come.
async fn without(cost: Cost) {
    let lab = Lab::new().await;
    let worker = lab.start(lab.setup("w").agents(&["ledger", "slotted", "rated"]));
    apply_book(&lab).await;
    let mut tasks = under_way(&lab).await;
    let watch = Watch::on(&worker);
    lab.raw(&["DEL", &lab.key(&name(&lab, cost.key, &tasks))]);
    tasks.extend(fresh());
    hand_in(&lab, tasks.iter().filter(|(label, _)| label.starts_with("fresh")).map(|(_, task)| task)).await;

    let lost: BTreeMap<&str, Option<State>> = cost.lost.iter().copied().collect();
    // For whom no worker works.
    let runs = |label: &&str| *label != "wanted" && !lost.contains_key(label);
    ended(&lab, cost, &tasks, |label| runs(&label) && !cost.waiting.contains(&label)).await;
    if !cost.waiting.is_empty() {
        if cost.key == "run" {
            lab.raw(&["DEL", &lab.key("g:s/a/slotted")]);
        }
        apply_book(&lab).await;
        ended(&lab, cost, &tasks, |label| runs(&label)).await;
    }
    for (label, state) in &lost {
        assert_eq!(state_of(&lab, &tasks[label]).await, *state, "without {}: what {label} says", cost.key);
    }
    assert_eq!(worker.ended(), None, "without {}: the process lives", cost.key);
    watch.assert_calm();
    if cost.whole {
        lab.close_with_invariants().await;
    }
}

type Tasks = BTreeMap<&'static str, NewTask>;

fn name(lab: &Lab, key: &str, tasks: &Tasks) -> String {
    let Some((stem, label)) = key.split_once('<') else { return key.to_owned() };
    let label = label.trim_end_matches('>');
    let worker = || lab.snapshot().of("w").first().cloned().unwrap_or_default();
    let name = match label {
        "worker" => worker(),
        "window" => a_while().to_string(),
        label => tasks[label].id.to_string(),
    };
    format!("{stem}{name}")
}

async fn apply_book(lab: &Lab) {
    let of = |agent: &str| Match::agent(agent.parse().expect("a name"));
    lab.book(vec![Limit::of_slots(of("slotted"), 1), Limit::of_rate(of("rated"), Rate::of(1, a_while()))]).await;
}

async fn hand_in(lab: &Lab, tasks: impl Iterator<Item = &NewTask>) {
    let tasks: Vec<NewTask> = tasks.cloned().collect();
    lab.store().submit(&tasks, 0).await.expect("they are taken in");
}

/// One task in each place there is, in two steps: while there is room, and when there is none.
async fn under_way(lab: &Lab) -> Tasks {
    let (short, long) = (Payload::sleep(1), Payload::sleep(a_while()));
    let later = Duration::from_millis(a_while());
    let first = [
        ("dead", Payload::of(Mode::Dead, 0).task()),
        ("rated_first", short.task_of("rated")),
        ("rated_parked", short.task_of("rated")),
        ("retrying", Payload::of(Mode::FailOnce, 1).after(a_while()).task()),
        ("wanted", short.task_of("nobody")),
        ("scheduled", short.task().delay(later)),
        ("slot_running", long.task_of("slotted")),
        ("slot_parked", short.task_of("slotted")),
    ];
    let second = [
        ("running", long.task()),
        ("big_running", large(long)),
        ("order_head", long.task().order_key("o")),
        ("order_next", short.task().order_key("o")),
    ];
    let third = [
        ("queued", short.task()),
        ("keyed", short.task().key("k")),
        ("big", large(short)),
        ("deadline", NewTask { start_within: Some(PATIENCE), ..short.task() }),
    ];
    hand_in(lab, first.iter().map(|(_, task)| task)).await;
    place(lab, "the first are in their places", |now| now == [1, 3, 2, 1]).await;
    hand_in(lab, second.iter().map(|(_, task)| task)).await;
    place(lab, "all four slots are taken", |now| now[0] == 4).await;
    hand_in(lab, third.iter().map(|(_, task)| task)).await;
    first.into_iter().chain(second).chain(third).collect()
}

/// Waits for so many running, parked, scheduled and dead.
async fn place(lab: &Lab, what: &str, right: impl Fn([u64; 4]) -> bool) {
    lab.until(what, PATIENCE, async || {
        let counts = lab.counts().await;
        let now = [counts.running, counts.parked, counts.scheduled, counts.dead];
        if right(now) { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await;
}

/// A task whose payload lies apart.
fn large(payload: Payload) -> NewTask {
    let pad = "x".repeat(20_000);
    NewTask { payload: format!(r#"{{"ms":{},"pad":"{pad}"}}"#, payload.ms).into(), ..payload.task() }
}

fn fresh() -> [(&'static str, NewTask); 6] {
    let short = Payload::sleep(1);
    [
        ("fresh", short.task()),
        ("fresh_slotted", short.task_of("slotted")),
        ("fresh_rated", short.task_of("rated")),
        ("fresh_delayed", short.task().delay(Duration::from_millis(300))),
        ("fresh_ordered", short.task().order_key("other")),
        ("fresh_same_order", short.task().order_key("o")),
    ]
}

async fn state_of(lab: &Lab, task: &NewTask) -> Option<State> {
    lab.store().status(&task.id, None).await.expect("an answer").state
}

/// Waits until all of these have ended, or are gone since their outcome was what was deleted.
async fn ended(lab: &Lab, cost: Cost, tasks: &Tasks, of: impl Fn(&'static str) -> bool) {
    lab.until(&format!("without {}: all have ended that can", cost.key), PATIENCE, async || {
        let mut open = Vec::new();
        for (label, task) in tasks.iter().filter(|(label, _)| of(label)) {
            let state = state_of(lab, task).await;
            let gone = state.is_none() && cost.key == "j:<dead>" && *label == "dead";
            if !gone && !state.is_some_and(State::has_ended) {
                open.push((*label, state));
            }
        }
        if open.is_empty() { Ok(()) } else { Err(format!("{open:?} have not")) }
    })
    .await;
}
