//! X-02: what a task says reaches no command line, and nobody chooses what a worker runs but its configuration.
//!
//! Of the agents that are shipped only those of kind `process` run anything: their command is a list of words that no task can
//! change, and no shell reads it. What a task says comes by standard input. Agents that no worker has registered, put straight into
//! Redis, are run by nobody.

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tidemill_common::envelope::SERVER_BYTES;
use tidemill_common::history::DeadReason;
use tidemill_common::state::State;
use tidemill_common::store::{Accepted, Status};
use tidemill_common::task::NewTask;
use tidemill_tests::lab::Lab;
use tidemill_tests::program::Program;
use tidemill_tests::watch::is_stopped;

use super::PATIENCE;

/// A child a task: what it was started with, and what it read.
const ONCE: &str = r"
import json, os, sys
print(json.dumps({'argv': sys.argv[1:], 'in': sys.stdin.buffer.read().hex(), 'tenant': os.environ.get('TIDEMILL_TENANT')}), end='')
";
/// A long-lived child: the same.
const SERVE: &str = r"
import json, os, sys
def say(**words):
    sys.stdout.write(json.dumps(words) + '\n'); sys.stdout.flush()
sys.stdin.readline()
say(ready=True)
for line in iter(sys.stdin.readline, ''):
    task = json.loads(line).get('task')
    if task: say(request=task['request'], done={'argv': sys.argv[1:], 'task': task})
";

/// What would do something, if a shell, an option parser or a path met it.
const HOSTILE: &[&str] = &[
    "; touch pwned #",
    "$(touch pwned)",
    "`touch pwned`",
    "| touch pwned",
    "&& touch pwned",
    "\ntouch pwned\n",
    "'; touch pwned; '",
    "\"; touch pwned; \"",
    "-c",
    "--help",
    "-rf",
    "../../../../tmp/pwned",
    "> pwned",
    "%s%n",
    "{}",
    "*",
    "~",
    "$HOME",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_a_task_is_on_a_command_line() {
    let lab = Lab::new().await;
    let folder = tempfile::tempdir().expect("a folder");
    let (worker, before) = worker(&lab, folder.path()).await;
    let mut tasks = Vec::new();
    for hostile in HOSTILE {
        for agent in ["once", "serve"] {
            let payload = json!({"args": [hostile], "command": hostile, "file": hostile, "text": hostile}).to_string();
            let payload = if hostile.len() % 2 == 0 { payload } else { (*hostile).to_owned() };
            let mut task = NewTask::new(agent.parse().expect("a name"), payload);
            task = task.tenant(*hostile).key(*hostile).order_key(*hostile);
            task.key = Some(format!("{agent} {hostile}"));
            // An id is the only word that a child's request could be named after; it may begin with a dash.
            task.id = format!("--help-{}-{agent}", tasks.len()).parse().expect("an id");
            tasks.push(task);
        }
    }
    lab.store().submit(&tasks, 0).await.expect("they are taken in");
    for task in &tasks {
        let end = ended(&lab, task).await;
        assert_eq!(end.state, Some(State::Succeeded), "{end:?}");
        let said: Value = serde_json::from_slice(&end.data).expect("what the child saw");
        assert_eq!(said["argv"], json!(["fixed", "words $(touch pwned)"]), "{:?}", task.payload);
        match task.agent.as_str() {
            "once" => {
                let read: String = task.payload.iter().map(|byte| format!("{byte:02x}")).collect();
                assert_eq!(said["in"], json!(read), "{:?}", task.payload);
            }
            _ => assert_eq!((&said["task"]["id"], &said["task"]["tenant"]), (&json!(task.id), &json!(task.tenant))),
        }
    }
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.exit(PATIENCE).await.code(), Some(0));
    assert_eq!(files(folder.path()), before, "nothing was made");
    lab.close_with_invariants().await;
}

