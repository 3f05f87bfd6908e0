//! What a worker shows to others: its admin pages and its logs. Cases O-01, O-02, X-01 and X-04 of the list of real failures.

#![allow(clippy::unwrap_used, reason = "a panic with its line is the report")]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use support::{Worker, program, server, text, until};
use tidemill_common::task::NewTask;
use tidemill_embedded::{Options as ServerOptions, Server, Tcp};

const AGENTS: &str = "[worker]\nconcurrency = 16\n";

/// Names and labels of all series; process metrics are not ours.
fn series(page: &str) -> BTreeSet<String> {
    let ours = page.lines().filter(|line| line.starts_with("tidemill_"));
    ours.filter_map(|line| line.rsplit_once(' ').map(|(name, _)| name.to_owned())).collect()
}

fn value(page: &str, series: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

/// The first in the suite, the second with `TIDEMILL_CASES=full`.
fn pick(scaled: usize, full: usize) -> usize {
    if std::env::var("TIDEMILL_CASES").is_ok_and(|form| form == "full") { full } else { scaled }
}

fn task(n: usize) -> NewTask {
    let payload = format!(r#"{{"kind":"dead","error":"text {} of \u001b[2J an error"}}"#, n % pick(2_800, 2_000));
    let agent = if n.is_multiple_of(2) { "fail".to_owned() } else { "echo".to_owned() };
    NewTask::new(agent.parse().unwrap(), payload).tenant(format!("tenant-{}", n % pick(500, 5_000))).max_attempts(1)
}

#[tokio::test(flavor = "multi_thread")]
async fn series_do_not_grow_with_tasks_tenants_and_errors() {
    let (server, store) = server().await;
    let directory = tempfile::tempdir().unwrap();
    let mut worker = Worker::start(&server, directory.path(), AGENTS, &[]).await;
    let run = async |from: usize, to: usize| {
        let tasks: Vec<NewTask> = (from..to).map(task).collect();
        store.submit(&tasks, 0).await.unwrap();
        until("all have ended", async || store.counts().await.unwrap().ended.values().sum::<u64>() >= to as u64).await;
    };
    run(0, 200).await;
    let before = series(&worker.get("/metrics").unwrap());
    // Agents that nobody has: they wait, and are of no label.
    let invented: Vec<NewTask> =
        (0..pick(200, 1_000)).map(|n| NewTask::new(format!("invented-{n}").parse().unwrap(), "1")).collect();
    store.submit(&invented, 0).await.unwrap();
    for from in (200..pick(3_000, 50_000)).step_by(2_000) {
        run(from, (from + 2_000).min(pick(3_000, 50_000))).await;
    }
    for _ in 0..pick(1, 500) {
        drop(worker);
        worker = Worker::start(&server, directory.path(), AGENTS, &[]).await;
    }
    // What only comes with work is there again.
    let all = pick(3_000, 50_000);
    run(all, all + 200).await;
    let page = worker.get("/metrics").unwrap();
    let after = series(&page);
    let new: Vec<_> =
        after.difference(&before).filter(|s| !s.contains("queue_oldest") && !s.contains("queue_tasks")).collect();
    assert!(new.is_empty(), "series that more tasks and lives have brought: {new:?}");
    assert!(after.len() < 600, "{} series", after.len());
    for told in ["tenant-", "invented", "of an error", "\u{1b}"] {
        assert!(!page.contains(told), "{told:?} is on the page");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn depth_is_true_with_nobody_at_work_and_the_dead_do_not_count() {
    let (server, store) = server().await;
    let directory = tempfile::tempdir().unwrap();
    let first = Worker::start(&server, directory.path(), AGENTS, &[]).await;
    let depth = r#"tidemill_queue_tasks{priority="normal",queue="default"}"#;
    // It takes nothing: it has no such agent.
    let tasks: Vec<NewTask> = (0..500).map(|_| NewTask::new("nobody".parse().unwrap(), "1")).collect();
    store.submit(&tasks, 0).await.unwrap();
    until("the depth is shown", async || value(&first.get("/metrics").unwrap(), depth) == Some(500.0)).await;
    let second = Worker::start(&server, directory.path(), AGENTS, &[]).await;
    until("two are seen", async || value(&second.get("/metrics").unwrap(), "tidemill_workers") == Some(2.0)).await;
    drop(first);
    until("the killed one is gone", async || value(&second.get("/metrics").unwrap(), "tidemill_workers") == Some(1.0))
        .await;
    assert_eq!(value(&second.get("/metrics").unwrap(), depth), Some(500.0));

    // Its scripts are refused: it consumes nothing, and says so, though the server answers a PING.
    let ready = async || second.get("/readyz").is_some_and(|page| page.contains(" 200 "));
    assert!(ready().await);
    server.command(&["ACL", "SETUSER", "default", "-evalsha", "-eval", "-blpop"]).unwrap();
    until("it is not ready", async || !ready().await).await;
    server.command(&["ACL", "SETUSER", "default", "+@all"]).unwrap();
    until("it is ready again", ready).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pages_change_nothing_and_are_for_no_other_origin() {
    let (server, store) = server().await;
    let directory = tempfile::tempdir().unwrap();
    let worker = Worker::start(&server, directory.path(), AGENTS, &[]).await;
    store.submit(&[NewTask::new("nobody".parse().unwrap(), r#"{"api_key":"sk-secret"}"#)], 0).await.unwrap();
    for path in ["/metrics", "/readyz", "/livez", "/v1/scale", "/v1/tasks", "/"] {
        let page = worker.get(path).unwrap();
        assert!(!page.to_lowercase().contains("access-control-allow-origin"), "{path}: {page}");
        assert!(!page.contains("sk-secret"), "{path} shows a payload");
    }
    let before = store.counts().await.unwrap();
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        for path in ["/metrics", "/v1/scale", "/livez"] {
            let answer = worker.request(&format!(
                "{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            ));
            assert!(answer.contains(" 405 "), "{method} {path}: {answer}");
        }
    }
    assert_eq!(store.counts().await.unwrap().waiting, before.waiting);
    // By default they are where only this machine reaches them.
    let defaults = text(&program(directory.path()).args(["config", "defaults"]).output().unwrap().stdout);
    assert!(defaults.contains("listen = \"127.0.0.1:9464\""), "{defaults}");
}

/// A password with everything that a URL has to escape.
const PASSWORD: &str = "p@s:s/w%rd";
const ENCODED: &str = "p%40s%3As%2Fw%25rd";

#[tokio::test(flavor = "multi_thread")]
async fn no_log_and_no_page_has_a_secret() {
    use base64::Engine as _;
    let server = Server::start(ServerOptions::new().tcp(Tcp::Free)).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let port = server.port().unwrap().to_string();
    let base64 = base64::engine::general_purpose::STANDARD.encode(PASSWORD);
    let mut all = String::new();
    server.command(&["ACL", "SETUSER", "default", "resetpass", &format!(">{PASSWORD}"), "on"]).unwrap();
    let url = |password: &str, host: &str| format!("redis://default:{password}@{host}");
    let good = url(ENCODED, &format!("127.0.0.1:{port}"));
    let wrong = url(&ENCODED.replace("%25", "%26"), &format!("127.0.0.1:{port}"));
    for (name, url) in [
        ("good", good),
        ("wrong password", wrong),
        ("nobody there", url(ENCODED, "127.0.0.1:1")),
        ("malformed", format!("redis://default:{PASSWORD}@[::1")),
        (
            "sentinel",
            format!("redis-sentinel://default:{ENCODED}@127.0.0.1:1?sentinelServiceName=x&sentinelPassword={ENCODED}"),
        ),
    ] {
        let mut command = program(directory.path());
        command.args(["run", "--admin=127.0.0.1:0", "--profile=fast"]);
        command
            .env("TIDEMILL__REDIS__URL", &url)
            .env("TIDEMILL_LOG", "trace")
            .env("TIDEMILL__WORKER__CONNECT_WITHIN", "300ms");
        let log = fs::File::create(directory.path().join("log")).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if name == "good" {
            let admin = line.trim().strip_prefix("admin http://").expect("an address").to_owned();
            until("it is ready", async || support::ask(&admin, "/readyz").is_some_and(|a| a.contains(" 200 "))).await;
            all += &support::ask(&admin, "/metrics").unwrap();
            support::signal(child.id(), "TERM");
        }
        let status = support::ended(&mut child).await;
        assert_eq!(status.success(), name == "good", "{name}: {status}");
        all += &line;
        all += &fs::read_to_string(directory.path().join("log")).unwrap();
        let mut shown = program(directory.path());
        shown.args(["config", "show", "--origins"]).env("TIDEMILL__REDIS__URL", &url);
        let shown = shown.output().unwrap();
        all += &(text(&shown.stdout) + &text(&shown.stderr));
    }
    assert!(all.len() > 2_000, "something was written: {all}");
    for secret in [PASSWORD, ENCODED, base64.as_str(), "%40s%3As%2Fw"] {
        let at = all.find(secret).map(|at| all[at.saturating_sub(200)..].chars().take(300).collect::<String>());
        assert_eq!(at, None, "{secret} was written");
    }
}
