//! One call of the store as data, so that it can be made, made again, made late, and shown.

use std::fmt;
use std::time::Duration;

use tidemill_common::book::Book;
use tidemill_common::name::{AgentName, Fence, TaskId, WorkerId};
use tidemill_common::spend::Spend;
use tidemill_common::store::{
    Accepted, Altered, Applied, BookEdit, Cancelled, Change, Claim, Claimed, Counts, DeadDone, DeadVerb, Error, Lease,
    Offer, OwnedDelivery, Pausable, Renewed, Settle, SettleItem, Settled, Status, Store, Swept,
};
use tidemill_common::task::{Mode, NewTask};

/// How long the holder of the sweep may be silent, ms of the test clock.
pub const SWEEP_HOLD_MS: u64 = 2_000;

/// A call. Workers are named by their number.
#[derive(Debug, Clone)]
pub enum Call {
    Submit { tasks: Vec<NewTask>, most: u64 },
    Claim { worker: usize, seq: u64, most: u32, lone: bool, shares: [u32; 4], offers: Vec<Offer> },
    Settle { worker: usize, lane: u8, seq: u64, items: Vec<SettleItem> },
    Renew { worker: usize, lease_ms: u64, begin: Option<Vec<AgentName>>, may_sweep: bool },
    Sweep { worker: usize, lease_ms: u64 },
    Reclaim { worker: usize, poison: u32 },
    Own { worker: usize },
    Leave { worker: usize },
    Cancel { id: TaskId },
    Alter { tasks: Vec<(TaskId, Change)> },
    Dead { tasks: Vec<(TaskId, DeadVerb)> },
    Pause { what: Pausable, ms: u64 },
    Resume { what: Pausable },
    Book { book: Book },
    Status { id: TaskId, wake: Option<String> },
    Progress { items: Vec<(TaskId, Fence, String)> },
    Spend { items: Vec<(TaskId, Fence, Spend)> },
    Counts,
}

/// Its answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Submitted(Vec<Accepted>),
    Claimed(Claimed),
    Settled(Vec<Settled>, Vec<Accepted>),
    Renewed(Renewed),
    Swept(Swept),
    Reclaimed(u64, bool),
    Owned(Vec<OwnedDelivery>),
    Left(bool),
    Cancelled(Cancelled),
    Altered(Vec<Altered>),
    DeadDone(Vec<DeadDone>),
    Paused(bool),
    Applied(Applied),
    Status(Box<Status>),
    Progress(Vec<bool>),
    Counted(Box<Counts>),
    Gone,
    Stale,
    Failed(String),
}

fn lease(ms: u64) -> Lease {
    Lease {
        lease: Duration::from_millis(ms),
        sweep_hold: Duration::from_millis(SWEEP_HOLD_MS),
        unknown_agent_after: Duration::ZERO,
    }
}

impl Call {
    /// The script that it runs.
    pub fn script(&self) -> &'static str {
        match self {
            Self::Submit { .. } => "submit",
            Self::Claim { .. } => "claim",
            Self::Settle { .. } => "settle",
            Self::Renew { .. } => "renew",
            Self::Sweep { .. } => "sweep",
            Self::Reclaim { .. } => "reclaim",
            Self::Own { .. } => "own",
            Self::Leave { .. } => "leave",
            Self::Cancel { .. } => "cancel",
            Self::Alter { .. } => "alter",
            Self::Dead { .. } => "dead",
            Self::Pause { .. } | Self::Resume { .. } => "pause",
            Self::Book { .. } => "book",
            Self::Status { .. } => "status",
            Self::Progress { .. } => "progress",
            Self::Spend { .. } => "spend",
            Self::Counts => "counts",
        }
    }

    /// Makes it.
    pub async fn make(&self, store: &Store, names: &[WorkerId]) -> Answer {
        match self.ask(store, names).await {
            Ok(answer) => answer,
            Err(Error::Gone) => Answer::Gone,
            Err(Error::Stale) => Answer::Stale,
            Err(Error::Refused { op, source }) => Answer::Failed(format!("{op}: {source}")),
            Err(e) => Answer::Failed(format!("{e:?}")),
        }
    }

    async fn ask(&self, store: &Store, names: &[WorkerId]) -> Result<Answer, Error> {
        Ok(match self {
            Self::Submit { tasks, most } => Answer::Submitted(store.submit(tasks, *most).await?),
            Self::Claim { worker, seq, most, lone, shares, offers } => {
                let claim = Claim {
                    worker: &names[*worker],
                    sequence: *seq,
                    most: *most,
                    lone: *lone,
                    shares: *shares,
                    offers,
                };
                Answer::Claimed(store.claim(&claim).await?)
            }
            Self::Settle { worker, lane, seq, items } => {
                let settle = Settle { worker: &names[*worker], lane: *lane, sequence: *seq, items };
                let (settled, accepted) = store.settle(&settle).await?;
                Answer::Settled(settled, accepted)
            }
            Self::Renew { worker, lease_ms, begin, may_sweep } => {
                Answer::Renewed(store.renew(&names[*worker], lease(*lease_ms), begin.as_deref(), *may_sweep).await?)
            }
            Self::Sweep { worker, lease_ms } => Answer::Swept(store.sweep(&names[*worker], lease(*lease_ms)).await?),
            Self::Reclaim { worker, poison } => {
                let (n, done) = store.reclaim(&names[*worker], *poison).await?;
                Answer::Reclaimed(n, done)
            }
            Self::Own { worker } => own(store, &names[*worker]).await?,
            Self::Leave { worker } => Answer::Left(store.leave(&names[*worker]).await?),
            Self::Cancel { id } => Answer::Cancelled(store.cancel(id).await?),
            Self::Alter { tasks } => Answer::Altered(store.alter(tasks).await?),
            Self::Pause { what, ms } => {
                Answer::Paused(store.pause(what, (*ms > 0).then(|| Duration::from_millis(*ms)), "by hand").await?)
            }
            Self::Resume { what } => Answer::Paused(store.resume(what).await?),
            Self::Dead { tasks } => Answer::DeadDone(store.dead(tasks).await?),
            Self::Book { book } => Answer::Applied(store.apply_book(&book.compile(), BookEdit::default()).await?),
            Self::Status { id, wake } => Answer::Status(Box::new(store.status(id, wake.as_deref()).await?)),
            Self::Progress { items } => Answer::Progress(store.progress(items).await?),
            Self::Spend { items } => Answer::Progress(store.spend(items).await?),
            Self::Counts => Answer::Counted(Box::new(store.counts().await?)),
        })
    }
}

