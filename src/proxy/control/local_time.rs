//! Times for people, in a time zone that is named beside them.
//!
//! Pure, but for [`Zone::of_system`]: the zone and the present are arguments, so that the same input gives the same text. JSON
//! documents never use it; their times are RFC 3339 in UTC.

use jiff::Timestamp;
use jiff::tz::TimeZone;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone(TimeZone);

impl Zone {
    pub const UTC: Zone = Zone(TimeZone::UTC);

    /// The zone of this process: `TZ`, else `/etc/localtime`, else UTC. Reads both; keep the result.
    #[must_use]
    pub fn of_system() -> Zone {
        Zone(TimeZone::try_system().unwrap_or(TimeZone::UTC))
    }

    /// The name of the zone at a time, in microseconds since 1970: `UTC`, `CEST`, or `UTC+03` if it has no abbreviation.
    #[must_use]
    pub fn name(&self, at_us: u64) -> String {
        let info = self.0.to_offset_info(timestamp(at_us));
        match info.abbreviation() {
            numeric if numeric.starts_with(['+', '-']) => format!("UTC{numeric}"),
            name => name.to_owned(),
        }
    }

    /// A time for output that names the zone once, by [`Zone::name`] of `now_us`: `14:03:22` if it is on the same day as
    /// `now_us`, else `2026-01-02 14:03:22`. If the offset has changed in between, the zone follows.
    #[must_use]
    pub fn short(&self, at_us: u64, now_us: u64) -> String {
        let (at, now) = (timestamp(at_us).to_zoned(self.0.clone()), timestamp(now_us).to_zoned(self.0.clone()));
        let format = if at.date() == now.date() { "%H:%M:%S" } else { "%Y-%m-%d %H:%M:%S" };
        let time = at.strftime(format).to_string();
        if at.offset() == now.offset() { time } else { format!("{time} {}", self.name(at_us)) }
    }

    /// A time with the name of its zone: `14:03:22 CEST` or `2026-01-02 14:03:22 CET`.
    #[must_use]
    pub fn named(&self, at_us: u64, now_us: u64) -> String {
        let short = self.short(at_us, now_us);
        let name = self.name(at_us);
        if short.ends_with(&name) { short } else { format!("{short} {name}") }
    }

    /// The day of a time: `2026-01-02`.
    #[must_use]
    pub fn day(&self, at_us: u64) -> String {
        timestamp(at_us).to_zoned(self.0.clone()).strftime("%Y-%m-%d").to_string()
    }

    /// A time that needs no context: RFC 3339 to the second, `2026-01-02T14:03:22+01:00`; in UTC it ends in `Z`.
    #[must_use]
    pub fn whole(&self, at_us: u64) -> String {
        let at = timestamp(at_us).to_zoned(self.0.clone());
        let is_utc = self.0 == TimeZone::UTC;
        at.strftime(if is_utc { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S%:z" }).to_string()
    }
}

/// Times beyond the last representable one become that one.
fn timestamp(at_us: u64) -> Timestamp {
    i64::try_from(at_us).ok().and_then(|at_us| Timestamp::from_microsecond(at_us).ok()).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::micros_of;

    fn berlin() -> Zone {
        Zone(TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a zone"))
    }

    fn at(text: &str) -> u64 {
        micros_of(text).expect("a time")
    }

    #[test]
    fn times_are_local_and_dated_if_of_another_day() {
        let check = |zone: &Zone, at_text: &str, now: &str, short: &str, named: &str, whole: &str| {
            assert_eq!(zone.short(at(at_text), at(now)), short);
            assert_eq!(zone.named(at(at_text), at(now)), named);
            assert_eq!(zone.whole(at(at_text)), whole);
        };
        let (summer, night) = ("2026-07-01T12:03:22.987Z", "2026-07-01T23:30:00Z");
        check(&berlin(), summer, summer, "14:03:22", "14:03:22 CEST", "2026-07-01T14:03:22+02:00");
        let dated = "2026-07-01 14:03:22";
        check(&berlin(), summer, night, dated, &format!("{dated} CEST"), "2026-07-01T14:03:22+02:00");
        check(&Zone::UTC, summer, night, "12:03:22", "12:03:22 UTC", "2026-07-01T12:03:22Z");
        let winter = "2026-01-02 13:03:22 CET";
        check(&berlin(), "2026-01-02T12:03:22Z", summer, winter, winter, "2026-01-02T13:03:22+01:00");
        assert_eq!((&*berlin().day(at(night)), &*Zone::UTC.day(at(night))), ("2026-07-02", "2026-07-01"));
        let unnamed = Zone(TimeZone::posix("<+0330>-3:30").expect("a zone"));
        check(&unnamed, summer, summer, "15:33:22", "15:33:22 UTC+0330", "2026-07-01T15:33:22+03:30");
    }

    #[test]
    fn any_number_is_a_time() {
        assert_eq!(Zone::UTC.whole(0), "1970-01-01T00:00:00Z");
        assert_eq!(Zone::UTC.whole(u64::MAX), "9999-12-30T22:00:00Z");
        assert!(berlin().short(u64::MAX, 0).starts_with("9999-12-30 23:00:00"));
        assert_eq!(micros_of("yesterday"), None);
        assert_eq!(micros_of("2026-01-02T03:04:05.006007Z"), Some(1_767_323_045_006_007));
    }
}
