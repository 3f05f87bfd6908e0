//! The model test: random histories of many workers against the real scripts, judged by a reference that knows nothing of them.

#![allow(
    unreachable_pub,
    missing_docs,
    dead_code,
    clippy::unwrap_used,
    clippy::wrong_self_convention,
    clippy::nonminimal_bool,
    reason = "a judge's workings: one module tree that only its own test sees"
)]

mod bell;
mod book;
mod broken;
mod budgets;
mod call;
mod drain;
mod fault;
mod fleet;
mod gates;
mod judge;
mod judge_claim;
mod judge_operator;
pub mod mutants;
mod pair;
mod plan;
mod rebuild;
mod reference;
mod replace;
mod rng;
mod ruled;
mod run;
mod snapshot;
mod steps;
mod tasks;
mod whole;
mod whole_gates;
mod whole_rest;
mod wire;
mod world;

pub use plan::Sort;
pub use run::{Done, Failure, history, only};
pub use world::Host;

/// A broken promise, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation(pub String);

/// Whether all is as it should be.
type Verdict = Result<(), Violation>;

/// Returns a [`Violation`] unless a condition holds.
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err($crate::model::Violation(format!($($text)+)));
        }
    };
}
use ensure;
