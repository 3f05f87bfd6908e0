//! The program `worker` as a person or a process manager meets it.

#![allow(clippy::unwrap_used, reason = "a panic with its line is the report")]

mod support;

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use support::{Worker, end, ended, output, program, runs, server, signal, submit, text, until};
use tidemill_common::state::State;
use tidemill_common::store::{RedisOptions, Store};

#[test]
fn a_configuration_with_five_mistakes_names_all_five() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("worker.toml");
    fs::write(
        &file,
        "[redis]\nurll = \"x\"\n[worker]\ngrace = \"soon\"\nlease = \"1s\"\n[agents.words]\nkind = \"process\"\n",
    )
    .unwrap();
    let mut command = program(directory.path());
    let out = output(command.args(["run", "--concurrency=many", "--config"]).arg(&file));
    assert_eq!(out.status.code(), Some(2));
    let said = text(&out.stderr);
    for part in [
        "redis.urll: unknown key; did you mean `url`?",
        "worker.grace: \"soon\" is no duration",
        "worker.concurrency: \"many\" is no whole number (flag --concurrency)",
        "worker.renew is 2.5s",
        "agents.words.command: is missing",
    ] {
        assert!(said.contains(part), "{part} is missing in:\n{said}");
    }
}

#[test]
fn the_configuration_is_shown_with_origins_and_without_secrets() {
    let directory = tempfile::tempdir().unwrap();
    let secret = directory.path().join("url");
    fs::write(&secret, "redis://me:hush@db:6379\n").unwrap();
    let mut command = program(directory.path());
    command.args(["config", "show", "--origins", "--name=w1"]).env("TIDEMILL__REDIS__URL_FILE", &secret);
    let out = output(&mut command);
    let said = text(&out.stdout);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(
        said.contains("redis.url = \"redis://db:6379\"") && said.contains("# env TIDEMILL__REDIS__URL_FILE"),
        "{said}"
    );
    assert!(said.contains("worker.name = \"w1\"") && said.contains("# flag --name"), "{said}");
    assert!(!said.contains("hush"), "{said}");
    let defaults = output(program(directory.path()).args(["config", "defaults"]));
    assert!(text(&defaults.stdout).parse::<toml::Table>().is_ok());
}

#[test]
fn help_and_wrong_usage() {
    let directory = tempfile::tempdir().unwrap();
    let help = text(&output(program(directory.path()).args(["run", "--help"])).stdout);
    for part in ["Examples:", "Exit codes:", "TIDEMILL__WORKER__CONCURRENCY", "TIDEMILL_LOG", "--profile"] {
        assert!(help.contains(part), "{part} is missing in:\n{help}");
    }
    let wrong = output(program(directory.path()).args(["run", "--concurency", "3"]));
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("--concurrency"), "{}", text(&wrong.stderr));
    let nobody = output(program(directory.path()).args(["health", "--url", "http://127.0.0.1:1"]));
    assert_eq!(nobody.status.code(), Some(1));
}

