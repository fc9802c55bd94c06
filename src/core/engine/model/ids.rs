//! What identifies something that the engine waits for, and the time of an input.

use std::time::Duration;

/// Identifies something that the engine waits for.
pub type Token = u64;

/// Identifies an API call that waits for a reply.
pub type ApiCallId = u64;

/// The time of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Microseconds since the Unix epoch, for the record; the wall clock may jump.
    pub unix_us: u64,
    /// Monotonic time since the relay started, for deadlines.
    pub elapsed: Duration,
}
