//! Each key of the product is deleted, as an eviction or a hand would.

use std::collections::BTreeMap;
use std::time::Duration;

use tidemill_common::book::{Book, Limit, Match, Rate};
use tidemill_common::task::NewTask;
use tidemill_tests::lab::{Lab, Mode, Payload};
use tidemill_tests::server::Reply;
use tidemill_tests::watch::Watch;

use super::super::PATIENCE;

/// How long what runs when the key goes takes, and how long a rate stays closed.
const WHILE: u64 = 1_500;

struct Load {
    tasks: Vec<(&'static str, NewTask)>,
}

impl Load {
    fn id(&self, label: &str) -> &str {
        self.tasks.iter().find(|(l, _)| *l == label).unwrap().1.id.as_str()
    }
}

fn big(ms: u64) -> NewTask {
    let mut task = Payload::sleep(ms).task();
    let pad = "x".repeat(20_000);
    task.payload = format!(r#"{{"ms":{ms},"pad":"{pad}"}}"#).into();
    task
}

async fn load(lab: &Lab) -> Load {
    let book = Book {
        revision: 1,
        limits: vec![
            Limit { matches: Match { agent: "slotted".parse().ok(), ..Match::default() }, slots: Some(1), rate: None },
            Limit { matches: Match { agent: "rated".parse().ok(), ..Match::default() }, slots: None, rate: Some(Rate { limit: 1, window_ms: WHILE }) },
        ],
    };
    lab.store().apply_book(&book.compile()).await.unwrap();
    let ms = Duration::from_millis;
    let mut tasks = vec![
        ("dead", Payload::of(Mode::Dead, 0).task()),
        ("rated_first", Payload::sleep(1).task_of("rated")),
        ("rated_parked", Payload::sleep(1).task_of("rated")),
        ("retrying", Payload::of(Mode::FailOnce, 1).after(WHILE).task()),
        ("wanted", Payload::sleep(1).task_of("nobody")),
        ("scheduled", Payload::sleep(1).task().delay(ms(WHILE))),
        ("slot_running", Payload::sleep(WHILE).task_of("slotted")),
        ("slot_parked", Payload::sleep(1).task_of("slotted")),
    ];
    let first: Vec<_> = tasks.iter().map(|t| t.1.clone()).collect();
    lab.store().submit(&first, 0).await.unwrap();
    lab.until("the first are in place", PATIENCE, async || {
        let s = lab.counts().await;
        if (s.running, s.parked, s.scheduled, s.dead) == (1, 3, 2, 1) { Ok(()) } else { Err(format!("{s:?}")) }
    })
    .await;
    let more = vec![
        ("running", Payload::sleep(WHILE).task()),
        ("order_head", Payload::sleep(WHILE).task().order_key("o")),
        ("big_running", big(WHILE)),
        ("order_next", Payload::sleep(1).task().order_key("o")),
    ];
    lab.store().submit(&more.iter().map(|t| t.1.clone()).collect::<Vec<_>>(), 0).await.unwrap();
    tasks.extend(more);
    lab.until("all slots are taken", PATIENCE, async || {
        let s = lab.counts().await;
        if s.running == 4 { Ok(()) } else { Err(format!("{s:?}")) }
    })
    .await;
    let mut deadline = Payload::sleep(1).task();
    deadline.start_within = Some(Duration::from_secs(60));
    let more = vec![
        ("queued", Payload::sleep(1).task()),
        ("keyed", Payload::sleep(1).task().key("k")),
        ("big", big(1)),
        ("deadline", deadline),
    ];
    lab.store().submit(&more.iter().map(|t| t.1.clone()).collect::<Vec<_>>(), 0).await.unwrap();
    tasks.extend(more);
    Load { tasks }
}

async fn without(key: String) -> String {
    let lab = Lab::new().await;
    let worker = lab.start(lab.setup("w").agents(&["ledger", "slotted", "rated"]));
    let load = load(&lab).await;
    let me = lab.raw(&["ZRANGE", &lab.key("w"), "0", "-1"]).as_array().unwrap()[0].as_str().unwrap().to_owned();
    let tail = match key.split_once('<') {
        Some((stem, rest)) => {
            let (label, rest) = rest.split_once('>').unwrap();
            let name = if label == "me" { me } else { load.id(label).to_owned() };
            format!("{stem}{name}{rest}")
        }
        None => key.clone(),
    };
    let watch = Watch::on(&worker);
    let had = lab.raw(&["DEL", &lab.key(&tail)]);
    let fresh = vec![
        ("fresh", Payload::sleep(1).task()),
        ("fresh_slotted", Payload::sleep(1).task_of("slotted")),
        ("fresh_rated", Payload::sleep(1).task_of("rated")),
        ("fresh_delayed", Payload::sleep(1).task().delay(Duration::from_millis(300))),
        ("fresh_ordered", Payload::sleep(1).task().order_key("other")),
        ("fresh_same_order", Payload::sleep(1).task().order_key("o")),
    ];
    lab.store().submit(&fresh.iter().map(|t| t.1.clone()).collect::<Vec<_>>(), 0).await.unwrap();
    let all: BTreeMap<&str, &NewTask> = load.tasks.iter().chain(&fresh).map(|(l, t)| (*l, t)).collect();
    let by = std::time::Instant::now() + Duration::from_secs(7);
    let mut open = Vec::new();
    while std::time::Instant::now() < by {
        open.clear();
        for (l, t) in &all {
            let s = lab.store().status(&t.id, None).await.unwrap();
            if !s.state.is_some_and(|s| s.has_ended()) {
                open.push(format!("{l}:{}", s.state.map_or("unknown".into(), |s| s.to_string())));
            }
        }
        if open.iter().all(|o| o.starts_with("wanted")) { break }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let calm = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| watch.assert_calm())).is_ok();
    let ledger = lab.ledger();
    let twice: Vec<_> = all.iter().filter(|(l, t)| ledger.of(t.id.as_str()).len() > 1 + usize::from(**l == "retrying")).map(|(l, t)| format!("{l}x{}", ledger.of(t.id.as_str()).len())).collect();
    let counts = lab.counts().await;
    let g = lab.raw(&["HGET", &lab.key("g:s/a/slotted"), "u"]);
    let errs: std::collections::BTreeSet<String> = worker.log().lines().filter(|l| l.contains("WARN") || l.contains("ERROR")).map(|l| { let v: serde_json::Value = serde_json::from_str(l).unwrap(); format!("{} {} {} {}", v["message"], v["op"], v["error"], v["cause"]) }).collect();
    format!("{key:26} had={had:?} calm={calm} alive={} open={open:?} twice={twice:?} waiting={:?} running={} parked={} slot={g:?}\n    {errs:?}\n    {:?}", worker.ended().is_none(), counts.waiting, counts.running, counts.parked, lab.snapshot().misplaced())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explore() {
    let keys = ["nothing", "j:<queued>", "j:<running>", "j:<scheduled>", "j:<slot_parked>", "j:<slot_running>", "j:<rated_parked>", "j:<order_head>", "j:<order_next>", "j:<dead>", "j:<keyed>", "b:<big>", "k:0:k", "r:<dead>",
        "q:default:s:5", "s:first", "s:line", "run", "at", "z", "x", "o:o", "l:s/a/slotted", "l:r/a/rated", "l:want:nobody", "g:s/a/slotted", "g:r/a/rated", "park", "ready:5", "live:5", "wants", "dead", "w", "wa", "idle", "op", "ctl:<me>", "bell", "log", "qs", "n", "book", "sweep", "meta"];
    let _ = Reply::Nil;
    let local = tokio::task::LocalSet::new();
    local.run_until(async {
        for chunk in keys.chunks(6) {
            let runs: Vec<_> = chunk.iter().map(|k| tokio::task::spawn_local(without((*k).to_owned()))).collect();
            for run in runs {
                match run.await { Ok(line) => println!("{line}"), Err(e) => println!("FAILED {e}") }
            }
        }
    }).await;
}

async fn asleep_without(key: String, after: bool) -> String {
    let lab = Lab::new().await;
    let worker = lab.start(lab.setup("w").agents(&["ledger", "slotted", "rated"]));
    lab.submit(&lab.tasks(3, Payload::sleep(1))).await;
    lab.ended(3, PATIENCE).await;
    lab.until("sleeps", PATIENCE, async || if lab.counts().await.idle == 1 { Ok(()) } else { Err("no".into()) }).await;
    let fresh = Payload::sleep(1).task();
    if after {
        worker.stop();
        lab.store().submit(std::slice::from_ref(&fresh), 0).await.unwrap();
    }
    let had = lab.raw(&["DEL", &lab.key(&key)]);
    if after { worker.cont(); } else {
    lab.store().submit(std::slice::from_ref(&fresh), 0).await.unwrap();
    }
    let began = std::time::Instant::now();
    while began.elapsed() < Duration::from_secs(14) {
        if lab.store().status(&fresh.id, None).await.unwrap().state.is_some_and(|s| s.has_ended()) { return format!("{key} after={after} had={had:?} in {:?}", began.elapsed()); }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    format!("{key} after={after} had={had:?} NEVER")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explore_asleep() {
    let keys = ["nothing", "q:default:s:5", "s:first", "live:5", "wants", "w", "wa", "idle", "op", "bell", "log", "qs", "n", "book", "sweep", "meta"];
    let local = tokio::task::LocalSet::new();
    local.run_until(async {
        for after in [false, true] { for chunk in keys.chunks(8) {
            let runs: Vec<_> = chunk.iter().map(|k| tokio::task::spawn_local(asleep_without((*k).to_owned(), after))).collect();
            for run in runs {
                match run.await { Ok(line) => println!("{line}"), Err(e) => println!("FAILED {e}") }
            }
        } }
    }).await;
}
