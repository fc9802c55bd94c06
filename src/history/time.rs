//! A moment as text. It is told which; it knows no clock.

/// A moment, given in microseconds since the Unix epoch, by RFC 3339 in UTC with milliseconds; what is below them is cut off.
#[must_use]
pub fn rfc3339_millis(at_us: u64) -> String {
    let millis = at_us / 1_000;
    let (days, of_day) = (millis / 86_400_000, millis % 86_400_000);
    let (year, month, day) = civil(days);
    let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (second, milli) = (of_day / 1_000 % 60, of_day % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// Year, month and day of a number of days since the Unix epoch. Source: Howard Hinnant, `civil_from_days`: years begin
/// in March, so that the day that is put in comes last, and 400 of them always have as many days.
fn civil(days: u64) -> (u64, u64, u64) {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    const DAYS_BEFORE_1970: u64 = 719_468;
    let days = days + DAYS_BEFORE_1970;
    let day_of_era = days % DAYS_OF_400_YEARS;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + 400 * (days / DAYS_OF_400_YEARS) + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(at_us: u64, expect: &str) {
        assert_eq!(rfc3339_millis(at_us), expect);
    }

    #[test]
    fn known_dates() {
        check(0, "1970-01-01T00:00:00.000Z");
        check(999, "1970-01-01T00:00:00.000Z");
        check(86_399_999_999, "1970-01-01T23:59:59.999Z");
        check(68_169_600_000_000, "1972-02-29T00:00:00.000Z");
        check(951_782_400_000_000, "2000-02-29T00:00:00.000Z");
        check(951_868_800_000_000, "2000-03-01T00:00:00.000Z");
        check(1_000_000_000_000_000, "2001-09-09T01:46:40.000Z");
        check(1_767_225_599_999_999, "2025-12-31T23:59:59.999Z");
        check(1_767_225_600_673_110, "2026-01-01T00:00:00.673Z");
        check(4_107_542_400_000_000, "2100-03-01T00:00:00.000Z");
        check(253_402_300_799_999_999, "9999-12-31T23:59:59.999Z");
    }

    #[test]
    fn no_moment_is_beyond_it() {
        check(u64::MAX, "586524-01-19T08:01:49.551Z");
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let is_leap = |year: u64| (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400);
        let mut expect = (1970, 1, 1);
        for day in 0..200_000 {
            assert_eq!(civil(day), expect);
            let (year, month, of_month) = expect;
            let last = match month {
                2 if is_leap(year) => 29,
                2 => 28,
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            expect = match (month, of_month) {
                (12, 31) => (year + 1, 1, 1),
                (_, of_month) if of_month == last => (year, month + 1, 1),
                (_, of_month) => (year, month, of_month + 1),
            };
        }
    }
}
