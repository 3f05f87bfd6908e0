//! Requests: one script each, sent by a small task that comes back as an event, in the life in which it was sent.
//!
//! Claims and settles are sent again, the very same, until they are answered. The others are not: each has its own time to be tried
//! again, and a renewal has to know which try was answered.

use std::sync::Arc;

use tidemill_common::store::{self, Claim, Claimed, Settle};
use tidemill_common::{envelope, trace};
use tokio::time::Instant;
use tracing::{Instrument as _, Span};

use super::claim::Ask;
use super::settle::Batch;
use super::stop::Phase;
use super::{Event, Pipeline};
use crate::detect::Detectors;
use crate::sweep::Sweep;
use crate::trouble::pause;

impl Pipeline {
    /// Sends a request of this life.
    pub(super) fn ask(&self, request: impl Future<Output = Event> + Send + 'static) {
        let (scope, tell) = (self.scope.clone(), self.tell.clone());
        self.tracker.spawn(async move {
            if let Some(event) = scope.run_until_cancelled_owned(request).await {
                let _ = tell.send(event);
            }
        });
    }

    pub(super) fn renew(&self, sent: Instant) {
        let (store, id, life, trouble) =
            (Arc::clone(&self.store), self.id.clone(), self.desk.life(), Arc::clone(&self.trouble));
        let begin = (!self.lease.has_begun()).then(|| self.crew.names());
        let (lease, may_sweep) = (self.lease_times(), !self.options.lone && self.phase == Phase::Serving);
        self.ask(async move {
            let answer = store.renew(&id, lease, begin.as_deref(), may_sweep).await;
            if let Err(error) = &answer {
                trouble.tell("renew", error);
            }
            Event::Renewed(life, sent, answer)
        });
    }

    fn lease_times(&self) -> store::Lease {
        store::Lease {
            lease: self.options.lease,
            sweep_hold: self.options.sweep * 2,
            unknown_agent_after: self.options.unknown_agent_after,
        }
    }

    pub(super) fn claim(&self, ask: Ask, began: Instant) {
        let (store, id, life, trouble) =
            (Arc::clone(&self.store), self.id.clone(), self.desk.life(), Arc::clone(&self.trouble));
        self.ask(async move {
            let claim = Claim {
                worker: &id,
                sequence: ask.sequence,
                most: ask.most,
                lone: ask.lone,
                shares: ask.shares,
                offers: &ask.offers,
            };
            let span = trace::claim();
            let answer = trouble.persist("claim", || store.claim(&claim)).instrument(span.clone()).await;
            if let Ok(claimed) = &answer {
                tell_of(&span, claimed);
            }
            if let Err(error) = &answer {
                trouble.tell("claim", error);
            }
            Event::Claimed(life, ask, answer, began)
        });
    }

    pub(super) fn settle(&self, batch: Batch) {
        let (store, id, life, trouble) =
            (Arc::clone(&self.store), self.id.clone(), self.desk.life(), Arc::clone(&self.trouble));
        let span = trace::settle(batch.items.len());
        for item in batch.items.iter().filter(|_| !span.is_disabled()) {
            trace::link(&span, self.desk.traced(item.fence));
        }
        self.ask(async move {
            let settle = Settle { worker: &id, lane: batch.lane, sequence: batch.sequence, items: &batch.items };
            let answer = trouble.persist("settle", || store.settle(&settle)).instrument(span).await;
            if let Err(error) = &answer {
                trouble.tell("settle", error);
            }
            Event::Settled(life, batch.lane, answer)
        });
    }

    pub(super) fn page_own(&self) {
        let (store, id, life, trouble) =
            (Arc::clone(&self.store), self.id.clone(), self.desk.life(), Arc::clone(&self.trouble));
        self.ask(async move {
            let mut all = Vec::new();
            let mut from = None;
            loop {
                match store.own(&id, from.as_ref()).await {
                    Ok(page) => {
                        all.extend(page.deliveries);
                        from = page.next;
                    }
                    Err(error) => {
                        trouble.tell("own", &error);
                        return Event::Owned(life, None);
                    }
                }
                if from.is_none() {
                    return Event::Owned(life, Some(all));
                }
            }
        });
    }

    pub(super) fn nudge(&self) {
        let Some(list) = self.ear.listens_as().cloned() else { return };
        let (store, trouble, tell) = (Arc::clone(&self.store), Arc::clone(&self.trouble), self.tell.clone());
        // Of no life: the read to be ended may be one of the life before.
        self.tracker.spawn(async move {
            if let Err(error) = store.nudge(list.as_str()).await {
                trouble.tell("nudge", &error);
                tokio::time::sleep(pause(3)).await;
                let _ = tell.send(Event::NotNudged);
            }
        });
    }

    /// Sweeps for as long as this life lasts, whenever this worker holds the sweep.
    pub(super) fn begin_sweep(&self) {
        let sweep = Sweep {
            store: Arc::clone(&self.store),
            me: self.id.clone(),
            lease: self.lease_times(),
            every: self.options.sweep,
            poison_after: self.options.poison_after,
            metrics: self.metrics.clone(),
            trouble: Arc::clone(&self.trouble),
            detectors: Detectors::default(),
            holds: false,
            periods: None,
        };
        let (holds, scope) = (self.sweeps.subscribe(), self.scope.clone());
        self.tracker.spawn(async move { scope.run_until_cancelled_owned(Box::pin(sweep.run(holds))).await });
    }
}

/// What a claim has brought, for its span.
fn tell_of(span: &Span, claimed: &Claimed) {
    if span.is_disabled() {
        return;
    }
    trace::count(span, claimed.deliveries.len());
    for delivery in &claimed.deliveries {
        if let Ok(task) = envelope::open(delivery.id.clone(), &delivery.envelope) {
            trace::link(span, task.meta.traceparent.as_deref());
        }
    }
}
