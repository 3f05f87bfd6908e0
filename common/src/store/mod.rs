//! The store: every change of a task's state, each one script, each safe to send twice. The only module that knows the client.
//!
//! - *It guarantees* that a call either changed all that its script says or nothing that matters: an error before an answer leaves
//!   the caller free to send the very same call again ([`Error::is_transient`]), and a call that gave up can be repeated later.
//! - *It refuses* to guess: an answer of a form it does not know is an error, never a default.
//! - *On a crash* of this process between sending and reading, the script has run or not. Submit is known by its ids, claim and
//!   settle by the worker's sequence; what nobody asks for again is found by [`Store::own`] or [`Store::reclaim`].
//!
//! All methods are cancel safe in that sense: dropping the future may leave the script run, and calling again is the cure.

mod alter;
mod bell;
mod book;
mod claim;
mod connect;
mod error;
mod fleet;
mod inspect;
mod lease;
mod line;
mod operate;
mod output;
mod pause;
mod reconnect;
mod repair;
mod reply;
mod scan;
mod schedule;
mod script;
mod server;
mod settle;
mod submit;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fred::interfaces::{ClientLike, KeysInterface};
use fred::prelude::{Client, Value};

pub use alter::{ALTER_TASKS_MAX, Altered, Change, DeadDone, DeadVerb};
pub use bell::{Bell, Heard};
pub use book::{Applied, BookEdit, BookKept};
pub use claim::{Claim, Claimed, Delivery, Offer};
pub use connect::RedisOptions;
pub use error::{Error, Reason};
pub use fleet::{CONCURRENCY_MAX, Tuned, WorkerSeen};
pub use inspect::{Counts, Status};
pub use lease::{Lease, Owned, OwnedDelivery, Renewed, Swept};
pub use line::{GateSeen, LineSeen, WindowSeen};
pub use operate::Cancelled;
pub use output::{NewPiece, PIECE_BYTES_MAX, Piece, Tail};
pub use pause::{Pausable, Pause};
pub use scan::{Filter, Found, Page, Source};
pub use schedule::{Fired, Kept, ScheduleSet, Slot};
#[cfg(feature = "test-clock")]
pub use script::Edit;
pub use script::{Clock, Script, all_texts, script_of};
pub use server::ServerFacts;
pub use settle::{Settle, SettleItem, Settled, Verb};
pub use submit::{Accepted, SUBMIT_TASKS_MAX};

use crate::keys::Base;
use crate::name::TaskId;
use reconnect::Reconnect;
use script::Scripts;

/// The layout of keys that this build reads and writes.
pub const SCHEMA: u32 = 4;

/// A handle on one shard. Cheap to clone; clones share one connection.
#[derive(Clone)]
pub struct Store {
    client: Client,
    base: Base,
    scripts: Arc<Scripts>,
    retry_for: Duration,
    reconnects: Arc<AtomicU64>,
    reconnect: Arc<Reconnect>,
    options: RedisOptions,
    /// The version up to which envelopes are read.
    reads: u8,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("base", &self.base).field("options", &self.options).finish_non_exhaustive()
    }
}

impl Store {
    /// Connects, and checks that the server and the layout on it are ones we can work with.
    ///
    /// # Errors
    /// When it cannot be reached in time, is too old, evicts keys, or holds another layout.
    pub async fn connect(options: &RedisOptions) -> Result<Self, Error> {
        Self::connect_with(options, Clock::Server).await
    }

