//! Redis CPU a task for submit, claim and settle at several batch sizes, beside the bare stream commands: the figures of ADR 1.

use std::time::Duration;

use anyhow::Result;
use tidemill_common::name::WorkerId;
use tidemill_common::store::{Claim, Lease, Offer, Settle, SettleItem, Verb};
use tidemill_embedded::Reply;

use crate::lab::{Lab, task};

/// Tasks a round.
const ROUND: usize = 8_192;

/// The lowest of `rounds`, each phase by itself: what is left when nothing disturbs.
pub(crate) async fn run(rounds: usize) -> Result<()> {
    println!("bare     batch  64: {:.1} us/task for XADD, XREADGROUP, XACK and XDEL", bare(rounds).await?);
    let lab = Lab::start().await?;
    let worker = WorkerId::incarnate("cost")?;
    let lease = Lease {
        lease: Duration::from_secs(3_600),
        sweep_hold: Duration::from_secs(1),
        unknown_agent_after: Duration::ZERO,
    };
    lab.store.renew(&worker, lease, Some(&[]), false).await?;
    let (mut claims, mut settles) = (0, 0);
    for batch in [1_u32, 16, 64, 256] {
        let n = if batch == 1 { ROUND / 4 } else { ROUND };
        let mut best = [f64::MAX; 3];
        for _ in 0..rounds {
            let tasks: Vec<_> = (0..n).map(|_| task()).collect();
            let mut marks = vec![lab.cpu_us()?];
            for some in tasks.chunks(batch as usize) {
                lab.store.submit(some, 0).await?;
            }
            marks.push(lab.cpu_us()?);
            let mut deliveries = Vec::with_capacity(n);
            while deliveries.len() < n {
                claims += 1;
                let offers = [Offer { agent: "noop".parse()?, room: batch }];
                let claim = Claim {
                    worker: &worker,
                    sequence: claims,
                    most: batch,
                    lone: false,
                    shares: [batch; 4],
                    offers: &offers,
                };
                deliveries.extend(lab.store.claim(&claim).await?.deliveries);
            }
            marks.push(lab.cpu_us()?);
            for some in deliveries.chunks(batch as usize) {
                settles += 1;
                let verb = Verb::Done { result: vec![b'r'; 120].into(), keep_ms: 120_000 };
                let item = |d: &tidemill_common::store::Delivery| SettleItem::new(d.id.clone(), d.fence, verb.clone());
                let items: Vec<_> = some.iter().map(item).collect();
                lab.store.settle(&Settle { worker: &worker, lane: 0, sequence: settles, items: &items }).await?;
            }
            marks.push(lab.cpu_us()?);
            for (best, pair) in best.iter_mut().zip(marks.windows(2)) {
                *best = best.min((pair[1] - pair[0]) / n as f64);
            }
        }
        let [submit, claim, settle] = best;
        println!(
            "cost     batch {batch:>3}: submit {submit:.1} claim {claim:.1} settle {settle:.1}, together {:.1} us/task",
            submit + claim + settle
        );
    }
    Ok(())
}

/// The floor that any queue on streams stands on.
async fn bare(rounds: usize) -> Result<f64> {
    let lab = Lab::start().await?;
    lab.command(&["XGROUP", "CREATE", "bare", "g", "0", "MKSTREAM"])?;
    let mut connection = lab.server.connect()?;
    let payload = "x".repeat(200);
    let mut best = f64::MAX;
    for _ in 0..rounds {
        let before = lab.cpu_us()?;
        for _ in 0..ROUND / 64 {
            for _ in 0..64 {
                connection.send(&["XADD", "bare", "*", "f", &payload])?;
            }
            let mut ids = Vec::with_capacity(64);
            for _ in 0..64 {
                let Reply::Bulk(id) = connection.read_reply()? else { anyhow::bail!("XADD answers with an id") };
                ids.push(String::from_utf8(id)?);
            }
            connection.command(&["XREADGROUP", "GROUP", "g", "c", "COUNT", "64", "STREAMS", "bare", ">"])?;
            let words = |head: &[&str]| -> Vec<String> {
                head.iter().map(|w| (*w).to_owned()).chain(ids.iter().cloned()).collect()
            };
            connection.command(&words(&["XACK", "bare", "g"]))?;
            connection.command(&words(&["XDEL", "bare"]))?;
        }
        best = best.min((lab.cpu_us()? - before) / ROUND as f64);
    }
    Ok(best)
}
