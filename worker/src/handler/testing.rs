//! Contexts for handlers' unit tests.

use std::sync::Arc;
use std::time::Duration;

use tidemill_common::name::{Fence, QueueName, TaskId};
use tidemill_common::task::{Meta, Priority, Task};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Context;

/// A run of a task with this payload.
pub(crate) fn context(payload: impl Into<bytes::Bytes>, attempt: u16) -> Context {
    let task = Task {
        id: TaskId::generate(),
        queue: QueueName::default(),
        agent: "test".parse().unwrap(),
        tenant: String::new(),
        priority: Priority::Normal,
        seq_us: 1,
        due_ms: 0,
        too_old_ms: 0,
        max_attempts: 3,
        cost: 1,
        order_key: None,
        hold_on_dead: false,
        key: None,
        depth: 0,
        meta: Meta::default(),
        payload: payload.into(),
        payload_apart: false,
    };
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
    }
}
