//! The beginning of a period as users write it: how long ago, or a date, or a date with a time.

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

use super::bounded::micros_of;
use crate::config::parse_duration;

/// The beginning of a period in microseconds since 1970. Dates without an offset are in `zone`.
///
/// # Errors
///
/// What is valid, as text for the user.
pub fn since_us(text: &str, now_us: u64, zone: &TimeZone) -> Result<u64, String> {
    if let Ok(ago) = parse_duration(text) {
        let ago_us = u64::try_from(ago.as_micros()).unwrap_or(u64::MAX);
        return Ok(now_us.saturating_sub(ago_us));
    }
    if let Some(at_us) = micros_of(text) {
        return Ok(at_us);
    }
    let local = text.parse::<DateTime>().or_else(|_| text.parse::<Date>().map(Date::into));
    let at = local.ok().and_then(|at| at.to_zoned(zone.clone()).ok()).map(|at| at.timestamp().as_microsecond());
    match at.and_then(|at_us| u64::try_from(at_us).ok()) {
        Some(at_us) => Ok(at_us),
        None => Err("it must be a time such as 7d, 12h, 2026-11-01 or 2026-11-01T09:30".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::rfc3339_millis;
    use super::*;

    #[test]
    fn times_are_ages_or_dates() {
        let now_us = micros_of("2026-11-10T12:00:00Z").unwrap();
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let check = |text: &str, expect: &str| {
            assert_eq!(since_us(text, now_us, &zone).map(rfc3339_millis).as_deref(), Ok(expect));
        };
        check("7d", "2026-11-03T12:00:00.000Z");
        check("90m", "2026-11-10T10:30:00.000Z");
        check("9999y", "1970-01-01T00:00:00.000Z");
        check("2026-11-01", "2026-10-31T23:00:00.000Z");
        check("2026-07-01T09:30", "2026-07-01T07:30:00.000Z");
        check("2026-11-01T09:30:00Z", "2026-11-01T09:30:00.000Z");
        for text in ["", "yesterday", "2026-13-01", "-7d", "1900-01-01"] {
            let error = since_us(text, now_us, &zone).unwrap_err();
            assert!(error.contains("such as 7d"), "{text}: {error}");
        }
    }
}
