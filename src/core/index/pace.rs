//! When the index leaves the processor and the memory to the relay.

use std::time::{Duration, Instant};

/// A journal that grows faster than this, in bytes per second, is a storm: the index then leaves the processor to the relay.
/// 10,000 lines a second of ordinary length are a quarter of it.
const STORM_BYTES_PER_SECOND: f64 = 10e6;

/// How long the index stands back at a time during a storm.
pub(super) const STAND_BACK: Duration = Duration::from_millis(20);

/// How much longer the index may stand back than work during a storm.
const STAND_BACK_MAX: Duration = Duration::from_secs(1);

/// While large blocks take more than this, in bytes, a long line passes, and the index leaves the memory to it: a long record needs as
/// much again.
const LONG_LINES_BYTES_MAX: usize = 16 << 20;

/// A client that reads a long thread gets several lines, with short pauses between them.
const LONG_LINES_PAUSE: Duration = Duration::from_millis(100);

/// How long the index may wait for them. Most pass within a second.
const LONG_LINES_WAIT_MAX: Duration = Duration::from_secs(5);

/// Measures how fast the relay appends while the index is behind.
pub(super) struct Storm {
    pub(super) measured_at: Instant,
    pub(super) appended_bytes: u64,
    /// How much longer the index has stood back than worked.
    pub(super) stood_back: Duration,
}

impl Storm {
    /// How long to leave the processor to the relay, given what it has appended so far.
    pub(super) fn stand_back(&mut self, appended_bytes: u64) -> Duration {
        let passed = self.measured_at.elapsed();
        let grown_bytes = appended_bytes.saturating_sub(self.appended_bytes);
        (self.measured_at, self.appended_bytes) = (Instant::now(), appended_bytes);
        let is_storm = grown_bytes as f64 > STORM_BYTES_PER_SECOND * passed.as_secs_f64();
        if is_storm && self.stood_back < STAND_BACK_MAX {
            self.stood_back += STAND_BACK;
            return STAND_BACK;
        }
        self.stood_back = self.stood_back.saturating_sub(passed);
        Duration::ZERO
    }
}

/// Waits while long lines pass, but not for one that stays because its reader is slow.
pub(super) struct LongLines {
    looked_at: Instant,
    /// When one was seen last.
    seen_at: Option<Instant>,
    /// How much longer the index has waited than there was none.
    waited: Duration,
}

impl LongLines {
    pub(super) fn new(now: Instant) -> LongLines {
        LongLines { looked_at: now, seen_at: None, waited: Duration::ZERO }
    }

    /// Whether to wait for [`STAND_BACK`], given how much large blocks take at `now`, in bytes.
    pub(super) fn pass(&mut self, now: Instant, bytes: usize) -> bool {
        let passed = now.saturating_duration_since(std::mem::replace(&mut self.looked_at, now));
        if bytes > LONG_LINES_BYTES_MAX {
            self.seen_at = Some(now);
        }
        if self.seen_at.is_none_or(|seen_at| now.saturating_duration_since(seen_at) >= LONG_LINES_PAUSE) {
            self.waited = self.waited.saturating_sub(passed);
            return false;
        }
        let waits = self.waited < LONG_LINES_WAIT_MAX;
        self.waited += if waits { STAND_BACK } else { Duration::ZERO };
        waits
    }
}
