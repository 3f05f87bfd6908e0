//! Slots and rates by the book, step by step on the test clock: each on the input that breaks a usual mistake.

use tidemill_common::book::Book;
use tidemill_common::name::TaskId;
use tidemill_common::store::{Accepted, Applied, BookEdit};
use tidemill_common::task::NewTask;
use tidemill_tests::timed::Timed;

fn task(agent: &str) -> NewTask {
    NewTask::new(agent.parse().unwrap(), "1")
}

fn many(agent: &str, n: usize) -> Vec<NewTask> {
    (0..n).map(|_| task(agent)).collect()
}

async fn hand_in(t: &Timed, n: usize, agent: &str) {
    for batch in many(agent, n).chunks(256) {
        assert!(t.submit(batch).await.iter().all(|a| matches!(a, Accepted::New(_))));
    }
}

/// Goes from due time to due time until `until_ms`, ending all that starts; when each started, in ms.
async fn play(t: &mut Timed, until_ms: u64) -> Vec<u64> {
    let mut starts = Vec::new();
    loop {
        let claimed = t.claim(200).await;
        starts.extend(claimed.deliveries.iter().map(|_| t.at_ms()));
        t.done(&claimed.deliveries).await;
        if claimed.deliveries.is_empty() && !claimed.cut_short {
            let due = claimed.next_due_ms.saturating_sub(tidemill_tests::timed::BEGAN_MS);
            if claimed.next_due_ms == 0 || due >= until_ms {
                return starts;
            }
            assert!(due > t.at_ms(), "due at {due} ms, and nothing came of it at {} ms", t.at_ms());
            t.set_ms(due);
        }
    }
}

/// One burst over three windows would hold 60 a minute to 33: here each window counts by itself.
#[tokio::test]
async fn the_books_own_example_admits_60_in_the_first_minute_and_2000_in_the_first_hour() {
    let mut t = Timed::new(&["gpt4"]).await;
    t.book("[[limit]]\nmatch = { agent = \"gpt4\" }\nrate = { minute = 60, hour = 2000, burst = 10 }\n").await;
    hand_in(&t, 2_100, "gpt4").await;
    let starts = play(&mut t, 3_600_000).await;
    let within = |ms: u64| starts.iter().filter(|at| **at < ms).count();
    assert_eq!(within(1), 10, "a burst at once");
    assert_eq!(within(60_000), 60);
    assert_eq!(within(3_600_000), 2_000);
    // Exact at every edge, not only at those of the clock.
    for window in starts.windows(61) {
        assert!(window[60] - window[0] >= 60_000, "61 within {} ms", window[60] - window[0]);
    }
}

/// In the long run at least 98 % of a limit can be used, also where it is kept in buckets.
#[tokio::test]
async fn a_large_limit_is_used_to_98_percent() {
    let mut t = Timed::new(&["a"]).await;
    t.book("[[limit]]\nrate = { second = 600 }\n").await;
    hand_in(&t, 6_600, "a").await;
    let starts = play(&mut t, 11_000).await;
    let used = starts.iter().filter(|at| (1_000..11_000).contains(*at)).count();
    assert!(used >= 5_880, "{used} of 6,000 in ten seconds");
    for window in starts.windows(601) {
        assert!(window[600] - window[0] >= 1_000, "601 within {} ms", window[600] - window[0]);
    }
}

/// A slot is held by what runs, so it cannot leak while a counter lives, nor be given back twice; and it counts by weight.
#[tokio::test]
async fn slots_count_by_weight_and_by_tenant() {
    let mut t = Timed::new(&["a"]).await;
    t.book("[[limit]]\nper = [\"tenant\"]\nslots = 3\n").await;
    let weighted = |tenant: &str, weight| NewTask { weight, ..task("a").tenant(tenant) };
    let tasks = [weighted("x", 2), weighted("x", 2), weighted("x", 1), weighted("y", 3), weighted("", 1)];
    t.submit(&tasks).await;
    let first = t.claim_all().await;
    let ids = |ds: &[tidemill_common::store::Delivery]| -> Vec<TaskId> { ds.iter().map(|d| d.id.clone()).collect() };
    // The second of x waits for two; the third would fit, and does not overtake.
    assert_eq!(ids(&first), [tasks[0].id.clone(), tasks[3].id.clone(), tasks[4].id.clone()]);
    assert_eq!(t.gate_of(&tasks[1].id).await.as_deref(), Some("s/*+t/x"));
    assert_eq!(t.gate_of(&tasks[2].id).await.as_deref(), Some("s/*+t/x"));
    t.done(&first).await;
    t.done(&first).await;
    assert_eq!(ids(&t.claim_all().await), [tasks[1].id.clone(), tasks[2].id.clone()]);
}

