//! Contexts for handlers' unit tests.

use std::sync::Arc;
use std::time::Duration;

use tidemill_common::name::Fence;
use tidemill_common::task::NewTask;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Context;
use crate::pipeline::Used;
use crate::testing::arrived;

/// A run of a task with this payload.
pub(crate) fn context(payload: impl Into<bytes::Bytes>, attempt: u16) -> Context {
    let task = arrived(NewTask::new("test".parse().unwrap(), payload));
    Context {
        task: Arc::new(task),
        attempt,
        losses: 0,
        fence: Fence(7),
        deadline: Instant::now() + Duration::from_secs(30),
        too_old: None,
        cancel: CancellationToken::new(),
        outbox: Arc::default(),
        progress: None,
        used: Used::default(),
        spend: None,
        output: None,
        emitted: Arc::default(),
        traceparent: None,
    }
}
