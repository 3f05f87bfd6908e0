//! A producer and a worker as applications would write them, for the test of their spans.
//!
//! `traced submit URL` hands one task in, and waits for it; `traced work URL` runs tasks until it is told to end: `first` submits a
//! follow-up for `second`, whose result is the trace that its handler was told of.

use std::time::Duration;

use anyhow::{Context as _, bail};
use tidemill_common::store::RedisOptions;
use tidemill_common::telemetry;
use tidemill_producer::{Client, NewTask, Options as ProducerOptions};
use tidemill_worker::{Context, Options, Outcome, Registry, Shutdown, Worker};

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [what, url] = &words[..] else { bail!("usage: traced submit|work URL") };
    telemetry::init("tidemill-traced");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let ended = runtime.block_on(async {
        match what.as_str() {
            "submit" => submit(url).await,
            _ => work(url).await,
        }
    });
    telemetry::end();
    ended
}

async fn submit(url: &str) -> anyhow::Result<()> {
    let client = Client::connect(ProducerOptions::at(url)).await?;
    let receipt = client.submit(NewTask::new("first".parse()?, "1")).await?;
    receipt.wait(Duration::from_secs(30)).await?;
    // What its follow-up was told.
    let end = client.wait(&"follow-up".parse()?, Duration::from_secs(30)).await?;
    let end = end.ended().context("the follow-up did not end")?;
    println!("{}", String::from_utf8_lossy(&end.result));
    Ok(())
}

async fn work(url: &str) -> anyhow::Result<()> {
    let redis = RedisOptions { url: url.to_owned(), ..RedisOptions::default() };
    let second: tidemill_producer::AgentName = "second".parse()?;
    let agents = Registry::new()
        .with("first".parse()?, move |context: Context| {
            let mut task = NewTask::new(second.clone(), "2");
            async move {
                task.id = match "follow-up".parse() {
                    Ok(id) => id,
                    Err(_) => return Outcome::dead("no id"),
                };
                match context.submit(task) {
                    Ok(_) => Outcome::done("null"),
                    Err(error) => Outcome::dead(error.to_string()),
                }
            }
        })
        .with("second".parse()?, |context: Context| async move {
            Outcome::done(context.traceparent().unwrap_or_default().to_owned())
        });
    Worker::new(redis, agents, Options::default())?.run(Shutdown::on_signals()?).await?;
    Ok(())
}