/// A tenant that rises keeps its counter: what runs still counts.
#[tokio::test]
async fn a_tier_is_changed_while_its_tasks_run() {
    let mut t = Timed::new(&["a"]).await;
    let rules = "[[limit]]\nper = [\"tenant\"]\nslots = { free = 1, pro = 3 }\n";
    let tiers = "tiers = [\"free\", \"pro\"]\n";
    t.book(&format!("{tiers}{rules}")).await;
    let tasks: Vec<NewTask> = (0..5).map(|_| task("a").tenant("x")).collect();
    t.submit(&tasks).await;
    let first = t.claim_all().await;
    assert_eq!(first.len(), 1, "nobody knows its tier: the lowest");
    t.book(&format!("{tiers}tenants = {{ x = \"pro\" }}\n{rules}")).await;
    let more = t.claim_all().await;
    assert_eq!(more.len(), 2, "three in all");
    t.book(&format!("{tiers}{rules}")).await;
    t.done(&more).await;
    assert_eq!(t.claim_all().await.len(), 0, "one runs, and that is as many as may");
    t.done(&first).await;
    assert_eq!(t.claim_all().await.len(), 1);
}

/// Refused calls leave nothing behind in any window, and both windows of an admitted one are charged.
#[tokio::test]
async fn all_windows_of_all_rules_are_charged_or_none() {
    let mut t = Timed::new(&["a", "b"]).await;
    t.book(
        "[[limit]]\nrate = { second = 3 }\n[[limit]]\nmatch = { agent = \"a\" }\nrate = { second = 1, minute = 2 }\n",
    )
    .await;
    hand_in(&t, 4, "a").await;
    hand_in(&t, 4, "b").await;
    let agents = |ds: &[tidemill_common::store::Delivery]| ds.len();
    assert_eq!(agents(&t.claim_all().await), 3, "one a and two b");
    t.set_ms(1_000);
    assert_eq!(agents(&t.claim_all().await), 3, "one a and two b: those a that were refused took nothing of the cap");
    t.set_ms(2_000);
    assert_eq!(agents(&t.claim_all().await), 0, "the minute of a is used up, and all b are done");
    t.set_ms(60_000);
    assert_eq!(agents(&t.claim_all().await), 1);
}

/// What can never pass is refused at the submit, not parked for ever; after an edit it is dead with the reason.
#[tokio::test]
async fn what_can_never_pass_is_refused_with_the_gate() {
    let mut t = Timed::new(&["a"]).await;
    t.book("[[limit]]\nrate = { second = 10, minute = 50 }\nslots = 2\n").await;
    let (dear, heavy, fine) =
        (NewTask { cost: 11, ..task("a") }, NewTask { weight: 3, ..task("a") }, NewTask { cost: 10, ..task("a") });
    let answers = t.submit(&[dear, heavy, fine.clone()]).await;
    assert_eq!(answers[0], Accepted::NeverFits { gate: "r/*/".into() });
    assert_eq!(answers[1], Accepted::NeverFits { gate: "s/*/".into() });
    assert_eq!(answers[2], Accepted::New(fine.id.clone()));
    // Its second answer is the first one's, though it would be refused by now.
    t.book("[[limit]]\nrate = { second = 9 }\n").await;
    assert_eq!(t.submit(std::slice::from_ref(&fine)).await, [Accepted::Duplicate(fine.id.clone())]);
    assert!(t.claim_all().await.is_empty());
    let status = t.store.status(&fine.id, None).await.unwrap();
    assert!(status.error().contains("never_fits: r/*/"), "{status:?}");
}

