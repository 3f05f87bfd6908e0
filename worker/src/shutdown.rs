//! From signals to the two stages of stopping.
//!
//! *Drain*: nothing more is claimed, what runs may end. *Force*: what runs is cut short and handed back, within two seconds.

use std::io;

use tokio_util::sync::CancellationToken;

/// The two wishes to stop. Cheap to clone; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    /// Claim nothing more and end when all that runs has ended, or the grace is over.
    pub drain: CancellationToken,
    /// End now: hand back what can be handed back.
    pub force: CancellationToken,
}

impl Shutdown {
    /// Two tokens that nobody has cancelled.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Follows SIGTERM and SIGINT: the first asks to drain, the second to force; later ones change nothing.
    ///
    /// The signals are listened to, by a task on the current runtime, for as long as that runtime lives.
    ///
    /// # Errors
    /// When the signals cannot be listened to.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn on_signals() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let shutdown = Self::new();
        let wishes = shutdown.clone();
        tokio_util::task::TaskTracker::new().spawn(async move {
            for wish in [&wishes.drain, &wishes.force] {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                wish.cancel();
            }
        });
        Ok(shutdown)
    }
}
