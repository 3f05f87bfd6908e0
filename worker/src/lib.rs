//! The worker: takes tasks from Redis, runs their handlers, and says how it went.
//!
//! ```text
//!   control thread (its own small runtime)                        handler threads
//!   claim.lua ──► Delivered ──open──► Running ────────────────────► handler
//!   settle.lua ◄── Finished ◄─────────────────────────────────────── outcome, panic, time out
//!        └──► Settled
//!   renew · sweep · reclaim · own · one ear on the doorbell
//! ```
//!
//! Start with [`pipeline`], the path of a task; [`handler`] is what an application writes; [`worker`] is how it is started and
//! stopped. A whole worker:
//!
//! ```no_run
//! use tidemill_common::store::RedisOptions;
//! use tidemill_worker::{Context, Options, Outcome, Registry, Shutdown, Worker};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let agents = Registry::new().with("echo".parse()?, |context: Context| async move { Outcome::done(context.payload().clone()) });
//! let worker = Worker::new(RedisOptions::default(), agents, Options::default())?;
//! let exit = worker.run(Shutdown::on_signals()?).await?;
//! # Ok(()) }
//! ```

mod detect;
mod error;
pub mod handler;
pub mod lone;
pub mod metrics;
mod options;
pub mod pipeline;
mod shutdown;
mod sweep;
pub mod testing;
mod trouble;
pub mod worker;

pub use error::Error;
pub use handler::{Agent, Context, Handler, Middleware, Next, Outcome, Registry};
pub use options::{Options, Order};
pub use shutdown::Shutdown;
pub use tidemill_common::spend::Spend;
pub use tidemill_payloads as payloads;
pub use worker::{Exit, Handle, Worker};

/// The Rust in documents, compiled and run as doctests.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../docs/testing.md")]
    struct Testing;
}

// Modules of the binary (cli, config, admin, …) go below this line.
pub mod admin;
