//! Rates: units that may start in trailing windows, several at once.

use std::fmt;
use std::time::Duration;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::config::duration;

/// Windows that have a name, and their lengths in ms.
const NAMED: [(&str, u64); 6] = [
    ("second", 1_000),
    ("minute", 60_000),
    ("hour", 3_600_000),
    ("day", 86_400_000),
    ("week", 604_800_000),
    ("month", 2_592_000_000),
];

/// Units that may start in trailing windows. Each window counts by itself: every one of them has to have room, and a burst through
/// one takes nothing from the others.
///
/// In a book: `rate = { second = 10, minute = 60, "5m" = 200, burst = 10 }`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rate {
    /// The windows, the shortest first, no two of the same length.
    pub windows: Vec<Window>,
    /// Pacing: after so many units at once, those of the shortest window start evenly spread over it. None: as they come.
    pub burst: Option<u64>,
}

/// At most `limit` units in any `ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Window {
    /// Its length.
    pub ms: u64,
    /// Units.
    pub limit: u64,
}

impl Rate {
    /// The length of a window by its name, `minute`, or as a duration, `5m`; in ms.
    #[must_use]
    pub fn window_ms(text: &str) -> Option<u64> {
        let named = NAMED.iter().find(|(name, _)| *name == text).map(|(_, ms)| *ms);
        named.or_else(|| duration::parse(text).ok().and_then(|d| u64::try_from(d.as_millis()).ok()))
    }

    /// Another limit for a window; none: it has no such window any more.
    pub fn set(&mut self, ms: u64, limit: Option<u64>) {
        set_window(&mut self.windows, ms, limit);
    }

    /// One window.
    #[must_use]
    pub fn of(limit: u64, window_ms: u64) -> Self {
        Self { windows: vec![Window { ms: window_ms, limit }], burst: None }
    }
}

/// Another limit for one of these windows; none: it is not among them any more.
pub(super) fn set_window(windows: &mut Vec<Window>, ms: u64, limit: Option<u64>) {
    windows.retain(|w| w.ms != ms);
    windows.extend(limit.map(|limit| Window { ms, limit }));
    windows.sort_unstable();
}

/// One more window, as a book names it; what is wrong with it. `also`: what else may stand in its place.
pub(super) fn add_window(windows: &mut Vec<Window>, name: &str, limit: u64, also: &str) -> Result<(), String> {
    let ms = Rate::window_ms(name).ok_or_else(|| {
        format!(
            "{name:?} is no window; it is second, minute, hour, day, week, month, a duration such as \"5m\", or {also}"
        )
    })?;
    if windows.iter().any(|w| w.ms == ms) {
        return Err(format!("the window {name:?} is there twice"));
    }
    windows.push(Window { ms, limit });
    windows.sort_unstable();
    Ok(())
}

impl Window {
    /// Its name in a book: `minute`, or `5s`. A month has 30 days.
    #[must_use]
    pub fn name(&self) -> String {
        let named = NAMED.iter().find(|(_, length)| *length == self.ms).map(|(name, _)| (*name).to_owned());
        named.unwrap_or_else(|| duration::text(Duration::from_millis(self.ms)).replace(' ', ""))
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} per {}", self.limit, self.name())
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        for window in &self.windows {
            map.serialize_entry(&window.name(), &window.limit)?;
        }
        if let Some(burst) = self.burst {
            map.serialize_entry("burst", &burst)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Windows)
    }
}

struct Windows;

impl<'de> Visitor<'de> for Windows {
    type Value = Rate;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("windows and their limits, as in { second = 10, minute = 60, \"5m\" = 200, burst = 10 }")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Rate, A::Error> {
        let mut rate = Rate::default();
        while let Some(key) = map.next_key::<String>()? {
            let limit: u64 = map.next_value()?;
            if key == "burst" {
                rate.burst = Some(limit);
                continue;
            }
            add_window(&mut rate.windows, &key, limit, "burst").map_err(A::Error::custom)?;
        }
        Ok(rate)
    }
}
