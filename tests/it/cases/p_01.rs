//! P-01: builds of two versions work on one queue.
//!
//! The later build's tasks are envelopes of a version that this build does not know, with a field more in their header. This build's
//! scripts move them about; its workers leave them to the later one's, at no attempt's cost, and nothing of them changes.

use std::time::Duration;

use tidemill_common::envelope::SERVER_BYTES;
use tidemill_common::name::{AgentName, TaskId, WorkerId};
use tidemill_common::state::State;
use tidemill_common::store::{Accepted, Cancelled, Claim, Delivery, Lease, Offer, Settle, SettleItem, Store, Verb};
use tidemill_common::task::NewTask;
use tidemill_tests::timed::Timed;

/// What the later version has at the end of its header.
const UNKNOWN: &[u8] = b"a field of tomorrow";

fn task() -> NewTask {
    NewTask::new("a".parse().unwrap(), "1")
}

/// Hands a task in as the later build would.
async fn later(t: &Timed, task: &NewTask) -> Vec<u8> {
    assert_eq!(t.submit(std::slice::from_ref(task)).await, [Accepted::New(task.id.clone())]);
    let key = t.store.base().envelope(task.id.as_str());
    let mut envelope = t.server.command(&["GET", &key]).unwrap().as_bytes().unwrap().to_vec();
    let header = usize::from(u16::from_be_bytes([envelope[SERVER_BYTES - 2], envelope[SERVER_BYTES - 1]]));
    envelope[0] = 2;
    envelope.splice(SERVER_BYTES + header..SERVER_BYTES + header, UNKNOWN.iter().copied());
    let length = u16::try_from(header + UNKNOWN.len()).unwrap().to_be_bytes();
    envelope[SERVER_BYTES - 2..SERVER_BYTES].copy_from_slice(&length);
    t.server.command(&[b"SET", key.as_bytes(), &envelope]).unwrap();
    envelope
}

/// A worker of the later build.
struct Later {
    store: Store,
    worker: WorkerId,
    agent: AgentName,
    sequence: u64,
}

impl Later {
    async fn begin(t: &Timed) -> Self {
        let (store, worker) = (t.store.clone().reading(2), WorkerId::incarnate("later").unwrap());
        let agent: AgentName = "a".parse().unwrap();
        let hour = Duration::from_secs(3_600);
        let lease = Lease { lease: hour, sweep_hold: hour, unknown_agent_after: Duration::ZERO };
        store.renew(&worker, lease, Some(std::slice::from_ref(&agent)), false).await.unwrap();
        Self { store, worker, agent, sequence: 0 }
    }

    async fn claim(&mut self) -> Vec<Delivery> {
        self.sequence += 1;
        let offers = [Offer { agent: self.agent.clone(), room: 9 }];
        let (worker, sequence) = (&self.worker, self.sequence);
        let claim = Claim { worker, sequence, most: 9, lone: false, shares: [9; 4], offers: &offers };
        self.store.claim(&claim).await.unwrap().deliveries
    }

    async fn settle(&mut self, delivery: &Delivery, verb: Verb) {
        self.sequence += 1;
        let items = [SettleItem::new(delivery.id.clone(), delivery.fence, verb)];
        let settle = Settle { worker: &self.worker, lane: 0, sequence: self.sequence, items: &items };
        self.store.settle(&settle).await.unwrap();
    }
}

fn ids(deliveries: &[Delivery]) -> Vec<&TaskId> {
    deliveries.iter().map(|d| &d.id).collect()
}

#[tokio::test]
async fn what_a_later_build_handed_in_waits_for_one() {
    let mut t = Timed::new(&["a"]).await;
    let (new, old, delayed) = (task(), task(), task().delay(Duration::from_secs(60)));
    let envelope = later(&t, &new).await;
    later(&t, &delayed).await;
    t.submit(std::slice::from_ref(&old)).await;

    let got = t.claim_all().await;
    assert_eq!(ids(&got), [&old.id], "each its own");
    t.done(&got).await;
    let status = t.store.status(&new.id, None).await.unwrap();
    assert_eq!((status.state, status.gate.as_deref(), status.attempt), (Some(State::Parked), Some("want:@2"), 0));
    // Two deployments of the old build later it is still there; the delayed one is promoted, and not early.
    t.set_ms(59_999);
    assert!(t.claim_all().await.is_empty());
    assert_eq!(t.store.status(&delayed.id, None).await.unwrap().state, Some(State::Scheduled));
    t.set_ms(60_000);
    assert!(t.claim_all().await.is_empty());
    assert_eq!(t.gate_of(&delayed.id).await.as_deref(), Some("want:@2"));

    let mut worker = Later::begin(&t).await;
    let got = worker.claim().await;
    assert_eq!(ids(&got), [&new.id, &delayed.id]);
    assert_eq!(got[0].envelope[1..5], envelope[1..5], "its generation");
    assert_eq!((got[0].attempt, &got[0].envelope[..]), (1, &envelope[..]));
    worker.settle(&got[0], Verb::Retry { error: "once".into(), after_ms: 1 }).await;
    worker.settle(&got[1], Verb::Done { result: "ok".into(), keep_ms: 0 }).await;

    // What failed is due, and the old build promotes it: with the field that it does not know.
    t.set_ms(60_010);
    assert!(t.claim_all().await.is_empty());
    let got = worker.claim().await;
    assert_eq!((ids(&got), got[0].attempt), (vec![&new.id], 2));
    assert!(got[0].envelope.windows(UNKNOWN.len()).any(|bytes| bytes == UNKNOWN));
    worker.settle(&got[0], Verb::Release).await;
    assert_eq!(worker.claim().await.len(), 1, "handed back, and taken again by the same");
}

/// The later build is taken back: what it left waits, does not keep others waiting, and can be called off.
#[tokio::test]
async fn after_a_rollback_the_rest_goes_on() {
    let mut t = Timed::new(&["a"]).await;
    t.book("[[limit]]\nslots = 1\n").await;
    let (new, old) = (task(), task());
    later(&t, &new).await;
    t.submit(std::slice::from_ref(&old)).await;
    let got = t.claim_all().await;
    assert_eq!(ids(&got), [&old.id], "the slot is not kept for one that nobody can run");
    t.done(&got).await;
    assert_eq!(t.store.cancel(&new.id).await.unwrap(), Cancelled::Now(State::Parked));
    assert_eq!(
        t.server.command(&["EXISTS", &t.store.base().key("l:want:@2"), &t.store.base().key("wants")]).unwrap().as_int(),
        Some(0)
    );
}
