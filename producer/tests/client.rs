//! The library against a real server: submitting many, waiting for many, and not knowing.
#![expect(clippy::unwrap_used, reason = "a panic with its line is a test's report, in its helpers too")]

use std::time::{Duration, Instant};

use futures::{StreamExt as _, stream};
use tidemill_common::store::Verb;
use tidemill_embedded::{Reply, Server, Storage, Tcp};
use tidemill_producer::{Cancelled, Client, Error, NewTask, Options, RedisOptions, State, TaskId, Waited};

#[path = "cli/support.rs"]
#[allow(dead_code, reason = "the other half is for the tests of the program")]
mod support;
use support::{Worker, server, server_with};

/// Less than the time after which a wait looks by itself.
const WOKEN: Duration = Duration::from_secs(3);

fn task(payload: &str) -> NewTask {
    NewTask::new("a".parse().unwrap(), payload.to_owned())
}

async fn client(server: &Server) -> Client {
    Client::connect(Options::at(server.url())).await.unwrap()
}

/// A client that gives up soon.
async fn impatient(server: &Server) -> Client {
    let redis =
        RedisOptions { url: server.url(), command_timeout_ms: 300, retry_for_ms: 300, ..RedisOptions::default() };
    Client::connect(Options { redis, ..Options::default() }).await.unwrap()
}

/// How many connections the server has, without the one that asks.
fn connections(server: &Server) -> usize {
    match server.command(&["CLIENT", "LIST"]).unwrap() {
        Reply::Bulk(list) => String::from_utf8(list).unwrap().lines().count() - 1,
        other => panic!("{other:?}"),
    }
}

async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(20), "not {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_waits_share_one_connection_and_are_woken_together() {
    const WAITS: usize = 1_000;
    let server = server();
    let client = client(&server).await;
    let mut worker = Worker::start(&server.url(), "a").await;
    let before = connections(&server);
    let answers = client.submit_all((0..WAITS).map(|n| task(&n.to_string())));
    let receipts: Vec<_> = answers.map(|answer| answer.result.unwrap()).collect().await;
    let waits: Vec<_> = receipts
        .iter()
        .cloned()
        .map(|receipt| tokio::spawn(async move { receipt.wait(Duration::from_secs(60)).await.unwrap() }))
        .collect();
    until("listening", || connections(&server) == before + 1).await;
    let registered = || match server.command(&["HLEN", &worker.store.base().key("waits")]).unwrap() {
        Reply::Int(n) => usize::try_from(n).unwrap(),
        other => panic!("{other:?}"),
    };
    until("registered", || registered() == WAITS).await;
    let settled = Instant::now();
    loop {
        let deliveries = worker.claim().await;
        if deliveries.is_empty() {
            break;
        }
        worker.succeed(&deliveries, "1").await;
    }
    for wait in waits {
        assert!(wait.await.unwrap().ended().unwrap().is_success());
    }
    assert!(settled.elapsed() < WOKEN, "woken after {:?}", settled.elapsed());
    assert_eq!(connections(&server), before + 1);
    until("done listening", || connections(&server) == before).await;
    drop(receipts);
    drop(client);
    until("closed", || connections(&server) == before - 1).await;
}

#[tokio::test]
async fn a_task_is_read_back_with_its_payload_wherever_that_lies() {
    let server = server();
    let client = client(&server).await;
    for bytes in [3, 40_000] {
        let payload = "x".repeat(bytes);
        let receipt = client.submit(NewTask::new("a".parse().unwrap(), payload.clone())).await.unwrap();
        let read = client.task(receipt.id()).await.unwrap().unwrap();
        assert!(read.payload == payload && !read.payload_apart, "{bytes} bytes");
    }
    let cancelled = client.submit(task("2")).await.unwrap();
    client.cancel(cancelled.id()).await.unwrap();
    assert_eq!(client.task(cancelled.id()).await.unwrap(), None, "its envelope has gone");
    assert_eq!(client.task(&"nope".parse().unwrap()).await.unwrap(), None);
}

#[tokio::test]
async fn a_lost_wake_up_delays_a_wait_and_no_more() {
    let server = server();
    let client = client(&server).await;
    let mut worker = Worker::start(&server.url(), "a").await;
    let receipt = client.submit(task("1")).await.unwrap();
    let wait = tokio::spawn(async move { receipt.wait(Duration::from_secs(60)).await.unwrap() });
    let waits = worker.store.base().key("waits");
    until("registered", || server.command(&["DEL", &waits]).unwrap() == Reply::Int(1)).await;
    let deliveries = worker.claim().await;
    worker.settle(&deliveries, Verb::Dead { error: "no".into() }).await;
    let began = Instant::now();
    let waited = wait.await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(7), "{:?}", began.elapsed());
    let ended = waited.ended().unwrap();
    assert_eq!((ended.state, ended.error.as_str(), ended.is_success()), (State::Dead, "no", false));
}

