//! R-07: memory is full, or the server would evict keys, or a key is gone.

mod keys;

use std::time::Duration;

use tidemill_common::book::{Limit, Match, Rate};
use tidemill_common::task::NewTask;
use tidemill_producer::{Client, Error, Options as ClientOptions};
use tidemill_tests::lab::profile::count;
use tidemill_tests::lab::{End, Lab, Mode, Payload};
use tidemill_tests::program::Program;
use tidemill_tests::server::{Options, Tcp};
use tidemill_tests::watch::Watch;

use super::PATIENCE;

/// Exit codes of both programs.
const FAILED: i32 = 1;
const REFUSED: i32 = 5;
/// What a producer may send before a full memory is reached.
const FLOOD_MAX: usize = 100_000;

/// A flood reaches the limit: the producer is told so at once, workers drain what is in, nothing is lost, and room makes it well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_floods_to_the_limit() {
    let lab = Lab::new().await;
    let client = Client::connect(ClientOptions::at(lab.server().url())).await.expect("a client");
    let used = memory(&lab);
    let limit = used + if tidemill_tests::lab::profile::full() { 16 << 20 } else { 4 << 20 };
    lab.raw(&["CONFIG", "SET", "maxmemory", &limit.to_string()]);

    let accepted = flood(&lab, &client).await;
    assert!(accepted > 50, "{accepted} of 8 KiB each were taken in before the memory was full");
    // The same in words, from the program; clients that come and go make a little room each time.
    lab.raw(&["CONFIG", "SET", "maxmemory", &(limit - (1 << 20)).to_string()]);
    let said = Program::run(
        "producer",
        &["submit", "ledger", "--payload", &large(1)],
        &[("TIDEMILL__REDIS__URL", &lab.server().url())],
    )
    .await;
    assert_eq!(said.code, Some(REFUSED), "{said:?}");
    assert!(said.err.contains("maxmemory"), "{}", said.err);

    let workers = ["w1", "w2"].map(|name| lab.worker(name));
    let watches = workers.each_ref().map(Watch::on);
    lab.ended(accepted, PATIENCE).await;
    assert_eq!(lab.ledger().ended(End::Done), accepted, "nothing is lost");
    tokio::time::sleep(Duration::from_secs(1)).await;
    watches.iter().for_each(Watch::assert_calm);

    // More memory makes it well.
    lab.raw(&["CONFIG", "SET", "maxmemory", &(limit * 2).to_string()]);
    let more: Vec<NewTask> = (0..50).map(|_| large_task()).collect();
    for task in &more {
        client.submit(task.clone()).await.expect("there is room again");
        lab.accepted([task.id.clone()]);
    }
    lab.ended(accepted + more.len(), PATIENCE).await;
    lab.raw(&["CONFIG", "SET", "maxmemory", "0"]);
    lab.close_with_invariants().await;
}

/// The memory is full for as long as a mixed load takes: all that is in runs, with its gates, delays and retries.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_go_on_without_any_room() {
    let lab = Lab::new().await;
    let of = |agent: &str| Match::agent(agent.parse().expect("a name"));
    lab.book(vec![Limit::of_slots(of("slotted"), 2), Limit::of_rate(of("rated"), Rate::of(5, 200))]).await;
    let many = |n: usize, one: &dyn Fn() -> NewTask| (0..count(n)).map(|_| one()).collect::<Vec<_>>();
    let mut tasks = many(400, &|| Payload::sleep(2).task());
    tasks.extend(many(200, &|| Payload::sleep(20).task_of("slotted")));
    tasks.extend(many(100, &|| Payload::sleep(1).task_of("rated")));
    tasks.extend(many(100, &|| Payload::of(Mode::FailOnce, 1).after(50).task()));
    tasks.extend(many(100, &|| Payload::sleep(1).task().delay(Duration::from_millis(400))));
    tasks.extend(many(100, &|| Payload::sleep(1).task().order_key("one by one")));
    lab.submit(&tasks).await;
    lab.raw(&["CONFIG", "SET", "maxmemory", "1mb"]);
    assert!(lab.raw(&["SET", "x", "1"]).as_error().is_some_and(|why| why.starts_with("OOM")), "no room at all");

    // Workers that start into it, and one of them is lost.
    let start = |name: &str| lab.start(lab.setup(name).agents(&["ledger", "slotted", "rated"]));
    let (first, second) = (start("w1"), start("w2"));
    lab.until("something runs", PATIENCE, async || match lab.ledger().running(first.pid()).count() {
        0 => Err("nothing does".into()),
        _ => Ok(()),
    })
    .await;
    first.kill();
    let watch = Watch::on(&second);
    lab.ended(tasks.len(), PATIENCE).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    watch.assert_calm();
    assert_eq!(lab.ledger().ended(End::Done), tasks.len(), "nothing is lost");
    assert!(lab.store().submit(&[Payload::sleep(1).task()], 0).await.is_err(), "and still nothing is taken in");
    // Nobody has to wait for a slow round when there is room again.
    lab.raw(&["CONFIG", "SET", "maxmemory", "0"]);
    lab.submit(&lab.tasks(1, Payload::sleep(1))).await;
    lab.ended(tasks.len() + 1, lab.profile.lease + Duration::from_secs(1)).await;
    lab.close_with_invariants().await;
}

