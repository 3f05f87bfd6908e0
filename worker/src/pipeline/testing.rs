//! What the tests of the deciding parts share: a desk, and answers to claims.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidemill_common::envelope;
use tidemill_common::name::{Fence, TaskId};
use tidemill_common::store::{Claimed, Delivery, Error, Settled as How};
use tidemill_common::task::NewTask;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::Instant;

use super::claim::{Ask, Claims};
use super::crew::Crew;
use super::desk::Desk;
use super::stage::{Ended, Running, Settled};
use crate::handler::{Agent, Context, Outcome, Registry};

pub(crate) const MS: Duration = Duration::from_millis(1);

/// A desk for agents `a` (no bound of its own) and `b` (at most two at once).
pub(crate) fn desk(concurrency: u32, lone: bool) -> Desk {
    let handler = |_: Context| std::future::ready(Outcome::done(""));
    let b = Agent { handler: Arc::new(handler), concurrency: Some(2), timeout: MS };
    let registry = Registry::new().with("a".parse().unwrap(), handler).with_agent("b".parse().unwrap(), b);
    Desk::new(Arc::new(Crew::new(&registry)), concurrency, lone, unbounded_channel().0)
}

/// A delivery, with its envelope as the submit script would have stored it.
pub(crate) fn delivery(agent: &str, fence: u64) -> Delivery {
    let sealed = envelope::seal(&NewTask::new(agent.parse().unwrap(), "x")).unwrap();
    let mut stored = vec![0; envelope::SERVER_BYTES];
    stored[0] = envelope::VERSION;
    stored[envelope::SERVER_BYTES - 1] = u8::try_from(sealed.header.len()).unwrap();
    stored.extend(sealed.header.iter().chain(&sealed.body));
    Delivery { id: TaskId::generate(), fence: Fence(fence), attempt: 1, losses: 0, envelope: stored.into() }
}

pub(crate) fn claimed(deliveries: Vec<Delivery>, due_in: Option<u64>) -> Result<Claimed, Error> {
    Ok(Claimed {
        deliveries,
        now_ms: 1_000,
        next_due_ms: due_in.map_or(0, |ms| 1_000 + ms),
        lone_work: false,
        cut_short: false,
    })
}

/// Answers a claim with tasks of these agents, and opens them.
pub(crate) fn answer(
    claims: &mut Claims,
    desk: &mut Desk,
    ask: &Ask,
    agents: &[&str],
    due_in: Option<u64>,
    now: Instant,
) -> Vec<Running> {
    static FENCE: AtomicU64 = AtomicU64::new(1);
    let next = || FENCE.fetch_add(1, Ordering::Relaxed);
    let deliveries = agents.iter().map(|agent| delivery(agent, next())).collect();
    let answer = claims.answered(ask, claimed(deliveries, due_in), now);
    let runs = answer.deliveries.into_iter().map(|delivered| desk.open(delivered).unwrap()).collect();
    desk.opened(&ask.offers);
    runs
}

pub(crate) fn end(desk: &mut Desk, run: Running) {
    let fence = run.ticket.fence();
    let finished = run.ticket.finish(Ended::Cut, Vec::new());
    desk.finish(finished);
    desk.close(&Settled { fence, how: How::Done });
}

/// The answer to a claim that brings this delivery.
pub(crate) fn brings(fence: Fence) -> Result<Claimed, Error> {
    claimed(vec![delivery("a", fence.0)], None)
}
