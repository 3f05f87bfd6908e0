//! the server says "not now": it loads its data, runs a script without end, cannot save, or has as many clients as it may.
//!
//! Each time: nobody exits, spins or floods the log; the program says that it is not ready while this lasts; what runs is settled
//! then, or begins again without an attempt being counted; limits hold all through it; and afterwards there are as many
//! connections as before.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use tidemill_common::book::{Limit, Match};
use tidemill_common::store::{Error, RedisOptions, Store};
use tidemill_common::task::NewTask;
use tidemill_tests::admin::{Watched, as_before, connections};
use tidemill_tests::lab::profile::pick;
use tidemill_tests::lab::{End, Lab, Payload, WorkerProcess};
use tidemill_tests::server::{Connection, Options, Reply};
use tidemill_tests::watch::Watch;

use super::PATIENCE;

/// Tasks of the agent `slotted` that may run at once.
const SLOTS: usize = 3;
/// What a fault takes: longer than a lease, so that leases are lost as well.
fn lasting() -> Duration {
    Duration::from_millis(pick(1_200, 10_000))
}

/// It loads its data, on connections that stay; and workers that are started meanwhile wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_it_loads() {
    let mut options = Options::new().config_line("enable-debug-command yes");
    // It looks after its clients this often.
    options = options.config_line("loading-process-events-interval-bytes 1024");
    let lab = Lab::with(options).await;
    let mut crowd = Crowd::gather(&lab).await;
    lab.raw(&["DEBUG", "POPULATE", pick("12000", "40000"), "filler"]);
    lab.raw(&["CONFIG", "SET", "key-load-delay", "200"]);
    crowd.take_work(&lab).await;
    let loaded = aside(&lab, &["DEBUG", "RELOAD"]);
    refuses(&lab, "LOADING").await;
    crowd.watched.until_ready(&lab, false).await;
    let (late, watched) =
        (lab.start(crowd.workers[0].setup().clone()), Watched::begin(&lab, &lab.server().url()).await);
    let watch = Watch::on(&late);
    assert!(!watched.ready() && !crowd.watched.ready(), "not while it loads");
    let refused = at_once(&lab).await.expect_err("nothing is taken in meanwhile");
    assert!(matches!(refused, Error::NotNow { .. }), "not done, for certain: {refused:?}");
    refuses(&lab, "LOADING").await;
    lab.until("it has loaded", PATIENCE, async || loaded.try_recv().map_err(|e| e.to_string())).await;
    watched.until_ready(&lab, true).await;
    watch.assert_calm();
    late.term();
    assert_eq!(late.exit(PATIENCE).await.code(), Some(0));
    watched.stop().await;
    lab.raw(&["CONFIG", "SET", "key-load-delay", "0"]);
    lab.raw(&["EVAL", "for _, key in ipairs(redis.call('KEYS', 'filler:*')) do redis.call('DEL', key) end", "0"]);
    crowd.goes_on(lab).await;
}

/// Somebody's script runs without end, until it is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_script_runs_without_end() {
    let lab = Lab::with(Options::new().config_line("lua-time-limit 100")).await;
    let mut crowd = Crowd::gather(&lab).await;
    crowd.take_work(&lab).await;
    let ended = aside(&lab, &["EVAL", "while true do end", "0"]);
    refuses(&lab, "BUSY").await;
    crowd.sits_it_out(&lab).await;
    let refused = at_once(&lab).await.expect_err("nothing is taken in meanwhile");
    assert!(refused.is_transient(), "said to be worth another try: {refused:?}");
    assert!(matches!(refused, Error::NotNow { .. }), "and not done, for certain: {refused:?}");
    assert_eq!(lab.raw(&["SCRIPT", "KILL"]), Reply::Simple("OK".into()));
    lab.until("it was killed", PATIENCE, async || ended.try_recv().map_err(|e| e.to_string())).await;
    crowd.goes_on(lab).await;
}

