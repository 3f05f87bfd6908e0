//! The packages of `sdk/` under a real worker: their examples, and what only shows between the two.

#![allow(clippy::unwrap_used, reason = "a panic with its line is the report")]

mod support;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{Worker, end, server, submit, until};
use tidemill_common::state::State;
use tidemill_common::store::{Cancelled, Store};
use tidemill_embedded::Server;

/// `{"wait":true}` goes on until it is called off; anything else submits a follow-up. Both say which process they are.
const PYTHON: &str = r#"
import asyncio, os, subprocess
from tidemill import Task, serve

async def pages(task: Task) -> object:
    print("to the log", flush=True)
    subprocess.run(["echo", "to the log as well"], check=True)
    task.progress(f"in {os.getpid()}")
    if task.payload.get("wait"):
        await asyncio.sleep(600)
    task.submit("echo", {"from": task.id}, id="follow-up", key=task.key)
    return {"pid": os.getpid()}

serve(pages)
"#;

const NODE: &str = r#"
import { setTimeout as sleep } from "node:timers/promises";
import { serve } from "TIDEMILL";

await serve(async (task) => {
  console.log("to the log");
  task.progress(`in ${process.pid}`);
  if (task.payload.wait) await sleep(600_000, null, { signal: task.signal });
  task.submit("echo", { from: task.id }, { id: "follow-up", key: task.key });
  return { pid: process.pid };
});
"#;

fn sdk() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk").canonicalize().unwrap()
}

/// The Node.js that `cargo xtask` has found or fetched; with plain cargo the one on PATH.
fn node() -> String {
    let node = env::var("TIDEMILL_NODE").unwrap_or_else(|_| "node".to_owned());
    let runs = Command::new(&node).arg("--version").output().is_ok_and(|said| said.status.success());
    assert!(
        runs,
        "{node} does not run: install Node.js 18 or newer, name one in TIDEMILL_NODE, or use cargo xtask test"
    );
    node
}

fn python_agent(program: &Path) -> String {
    let path = sdk().join("python/src");
    format!("kind = \"process\"\ncommand = [\"python3\", {program:?}]\nenv = {{ PYTHONPATH = {path:?} }}\nslots = 2\n")
}

fn node_agent(program: &Path) -> String {
    format!("kind = \"process\"\ncommand = [{:?}, {program:?}]\nslots = 2\n", node())
}

async fn counts_words(agent: &str) {
    let (server, store) = server().await;
    let directory = tempfile::tempdir().unwrap();
    let config = format!("[agents.words]\n{agent}concurrency = 2\n");
    let _worker = Worker::start(&server, directory.path(), &config, &[]).await;
    let good = submit(&store, "words", r#"{"text":"to be or not to be"}"#).await;
    let bad = submit(&store, "words", "no JSON").await;
    assert_eq!(end(&store, &good).await.data, r#"{"words":6}"#);
    let status = end(&store, &bad).await;
    assert_eq!((status.state, status.error()), (Some(State::Dead), "the payload has no text"), "{status:?}");
}

/// What it gives out can be followed, in order, and is not its result.
async fn tells(agent: &str, task: &'static str) {
    let (server, store) = server().await;
    let directory = tempfile::tempdir().unwrap();
    let _worker = Worker::start(&server, directory.path(), &format!("[agents.tell]\n{agent}"), &[]).await;
    let id = submit(&store, "tell", task).await;
    let mut tail = store.tail(&id, None).await.unwrap();
    let mut told = Vec::new();
    until("all is told", async || {
        for piece in tail.next(std::time::Duration::from_millis(200)).await.unwrap() {
            told.extend_from_slice(&piece.data);
        }
        told.ends_with(b"not\n")
    })
    .await;
    assert_eq!(String::from_utf8(told).unwrap(), "to\nbe\nor\nnot\n");
    assert_eq!(end(&store, &id).await.data, r#"{"words":4}"#);
}

/// A run is called off and its child, which has another, goes on.
async fn stops_one_and_goes_on(server: &Server, store: &Store, directory: &Path, agent: &str) {
    let config = format!("[agents.pages]\n{agent}concurrency = 2\n[agents.echo]\nkind = \"echo\"\n");
    let _worker = Worker::start(server, directory, &config, &[]).await;
    let first = submit(store, "pages", r#"{"wait":true}"#).await;
    let other = submit(store, "pages", r#"{"wait":true}"#).await;
    let mut progress = [String::new(), String::new()];
    until("both have begun", async || {
        for (of, text) in [&first, &other].into_iter().zip(&mut progress) {
            *text = store.status(of, None).await.unwrap().progress;
        }
        progress.iter().all(|text| text.starts_with("in "))
    })
    .await;
    assert_eq!(progress[0], progress[1], "both are with one child");
    let child: u32 = progress[0].trim_start_matches("in ").parse().unwrap();

    assert_eq!(store.cancel(&first).await.unwrap(), Cancelled::Signalled);
    assert_eq!(end(store, &first).await.state, Some(State::Cancelled));
    let next = submit(store, "pages", "{}").await;
    let status = end(store, &next).await;
    assert_eq!((status.state, status.data), (Some(State::Succeeded), format!(r#"{{"pid":{child}}}"#).into()));
    let follow_up = "follow-up".parse().unwrap();
    let status = end(store, &follow_up).await;
    assert_eq!((status.state, status.data), (Some(State::Succeeded), format!(r#"{{"from":"{next}"}}"#).into()));
    assert_eq!(store.status(&other, None).await.unwrap().state, Some(State::Running), "it was not touched");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_example_counts_words() {
    counts_words(&python_agent(&sdk().join("python/examples/words.py"))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_example_counts_words() {
    counts_words(&node_agent(&sdk().join("node/examples/words.mjs"))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_example_gives_out_words() {
    let agent = python_agent(&sdk().join("python/examples/tell.py"));
    tells(&agent, r#"{"text":"to be or not","pause":0.1}"#).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_example_gives_out_words() {
    let agent = node_agent(&sdk().join("node/examples/tell.mjs"));
    tells(&agent, r#"{"text":"to be or not","pause":100}"#).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_python_child_stops_a_run_that_is_called_off_and_goes_on() {
    let (server, store) = server().await;
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("pages.py");
    fs::write(&program, PYTHON).unwrap();
    stops_one_and_goes_on(&server, &store, directory.path(), &python_agent(&program)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_child_stops_a_run_that_is_called_off_and_goes_on() {
    let (server, store) = server().await;
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("pages.mjs");
    fs::write(&program, NODE.replace("TIDEMILL", sdk().join("node/src/index.js").to_str().unwrap())).unwrap();
    stops_one_and_goes_on(&server, &store, directory.path(), &node_agent(&program)).await;
}
