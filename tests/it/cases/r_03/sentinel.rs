//! R-03 with Sentinel: all know the sentinels' address alone, and find the new primary there.
//!
//! The primary is one that refuses writes without a replica (`min-replicas-to-write`), as docs/redis-keys.md says: else it would go on
//! taking tasks in, for seconds, that nobody will know of.

use std::time::Duration;

use tidemill_common::store::{RedisOptions, Store};
use tidemill_common::task::NewTask;
use tidemill_tests::lab::profile::{count, pick};
use tidemill_tests::lab::{End, Lab, Payload, WorkerProcess};
use tidemill_tests::program::Program;
use tidemill_tests::sentinel::Sentinels;
use tidemill_tests::server::{self, Options, Server, Tcp};
use tidemill_tests::watch::Watch;

use super::super::PATIENCE;
use super::{all_done, hand_in, in_step};

/// A primary, its replica (the lab's server), sentinels, two workers with their hands full, and a producer that tries once.
struct Fleet {
    lab: Lab,
    primary: Server,
    sentinels: Sentinels,
    workers: [WorkerProcess; 2],
    watches: [Watch; 2],
    producer: Store,
    tasks: Vec<NewTask>,
}

impl Fleet {
    async fn gather() -> Self {
        // The lab's own server is the replica, which is asked in the end.
        let lab = Lab::with(Options::new().tcp(Tcp::Free)).await;
        let options = ["repl-diskless-sync-delay 0", "min-replicas-to-write 1"];
        let options = options.into_iter().fold(Options::new().tcp(Tcp::Free), Options::config_line);
        let primary = server::start_with(options);
        let port = primary.port().expect("a port").to_string();
        assert_eq!(lab.raw(&["REPLICAOF", "127.0.0.1", &port]).as_error(), None);
        lab.until("the replica has all", PATIENCE, async || in_step(&lab, &primary)).await;
        let sentinels = Sentinels::start(pick(1, 3), &primary);
        lab.until("the sentinels know it", PATIENCE, async || sentinels.know(lab.server())).await;

        let url = sentinels.url();
        let workers = ["w1", "w2"].map(|name| {
            let mut setup = lab.setup(name);
            setup.redis.url.clone_from(&url);
            lab.start(setup)
        });
        let producer = Store::connect(&RedisOptions { url, retry_for_ms: 0, ..RedisOptions::default() }).await;
        let producer = producer.expect("a producer");
        let first = lab.tasks(count(200), Payload::sleep(2));
        hand_in(&lab, &producer, &first).await;
        lab.until("the first have run", PATIENCE, async || match lab.ledger().ended(End::Done) {
            n if n == first.len() => Ok(()),
            n => Err(format!("{n} have")),
        })
        .await;
        let watches = workers.each_ref().map(Watch::on);

        // Long ones in hand, others behind them, and the replica knows all of it.
        let rest =
            [lab.tasks(8, Payload::sleep(pick(2_500, 8_000))), lab.tasks(count(200), Payload::sleep(5))].concat();
        hand_in(&lab, &producer, &rest).await;
        lab.until("both have their hands full", PATIENCE, async || {
            let ledger = lab.ledger();
            let full = workers.iter().all(|w| ledger.running(w.pid()).count() == 4);
            if full { in_step(&lab, &primary) } else { Err("not yet".into()) }
        })
        .await;
        Self { tasks: [first, rest].concat(), lab, primary, sentinels, workers, watches, producer }
    }

    /// Hands in one task after another until the new primary has taken in so many: after the first error, or when the old one is
    /// dead. Those of the old one count if the replica has them: what a failover forgets had not reached the new one.
    async fn goes_on_handing_in(&mut self, after: usize) {
        let (mut renewed, mut taken_in) = (self.primary.pid().is_none(), 0);
        while taken_in < after {
            let task = self.lab.tasks(1, Payload::sleep(1));
            match tokio::time::timeout(PATIENCE, self.producer.submit(&task, 0)).await.expect("an answer, good or bad")
            {
                Ok(_) if !renewed && in_step(&self.lab, &self.primary).is_err() => continue,
                Ok(_) => taken_in += usize::from(renewed),
                Err(error) => {
                    assert!(error.is_transient(), "said to be worth another try: {error:?}");
                    renewed = true;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
            }
            self.lab.accepted(task.iter().map(|task| task.id.clone()));
            self.tasks.extend(task);
        }
    }

    /// All have run with success, by the workers that were there before.
    async fn all_is_well(self) {
        let Self { lab, sentinels, workers, watches, producer, tasks, .. } = self;
        assert_eq!(Some(sentinels.primary()), lab.server().port(), "the replica is the primary now");
        lab.until("all have run", PATIENCE, async || match lab.ledger().ended(End::Done) {
            n if n >= tasks.len() => Ok(()),
            n => Err(format!("{n} of {} have", tasks.len())),
        })
        .await;
        watches.iter().for_each(Watch::assert_calm);
        assert!(workers.iter().all(|worker| worker.ended().is_none()), "nobody has ended");
        lab.ended(tasks.len(), PATIENCE).await;
        all_done(&lab, &tasks);
        let ended = lab.counts().await.ended;
        let bad = ["dead", "cancelled", "expired", "quarantined"].map(|how| ended.get(how).copied().unwrap_or(0));
        assert_eq!(bad, [0; 4], "with success alone: {ended:?}");
        // The program as well, which knows the sentinels alone.
        let url = sentinels.url();
        let done = Program::run("producer", &["status", tasks[0].id.as_str()], &[("TIDEMILL__REDIS__URL", &url)]).await;
        assert!(done.code == Some(0) && done.out.contains("done"), "{done:?}");
        producer.close().await;
        lab.close_with_invariants().await;
    }
}

/// An operator says SENTINEL FAILOVER.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_fails_over() {
    let mut fleet = Fleet::gather().await;
    fleet.sentinels.fail_over();
    fleet.goes_on_handing_in(20).await;
    fleet.all_is_well().await;
}

/// The primary dies, and the sentinels see it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_fail_over() {
    let mut fleet = Fleet::gather().await;
    fleet.primary.kill().expect("it dies");
    fleet.goes_on_handing_in(20).await;
    fleet.all_is_well().await;
}
