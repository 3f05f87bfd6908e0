//! What a run has used so far: added up here, told while it runs, settled when it has ended.

use std::sync::{Arc, Mutex, PoisonError};

use tidemill_common::spend::Spend;

/// What one run has used. Cheap to clone; clones add to the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Used(Arc<Mutex<Option<Spend>>>);

impl Used {
    /// Adds to it; what it is now, all in all.
    pub(crate) fn add(&self, more: Spend) -> Spend {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = used.unwrap_or_default().and(more);
        *used = Some(sum);
        sum
    }

    /// All of it; none if its handler has said nothing.
    pub(crate) fn said(&self) -> Option<Spend> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of it, be it nothing.
    pub(crate) fn so_far(&self) -> Spend {
        self.said().unwrap_or_default()
    }
}
