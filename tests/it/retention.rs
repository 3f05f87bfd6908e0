//! How long the dead are kept.

use std::time::Duration;

use tidemill_common::keys::Base;
use tidemill_common::name::{AgentName, WorkerId};
use tidemill_common::state::State;
use tidemill_common::store::{Claim, Clock, Lease, Offer, RedisOptions, Settle, SettleItem, Store, Verb};
use tidemill_common::task::NewTask;
use tidemill_tests::server;

const DAY_US: u64 = 86_400_000_000;
/// More than a sweep drops at once.
const HELD: usize = 40;

/// Runs what waits, badly.
async fn all_die(store: &Store, worker: &WorkerId, agent: &AgentName) {
    for sequence in 1.. {
        let offers = [Offer { agent: agent.clone(), room: 100 }];
        let claim = Claim { worker, sequence, most: 100, lone: false, shares: [100; 4], offers: &offers };
        let deliveries = store.claim(&claim).await.unwrap().deliveries;
        if deliveries.is_empty() {
            return;
        }
        let dead = || Verb::Dead { error: "no".to_owned() };
        let item = |d: tidemill_common::store::Delivery| SettleItem::new(d.id, d.fence, dead());
        let items: Vec<SettleItem> = deliveries.into_iter().map(item).collect();
        store.settle(&Settle { worker, lane: 0, sequence, items: &items }).await.unwrap();
    }
}

#[tokio::test]
async fn the_held_do_not_keep_the_old_dead_from_leaving() {
    let server = server::start();
    let set_clock = |us: u64| server.command(&["SET", &format!("{}:clock", Base::new(0)), &us.to_string()]).unwrap();
    let began = 1_700_000_000_000_000;
    set_clock(began);
    let options = RedisOptions { url: server.url(), ..RedisOptions::default() };
    let store = Store::connect_with(&options, Clock::Key).await.unwrap();
    let (agent, worker): (AgentName, _) = ("a".parse().unwrap(), WorkerId::incarnate("w").unwrap());
    let lease = Lease {
        lease: Duration::from_secs(86_400 * 365),
        sweep_hold: Duration::from_secs(1),
        unknown_agent_after: Duration::ZERO,
    };
    store.renew(&worker, lease, Some(std::slice::from_ref(&agent)), true).await.unwrap();

    let task = || NewTask::new(agent.clone(), "1").max_attempts(1);
    let held: Vec<NewTask> =
        (0..HELD).map(|n| NewTask { hold_on_dead: true, ..task().order_key(format!("o{n}")) }).collect();
    store.submit(&held, 0).await.unwrap();
    all_die(&store, &worker, &agent).await;
    set_clock(began + 1_000_000);
    let other = WorkerId::incarnate("v").unwrap();
    store.renew(&other, lease, Some(std::slice::from_ref(&agent)), false).await.unwrap();
    let plain = task();
    store.submit(std::slice::from_ref(&plain), 0).await.unwrap();
    all_die(&store, &other, &agent).await;

    set_clock(began + 91 * DAY_US);
    store.sweep(&worker, lease).await.unwrap();
    let state = async |id| store.status(id, None).await.unwrap().state;
    assert_eq!(state(&plain.id).await, None, "it is dead for 91 days, and {HELD} held ones are older");
    for task in &held {
        assert_eq!(state(&task.id).await, Some(State::Dead), "it holds its order key");
    }
}
