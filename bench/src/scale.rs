//! Whether a task costs the same with a million others in the way.
//!
//! Two servers in one run: one with a thousand waiting tasks, one with `waiting` waiting, three tenths of that scheduled, a fifth in
//! one line, a twentieth pending under a dead worker. The same work goes through both in turn; the ratio is that of the lowest
//! quartiles of Redis CPU. Then the dead worker of the large one is reclaimed, and its slowest script of all is named, by its SLOWLOG:
//! filling it is part of that.

use std::time::Duration;

use anyhow::{Context as _, Result};
use tidemill_common::book::{Book, Mistake};
use tidemill_common::name::WorkerId;
use tidemill_common::store::{BookEdit, Claim, Lease, Offer, Settle, SettleItem, Store, Verb, script_of};
use tidemill_common::task::{NewTask, Priority};
use tidemill_embedded::Reply;

use crate::lab::Lab;

const BATCH: usize = 64;
const ROUND: usize = 64 * BATCH;

struct Side {
    lab: Lab,
    worker: WorkerId,
    dead: WorkerId,
    claims: u64,
    settles: u64,
}

fn tasks(n: usize, agent: &str) -> Result<Vec<NewTask>> {
    let agent: tidemill_common::name::AgentName = agent.parse()?;
    Ok((0..n).map(|_| NewTask::new(agent.clone(), vec![b'x'; 108])).collect())
}

async fn fill(store: &Store, n: usize, agent: &str, change: impl Fn(NewTask) -> NewTask) -> Result<()> {
    let mut left = n;
    while left > 0 {
        let some = left.min(20_000);
        let batch: Vec<_> = tasks(some, agent)?.into_iter().map(&change).collect();
        store.submit(&batch, 0).await?;
        left -= some;
    }
    Ok(())
}

fn offers() -> Result<[Offer; 3]> {
    Ok([
        Offer { agent: "noop".parse()?, room: 256 },
        Offer { agent: "lined".parse()?, room: 256 },
        Offer { agent: "doomed".parse()?, room: 256 },
    ])
}

impl Side {
    async fn start(waiting: usize) -> Result<Self> {
        let lab = Lab::start().await?;
        let worker = WorkerId::incarnate("scale")?;
        let lease = Lease {
            lease: Duration::from_secs(7_200),
            sweep_hold: Duration::from_secs(1),
            unknown_agent_after: Duration::ZERO,
        };
        lab.store.renew(&worker, lease, Some(&[]), false).await?;
        let dead = WorkerId::incarnate("dead")?;
        // All scripts of a millisecond and more.
        lab.command(&["CONFIG", "SET", "slowlog-log-slower-than", "1000", "slowlog-max-len", "100000"])?;
        Self { lab, worker, dead, claims: 0, settles: 0 }.filled(waiting).await
    }

    /// The dead worker's deliveries first, then the line, the schedule and the crowd.
    async fn filled(mut self, waiting: usize) -> Result<Self> {
        let store = self.lab.store.clone();
        let lease = Lease {
            lease: Duration::from_secs(7_200),
            sweep_hold: Duration::from_secs(1),
            unknown_agent_after: Duration::ZERO,
        };
        store.renew(&self.dead, lease, Some(&[]), false).await?;
        fill(&store, waiting / 20, "doomed", |t| t.priority(Priority::Urgent)).await?;
        let mut sequence = 0;
        loop {
            sequence += 1;
            let claim = Claim {
                worker: &self.dead,
                sequence,
                most: 256,
                lone: false,
                shares: [256, 0, 0, 0],
                offers: &offers()?[2..],
            };
            if store.claim(&claim).await?.deliveries.is_empty() {
                break;
            }
        }
        let book = Book::parse("revision = 1\n[[limit]]\nmatch = { agent = \"lined\" }\nslots = 1\n")
            .map_err(|e| anyhow::anyhow!(Mistake::listed(&e)))?;
        store.apply_book(&book.compile(), BookEdit::default()).await?;
        fill(&store, waiting / 5, "lined", |t| t.priority(Priority::Urgent)).await?;
        let mut parked = 0;
        while parked + 1 < (waiting / 5) as u64 {
            self.claims += 1;
            let claim = Claim {
                worker: &self.worker,
                sequence: self.claims,
                most: 256,
                lone: false,
                shares: [256, 0, 0, 0],
                offers: &offers()?[1..2],
            };
            store.claim(&claim).await?;
            parked = store.counts().await?.parked;
        }
        fill(&store, waiting * 3 / 10, "noop", |t| t.delay(Duration::from_secs(86_400))).await?;
        fill(&store, waiting, "noop", |t| t.priority(Priority::Low)).await?;
        Ok(self)
    }

