//! Budgets of tokens and money, step by step on the test clock: each on the input that breaks a usual mistake.

use tidemill_common::name::TaskId;
use tidemill_common::spend::Spend;
use tidemill_common::store::{Accepted, Delivery, Settled, Verb};
use tidemill_common::task::NewTask;
use tidemill_tests::timed::{BEGAN_MS, Timed};

const HOUR_MS: u64 = 3_600_000;
const ALL_TOKENS: &str = "[[limit]]\ntokens = { minute = 100 }\n";

fn task(tokens: u64) -> NewTask {
    NewTask::new("a".parse().unwrap(), "1").estimate_tokens(tokens)
}

fn done() -> Verb {
    Verb::Done { result: bytes::Bytes::new(), keep_ms: 0 }
}

fn ids(deliveries: &[Delivery]) -> Vec<TaskId> {
    deliveries.iter().map(|d| d.id.clone()).collect()
}

async fn hand_in(t: &Timed, tasks: &[NewTask]) -> Vec<TaskId> {
    assert!(t.submit(tasks).await.iter().all(|a| matches!(a, Accepted::New(_))));
    tasks.iter().map(|task| task.id.clone()).collect()
}

/// One of these tasks, taken.
async fn begin(t: &mut Timed, task: &NewTask) -> Delivery {
    hand_in(t, std::slice::from_ref(task)).await;
    let mut got = t.claim(9).await.deliveries;
    assert_eq!(ids(&got), std::slice::from_ref(&task.id));
    got.remove(0)
}

/// What is charged and owed in each window of a gate.
async fn charged(t: &Timed, gate: &str) -> Vec<(u64, u64)> {
    let seen = t.store.gate(gate, &TaskId::generate()).await.unwrap();
    seen.windows.iter().map(|w| (w.charged, w.debt)).collect()
}

/// An estimate is charged at the start and what was used takes its place: what is left is there at once, in the bucket that was
/// charged, so that it is not there twice when that leaves the window.
#[tokio::test]
async fn what_was_not_used_goes_back_to_where_it_was_charged() {
    let mut t = Timed::new(&["a"]).await;
    t.book(ALL_TOKENS).await;
    let first = begin(&mut t, &task(80)).await;
    let waits = hand_in(&t, &[task(50)]).await;
    assert!(t.claim(9).await.deliveries.is_empty(), "20 are left");
    assert_eq!(t.gate_of(&waits[0]).await.as_deref(), Some("t/*/"));
    t.set_ms(30_000);
    assert_eq!(t.settle_used(&[first], done, Some(Spend::tokens(30))).await, [Settled::Done]);
    assert_eq!(charged(&t, "t/*/").await, [(30, 0)]);
    let second = t.claim(9).await.deliveries;
    assert_eq!(ids(&second), waits, "woken by what was given back");
    t.settle_used(&second, done, Some(Spend::tokens(50))).await;
    // The 30 of the first leave the window with its start, not with its end; the 50 stay.
    t.set_ms(61_500);
    hand_in(&t, &[task(51), task(50)]).await;
    assert_eq!(t.claim(9).await.deliveries.len(), 0, "the first of the two does not fit, and is not overtaken");
    t.set_ms(91_500);
    assert_eq!(t.claim(9).await.deliveries.len(), 1);
}

/// What was used beyond the estimate is charged as far as there is room; the rest is owed, and paid before anybody starts.
#[tokio::test]
async fn what_was_used_beyond_is_owed_and_carried_over() {
    let mut t = Timed::new(&["a"]).await;
    t.book(ALL_TOKENS).await;
    let first = begin(&mut t, &task(60)).await;
    t.settle_used(&[first], done, Some(Spend::tokens(230))).await;
    assert_eq!(charged(&t, "t/*/").await, [(100, 130)], "never above the limit");
    let waits = hand_in(&t, &[task(1), task(71)]).await;
    assert!(t.claim(9).await.deliveries.is_empty());
    t.set_ms(61_500);
    assert!(t.claim(9).await.deliveries.is_empty(), "100 of the debt take this minute");
    assert_eq!(charged(&t, "t/*/").await, [(100, 30)]);
    t.set_ms(123_000);
    assert_eq!(ids(&t.claim(9).await.deliveries), waits[..1], "and 30 of the next");
    assert_eq!(charged(&t, "t/*/").await, [(31, 0)]);
}

