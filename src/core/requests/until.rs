//! When a request ends without an answer.
//!
//! Pure.

use std::time::{Duration, UNIX_EPOCH};

use crate::api::Request;

/// Longest time after which a client gives up, in milliseconds: a year.
const WAIT_MS_MAX: u64 = 366 * 86_400 * 1_000;

/// The time until which a pending request can be answered, in microseconds since 1970: it expires, or its client gives up on the
/// question. `None` if it waits.
pub fn answer_until(row: &Request) -> Option<u64> {
    let time = |time: &str| {
        let time = humantime::parse_rfc3339(time).ok()?;
        Some(time.duration_since(UNIX_EPOCH).unwrap_or_default())
    };
    // Without a time the question waits; 0 is none, and neither is one that no calendar has.
    let wait = row.request_payload["autoResolutionMs"].as_u64().filter(|ms| (1..=WAIT_MS_MAX).contains(ms));
    let given_up = wait.and_then(|ms| Some(time(&row.requested_at)? + Duration::from_millis(ms)));
    let until = [row.expires_at.as_deref().and_then(time), given_up].into_iter().flatten().min();
    until.filter(|_| row.is_pending()).map(|until| until.as_micros() as u64)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::history::rfc3339_millis;

    #[test]
    fn questions_that_are_given_up_have_a_time() {
        let check = |wait: Value, expires: Value, status: &str, expect: Option<&str>| {
            let row = json!({ "request_payload": { "autoResolutionMs": wait }, "requested_at": "2026-01-02T03:04:05.250Z",
                "expires_at": expires, "status": status });
            let until = answer_until(&Request::from(&row)).map(rfc3339_millis);
            assert_eq!(until.as_deref(), expect, "{row}");
        };
        check(json!(120_000), Value::Null, "pending", Some("2026-01-02T03:06:05.250Z"));
        check(json!(120_000), json!("2026-01-02T03:05:00.000Z"), "pending", Some("2026-01-02T03:05:00.000Z"));
        check(json!(1_000), json!("2026-01-02T03:05:00.000Z"), "pending", Some("2026-01-02T03:04:06.250Z"));
        check(Value::Null, json!("2026-01-02T03:05:00.000Z"), "pending", Some("2026-01-02T03:05:00.000Z"));
        for never in [Value::Null, json!(0), json!(-1), json!("1"), json!(u64::MAX)] {
            check(never, Value::Null, "pending", None);
        }
        check(json!(120_000), Value::Null, "resolved", None);
    }
}