    /// One round through all three scripts: Redis CPU a task in µs.
    async fn round(&mut self) -> Result<f64> {
        let store = self.lab.store.clone();
        let cpu = self.lab.cpu_us()?;
        let mut done = 0;
        for batch in tasks(ROUND, "noop")?.chunks(BATCH) {
            store.submit(batch, 0).await?;
            self.claims += 1;
            let most = u32::try_from(BATCH)?;
            let claim = Claim {
                worker: &self.worker,
                sequence: self.claims,
                most,
                lone: false,
                shares: [0, 0, most, 0],
                offers: &offers()?[..1],
            };
            let claimed = store.claim(&claim).await?;
            done += claimed.deliveries.len();
            let items: Vec<_> = claimed
                .deliveries
                .into_iter()
                .map(|d| SettleItem::new(d.id, d.fence, Verb::Done { result: "ok".into(), keep_ms: 120_000 }))
                .collect();
            self.settles += 1;
            store.settle(&Settle { worker: &self.worker, lane: 0, sequence: self.settles, items: &items }).await?;
        }
        anyhow::ensure!(done == ROUND, "{done} of {ROUND} came back");
        Ok((self.lab.cpu_us()? - cpu) / ROUND as f64)
    }

    /// The dead worker's lease ends, and all it had is taken back; how many that were.
    async fn bury(&self) -> Result<u64> {
        let lease = Lease {
            lease: Duration::from_millis(1),
            sweep_hold: Duration::from_secs(1),
            unknown_agent_after: Duration::ZERO,
        };
        self.lab.store.renew(&self.dead, lease, None, false).await?;
        tokio::time::sleep(Duration::from_millis(5)).await;
        let mut all = 0;
        loop {
            let (some, done) = self.lab.store.reclaim(&self.dead, 3).await?;
            all += some;
            if done {
                return Ok(all);
            }
        }
    }

    /// The slowest script and its µs; one faster than a millisecond does not show.
    fn slowest(&self) -> Result<(i64, &'static str)> {
        let log = self.lab.command(&["SLOWLOG", "GET", "-1"])?;
        let entries = log.as_array().context("SLOWLOG is a list")?;
        let script = |e: &Reply| {
            let (us, words) = (e.as_array()?.get(2)?.as_int()?, e.as_array()?.get(3)?.as_array()?);
            Some((us, script_of(words.get(1)?.as_str()?)?))
        };
        Ok(entries.iter().filter_map(script).max().unwrap_or((0, "none")))
    }
}

fn lowest_quartile(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 4]
}

pub(crate) async fn run(waiting: usize, pairs: usize) -> Result<()> {
    let mut small = Side::start(1_000).await?;
    let mut large = Side::start(waiting).await?;
    let (mut few, mut many) = (Vec::new(), Vec::new());
    for _ in 0..pairs.max(1) {
        few.push(small.round().await?);
        many.push(large.round().await?);
    }
    let (few, many) = (lowest_quartile(few), lowest_quartile(many));
    let reclaimed = large.bury().await?;
    let (slowest, name) = large.slowest()?;
    println!(
        "scale    {many:.1} us/task with {waiting} waiting, {few:.1} with 1000: ratio {:.3}; slowest script {slowest} us ({name}), {reclaimed} reclaimed",
        many / few
    );
    Ok(())
}
