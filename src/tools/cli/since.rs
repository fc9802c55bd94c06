//! `--since TIME`, for all tools that read stored sessions: how long ago, or a date, or a date with a time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use jiff::tz::TimeZone;

use crate::history::{rfc3339_millis, since_us};

/// The beginning of a period, in microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Since(u64);

impl Since {
    /// So long ago.
    pub(super) fn ago(period: Duration) -> Since {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Since(micros(now.saturating_sub(period)))
    }

    pub(super) fn now() -> Since {
        Since::ago(Duration::ZERO)
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
    since_us(text, Since::now().micros(), &TimeZone::system()).map(Since)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