/// Envelopes with other agents, put straight into Redis.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_that_nobody_registered_are_run_by_nobody() {
    let lab = Lab::new().await;
    let folder = tempfile::tempdir().expect("a folder");
    let (worker, before) = worker(&lab, folder.path()).await;
    // It must not meet them before they are what they are to be.
    worker.signal(Signal::SIGSTOP);
    let frozen = async || if is_stopped(worker.pid()) { Ok(()) } else { Err("not yet".into()) };
    lab.until("it is frozen", PATIENCE, frozen).await;
    let names = ["../sh", "$(id)", "a b c", "sh -c", "\n\n\n\n\n", "-rf /", "os.sys", "python", "Serve_", "serve."];
    let mut put = Vec::new();
    for name in names {
        let stand_in = &"abcdef"[..name.len()];
        let task = NewTask::new(stand_in.parse().expect("a name"), "; touch pwned");
        assert!(matches!(lab.store().submit(std::slice::from_ref(&task), 0).await.as_deref(), Ok([Accepted::New(_)])));
        let key = lab.key(&format!("j:{}", task.id));
        let mut envelope = lab.raw(&["GET", &key]).as_bytes().expect("an envelope").to_vec();
        let at = (SERVER_BYTES..envelope.len() - name.len())
            .find(|at| envelope[*at..].starts_with(stand_in.as_bytes()))
            .expect("its agent is in the header");
        envelope[at..at + name.len()].copy_from_slice(name.as_bytes());
        lab.raw(&[b"SET", key.as_bytes(), &envelope]);
        put.push((name, task));
    }
    worker.signal(Signal::SIGCONT);
    for (name, task) in &put {
        let is_name = name.parse::<tidemill_common::name::AgentName>().is_ok();
        lab.until(&format!("{name:?} is where it belongs"), PATIENCE, async || {
            let now = lab.store().status(&task.id, None).await.map_err(|e| e.to_string())?;
            let right = match is_name {
                // No worker runs it: it waits, for as long as the configuration says.
                true if now.state == Some(State::Parked) => now.gate.as_deref() == Some(&format!("want:{name}")),
                true => now.reason == Some(DeadReason::UnknownAgent),
                false => now.state == Some(State::Dead) && now.reason == Some(DeadReason::Invalid),
            };
            if right { Ok(()) } else { Err(format!("{now:?}")) }
        })
        .await;
    }
    // Later the first kind is dead as well.
    let last = ended_within(&lab, &put[names.len() - 1].1, Duration::from_secs(20)).await;
    assert_eq!((last.state, last.reason), (Some(State::Dead), Some(DeadReason::UnknownAgent)), "{last:?}");
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.exit(PATIENCE).await.code(), Some(0));
    assert_eq!(files(folder.path()), before, "nothing was made");
    // An envelope that cannot be read does not say where its task was counted; see the table in docs/guarantees.md.
    let broken = lab.broken_invariants().await;
    assert!(broken.iter().all(|what| what.starts_with("0 tasks wait, and the counts say")), "{broken:?}");
}

/// The program, with an agent of each mode that runs children in a folder of their own; and what is in that folder.
async fn worker(lab: &Lab, folder: &Path) -> (Program, Vec<String>) {
    for (name, text) in [("once.py", ONCE), ("serve.py", SERVE)] {
        std::fs::write(folder.join(name), text).expect("a child");
    }
    let agent = |name: &str, mode: &str| {
        let directory = folder.display();
        format!(
            "[agents.{name}]\nkind = \"process\"\nmode = \"{mode}\"\ndirectory = \"{directory}\"\nconcurrency = 4\n\
             command = [\"python3\", \"{name}.py\", \"fixed\", \"words $(touch pwned)\"]\n"
        )
    };
    let config = tempfile::NamedTempFile::new().expect("a file");
    let times = "[worker]\nunknown_agent_after = \"1s\"\nprofile = \"fast\"\n";
    let text = [times, &agent("once", "once"), &agent("serve", "serve")].concat();
    std::fs::write(config.path(), text).expect("a configuration");
    let before = files(folder);
    let (path, url) = (config.path().to_string_lossy().into_owned(), lab.server().url());
    let worker = Program::start("worker", &["run", "--admin", "off", "--redis", &url, "--config", &path], &[]);
    lab.until(
        "it is at work",
        PATIENCE,
        async || {
            if worker.log().contains("at work") { Ok(()) } else { Err(worker.log()) }
        },
    )
    .await;
    (worker, before)
}

fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("the folder").flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name != "__pycache__");
    names.sort();
    names
}

async fn ended(lab: &Lab, task: &NewTask) -> Status {
    ended_within(lab, task, PATIENCE).await
}

async fn ended_within(lab: &Lab, task: &NewTask, within: Duration) -> Status {
    lab.until("it has ended", within, async || {
        let now = lab.store().status(&task.id, None).await.map_err(|e| e.to_string())?;
        if now.state.is_some_and(State::has_ended) { Ok(now) } else { Err(format!("{now:?}")) }
    })
    .await
}
