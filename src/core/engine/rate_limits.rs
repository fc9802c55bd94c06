//! The account's rate limits, as numbers. The record leaves out every message about the account; of this one it has these numbers.
//!
//! The numbers are read one by one and written anew, so that no other member of the message can reach the record: neither a plan,
//! nor credits, nor the name of a limit.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::model::{Note, RateLimit};
use crate::wire::Members;

/// Longest window that is credible, in minutes: ten years.
const WINDOW_MINUTES_MAX: u64 = 10 * 366 * 24 * 60;

/// Latest credible reset: the end of the year 9999, in seconds since the Unix epoch.
const RESETS_AT_MAX: u64 = 253_402_300_799;

/// The id of the limit on all use of the account. Other limits are of single models.
const ACCOUNT_LIMIT: &str = "codex";

/// The limits as the server last reported them.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct RateLimits {
    primary: Option<RateLimit>,
    secondary: Option<RateLimit>,
}

impl RateLimits {
    /// Reads a report. Returns the note of the limits, if a number has changed: the server repeats its reports, and a hub gets
    /// each once for every client.
    pub(super) fn reported(&mut self, params: &RawValue) -> Option<Note> {
        let limits = Members::of(params).and_then(|params| params.get("rateLimits")).and_then(Members::of)?;
        if limits.text("limitId").is_some_and(|id| id != ACCOUNT_LIMIT) {
            return None;
        }
        // A window that is absent has not changed.
        let window = |name: &str| RateLimit::of(limits.get(name)?);
        let primary = window("primary").or(self.primary);
        let secondary = window("secondary").or(self.secondary);
        if (primary, secondary) == (self.primary, self.secondary) {
            return None;
        }
        (self.primary, self.secondary) = (primary, secondary);
        Some(Note::RateLimits { primary, secondary })
    }
}

impl RateLimit {
    fn of(window: &RawValue) -> Option<RateLimit> {
        let window = Members::of(window)?;
        let number = |name: &str| window.get(name)?.get().parse::<f64>().ok().filter(|number| *number >= 0.0);
        let whole = |name: &str, max: u64| number(name).map(|number| number as u64).filter(|number| *number <= max);
        Some(RateLimit {
            // Some releases write fractions.
            used_percent: number("usedPercent")?.round().min(100.0) as u64,
            window_minutes: whole("windowDurationMins", WINDOW_MINUTES_MAX),
            resets_at: whole("resetsAt", RESETS_AT_MAX),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each report leads to the note in `expect`, or to `-`.
    fn check(reports: &[&str], expect: &[&str]) {
        let mut limits = RateLimits::default();
        let notes = reports.iter().map(|report| {
            let params = format!("{{\"rateLimits\":{report}}}");
            let params: &RawValue = serde_json::from_str(&params).expect("BUG: a test gives JSON");
            let note = limits.reported(params);
            note.map_or("-".to_owned(), |note| serde_json::to_value(&note).expect("plain data")["data"].to_string())
        });
        assert_eq!(notes.collect::<Vec<_>>(), expect);
    }

    #[test]
    fn only_numbers_are_noted() {
        check(
            &[r#"{"limitId":"codex","limitName":"acme","planType":"pro","credits":{"balance":"12.50"},"primary":{
                "usedPercent":23,"windowDurationMins":300,"resetsAt":1767225600,"owner":"a@b.c"},"secondary":null}"#],
            &[r#"{"primary":{"resets_at":1767225600,"used_percent":23,"window_minutes":300},"secondary":null}"#],
        );
        check(
            &[
                r#"{"primary":{"usedPercent":"a@b.c","windowDurationMins":1},"secondary":{"usedPercent":1.6,"resetsAt":"x"}}"#,
            ],
            &[r#"{"primary":null,"secondary":{"resets_at":null,"used_percent":2,"window_minutes":null}}"#],
        );
        check(
            &[r#"{"primary":{"usedPercent":4111111111111111,"windowDurationMins":4111111111111111}}"#],
            &[r#"{"primary":{"resets_at":null,"used_percent":100,"window_minutes":null},"secondary":null}"#],
        );
    }

    #[test]
    fn unchanged_limits_are_not_noted_again() {
        let used = |percent: u32| format!(r#"{{"primary":{{"usedPercent":{percent}}}}}"#);
        let noted = |percent: u32| {
            let window = format!(r#"{{"resets_at":null,"used_percent":{percent},"window_minutes":null}}"#);
            format!(r#"{{"primary":{window},"secondary":null}}"#)
        };
        check(&[&used(1), &used(1), "{}", &used(2)], &[&noted(1), "-", "-", &noted(2)]);
        check(&[r#"{"limitId":"one_model","primary":{"usedPercent":9}}"#, "7", "null"], &["-", "-", "-"]);
    }
}
