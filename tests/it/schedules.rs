//! Schedules: one task a slot, whoever fires it.

use std::time::Duration;

use tidemill_common::keys::Base;
use tidemill_common::name::WorkerId;
use tidemill_common::schedule::{Missed, Overlap, Schedule, Template};
use tidemill_common::store::{Clock, Fired, Lease, RedisOptions, ScheduleSet, Slot, Store};
use tidemill_tests::lab::{Lab, Payload};
use tidemill_tests::server::{self, Server};

const LEASE: Lease = Lease {
    lease: Duration::from_secs(86_400 * 365),
    sweep_hold: Duration::from_secs(1),
    unknown_agent_after: Duration::ZERO,
};

fn schedule(cron: &str, zone: &str) -> Schedule {
    Schedule {
        name: "nightly".parse().unwrap(),
        cron: cron.to_owned(),
        zone: zone.to_owned(),
        missed: Missed::Latest,
        overlap: Overlap::Allow,
        paused: false,
        task: Template::new("a".parse().unwrap(), "{}"),
    }
}

/// A store on the test clock, and replicas that sweep.
struct Fleet {
    server: Server,
    store: Store,
    replicas: Vec<WorkerId>,
}

impl Fleet {
    async fn new(began: &str) -> Self {
        let server = server::start();
        set(&server, at(began));
        let options = RedisOptions { url: server.url(), ..RedisOptions::default() };
        let store = Store::connect_with(&options, Clock::Key).await.unwrap();
        let replicas = (0..3).map(|n| WorkerId::incarnate(&format!("w{n}")).unwrap()).collect();
        Self { server, store, replicas }
    }

    /// The slots that a sweep of this replica tells of; the one that held the sweep before is gone for two seconds.
    async fn slots(&self, replica: usize) -> Vec<Slot> {
        self.store.sweep(&self.replicas[replica], LEASE).await.unwrap().slots
    }

    async fn fire(&self, slot: &Slot, now_ms: u64) -> Fired {
        let schedule = slot.schedule().unwrap();
        let due = schedule.due(slot.slot_ms, now_ms).unwrap();
        self.store.fire(slot, &due, schedule.overlap, &schedule.task()).await.unwrap()
    }

    async fn waiting(&self) -> u64 {
        self.store.counts().await.unwrap().waiting.values().sum()
    }
}

fn set(server: &Server, ms: u64) {
    server.command(&["SET", &format!("{}:clock", Base::new(0)), &(ms * 1000).to_string()]).unwrap();
}

fn at(text: &str) -> u64 {
    u64::try_from(text.parse::<jiff::Timestamp>().unwrap().as_millisecond()).unwrap()
}

/// Passes from slot to slot until `to`: at each, all replicas want to fire. Returns the slots that were fired.
async fn pass(fleet: &Fleet, schedule: &Schedule, from: &str, to: &str) -> Vec<u64> {
    let first = schedule.check(at(from)).unwrap();
    assert_eq!(fleet.store.set_schedule(schedule, Some(first)).await.unwrap(), ScheduleSet::Set);
    let mut fired = Vec::new();
    loop {
        let next = fleet.store.schedules().await.unwrap()[0].next_ms;
        if next > at(to) {
            return fired;
        }
        // The holder of the last round is silent for longer than its hold: each replica has its turn.
        let now = next + 2_500;
        set(&fleet.server, now);
        let slots = fleet.slots(fired.len() % 3).await;
        assert_eq!(slots.len(), 1, "the slot has come");
        let (one, two, three) =
            tokio::join!(fleet.fire(&slots[0], now), fleet.fire(&slots[0], now), fleet.fire(&slots[0], now));
        let all = [one, two, three];
        let ins = all.iter().filter(|f| matches!(f, Fired::In(_))).count();
        let stale = all.iter().filter(|f| **f == Fired::Stale).count();
        assert_eq!((ins, stale), (1, 2), "{all:?}");
        fired.push(next);
    }
}

#[tokio::test]
async fn three_replicas_fire_a_daily_slot_once_a_day_over_both_changes_of_the_clocks() {
    for (from, to, slots) in
        [("2026-03-27T12:00:00Z", "2026-03-31T12:00:00Z", 4), ("2026-10-23T12:00:00Z", "2026-10-27T12:00:00Z", 4)]
    {
        let fleet = Fleet::new(from).await;
        let daily = schedule("30 2 * * *", "Europe/Berlin");
        let fired = Box::pin(pass(&fleet, &daily, from, to)).await;
        assert_eq!(fired.len(), slots, "from {from}: {fired:?}");
        assert_eq!(fleet.waiting().await, slots as u64);
        let kept = &fleet.store.schedules().await.unwrap()[0];
        assert_eq!(kept.last_ms, *fired.last().unwrap());
        assert!(kept.last_task.is_some());
    }
}

