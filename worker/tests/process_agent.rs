//! Process agents, whole: a server, the program `worker`, and children in Python.

#![allow(clippy::unwrap_used, reason = "a panic with its line is the report")]

mod support;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use support::{Worker, end, file, runs, server, signal, submit, until};
use tidemill_common::name::TaskId;
use tidemill_common::state::State;
use tidemill_common::store::Store;

/// Answers with what it was given; `{"hold":true}` writes its process id into `held`, and on the first attempt never answers.
const CHILD: &str = r#"
import json, os, sys, time
def say(**words):
    sys.stdout.write(json.dumps(words) + "\n"); sys.stdout.flush()
assert "hello" in json.loads(sys.stdin.readline())
say(ready=True)
for line in iter(sys.stdin.readline, ""):
    said = json.loads(line)
    if "task" not in said: continue
    task = said["task"]
    payload = task.get("payload", {})
    if isinstance(payload, dict) and payload.get("hold"):
        with open("held", "w") as f: f.write(str(os.getpid()) + "\n")
        if task["attempt"] == 1 and task["losses"] == 0: time.sleep(600)
    if isinstance(payload, dict) and payload.get("env"):
        say(request=task["request"], done=[k for k in os.environ if k.startswith("TIDEMILL__")])
    elif "payload_base64" in task: say(request=task["request"], done_base64=task["payload_base64"])
    else: say(request=task["request"], done={"attempt": task["attempt"], "losses": task["losses"], "payload": payload})
"#;

const CONFIG: &str = r#"
[agents.words]
kind = "process"
command = ["python3", "words.py"]
concurrency = 1
timeout = "20s"
[agents.impatient]
kind = "process"
command = ["python3", "words.py"]
timeout = "700ms"
"#;

fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("words.py"), CHILD).unwrap();
    directory
}

async fn held(directory: &Path) -> u32 {
    file(&directory.join("held")).await.parse().unwrap()
}

