//! Own: once a lease, what Redis says this worker owns is compared with what it holds.
//!
//! - *It guarantees* that a delivery of which this worker never heard (a claim whose answer could not be read, a settle that the server
//!   refused) runs again within two leases although the worker lives.
//! - *It refuses* to hand back what is about to arrive: what is not held when the pages are in may be in the answer to a claim that is
//!   on its way. So it waits until every claim sent before then is answered, and compares again. Claims sent later are in no page.
//! - What is settled while the pages come in is on them and not held any more: the desk remembers it meanwhile. (Should one slip
//!   through, handing it back is stale and changes nothing.)
//! - What was called off is stopped here if the note about it never came.

use std::time::Duration;

use tidemill_common::name::{Fence, TaskId};
use tidemill_common::store::{OwnedDelivery, SettleItem, Verb};
use tokio::time::Instant;

use super::claim::Claims;
use super::desk::{Desk, Why};

/// When to compare, and what was found.
#[derive(Debug)]
pub(crate) struct Own {
    every: Duration,
    next: Instant,
    in_flight: bool,
    /// Not held when the pages were in, and the last claim that had been sent by then.
    strange: Option<(Vec<(TaskId, Fence)>, u64)>,
}

impl Own {
    pub(crate) fn new(every: Duration, now: Instant) -> Self {
        Self { every, next: now + every, in_flight: false, strange: None }
    }

    /// Whether to ask now; if so, it counts as asked.
    pub(crate) fn next(&mut self, desk: &mut Desk, now: Instant) -> bool {
        let ask = !self.in_flight && self.strange.is_none() && self.next <= now;
        if ask {
            self.in_flight = true;
            desk.watch_closed(true);
        }
        ask
    }

    /// When to look again.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        (!self.in_flight && self.strange.is_none()).then_some(self.next)
    }

    /// Takes the pages in; none: they could not be had.
    pub(crate) fn answered(
        &mut self,
        owned: Option<Vec<OwnedDelivery>>,
        desk: &mut Desk,
        claims: &Claims,
        now: Instant,
    ) {
        self.in_flight = false;
        self.next = now + self.every;
        let owned = owned.unwrap_or_default();
        for delivery in owned.iter().filter(|delivery| delivery.called_off) {
            desk.stop(delivery.fence, Why::CalledOff);
        }
        let strange = owned.into_iter().filter(|delivery| !desk.knows(delivery.fence));
        let strange: Vec<_> = strange.map(|delivery| (delivery.id, delivery.fence)).collect();
        if strange.is_empty() {
            desk.watch_closed(false);
        } else {
            self.strange = Some((strange, claims.sent()));
        }
    }

    /// What is to be handed back, once no claim can bring it any more.
    pub(crate) fn hand_back(&mut self, desk: &mut Desk, claims: &Claims) -> Vec<SettleItem> {
        match &self.strange {
            Some((_, sent)) if claims.answered_up_to() >= *sent => {}
            _ => return Vec::new(),
        }
        let (strange, _) = self.strange.take().unwrap_or_default();
        let back = strange.into_iter().filter(|(_, fence)| !desk.knows(*fence)).map(|(id, fence)| {
            tracing::warn!(task = %id, fence = fence.0, "handed back: Redis says that it runs here, and it does not");
            SettleItem::new(id, fence, Verb::Release)
        });
        let back = back.collect();
        desk.watch_closed(false);
        back
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Order;
    use crate::pipeline::testing::{MS, answer, desk, end};

    fn owned(fence: Fence) -> OwnedDelivery {
        OwnedDelivery { id: TaskId::generate(), fence, called_off: false }
    }

    #[test]
    fn only_what_is_neither_held_nor_on_its_way_is_handed_back() {
        let (mut claims, mut desk, now) = (Claims::new(Order::Weighted, false), desk(8, false), Instant::now());
        let mut own = Own::new(1_000 * MS, now);
        assert!(!own.next(&mut desk, now));
        let ask = claims.next(&desk, now).unwrap();
        let mut runs = answer(&mut claims, &mut desk, &ask, &["a"; 8], None, now);
        let (held, settled) = (runs[0].ticket.fence(), runs[7].ticket.fence());
        let now = now + 1_000 * MS;
        assert!(own.next(&mut desk, now) && !own.next(&mut desk, now), "one at a time");
        // While the pages come in one run is settled, and a claim is sent.
        end(&mut desk, runs.pop().unwrap());
        let ask = claims.next(&desk, now + 10 * MS);
        let ask = ask.or_else(|| claims.next(&desk, now + 20 * MS)).unwrap();
        let (lost, coming) = (Fence(1 << 50), Fence((1 << 50) + 1));
        own.answered(Some([held, settled, lost, coming].map(owned).into()), &mut desk, &claims, now);
        assert!(own.hand_back(&mut desk, &claims).is_empty(), "the claim may bring some of them");
        let brought = claims.answered(&ask, crate::pipeline::testing::brings(coming), now);
        for delivered in brought.deliveries {
            let _ = desk.open(delivered).unwrap();
        }
        let back = own.hand_back(&mut desk, &claims);
        assert_eq!(
            back.iter().map(|item| (item.fence, item.verb.clone())).collect::<Vec<_>>(),
            [(lost, Verb::Release)]
        );
        assert!(!own.next(&mut desk, now) && own.next(&mut desk, now + 1_000 * MS));
    }

    #[test]
    fn a_call_off_whose_note_was_lost_is_heard_of_here() {
        let (mut claims, mut desk, now) = (Claims::new(Order::Weighted, false), desk(2, false), Instant::now());
        let mut own = Own::new(1_000 * MS, now);
        let ask = claims.next(&desk, now).unwrap();
        let runs = answer(&mut claims, &mut desk, &ask, &["a"; 2], None, now);
        let now = now + 1_000 * MS;
        assert!(own.next(&mut desk, now));
        let page = [(0, true), (1, false)]
            .map(|(n, called_off)| OwnedDelivery { called_off, ..owned(runs[n].ticket.fence()) });
        own.answered(Some(page.into()), &mut desk, &claims, now);
        assert!(runs[0].stop.is_cancelled() && !runs[1].stop.is_cancelled());
    }
}
