//! The contract between Tidemill's processes: what a task is, how it is written down, and every change of its state.
//!
//! ```text
//! producer  submit ──► submit.lua   to its stream, its line, its order list or the schedule; ring
//! worker    claim  ──► claim.lua    promote; ready lines and streams; admit or park; fence; deliver
//!           run    ──► handler
//!           settle ──► settle.lua   outcome, retry or dead; follow-ups; give back; mark gates ready
//! producer  result ◄── outcome record, and a wake-up for whoever waits
//! sweeps                            promote, expire, reclaim
//! ```
//!
//! Start with [`store`]; the states are in [`state`], the keys in [`keys`], the scripts in `common/lua`.

pub mod book;
pub mod config;
pub mod envelope;
pub mod frame;
pub mod history;
pub mod keys;
pub mod name;
pub mod retry;
pub mod schedule;
pub mod spend;
pub mod state;
pub mod store;
pub mod task;
pub mod telemetry;
pub mod trace;
