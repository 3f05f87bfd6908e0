use super::*;

const HOUR: u64 = 3_600_000;

fn schedule(cron: &str, zone: &str) -> Schedule {
    Schedule {
        name: "s".parse().unwrap(),
        cron: cron.to_owned(),
        zone: zone.to_owned(),
        missed: Missed::Latest,
        overlap: Overlap::Allow,
        paused: false,
        task: Template::new("a".parse().unwrap(), "1"),
    }
}

fn at(text: &str) -> u64 {
    u64::try_from(text.parse::<Timestamp>().unwrap().as_millisecond()).unwrap()
}

#[test]
fn a_daily_task_runs_once_a_day_also_when_clocks_change() {
    let daily = schedule("30 2 * * *", "Europe/Berlin");
    for (from, expected) in [
        // Clocks go from 02:00 to 03:00 on 2026-03-29: half past two does not exist.
        ("2026-03-28T12:00:00Z", ["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"]),
        // Clocks go from 03:00 to 02:00 on 2026-10-25: half past two comes twice.
        ("2026-10-24T12:00:00Z", ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"]),
    ] {
        let slots: Vec<u64> = daily.slots(at(from), 2).unwrap().iter().map(ms).collect();
        assert_eq!(slots, expected.map(at), "after {from}: {:?}", daily.slots(at(from), 2));
    }
}

#[test]
fn what_repeats_within_an_hour_runs_all_through_the_extra_hour() {
    let often = schedule("*/15 * * * * *", "Europe/Berlin");
    let (from, to) = (at("2026-10-25T00:00:00Z"), at("2026-10-25T02:00:00Z"));
    let slots: Vec<u64> = often.slots(from, 480).unwrap().iter().map(ms).collect();
    assert_eq!(slots.len(), 480);
    assert!(slots.windows(2).all(|w| w[1] - w[0] == 15_000), "no gap and no repetition");
    assert_eq!(slots.last(), Some(&to));
}

#[test]
fn missed_slots_follow_the_policy() {
    let hourly = |missed| Schedule { missed, ..schedule("0 * * * *", "UTC") };
    let slot = at("2026-01-01T10:00:00Z");
    let late = slot + 3 * HOUR + 5_000;
    let due = hourly(Missed::Latest).due(slot, late).unwrap();
    assert_eq!(due, Due { fire_ms: Some(slot + 3 * HOUR), missed: 3, next_ms: slot + 4 * HOUR });
    let due = hourly(Missed::All).due(slot, late).unwrap();
    assert_eq!(due, Due { fire_ms: Some(slot), missed: 0, next_ms: slot + HOUR });
    let due = hourly(Missed::Skip).due(slot, late).unwrap();
    assert_eq!(due, Due { fire_ms: Some(slot + 3 * HOUR), missed: 3, next_ms: slot + 4 * HOUR });
    let due = hourly(Missed::Skip).due(slot, late + HOUR / 2).unwrap();
    assert_eq!(due, Due { fire_ms: None, missed: 4, next_ms: slot + 4 * HOUR });
    for missed in [Missed::Latest, Missed::All, Missed::Skip] {
        let due = hourly(missed).due(slot, slot + 20).unwrap();
        assert_eq!(due, Due { fire_ms: Some(slot), missed: 0, next_ms: slot + HOUR }, "{missed:?}, on time");
    }
}

#[test]
fn catching_up_is_bounded() {
    let minutely = Schedule { missed: Missed::All, ..schedule("* * * * *", "UTC") };
    let slot = at("2026-01-01T10:00:00Z");
    let due = minutely.due(slot, slot + 500 * 60_000).unwrap();
    assert_eq!(due, Due { fire_ms: None, missed: 401, next_ms: slot + 401 * 60_000 });
    // Each second for a month.
    let each = schedule("* * * * * *", "UTC");
    let due = each.due(slot, slot + 31 * 24 * HOUR).unwrap();
    assert_eq!((due.fire_ms, due.next_ms), (Some(slot + 31 * 24 * HOUR), slot + 31 * 24 * HOUR + 1_000));
}

#[test]
fn what_is_wrong_is_said() {
    let now = at("2026-01-01T00:00:00Z");
    let wrong = |cron: &str, zone: &str| schedule(cron, zone).check(now).unwrap_err().to_string();
    assert!(wrong("every day", "UTC").contains("is no cron pattern"));
    assert!(wrong("61 * * * *", "UTC").contains("is no cron pattern"));
    assert!(wrong("0 0 30 2 *", "UTC").contains("never comes"));
    assert!(wrong("0 0 * * *", "Europe/Atlantis").contains("is no time zone"));
    let bad =
        Schedule { task: Template { max_attempts: 0, ..schedule("@daily", "UTC").task }, ..schedule("@daily", "UTC") };
    assert!(bad.check(now).is_err());
    assert_eq!(schedule("@daily", "UTC").check(now), Ok(at("2026-01-02T00:00:00Z")));
}
