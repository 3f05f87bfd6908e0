//! `docs/writing-a-handler.md`, side by side: the same agent in three ways, under one worker, answers the same.

#![allow(clippy::unwrap_used, reason = "a panic with its line is the report")]

mod support;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use support::{Worker, end, server, submit, until};
use tidemill_common::state::State;

/// The blocks of a language below "Side by side".
fn blocks(language: &str) -> Vec<String> {
    let page = include_str!("../../docs/writing-a-handler.md").split("## Side by side").nth(1).unwrap();
    let fence = format!("```{language}\n");
    page.split(&fence).skip(1).map(|rest| rest.split("```\n").next().unwrap().to_owned()).collect()
}

/// The service; killed when dropped.
struct Service(Child, String);

impl Service {
    fn start(program: &Path) -> Self {
        let mut command = Command::new("python3");
        command.arg(program).arg("0").stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self(child, line.trim().strip_prefix("on port ").unwrap().to_owned())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_agent_answers_the_same_in_each_way() {
    let (server, store) = server().await;
    let directory = tempfile::tempdir().unwrap();
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk").canonicalize().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let python = blocks("python");
    file("words.py", &python[0]);
    let service = Service::start(&file("service.py", &python[1]));
    let package = format!("{:?}", sdk.join("node/src/index.js"));
    file("words.mjs", &blocks("js")[0].replace("\"tidemill\"", &package));
    let node = std::env::var("TIDEMILL_NODE").unwrap_or_else(|_| "node".to_owned());
    let config = blocks("toml")[0].replace("8080", &service.1).replace("\"node\"", &format!("{node:?}"));
    let path = format!("\nenv = {{ PYTHONPATH = {:?} }}\n", sdk.join("python/src"));
    let config = config.replace("\n\n[agents.node]", &format!("{path}\n[agents.node]"));
    let _worker = Worker::start(&server, directory.path(), &config, &[]).await;

    for agent in ["python", "node", "http"] {
        let good = submit(&store, agent, r#""to be or not to be""#).await;
        assert_eq!(end(&store, &good).await.data, r#""6 in attempt 1""#, "{agent}");
        for payload in ["no JSON", "7"] {
            let status = end(&store, &submit(&store, agent, payload).await).await;
            assert_eq!(status.state, Some(State::Dead), "{agent}: {status:?}");
            assert!(status.error().contains("the payload has no text"), "{agent}: {status:?}");
        }
        let empty = submit(&store, agent, r#""""#).await;
        until("it is put off, and no attempt", async || {
            let status = store.status(&empty, None).await.unwrap();
            status.error().contains("nothing yet") && status.state == Some(State::Scheduled) && status.attempt == 0
        })
        .await;
    }
}
