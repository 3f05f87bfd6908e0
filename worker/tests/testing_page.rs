//! The whole example of `docs/testing.md`: what stands between the two marks is, letter for letter, what stands there.

#![allow(clippy::unwrap_used, reason = "a panic with its line is the report")]

#[rustfmt::skip]
mod example {
// from here
use tidemill_common::state::State;
use tidemill_common::store::{RedisOptions, Store};
use tidemill_common::task::NewTask;
use tidemill_embedded::Server;
use tidemill_worker::{Context, Options, Outcome, Registry, Shutdown, Worker};
use tokio::sync::mpsc;

#[test]
fn a_task_goes_all_the_way() -> Result<(), Box<dyn std::error::Error>> {
    // A private server on a Unix socket; it ends when this is dropped, and when this process is killed. It blocks, so it is started
    // outside of the runtime.
    let server = Server::start(tidemill_embedded::Options::new())?;
    let redis = RedisOptions { url: server.url(), ..RedisOptions::default() };
    tokio::runtime::Runtime::new()?.block_on(async {
        let (tell, mut told) = mpsc::unbounded_channel();
        let greet = move |context: Context| {
            let _ = tell.send(context.attempt());
            async { Outcome::done("hello") }
        };
        let agents = Registry::new().with("greet".parse()?, greet);
        let shutdown = Shutdown::new();
        let worker = Worker::new(redis.clone(), agents, Options::default())?;
        let worker = tokio::spawn(worker.run(shutdown.clone()));

        let store = Store::connect(&redis).await?;
        let task = NewTask::new("greet".parse()?, "");
        store.submit(std::slice::from_ref(&task), 0).await?;
        assert_eq!(told.recv().await, Some(1), "a run has begun");

        // A worker that drains has settled all that it ran: nothing is to be waited for.
        shutdown.drain.cancel();
        worker.await??;
        let status = store.status(&task.id, None).await?;
        assert_eq!((status.state, &status.data[..]), (Some(State::Succeeded), &b"hello"[..]));
        Ok(())
    })
}
// to here
}

#[test]
fn the_page_has_the_example_letter_for_letter() {
    let this = include_str!("testing_page.rs");
    let example = this.split("// from here\n").nth(1).unwrap().split("// to here").next().unwrap();
    let page = include_str!("../../docs/testing.md");
    assert!(page.contains(&format!("```rust,no_run\n{example}```")), "docs/testing.md has another example:\n{example}");
}
