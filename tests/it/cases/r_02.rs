//! R-02: the server forgets its scripts all the time, and once restarts, under a mixed load of all that scripts do.
//!
//! Nobody sees an error, and what was counted is what the ledger says: no script ran twice for one change, none was left out.

use std::time::{Duration, Instant};

use tidemill_common::book::{Limit, Match, Rate};
use tidemill_common::task::NewTask;
use tidemill_tests::lab::profile::{ms, pick};
use tidemill_tests::lab::{End, Lab, Ledger, Mode, Payload, Run};
use tidemill_tests::server::{Connection, Options, Storage};

use super::PATIENCE;

/// How often the scripts are forgotten.
const FLUSH_EVERY: Duration = Duration::from_millis(50);
/// Tasks of the agent `slotted` that may run at once.
const SLOTS: usize = 3;
/// Tasks of the agent `rated` that may start in any window, and its ms.
const RATE: (u64, u64) = (10, 350);
/// Tasks of one order key in a round.
const IN_ORDER: usize = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_forgotten_under_load() {
    let mut lab = Lab::with(Options::new().storage(Storage::Temporary)).await;
    let of = |agent: &str| Match::agent(agent.parse().expect("a name"));
    let rate = Rate::of(RATE.0, RATE.1);
    lab.book(vec![Limit::of_slots(of("slotted"), SLOTS as u64), Limit::of_rate(of("rated"), rate)]).await;
    for name in ["w1", "w2"] {
        lab.start(lab.setup(name).concurrency(8).agents(&["ledger", "slotted", "rated"]));
    }

    let mut tasks = load(&lab, Duration::from_millis(pick(6_000, 30_000))).await;
    settled(&lab, tasks.len()).await;
    for worker in lab.alive() {
        let log = worker.log();
        // That many are held back at limits is so by the load, and a detector says it.
        let mut lines = log.lines().filter(|line| !line.contains(r#""detector":"limit_hits""#));
        let complaint = lines.find(|line| line.contains("WARN") || line.contains("ERROR"));
        assert_eq!(complaint, None, "nobody sees an error");
    }
    // The data stays, the scripts do not.
    lab.server_mut().restart().expect("the server comes back");
    tasks.extend(load(&lab, Duration::from_millis(ms(3_000))).await);
    settled(&lab, tasks.len()).await;

    let (ledger, counts) = (lab.ledger(), lab.counts().await);
    assert_eq!(ledger.ended(End::Done), tasks.len(), "each has one success in the ledger");
    assert_eq!(counts.ended.get("done").copied(), Some(tasks.len() as u64), "and in the counts: {counts:?}");
    let runs = |task: &NewTask| ledger.of(task.id.as_str()).len();
    let extra: usize = tasks.iter().map(|task| runs(task) - 1).sum();
    assert_eq!(extra, tasks.iter().filter(|task| fails_once(task)).count(), "nothing ran again but what had failed");
    slots_hold(&ledger);
    rate_holds(&ledger);
    order_holds(&ledger, &tasks);
    lab.close_with_invariants().await;
}

fn fails_once(task: &NewTask) -> bool {
    task.payload == Payload::of(Mode::FailOnce, 1).after(20).task().payload
}

/// Hands in a round of everything every 100 ms, while the scripts are forgotten; each submit is taken at the first asking.
async fn load(lab: &Lab, lasting: Duration) -> Vec<NewTask> {
    let (mut all, mut server) = (Vec::new(), lab.server().connect().expect("a connection"));
    let (began, mut round) = (Instant::now(), 0_u32);
    let (mut next_flush, mut next_round) = (Duration::ZERO, Duration::ZERO);
    while began.elapsed() < lasting {
        if began.elapsed() >= next_flush {
            next_flush += FLUSH_EVERY;
            forget_scripts(&mut server);
        }
        if began.elapsed() >= next_round {
            next_round += Duration::from_millis(100);
            let tasks = one_round(round, began);
            lab.submit(&tasks).await;
            all.extend(tasks);
            round += 1;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    all
}

fn forget_scripts(server: &mut Connection) {
    let reply = server.command(&["SCRIPT", "FLUSH"]).expect("an answer");
    assert_eq!(reply.as_error(), None);
}

/// Plain, delayed, failing once, slotted, rated, keyed and ordered tasks.
fn one_round(round: u32, began: Instant) -> Vec<NewTask> {
    let some = |n: usize, one: &dyn Fn() -> NewTask| (0..n).map(|_| one()).collect::<Vec<_>>();
    let mark = format!("{}-{round}", began.elapsed().as_nanos());
    let mut tasks = some(pick(6, 12), &|| Payload::sleep(2).task());
    tasks.extend(some(4, &|| Payload::sleep(2).task().delay(Duration::from_millis(150))));
    tasks.extend(some(3, &|| Payload::of(Mode::FailOnce, 1).after(20).task().max_attempts(2)));
    tasks.extend(some(5, &|| Payload::sleep(40).task_of("slotted")));
    tasks.extend(some(3, &|| Payload::sleep(1).task_of("rated")));
    tasks.push(Payload::sleep(1).task().key(&mark));
    tasks.extend(some(IN_ORDER, &|| Payload::sleep(5).task().order_key(&mark)));
    tasks
}

async fn settled(lab: &Lab, n: usize) {
    lab.ended(n, PATIENCE).await;
}

fn agent<'a>(ledger: &'a Ledger, agent: &'a str) -> impl Iterator<Item = &'a Run> {
    ledger.all().filter(move |run| run.start.agent == agent)
}

/// Never more than the slots: at the start of each run, so many others were under way.
fn slots_hold(ledger: &Ledger) {
    let runs: Vec<(u64, u64)> = agent(ledger, "slotted").filter_map(|run| Some((run.start.at, run.end?.1))).collect();
    for (start, _) in &runs {
        // Ends are written in ms: what ends in the ms of a start was over before it.
        let at_once = runs.iter().filter(|(from, to)| from <= start && start < to).count();
        assert!(at_once <= SLOTS, "{at_once} of {SLOTS} ran at once");
    }
}

/// Never more than the rate in any window, by the server's own clock: a fence is the moment of the claim in µs.
fn rate_holds(ledger: &Ledger) {
    let mut fences: Vec<u64> = agent(ledger, "rated").map(|run| run.start.fence).collect();
    fences.sort_unstable();
    let limit = usize::try_from(RATE.0).expect("a small number");
    for window in fences.windows(limit + 1) {
        let took = window[limit] - window[0];
        // Deliveries of one claim have fences one µs apart.
        assert!(took + RATE.0 >= RATE.1 * 1_000, "{} started within {took} µs", limit + 1);
    }
}

/// Tasks of one order key run one after the other, as they were handed in.
fn order_holds(ledger: &Ledger, tasks: &[NewTask]) {
    let ordered: Vec<&NewTask> = tasks.iter().filter(|task| task.order_key.is_some()).collect();
    for pair in ordered.windows(2).filter(|pair| pair[0].order_key == pair[1].order_key) {
        let run = |task: &NewTask| ledger.of(task.id.as_str())[0].clone();
        let (first, second) = (run(pair[0]), run(pair[1]));
        assert!(first.end.is_some_and(|(_, at)| at <= second.start.at), "{first:?} and {second:?} overlap");
    }
}
