//! Formats times, without a clock.

use std::time::{Duration, UNIX_EPOCH};

/// Formats microseconds since the Unix epoch as RFC 3339 in UTC, truncated to milliseconds.
#[must_use]
pub(crate) fn rfc3339_millis(at_us: u64) -> String {
    // A record may contain any number; the year 9999 is the last printable one.
    let at = Duration::from_micros(at_us.min(253_402_300_799_999_999));
    humantime::format_rfc3339_millis(UNIX_EPOCH + at).to_string()
}

/// Milliseconds between the times of two records.
pub(super) fn latency_ms(from_us: u64, to_us: u64) -> u64 {
    to_us.saturating_sub(from_us) / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_times() {
        let check = |at_us: u64, expect: &str| assert_eq!(rfc3339_millis(at_us), expect);
        check(7_999, "1970-01-01T00:00:00.007Z");
        check(1_767_225_600_000_000, "2026-01-01T00:00:00.000Z");
        check(u64::MAX, "9999-12-31T23:59:59.999Z");
    }
}
