//! Waiting for a condition, with a limit.

use std::time::{Duration, Instant};

/// How long anything in a test may take before it counts as failed. Not a figure of speed: a busy machine is slow.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `condition` gives something, looking at it again and again.
///
/// # Panics
///
/// After [`PATIENCE`], naming `what` did not come.
pub fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "{what}: it did not come");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}
