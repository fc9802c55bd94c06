//! `codex-shim wait`: waits until a request is pending or the session is idle.
//!
//! It polls two members of a document that the relay has ready and returns in well under a millisecond. There is no stream of
//! these states, and 200 ms is short for a person and costs the relay nothing.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::super::{FAILED, say, screen};
use super::args::{Goal, WaitArguments};
use super::{CliError, Done, print_json, readable, text};
use crate::config::Environment;
use crate::control::client;
use crate::store::Found;

/// Polling interval.
const LOOK_WAIT: Duration = Duration::from_millis(200);

/// How long a relay may not answer, as happens just after its start.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// Time limit of the last poll, however little time is left.
const LAST_LOOK_WAIT_MAX: Duration = Duration::from_secs(1);

pub(in crate::cli) fn run_wait(arguments: &WaitArguments, environment: &Environment) -> Done {
    let began = Instant::now();
    let session = readable(arguments.common.session.name(), environment)?;
    let left = || arguments.timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
    let (document, has_come) = loop {
        let document = look(&session, left())?;
        if holds(arguments.goal, &document) {
            break (document, true);
        }
        let left = left();
        if left.is_some_and(|left| left.is_zero()) {
            break (document, false);
        }
        std::thread::park_timeout(left.map_or(LOOK_WAIT, |left| left.min(LOOK_WAIT)));
    };
    let printed = match (arguments.common.as_json, has_come) {
        (true, _) => print_json(&document),
        (false, true) => screen::print(&told(arguments.goal, &document)),
        (false, false) => 0,
    };
    if has_come {
        return Ok(printed);
    }
    let pending = pending(&document);
    say(&format!(
        "timed out: the session is {}, with {pending} pending {}",
        text(&document, "state"),
        if pending == 1 { "request" } else { "requests" }
    ));
    Ok(FAILED)
}

/// The session's document. A relay that does not answer is retried for at most the time left.
fn look(session: &Found, left: Option<Duration>) -> Result<Value, CliError> {
    let asked = Instant::now();
    let silence_max = left.map_or(SILENCE_MAX, |left| left.clamp(LAST_LOOK_WAIT_MAX, SILENCE_MAX));
    loop {
        let wait_max = silence_max.saturating_sub(asked.elapsed());
        let why = match client::get_within(&session.dir, "/sessions/self", wait_max) {
            Ok(answer) => return answer.document().map_err(CliError::failed),
            Err(_) if !session.is_still_live() => return Err(CliError::not_running(&session.id)),
            Err(why) => why,
        };
        if why.is_silence() || asked.elapsed() + LOOK_WAIT >= silence_max {
            return Err(CliError::failed(why.message(session)));
        }
        std::thread::park_timeout(LOOK_WAIT);
    }
}

fn pending(document: &Value) -> u64 {
    document["pending_requests"].as_u64().unwrap_or_default()
}

fn holds(goal: Goal, document: &Value) -> bool {
    match goal {
        Goal::Pending => pending(document) > 0,
        Goal::Idle => document["state"] == "idle" && pending(document) == 0,
    }
}

fn told(goal: Goal, document: &Value) -> String {
    match (goal, pending(document)) {
        (Goal::Idle, _) => "idle\n".to_owned(),
        (Goal::Pending, 1) => "1 request is pending; see `codex-shim show latest`\n".to_owned(),
        (Goal::Pending, many) => format!("{many} requests are pending; see `codex-shim requests`\n"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn wait_ends_with_its_condition() {
        let check = |state: &str, pending: u64, expect: (bool, bool)| {
            let document = json!({ "state": state, "pending_requests": pending });
            assert_eq!((holds(Goal::Idle, &document), holds(Goal::Pending, &document)), expect, "{document}");
        };
        check("idle", 0, (true, false));
        check("idle", 1, (false, true));
        check("working", 0, (false, false));
        check("waiting_permission", 2, (false, true));
        check("stopped", 0, (false, false));
    }
}
