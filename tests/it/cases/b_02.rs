//! B-02: awkward ids and names, through the library and the program, and back out at the handler.
//!
//! What becomes part of a key, a label or a log line is held to a small alphabet, and refused at once, in words, when it is not.
//! Tenants, keys and order keys are data: kept byte for byte, and no two of them are taken for each other.

use std::sync::{Arc, Mutex};

use tidemill_common::name::{AgentName, QueueName, TaskId};
use tidemill_common::store::{Accepted, RedisOptions};
use tidemill_common::task::NewTask;
use tidemill_producer::{Client, Options as ClientOptions, Waited};
use tidemill_tests::admin::Watched;
use tidemill_tests::lab::Lab;
use tidemill_tests::program::{Ended, Program};
use tidemill_worker::{Context, Options, Outcome, Registry, Shutdown, Worker};

use super::PATIENCE;

/// The producer's exit code for what is not right.
const USAGE: i32 = 2;

/// No names.
const NO_NAMES: &[&str] = &[
    "",
    "a:b",
    ":",
    "../x",
    "a/b",
    "a\nb",
    "a\r\nb",
    "a\0b",
    "🦀",
    "*",
    " a",
    "a ",
    "{0}",
    "a{0}b",
    "a}b",
    "a\u{202e}b",
];
/// Names, however they look. (A lone dash is one as well, and the program takes it for its standard input.)
const NAMES: &[&str] = &["123", "0", "-0", "_", "--help", "nil", "true", "d", "w"];
/// Data: any text that fits.
const DATA: &[&str] = &[
    "a:b",
    ":",
    "../x",
    "a\nb",
    "a\r\nb",
    "a\0b",
    "🦀",
    "123",
    "*",
    " a ",
    "{0}",
    "\u{1b}[2J",
    "\\",
    "%s",
    "\"",
    "a\u{202e}b",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_are_refused_at_once_or_kept() {
    let lab = Lab::new().await;
    let long = "x".repeat(1 << 20);
    for bad in NO_NAMES.iter().copied().chain([&long[..65], &long]) {
        assert!(
            bad.parse::<TaskId>().is_err() && bad.parse::<QueueName>().is_err() && bad.parse::<AgentName>().is_err()
        );
    }
    let url = lab.server().url();
    // NUL and 1 MB cannot be arguments: `bad_input` has them in files.
    for (n, bad) in NO_NAMES.iter().filter(|bad| !bad.contains('\0')).enumerate() {
        // All three are read by one function; each value goes to one of them.
        let (id, queue) = (format!("--id={bad}"), format!("--queue={bad}"));
        let args = [["submit", "echo", &id], ["submit", "echo", &queue], ["submit", "--", bad]];
        refused(&producer(&url, &args[n % 3]).await);
    }
    let watched = Watched::start(&lab, &url).await;
    for name in NAMES {
        let said =
            producer(&url, &["submit", "echo", "7", "--wait", &format!("--id={name}"), &format!("--queue={name}")])
                .await;
        seven(&said);
        let said = producer(&url, &["status", "--", name]).await;
        assert!(said.out.contains("succeeded"), "{name}: {said:?}");
    }
    // Generated ids are of another form, so that none is ever one of these.
    assert!(NAMES.iter().all(|name| name.len() < TaskId::generate().as_str().len()));
    // Tenants that would break lines and labels break neither.
    for data in DATA.iter().filter(|data| !data.contains('\0')) {
        let flags = [format!("--tenant={data}"), format!("--order-key={data}"), format!("--key={data}")];
        let said = producer(&url, &["submit", "echo", "7", "--wait", &flags[0], &flags[1], &flags[2]]).await;
        seven(&said);
    }
    let log = watched.program.log();
    let broken = log.lines().find(|line| serde_json::from_str::<serde_json::Value>(line).is_err());
    assert_eq!(broken, None, "one event is one line");
    watched.stop().await;
    lab.close_with_invariants().await;
}

/// It ran, and its result is its payload.
#[track_caller]
fn seven(run: &Ended) {
    let said: serde_json::Value = serde_json::from_str(&run.out).unwrap_or_default();
    assert_eq!((run.code, &said["result"]), (Some(0), &serde_json::json!(7)), "{run:?}");
}

#[track_caller]
fn refused(run: &Ended) {
    assert_eq!(run.code, Some(USAGE), "{run:?}");
    assert!(run.err.starts_with("error[TM-0101]: ") || run.err.starts_with("error[TM-0201]: "), "{run:?}");
}

async fn producer(url: &str, args: &[&str]) -> Ended {
    Program::run("producer", args, &[("TIDEMILL__REDIS__URL", url)]).await
}

/// What a handler sees of a task: id, queue, tenant, order key, key.
type Seen = (String, String, String, Option<String>, Option<String>);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_is_the_same_at_the_handler() {
    let lab = Lab::new().await;
    let seen = Arc::new(Mutex::new(Vec::<Seen>::new()));
    let (noted, shutdown) = (Arc::clone(&seen), Shutdown::new());
    let handler = move |context: Context| {
        let task = context.task();
        noted.lock().expect("no handler panics").push((
            task.id.to_string(),
            task.queue.to_string(),
            task.tenant.clone(),
            task.order_key.clone(),
            task.key.clone(),
        ));
        std::future::ready(Outcome::done(""))
    };
    let registry = Registry::new().with("look".parse().expect("a name"), handler);
    let redis = RedisOptions { url: lab.server().url(), ..RedisOptions::default() };
    let times = lab.profile;
    let options = Options { lease: times.lease, renew: times.renew, sweep: times.sweep, ..Options::default() };
    let running = tokio::spawn(Worker::new(redis, registry, options).expect("a worker").run(shutdown.clone()));
    let client = Client::connect(ClientOptions::at(lab.server().url())).await.expect("a client");
    let longest = ["é".repeat(127), "\0".repeat(255)];
    for data in DATA.iter().copied().chain(longest.iter().map(String::as_str)) {
        let task = look().tenant(data).key(data).order_key(data);
        let (id, queue) = (task.id.to_string(), task.queue.to_string());
        let receipt = client.submit(task).await.expect("it is taken in");
        let Waited::Ended(end) = receipt.wait(PATIENCE).await.expect("an answer") else { panic!("it has not ended") };
        assert!(end.is_success(), "{data:?}: {end:?}");
        let now = seen.lock().expect("no handler panics").pop().expect("it ran");
        let same = data.to_owned();
        assert_eq!(now, (id, queue, same.clone(), Some(same.clone()), Some(same)));
    }
    let long = "x".repeat(1 << 20);
    for task in
        [look().tenant(&*long), look().key(&*long), look().order_key(&*long), look().key(""), look().order_key("")]
    {
        let refused = client.submit(task).await.expect_err("it is refused");
        assert!(matches!(refused, tidemill_producer::Error::Invalid(_)), "{refused:?}");
    }
    shutdown.drain.cancel();
    running.await.expect("no panic").expect("it ends");
    lab.close_with_invariants().await;
}

fn look() -> NewTask {
    NewTask::new("look".parse().expect("a name"), "1")
}

/// Every pair of a tenant and a key is one of its own, however the two would read when they are put together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pairs_do_not_collide() {
    let lab = Lab::new().await;
    let tenants = ["", "a", "a:", ":", "1", "1:", "1:a", "a:b", "0", "0:", "11:", "a\0"];
    let keys = ["a", ":", "b", "c", "b:c", ":b", ":c", "1:a", "a:b:c", "0:a", "1:", "\0a", "a\0"];
    let task = |tenant: &str, key: &str| look().tenant(tenant).key(key);
    let first: Vec<NewTask> = tenants.iter().flat_map(|tenant| keys.iter().map(|key| task(tenant, key))).collect();
    let again: Vec<NewTask> = tenants.iter().flat_map(|tenant| keys.iter().map(|key| task(tenant, key))).collect();
    let answers = lab.store().submit(&first, 0).await.expect("an answer");
    for (answer, task) in answers.iter().zip(&first) {
        assert_eq!(answer, &Accepted::New(task.id.clone()), "{:?} {:?} is taken for another", task.tenant, task.key);
    }
    let answers = lab.store().submit(&again, 0).await.expect("an answer");
    for ((answer, task), of) in answers.iter().zip(&again).zip(&first) {
        assert_eq!(answer, &Accepted::Duplicate(of.id.clone()), "{:?} {:?} is known", task.tenant, task.key);
    }
    // Order keys are in a place of their own: none waits for another's head, and no name of a key is met.
    let keys = ["a", "a:b", "b", ":", "o:a", "a:o:b", "r", "run", "j:x", "default"];
    let ordered: Vec<NewTask> = keys.iter().map(|key| look().order_key(*key)).collect();
    lab.store().submit(&ordered, 0).await.expect("an answer");
    for task in &ordered {
        let state = lab.store().status(&task.id, None).await.expect("an answer").state;
        assert_eq!(state, Some(tidemill_common::state::State::Queued), "{:?} is the head of its own", task.order_key);
    }
    lab.accepted(first.iter().chain(&ordered).map(|task| task.id.clone()));
    lab.close_with_invariants().await;
}
