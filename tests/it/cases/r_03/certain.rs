//! what a producer is told: "not done, for certain" only if the server said so to every try; else "not known".

use tidemill_common::store::RedisOptions;
use tidemill_common::task::NewTask;
use tidemill_producer::{Client, Error, Options, Taken};
use tidemill_tests::lab::{Lab, Payload};
use tidemill_tests::proxy::{Flow, Proxy, Toward};
use tidemill_tests::server::Reply;

use super::super::PATIENCE;

/// Most calls of it that are on their way at once.
const AT_ONCE: usize = 8;

/// A producer that tries for a second.
async fn client(url: String) -> Client {
    let redis = RedisOptions { url, retry_for_ms: 1_000, command_timeout_ms: 30_000, ..RedisOptions::default() };
    Client::connect(Options { redis, ..Options::default() }).await.expect("a producer")
}

fn ok(lab: &Lab, command: &[&str]) {
    assert_eq!(lab.raw(command), Reply::Simple("OK".into()), "{command:?}");
}

/// Hands one in, so that the server knows the script: the next request is one command.
async fn knows_the_script(lab: &Lab, client: &Client) {
    let task = lab.tasks(1, Payload::sleep(1)).remove(0);
    lab.accepted([task.id.clone()]);
    client.submit(task).await.expect("it is taken in");
}

/// Each way to refuse, to many requests on one connection: each is refused for certain, and taken in later under its own id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_each_time_is_refused_for_certain() {
    let lab = Lab::new().await;
    lab.worker("w1");
    let client = client(lab.server().url()).await;
    knows_the_script(&lab, &client).await;
    let replica = |of: &str| vec![format!("REPLICAOF {of}")];
    for (word, begin, end) in [
        ("READONLY", replica("127.0.0.1 1"), replica("NO ONE")),
        (
            "NOREPLICAS",
            vec!["CONFIG SET min-replicas-to-write 1".to_owned()],
            vec!["CONFIG SET min-replicas-to-write 0".to_owned()],
        ),
    ] {
        let say = |commands: Vec<String>| {
            commands.iter().for_each(|command| ok(&lab, &command.split(' ').collect::<Vec<_>>()));
        };
        say(begin);
        let tasks = lab.tasks(AT_ONCE, Payload::sleep(1));
        let answers = futures::future::join_all(tasks.iter().map(|task| client.submit(task.clone()))).await;
        for answer in answers {
            let error = answer.expect_err("nothing is taken in");
            assert!(matches!(error, Error::NotNow { .. }), "{word}: {error:?}");
            assert!(error.is_refusal() && error.is_transient() && error.to_string().contains("safe"), "{error}");
            let cause = std::error::Error::source(&error).and_then(std::error::Error::source).map(ToString::to_string);
            assert!(cause.as_ref().is_some_and(|cause| cause.contains(word)), "{word}: {cause:?}");
        }
        say(end);
        // The very same are new to it: nothing of them was done.
        for task in &tasks {
            let receipt = client.submit(task.clone()).await.expect("it is taken in");
            assert_eq!(receipt.taken(), Taken::New, "{word}");
        }
        lab.accepted(tasks.iter().map(|task| task.id.clone()));
    }
    lab.ended(AT_ONCE * 2 + 1, PATIENCE).await;
    client.close().await;
    lab.close_with_invariants().await;
}

/// The reply to the first try is lost, and the server is a replica at all others: the task may be in, as this one is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_after_a_lost_reply_is_not_known() {
    let lab = Lab::new().await;
    let proxy = Proxy::start(lab.server());
    let client = client(proxy.url()).await;
    knows_the_script(&lab, &client).await;
    let task: NewTask = lab.tasks(1, Payload::sleep(1)).remove(0);
    proxy.set(Toward::Client, Flow::Held);
    let sent = tokio::spawn({
        let (client, task) = (client.clone(), task.clone());
        async move { client.submit(task).await }
    });
    lab.until("it is in, and the reply is on its way", PATIENCE, async || {
        match lab.counts().await.waiting.values().sum() {
            2_u64 if proxy.counts().waiting[Toward::Client as usize] > 0 => Ok(()),
            n => Err(format!("{n} wait; {:?}", proxy.counts())),
        }
    })
    .await;
    ok(&lab, &["REPLICAOF", "127.0.0.1", "1"]);
    proxy.reset_all();
    lab.until("the connection is reset", PATIENCE, async || match proxy.counts().made {
        n if n > 1 => Ok(()),
        n => Err(format!("{n} made")),
    })
    .await;
    proxy.resume();
    let error = tokio::time::timeout(PATIENCE, sent).await.expect("in time").expect("no panic").expect_err("no answer");
    assert!(matches!(error, Error::Unknown { .. }) && !error.is_refusal() && error.is_transient(), "{error:?}");
    ok(&lab, &["REPLICAOF", "NO", "ONE"]);
    let receipt = client.submit(task.clone()).await.expect("it is answered");
    assert_eq!(receipt.taken(), Taken::Duplicate, "it was in");
    lab.accepted([task.id]);
    lab.worker("w1");
    lab.ended(2, PATIENCE).await;
    client.close().await;
    lab.close_with_invariants().await;
}
