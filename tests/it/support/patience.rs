//! Waiting for a condition, with a limit.

use std::time::{Duration, Instant};

/// Limit on any wait in a test. It is not a performance figure: a busy machine is slow. A test is stopped after ten minutes.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Waits until `condition` returns a value, and polls it meanwhile.
///
/// # Panics
///
/// After [`PATIENCE`], with `what` in the message.
pub fn eventually<T>(what: &str, condition: impl FnMut() -> Option<T>) -> T {
    within(PATIENCE, what, condition)
}

/// The same for what takes some time even if nothing is slow.
///
/// # Panics
///
/// After `limit`, with `what` in the message.
pub fn within<T>(limit: Duration, what: &str, condition: impl FnMut() -> Option<T>) -> T {
    poll(limit, condition).unwrap_or_else(|| panic!("{what}: it did not come"))
}

/// Waits until `condition` returns a value; `None` after `limit`.
pub fn poll<T>(limit: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let began = Instant::now();
    loop {
        if let Some(found) = condition() {
            return Some(found);
        }
        let waited = began.elapsed();
        if waited >= limit {
            return None;
        }
        // What takes long is asked for less often: a condition may start a process, and others wait for the processor.
        std::thread::park_timeout((waited / 8).clamp(Duration::from_millis(2), Duration::from_millis(200)));
    }
}
