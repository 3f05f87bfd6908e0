//! The program `producer` against a real server: every verb, its exit codes and its output.

#![expect(clippy::unwrap_used, reason = "a panic with its line is a test's report, in its helpers too")]

#[path = "cli/book.rs"]
mod book;
#[path = "cli/bulk.rs"]
mod bulk;
#[path = "cli/dead.rs"]
mod dead;
#[path = "cli/docs.rs"]
mod docs;
#[path = "cli/failures.rs"]
mod failures;
#[path = "cli/list.rs"]
mod list;
#[path = "cli/many.rs"]
mod many;
#[path = "cli/pause.rs"]
mod pause;
#[path = "cli/schedule.rs"]
mod schedule;
#[path = "cli/submit.rs"]
mod submit;
#[path = "cli/support.rs"]
mod support;
#[path = "cli/tail.rs"]
mod tail;
#[path = "cli/top.rs"]
mod top;
#[path = "cli/verbs.rs"]
mod verbs;
#[path = "cli/waiting.rs"]
mod waiting;
#[path = "cli/workers.rs"]
mod workers;
