//! Whether a task costs the same with a million others in the way.
//!
//! Two servers in one run: one with a thousand waiting tasks, one with `waiting` waiting, three tenths of that scheduled, a fifth in
//! one line, a twentieth pending under a dead worker. The same work goes through both in turn; the ratio is that of the lowest
//! quartiles of Redis CPU. Then the slowest script of the large one, by its SLOWLOG.

use std::time::Duration;

use anyhow::{Context as _, Result};
use tidemill_common::book::Book;
use tidemill_common::name::WorkerId;
use tidemill_common::store::{Claim, Lease, Offer, Settle, SettleItem, Store, Verb};
use tidemill_common::task::{NewTask, Priority};

use crate::lab::Lab;

const BATCH: usize = 64;
const ROUND: usize = 64 * BATCH;

struct Side {
    lab: Lab,
    worker: WorkerId,
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
        let lease = Lease { lease: Duration::from_secs(7_200), sweep_hold: Duration::from_secs(1) };
        lab.store.renew(&worker, lease, Some(&[]), false).await?;
        Self { lab, worker, claims: 0, settles: 0 }.filled(waiting).await
    }

    /// The dead worker's deliveries first, then the line, the schedule and the crowd.
    async fn filled(mut self, waiting: usize) -> Result<Self> {
        let store = self.lab.store.clone();
        let dead = WorkerId::incarnate("dead")?;
        let lease = Lease { lease: Duration::from_secs(7_200), sweep_hold: Duration::from_secs(1) };
        store.renew(&dead, lease, Some(&[]), false).await?;
        fill(&store, waiting / 20, "doomed", |t| t.priority(Priority::Urgent)).await?;
        let mut sequence = 0;
        loop {
            sequence += 1;
            let claim = Claim {
                worker: &dead,
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
            .map_err(|e| anyhow::anyhow!(e.join("; ")))?;
        store.apply_book(&book.compile()).await?;
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
                .map(|d| SettleItem {
                    id: d.id,
                    fence: d.fence,
                    verb: Verb::Done { result: "ok".into(), keep_ms: 120_000 },
                    follow_ups: vec![],
                })
                .collect();
            self.settles += 1;
            store.settle(&Settle { worker: &self.worker, lane: 0, sequence: self.settles, items: &items }).await?;
        }
        anyhow::ensure!(done == ROUND, "{done} of {ROUND} came back");
        Ok((self.lab.cpu_us()? - cpu) / ROUND as f64)
    }

    fn slowest_us(&self) -> Result<i64> {
        let log = self.lab.command(&["SLOWLOG", "GET", "10"])?;
        let entries = log.as_array().context("SLOWLOG is a list")?;
        Ok(entries.iter().filter_map(|e| e.as_array()?.get(2)?.as_int()).max().unwrap_or(0))
    }
}

fn lowest_quartile(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 4]
}

pub(crate) async fn run(waiting: usize, pairs: usize) -> Result<()> {
    let mut small = Side::start(1_000).await?;
    let mut large = Side::start(waiting).await?;
    large.lab.command(&["CONFIG", "SET", "slowlog-log-slower-than", "1000"])?;
    let (mut few, mut many) = (Vec::new(), Vec::new());
    for _ in 0..pairs.max(1) {
        large.lab.command(&["SLOWLOG", "RESET"])?;
        few.push(small.round().await?);
        many.push(large.round().await?);
    }
    let (few, many) = (lowest_quartile(few), lowest_quartile(many));
    println!(
        "scale    {many:.1} us/task with {waiting} waiting, {few:.1} with 1000: ratio {:.3}; slowest script {} us",
        many / few,
        large.slowest_us()?
    );
    Ok(())
}
