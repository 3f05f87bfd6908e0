//! A real child (`python3`) for each task, without Redis.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::testing::context;
use super::super::{Handler as _, Outcome};
use super::{Children, OnceAgent, ProcessOptions};

/// A child that does what its payload says; what it does not know it gives back.
const CHILD: &str = r#"
import json, os, signal, subprocess, sys, time
data = sys.stdin.buffer.read()
words = data.decode("utf-8", "replace").split(" ", 1)
do, rest = words[0], words[1] if len(words) > 1 else ""
if do == "exit":
    print("first\nlast \x1b[31mwords", file=sys.stderr); sys.exit(int(rest))
elif do == "kill": os.kill(os.getpid(), signal.SIGKILL)
elif do == "facts": print(json.dumps({k: v for k, v in os.environ.items() if k.startswith("TIDEMILL_") or k in ("ADDED", "TRACEPARENT")}))
elif do == "argv": print(json.dumps(sys.argv))
elif do == "much": sys.stdout.buffer.write(b"x" * int(rest))
elif do == "flood":
    while True: sys.stdout.buffer.write(b"x" * 65536)
elif do == "leave":
    subprocess.Popen(["sleep", "5"], start_new_session=True, stderr=subprocess.DEVNULL); print("done")
elif do == "wait":
    if rest.startswith("stubborn"): signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if rest.startswith("graceful"): signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    helper = subprocess.Popen(["sleep", "60"])
    with open("pids.new", "w") as f: f.write(f"{os.getpid()} {helper.pid}")
    os.rename("pids.new", "pids"); time.sleep(60)
else: sys.stdout.buffer.write(data)
"#;

fn agent(children: &Children, change: impl FnOnce(&mut ProcessOptions)) -> OnceAgent {
    let mut options = ProcessOptions::new(vec!["python3".into(), "-c".into(), CHILD.into()]);
    options.children = 4;
    change(&mut options);
    children.once(&"test".parse().unwrap(), options)
}

async fn run(agent: &OnceAgent, payload: &str) -> Outcome {
    agent.run(context(payload.to_owned(), 1)).await
}