/// All pages of what a worker owns.
async fn own(store: &Store, worker: &WorkerId) -> Result<Answer, Error> {
    let mut all = Vec::new();
    let mut from = None;
    for _ in 0..1_000 {
        let page = store.own(worker, from.as_ref()).await?;
        all.extend(page.deliveries);
        if page.next.is_none() {
            return Ok(Answer::Owned(all));
        }
        from = page.next;
    }
    Ok(Answer::Failed("own: no end of pages".into()))
}

/// Payloads are left out.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Submit { tasks, most } => {
                write!(f, "submit most={most}")?;
                tasks.iter().try_for_each(|t| write!(f, " {}", shown(t)))
            }
            Self::Claim { worker, seq, most, lone, shares, offers } => {
                write!(
                    f,
                    "claim w{worker} seq={seq} most={most} shares={shares:?}{}",
                    if *lone { " lone" } else { "" }
                )?;
                offers.iter().try_for_each(|o| write!(f, " {}:{}", o.agent, o.room))
            }
            Self::Settle { worker, lane, seq, items } => {
                write!(f, "settle w{worker} lane={lane} seq={seq}")?;
                for i in items {
                    write!(f, " [{} {} {:?} {:?}", i.id, i.fence.0, i.verb, i.used)?;
                    i.follow_ups.iter().try_for_each(|t| write!(f, " + {}", shown(t)))?;
                    f.write_str("]")?;
                }
                Ok(())
            }
            Self::Book { book } => write!(f, "book {} {:?}", book.revision, book.compile().fields),
            other => write!(f, "{other:?}"),
        }
    }
}

fn shown(t: &NewTask) -> String {
    let mut text = format!("({} {} {} {:?}", t.id, t.queue, t.agent, t.priority);
    for (on, what) in [
        (!t.tenant.is_empty(), format!(" tenant={}", t.tenant)),
        (!t.delay.is_zero(), format!(" delay={:?}", t.delay)),
        (t.start_within.is_some(), format!(" within={:?}", t.start_within.unwrap_or_default())),
        (t.order_key.is_some(), format!(" order={}", t.order_key.clone().unwrap_or_default())),
        (t.max_age.is_some(), format!(" age={:?}", t.max_age.unwrap_or_default())),
        (t.mode != Mode::Reject, format!(" {:?}", t.mode)),
        (t.hold_on_dead, " hold".into()),
        (t.key.is_some(), format!(" key={}", t.key.clone().unwrap_or_default())),
        (t.cost != 1, format!(" cost={}", t.cost)),
        (!t.estimate.is_unknown(), format!(" {:?}", t.estimate)),
        (t.max_attempts != 3, format!(" max={}", t.max_attempts)),
        (t.depth != 0, format!(" depth={}", t.depth)),
        (t.payload.len() > 16, format!(" {} B", t.payload.len())),
    ] {
        if on {
            text.push_str(&what);
        }
    }
    text + ")"
}
