//! D-02: one idempotency key by many at once; a submit whose reply is lost; a key that is used for something else.
//!
//! One task a key, whoever is first; a lost reply is an outcome that is not known, said as one, and safe to send again; another payload
//! is a conflict; another tenant has keys of its own.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join_all;
use tidemill_common::store::RedisOptions;
use tidemill_common::task::NewTask;
use tidemill_producer::{Client, Error, Options, Taken};
use tidemill_tests::lab::profile::pick;
use tidemill_tests::lab::{Lab, Payload};
use tidemill_tests::proxy::{Flow, Proxy, Toward};

use super::PATIENCE;

fn keyed(key: &str) -> NewTask {
    Payload::sleep(1).task().key(key)
}

async fn client(url: String, retry_for_ms: u64) -> Client {
    let redis = RedisOptions { url, retry_for_ms, command_timeout_ms: 300, ..RedisOptions::default() };
    Client::connect(Options { redis, ..Options::default() }).await.expect("a client")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_key_at_once() {
    let lab = Lab::new().await;
    let many = pick(200, 200);
    let clients = join_all((0..20).map(|_| client(lab.server().url(), 5_000))).await;
    let calls = (0..many).map(|n| clients[n % 20].submit(keyed("the-key")));
    let receipts: Vec<_> = join_all(calls).await.into_iter().map(|r| r.expect("accepted")).collect();
    let ids: BTreeSet<_> = receipts.iter().map(|r| r.id().clone()).collect();
    assert_eq!(ids.len(), 1, "all get the same id");
    assert_eq!(receipts.iter().filter(|r| r.taken() == Taken::New).count(), 1, "one was first");
    assert_eq!(lab.counts().await.waiting.values().sum::<u64>(), 1);
    let id = receipts[0].id().clone();
    lab.accepted([id.clone()]);

    // Another payload under it is a conflict that names the first; another tenant has a key of its own.
    let other = client(lab.server().url(), 5_000).await;
    let conflict = other.submit(Payload::sleep(2).task().key("the-key")).await;
    assert!(matches!(&conflict, Err(Error::Conflict { id: first }) if *first == id), "{conflict:?}");
    let of_tenant = other.submit(keyed("the-key").tenant("acme")).await.expect("another tenant's key is another");
    assert_eq!(of_tenant.taken(), Taken::New);
    lab.accepted([of_tenant.id().clone()]);

    // A late caller gets the answer of the first.
    lab.worker("w");
    let ended = receipts[0].wait(PATIENCE).await.expect("an answer");
    assert!(ended.ended().is_some_and(|end| end.is_success()), "{ended:?}");
    let late = other.submit(keyed("the-key")).await.expect("a duplicate");
    assert_eq!((late.taken(), late.id()), (Taken::Duplicate, &id));
    let answer = late.wait(Duration::from_secs(1)).await.expect("an answer");
    assert_eq!(answer.ended(), ended.ended(), "the same answer for a late caller");
    lab.ended(2, PATIENCE).await;
    lab.close_with_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_replies() {
    let lab = Lab::new().await;
    let proxy = Proxy::start(lab.server());
    let patient = client(proxy.url(), 10_000).await;
    let hasty = client(proxy.url(), 0).await;

    // The server knows the script: else its complaint that it does not would be what is lost.
    lab.submit(&[Payload::sleep(1).task()]).await;

    // Only the replies are cut; retries are on: with a key and without, one task each.
    proxy.set(Toward::Client, Flow::Dropped);
    let tries = [keyed("lost"), Payload::sleep(1).task()];
    let sent = tries.clone().map(|task| {
        let client = patient.clone();
        tokio::spawn(async move { client.submit(task).await })
    });
    lab.until("both are in", PATIENCE, async || {
        let waiting = lab.counts().await.waiting.values().sum::<u64>();
        if waiting == 3 { Ok(()) } else { Err(format!("{waiting} wait")) }
    })
    .await;
    proxy.resume();
    proxy.reset_all();
    for sent in sent {
        let receipt = sent.await.expect("it ends").expect("the retry finds it in");
        lab.accepted([receipt.id().clone()]);
    }
    assert_eq!(lab.counts().await.waiting.values().sum::<u64>(), 3, "none was doubled");

    // Retries are off: the outcome is not known, and that is what is said; the same id again is found.
    proxy.set(Toward::Client, Flow::Dropped);
    let task = Payload::sleep(1).task();
    let unknown = hasty.submit(task.clone()).await;
    assert!(matches!(&unknown, Err(Error::Unknown { id, .. }) if *id == task.id), "{unknown:?}");
    proxy.resume();
    proxy.reset_all();
    let again = patient.submit(task.clone()).await.expect("in");
    assert_eq!(again.id(), &task.id);
    lab.accepted([task.id.clone()]);
    assert_eq!(lab.counts().await.waiting.values().sum::<u64>(), 4);
    lab.worker("w");
    lab.ended(4, PATIENCE).await;
    lab.close_with_invariants().await;
}
