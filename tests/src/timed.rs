//! A shard on a clock that the test sets, worked by one worker of which each step is called by hand.

use std::time::Duration;

use tidemill_common::book::Book;
use tidemill_common::keys::Base;
use tidemill_common::name::{AgentName, TaskId, WorkerId};
use tidemill_common::spend::Spend;
use tidemill_common::store::{
    Accepted, Applied, BookEdit, Claim, Claimed, Delivery, Edit, Lease, Offer, RedisOptions, Settle, SettleItem,
    Settled, Store, Verb,
};
use tidemill_common::task::NewTask;

use crate::server::{self, Server};

/// When the clock begins, server ms.
pub const BEGAN_MS: u64 = 1_700_000_000_000;
/// Longer than any test's time.
const LEASE: Lease = Lease {
    lease: Duration::from_secs(366 * 86_400),
    sweep_hold: Duration::from_secs(1),
    unknown_agent_after: Duration::ZERO,
};

/// The shard and its worker.
#[derive(Debug)]
pub struct Timed {
    /// The server.
    pub server: Server,
    /// The shard.
    pub store: Store,
    /// The worker.
    pub worker: WorkerId,
    agents: Vec<AgentName>,
    now_us: u64,
    claims: u64,
    settles: u64,
    revision: u64,
}

impl Timed {
    /// One whose worker runs these agents.
    ///
    /// # Panics
    /// When there is no server to be had.
    pub async fn new(agents: &[&str]) -> Self {
        Self::edited(agents, &[]).await
    }

    /// As [`Self::new`], with other texts in the scripts.
    ///
    /// # Panics
    /// When there is no server to be had, or an edit meets no text.
    pub async fn edited(agents: &[&str], edits: &[Edit]) -> Self {
        let server = server::start();
        let set = server.command(&["SET", &Base::new(0).key("clock"), &(BEGAN_MS * 1_000).to_string()]);
        assert!(set.is_ok(), "{set:?}");
        let options = RedisOptions { url: server.url(), ..RedisOptions::default() };
        let store = Store::connect_edited(&options, edits).await.expect("it connects");
        let worker = WorkerId::incarnate("w").expect("a name");
        let agents: Vec<AgentName> = agents.iter().map(|a| a.parse().expect("a name")).collect();
        store.renew(&worker, LEASE, Some(&agents), true).await.expect("it begins");
        Self { server, store, worker, agents, now_us: BEGAN_MS * 1_000, claims: 0, settles: 0, revision: 0 }
    }

    /// The same shard by another connection.
    ///
    /// # Panics
    /// When it cannot be made.
    pub async fn another_store(&self) -> Store {
        let options = RedisOptions { url: self.server.url(), ..RedisOptions::default() };
        Store::connect_edited(&options, &[]).await.expect("it connects")
    }

    /// ms since the beginning.
    pub fn at_ms(&self) -> u64 {
        self.now_us / 1_000 - BEGAN_MS
    }

    /// Sets the clock, in µs from the beginning.
    ///
    /// # Panics
    /// When the server does not answer.
    pub fn set_us(&mut self, us: u64) {
        self.now_us = BEGAN_MS * 1_000 + us;
        self.server.command(&["SET", &Base::new(0).key("clock"), &self.now_us.to_string()]).expect("it is set");
    }

    /// Sets the clock, in ms from the beginning.
    pub fn set_ms(&mut self, ms: u64) {
        self.set_us(ms * 1_000);
    }

    /// Puts limits in force: the text of a book without its revision.
    ///
    /// # Panics
    /// When it has mistakes or is not taken.
    pub async fn book(&mut self, limits: &str) {
        self.revision += 1;
        let text = format!("revision = {}\n{limits}", self.revision);
        let book = Book::parse(&text).unwrap_or_else(|e| panic!("{e:#?}"));
        let applied = self.store.apply_book(&book.compile(), BookEdit::default()).await.expect("it is sent");
        assert_eq!(applied, Applied::Applied);
    }

    /// Hands tasks in.
    ///
    /// # Panics
    /// When Redis does not answer.
    pub async fn submit(&self, tasks: &[NewTask]) -> Vec<Accepted> {
        self.store.submit(tasks, 0).await.expect("they are sent")
    }

    /// Asks for at most so many tasks.
    ///
    /// # Panics
    /// When Redis does not answer.
    pub async fn claim(&mut self, most: u32) -> Claimed {
        self.claims += 1;
        let offer = |agent: &AgentName| Offer { agent: agent.clone(), room: most };
        let offers: Vec<Offer> = self.agents.iter().map(offer).collect();
        let claim = Claim {
            worker: &self.worker,
            sequence: self.claims,
            most,
            lone: false,
            shares: [most; 4],
            offers: &offers,
        };
        self.store.claim(&claim).await.expect("it is answered")
    }

    /// Claims until nothing more is to be had now.
    pub async fn claim_all(&mut self) -> Vec<Delivery> {
        let mut all = Vec::new();
        loop {
            let claimed = self.claim(200).await;
            if claimed.deliveries.is_empty() && !claimed.cut_short {
                return all;
            }
            all.extend(claimed.deliveries);
        }
    }

    /// Ends deliveries well.
    ///
    /// # Panics
    /// When Redis does not answer.
    pub async fn done(&mut self, deliveries: &[Delivery]) -> Vec<Settled> {
        self.settle(deliveries, || Verb::Done { result: bytes::Bytes::new(), keep_ms: 0 }).await
    }

    /// Ends deliveries.
    ///
    /// # Panics
    /// When Redis does not answer.
    pub async fn settle(&mut self, deliveries: &[Delivery], verb: impl Fn() -> Verb) -> Vec<Settled> {
        self.settle_used(deliveries, verb, None).await
    }

    /// Ends deliveries, each of which has used so much.
    ///
    /// # Panics
    /// When Redis does not answer.
    pub async fn settle_used(
        &mut self,
        deliveries: &[Delivery],
        verb: impl Fn() -> Verb,
        used: Option<Spend>,
    ) -> Vec<Settled> {
        let mut settled = Vec::new();
        for batch in deliveries.chunks(200) {
            self.settles += 1;
            let item = |d: &Delivery| SettleItem { used, ..SettleItem::new(d.id.clone(), d.fence, verb()) };
            let items: Vec<SettleItem> = batch.iter().map(item).collect();
            let settle = Settle { worker: &self.worker, lane: 0, sequence: self.settles, items: &items };
            settled.extend(self.store.settle(&settle).await.expect("it is answered").0);
        }
        settled
    }

    /// The worker's lease runs out, and what it ran is taken back; another one begins in its place, and settles with its sequence.
    ///
    /// # Panics
    /// When Redis does not answer.
    pub async fn lose_worker(&mut self) {
        let lost = std::mem::replace(&mut self.worker, WorkerId::incarnate("w").expect("a name"));
        let score = ["ZADD", &Base::new(0).key("w"), "1", lost.as_str()];
        self.server.command(&score).expect("its lease is over");
        while !self.store.reclaim(&lost, 9).await.expect("it is answered").1 {}
        self.store.renew(&self.worker, LEASE, Some(&self.agents), true).await.expect("it begins");
    }

    /// The gate in whose line a task stands.
    ///
    /// # Panics
    /// When Redis does not answer.
    pub async fn gate_of(&self, id: &TaskId) -> Option<String> {
        self.store.status(id, None).await.expect("it is answered").gate
    }
}