#[tokio::test]
async fn a_slot_every_quarter_of_a_minute_goes_on_all_through_the_extra_hour() {
    let (from, to) = ("2026-10-25T00:58:00Z", "2026-10-25T02:02:00Z");
    let fleet = Fleet::new(from).await;
    let fired = Box::pin(pass(&fleet, &schedule("*/15 * * * * *", "Europe/Berlin"), from, to)).await;
    assert_eq!(fired.len(), 64 * 4);
    assert!(fired.windows(2).all(|w| w[1] - w[0] == 15_000));
}

#[tokio::test]
async fn an_outage_ends_with_one_task_and_a_changed_schedule_is_not_fired_as_it_was() {
    let fleet = Fleet::new("2026-01-01T00:30:00Z").await;
    let hourly = schedule("0 * * * *", "UTC");
    fleet.store.set_schedule(&hourly, Some(at("2026-01-01T01:00:00Z"))).await.unwrap();
    let late = at("2026-01-01T09:20:00Z");
    set(&fleet.server, late);
    let slots = fleet.slots(0).await;
    // Somebody edits it between the look and the shot.
    fleet.store.set_schedule(&hourly, Some(at("2026-01-01T01:00:00Z"))).await.unwrap();
    assert_eq!(fleet.fire(&slots[0], late).await, Fired::Stale);
    let slots = fleet.slots(0).await;
    assert!(matches!(fleet.fire(&slots[0], late).await, Fired::In(_)));
    assert_eq!(fleet.waiting().await, 1);
    assert_eq!(fleet.store.schedules().await.unwrap()[0].next_ms, at("2026-01-01T10:00:00Z"));

    // Its predecessor waits still.
    let careful = Schedule { overlap: Overlap::Skip, ..hourly.clone() };
    fleet.store.set_schedule(&careful, Some(at("2026-01-01T10:00:00Z"))).await.unwrap();
    set(&fleet.server, at("2026-01-01T10:00:01Z"));
    let slots = fleet.slots(0).await;
    assert_eq!(fleet.fire(&slots[0], at("2026-01-01T10:00:01Z")).await, Fired::Overlaps);
    assert_eq!(fleet.waiting().await, 1);

    // A paused one has no slot; a deleted one is gone with all of it.
    fleet.store.set_schedule(&careful, None).await.unwrap();
    set(&fleet.server, at("2026-01-02T10:00:01Z"));
    assert!(fleet.slots(0).await.is_empty());
    assert!(fleet.store.delete_schedule(&careful.name).await.unwrap());
    assert!(!fleet.store.delete_schedule(&careful.name).await.unwrap());
    assert!(fleet.store.schedules().await.unwrap().is_empty());
}

/// T-02 on real workers and the real clock: the one that holds the sweep is killed just when a slot comes.
#[tokio::test]
async fn a_leader_that_is_killed_at_the_slot_costs_none_and_doubles_none() {
    let lab = Lab::new().await;
    let mut workers: Vec<_> = (0..3).map(|n| lab.worker(&format!("w{n}"))).collect();
    let each_second = Schedule {
        missed: Missed::All,
        task: Template {
            agent: "ledger".parse().unwrap(),
            payload: Payload::sleep(1).task().payload,
            ..schedule("", "").task
        },
        ..schedule("* * * * * *", "UTC")
    };
    let began = lab.counts().await.now_ms;
    let first = each_second.check(began).unwrap();
    lab.store().set_schedule(&each_second, Some(first)).await.unwrap();
    let patience = Duration::from_secs(40);
    lab.until("it has fired", patience, async || (lab.ledger().starts() > 1).then_some(()).ok_or("not yet".into()))
        .await;
    for n in 0..2 {
        // Whoever holds the sweep now: it fires.
        let holder = lab.raw(&["HGET", &lab.key("sweep"), "holder"]).as_str().unwrap_or_default().to_owned();
        let at = workers.iter().position(|w| holder.starts_with(&format!("{}.", w.setup().name))).unwrap_or(0);
        workers.remove(at).kill();
        workers.push(lab.worker(&format!("n{n}")));
        let fired = lab.ledger().starts();
        lab.until("others go on", patience, async || {
            let now = lab.ledger().starts();
            if now > fired + 2 { Ok(()) } else { Err(format!("{now} after {fired}")) }
        })
        .await;
    }
    lab.store().set_schedule(&Schedule { paused: true, ..each_second.clone() }, None).await.unwrap();
    let kept = lab.store().schedules().await.unwrap();
    let slots = (kept[0].last_ms - first) / 1_000 + 1;
    lab.until("all have ended", patience, async || {
        let done = lab.counts().await.ended.get("done").copied().unwrap_or(0);
        if done == slots { Ok(()) } else { Err(format!("{done} of {slots}")) }
    })
    .await;
    lab.store().delete_schedule(&each_second.name).await.unwrap();
    lab.close_with_invariants().await;
}
