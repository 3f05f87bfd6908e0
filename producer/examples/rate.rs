//! How many tasks a second `submit_many` hands in: `cargo run --release --example rate -- URL [TASKS]`.

use std::time::Instant;

use futures::StreamExt as _;
use tidemill_producer::{AgentName, Client, NewTask, Options};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let url = words.next().ok_or("name the server: redis://127.0.0.1:6379")?;
    let count: u64 = words.next().map_or(Ok(500_000), |word| word.parse())?;
    let client = Client::connect(Options { waiting_max: 0, ..Options::at(url) }).await?;
    let agent: AgentName = "echo".parse()?;
    let tasks = (0..count)
        .map(|n| NewTask::new(agent.clone(), format!("{{\"n\":{n},\"text\":\"a hundred bytes or so are usual\"}}")));
    let began = Instant::now();
    let mut answers = client.submit_all(tasks);
    let mut accepted = 0_u64;
    while let Some(answer) = answers.next().await {
        answer.result?;
        accepted += 1;
    }
    let took = began.elapsed();
    println!("{accepted} tasks in {took:.2?}: {:.0} a second", accepted as f64 / took.as_secs_f64());
    Ok(())
}
