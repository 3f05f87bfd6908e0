//! Redis CPU a task for submit, claim and settle at several batch sizes: the numbers of ADR 1.
use std::time::Duration;
use fred::prelude::*;
use tidemill_common::name::WorkerId;
use tidemill_common::store::{Claim, Lease, Offer, RedisOptions, Settle, SettleItem, Store, Verb};
use tidemill_common::task::NewTask;
async fn cpu(c: &Client) -> f64 {
    let info: String = c.info(Some(fred::types::InfoKind::Cpu)).await.unwrap();
    info.lines().filter_map(|l| l.strip_prefix("used_cpu_sys_main_thread:").or(l.strip_prefix("used_cpu_user_main_thread:"))).map(|v| v.trim().parse::<f64>().unwrap()).sum()
}
#[tokio::main]
async fn main() {
    let url = std::env::args().nth(1).unwrap();
    let rounds: usize = std::env::args().nth(2).map_or(5, |r| r.parse().unwrap());
    let only: Option<u32> = std::env::args().nth(3).map(|b| b.parse().unwrap());
    let s = Store::connect(&RedisOptions { url: url.clone(), ..Default::default() }).await.unwrap();
    let c = Builder::from_config(Config::from_url(&url).unwrap()).build().unwrap();
    c.init().await.unwrap();
    let phases: u32 = std::env::args().nth(4).map_or(3, |b| b.parse().unwrap());
    if only.is_none() { bare(&c).await; }
    let w = WorkerId::incarnate("cost").unwrap();
    s.renew(&w, Lease { lease: Duration::from_secs(3600), sweep_hold: Duration::from_secs(1) }, Some(&[]), false).await.unwrap();
    let (mut cs, mut ss) = (0, 0);
    for batch in [1_u32, 16, 64, 256].into_iter().filter(|b| only.is_none_or(|o| o == *b)) {
        let n = if batch == 1 { 2048 } else { 8192 };
        let mut best = [f64::MAX; 3];
        for _ in 0..rounds {
            let tasks: Vec<_> = (0..n).map(|_| NewTask::new("noop".parse().unwrap(), vec![b'x'; 200])).collect();
            let t0 = cpu(&c).await;
            for b in tasks.chunks(batch as usize) { s.submit(b, 0).await.unwrap(); }
            let t1 = cpu(&c).await;
            if phases < 2 { continue; }
            let mut all = Vec::new();
            while all.len() < n {
                cs += 1;
                let k = s.claim(&Claim { worker: &w, sequence: cs, most: batch, lone: false, shares: [batch, 0, 0, 0], offers: &[Offer { agent: "noop".parse().unwrap(), room: batch }] }).await.unwrap();
                assert!(!k.deliveries.is_empty());
                all.extend(k.deliveries);
            }
            let t2 = cpu(&c).await;
            if phases < 3 { continue; }
            for b in all.chunks(batch as usize) {
                ss += 1;
                let items: Vec<_> = b.iter().map(|d| SettleItem { id: d.id.clone(), fence: d.fence, verb: Verb::Done { result: vec![b'r'; 120].into(), keep_ms: 120_000 }, follow_ups: vec![] }).collect();
                s.settle(&Settle { worker: &w, lane: 0, sequence: ss, items: &items }).await.unwrap();
            }
            let t3 = cpu(&c).await;
            for (b, v) in best.iter_mut().zip([t1 - t0, t2 - t1, t3 - t2]) { *b = b.min(v * 1e6 / n as f64); }
        }
        println!("batch {batch:>3}: submit {:.1} claim {:.1} settle {:.1} sum {:.1} us/task", best[0], best[1], best[2], best.iter().sum::<f64>());
    }
}

/// The floor: XADD, XREADGROUP, XACK, XDEL of 200 bytes in batches of 64, pipelined.
async fn bare(c: &Client) {
    let _: Result<(), _> = c.custom(fred::types::CustomCommand::new_static("XGROUP", None, false), vec!["CREATE", "bare", "g", "0", "MKSTREAM"]).await;
    let x = |name: &'static str| fred::types::CustomCommand::new_static(name, None, false);
    let mut best = f64::MAX;
    for _ in 0..5 {
        let t0 = cpu(c).await;
        for _ in 0..128 {
            let p = c.pipeline();
            for _ in 0..64 { let _: () = p.custom(x("XADD"), vec!["bare".to_string(), "*".into(), "f".into(), "x".repeat(200)]).await.unwrap(); }
            let ids: Vec<String> = p.all().await.unwrap();
            let _: Value = c.custom(x("XREADGROUP"), vec!["GROUP", "g", "c", "COUNT", "64", "STREAMS", "bare", ">"]).await.unwrap();
            let mut a = vec!["bare".to_string(), "g".into()]; a.extend(ids.clone());
            let mut d = vec!["bare".to_string()]; d.extend(ids);
            let _: Value = c.custom(x("XACK"), a).await.unwrap();
            let _: Value = c.custom(x("XDEL"), d).await.unwrap();
        }
        best = best.min((cpu(c).await - t0) * 1e6 / 8192.0);
    }
    println!("bare, batch 64: {best:.1} us/task");
}