/// A window that is added counts from its edit; those that stay forget nothing.
#[tokio::test]
async fn an_edit_wipes_no_counter_and_an_added_window_counts_from_it() {
    let mut t = Timed::new(&["a"]).await;
    t.book("[[limit]]\nrate = { second = 5 }\n").await;
    hand_in(&t, 30, "a").await;
    assert_eq!(t.claim_all().await.len(), 5);
    t.set_ms(500);
    t.book("[[limit]]\nrate = { second = 6, minute = 8 }\n").await;
    assert_eq!(t.claim_all().await.len(), 1, "five have passed within the second");
    t.set_ms(1_500);
    assert_eq!(t.claim_all().await.len(), 6, "the second has room again; the minute has seen one");
    t.set_ms(5_000);
    assert_eq!(t.claim_all().await.len(), 1, "eight a minute, counted from the edit");
}

/// An edit that was made from another revision than the one in force does not undo what came in between.
#[tokio::test]
async fn an_edit_follows_the_revision_that_it_was_made_from() {
    let t = Timed::new(&["a"]).await;
    let book =
        |revision, slots: u64| Book::parse(&format!("revision = {revision}\n[[limit]]\nslots = {slots}\n")).unwrap();
    let apply = async |revision, slots, follows, note: &str| {
        let edit = BookEdit { follows, note };
        t.store.apply_book(&book(revision, slots).compile(), edit).await.unwrap()
    };
    assert_eq!(t.store.book().await.unwrap(), None);
    assert_eq!(apply(1, 1, Some(0), "the first").await, Applied::Applied);
    assert_eq!(apply(2, 2, Some(1), "").await, Applied::Applied);
    assert_eq!(apply(2, 3, Some(1), "").await, Applied::Moved(2));
    assert_eq!(apply(2, 2, None, "").await, Applied::Same);
    assert_eq!(apply(2, 3, None, "").await, Applied::Conflict);
    assert_eq!(apply(1, 3, None, "").await, Applied::Older(2));
    let kept = t.store.book().await.unwrap().unwrap();
    assert_eq!((kept.revision, Book::parse(&kept.text).unwrap()), (2, book(2, 2)));
    let books: Vec<_> = t.store.books().await.unwrap().into_iter().map(|b| (b.revision, b.note)).collect();
    assert_eq!(books, [(2, String::new()), (1, "the first".to_owned())]);
}

/// The most specific rule of a kind counts, and the cap on everything with it; tenants may be named anything.
#[tokio::test]
async fn the_most_specific_rule_wins_whatever_a_tenant_is_called() {
    let mut t = Timed::new(&["a"]).await;
    t.book(
        "[[limit]]\nslots = 5\n[[limit]]\nmatch = { agent = \"a\" }\nper = [\"tenant\"]\nslots = 1\n\
         [[limit]]\nmatch = { agent = \"a\", tenant = \"b/c+t\" }\nslots = 2\n",
    )
    .await;
    let tenants = ["b/c+t", "b", "c", "", "*", "+t/b", "{x}:\n"];
    let tasks: Vec<NewTask> = tenants.iter().flat_map(|tenant| (0..3).map(|_| task("a").tenant(*tenant))).collect();
    t.submit(&tasks).await;
    let mut left = tasks.len();
    while left > 0 {
        let got = t.claim_all().await;
        let count = |tenant: &str| {
            let of = |id: &TaskId| tasks.iter().any(|task| task.id == *id && task.tenant == tenant);
            got.iter().filter(|d| of(&d.id)).count()
        };
        assert!(got.len() <= 5 && !got.is_empty(), "{} at once", got.len());
        assert!(count("b/c+t") <= 2);
        assert!(tenants[1..].iter().all(|tenant| count(tenant) <= 1), "one of each");
        left -= got.len();
        t.done(&got).await;
    }
}
