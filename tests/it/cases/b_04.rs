//! B-04: clock skew. The clocks of producers and workers are wrong, by minutes and by years; the server's decides all.
//!
//! The programs run with a clock that a library shifts ([`tidemill_tests::skew`]). A server whose own clock steps back and forth is
//! among the histories of the model test (`tests/src/model`), which sets the clock that scripts read. That no code of ours decides
//! by the time of day is read from the sources here.

use std::path::Path;
use std::time::Duration;

use tidemill_common::book::{Limit, Match, Rate};
use tidemill_common::name::TaskId;
use tidemill_common::state::State;
use tidemill_common::store::Status;
use tidemill_common::task::NewTask;
use tidemill_tests::lab::profile::{count, pick};
use tidemill_tests::lab::{Lab, Payload};
use tidemill_tests::program::Program;
use tidemill_tests::skew;
use tidemill_tests::watch::Watch;

use super::{PATIENCE, as_ms};

const MINUTES: i64 = 60;
const YEARS: i64 = 365 * 24 * 60 * 60;
/// How many of the agent `echo` may start in any window.
const RATE: (u64, u64) = (5, 500);

/// A program with a wrong clock.
fn wrong(lab: &Lab, folder: &Path, seconds: i64, name: &str, args: &[&str]) -> Program {
    let library = skew::library(folder, seconds);
    let times = [lab.profile.lease, lab.profile.renew, lab.profile.sweep].map(|time| format!("{}ms", time.as_millis()));
    let url = lab.server().url();
    let env = [
        ("LD_PRELOAD", &*library.to_string_lossy()),
        ("TIDEMILL__REDIS__URL", &*url),
        ("TIDEMILL__WORKER__LEASE", &*times[0]),
        ("TIDEMILL__WORKER__RENEW", &*times[1]),
        ("TIDEMILL__WORKER__SWEEP", &*times[2]),
    ];
    // A worker's configuration and a producer's are read from one environment, of which each knows a part.
    let env = if name == "worker" { &env[..] } else { &env[..2] };
    Program::start(name, args, env)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producers_and_workers_with_wrong_clocks() {
    let (lab, folder) = (Lab::new().await, tempfile::tempdir().expect("a folder"));
    let matches = Match { agent: "echo".parse().ok(), ..Match::default() };
    lab.book(vec![Limit::of_rate(matches, Rate::of(RATE.0, RATE.1))]).await;
    let produce = async |seconds: i64, args: &[&str]| -> String {
        let program = wrong(&lab, folder.path(), seconds, "producer", args);
        let status = program.exit(PATIENCE).await;
        assert!(matches!(status.code(), Some(0 | 1)), "{}", program.log());
        program.out()
    };
    // The clock is wrong indeed, and the program says so.
    let doctor = produce(10 * MINUTES, &["doctor", "--output", "table"]).await;
    let clocks = doctor.lines().find(|line| line.contains("clocks")).unwrap_or_default();
    assert!(clocks.contains("warn") && clocks.contains("decisions use the server's"), "{doctor}");

    let delay = Duration::from_millis(pick(1_500, 5_000));
    let mut delayed: Vec<TaskId> = Vec::new();
    for seconds in [10 * MINUTES, -10 * MINUTES, 20 * YEARS, -20 * YEARS] {
        let before = lab.counts().await.now_ms;
        let out =
            produce(seconds, &["submit", "sleep", r#"{"ms":1}"#, "--delay", &format!("{}ms", delay.as_millis())]).await;
        let id: serde_json::Value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}"));
        let id: TaskId = id["id"].as_str().and_then(|id| id.parse().ok()).expect("an id");
        let (status, after) = (status(&lab, &id).await, lab.counts().await.now_ms);
        if status.state == Some(State::Scheduled) {
            let due = before + as_ms(delay)..=after + as_ms(delay);
            assert!(due.contains(&status.due_ms), "{seconds}: due at {}, not in {due:?}", status.due_ms);
        }
        delayed.push(id);
    }

    let start =
        |seconds, name| wrong(&lab, folder.path(), seconds, "worker", &["run", "--admin", "off", "--name", name]);
    let (slow, fast) = (start(-10 * MINUTES, "slow"), start(10 * MINUTES, "fast"));
    let echoes: Vec<NewTask> = (0..count(200)).map(|_| NewTask::new("echo".parse().expect("a name"), "1")).collect();
    lab.store().submit(&echoes, 0).await.expect("they are taken in");
    lab.ended(delayed.len() + echoes.len(), PATIENCE * 2).await;
    for id in &delayed {
        let status = status(&lab, id).await;
        assert_eq!((status.state, status.losses), (Some(State::Succeeded), 0), "{status:?}");
    }
    rate_holds(&lab, &echoes).await;
    let reclaims = lab.events().reclaims.clone();
    assert!(reclaims.is_empty(), "no lease ran out: {reclaims:?}");

    // One is killed with a task in hand: the other takes it back after a lease of the server's time, not at once and not later.
    let long = NewTask::new("sleep".parse().expect("a name"), format!(r#"{{"ms":{}}}"#, pick(2_000, 6_000)));
    lab.store().submit(std::slice::from_ref(&long), 0).await.expect("it is taken in");
    let holder = lab
        .until("it runs", PATIENCE, async || {
            let now = status(&lab, &long.id).await;
            if now.state == Some(State::Running) { Ok(now.worker) } else { Err(format!("{now:?}")) }
        })
        .await;
    let (victim, other) = if holder.starts_with("slow.") { (slow, fast) } else { (fast, slow) };
    let (first, killed) = (status(&lab, &long.id).await.fence, lab.counts().await.now_ms);
    victim.signal(nix::sys::signal::Signal::SIGKILL);
    lab.ended(delayed.len() + echoes.len() + 1, PATIENCE * 2).await;
    let end = status(&lab, &long.id).await;
    assert_eq!((end.state, end.losses), (Some(State::Succeeded), 1), "{end:?}");
    let again = end.fence.0 / 1_000;
    assert!(
        end.fence > first && again >= killed + as_ms(lab.profile.lease - lab.profile.renew * 2),
        "taken from a living one"
    );
    other.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(other.exit(PATIENCE).await.code(), Some(0));
    lab.close_with_invariants().await;
}

async fn status(lab: &Lab, id: &TaskId) -> Status {
    lab.store().status(id, None).await.expect("an answer")
}

/// Never more than the rate in any window, by the server's clock: a fence is the moment of the claim in µs.
async fn rate_holds(lab: &Lab, tasks: &[NewTask]) {
    let mut fences = Vec::new();
    for task in tasks {
        fences.push(status(lab, &task.id).await.fence.0);
    }
    fences.sort_unstable();
    let limit = usize::try_from(RATE.0).expect("a small number");
    for window in fences.windows(limit + 1) {
        // Deliveries of one claim have fences one µs apart.
        assert!(window[limit] - window[0] + RATE.0 >= RATE.1 * 1_000, "{window:?}");
    }
}

/// Entries with ids of the far future, put in by hand: what comes after them gets ids beyond them, and all goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_of_the_far_future() {
    let lab = Lab::new().await;
    let worker = lab.worker("w");
    let tasks = lab.tasks(3, Payload::sleep(1));
    lab.submit(&tasks).await;
    lab.ended(3, PATIENCE).await;
    for stream in ["q:default:s:5", "s:first", "s:line"] {
        let reply = lab.raw(&["XADD", &lab.key(stream), "99999999999999-0", "by", "hand"]);
        assert_eq!(reply.as_error(), None, "{stream} takes the entry");
    }
    let watch = Watch::on(&worker);
    // The worker is full, so that some wait and have an age.
    let tasks = [lab.tasks(8, Payload::sleep(300)), lab.tasks(20, Payload::sleep(1))].concat();
    lab.submit(&tasks).await;
    let counts = lab.counts().await;
    assert!(counts.oldest_ms.values().all(|age| *age < 60_000), "no age is negative, or of another time: {counts:?}");
    lab.until("all have run", PATIENCE, async || {
        let ledger = lab.ledger();
        match tasks.iter().filter(|task| ledger.of(task.id.as_str()).iter().any(|run| run.end.is_some())).count() {
            n if n == tasks.len() => Ok(()),
            n => Err(format!("{n} have")),
        }
    })
    .await;
    // A reclaim puts its tasks into a stream of such ids as well.
    let long = Payload::sleep(pick(500, 3_000)).task();
    lab.submit(std::slice::from_ref(&long)).await;
    lab.until("it runs", PATIENCE, async || match lab.ledger().running(worker.pid()).count() {
        0 => Err("it does not".into()),
        _ => Ok(()),
    })
    .await;
    watch.assert_calm();
    worker.kill();
    lab.worker("next");
    lab.until("it runs again", PATIENCE, async || match lab.ledger().of(long.id.as_str()).get(1) {
        Some(run) if run.end.is_some() => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    lab.close_with_invariants().await;
}

/// Where the time of day may be read, and what for. Nothing of it decides about a task.
const TIME_OF_DAY: &[(&str, &str)] = &[
    ("common/src/name.rs", "the first part of a generated id; its rest is random, and nobody reads it"),
    ("producer/src/cli/doctor.rs", "tells how far this machine's clock is off"),
    ("producer/src/cli/schedule.rs", "shows a pattern's next moments without a server"),
    ("producer/src/cli/schedule/apply.rs", "checks a file before a server is asked: whether each pattern ever comes"),
    ("worker/src/metrics/mod.rs", "the gauge that is Unix time by convention"),
    ("worker/src/handler/http/answer.rs", "a service's Retry-After that is a date"),
];

/// What reads it.
const READS: &[&str] =
    &["SystemTime::now", "Timestamp::now", "Zoned::now", "now_v7", "UNIX_EPOCH.elapsed", "clock_gettime"];

#[test]
fn nothing_decides_by_the_time_of_day() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let mut found = Vec::new();
    for package in ["common", "producer", "worker", "payloads"] {
        sources(&root.join(package).join("src"), &mut |path| {
            let text = std::fs::read_to_string(path).expect("a source");
            // Unit tests come last in a file, and may read any clock.
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            if READS.iter().any(|read| code.contains(read)) {
                found.push(path.strip_prefix(root).expect("below it").to_string_lossy().into_owned());
            }
        });
    }
    found.sort();
    let mut allowed: Vec<&str> = TIME_OF_DAY.iter().map(|(path, _)| *path).collect();
    allowed.sort_unstable();
    assert_eq!(found, allowed, "the time of day is read elsewhere: ask the server, or say here what for");
}

fn sources(folder: &Path, each: &mut dyn FnMut(&Path)) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if path.is_dir() {
            sources(&path, each);
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            each(&path);
        }
    }
}