/// A run is charged once, whatever it says how often, and when.
#[tokio::test]
async fn the_use_of_an_attempt_counts_once() {
    let mut t = Timed::new(&["a"]).await;
    t.book(ALL_TOKENS).await;
    let first = begin(&mut t, &task(10)).await;
    for tokens in [5, 20, 8] {
        let said = [(first.id.clone(), first.fence, Spend::tokens(tokens))];
        assert_eq!(t.store.spend(&said).await.unwrap(), [true]);
    }
    assert_eq!(charged(&t, "t/*/").await, [(10, 0)], "it runs");
    let retry = || Verb::Retry { error: "no".into(), after_ms: 1 };
    assert_eq!(t.settle_used(std::slice::from_ref(&first), retry, Some(Spend::tokens(25))).await, [Settled::Retry]);
    assert_eq!(charged(&t, "t/*/").await, [(25, 0)], "a failure has used as much as a success");
    assert_eq!(t.settle_used(std::slice::from_ref(&first), done, Some(Spend::tokens(25))).await, [Settled::Already]);
    assert_eq!(t.store.spend(&[(first.id, first.fence, Spend::tokens(90))]).await.unwrap(), [false]);
    assert_eq!(charged(&t, "t/*/").await, [(25, 0)]);
    assert_eq!(t.store.counts().await.unwrap().used, Spend::tokens(25));
}

/// A run that said nothing is charged with what was expected, unless nothing can have been used.
#[tokio::test]
async fn what_is_not_known_is_charged_as_it_was_expected() {
    for (verb, used, left) in [
        (done(), None, 40),
        (done(), Some(0), 0),
        (Verb::Dead { error: "x".into() }, None, 40),
        (Verb::Unreadable { error: "x".into() }, None, 0),
        (Verb::Throttled { error: "429".into(), after_ms: 1 }, None, 0),
        (Verb::Throttled { error: "429".into(), after_ms: 1 }, Some(7), 7),
        (Verb::Release, None, 0),
        (Verb::Release, Some(7), 40),
        (Verb::Release, Some(70), 70),
    ] {
        let mut t = Timed::new(&["a"]).await;
        t.book(ALL_TOKENS).await;
        let run = begin(&mut t, &task(40)).await;
        t.settle_used(&[run], || verb.clone(), used.map(Spend::tokens)).await;
        assert_eq!(charged(&t, "t/*/").await, [(left, 0)], "{verb:?} {used:?}");
    }
}

/// The rule in force when it started says what a lost run costs; what it says later is charged as well, once.
#[tokio::test]
async fn a_lost_run_is_charged_by_its_rule_and_its_late_word_counts() {
    for (on_lost, at_loss, late) in [("charge", 40, 55), ("reported", 15, 55), ("refund", 0, 55)] {
        let mut t = Timed::new(&["a"]).await;
        t.book(&format!("{ALL_TOKENS}on_lost = \"{on_lost}\"\n")).await;
        let run = begin(&mut t, &task(40)).await;
        let said = |tokens| vec![(run.id.clone(), run.fence, Spend::tokens(tokens))];
        t.store.spend(&said(15)).await.unwrap();
        t.book(ALL_TOKENS).await;
        t.lose_worker().await;
        assert_eq!(charged(&t, "t/*/").await, [(at_loss, 0)], "{on_lost}");
        assert_eq!(t.store.spend(&said(20)).await.unwrap(), [false], "it is told to stop");
        assert_eq!(charged(&t, "t/*/").await, [(at_loss.max(20), 0)], "{on_lost}");
        assert_eq!(t.settle_used(std::slice::from_ref(&run), done, Some(Spend::tokens(55))).await, [Settled::Already]);
        assert_eq!(t.settle_used(std::slice::from_ref(&run), done, Some(Spend::tokens(55))).await, [Settled::Already]);
        assert_eq!(charged(&t, "t/*/").await, [(late, 0)], "{on_lost}: all of it, and once");
        assert_eq!(t.store.counts().await.unwrap().used, Spend::tokens(55));
    }
}

/// Days are those of the zone, also where one has 23 hours; what is owed goes with them.
#[tokio::test]
async fn a_day_with_a_zone_is_a_day_of_its_calendar() {
    let mut t = Timed::new(&["a"]).await;
    // 2023-11-14 22:13:20 UTC; the day of Berlin (UTC+1) has 46 minutes and 40 seconds left.
    let midnight = 2_800_000;
    t.book("[[limit]]\ncost_usd = { hour = 0.10, day = 0.10, zone = \"Europe/Berlin\" }\n").await;
    let dear = |micro| NewTask::new("a".parse().unwrap(), "1").estimate_micro_usd(micro);
    let first = begin(&mut t, &dear(100_000)).await;
    let waits = hand_in(&t, &[dear(30_000)]).await;
    let claimed = t.claim(9).await;
    assert!(claimed.deliveries.is_empty());
    t.settle_used(&[first], done, Some(Spend::micro_usd(120_000))).await;
    t.set_ms(midnight - 1);
    assert!(t.claim(9).await.deliveries.is_empty());
    t.set_ms(midnight);
    assert!(t.claim(9).await.deliveries.is_empty(), "the day is new; the hour is not over");
    t.set_ms(HOUR_MS + 61_000);
    assert_eq!(ids(&t.claim(9).await.deliveries), waits);
    // What was owed is paid in both windows, then what is charged now.
    assert_eq!(charged(&t, "c/*/").await, [(50_000, 0), (50_000, 0)]);
    let seen = t.store.gate("c/*/", &waits[0]).await.unwrap();
    assert_eq!(seen.windows[1].ends_ms, BEGAN_MS + midnight + 24 * HOUR_MS);
}

