//! Waiting for a condition, with a limit.

use std::time::{Duration, Instant};

/// Limit on any wait in a test. It is not a performance figure: a busy machine is slow.
pub const PATIENCE: Duration = Duration::from_secs(60);

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
pub fn within<T>(limit: Duration, what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(began.elapsed() < limit, "{what}: it did not come");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}
