//! The lab finds what it is there to find.

use std::time::Duration;

use tidemill_tests::lab::{Lab, Line, Payload, Writer, now_ms};

/// What is to be said of what is planted.
const SAID: &[&str] = &[
    "surprise: of no kind",
    "k:1:tx: no TTL, and nobody owns it",
    "g:s/a: no TTL, and nobody owns it",
    "op: no TTL, and nobody owns it",
    "lost was accepted, and is lost",
    r#"is in more than one place: ["l:want:nobody", "z"]"#,
    "is pending for nobody.1, and nobody runs it",
    "has consumer nobody.1",
    "has 2 recorded successes",
    "again ran again at",
    "tasks wait, and the counts say",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_invariants_are_found() {
    let lab = Lab::new().await;
    lab.worker("w");
    lab.submit(&lab.tasks(1, Payload::default())).await;
    lab.ended(1, Duration::from_secs(10)).await;
    let parked = Payload::default().task_of("nobody");
    lab.submit(std::slice::from_ref(&parked)).await;
    lab.until("it is parked", Duration::from_secs(10), async || match lab.counts().await.parked {
        1 => Ok(()),
        n => Err(format!("{n} are")),
    })
    .await;
    lab.accepted(["lost".parse().unwrap()]);
    plant(&lab, parked.id.as_str());

    let broken = lab.broken_invariants().await;
    for said in SAID {
        assert!(broken.iter().any(|text| text.contains(said)), "nobody said {said:?}, but:\n{broken:#?}");
    }
}

fn plant(lab: &Lab, parked: &str) {
    let planted = [
        format!("SET {} 1", lab.key("surprise")),
        format!("SET {} x", lab.key("k:1:tx")),
        format!("SET {} 1", lab.key("g:s/a")),
        format!("HSET {} s:nobody.1:1 x", lab.key("op")),
        format!("HINCRBY {} w:5:default 3", lab.key("n")),
        format!("ZADD {} 9000000000000 {parked}", lab.key("z")),
        format!("XGROUP CREATE {} w 0 MKSTREAM", lab.key("q:other:s:5")),
        format!("XADD {} * 0000 nothing", lab.key("q:other:s:5")),
        format!("XREADGROUP GROUP w nobody.1 STREAMS {} >", lab.key("q:other:s:5")),
    ];
    for command in planted {
        let reply = lab.raw(&command.split(' ').collect::<Vec<_>>());
        assert!(reply.as_error().is_none(), "{command}: {reply:?}");
    }
    // An end that was recorded is recorded once more.
    let log = lab.key("log");
    let ends = lab.raw(&["XRANGE", &log, "-", "+", "COUNT", "1"]);
    let fields = ends.as_array().unwrap()[0].as_array().unwrap()[1].as_array().unwrap();
    let [agent, end] = [&fields[0], &fields[1]].map(|field| field.as_bytes().unwrap());
    lab.raw(&[b"XADD", log.as_bytes(), b"*", agent, end]);
    // A task has run twice, and nothing says why.
    let writer = Writer::open(&lab.ledger_path()).unwrap();
    let start = Line {
        end: None,
        id: "again".into(),
        agent: "ledger".into(),
        attempt: 1,
        losses: 0,
        fence: 1,
        worker: "w.1".into(),
        pid: 1,
        lone: false,
        at: now_ms(),
    };
    writer.append(&start).unwrap();
    writer.append(&Line { fence: 2, ..start }).unwrap();
}