/// Nobody knows when the period after the last one that is written down ends: the budget is closed, not open.
#[tokio::test]
async fn past_the_days_that_are_known_a_budget_is_closed_until_they_are_extended() {
    let mut t = Timed::new(&["a"]).await;
    t.book("[[limit]]\ntokens = { day = 10, zone = \"UTC\" }\n").await;
    t.set_ms(500 * 24 * HOUR_MS);
    let waits = hand_in(&t, &[task(1)]).await;
    assert!(t.claim(9).await.deliveries.is_empty());
    assert_eq!(t.gate_of(&waits[0]).await.as_deref(), Some("t/*/"));
    t.store.extend_periods().await.unwrap();
    t.set_ms(500 * 24 * HOUR_MS + HOUR_MS);
    assert_eq!(ids(&t.claim(9).await.deliveries), waits);
}

/// A window that an edit adds knows nothing of what started before; those that stay forget nothing; a limit that falls closes.
#[tokio::test]
async fn edits_wipe_nothing_and_an_added_window_gives_nothing_back() {
    let mut t = Timed::new(&["a"]).await;
    t.book(ALL_TOKENS).await;
    let old = begin(&mut t, &task(60)).await;
    t.set_ms(1_000);
    t.book("[[limit]]\ntokens = { minute = 90, hour = 100 }\n").await;
    let new = begin(&mut t, &task(30)).await;
    assert_eq!(charged(&t, "t/*/").await, [(90, 0), (30, 0)]);
    t.settle_used(&[old], done, Some(Spend::tokens(10))).await;
    assert_eq!(charged(&t, "t/*/").await, [(40, 0), (30, 0)], "the hour was never charged with it");
    t.book("[[limit]]\ntokens = { minute = 20, hour = 100 }\n").await;
    hand_in(&t, &[task(1)]).await;
    assert!(t.claim(9).await.deliveries.is_empty());
    t.settle_used(&[new], done, Some(Spend::tokens(0))).await;
    assert_eq!(t.claim(9).await.deliveries.len(), 1, "ten of twenty are left");
}

/// What it is expected to use: its own word, else the book's of its agent, else the least that there is; nothing passes for free
/// where all is used up, but what uses nothing.
#[tokio::test]
async fn estimates_are_the_tasks_own_or_the_agents() {
    let mut t = Timed::new(&["a", "b"]).await;
    t.book(&format!("[[agent]]\nname = \"a\"\nestimate_tokens = 70\n{ALL_TOKENS}")).await;
    let unsaid = |agent: &str| NewTask::new(agent.parse().unwrap(), "1");
    hand_in(&t, &[unsaid("a"), unsaid("b"), task(29)]).await;
    assert_eq!(t.claim_all().await.len(), 3);
    assert_eq!(charged(&t, "t/*/").await, [(100, 0)]);
    let waits = hand_in(&t, &[unsaid("b"), task(0)]).await;
    assert_eq!(ids(&t.claim_all().await), waits[1..], "it asks for nothing, and waits for nobody");
    assert_eq!(t.submit(&[task(101)]).await, [Accepted::NeverFits { gate: "t/*/".into() }]);
}

/// Four budgets and a slot: who is refused by the last has taken nothing of the others.
#[tokio::test]
async fn all_budgets_are_charged_or_none() {
    let mut t = Timed::new(&["a"]).await;
    t.book(
        "[[limit]]\nslots = 5\ntokens = { minute = 1000, day = 1000 }\ncost_usd = { minute = 0.001 }\n\
         [[limit]]\nmatch = { agent = \"a\" }\nper = [\"tenant\"]\ncost_usd = { minute = 0.0005 }\n",
    )
    .await;
    let of = |tenant: &str| task(100).estimate_micro_usd(300).tenant(tenant);
    hand_in(&t, &[of("x"), of("x"), of("y"), of("z"), of("z")]).await;
    let got = t.claim_all().await;
    assert_eq!(got.len(), 3, "one of each tenant");
    assert_eq!(charged(&t, "t/*/").await, [(300, 0), (300, 0)]);
    assert_eq!(charged(&t, "c/*/").await, [(900, 0)]);
    assert_eq!(charged(&t, "c/a+t/a/x").await, [(300, 0)]);
}
