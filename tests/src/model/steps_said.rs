//! What runs say of themselves.

use super::super::Verdict;
use super::super::call::Call;
use super::super::rng::Rng;
use super::super::tasks;
use super::Play;

impl Play<'_> {
    pub(super) fn progress(&mut self, rng: &mut Rng) -> Verdict {
        let item = |(id, fence): &(String, u64)| {
            (id.parse().expect("an id"), tidemill_common::name::Fence(*fence), "half".to_owned())
        };
        let mut items: Vec<_> = rng.pick(&self.old).iter().map(|d| item(d)).collect();
        let running = self.w.r.tasks.iter().filter_map(|(id, t)| Some((id.clone(), t.run()?.fence)));
        items.extend(running.take(2).map(|d| item(&d)));
        if items.is_empty() { Ok(()) } else { self.send(rng, &Call::Progress { items }).map(|_| ()) }
    }

    pub(super) fn spend(&mut self, rng: &mut Rng) -> Verdict {
        let running = self.w.r.tasks.iter().filter_map(|(id, t)| Some((id.clone(), t.run()?.fence)));
        let mut said: Vec<_> = running.take(2).collect();
        said.extend(rng.pick(&self.old).cloned());
        let fence = tidemill_common::name::Fence;
        let items: Vec<_> =
            said.iter().map(|(id, of)| (id.parse().expect("an id"), fence(*of), tasks::spend(rng))).collect();
        if items.is_empty() { Ok(()) } else { self.send(rng, &Call::Spend { items }).map(|_| ()) }
    }
}