/// The attempt and the losses that the run which succeeded was told.
async fn second_run(store: &Store, id: &TaskId) -> (u64, u64) {
    let status = end(store, id).await;
    assert_eq!(status.state, Some(State::Succeeded), "{status:?}");
    let result: serde_json::Value = serde_json::from_slice(&status.data).unwrap();
    (result["attempt"].as_u64().unwrap(), result["losses"].as_u64().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_killed_in_the_middle_of_a_task_fails_the_attempt_and_the_next_succeeds() {
    let (server, store) = server().await;
    let directory = directory();
    let _worker = Worker::start(&server, directory.path(), CONFIG, &[]).await;
    let id = submit(&store, "words", r#"{"hold":true}"#).await;
    signal(held(directory.path()).await, "KILL");
    assert_eq!(second_run(&store, &id).await, (2, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_dies_with_its_worker_and_another_worker_runs_the_task() {
    let (server, store) = server().await;
    let directory = directory();
    let worker = Worker::start(&server, directory.path(), CONFIG, &[]).await;
    let id = submit(&store, "words", r#"{"hold":true}"#).await;
    let child = held(directory.path()).await;
    assert!(runs(child));
    worker.signal("KILL");
    until("the child is gone", async || !runs(child)).await;
    let _another = Worker::start(&server, directory.path(), CONFIG, &[]).await;
    assert_eq!(second_run(&store, &id).await, (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_payload_is_one_line_and_runs_nothing() {
    let (server, store) = server().await;
    let directory = directory();
    let _worker = Worker::start(&server, directory.path(), CONFIG, &[]).await;
    for payload in [
        "; touch x",
        "$(touch x)",
        "a\n{\"cancel\":1}\nb",
        "{\n\"a\": \"; touch x\\n\"\r\n}",
        "\"\u{2028}\"",
        "\u{0}\u{1}",
    ] {
        let id = submit(&store, "words", payload.to_owned()).await;
        let status = end(&store, &id).await;
        assert_eq!(status.state, Some(State::Succeeded), "{payload:?}: {status:?}");
        match serde_json::from_str::<serde_json::Value>(payload) {
            Ok(json) => {
                let result: serde_json::Value = serde_json::from_slice(&status.data).unwrap();
                assert_eq!(result["payload"], json);
            }
            Err(_) => assert_eq!(status.data, payload.as_bytes(), "what is not JSON comes back byte for byte"),
        }
    }
    assert!(!directory.path().join("x").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_does_not_stop_in_time_is_ended_and_its_worker_goes_on() {
    let (server, store) = server().await;
    let directory = directory();
    let _worker = Worker::start(&server, directory.path(), CONFIG, &[]).await;
    let id = submit(&store, "impatient", r#"{"hold":true}"#).await;
    let child = held(directory.path()).await;
    let began = Instant::now();
    until("the child is gone", async || !runs(child)).await;
    assert!(began.elapsed() < Duration::from_millis(700 + 500 + 1_000), "{:?}", began.elapsed());
    assert_eq!(second_run(&store, &id).await, (2, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn children_see_no_secrets_of_the_worker() {
    let (server, store) = server().await;
    let directory = directory();
    let _worker = Worker::start(&server, directory.path(), CONFIG, &[]).await;
    let id = submit(&store, "words", r#"{"env":true}"#).await;
    assert_eq!(end(&store, &id).await.data, "[]", "TIDEMILL__REDIS__URL is in the worker's environment");
}

/// A block of a language in the document, from 1.
fn block(language: &str, number: usize) -> String {
    let document = include_str!("../../docs/process-agents.md");
    document.split(&format!("```{language}\n")).nth(number).unwrap().split("```").next().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_examples_of_the_document_work() {
    let (server, store) = server().await;
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("words.py"), block("python", 1)).unwrap();
    fs::write(directory.path().join("count.py"), block("python", 2)).unwrap();
    let config = block("toml", 1) + &block("toml", 2);
    let _worker = Worker::start(&server, directory.path(), &config, &[]).await;
    for (agent, good, result) in
        [("words", r#"{"text":"to be or not to be"}"#, r#"{"words": 6}"#), ("count", "to be or not to be", "6")]
    {
        let id = submit(&store, agent, good).await;
        assert_eq!(end(&store, &id).await.data, result);
    }
    for (agent, bad, error) in
        [("words", "no JSON", "the payload has no text"), ("count", " ", "exit code 65: the payload has no text")]
    {
        let id = submit(&store, agent, bad).await;
        let status = end(&store, &id).await;
        assert_eq!((status.state, status.error()), (Some(State::Dead), error), "{status:?}");
    }
}

/// A process a task: on the first delivery it writes its number into `held` and never ends.
const ONCE: &str = r#"
import os, sys, time
if not os.path.exists("held"):
    with open("held", "w") as f: f.write(str(os.getpid()) + "\n")
    time.sleep(600)
secrets = [k for k in os.environ if k.startswith("TIDEMILL__")]
print(sys.stdin.read(), os.environ["TIDEMILL_ATTEMPT"], secrets, end="")
"#;

const ONCE_CONFIG: &str = r#"
[agents.once]
kind = "process"
mode = "once"
command = ["python3", "once.py"]
timeout = "20s"
"#;

#[tokio::test(flavor = "multi_thread")]
async fn the_process_of_a_task_dies_with_its_worker_and_another_worker_runs_the_task() {
    let (server, store) = server().await;
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("once.py"), ONCE).unwrap();
    let worker = Worker::start(&server, directory.path(), ONCE_CONFIG, &[]).await;
    let id = submit(&store, "once", "payload").await;
    let child = held(directory.path()).await;
    worker.signal("KILL");
    until("the kernel has killed the child", async || !runs(child)).await;
    let _second = Worker::start(&server, directory.path(), ONCE_CONFIG, &[]).await;
    assert_eq!(end(&store, &id).await.data, "payload 1 []");
}
