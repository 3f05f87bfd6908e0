//! X-03: requests into the network behind the worker.
//!
//! There are no callbacks; an agent of kind `http` is what calls out, and its URL is the configuration's, never a task's. Even so an
//! address of this machine, of a private network or of a metadata service is refused unless it is allowed by name: at the start if
//! the URL has it, at each connection if a name leads there; a redirect is not followed. Which addresses those are, in all their
//! spellings, is tested in `worker/src/handler/http/tests_guard.rs`.

use std::time::Duration;

use nix::sys::signal::Signal;
use tidemill_common::state::State;
use tidemill_common::store::Status;
use tidemill_common::task::NewTask;
use tidemill_tests::fake::Listener;
use tidemill_tests::lab::Lab;
use tidemill_tests::program::{Ended, Program};

use super::PATIENCE;

/// The worker's exit code for a configuration with mistakes.
const USAGE: i32 = 2;

struct Config(tempfile::NamedTempFile);

impl Config {
    fn of(text: &str) -> Self {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("a configuration");
        Self(file)
    }

    fn path(&self) -> String {
        self.0.path().to_string_lossy().into_owned()
    }
}

fn agent(name: &str, url: &str, more: &str) -> String {
    format!("[agents.{name}]\nkind = \"http\"\nurl = \"{url}\"\n{more}\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_does_not_start_with_such_a_url() {
    let (lab, canary) = (Lab::new().await, Listener::canary());
    let port = canary.port();
    let urls = [
        format!("http://127.0.0.1:{port}/"),
        format!("http://localhost:{port}/"),
        format!("http://[::1]:{port}/"),
        format!("http://0.0.0.0:{port}/"),
        format!("http://2130706433:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "http://10.0.0.1/".to_owned(),
        "http://192.168.1.1/".to_owned(),
        "file:///etc/passwd".to_owned(),
        format!("redis://127.0.0.1:{port}"),
        format!("gopher://127.0.0.1:{port}/_x"),
    ];
    let agents: Vec<String> = urls.iter().enumerate().map(|(n, url)| agent(&format!("a{n}"), url, "")).collect();
    let config = Config::of(&agents.concat());
    let url = lab.server().url();
    let run: Ended =
        Program::run("worker", &["run", "--admin", "off", "--redis", &url, "--config", &config.path()], &[]).await;
    assert_eq!(run.code, Some(USAGE), "{run:?}");
    for (n, url) in urls.iter().enumerate() {
        let line = run.err.lines().find(|line| line.contains(&format!("agents.a{n}.url")));
        let line = line.unwrap_or_else(|| panic!("{url} is not told of: {}", run.err));
        assert!(line.contains("refused: ") || line.contains("begins with"), "{line}");
    }
    assert_eq!(canary.met(), 0, "nobody knocked");
    lab.close_with_invariants().await;
}

/// What is allowed is called, and leads nowhere else: not by a redirect, and not by anything that a task says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_allowed_leads_nowhere_else() {
    let (lab, canary) = (Lab::new().await, Listener::canary());
    let elsewhere = format!("http://127.0.0.1:{}/", canary.port());
    let response = |status: &str, headers: &str, body: &str| {
        format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
    };
    let redirects = [301, 302, 303, 307, 308].map(|status| {
        Listener::http(response(&format!("{status} Moved"), &format!("Location: {elsewhere}\r\n"), &elsewhere))
    });
    let well = Listener::http(response("200 OK", &format!("Refresh: 0; url={elsewhere}\r\n"), "well"));
    let allowed = |listener: &Listener| {
        let at = format!("127.0.0.1:{}", listener.port());
        (format!("http://{at}/run"), format!("allow_private = [\"{at}\"]"))
    };
    let mut config = String::from("[worker]\nprofile = \"fast\"\n");
    for (n, redirect) in redirects.iter().enumerate() {
        let (url, more) = allowed(redirect);
        config += &agent(&format!("moved{n}"), &url, &more);
    }
    let (url, more) = allowed(&well);
    config += &agent("well", &url, &more);
    let config = Config::of(&config);
    let url = lab.server().url();
    let args = ["run", "--admin", "off", "--redis", &url, "--config", &config.path()];
    let worker = Program::start("worker", &args, &[("http_proxy", &elsewhere), ("HTTP_PROXY", &elsewhere)]);

    for (n, redirect) in redirects.iter().enumerate() {
        let end = ends(&lab, &format!("moved{n}"), "1").await;
        assert_eq!(end.state, Some(State::Dead), "{end:?}");
        assert_eq!(redirect.met(), 1, "it was called once");
    }
    for payload in [
        format!(r#"{{"url":"{elsewhere}","callback":"{elsewhere}"}}"#),
        format!("x\r\nHost: 127.0.0.1:{}\r\n", canary.port()),
    ] {
        let end = ends(&lab, "well", &payload).await;
        assert_eq!((end.state, &*end.data), (Some(State::Succeeded), &b"well"[..]), "{end:?}");
    }
    assert_eq!((canary.met(), well.met()), (0, 2), "nobody knocked where nobody should");
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.exit(PATIENCE).await.code(), Some(0));
    lab.close_with_invariants().await;
}

/// A task of this agent, ended.
async fn ends(lab: &Lab, agent: &str, payload: &str) -> Status {
    let task = NewTask::new(agent.parse().expect("a name"), payload.to_owned());
    lab.store().submit(std::slice::from_ref(&task), 0).await.expect("it is taken in");
    lab.until("it has ended", PATIENCE + Duration::from_secs(1), async || {
        let now = lab.store().status(&task.id, None).await.map_err(|e| e.to_string())?;
        if now.state.is_some_and(State::has_ended) { Ok(now) } else { Err(format!("{now:?}")) }
    })
    .await
}
