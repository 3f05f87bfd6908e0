//! Random tasks and settles.

use std::time::Duration;

use bytes::Bytes;
use tidemill_common::name::{Fence, TaskId};
use tidemill_common::spend::{Estimate, Spend};
use tidemill_common::store::{SettleItem, Verb};
use tidemill_common::task::{Mode, NewTask, Priority};

use super::plan::Style;
use super::reference::Reference;
use super::rng::Rng;

/// All agents; a worker's abilities are bits in this order.
pub const AGENTS: [&str; 3] = ["a", "b", "c"];
const QUEUES: [&str; 3] = ["default", "slow", "q.3"];
const TENANTS: [&str; 3] = ["", "t/1 :x", "t2"];

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A new task of this history.
fn fresh(rng: &mut Rng, style: &Style, next_id: &mut u64) -> NewTask {
    *next_id += 1;
    let id = *next_id;
    let agent = AGENTS[[0, 0, 0, 1, 1, 2][rng.index(6)]];
    let mut task = NewTask::new(agent.parse().expect("a name"), format!("payload of t{id}"));
    task.id = format!("t{id}").parse().expect("an id");
    task.queue = QUEUES[[0, 0, 0, 1, 2][rng.index(5)]].parse().expect("a name");
    task.tenant = TENANTS[[0, 0, 1, 2][rng.index(4)]].to_owned();
    task.priority = Priority::ALL[rng.index(4)];
    task.max_attempts = [3, 3, 2, 1][rng.index(4)];
    task.cost = [1, 1, 1, 0, 2, 3, 40][rng.index(7)];
    task.weight = [1, 1, 1, 1, 1, 1, 2, 3][rng.index(8)];
    if rng.percent(style.spending) {
        let part = |rng: &mut Rng| rng.percent(70).then(|| rng.below(6));
        task.estimate = Estimate { tokens: part(rng), micro_usd: part(rng) };
    }
    if rng.percent(style.delayed) {
        task.delay = ms([1, 20, 400, 1_500, 6_000][rng.index(5)]);
    }
    if rng.percent(style.deadline) {
        task.start_within = Some(ms([1, 30, 500, 2_000, 20_000][rng.index(5)]));
    }
    if rng.percent(style.deadline) {
        task.max_age = Some(ms([1, 500, 3_000, 20_000, 200_000][rng.index(5)]));
    }
    if rng.percent(style.ordered) {
        task.order_key = Some(["k1", "k: 2", "k3"][rng.index(3)].to_owned());
    }
    task.hold_on_dead = rng.percent(if task.order_key.is_some() { 25 } else { 2 });
    if rng.percent(style.keyed) {
        let key = rng.below(6);
        task.key = Some(format!("e{key}"));
        if rng.percent(70) {
            task.agent = "a".parse().expect("a name");
            task.queue = "default".parse().expect("a name");
            task.payload = format!("of key e{key}").into();
        }
        task.mode = [Mode::Reject, Mode::Reject, Mode::Replace, Mode::Debounce][rng.index(4)];
        if task.mode == Mode::Debounce && task.delay.is_zero() {
            task.delay = ms(300);
        }
    }
    match rng.below(60) {
        0 => task.depth = 40,
        1 => task.max_attempts = 0,
        2 | 3 => task.payload = vec![b'x'; 17 * 1024 + rng.index(9)].into(),
        4 => task.payload = (0..=255).collect::<Vec<u8>>().into(),
        _ => {}
    }
    task
}

/// A batch: new ones, some that were sent before, some twice.
pub fn batch(rng: &mut Rng, style: &Style, r: &Reference, next_id: &mut u64, n: u64) -> Vec<NewTask> {
    let known: Vec<&String> = r.tasks.keys().collect();
    let mut tasks: Vec<NewTask> = Vec::new();
    for _ in 0..n {
        let old = rng.pick(&known).filter(|_| rng.percent(10)).map(|id| r.tasks[*id].new.clone());
        let again = rng.pick(&tasks).cloned().filter(|_| rng.percent(4));
        tasks.push(old.or(again).unwrap_or_else(|| fresh(rng, style, next_id)));
    }
    tasks
}

/// What a run has used.
pub fn spend(rng: &mut Rng) -> Spend {
    let n = |rng: &mut Rng| [0, 1, 2, 3, 5, 12, 40][rng.index(7)];
    Spend { tokens: n(rng), micro_usd: n(rng) }
}

/// How a handler ends.
fn verb(rng: &mut Rng, style: &Style) -> Verb {
    let error = ["boom", "", "\u{e9}\n\0 x"][rng.index(3)].to_owned();
    let after_ms = [0, 1, 30, 700, 4_000][rng.index(5)];
    if !rng.percent(style.failing) {
        let result = Bytes::from(["", "a result", "\0\u{ff}"][rng.index(3)]);
        return Verb::Done { result, keep_ms: [0, 60_000, 600_000][rng.index(3)] };
    }
    match rng.below(10) {
        0..=3 => Verb::Retry { error, after_ms },
        4 | 5 => Verb::Throttled { error, after_ms },
        6..=8 => Verb::Release,
        _ if rng.percent(20) => Verb::Unreadable { error },
        _ => Verb::Dead { error },
    }
}

/// A settle of some of what a worker holds, with what does not belong there.
pub fn items(
    rng: &mut Rng,
    style: &Style,
    r: &Reference,
    held: &[(String, u64)],
    old: &[(String, u64)],
    next_id: &mut u64,
) -> Vec<SettleItem> {
    let mut picked: Vec<(String, u64)> = Vec::new();
    let most = rng.within(1, style.batch * 2);
    for _ in 0..most.min(held.len() as u64) {
        picked.extend(rng.pick(held).cloned());
    }
    if rng.percent(15) {
        picked.extend(rng.pick(old).cloned());
    }
    if rng.percent(8) {
        let wrong = rng.pick(held).map(|(id, fence)| (id.clone(), fence.saturating_add(1)));
        picked.extend(wrong);
    }
    if rng.percent(3) {
        picked.push(("never-seen".to_owned(), 77));
    }
    let known: Vec<&String> = r.tasks.keys().collect();
    if rng.percent(3) {
        picked.extend(rng.pick(&known).map(|id| ((*id).clone(), 5)));
    }
    if !rng.percent(10) {
        let mut seen = std::collections::BTreeSet::new();
        picked.retain(|(id, _)| seen.insert(id.clone()));
    }
    let item = |(id, fence): (String, u64), rng: &mut Rng, next_id: &mut u64| {
        let follow = if rng.percent(8) { rng.within(1, 3) } else { 0 };
        let id: TaskId = id.parse().expect("an id");
        let verb = verb(rng, style);
        let used = rng.percent(style.spending).then(|| spend(rng)).or((verb == Verb::Release).then(Spend::default));
        let follow_ups = batch(rng, style, r, next_id, follow);
        SettleItem { used: used.filter(|_| !rng.percent(10)), follow_ups, ..SettleItem::new(id, Fence(fence), verb) }
    };
    picked.into_iter().map(|p| item(p, rng, next_id)).collect()
}
