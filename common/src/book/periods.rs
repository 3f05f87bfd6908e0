//! When the days and months of a zone begin, for the scripts, which know no calendar.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};

/// Days and months that are written down ahead. Past them a budget is closed; sweeps write more in time.
const DAYS: i32 = 400;
const MONTHS: i32 = 60;
/// And before: clocks step back.
const BEFORE: i32 = 2;

/// When the days and months of a zone begin, server ms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Periods {
    zone: String,
    days: Vec<i64>,
    months: Vec<i64>,
}

impl Periods {
    /// Whether it is a zone of the IANA's database.
    #[must_use]
    pub fn knows(zone: &str) -> bool {
        TimeZone::get(zone).is_ok()
    }

    /// Those around a moment, server ms; none when there is no such zone or moment.
    #[must_use]
    pub fn around(zone: &str, now_ms: u64) -> Option<Self> {
        let tz = TimeZone::get(zone).ok()?;
        let today = Timestamp::from_millisecond(i64::try_from(now_ms).ok()?).ok()?.to_zoned(tz.clone()).date();
        // The first moment of a day: not always midnight, where clocks are set at night.
        let begins =
            |date: Date| Some(date.to_zoned(tz.clone()).ok()?.start_of_day().ok()?.timestamp().as_millisecond());
        let day = |n: i32| begins(today.checked_add(Span::new().days(n)).ok()?);
        let month = |n: i32| begins(today.first_of_month().checked_add(Span::new().months(n)).ok()?);
        Some(Self {
            zone: zone.to_owned(),
            days: (-BEFORE..=DAYS).map(day).collect::<Option<_>>()?,
            months: (-BEFORE..=MONTHS).map(month).collect::<Option<_>>()?,
        })
    }

    /// Where and how the scripts read them.
    #[must_use]
    pub fn fields(&self) -> [(String, Vec<u8>); 2] {
        #[expect(clippy::cast_precision_loss, reason = "ms of some decades")]
        let packed = |begins: &[i64]| begins.iter().flat_map(|ms| (*ms as f64).to_be_bytes()).collect();
        [(format!("z/d/{}", self.zone), packed(&self.days)), (format!("z/m/{}", self.zone), packed(&self.months))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    #[test]
    fn days_have_23_and_25_hours_where_clocks_are_set() {
        // 2026-03-28 12:00 UTC: the clocks of Berlin are set forward in the night that follows.
        let p = Periods::around("Europe/Berlin", 1_774_699_200_000).unwrap();
        let lengths: Vec<i64> = p.days.windows(2).take(5).map(|d| (d[1] - d[0]) / HOUR).collect();
        assert_eq!(lengths, [24, 24, 24, 23, 24]);
        assert!(p.days[2] <= 1_774_699_200_000 && 1_774_699_200_000 < p.days[3], "today is the third");
        let months: Vec<i64> = p.months.windows(2).skip(2).take(2).map(|d| (d[1] - d[0]) / HOUR).collect();
        assert_eq!(months, [31 * 24 - 1, 30 * 24]);
        assert_eq!((p.days.len(), p.months.len()), (403, 63));
    }

    #[test]
    fn a_zone_that_is_none_has_none() {
        assert!(!Periods::knows("Europe/Nowhere"));
        assert_eq!(Periods::around("Europe/Nowhere", 0), None);
    }
}