    /// As [`Self::connect`], with another clock: for tests.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub async fn connect_with(options: &RedisOptions, clock: Clock) -> Result<Self, Error> {
        Self::connect_scripts(options, Scripts::assemble(clock)).await
    }

    /// As [`Self::connect_with`] the clock key, with edited scripts.
    ///
    /// # Errors
    /// As [`Self::connect`]; [`Error::Settings`] when an edit meets no text.
    #[cfg(feature = "test-clock")]
    pub async fn connect_edited(options: &RedisOptions, edits: &[Edit]) -> Result<Self, Error> {
        let mut scripts = Scripts::assemble(Clock::Key);
        scripts.edit(edits).map_err(|e| Error::Settings(format!("no script has the text {:?}", e.from)))?;
        Self::connect_scripts(options, scripts).await
    }

    async fn connect_scripts(options: &RedisOptions, scripts: Scripts) -> Result<Self, Error> {
        let (client, reconnects) = connect::connect(options).await?;
        let store = Self {
            client,
            base: Base::new(options.shard),
            scripts: Arc::new(scripts),
            retry_for: Duration::from_millis(options.retry_for_ms),
            reconnects,
            reconnect: Arc::default(),
            options: options.clone(),
            reads: crate::envelope::VERSION,
        };
        if let Err(unfit) = store.check_server().await {
            // Or each try of somebody who waits for the server would leave a connection behind.
            let _ = tokio::time::timeout(Duration::from_secs(1), store.close()).await;
            return Err(unfit);
        }
        Ok(store)
    }

    /// As a later build, which reads later envelopes: for tests.
    #[cfg(feature = "test-clock")]
    #[must_use]
    pub fn reading(mut self, version: u8) -> Self {
        self.reads = version;
        self
    }

    /// The base of this shard's keys.
    #[must_use]
    pub fn base(&self) -> &Base {
        &self.base
    }

    /// How often the connection was made again.
    #[must_use]
    pub fn reconnects(&self) -> u64 {
        // The first connection counts as one as well.
        self.reconnects.load(Ordering::Relaxed).saturating_sub(1)
    }

    /// A payload that lies apart.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn payload(&self, id: &str) -> Result<Option<bytes::Bytes>, Error> {
        let key = self.base.payload(id);
        self.retrying(|| async { self.client.get(key.as_str()).await.map_err(|e| Error::of("payload", e)) }).await
    }

    /// A task's envelope as stored: see [`open`](crate::envelope::open); none once it has ended, unless it is dead.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn envelope(&self, id: &TaskId) -> Result<Option<bytes::Bytes>, Error> {
        let key = self.base.envelope(id.as_str());
        let found: Option<bytes::Bytes> = self
            .retrying(|| async { self.client.get(key.as_str()).await.map_err(|e| Error::of("envelope", e)) })
            .await?;
        Ok(found.filter(|bytes| bytes.first().is_some_and(|first| !first.is_ascii_lowercase())))
    }

    /// Closes the connection.
    pub async fn close(&self) {
        let _ = self.client.quit().await;
    }

    async fn call(&self, script: impl Fn(&Scripts) -> &Script, args: Vec<Value>) -> Result<Value, Error> {
        self.retrying(|| script(&self.scripts).run(&self.client, self.base.as_str(), args.clone())).await
    }

    /// Asks until there is an answer, a refusal, or no more time. That nothing was done is said only if it is so of every try.
    async fn retrying<T, F: Future<Output = Result<T, Error>>>(&self, ask: impl Fn() -> F) -> Result<T, Error> {
        let began = Instant::now();
        let (mut tries, mut lost) = (0, None);
        loop {
            let (answer, seen) = {
                let request = self.reconnect.request().await;
                (ask().await, *request)
            };
            let Err(error) = answer else { return answer };
            let left = self.retry_for.saturating_sub(began.elapsed());
            let again = error.is_transient() && !left.is_zero();
            if error.is_not_here() {
                self.look_again(seen, if again { left } else { Duration::ZERO }).await;
            }
            if !again {
                return Err(match error {
                    Error::NotNow { .. } | Error::Full => lost.unwrap_or(error),
                    error => error,
                });
            }
            tracing::debug!(%error, tries, "asking again");
            if matches!(error, Error::Unavailable { .. }) {
                lost = Some(error);
            }
            tokio::time::sleep(error::pause(tries)).await;
            tries += 1;
        }
    }

    /// Makes the connection anew, and waits for that at most so long.
    async fn look_again(&self, seen: u64, most: Duration) {
        let (client, reconnect) = (self.client.clone(), Arc::clone(&self.reconnect));
        let patience = Duration::from_millis(self.options.command_timeout_ms.max(1));
        let anew = tokio::spawn(async move { reconnect.again(&client, seen, patience).await });
        if !most.is_zero() {
            let _ = tokio::time::timeout(most, anew).await;
        }
    }
}