fn runs(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// The child's number and its helper's, once it waits.
async fn pids(directory: &std::path::Path) -> Vec<String> {
    loop {
        if let Ok(text) = std::fs::read_to_string(directory.join("pids")) {
            return text.split(' ').map(str::to_owned).collect();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn payloads_go_in_and_come_out_byte_for_byte() {
    let children = Children::start().unwrap();
    let agent = agent(&children, |_| {});
    for payload in ["; touch x", "$(touch x) `touch x`", "--help", "-c print(1)", "a\nb\r\n\0\u{1b}[2J", "", "\"'\\"] {
        assert_eq!(run(&agent, payload).await, Outcome::done(payload.to_owned()), "{payload:?}");
    }
    let bytes: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
    assert_eq!(agent.run(context(bytes.clone(), 1)).await, Outcome::done(bytes), "the largest");
    let Outcome::Done(argv) = run(&agent, "argv --evil $(x)").await else { panic!() };
    assert_eq!(argv, "[\"-c\"]\n", "no word of the payload is an argument");
}

#[tokio::test]
async fn exit_codes_say_how_it_went() {
    let children = Children::start().unwrap();
    let agent = agent(&children, |_| {});
    let said = |how: &str| format!("{how}: first last [31mwords");
    for (code, outcome) in [
        ("0", Outcome::done("")),
        ("75", Outcome::Throttled { error: said("exit code 75"), until: Duration::from_secs(1) }),
        ("64", Outcome::dead(said("exit code 64"))),
        ("65", Outcome::dead(said("exit code 65"))),
        ("1", Outcome::retry(said("exit code 1"))),
        ("255", Outcome::retry(said("exit code 255"))),
    ] {
        assert_eq!(run(&agent, &format!("exit {code}")).await, outcome);
    }
    assert_eq!(run(&agent, "kill").await, Outcome::retry("signal 9"));
}

#[tokio::test]
async fn a_result_is_whole_and_not_too_large() {
    let children = Children::start().unwrap();
    let agent = agent(&children, |_| {});
    assert!(matches!(run(&agent, "much 1048576").await, Outcome::Done(bytes) if bytes.len() == 1 << 20));
    for payload in ["much 1048577", "flood"] {
        let Outcome::Dead { reason } = run(&agent, payload).await else { panic!("{payload}") };
        assert!(reason.contains("more than 1048576 bytes"), "{reason}");
    }
    let Outcome::Retry { error, .. } = run(&agent, "leave").await else { panic!() };
    assert!(error.contains("kept open"), "{error}");
}

#[tokio::test]
async fn a_child_knows_its_task_and_no_secrets() {
    let children = Children::start().unwrap();
    let agent = agent(&children, |o| {
        o.env.insert("ADDED".into(), "yes".into());
        o.env.insert("TIDEMILL_FENCE".into(), "forged".into());
    });
    let mut of = context("facts", 3);
    let task = Arc::get_mut(&mut of.task).unwrap();
    (task.tenant, task.key) = ("a\0b\nX=y".into(), Some("50% é".into()));
    task.meta.traceparent = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into());
    let id = task.id.clone();
    let Outcome::Done(said) = agent.run(of).await else { panic!() };
    let said: serde_json::Value = serde_json::from_slice(&said).unwrap();
    let deadline: u64 = said["TIDEMILL_DEADLINE_MS"].as_str().unwrap().parse().unwrap();
    assert!((1..=30_000).contains(&deadline), "{deadline}");
    for (name, value) in [
        ("TIDEMILL_TASK", id.as_str()),
        ("TIDEMILL_AGENT", "test"),
        ("TIDEMILL_ATTEMPT", "3"),
        ("TIDEMILL_FENCE", "7"),
        ("TIDEMILL_KEY", "50%25%20%C3%A9"),
        ("TIDEMILL_TENANT", "a%00b%0AX=y"),
        ("ADDED", "yes"),
        ("TRACEPARENT", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ] {
        assert_eq!(said[name], value, "{name}");
    }
}

#[tokio::test]
async fn what_is_called_off_is_gone_with_all_its_group() {
    let children = Children::start().unwrap();
    for how in ["wait", "wait graceful", "wait stubborn"] {
        let directory = tempfile::tempdir().unwrap();
        let agent = agent(&children, |o| o.directory = Some(directory.path().to_owned()));
        let of = context(how, 1);
        let cancel = of.cancellation().clone();
        let calling = async {
            let pids = pids(directory.path()).await;
            cancel.cancel();
            (pids, Instant::now())
        };
        let (outcome, (pids, began)) = tokio::join!(agent.run(of), calling);
        assert!(began.elapsed() < Duration::from_millis(500), "{how}: {:?}", began.elapsed());
        assert_eq!(
            outcome,
            Outcome::retry("called off; its child was ended"),
            "{how}: not a success, whatever it says"
        );
        assert!(!runs(&pids[0]), "{how}");
        // Killed as well, but nobody of ours awaits it.
        while runs(&pids[1]) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test]
async fn a_dropped_run_ends_its_child_and_holds_its_place_until_then() {
    let children = Children::start().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let agent = agent(&children, |o| (o.children, o.directory) = (1, Some(directory.path().to_owned())));
    let pids = tokio::select! {
        outcome = run(&agent, "wait stubborn") => panic!("{outcome:?}"),
        pids = pids(directory.path()) => pids,
    };
    assert_eq!(run(&agent, "next").await, Outcome::done("next"));
    assert!(!runs(&pids[0]), "the next began after its end");
}

#[tokio::test]
async fn children_end_with_their_keeper() {
    let children = Children::start().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let agent = agent(&children, |o| o.directory = Some(directory.path().to_owned()));
    let closing = async {
        let pids = pids(directory.path()).await;
        tokio::task::spawn_blocking(move || drop(children)).await.unwrap();
        pids
    };
    let (outcome, pids) = tokio::join!(run(&agent, "wait"), closing);
    assert!(matches!(outcome, Outcome::Throttled { .. }), "{outcome:?}");
    assert!(!runs(&pids[0]));
    assert!(matches!(run(&agent, "late").await, Outcome::Throttled { .. }));
}

#[tokio::test]
async fn a_command_that_cannot_run_is_not_the_tasks_fault_and_waits_ever_longer() {
    let children = Children::start().unwrap();
    let agent = agent(&children, |o| o.command = vec!["/nowhere/at-all".into()]);
    let mut waits = Vec::new();
    for _ in 0..10 {
        let Outcome::Throttled { error, until } = run(&agent, "1").await else { panic!() };
        assert!(error.contains("/nowhere/at-all"), "{error}");
        waits.push(until.as_millis());
    }
    assert_eq!(waits[..3], [100, 200, 400]);
    assert_eq!(waits[9], 30_000);
}
