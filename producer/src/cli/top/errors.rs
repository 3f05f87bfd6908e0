//! The newest errors of the dead. They are looked for beside the rest, and seldom: the dead are listed from the oldest on.

use std::time::Duration;

use tidemill_producer::{Client, Select, State};
use tokio::sync::watch;

use super::super::group::last_error;
use super::super::output::{one_line, printable};

/// How many are kept.
const KEPT: usize = 5;
/// How often somebody looks whether there are new ones.
const EVERY: Duration = Duration::from_secs(5);
/// How long a look may take; and a pause after it, in its own lengths, so that this is never most of what the server does.
const LOOK_FOR: Duration = Duration::from_secs(5);
const REST: u32 = 9;

/// One task's last error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failed {
    pub(super) ended_ms: u64,
    pub(super) id: String,
    pub(super) agent: String,
    pub(super) error: String,
}

/// The newest, as they are found.
pub(super) struct Errors {
    newest: watch::Receiver<Vec<Failed>>,
    looker: tokio::task::JoinHandle<()>,
}

impl Errors {
    pub(super) fn watch(client: &Client) -> Self {
        let (sender, newest) = watch::channel(Vec::new());
        Self { newest, looker: tokio::spawn(look_again(client.clone(), sender)) }
    }

    pub(super) fn newest(&mut self) -> Vec<Failed> {
        self.newest.borrow_and_update().clone()
    }

    pub(super) async fn changed(&mut self) {
        if self.newest.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Errors {
    fn drop(&mut self) {
        self.looker.abort();
    }
}

async fn look_again(client: Client, sender: watch::Sender<Vec<Failed>>) {
    let mut known = None;
    loop {
        let began = tokio::time::Instant::now();
        if let Ok(counts) = client.counts().await {
            let now = Some((counts.dead, counts.ended.get("dead").copied()));
            if known != now && tokio::time::timeout(LOOK_FOR, look(&client, &sender)).await.is_ok() {
                known = now;
            }
        }
        tokio::time::sleep((began.elapsed() * REST).max(EVERY)).await;
    }
}

async fn look(client: &Client, sender: &watch::Sender<Vec<Failed>>) {
    let mut newest: Vec<Failed> = Vec::new();
    let dead = Select::state(State::Dead);
    let all = client.list(&dead, |found| {
        let ended_ms = found.outcome.as_ref().map_or(0, |outcome| outcome.ended_ms);
        if newest.len() < KEPT || newest.last().is_some_and(|last| last.ended_ms < ended_ms) {
            let agent = found.task.as_ref().map_or_else(|| "-".to_owned(), |task| task.agent.to_string());
            let error = one_line(&printable(&last_error(&found)));
            newest.push(Failed { ended_ms, id: found.id.to_string(), agent, error });
            newest.sort_by_key(|failed| std::cmp::Reverse(failed.ended_ms));
            newest.truncate(KEPT);
        }
        true
    });
    if all.await.is_ok() {
        sender.send_replace(newest);
    }
}