#[test]
fn an_unreachable_redis_is_exit_7_in_bounded_time() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = program(directory.path());
    command
        .args(["run", "--redis", "redis://:hush@127.0.0.1:1", "--admin=off"])
        .env("TIDEMILL__WORKER__CONNECT_WITHIN", "1s");
    let began = Instant::now();
    let out = output(&mut command);
    assert_eq!(out.status.code(), Some(7));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let said = text(&out.stderr);
    assert_eq!(said.lines().filter(|l| !l.starts_with('{')).count(), 3, "{said}");
    assert!(said.contains("redis://127.0.0.1:1") && said.contains("refused") && !said.contains("hush"), "{said}");
    let wrong = output(program(directory.path()).args(["run", "--redis", "db:6379"]));
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_serves_its_admin_pages_and_drains() {
    let (server, store) = server().await;
    let directory = tempfile::tempdir().unwrap();
    let mut worker = Worker::start(&server, directory.path(), "", &["--agents=echo,sleep"]).await;
    let id = submit(&store, "echo", "hi").await;
    assert_eq!(end(&store, &id).await.data, "hi");
    let long = submit(&store, "sleep", r#"{"ms":1500}"#).await;
    until("it runs", async || store.status(&long, None).await.unwrap().state == Some(State::Running)).await;

    assert!(worker.get("/livez").unwrap().contains(" 200 "));
    let metrics = worker.get("/metrics").unwrap();
    assert!(metrics.contains("text/plain; version=0.0.4"), "{metrics}");
    assert!(metrics.contains("tidemill_task_attempts_total{agent=\"echo\",outcome=\"done\"} 1"), "{metrics}");
    assert!(metrics.contains("tidemill_workers 1"), "{metrics}");
    let scale = worker.get("/v1/scale").unwrap();
    assert!(scale.contains("\"running\":1") && scale.contains("\"waiting\":0"), "{scale}");
    assert!(worker.get("/nowhere").unwrap().contains(" 404 "));
    let healthy = output(program(directory.path()).args(["health", "--url", &worker.admin]));
    assert!(healthy.status.success(), "{}", text(&healthy.stderr));

    worker.signal("TERM");
    until("it says that it is not ready", async || worker.get("/readyz").is_none_or(|answer| answer.contains(" 503 ")))
        .await;
    assert_eq!(worker.ended().await.code(), Some(0));
    assert_eq!(end(&store, &long).await.state, Some(State::Succeeded), "what ran has ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_end_within_the_grace_is_handed_back_and_the_exit_code_says_so() {
    let (server, store) = server().await;
    let directory = tempfile::tempdir().unwrap();
    let mut worker = Worker::start(&server, directory.path(), "", &["--grace=300ms"]).await;
    let id = submit(&store, "sleep", r#"{"ms":60000}"#).await;
    until("it runs", async || store.status(&id, None).await.unwrap().state == Some(State::Running)).await;
    worker.signal("TERM");
    assert_eq!(worker.ended().await.code(), Some(75));
    let status = store.status(&id, None).await.unwrap();
    assert_eq!((status.state, status.losses), (Some(State::Queued), 0), "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_forces() {
    let (server, store) = server().await;
    let directory = tempfile::tempdir().unwrap();
    let mut worker = Worker::start(&server, directory.path(), "", &[]).await;
    let id = submit(&store, "sleep", r#"{"ms":60000}"#).await;
    until("it runs", async || store.status(&id, None).await.unwrap().state == Some(State::Running)).await;
    worker.signal("INT");
    until("it drains", async || worker.get("/readyz").is_none_or(|answer| answer.contains(" 503 "))).await;
    worker.signal("INT");
    assert_eq!(worker.ended().await.code(), Some(130));
}

/// A running `worker dev`; killed when dropped, and its children with it.
struct Dev(std::process::Child, std::path::PathBuf);

impl Drop for Dev {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The directory goes with the test: what it knows of the failure must be told now.
            for file in ["log", "home/dev/server.log"] {
                eprintln!("--- {file}\n{}", fs::read_to_string(self.1.join(file)).unwrap_or_default());
            }
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The pid of the worker that the dev command's banner names last.
fn named(out: &str) -> Option<u32> {
    out.lines().rev().find_map(|l| l.split(", process ").nth(1)?.split(',').next()?.parse().ok())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dev_command_keeps_a_server_and_a_worker_and_ends_with_both() {
    let directory = tempfile::tempdir().unwrap();
    let (out, log) = (directory.path().join("out"), directory.path().join("log"));
    let mut command = program(directory.path());
    command.args(["dev", "--admin=127.0.0.1:0", "--profile=fast"]);
    command.stdout(fs::File::create(&out).unwrap()).stderr(fs::File::create(&log).unwrap()).stdin(Stdio::null());
    let mut dev = Dev(command.spawn().unwrap(), directory.path().to_owned());
    until("the banner is there", async || fs::read_to_string(&out).unwrap().contains("  stop ")).await;
    let banner = fs::read_to_string(&out).unwrap();
    assert!(banner.contains("producer submit echo --payload '{\"hi\":\"there\"}' --wait"), "{banner}");

    // What other terminals find.
    let url_file = directory.path().join("home/dev/redis.url");
    let url = fs::read_to_string(&url_file).unwrap().trim().to_owned();
    let shown = text(&output(program(directory.path()).args(["config", "show", "--origins"])).stdout);
    assert!(shown.contains(&url) && shown.contains("# file "), "{shown}");
    let store = Store::connect(&RedisOptions { url, ..RedisOptions::default() }).await.unwrap();
    let id = submit(&store, "echo", "hi").await;
    assert_eq!(end(&store, &id).await.data, "hi");

    // The worker is killed in the middle of a task: it comes back, and so does the task.
    let long = submit(&store, "sleep", r#"{"ms":1000}"#).await;
    until("it runs", async || store.status(&long, None).await.unwrap().state == Some(State::Running)).await;
    let (worker, before) = (named(&banner).unwrap(), store.status(&long, None).await.unwrap());
    signal(worker, "KILL");
    let status = end(&store, &long).await;
    assert_eq!(status.state, Some(State::Succeeded), "{status:?}");
    assert!(status.fence > before.fence, "another delivery: {before:?} {status:?}");

    let second = output(program(directory.path()).args(["dev", "--admin=127.0.0.1:0"]));
    assert_eq!(second.status.code(), Some(1));
    assert!(text(&second.stderr).contains("is in use by another server"), "{}", text(&second.stderr));

    let server: u32 = fs::read_to_string(directory.path().join("home/dev/tidemill.lock"))
        .unwrap()
        .lines()
        .next()
        .unwrap()
        .parse()
        .unwrap();
    signal(dev.0.id(), "INT");
    assert_eq!(ended(&mut dev.0).await.code(), Some(0), "{}", fs::read_to_string(&log).unwrap());
    assert!(!runs(server) && !runs(worker) && !url_file.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_dev_command_leaves_nothing_running() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let mut command = program(directory.path());
    command.args(["dev", "--admin=127.0.0.1:0"]).stdout(fs::File::create(&out).unwrap()).stderr(Stdio::null());
    let mut dev = Dev(command.spawn().unwrap(), directory.path().to_owned());
    until("the banner is there", async || fs::read_to_string(&out).unwrap().contains("  stop ")).await;
    let worker = named(&fs::read_to_string(&out).unwrap()).unwrap();
    let lock = fs::read_to_string(directory.path().join("home/dev/tidemill.lock")).unwrap();
    let server: u32 = lock.lines().next().unwrap().parse().unwrap();
    assert!(runs(worker) && runs(server));
    dev.0.kill().unwrap();
    dev.0.wait().unwrap();
    until("the worker is gone", async || !runs(worker)).await;
    until("the server is gone", async || !runs(server)).await;
}
