//! `cargo xtask demo`: the product in half a minute.
//!
//! A private server, two workers under a supervisor, and a task for every passage of this repository's own documents, in all four
//! priorities. One agent may run three at once over both workers. In the middle a worker is killed; what it ran is reclaimed when
//! its lease has run out, and runs again. At the end every task is accounted for, one by one.

mod account;
mod fleet;
mod passages;
mod screen;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::StreamExt as _;
use tidemill_common::book::{Book, Mistake};
use tidemill_embedded::{Options as ServerOptions, Server};
use tidemill_producer::{Client, Options};
use tokio::time::Instant;

use account::Account;
use fleet::Fleet;
use screen::Screen;

/// How many passages become tasks.
const TASKS: usize = 600;
/// When so many of them are done, a worker is killed.
const KILL_AT: u64 = 200;
/// Longer than this, and something is wrong.
const PATIENCE: Duration = Duration::from_secs(120);

#[tokio::main]
async fn main() -> Result<()> {
    let root = workspace_root()?;
    std::env::set_current_dir(&root)?;
    let server =
        Server::start(ServerOptions::new()).context("the demo needs a server; `cargo xtask setup` gets one")?;
    let client = Client::connect(Options::at(server.url())).await?;
    let screen = Screen::new();
    screen.say(&format!("server    {}, private to this demo", server.binary()));

    let book =
        Book::parse(&std::fs::read_to_string("demo/book.toml")?).map_err(|e| anyhow::anyhow!(Mistake::listed(&e)))?;
    client.apply_book(&book).await?;
    screen.say("rule      at most 3 `digest` tasks at once, over all workers (demo/book.toml)");

    let mut fleet = Fleet::start(&server.url(), 2)?;
    for worker in fleet.workers() {
        screen.say(&format!("worker    {} (pid {}), metrics {}", worker.name, worker.pid(), worker.metrics().await));
    }

    let mut account = Account::default();
    let tasks = passages::tasks(&root, TASKS)?;
    let mut answers = client.submit_all(tasks.clone());
    while let Some(answer) = answers.next().await {
        account.accepted(answer.result?.id().clone());
    }
    screen.say(&format!(
        "submit    {} tasks from {} documents: urgent, high, normal and low",
        account.len(),
        passages::count(&tasks)
    ));

    watch(&client, &mut fleet, &screen, account.len() as u64).await?;
    screen.clear();
    let lost = account.close(&client).await?;
    println!("\n{account}");
    println!("  metrics of {}: curl {}\n", fleet.workers()[1].name, fleet.workers()[1].metrics().await);
    fleet.stop()?;
    if lost > 0 {
        bail!("{lost} tasks are not accounted for");
    }
    println!("  Next: `cargo run --bin worker -- dev` in one terminal, and in another");
    println!("        `cargo run --bin producer -- submit echo '{{\"hi\":\"there\"}}' --wait`");
    Ok(())
}

/// Follows the counts until all have ended; kills a worker on the way, and starts it again.
async fn watch(client: &Client, fleet: &mut Fleet, screen: &Screen, tasks: u64) -> Result<()> {
    let began = Instant::now();
    let (mut killed, mut reclaimed) = (false, 0);
    loop {
        let counts = client.counts().await?;
        let ended = |outcome: &str| counts.ended.get(outcome).copied().unwrap_or(0);
        let over = ended("done") + ended("dead") + ended("cancelled") + ended("expired");
        screen.progress(tasks, over, &counts);
        if !killed && ended("done") >= KILL_AT && counts.running >= 4 {
            killed = true;
            let (name, pid) = fleet.kill_first()?;
            screen.say(&format!(
                "KILL -9   {name} (pid {pid}) with work in hand, after {over} tasks; the supervisor starts it again"
            ));
        }
        if ended("reclaimed") > reclaimed {
            reclaimed = ended("reclaimed");
            screen.say(&format!(
                "reclaimed {reclaimed} tasks of the killed worker: its lease has run out, they run elsewhere"
            ));
        }
        if over >= tasks {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            bail!("{over} of {tasks} tasks have ended after {} s: {counts:?}", PATIENCE.as_secs());
        }
        fleet.supervise()?;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn workspace_root() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().map(Path::to_path_buf).context("the demo lies in the workspace")
}
