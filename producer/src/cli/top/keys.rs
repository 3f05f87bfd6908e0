//! Keys, read by a thread of its own: reading a terminal blocks.

use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc;

/// How soon the thread ends once nobody listens.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A key that means something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    Interrupt,
    Up,
    Down,
    Pause,
    Yes,
    /// Any other, also a new size: no, and to be drawn again.
    Other,
}

/// Where keys come from.
pub(super) struct Keys(mpsc::Receiver<Key>);

impl Keys {
    pub(super) fn listen() -> Self {
        let (sender, keys) = mpsc::channel(16);
        std::thread::spawn(move || {
            while !sender.is_closed() {
                let key = match event::poll(LOOK_EVERY) {
                    Ok(false) => continue,
                    Ok(true) => event::read().ok().and_then(meaning),
                    // The terminal is gone.
                    Err(_) => Some(Key::Quit),
                };
                if let Some(key) = key
                    && (sender.blocking_send(key).is_err() || key == Key::Quit)
                {
                    return;
                }
            }
        });
        Self(keys)
    }

    pub(super) async fn next(&mut self) -> Key {
        self.0.recv().await.unwrap_or(Key::Quit)
    }
}

fn meaning(event: Event) -> Option<Key> {
    let key = match event {
        Event::Key(key) if key.kind == KeyEventKind::Press => key,
        Event::Resize(..) => return Some(Key::Other),
        _ => return None,
    };
    Some(match key {
        KeyEvent { code: KeyCode::Char('c'), modifiers: KeyModifiers::CONTROL, .. } => Key::Interrupt,
        KeyEvent { code: KeyCode::Char('q'), .. } => Key::Quit,
        KeyEvent { code: KeyCode::Char('p'), .. } => Key::Pause,
        KeyEvent { code: KeyCode::Char('y' | 'Y'), .. } => Key::Yes,
        KeyEvent { code: KeyCode::Up | KeyCode::Char('k'), .. } => Key::Up,
        KeyEvent { code: KeyCode::Down | KeyCode::Char('j'), .. } => Key::Down,
        _ => Key::Other,
    })
}
