//! What the demo shows: lines that stay, and one that moves (on a terminal only).

use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};

use tidemill_common::store::Counts;
use tokio::time::Instant;

const BAR: usize = 32;

/// The terminal, or what stands for it.
pub(crate) struct Screen {
    moves: bool,
    began: Instant,
    last: AtomicU64,
}

impl Screen {
    pub(crate) fn new() -> Self {
        Self { moves: std::io::stdout().is_terminal(), began: Instant::now(), last: AtomicU64::new(0) }
    }

    /// A line that stays.
    pub(crate) fn say(&self, text: &str) {
        self.clear();
        println!("{:>6.1}s  {text}", self.began.elapsed().as_secs_f64());
    }

    /// Takes the moving line away.
    pub(crate) fn clear(&self) {
        if self.moves {
            print!("\r\x1b[2K");
            let _ = std::io::stdout().flush();
        }
    }

    /// How far it is. Where nothing can move, a line every two seconds.
    pub(crate) fn progress(&self, tasks: u64, over: u64, counts: &Counts) {
        let seconds = self.began.elapsed().as_secs();
        let filled = usize::try_from(over * BAR as u64 / tasks.max(1)).unwrap_or(BAR).min(BAR);
        let waiting: u64 = counts.waiting.values().sum();
        let line = format!(
            "{}{} {over:>4}/{tasks}  running {:>2}  waiting {waiting:>4} ({:>3} parked at a gate)",
            "█".repeat(filled),
            "░".repeat(BAR - filled),
            counts.running,
            counts.parked
        );
        if self.moves {
            print!("\r\x1b[2K{:>6.1}s  {line}", self.began.elapsed().as_secs_f64());
            let _ = std::io::stdout().flush();
        } else if seconds >= self.last.load(Ordering::Relaxed) + 2 {
            self.last.store(seconds, Ordering::Relaxed);
            println!("{:>6.1}s  {line}", self.began.elapsed().as_secs_f64());
        }
    }
}
