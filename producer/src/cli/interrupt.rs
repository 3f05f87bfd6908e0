//! Being interrupted: Ctrl-C and SIGTERM, counted, so that a bulk submit can end well at the first and at once at the second.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Knows how often the program was told to stop.
#[derive(Debug, Clone)]
pub(crate) struct Interrupt {
    times: watch::Receiver<u32>,
}

impl Interrupt {
    /// Begins to listen; from here on a signal no longer ends the process by itself.
    pub(crate) fn listen() -> std::io::Result<Self> {
        let (sender, times) = watch::channel(0);
        let (mut ctrl_c, mut term) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = ctrl_c.recv() => {}
                    _ = term.recv() => {}
                    () = sender.closed() => return,
                }
                sender.send_modify(|times| *times += 1);
            }
        });
        Ok(Self { times })
    }

    /// Waits until it was told to stop `times` times.
    pub(crate) async fn told(&self, times: u32) {
        let mut counted = self.times.clone();
        if counted.wait_for(|told| *told >= times).await.is_err() {
            // Nobody listens any more, so nobody will be told.
            std::future::pending::<()>().await;
        }
    }
}
