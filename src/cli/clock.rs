//! Times in the output of tools: local, or UTC with `--utc`, with the zone named.

use std::time::{Duration, SystemTime};

use clap::Args;

use super::screen::{self, Screen};
use crate::control::local_time::{Zone, micros_of};

/// The flag of every tool that prints times.
#[derive(Debug, Args)]
pub(super) struct Times {
    /// Print times in UTC instead of the local time zone
    #[arg(long)]
    utc: bool,
}

impl Times {
    pub(super) fn is_utc(&self) -> bool {
        self.utc
    }
}

/// The present, and the zone that times are printed in.
#[derive(Debug, Clone)]
pub(super) struct Clock {
    zone: Zone,
    now: SystemTime,
}

impl Clock {
    /// The clock for the flags of a tool.
    pub(super) fn of(times: &Times) -> Clock {
        let zone = if times.utc { Zone::UTC } else { Zone::of_system() };
        Clock { zone, now: SystemTime::now() }
    }

    /// A stopped clock in UTC.
    #[cfg(test)]
    pub(super) fn stopped(now: &str) -> Clock {
        Clock { zone: Zone::UTC, now: humantime::parse_rfc3339(now).expect("BUG: a test names a time") }
    }

    /// Moves the clock to the present.
    pub(super) fn go_on(&mut self) {
        self.now = SystemTime::now();
    }

    /// The head of a time column: `SINCE (CEST)`.
    pub(super) fn head(&self, name: &str) -> String {
        format!("{name} ({})", self.zone.name(micros(self.now)))
    }

    /// A time for a column: short on a terminal, where [`Clock::head`] names the zone, else with its offset.
    pub(super) fn cell(&self, rfc3339: &str, to: Screen) -> String {
        match (micros_of(rfc3339), to) {
            (None, _) => screen::plain(rfc3339),
            (Some(at_us), Screen::None) => self.zone.whole(at_us),
            (Some(at_us), Screen::Coloured | Screen::Plain) => self.zone.short(at_us, micros(self.now)),
        }
    }

    /// A time in a sentence: `14:03:22 CEST`.
    pub(super) fn text(&self, rfc3339: &str) -> String {
        match micros_of(rfc3339) {
            Some(at_us) => self.zone.named(at_us, micros(self.now)),
            None => screen::plain(rfc3339),
        }
    }

    /// [`Clock::text`] of a system time.
    pub(super) fn text_of(&self, at: SystemTime) -> String {
        self.zone.named(micros(at), micros(self.now))
    }

    /// How long ago something was; `None` if the text is not a time.
    pub(super) fn age(&self, rfc3339: &str) -> Option<String> {
        micros_of(rfc3339).map(|at_us| self.age_of(SystemTime::UNIX_EPOCH + Duration::from_micros(at_us)))
    }

    /// [`Clock::age`] of a system time.
    pub(super) fn age_of(&self, at: SystemTime) -> String {
        screen::age(at, self.now)
    }
}

fn micros(at: SystemTime) -> u64 {
    let since_epoch = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_have_an_offset_if_no_head_names_the_zone() {
        let clock = Clock::stopped("2026-01-02T03:04:05Z");
        let at = "2026-01-02T01:00:00.123Z";
        assert_eq!(clock.head("AT"), "AT (UTC)");
        assert_eq!(clock.cell(at, Screen::Plain), "01:00:00");
        assert_eq!(clock.cell(at, Screen::None), "2026-01-02T01:00:00Z");
        assert_eq!(clock.text(at), "01:00:00 UTC");
        assert_eq!(clock.age(at).as_deref(), Some("2h 4m"));
        assert_eq!((clock.cell("?\u{1b}", Screen::Plain), clock.age("?")), ("?\u{fffd}".to_owned(), None));
    }
}
