//! Waiting by looking again, where nothing can wake us: another process getting ready, or ending.

use std::time::{Duration, Instant};

/// A server starts within about 50 ms and ends within about 20 ms, so this wastes little and costs little.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Calls `look` until it finds something or `deadline` has passed; looks at least once. Blocks the thread.
#[expect(clippy::disallowed_methods, reason = "this crate has no runtime; its callers are told that it blocks")]
pub(crate) fn poll_until<T>(deadline: Instant, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
