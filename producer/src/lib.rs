//! Hands tasks in to Tidemill and waits for what becomes of them.
//!
//! ```no_run
//! use std::time::Duration;
//! use tidemill_producer::{Client, NewTask, Options, Priority, Waited};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::connect(Options::at("redis://127.0.0.1:6379")).await?;
//! let task = NewTask::new("summarize".parse()?, r#"{"text":"…"}"#).priority(Priority::High).key("report-7");
//! let receipt = client.submit(task).await?;
//! match receipt.wait(Duration::from_secs(60)).await? {
//!     Waited::Ended(end) if end.is_success() => println!("{}", String::from_utf8_lossy(&end.result)),
//!     Waited::Ended(end) => println!("{}: {}", end.state, end.error),
//!     Waited::TimedOut { last } => println!("not yet: {last:?}"),
//!     Waited::Forgotten => println!("it ended long ago"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! - *It guarantees* that a task with a [`Receipt`] is in, in exactly one place, and will run at least once or end in a state that
//!   says why not.
//! - *It refuses* to guess: when no reply came, the error is [`Error::Unknown`], and sending the same id again is the cure. Give
//!   tasks an idempotency key, or keep their ids over retries of your own.
//! - *Large amounts* go through [`Client::submit_many`], in batches, with bounded memory.
//! - *Waiting* ([`Client::wait`]) is woken by the task's end and never hangs.
//!
//! The program `producer` is built from the same parts; the feature `cli` (on by default) brings what only it needs.

pub mod book;
mod bulk;
mod client;
mod error;
mod look;
mod many;
mod operate;
mod receipt;
mod repair;
mod wait;
mod waits;

pub use bulk::Submitted;
pub use client::{Client, Options};
pub use error::Error;
pub use many::{Deed, Done, Select, reason_of};
pub use receipt::{Ended, Receipt, Taken, Waited};
pub use repair::Repaired;
pub use tidemill_common::book::Book;
pub use tidemill_common::name::{AgentName, QueueName, TaskId};
pub use tidemill_common::retry::RetryPolicy;
pub use tidemill_common::spend::{Estimate, Spend};
pub use tidemill_common::state::State;
pub use tidemill_common::store::{Applied, Cancelled, Counts, RedisOptions, Status};
pub use tidemill_common::task::{Invalid, Keep, Meta, NewTask, Priority, Task};
pub use tidemill_payloads as payloads;
