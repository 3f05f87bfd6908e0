use tidemill_common::store::Settled as How;

use super::*;
use crate::pipeline::stage::{Ended, Settled};
use crate::pipeline::testing::{MS, answer, claimed, desk, end};

#[test]
fn one_at_a_time_and_the_sequence_grows_with_answers_alone() {
    let (mut claims, mut desk, now) = (Claims::new(Order::Weighted, false), desk(8, false), Instant::now());
    let ask = claims.next(&desk, now).unwrap();
    assert_eq!((ask.sequence, ask.most), (1, 8));
    assert!(claims.next(&desk, now).is_none() && claims.in_flight());
    answer(&mut claims, &mut desk, &ask, &["a"], None, now);
    assert_eq!(claims.answered_up_to(), 1);
    // Asleep: only a ring, or room for an agent that had none, is a reason to ask.
    assert!(claims.asleep(&desk) && claims.next(&desk, now).is_none() && claims.deadline(&desk).is_none());
    claims.rung(&desk);
    let ask = claims.next(&desk, now).unwrap();
    assert_eq!((ask.sequence, ask.most), (2, 7));
    // Refused: the same number again, after a pause that grows.
    let mut pauses = Vec::new();
    let (mut now, mut ask) = (now, ask);
    for _ in 0..4 {
        claims.answered(&ask, Err(Error::Full), now);
        assert!(claims.next(&desk, now).is_none());
        let later = claims.deadline(&desk).unwrap();
        pauses.push(later - now);
        now = later;
        ask = claims.next(&desk, now).unwrap();
        assert_eq!(ask.sequence, 2);
    }
    assert!(pauses[0] >= 50 * MS && pauses[3] > pauses[0] && pauses[3] < 5_000 * MS, "{pauses:?}");
    // An answer that cannot be read has used its number up.
    claims.answered(&ask, Err(Error::Reply { op: "claim", what: String::new() }), now);
    assert_eq!(claims.next(&desk, now + 10_000 * MS).unwrap().sequence, 3);
}

#[test]
fn a_full_claim_is_followed_by_another_when_a_quarter_is_free_or_after_a_moment() {
    let (mut claims, mut desk, now) = (Claims::new(Order::Weighted, false), desk(8, false), Instant::now());
    let ask = claims.next(&desk, now).unwrap();
    let mut runs = answer(&mut claims, &mut desk, &ask, &["a"; 8], None, now);
    assert!(claims.next(&desk, now).is_none(), "no room");
    end(&mut desk, runs.pop().unwrap());
    assert!(claims.next(&desk, now).is_none(), "one of eight is not enough yet");
    assert_eq!(claims.deadline(&desk), Some(now + GATHER));
    end(&mut desk, runs.pop().unwrap());
    let ask = claims.next(&desk, now).unwrap();
    assert_eq!(ask.most, 2, "a quarter is");
    runs.extend(answer(&mut claims, &mut desk, &ask, &["a"; 2], None, now));
    end(&mut desk, runs.pop().unwrap());
    assert!(claims.next(&desk, now).is_none());
    assert_eq!(claims.next(&desk, now + GATHER).unwrap().most, 1, "after a moment one is");
}

#[test]
fn an_agent_whose_room_was_used_up_is_asked_for_when_it_has_room_again() {
    let (mut claims, mut desk, now) = (Claims::new(Order::Weighted, false), desk(8, false), Instant::now());
    let ask = claims.next(&desk, now).unwrap();
    let rooms: Vec<_> = ask.offers.iter().map(|o| (o.agent.as_str(), o.room)).collect();
    assert_eq!(rooms, [("a", 8), ("b", 2)]);
    let mut runs = answer(&mut claims, &mut desk, &ask, &["a", "b", "b"], None, now);
    assert!(claims.next(&desk, now).is_none(), "fewer than asked for, and no room for b");
    end(&mut desk, runs.pop().unwrap());
    let ask = claims.next(&desk, now).unwrap();
    assert_eq!(ask.offers.iter().find(|o| o.agent.as_str() == "b").unwrap().room, 1);
    // A b ends while the claim is on its way, which brings the one b that it had asked for: there may be more.
    end(&mut desk, runs.pop().unwrap());
    runs.extend(answer(&mut claims, &mut desk, &ask, &["b"], None, now));
    assert!(!claims.asleep(&desk));
    let ask = claims.next(&desk, now).unwrap();
    answer(&mut claims, &mut desk, &ask, &[], None, now);
    assert!(claims.asleep(&desk), "b had room, and none came");
}

#[test]
fn a_ring_without_room_is_passed_on_once() {
    let (mut claims, mut desk, now) = (Claims::new(Order::Weighted, false), desk(1, false), Instant::now());
    let ask = claims.next(&desk, now).unwrap();
    answer(&mut claims, &mut desk, &ask, &["a"], None, now);
    claims.rung(&desk);
    let ask = claims.next(&desk, now).unwrap();
    assert_eq!((ask.most, ask.shares), (0, [0; 4]));
    answer(&mut claims, &mut desk, &ask, &[], None, now);
    assert!(claims.next(&desk, now).is_none());
    // So does one that has been told to stop, although it has room.
    let (mut claims, desk) = (Claims::new(Order::Weighted, false), crate::pipeline::testing::desk(8, false));
    claims.stop();
    assert!(claims.next(&desk, now).is_none() && claims.deadline(&desk).is_none());
    claims.rung(&desk);
    assert_eq!(claims.next(&desk, now).unwrap().most, 0);
}

#[test]
fn the_timer_asks_when_something_is_due_and_later_if_others_were_faster() {
    let (mut claims, mut desk, mut now) = (Claims::new(Order::Weighted, false), desk(8, false), Instant::now());
    claims.sweeps = true;
    let ask = claims.next(&desk, now).unwrap();
    answer(&mut claims, &mut desk, &ask, &[], Some(500), now);
    assert_eq!(claims.deadline(&desk), Some(now + 500 * MS), "the holder of the sweep is on time");
    assert!(claims.next(&desk, now + 499 * MS).is_none());
    // Due at once, and yet nothing comes: never a spin.
    now += 500 * MS;
    let mut asked = 0;
    let end = now + 10_000 * MS;
    while now < end {
        if let Some(ask) = claims.next(&desk, now) {
            asked += 1;
            answer(&mut claims, &mut desk, &ask, &[], Some(0), now);
        }
        now = claims.deadline(&desk).unwrap();
    }
    assert!((50..400).contains(&asked), "{asked} in 10 s");
    // Something came: on time again.
    let ask = claims.next(&desk, now).unwrap();
    answer(&mut claims, &mut desk, &ask, &["a"], Some(100), now);
    assert_eq!(claims.deadline(&desk), Some(now + 100 * MS));
}

#[test]
fn a_lone_worker_asks_until_nothing_comes() {
    let mut desk = desk(32, true);
    let (mut claims, now) = (Claims::new(Order::Weighted, true), Instant::now());
    let ask = claims.next(&desk, now).unwrap();
    assert!(ask.lone && ask.most == 1);
    let run = answer(&mut claims, &mut desk, &ask, &["a"], None, now).pop().unwrap();
    assert!(claims.next(&desk, now).is_none());
    let finished = run.ticket.finish(Ended::Cut, Vec::new());
    let item = desk.finish(finished).unwrap();
    assert!(claims.next(&desk, now).is_none(), "not before it is settled");
    desk.close(&Settled { fence: item.fence, how: How::Retry });
    let ask = claims.next(&desk, now).unwrap();
    assert!(claims.answered(&ask, claimed(Vec::new(), None), now).empty);
}