/// Its disk is gone: it refuses all writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_it_cannot_save() {
    let lab = Lab::with(Options::new().config_line("enable-protected-configs yes").config_line("save 3600 1")).await;
    let mut crowd = Crowd::gather(&lab).await;
    let before = lab.raw(&["CONFIG", "GET", "dir"]);
    let before = before.as_array().and_then(|pair| pair[1].as_str()).expect("a directory").to_owned();
    let gone = tempfile::tempdir().expect("a directory");
    lab.raw(&["CONFIG", "SET", "dir", &gone.path().to_string_lossy()]);
    drop(gone);
    crowd.take_work(&lab).await;
    lab.raw(&["BGSAVE"]);
    refuses(&lab, "MISCONF").await;
    crowd.sits_it_out(&lab).await;
    let refused = at_once(&lab).await.expect_err("nothing is taken in meanwhile");
    assert!(refused.is_transient(), "said to be worth another try: {refused:?}");
    assert!(matches!(refused, Error::NotNow { .. }), "and not done, for certain: {refused:?}");
    assert_eq!(lab.raw(&["CONFIG", "SET", "dir", &before]).as_error(), None);
    lab.raw(&["BGSAVE"]);
    lab.until("it writes again", PATIENCE, async || match lab.raw(&["SET", "probe", "1"]).as_error() {
        None => Ok(()),
        Some(why) => Err(why.to_owned()),
    })
    .await;
    lab.raw(&["DEL", "probe"]);
    crowd.goes_on(lab).await;
}

/// It has as many clients as it may, and those of the product are cut: each that comes again is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_it_has_as_many_clients_as_it_may() {
    let lab = Lab::new().await;
    let mut crowd = Crowd::gather(&lab).await;
    crowd.take_work(&lab).await;
    let mut ours = lab.server().connect().expect("a connection");
    let me = ours.command(&["CLIENT", "ID"]).expect("an answer").as_int().expect("a number").to_string();
    // Above this all that is there stays, and nobody else comes in.
    assert_eq!(ours.command(&["CONFIG", "SET", "maxclients", "1"]).expect("an answer").as_error(), None);
    let list = ours.command(&["CLIENT", "LIST", "TYPE", "normal"]).expect("an answer");
    let ids = list.as_str().unwrap_or_default().lines();
    for id in ids.filter_map(|line| line.strip_prefix("id=")?.split(' ').next()).filter(|id| *id != me) {
        ours.command(&["CLIENT", "KILL", "ID", id]).expect("an answer");
    }
    crowd.sits_it_out(&lab).await;
    let list = ours.command(&["CLIENT", "LIST", "TYPE", "normal"]).expect("an answer");
    assert_eq!(list.as_str().unwrap_or_default().lines().count(), 1, "nobody came in: {list:?}");
    let refused = at_once(&lab).await.expect_err("nothing is taken in meanwhile");
    assert!(refused.is_transient(), "said to be worth another try: {refused:?}");
    ours.command(&["CONFIG", "SET", "maxclients", "10000"]).expect("an answer");
    drop(ours);
    crowd.goes_on(lab).await;
}

/// Two workers of the lab and the program, with work in hand.
struct Crowd {
    workers: Vec<WorkerProcess>,
    watched: Watched,
    connections: usize,
    tasks: Vec<NewTask>,
    watches: Vec<Watch>,
}

impl Crowd {
    /// Three processes that have run something and sleep.
    async fn gather(lab: &Lab) -> Self {
        let matches = Match { agent: "slotted".parse().ok(), ..Match::default() };
        lab.book(vec![Limit::of_slots(matches, SLOTS as u64)]).await;
        let workers: Vec<_> =
            ["w1", "w2"].map(|name| lab.start(lab.setup(name).concurrency(6).agents(&["ledger", "slotted"]))).to_vec();
        let watched = Watched::start(lab, &lab.server().url()).await;
        let tasks = lab.tasks(10, Payload::sleep(1));
        lab.submit(&tasks).await;
        lab.ended(tasks.len(), PATIENCE).await;
        lab.until("all three sleep", PATIENCE, async || match lab.counts().await {
            counts if (counts.idle, counts.running) == (3, 0) => Ok(()),
            counts => Err(format!("{counts:?}")),
        })
        .await;
        Self { workers, watched, connections: connections(lab), tasks, watches: Vec::new() }
    }

