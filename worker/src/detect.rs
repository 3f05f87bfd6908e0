//! Detectors: what an operator should hear of, looked for by the worker that holds the sweep.
//!
//! - *It guarantees* one look every ten seconds at what the shard counts anyhow, and a line in the log when something begins and when
//!   it is over; the metric `tidemill_detected` carries the detector's name alone.
//! - *It refuses* to look at tasks one by one: all is by counters, so that it costs the same at any backlog.
//! - *On a crash* whoever holds the sweep next looks from then on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidemill_common::store::{Counts, Error, Store};
use tokio::time::Instant;

use crate::metrics::Metrics;

/// How often to look.
const EVERY: Duration = Duration::from_secs(10);
/// Deliveries taken back from dead workers within one look that make a surge.
const RECLAIMS_SURGE: u64 = 10;
/// Tasks held back at limits within one look: a hundred a minute.
const HITS_MANY: u64 = 100 * EVERY.as_secs() / 60 + 1;
/// Deaths within one look that make a surge.
const DEATHS_SURGE: u64 = 20;

/// The detectors, with what they saw last.
#[derive(Debug, Default)]
pub(crate) struct Detectors {
    last: Option<(Instant, Counts)>,
    found: BTreeMap<&'static str, String>,
}

impl Detectors {
    /// Looks, if it is time.
    pub(crate) async fn look(&mut self, store: &Store, metrics: Option<&Arc<Metrics>>) -> Result<(), Error> {
        if self.last.as_ref().is_some_and(|(at, _)| at.elapsed() < EVERY) {
            return Ok(());
        }
        let counts = store.counts().await?;
        if let Some((_, before)) = &self.last {
            let now = found(before, &counts);
            for detector in crate::metrics::table::DETECTORS {
                self.tell(detector, now.get(detector), metrics);
            }
        }
        self.last = Some((Instant::now(), counts));
        Ok(())
    }

    fn tell(&mut self, detector: &'static str, text: Option<&String>, metrics: Option<&Arc<Metrics>>) {
        match (text, self.found.contains_key(detector)) {
            (Some(text), false) => {
                tracing::warn!(detector, "{text}");
                self.found.insert(detector, text.clone());
            }
            (None, true) => {
                tracing::info!(detector, "is over");
                self.found.remove(detector);
            }
            _ => {}
        }
        if let Some(metrics) = metrics {
            metrics.detected(detector, text.is_some());
        }
    }
}

/// What is to be told, by detector, from two looks.
fn found(before: &Counts, now: &Counts) -> BTreeMap<&'static str, String> {
    let mut found = BTreeMap::new();
    let refused = now.refused.saturating_sub(before.refused);
    if refused > 0 {
        found.insert(
            "backlog",
            format!("{refused} tasks were refused in {} s since their queue was full", EVERY.as_secs()),
        );
    }
    let ended = |counts: &Counts, what: &str| counts.ended.get(what).copied().unwrap_or(0);
    let reclaimed = ended(now, "reclaimed").saturating_sub(ended(before, "reclaimed"));
    if reclaimed >= RECLAIMS_SURGE {
        found.insert(
            "reclaims",
            format!("{reclaimed} deliveries were taken back from dead workers in {} s", EVERY.as_secs()),
        );
    }
    let died = ended(now, "dead").saturating_sub(ended(before, "dead"));
    if died >= DEATHS_SURGE {
        found.insert("dead_letters", format!("{died} tasks died in {} s; see `producer dead groups`", EVERY.as_secs()));
    }
    let hits = |counts: &Counts| counts.limit_hits.values().sum::<u64>();
    let hit = hits(now).saturating_sub(hits(before));
    if hit >= HITS_MANY {
        let text =
            format!("{hit} tasks were held back at limits in {} s; `producer book top` shows where", EVERY.as_secs());
        found.insert("limit_hits", text);
    }
    let unknown = |counts: &Counts| {
        let of = tidemill_common::history::DeadReason::UnknownAgent;
        counts.deaths.get(&of).copied().unwrap_or(0)
    };
    if unknown(now) > unknown(before) {
        found.insert("unknown_agent", "tasks died since no worker knew their agent".to_owned());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_detector_finds_its_own() {
        let before = Counts::default();
        assert!(found(&before, &before).is_empty());
        let with = |ended: &str, n| Counts { ended: BTreeMap::from([(ended.to_owned(), n)]), ..Counts::default() };
        assert_eq!(found(&before, &with("reclaimed", 10)).into_keys().collect::<Vec<_>>(), ["reclaims"]);
        assert!(found(&before, &with("reclaimed", 9)).is_empty());
        assert_eq!(found(&before, &with("dead", 20)).into_keys().collect::<Vec<_>>(), ["dead_letters"]);
        let held = |n| Counts { limit_hits: BTreeMap::from([('r', n), ('s', 1)]), ..Counts::default() };
        assert_eq!(found(&before, &held(16)).into_keys().collect::<Vec<_>>(), ["limit_hits"]);
        assert!(found(&before, &held(15)).is_empty(), "less than a hundred a minute");
        let full = Counts { refused: 1, ..Counts::default() };
        assert_eq!(found(&before, &full).into_keys().collect::<Vec<_>>(), ["backlog"]);
        assert!(found(&full, &full).is_empty(), "what was refused before is over");
    }
}