/// A server that evicts is refused at the start, in words; one that does not let us see its policy is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_evicting_server_is_refused() {
    let lab = Lab::with(Options::new().tcp(Tcp::Free)).await;
    let worker = |url: &str| ["run", "--admin", "off", "--redis", url].map(str::to_owned);
    for policy in ["allkeys-lru", "volatile-ttl"] {
        lab.raw(&["CONFIG", "SET", "maxmemory-policy", policy]);
        let args = worker(&lab.server().url());
        let refused = Program::run("worker", &args.each_ref().map(String::as_str), &[]).await;
        assert_eq!(refused.code, Some(FAILED), "{refused:?}");
        assert!(refused.err.contains(policy) && refused.err.contains("noeviction"), "{}", refused.err);
        let refused =
            Program::run("producer", &["submit", "echo"], &[("TIDEMILL__REDIS__URL", &lab.server().url())]).await;
        assert_eq!(refused.code, Some(FAILED), "{refused:?}");
        assert!(refused.err.contains(policy) && refused.err.contains("noeviction"), "{}", refused.err);
    }
    // Whoever may not look is warned, and served.
    lab.raw(&["ACL", "SETUSER", "blind", "on", ">secret", "~*", "&*", "+@all", "-config"]);
    let args = worker(&format!("redis://blind:secret@127.0.0.1:{}", lab.server().port().unwrap_or_default()));
    let blind = Program::start("worker", &args.each_ref().map(String::as_str), &[]);
    lab.until("it works all the same, and says that it cannot see", PATIENCE, async || {
        let log = blind.log();
        if log.contains("at work") && log.contains("maxmemory-policy") { Ok(()) } else { Err(log) }
    })
    .await;
    blind.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(blind.exit(PATIENCE).await.code(), Some(0));
    lab.raw(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    lab.close_with_invariants().await;
}

fn memory(lab: &Lab) -> usize {
    let info = lab.raw(&["INFO", "memory"]);
    let line = info
        .as_str()
        .and_then(|text| text.lines().find_map(|line| line.strip_prefix("used_memory:")))
        .map(str::to_owned);
    line.and_then(|number| number.trim().parse().ok()).expect("the server says how much memory it uses")
}

/// A payload of 8 KiB.
fn large(ms: u64) -> String {
    format!(r#"{{"ms":{ms},"pad":"{}"}}"#, "x".repeat(8 << 10))
}

fn large_task() -> NewTask {
    NewTask { payload: large(1).into(), ..Payload::sleep(1).task() }
}

/// Submits until the server is full, which is said at once and plainly; returns how many were taken in.
async fn flood(lab: &Lab, client: &Client) -> usize {
    for n in 0..FLOOD_MAX {
        let task = large_task();
        let (id, began) = (task.id.clone(), std::time::Instant::now());
        match client.submit(task).await {
            Ok(_) => lab.accepted([id]),
            Err(error) => {
                assert!(matches!(error, Error::ServerFull), "{error:?}");
                assert!(error.is_refusal() && error.is_transient(), "an answer, and one that may change");
                assert!(began.elapsed() < Duration::from_secs(1), "said at once, not after {:?}", began.elapsed());
                return n;
            }
        }
    }
    panic!("{FLOOD_MAX} large tasks, and the memory is not full");
}
