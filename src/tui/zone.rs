//! Times of day in this machine's time zone.
//!
//! Pure: the zone is read once at the start and passed in.

use jiff::Timestamp;
use jiff::Zoned;
use jiff::tz::TimeZone;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Zone(TimeZone);

impl Zone {
    /// Wraps a zone that was read elsewhere.
    #[must_use]
    pub(crate) fn new(zone: TimeZone) -> Zone {
        Zone(zone)
    }

    #[cfg(test)]
    pub(crate) fn utc() -> Zone {
        Zone(TimeZone::UTC)
    }

    fn at(&self, us: u64) -> Zoned {
        let at = i64::try_from(us).ok().and_then(|us| Timestamp::from_microsecond(us).ok());
        at.unwrap_or(Timestamp::MAX).to_zoned(self.0.clone())
    }

    /// `14:05:09`, of microseconds since the Unix epoch.
    #[must_use]
    pub(crate) fn time(&self, us: u64) -> String {
        self.at(us).strftime("%H:%M:%S").to_string()
    }

    /// `Thu 2026-01-01`
    #[must_use]
    pub(crate) fn day(&self, us: u64) -> String {
        self.at(us).strftime("%a %Y-%m-%d").to_string()
    }

    /// `2026-01-01 14:05:09 +01:00`
    #[must_use]
    pub(crate) fn whole(&self, us: u64) -> String {
        self.at(us).strftime("%Y-%m-%d %H:%M:%S %:z").to_string()
    }

    /// The zone as the user reads it: `local time, +01:00`.
    #[must_use]
    pub(crate) fn name(&self, us: u64) -> String {
        format!("local time, {}", self.at(us).strftime("%:z"))
    }
}

#[cfg(test)]
mod tests {
    use jiff::tz::offset;

    use super::*;

    #[test]
    fn times_use_the_zone() {
        let zone = Zone::new(TimeZone::fixed(offset(5)));
        let us = 1_767_225_599_000_000;
        assert_eq!(zone.time(us), "04:59:59");
        assert_eq!(zone.day(us), "Thu 2026-01-01");
        assert_eq!(zone.whole(us), "2026-01-01 04:59:59 +05:00");
        assert_eq!(zone.name(us), "local time, +05:00");
        assert_eq!(Zone::utc().time(us), "23:59:59");
        let _ = zone.whole(u64::MAX);
    }
}
