//! Budgets: tokens or money that may be used in windows, several at once.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Window;
use super::rate::{add_window, set_window};
use crate::spend::{parse_usd, usd};

/// The window that is a calendar day where the budget has a zone, ms.
pub const DAY_MS: u64 = 86_400_000;
/// The window that is a calendar month where the budget has a zone, ms: else 30 days.
pub const MONTH_MS: u64 = 30 * DAY_MS;

/// What tasks may use in windows: each is charged with what a task is expected to use when it starts, and with what it has used when
/// it has ended.
///
/// In a book: `tokens = { minute = 90000, day = 2000000 }`, `cost_usd = { day = 5.00, month = 100.00, zone = "Europe/Berlin" }`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Budget {
    /// The windows, the shortest first, no two of the same length. Limits are tokens, or micro-dollars.
    pub windows: Vec<Window>,
    /// With a zone (of the IANA's database) `day` and `month` are those of its calendar; else the trailing 24 hours and 30 days.
    pub zone: Option<String>,
}

/// What it costs that a run did not end by itself (it was lost, called off, or handed back): the provider may have been paid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnLost {
    /// What the task was expected to use, or what its run had said that it had used, if that is more.
    #[default]
    Charge,
    /// What its run had said that it had used.
    Reported,
    /// Nothing.
    Refund,
}

impl OnLost {
    /// Its letter in rules and rows.
    #[must_use]
    pub const fn letter(self) -> char {
        match self {
            Self::Charge => 'C',
            Self::Reported => 'R',
            Self::Refund => 'F',
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// One of the two kinds of budgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    /// Tokens of language models.
    Tokens,
    /// Millionths of a US dollar.
    MicroUsd,
}

impl Unit {
    /// An amount, for people.
    #[must_use]
    pub fn said(self, amount: u64) -> String {
        match self {
            Self::Tokens => format!("{amount} tokens"),
            Self::MicroUsd => format!("${}", usd(amount)),
        }
    }
}

impl Budget {
    /// A window as it is said: `5.00 per day in Europe/Berlin`.
    #[must_use]
    pub fn said(&self, unit: Unit) -> Vec<String> {
        let of = |w: &Window| {
            let zone = self.zone.as_ref().filter(|_| self.period_of(w.ms) != 0);
            let zone = zone.map_or(String::new(), |zone| format!(" of {zone}"));
            format!("{} per {}{zone}", unit.said(w.limit), w.name())
        };
        self.windows.iter().map(of).collect()
    }

    /// What scripts call a window: its ms; -1 a calendar day, -2 a calendar month.
    #[must_use]
    pub(super) fn script_ms(&self, window: &Window) -> i64 {
        match self.period_of(window.ms) {
            0 => i64::try_from(window.ms).unwrap_or(i64::MAX),
            period => period,
        }
    }

    fn period_of(&self, ms: u64) -> i64 {
        match (&self.zone, ms) {
            (Some(_), DAY_MS) => -1,
            (Some(_), MONTH_MS) => -2,
            _ => 0,
        }
    }

    /// Another limit for a window; none: it has no such window any more.
    pub fn set(&mut self, ms: u64, limit: Option<u64>) {
        set_window(&mut self.windows, ms, limit);
    }
}

/// Zones that budgets of a book name.
pub(super) fn zones<'a>(budgets: impl Iterator<Item = &'a Budget>) -> BTreeSet<String> {
    budgets.filter_map(|budget| budget.zone.clone()).collect()
}

fn write<S: Serializer>(budget: &Budget, to: S, unit: Unit) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(None)?;
    for window in &budget.windows {
        match unit {
            Unit::Tokens => map.serialize_entry(&window.name(), &window.limit)?,
            #[expect(
                clippy::cast_precision_loss,
                reason = "at most 10^15 millionths: the nearest float reads back as the same"
            )]
            Unit::MicroUsd => map.serialize_entry(&window.name(), &(window.limit as f64 / 1e6))?,
        }
    }
    if let Some(zone) = &budget.zone {
        map.serialize_entry("zone", zone)?;
    }
    map.end()
}

/// An amount as TOML writes it: `5`, `5.00`; money may also be text, `"5.00"`.
#[derive(Deserialize)]
#[serde(untagged, expecting = "an amount, as in day = 5.00")]
enum Amount {
    Whole(u64),
    Float(f64),
    Text(String),
}

impl Amount {
    fn read(self, unit: Unit) -> Result<u64, String> {
        match (self, unit) {
            (Self::Whole(n), Unit::Tokens) => Ok(n),
            (_, Unit::Tokens) => Err("tokens are a whole number".to_owned()),
            (Self::Whole(n), Unit::MicroUsd) => parse_usd(&n.to_string()),
            (Self::Float(n), Unit::MicroUsd) => parse_usd(&n.to_string()),
            (Self::Text(text), Unit::MicroUsd) => parse_usd(&text),
        }
    }
}

struct Windows(Unit);

impl<'de> Visitor<'de> for Windows {
    type Value = Budget;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("windows and amounts, as in { day = 5, month = 100, zone = \"Europe/Berlin\" }")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Budget, A::Error> {
        let mut budget = Budget::default();
        while let Some(key) = map.next_key::<String>()? {
            if key == "zone" {
                budget.zone = Some(map.next_value()?);
                continue;
            }
            let limit =
                map.next_value::<Amount>()?.read(self.0).map_err(|e| A::Error::custom(format!("{key}: {e}")))?;
            add_window(&mut budget.windows, &key, limit, "zone").map_err(A::Error::custom)?;
        }
        Ok(budget)
    }
}

macro_rules! of_unit {
    ($name:ident, $unit:expr) => {
        /// For serde: a budget in this unit.
        pub(super) mod $name {
            use super::{Budget, Deserializer, Serializer, Unit, Windows, write};

            pub(in crate::book) fn serialize<S: Serializer>(budget: &Option<Budget>, to: S) -> Result<S::Ok, S::Error> {
                match budget {
                    Some(budget) => write(budget, to, $unit),
                    None => to.serialize_none(),
                }
            }

            pub(in crate::book) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Budget>, D::Error> {
                from.deserialize_map(Windows($unit)).map(Some)
            }
        }
    };
}
of_unit!(in_tokens, Unit::Tokens);
of_unit!(in_usd, Unit::MicroUsd);
