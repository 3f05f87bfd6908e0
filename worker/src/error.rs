//! Why a worker could not be made, or had to end.

use tidemill_common::store;

/// What keeps a worker from running. Redis being away is not among them: it is waited for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Options that contradict themselves: all of the mistakes.
    #[error("the worker's options are wrong: {}", .0.join("; "))]
    Options(Vec<String>),
    /// There is nothing that it could run.
    #[error("no agent is registered: this worker would never get a task")]
    NoAgents,
    /// The store cannot be used, and waiting will not help.
    #[error("the store cannot be used")]
    Store(#[source] store::Error),
    /// A thread or its runtime could not be started.
    #[error("cannot start the worker's {what}")]
    Start {
        /// Which one.
        what: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The control thread ended without saying how: a defect; its panic is in the log.
    #[error("the control thread broke off; what this worker held will be reclaimed when its lease has run out")]
    Broken,
}