#[tokio::test]
async fn waits_end_in_time_whatever_happens() {
    let mut server = server_with(tidemill_embedded::Options::new().storage(Storage::Temporary).tcp(Tcp::Free));
    let client = impatient(&server).await;
    let receipt = client.submit(task("1")).await.unwrap();
    assert_eq!(receipt.wait(Duration::ZERO).await.unwrap(), Waited::TimedOut { last: Some(State::Queued) });
    assert_eq!(client.wait(&"nope".parse().unwrap(), Duration::MAX).await.unwrap(), Waited::Forgotten);
    let began = Instant::now();
    server.kill().unwrap();
    let waited = receipt.wait(Duration::from_secs(2)).await.unwrap();
    assert_eq!(waited, Waited::TimedOut { last: None });
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());

    let wait = tokio::spawn({
        let receipt = receipt.clone();
        async move { receipt.wait(Duration::from_secs(60)).await.unwrap() }
    });
    server.restart().unwrap();
    let cancelled = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            match client.cancel(receipt.id()).await {
                Ok(cancelled) => return cancelled,
                Err(error) => assert!(error.is_transient(), "{error:?}"),
            }
        }
    });
    assert_eq!(cancelled.await.unwrap(), Cancelled::Now(State::Queued));
    assert_eq!(wait.await.unwrap().state(), Some(State::Cancelled));
}

#[tokio::test]
async fn an_unanswered_submit_says_that_sending_it_again_is_safe_and_it_is() {
    let mut server = server();
    let client = impatient(&server).await;
    client.submit(task("0")).await.unwrap();
    server.freeze().unwrap();
    let sent = task("1");
    let error = client.submit(sent.clone()).await.unwrap_err();
    let Error::Unknown { id, .. } = &error else { panic!("{error:?}") };
    assert_eq!(*id, sent.id);
    assert!(error.is_transient() && !error.is_refusal());
    assert!(error.to_string().contains("sending the same id again is safe"));
    server.thaw().unwrap();
    let mut tries = 0;
    let receipt = loop {
        match client.submit(sent.clone()).await {
            Ok(receipt) => break receipt,
            Err(error) => assert!(error.is_transient() && tries < 20, "{error:?}"),
        }
        tries += 1;
    };
    assert_eq!(*receipt.id(), sent.id);
    let waiting: u64 = client.counts().await.unwrap().waiting.values().sum();
    assert_eq!(waiting, 2);
}

#[tokio::test]
async fn many_are_answered_in_order_with_the_bad_ones_in_their_places() {
    let server = server();
    let client = client(&server).await;
    assert_eq!(client.submit_all(Vec::new()).count().await, 0);
    let tasks = (0..2_000).map(|n| if n % 700 == 699 { task("1").max_attempts(0) } else { task(&n.to_string()) });
    let tasks: Vec<NewTask> = tasks.collect();
    let ids: Vec<TaskId> = tasks.iter().map(|task| task.id.clone()).collect();
    let answers: Vec<_> = client.submit_many(stream::iter(tasks)).collect().await;
    for (n, (answer, id)) in answers.iter().zip(&ids).enumerate() {
        assert_eq!((answer.number, &answer.id), (n as u64, id));
        match &answer.result {
            Ok(receipt) => assert!(receipt.id() == id && n % 700 != 699),
            Err(Error::Invalid(_)) => assert_eq!(n % 700, 699),
            Err(error) => panic!("{error:?}"),
        }
    }
    assert_eq!(answers.len(), 2_000);
}

#[tokio::test]
async fn many_stop_at_a_dead_server_and_leave_the_rest_with_the_caller() {
    let mut server = server();
    let client = impatient(&server).await;
    server.kill().unwrap();
    let mut taken = 0_u64;
    let endless = std::iter::from_fn(|| {
        taken += 1;
        Some(task("1"))
    });
    let answers: Vec<_> = client.submit_all(endless).collect().await;
    assert!(!answers.is_empty() && answers.len() <= 4 * 256, "{}", answers.len());
    for answer in &answers {
        assert!(matches!(&answer.result, Err(Error::Unknown { id, .. }) if *id == answer.id), "{answer:?}");
    }
    drop(answers);
    assert!(taken <= 4 * 256, "{taken}");
}

#[tokio::test]
async fn large_payloads_go_in_small_calls() {
    let server = server();
    let client = client(&server).await;
    let large = "x".repeat(1 << 20);
    let tasks = (0..40).map(|_| task(&large));
    let answers: Vec<_> = client.submit_all(tasks).collect().await;
    assert!(answers.iter().all(|answer| answer.result.is_ok()));
}