    /// Hands in what outlives the beginning of any fault, what waits behind a limit, and what is handed out later.
    async fn take_work(&mut self, lab: &Lab) {
        let some = |n: usize, one: NewTask| {
            (0..n).map(move |_| NewTask { id: tidemill_common::name::TaskId::generate(), ..one.clone() })
        };
        let long = Payload::sleep(pick(700, 4_000));
        let mut tasks: Vec<NewTask> = some(6, long.task()).collect();
        tasks.extend(some(9, Payload::sleep(pick(300, 1_500)).task_of("slotted")));
        tasks.extend(some(5, Payload::sleep(1).task().delay(Duration::from_millis(pick(500, 3_000)))));
        lab.submit(&tasks).await;
        self.tasks.extend(tasks);
        let echo = some(3, NewTask::new("echo".parse().expect("a name"), "1"));
        lab.store().submit(&echo.collect::<Vec<_>>(), 0).await.expect("they are taken in");
        lab.until("some of all kinds run", PATIENCE, async || match lab.counts().await.running {
            n if n >= (6 + SLOTS) as u64 => Ok(()),
            n => Err(format!("{n} run")),
        })
        .await;
        self.watches = self.workers.iter().map(Watch::on).collect();
    }

    /// The fault lasts.
    async fn sits_it_out(&self, lab: &Lab) {
        self.watched.until_ready(lab, false).await;
        tokio::time::sleep(lasting()).await;
        assert!(!self.watched.ready(), "it does not take work, and says so");
        self.watches.iter().for_each(Watch::assert_calm);
    }

    /// The fault is over: all goes on as it was, without a restart.
    async fn goes_on(self, lab: Lab) {
        self.watched.until_ready(&lab, true).await;
        lab.ended(self.tasks.len() + 3, PATIENCE).await;
        as_before(&lab, &self.workers, self.connections).await;
        self.watches.iter().for_each(Watch::assert_calm);
        let log = self.workers[0].log() + &self.workers[1].log();
        assert!(log.contains("redis does not do as asked"), "what failed is told:\n{log}");
        let ledger = lab.ledger();
        assert_eq!(ledger.ended(End::Done), self.tasks.len(), "nothing is lost");
        assert!(ledger.all().all(|run| run.start.attempt == 1), "no attempt was counted");
        let mut slotted: Vec<_> = ledger.all().filter(|run| run.start.agent == "slotted").collect();
        slotted.sort_by_key(|run| run.start.at);
        for run in &slotted {
            // Ends are written in ms: what ends in the ms of a start was over before it.
            let over = |other: &&&tidemill_tests::lab::Run| other.end.is_some_and(|(_, at)| at > run.start.at);
            let at_once = slotted.iter().filter(|other| other.start.at <= run.start.at).filter(over).count();
            assert!(at_once <= SLOTS, "{at_once} of {SLOTS} ran at once");
        }
        self.watched.stop().await;
        lab.close_with_invariants().await;
    }
}

/// One try to hand a task in, on a connection of its own.
async fn at_once(lab: &Lab) -> Result<(), Error> {
    let options = RedisOptions {
        url: lab.server().url(),
        command_timeout_ms: 1_000,
        connect_timeout_ms: 1_000,
        retry_for_ms: 0,
        ..RedisOptions::default()
    };
    let store = Store::connect(&options).await?;
    let answer = store.submit(&[Payload::sleep(1).task()], 0).await;
    store.close().await;
    answer.map(|_| ())
}

/// A command that takes its time, on a connection of its own; says when it is over.
fn aside(lab: &Lab, command: &[&str]) -> Receiver<()> {
    let mut connection = Connection::open(lab.server().socket_path(), PATIENCE * 2).expect("a connection");
    let (say, over) = channel();
    let command: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
    std::thread::spawn(move || {
        let _ = connection.command(&command);
        let _ = say.send(());
    });
    over
}

/// The server refuses writes with this word.
async fn refuses(lab: &Lab, word: &str) {
    lab.until(&format!("it says {word}"), PATIENCE, async || match lab.raw(&["SET", "probe", "1"]) {
        Reply::Error(why) if why.starts_with(word) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
}
