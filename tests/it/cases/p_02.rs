//! P-02: replaying the dead while they still fail; the tool is killed half-way; two replay at once.
//!
//! Each task is replayed at most once a command, and the command ends; attempts begin anew and the errors are kept; the key stays.

use tidemill_common::history::DeadReason;
use tidemill_common::state::State;
use tidemill_producer::{Client, Deed, Done, Options, Select, TaskId};
use tidemill_tests::lab::profile::pick;
use tidemill_tests::lab::{Lab, Mode, Payload};

use super::PATIENCE;

/// All dead ones, in the order of their death.
async fn dead(client: &Client) -> Vec<TaskId> {
    let mut ids = Vec::new();
    client
        .list(&Select::state(State::Dead), |found| {
            ids.push(found.id);
            true
        })
        .await
        .expect("a list");
    ids
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replay_while_they_fail() {
    let lab = Lab::new().await;
    let client = Client::connect(Options::at(lab.server().url())).await.expect("a client");
    let many = pick(60, 600);
    let failing = |n: usize| {
        let mut task = Payload::of(Mode::Fail, 1).after(1).task().max_attempts(2).key(format!("key-{n}"));
        task.order_key = n.is_multiple_of(10).then(|| format!("order-{}", n / 20));
        task
    };
    let tasks: Vec<_> = (0..many).map(failing).collect();
    lab.submit(&tasks).await;
    lab.start(lab.setup("w").concurrency(8));
    lab.ended(many, PATIENCE).await;
    let ids = dead(&client).await;
    assert_eq!(ids.len(), many);

    // The tool is killed half-way: what it did is done, the rest is as it was.
    let all = Deed::Replay { rate: None, patch: None };
    let first = client.to_each(&ids[..many / 2], &all).await.expect("replayed");
    assert!(first.iter().all(|d| *d == Done::Done));
    lab.ended(many + many / 2, PATIENCE).await;
    assert_eq!(dead(&client).await.len(), many, "they have failed again, and wait for another command");

    // Two at once, of the same list: each task is replayed by one of them.
    let ids = dead(&client).await;
    let (a, b) = tokio::join!(client.to_each(&ids, &all), client.to_each(&ids, &all));
    let (a, b) = (a.expect("an answer"), b.expect("an answer"));
    let done = |of: &[Done]| of.iter().filter(|d| **d == Done::Done).count();
    // One that failed twice before the other tool came to it is dead again, and may be replayed by that one as well.
    assert!(done(&a) + done(&b) >= many, "none was left out: {} and {}", done(&a), done(&b));
    let replayed = done(&a) + done(&b);
    lab.ended(many + many / 2 + replayed, PATIENCE).await;

    let counts = lab.counts().await;
    assert_eq!(counts.dead, many as u64, "none is lost, none doubled: {counts:?}");
    assert_eq!(counts.ended.get("replayed").copied(), Some((many / 2 + replayed) as u64));
    for task in &tasks {
        let status = lab.store().status(&task.id, None).await.expect("a status");
        assert_eq!((status.state, status.reason), (Some(State::Dead), Some(DeadReason::Attempts)));
        assert_eq!(status.attempt, 2, "attempts begin anew with each replay");
        assert!(status.errors.len() >= 4 && status.replays >= 1, "its errors are kept: {status:?}");
        let again = client.submit(task.clone()).await.expect("a duplicate");
        assert!(again.is_duplicate() && *again.id() == task.id, "its key is its own still");
    }

    // At a rate they come back one by one; purged ones are gone, and their keys with them after a day.
    let ids = dead(&client).await;
    client.to_each(&ids[..4], &Deed::Replay { rate: Some(20.0), patch: None }).await.expect("replayed");
    lab.ended(many + many / 2 + replayed + 4, PATIENCE).await;
    let purged = client.to_each(&ids, &Deed::Purge).await.expect("purged");
    assert!(purged.iter().all(|d| *d == Done::Done), "{purged:?}");
    assert_eq!(lab.counts().await.dead, 0);
    lab.forget_accepted();
    lab.close_with_invariants().await;
}
