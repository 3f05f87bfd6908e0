//! HTTP agents, whole: a server, the program `worker`, and the example service of the document.

#![allow(clippy::unwrap_used, reason = "a panic with its line is the report")]

mod support;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use support::{Worker, end, output, program, server, submit, text};
use tidemill_common::state::State;

/// The first block of a language in the document.
fn block(language: &str) -> String {
    let document = include_str!("../../docs/http-agents.md");
    document.split(&format!("```{language}\n")).nth(1).unwrap().split("```").next().unwrap().to_owned()
}

/// The example service; killed when dropped.
struct Service {
    child: Child,
    port: String,
}

impl Service {
    fn start(directory: &Path) -> Self {
        let file = directory.join("service.py");
        fs::write(&file, block("python")).unwrap();
        let mut command = Command::new("python3");
        command.arg(file).arg("0").stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, port: line.trim().strip_prefix("on port ").unwrap().to_owned() }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_of_the_document_works() {
    let (server, store) = server().await;
    let directory = tempfile::tempdir().unwrap();
    let service = Service::start(directory.path());
    let config = block("toml").replace("8080", &service.port);
    let _worker = Worker::start(&server, directory.path(), &config, &[]).await;
    let good = submit(&store, "words", r#"{"text":"to be or not to be"}"#).await;
    assert_eq!(end(&store, &good).await.data, r#"{"words": 6}"#);
    let bad = submit(&store, "words", "no JSON").await;
    let status = end(&store, &bad).await;
    let error = r#"HTTP 422 Unprocessable Entity: "the payload has no text""#;
    assert_eq!((status.state, status.error()), (Some(State::Dead), error), "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_could_not_be_called_keeps_the_worker_from_starting() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("worker.toml");
    fs::write(&file, block("toml").replace("allow_private", "# ")).unwrap();
    let ended = output(program(directory.path()).args(["run", "--config"]).arg(&file));
    let said = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(2), "{said}");
    assert!(said.contains("agents.words.url: refused: 127.0.0.1 is a loopback address"), "{said}");
}
