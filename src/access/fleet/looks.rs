//! Whether a view looks at a fleet, and when it is read next.

use std::time::{Duration, Instant};

/// Polling interval of the buckets.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long the thread goes on after the last look of a view.
const REST_AFTER: Duration = Duration::from_secs(10);

/// When views have looked.
#[derive(Debug)]
pub(super) struct Looks {
    pub(super) last_at: Instant,
    /// Number of reads of the fleet since the start.
    pub(super) reads: u64,
    pub(super) rests: bool,
}

impl Default for Looks {
    fn default() -> Looks {
        Looks { last_at: Instant::now(), reads: 0, rests: false }
    }
}

impl Looks {
    pub(super) fn has_read(&mut self) {
        self.reads += 1;
        self.rests = false;
    }

    /// How long the thread waits for its next read; `None` until a view looks.
    pub(super) fn wait(&mut self, now: Instant) -> Option<Duration> {
        self.rests = now.duration_since(self.last_at) >= REST_AFTER;
        (!self.rests).then_some(LOOK_EVERY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_rests_while_nobody_looks() {
        let now = Instant::now();
        let mut looks = Looks { last_at: now, reads: 0, rests: true };
        assert_eq!((looks.wait(now), looks.rests), (Some(LOOK_EVERY), false));
        let later = now + REST_AFTER;
        assert_eq!((looks.wait(later), looks.rests), (None, true));
        looks.has_read();
        assert_eq!((looks.reads, looks.rests), (1, false));
        looks.last_at = later;
        assert_eq!((looks.wait(later), looks.rests), (Some(LOOK_EVERY), false));
    }
}
