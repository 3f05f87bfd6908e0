//! The output as it comes, through restarts of the server.

use std::time::Duration;

use tidemill_common::store::{Error, Piece};
use tidemill_producer::{Client, TaskId};
use tokio::sync::mpsc;

use super::super::exit::Failure;
use super::broken;

/// One blocking read.
const READ_FOR: Duration = Duration::from_secs(5);
/// A read that only takes what is there.
const AT_ONCE: Duration = Duration::from_millis(1);
/// Bounds of the pauses after a read that failed.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// Pages that wait to be shown.
const PAGES: usize = 4;

/// Where pieces come from. A read that blocks is never dropped: the server would go on with it, and what is read next would wait.
pub(super) struct Source {
    client: Client,
    id: TaskId,
    /// Behind which entry the next piece that is handed out comes.
    after: Option<String>,
    pages: mpsc::Receiver<Result<Vec<Piece>, Error>>,
    reader: tokio::task::JoinHandle<()>,
}

impl Source {
    pub(super) fn start(client: &Client, id: &TaskId, after: Option<String>) -> Self {
        let (sender, pages) = mpsc::channel(PAGES);
        let reader = tokio::spawn(read(client.clone(), id.clone(), after.clone(), sender));
        Self { client: client.clone(), id: id.clone(), after, pages, reader }
    }

    /// The next pieces.
    pub(super) async fn next(&mut self) -> Result<Vec<Piece>, Failure> {
        let page = self.pages.recv().await.ok_or_else(|| broken("the output is not read any more"))?;
        Ok(self.taken(page.map_err(tidemill_producer::Error::from)?))
    }

    /// All that is there now, behind what was handed out.
    pub(super) async fn rest(&mut self) -> Result<Vec<Piece>, Failure> {
        self.reader.abort();
        let mut rest = Vec::new();
        while let Ok(Ok(page)) = self.pages.try_recv() {
            rest.extend(self.taken(page));
        }
        let mut pause = PAUSES.0;
        loop {
            match self.read_on(&mut rest).await {
                Ok(()) => return Ok(rest),
                Err(error) if error.is_transient() => tracing::debug!(%error, "reads the rest again"),
                Err(error) => return Err(error.into()),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// Reads on a connection of its own: that of the reader may be in a read that blocks.
    async fn read_on(&mut self, rest: &mut Vec<Piece>) -> Result<(), tidemill_producer::Error> {
        let mut tail = self.client.tail(&self.id, self.after.clone()).await?;
        loop {
            let page = tail.next(AT_ONCE).await?;
            if page.is_empty() {
                tail.close().await;
                return Ok(());
            }
            rest.extend(self.taken(page));
        }
    }

    fn taken(&mut self, page: Vec<Piece>) -> Vec<Piece> {
        if let Some(last) = page.last() {
            self.after = Some(last.entry.clone());
        }
        page
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

async fn read(client: Client, id: TaskId, after: Option<String>, sender: mpsc::Sender<Result<Vec<Piece>, Error>>) {
    let mut pause = PAUSES.0;
    let mut tail = loop {
        match client.tail(&id, after.clone()).await {
            Ok(tail) => break tail,
            Err(error) => tracing::debug!(%error, "connects again"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    };
    loop {
        match tail.next(READ_FOR).await {
            Ok(pieces) if pieces.is_empty() => {}
            Err(error) if error.is_transient() => {
                tracing::debug!(%error, "reads the output again");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSES.1);
                continue;
            }
            page => {
                let last = page.is_err();
                if sender.send(page).await.is_err() || last {
                    return;
                }
            }
        }
        pause = PAUSES.0;
    }
}
