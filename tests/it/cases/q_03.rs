//! exactly as many as the limit says: in one millisecond, at the edge of a window, and whatever was refused before.

use tidemill_common::keys::Base;
use tidemill_common::name::WorkerId;
use tidemill_common::store::{Accepted, Claim, Lease, Offer, Store};
use tidemill_common::task::NewTask;
use tidemill_tests::lab::profile::pick;
use tidemill_tests::server::Reply;
use tidemill_tests::timed::{BEGAN_MS, Timed};
use tokio::task::JoinSet;

const TEN: &str = "[[limit]]\nrate = { minute = 10 }\n";

async fn hand_in(t: &Timed, n: usize) {
    let tasks: Vec<NewTask> = (0..n).map(|_| NewTask::new("a".parse().unwrap(), "1")).collect();
    assert!(t.submit(&tasks).await.iter().all(|a| matches!(a, Accepted::New(_))));
}

/// (a) Two hundred calls at once on twenty connections, in one millisecond of the clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_once_exactly_ten_pass() {
    let mut t = Timed::new(&["a"]).await;
    t.book(TEN).await;
    hand_in(&t, 200).await;
    let lease = Lease {
        lease: std::time::Duration::from_secs(86_400),
        sweep_hold: std::time::Duration::from_secs(1),
        unknown_agent_after: std::time::Duration::ZERO,
    };
    let mut calls = JoinSet::new();
    for n in 0..20 {
        let store: Store = t.another_store().await;
        calls.spawn(async move {
            let me = WorkerId::incarnate(&format!("w{n}")).unwrap();
            let agents = ["a".parse().unwrap()];
            store.renew(&me, lease, Some(&agents), false).await.unwrap();
            let offers = [Offer { agent: agents[0].clone(), room: 1 }];
            let mut got = 0;
            for sequence in 1..=10 {
                let claim = Claim { worker: &me, sequence, most: 1, lone: false, shares: [1; 4], offers: &offers };
                got += store.claim(&claim).await.unwrap().deliveries.len();
            }
            got
        });
    }
    assert_eq!(calls.join_all().await.into_iter().sum::<usize>(), 10);
    let counts = t.store.counts().await.unwrap();
    assert_eq!(
        (counts.running, counts.limit_hits[&'r'] <= 200),
        (10, true),
        "each is refused once, and stands in line"
    );
}

/// (b), (c), (e): ten at the end of a minute and none at the beginning of the next; a window that was full and is over is empty; and
/// whoever comes at the time that was said is let in, and no sooner.
#[tokio::test]
async fn an_edge_lets_no_twenty_through_and_the_time_that_is_said_holds() {
    let mut t = Timed::new(&["a"]).await;
    t.book(TEN).await;
    t.set_ms(59_999);
    hand_in(&t, 20).await;
    assert_eq!(t.claim_all().await.len(), 10);
    t.set_ms(60_000);
    assert!(t.claim_all().await.is_empty());
    t.set_ms(60_001);
    let refused = t.claim(9).await;
    assert!(refused.deliveries.is_empty());
    let due = refused.next_due_ms - BEGAN_MS;
    assert!(due > 60_001, "a time to come");
    t.set_ms(due - 1);
    assert!(t.claim_all().await.is_empty());
    t.set_ms(due);
    assert_eq!(t.claim_all().await.len(), 10);
    assert_eq!(due, 119_999);
    t.set_ms(due + 60_000);
    hand_in(&t, 10).await;
    assert_eq!(t.claim_all().await.len(), 10, "the window is over");
}

/// (d) Calls that are refused leave nothing behind.
#[tokio::test]
async fn refused_calls_take_no_memory() {
    let mut t = Timed::new(&["a"]).await;
    t.book(TEN).await;
    hand_in(&t, 11).await;
    assert_eq!(t.claim_all().await.len(), 10);
    let size = |t: &Timed| {
        let of = |key: &str| match t.server.command(&["MEMORY", "USAGE", key]).unwrap() {
            Reply::Int(n) => n,
            other => panic!("{key}: {other:?}"),
        };
        of(&Base::new(0).key("g:r/*/#60000")) + of(&Base::new(0).key("l:r/*/"))
    };
    let before = size(&t);
    for _ in 0..pick(2_000, 100_000) {
        t.set_ms(1);
        assert!(t.claim(9).await.deliveries.is_empty());
    }
    hand_in(&t, 1).await;
    assert!(size(&t) - before < 200, "one more id in line, and nothing else");
    assert!(t.claim_all().await.is_empty());
}
