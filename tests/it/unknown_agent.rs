//! Tasks for an agent that no worker knows.

use std::time::Duration;

use tidemill_common::history::DeadReason;
use tidemill_common::keys::Base;
use tidemill_common::name::{AgentName, WorkerId};
use tidemill_common::state::State;
use tidemill_common::store::{Claim, Clock, Lease, Offer, RedisOptions, Store};
use tidemill_common::task::NewTask;
use tidemill_tests::server;

const DAY: Duration = Duration::from_secs(86_400);
const LEASE: Lease =
    Lease { lease: Duration::from_secs(86_400 * 365), sweep_hold: Duration::from_secs(1), unknown_agent_after: DAY };

#[tokio::test]
async fn they_die_after_the_time_and_not_while_somebody_knows_it() {
    let server = server::start();
    let began = 1_700_000_000_000_000;
    let set_clock = |us: u64| server.command(&["SET", &format!("{}:clock", Base::new(0)), &us.to_string()]).unwrap();
    set_clock(began);
    let options = RedisOptions { url: server.url(), ..RedisOptions::default() };
    let store = Store::connect_with(&options, Clock::Key).await.unwrap();
    let (known, worker): (AgentName, _) = ("known".parse().unwrap(), WorkerId::incarnate("w").unwrap());
    store.renew(&worker, LEASE, Some(std::slice::from_ref(&known)), true).await.unwrap();

    let task = |agent: &str| NewTask::new(agent.parse().unwrap(), "1").key(format!("k-{agent}"));
    let (lost, fine) = (task("mispelt"), task("known"));
    store.submit(&[lost.clone(), fine.clone()], 0).await.unwrap();
    // The worker has no room for its own agent: both are parked.
    let offers = [Offer { agent: known.clone(), room: 0 }];
    let claim = Claim { worker: &worker, sequence: 1, most: 10, lone: false, shares: [10; 4], offers: &offers };
    assert!(store.claim(&claim).await.unwrap().deliveries.is_empty());

    let state = async |id| store.status(id, None).await.unwrap();
    store.sweep(&worker, LEASE).await.unwrap();
    set_clock(began + 86_399_000_000);
    store.sweep(&worker, LEASE).await.unwrap();
    assert_eq!(state(&lost.id).await.state, Some(State::Parked), "a second is left");
    set_clock(began + 86_400_000_000);
    store.sweep(&worker, LEASE).await.unwrap();
    let status = state(&lost.id).await;
    assert_eq!((status.state, status.reason), (Some(State::Dead), Some(DeadReason::UnknownAgent)), "{status:?}");
    assert!(status.error().contains("mispelt"), "{status:?}");
    assert_eq!(state(&fine.id).await.state, Some(State::Parked), "somebody knows its agent, and has no room");
    assert_eq!(store.counts().await.unwrap().deaths[&DeadReason::UnknownAgent], 1);
    // Nothing is remembered of an agent for which nobody waits.
    set_clock(began + 86_401_000_000);
    store.sweep(&worker, LEASE).await.unwrap();
    assert_eq!(server.command(&["EXISTS", &Base::new(0).key("nobody")]).unwrap().as_int(), Some(0));
}

/// Envelopes that were damaged while their tasks waited for an agent that nobody knows: put aside with the others' death, and not in
/// their way.
#[tokio::test]
async fn unreadable_ones_do_not_keep_others_from_dying() {
    let server = server::start();
    let began = 1_700_000_000_000_000;
    let base = Base::new(0);
    let set_clock = |us: u64| server.command(&["SET", &format!("{base}:clock"), &us.to_string()]).unwrap();
    set_clock(began);
    let options = RedisOptions { url: server.url(), ..RedisOptions::default() };
    let store = Store::connect_with(&options, Clock::Key).await.unwrap();
    let (known, worker): (AgentName, _) = ("known".parse().unwrap(), WorkerId::incarnate("w").unwrap());
    store.renew(&worker, LEASE, Some(std::slice::from_ref(&known)), true).await.unwrap();
    // More than are looked at in one sweep.
    let tasks: Vec<NewTask> = (0..50).map(|_| NewTask::new("mispelt".parse().unwrap(), "1")).collect();
    store.submit(&tasks, 0).await.unwrap();
    let offers = [Offer { agent: known, room: 0 }];
    for sequence in 1..=5 {
        let claim = Claim { worker: &worker, sequence, most: 10, lone: false, shares: [10; 4], offers: &offers };
        assert!(store.claim(&claim).await.unwrap().deliveries.is_empty());
    }
    let parked = server.command(&["ZCARD", &base.key("l:want:mispelt")]).unwrap().as_int();
    assert_eq!(parked, Some(50), "all are in line");
    let (damaged, fine) = tasks.split_at(33);
    for task in damaged {
        server.command(&["SET", &base.envelope(task.id.as_str()), "?"]).unwrap();
    }
    store.sweep(&worker, LEASE).await.unwrap();
    set_clock(began + 86_400_000_000);
    for _ in 0..4 {
        store.sweep(&worker, LEASE).await.unwrap();
    }
    for task in fine {
        let status = store.status(&task.id, None).await.unwrap();
        assert_eq!(status.reason, Some(DeadReason::UnknownAgent), "{status:?}");
    }
    for task in damaged {
        let status = store.status(&task.id, None).await.unwrap();
        assert_eq!((status.state, status.reason), (Some(State::Dead), Some(DeadReason::Invalid)), "{status:?}");
    }
    for key in ["l:want:mispelt", "park"] {
        assert_eq!(server.command(&["EXISTS", &base.key(key)]).unwrap().as_int(), Some(0), "{key} is empty");
    }
}
