//! `--since TIME`, for all tools that read stored sessions: how long ago, or a date, or a date with a time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

use crate::config::parse_duration;
use crate::history::{micros_of, rfc3339_millis};

/// The beginning of a period, in microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Since(u64);

impl Since {
    /// So long ago.
    pub(super) fn ago(period: Duration) -> Since {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Since(micros(now.saturating_sub(period)))
    }

    pub(super) fn micros(self) -> u64 {
        self.0
    }

    #[cfg(feature = "fleet")]
    pub(super) fn time(self) -> SystemTime {
        UNIX_EPOCH + Duration::from_micros(self.0)
    }

    /// As the stored times are written, with which it can be compared as text.
    pub(super) fn rfc3339(self) -> String {
        rfc3339_millis(self.0)
    }
}

#[derive(Debug, Args)]
pub(super) struct SinceFlag {
    /// Only what happened since: 7d, 12h, 2026-11-01, or 2026-11-01T09:30
    #[arg(long = "since", value_name = "TIME", value_parser = parse, id = "since")]
    since: Option<Since>,
}

impl SinceFlag {
    pub(super) fn get(&self) -> Option<Since> {
        self.since
    }
}

pub(super) fn parse(text: &str) -> Result<Since, String> {
    parse_at(text, SystemTime::now(), &TimeZone::system())
}

/// Dates without an offset are in `zone`.
fn parse_at(text: &str, now: SystemTime, zone: &TimeZone) -> Result<Since, String> {
    if let Ok(ago) = parse_duration(text) {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        return Ok(Since(micros(now.saturating_sub(ago))));
    }
    if let Some(at_us) = micros_of(text) {
        return Ok(Since(at_us));
    }
    let local = text.parse::<DateTime>().or_else(|_| text.parse::<Date>().map(Date::into));
    let at = local.ok().and_then(|at| at.to_zoned(zone.clone()).ok()).map(|at| at.timestamp().as_microsecond());
    match at.and_then(|at_us| u64::try_from(at_us).ok()) {
        Some(at_us) => Ok(Since(at_us)),
        None => Err("it must be a time such as 7d, 12h, 2026-11-01 or 2026-11-01T09:30".to_owned()),
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_ages_or_dates() {
        let now = UNIX_EPOCH + Duration::from_micros(micros_of("2026-11-10T12:00:00Z").unwrap());
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let check = |text: &str, expect: &str| assert_eq!(parse_at(text, now, &zone).unwrap().rfc3339(), expect);
        check("7d", "2026-11-03T12:00:00.000Z");
        check("90m", "2026-11-10T10:30:00.000Z");
        check("9999y", "1970-01-01T00:00:00.000Z");
        check("2026-11-01", "2026-10-31T23:00:00.000Z");
        check("2026-07-01T09:30", "2026-07-01T07:30:00.000Z");
        check("2026-11-01T09:30:00Z", "2026-11-01T09:30:00.000Z");
        for text in ["", "yesterday", "2026-13-01", "-7d", "1900-01-01"] {
            let error = parse_at(text, now, &zone).unwrap_err();
            assert!(error.contains("such as 7d"), "{text}: {error}");
        }
    }
}
