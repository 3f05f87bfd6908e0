//! What is drawn, and what keys do.

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::super::draw::draw;
use super::*;

fn look(slow: u64, at: Instant, paused: bool) -> Look {
    let mut counts = Counts { running: 2, dead: 1, now_ms: 10_000, ..Counts::default() };
    counts.waiting.insert(("default".into(), Priority::Urgent.value()), 3);
    counts.waiting.insert(("slow\u{1b}".into(), Priority::Low.value()), slow);
    let what = Pausable::Queue("default".parse().unwrap());
    let pauses = if paused { vec![Pause { what, until_ms: 0, why: "tests".into() }] } else { Vec::new() };
    let worker = WorkerSeen {
        id: "box.0123".parse().unwrap(),
        lease_ms: 12_000,
        agents: vec!["index".into()],
        idle: false,
        running: 2,
    };
    Look { counts, pauses, workers: vec![worker], at }
}

fn drawn(model: &mut Model, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, model)).unwrap();
    terminal.backend().to_string()
}

#[test]
fn all_of_it_is_drawn_and_nothing_steers_the_terminal() {
    let mut model = Model::new("redis://host".into());
    let began = Instant::now();
    model.seen(look(10, began, true));
    model.seen(look(20, began + Duration::from_secs(2), true));
    model.errors = vec![Failed { ended_ms: 4_000, id: "t1".into(), agent: "index".into(), error: "no disk".into() }];
    let text = drawn(&mut model, 100, 24);
    for part in [
        "2 running",
        "1 dead",
        "0 ends/s",
        "> default",
        "slow\\u{1b}",
        "+5.0/s",
        "paused",
        "box.0123",
        "at work",
        "queue default until it is resumed: tests",
        "no disk",
        "q quit",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert!(!text.contains('\u{1b}'));
    // Too small a window is no failure.
    drawn(&mut model, 10, 3);
    drawn(&mut Model::new(String::new()), 1, 1);
}

#[test]
fn a_queue_is_paused_once_that_is_confirmed() {
    let mut model = Model::new(String::new());
    model.seen(look(1, Instant::now(), true));
    assert_eq!(model.pressed(Key::Down), None);
    assert_eq!(model.pressed(Key::Down), None);
    assert_eq!(model.pressed(Key::Pause), None);
    assert!(drawn(&mut model, 100, 24).contains("pause queue slow\\u{1b}? y: yes"));
    assert_eq!(model.pressed(Key::Other), None);
    assert_eq!((model.pressed(Key::Yes), model.ask.clone()), (None, None));
    model.pressed(Key::Up);
    model.pressed(Key::Pause);
    assert_eq!(model.pressed(Key::Yes), Some(("default".into(), false)), "it is paused, so it is resumed");
}
