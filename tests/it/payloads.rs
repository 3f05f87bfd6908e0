//! Payloads through whole producers and workers: what lies in Redis and in the store, what handlers and waiting clients get, and what
//! becomes of tasks whose payload cannot be had.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::json;
use tempfile::TempDir;
use tidemill_common::envelope;
use tidemill_common::frame;
use tidemill_common::state::State;
use tidemill_common::store::{RedisOptions, Store};
use tidemill_common::task::{Mode, NewTask, Task};
use tidemill_payloads::{KEY_BYTES, KeyRing, Payloads, XChaCha20, Zstd};
use tidemill_producer::{Client, Deed, Done, Ended, Error, Options, TaskId, Waited};
use tidemill_tests::program::Program;
use tidemill_tests::server::{self, Server};
use tidemill_worker::{Context, Outcome, Registry, Shutdown, Worker};
use tokio::task::JoinHandle;

const PATIENCE: Duration = Duration::from_secs(30);
/// 32 bytes in base64, twice.
const KEYS: [&str; 2] =
    ["AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "HwECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="];

struct Lab {
    server: Server,
    store: Store,
    objects: TempDir,
}

impl Lab {
    async fn new() -> Self {
        let server = server::start();
        let store = Store::connect(&redis(&server)).await.unwrap();
        Self { server, store, objects: tempfile::tempdir().unwrap() }
    }

    async fn client(&self, payloads: Payloads) -> Client {
        let options = Options { payloads: Some(Arc::new(payloads)), ..Options::at(self.server.url()) };
        Client::connect(options).await.unwrap()
    }

    fn worker(&self, payloads: Payloads) -> Running {
        let agents = Registry::new().with("shout".parse().unwrap(), shout);
        let options = tidemill_worker::Options { name: "w".into(), ..Default::default() };
        let worker = Worker::new(redis(&self.server), agents, options).unwrap().with_payloads(Arc::new(payloads));
        let shutdown = Shutdown::new();
        Running { run: tokio::spawn(worker.run(shutdown.clone())), shutdown }
    }

    /// With a directory of objects, for what is larger than 100 bytes.
    fn referring(&self, payloads: Payloads) -> Payloads {
        let store = tidemill_payloads::Store::directory("main", self.objects.path()).unwrap();
        payloads.put_above(100, store)
    }

    fn object(&self, task: &Task) -> PathBuf {
        let at = task.meta.at.as_ref().unwrap();
        self.objects.path().join(&at.sha256[..2]).join(&at.sha256)
    }

    /// As it lies in Redis.
    async fn stored(&self, id: &TaskId) -> (Bytes, Task) {
        let envelope = self.store.envelope(id).await.unwrap().unwrap();
        let task = envelope::open(id.clone(), &envelope).unwrap();
        (envelope, task)
    }

    async fn until(&self, id: &TaskId, state: State) -> String {
        let began = Instant::now();
        loop {
            let status = self.store.status(id, None).await.unwrap();
            if status.state == Some(state) {
                let said = String::from_utf8_lossy(&status.data).into_owned();
                assert!(state != State::Scheduled || status.attempt == 0, "it does not count: {status:?}");
                return if said.is_empty() { status.error().to_owned() } else { said };
            }
            assert!(began.elapsed() < PATIENCE, "{id} is not {state}: {status:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn redis(server: &Server) -> RedisOptions {
    RedisOptions { url: server.url(), ..RedisOptions::default() }
}

struct Running {
    shutdown: Shutdown,
    run: JoinHandle<Result<tidemill_worker::Exit, tidemill_worker::Error>>,
}

impl Running {
    async fn drain(self) {
        self.shutdown.drain.cancel();
        tokio::time::timeout(PATIENCE, self.run).await.expect("it drains").unwrap().unwrap();
    }
}

/// Says its payload loudly, and leaves it to another task, an hour from now.
async fn shout(context: Context) -> Outcome {
    let text = String::from_utf8_lossy(context.payload()).into_owned();
    if text.contains("follow") {
        let later = NewTask::new("shout".parse().unwrap(), text.clone()).delay(Duration::from_secs(3_600));
        if let Err(error) = context.submit(later.key("later")) {
            return Outcome::dead(error.to_string());
        }
    }
    Outcome::done(text.to_uppercase())
}

fn ring(names: &[&str]) -> KeyRing {
    names.iter().fold(KeyRing::new(), |ring, name| ring.with(name, [name.as_bytes()[0]; KEY_BYTES]).unwrap())
}

fn secret(names: &[&str], active: &str) -> Payloads {
    Payloads::new()
        .encode(Arc::new(Zstd::default()))
        .encode(Arc::new(XChaCha20::new(ring(names), active)))
        .fingerprint([9; KEY_BYTES])
        .results(true)
}

fn task(payload: &str) -> NewTask {
    NewTask::new("shout".parse().unwrap(), payload.to_owned())
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

async fn ended(client: &Client, id: &TaskId) -> Ended {
    match client.wait(id, PATIENCE).await.unwrap() {
        Waited::Ended(ended) => ended,
        other => panic!("{id}: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prompts_answers_and_follow_ups_are_ciphertext_in_redis() {
    let lab = Lab::new().await;
    let client = lab.client(secret(&["old"], "old")).await;
    let receipt = client.submit(task("a secret to follow").key("k")).await.unwrap();
    let (raw, stored) = lab.stored(receipt.id()).await;
    assert_eq!(stored.meta.codec, ["xchacha20poly1305:old"]);
    assert!(!holds(&raw, "secret"));
    assert_eq!(client.task(receipt.id()).await.unwrap().unwrap().payload, "a secret to follow");

    let worker = lab.worker(secret(&["old"], "old"));
    assert_eq!(ended(&client, receipt.id()).await.result, "A SECRET TO FOLLOW");
    assert_eq!(client.status(receipt.id()).await.unwrap().data, "A SECRET TO FOLLOW");
    let kept = lab.store.status(receipt.id(), None).await.unwrap().data;
    assert!(kept.starts_with(frame::MAGIC) && !holds(&kept, "SECRET"), "{kept:?}");

    // One that lies apart in Redis, since nothing makes it small.
    let large: String = (0..1_000).map(|_| format!("{:032x}", rand::random::<u128>())).collect();
    let apart = client.submit(task(&large)).await.unwrap();
    assert_eq!(ended(&client, apart.id()).await.result, large.to_uppercase());

    // Another under the same key as the follow-up's is told apart, or not, by what it was before it was encrypted.
    let again = client.submit(task("a secret to follow").key("later")).await.unwrap();
    assert!(again.is_duplicate());
    assert_eq!(lab.stored(again.id()).await.1.meta.codec, ["xchacha20poly1305:old"], "the follow-up's");
    assert_eq!(client.task(again.id()).await.unwrap().unwrap().payload, "a secret to follow");
    assert!(matches!(client.submit(task("another").key("later")).await, Err(Error::Conflict { .. })));

    // Who has no keys is told which one is missing, and sees the rest.
    let stranger = lab.client(Payloads::new()).await;
    for refused in [stranger.wait(receipt.id(), PATIENCE).await.err(), stranger.status(receipt.id()).await.err()] {
        let Some(Error::Payload { source, .. }) = refused else { panic!("{refused:?}") };
        assert!(source.to_string().contains(r#"no key named "old""#), "{source}");
    }
    assert_eq!(stranger.status_encoded(receipt.id()).await.unwrap().state, Some(State::Succeeded));
    assert!(matches!(stranger.task(again.id()).await, Err(Error::Payload { .. })));
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_changed_while_tasks_wait() {
    let lab = Lab::new().await;
    let before = lab.client(secret(&["a-old"], "a-old")).await;
    let old = before.submit(task("one").key("k")).await.unwrap();
    let worker = lab.worker(secret(&["b-new"], "b-new"));
    // A worker without the key spoils nothing: the task waits, says why, and no attempt is counted.
    let said = lab.until(old.id(), State::Scheduled).await;
    assert!(said.contains(r#"no key named "a-old" is here"#), "{said}");
    let client = lab.client(secret(&["a-old", "b-new"], "b-new")).await;
    assert!(client.submit(task("one").key("k")).await.unwrap().is_duplicate(), "of another key, and no conflict");
    let new = client.submit(task("two")).await.unwrap();
    assert_eq!(ended(&client, new.id()).await.result, "TWO");
    worker.drain().await;
    let worker = lab.worker(secret(&["a-old", "b-new"], "b-new"));
    assert_eq!(client.to_each(&[old.id().clone()], &Deed::RunNow).await.unwrap(), [Done::Done]);
    assert_eq!(ended(&client, old.id()).await.result, "ONE");
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_payloads_lie_in_a_directory_and_are_checked() {
    let lab = Lab::new().await;
    let client = lab.client(lab.referring(Payloads::new())).await;
    let large = |n: u8| format!("{{\"n\":{n},\"pad\":\"{}\"}}", "x".repeat(20_000));
    let mut receipts = Vec::new();
    for n in 0..4 {
        receipts.push(client.submit(task(&large(n % 3))).await.unwrap());
    }
    let mut stored = Vec::new();
    for receipt in &receipts {
        let (raw, task) = lab.stored(receipt.id()).await;
        assert!(raw.len() < 400 && task.payload.is_empty() && !task.payload_apart);
        stored.push(task);
    }
    assert_eq!(lab.object(&stored[0]), lab.object(&stored[3]), "equal ones share an object");
    fs::write(lab.object(&stored[1]), large(9)).unwrap();
    fs::remove_file(lab.object(&stored[2])).unwrap();
    let worker = lab.worker(lab.referring(Payloads::new()));
    for n in [0, 3] {
        assert_eq!(ended(&client, receipts[n].id()).await.result, large(0).to_uppercase());
    }
    for (n, what) in [(1, "it has another hash"), (2, "its payload is gone from store \"main\"")] {
        let dead = ended(&client, receipts[n].id()).await;
        assert!(
            dead.state == State::Dead && dead.error.starts_with("invalid: ") && dead.error.contains(what),
            "{dead:?}"
        );
    }
    // What was lost is put back: an equal payload brings the object, and the dead one is replayed.
    let again = client.submit(task(&large(2))).await.unwrap();
    let dead = receipts[2].id().clone();
    let replay = Deed::Replay { rate: None, patch: None };
    assert_eq!(client.to_each(std::slice::from_ref(&dead), &replay).await.unwrap(), [Done::Done]);
    for id in [again.id(), &dead] {
        assert_eq!(ended(&client, id).await.result, large(2).to_uppercase());
    }
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_task_is_replayed_with_another_payload_and_a_waiting_one_replaced() {
    let lab = Lab::new().await;
    let payloads = || lab.referring(secret(&["k"], "k"));
    let client = lab.client(payloads()).await;
    let long = "p".repeat(500) + &rand::random::<u128>().to_string();
    let dying = client.submit(task(&json!({ "text": long, "say": "old" }).to_string())).await.unwrap();
    let (_, stored) = lab.stored(dying.id()).await;
    let object = fs::read(lab.object(&stored)).unwrap();
    assert!(!holds(&object, "ppp"));
    fs::write(lab.object(&stored), "broken").unwrap();
    let worker = lab.worker(payloads());
    assert_eq!(ended(&client, dying.id()).await.state, State::Dead);
    let patch = Deed::Replay { rate: None, patch: Some(json!({ "say": "new" })) };
    let id = [dying.id().clone()];
    assert_eq!(client.to_each(&id, &patch).await.unwrap(), [Done::Unfit], "there is nothing to change");
    let keyless = lab.client(lab.referring(secret(&["z"], "z"))).await;
    fs::write(lab.object(&stored), object).unwrap();
    assert!(matches!(keyless.to_each(&id, &patch).await, Err(Error::Payload { .. })), "another client may do it");
    assert_eq!(client.to_each(&id, &patch).await.unwrap(), [Done::Done]);
    assert_eq!(
        ended(&client, dying.id()).await.result,
        json!({ "text": long, "say": "new" }).to_string().to_uppercase()
    );

    let moded = |text: &str, delay| {
        let delay = Duration::from_secs(delay);
        NewTask { mode: Mode::Replace, ..task(text).key("latest").delay(delay) }
    };
    let first = client.submit(moded("first", 3_600)).await.unwrap();
    let second = client.submit(moded("second", 0)).await.unwrap();
    assert_eq!(first.id(), second.id());
    assert_eq!(ended(&client, first.id()).await.result, "SECOND");
    worker.drain().await;
}

/// A folder of keys, and the variables of a configuration that uses it.
fn configured(folder: &Path, url: &str) -> Vec<(String, String)> {
    let keys = folder.join("keys");
    fs::create_dir_all(&keys).unwrap();
    fs::create_dir_all(folder.join("objects")).unwrap();
    fs::write(keys.join("2026-11"), KEYS[0]).unwrap();
    fs::write(keys.join("fingerprint"), KEYS[1]).unwrap();
    let store = format!("file://{}", folder.join("objects").display());
    let set = [
        ("REDIS__URL", url),
        ("PAYLOADS__COMPRESS", "zstd"),
        ("PAYLOADS__ENCRYPT", "xchacha20poly1305"),
        ("PAYLOADS__KEYS", keys.to_str().unwrap()),
        ("PAYLOADS__ACTIVE_KEY", "2026-11"),
        ("PAYLOADS__FINGERPRINT_KEY", "fingerprint"),
        ("PAYLOADS__STORE", &store),
        ("PAYLOADS__ABOVE_BYTES", "0"),
    ];
    set.iter().map(|(key, value)| (format!("TIDEMILL__{key}"), (*value).to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_programs_do_it_by_their_configuration() {
    let lab = Lab::new().await;
    let folder = tempfile::tempdir().unwrap();
    let mut set = configured(folder.path(), &lab.server.url());
    set.push(("TIDEMILL__ADMIN__LISTEN".to_owned(), "off".to_owned()));
    let env: Vec<(&str, &str)> = set.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let producer = async |args: &[&str]| Program::run("producer", args, &env[..env.len() - 1]).await;
    let said = producer(&["submit", "echo", r#"{"a":"secret"}"#, "--output", "ndjson"]).await;
    let id: TaskId =
        serde_json::from_str::<serde_json::Value>(&said.out).unwrap()["id"].as_str().unwrap().parse().unwrap();
    let shown = producer(&["status", "--payload", "--output", "ndjson", id.as_str()]).await;
    assert!(shown.out.contains(r#""payload":{"a":"secret"}"#), "{shown:?}");
    let stranger = [("TIDEMILL__REDIS__URL", env[0].1)];
    let unread = Program::run("producer", &["status", "--payload", "--output", "ndjson", id.as_str()], &stranger).await;
    assert!(unread.out.contains(r#"no store named \"main\""#) && unread.code == Some(0), "{unread:?}");
    assert!(!holds(&lab.stored(&id).await.0, "secret"));

    let _worker = Program::start("worker", &["run"], &env);
    let waited = producer(&["wait", "--output", "ndjson", "--timeout", "30s", id.as_str()]).await;
    assert!(waited.out.contains(r#""result":{"a":"secret"}"#) && waited.code == Some(0), "{waited:?}");
    let refused = Program::run("producer", &["wait", "--output", "ndjson", id.as_str()], &stranger).await;
    assert!(refused.code == Some(1) && refused.err.contains("no key named \"2026-11\""), "{refused:?}");
    let status = Program::run("producer", &["status", "--output", "ndjson", id.as_str()], &stranger).await;
    assert!(status.code == Some(0) && status.out.contains(r#""result_error":"#), "{status:?}");
}
