//! `codex-shim wait`: until a request waits, or nothing is to be done.
//!
//! It polls: what it waits for is two members of a document that the relay has ready and gives in well under a millisecond,
//! and there is no stream to listen to. A fifth of a second is little for a person, and for the relay nothing.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::super::{FAILED, say, screen};
use super::args::{Goal, WaitArguments};
use super::{Stop, print_json, readable, status, text};
use crate::config::Environment;
use crate::control::client;
use crate::store::Found;

/// How long is left between two looks.
const LOOK_WAIT: Duration = Duration::from_millis(200);

/// How long a relay may leave us without an answer, as one does that has only just started.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// How long the last look may take, however little time is left: what has come is told where the relay says so at once.
const LAST_LOOK_WAIT_MAX: Duration = Duration::from_secs(1);

/// Waits.
pub(in crate::cli) fn run_wait(arguments: &WaitArguments, environment: &Environment) -> i32 {
    status(wait(arguments, environment))
}

fn wait(arguments: &WaitArguments, environment: &Environment) -> Result<i32, Stop> {
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

/// The document of the session, as soon as its relay gives it. One that gives none is waited for no longer than there is time.
fn look(session: &Found, left: Option<Duration>) -> Result<Value, Stop> {
    let asked = Instant::now();
    let silence_max = left.map_or(SILENCE_MAX, |left| left.clamp(LAST_LOOK_WAIT_MAX, SILENCE_MAX));
    loop {
        let wait_max = silence_max.saturating_sub(asked.elapsed());
        let why = match client::get_within(&session.dir, "/sessions/self", wait_max) {
            Ok(answer) => return answer.document().map_err(Stop::Failed),
            Err(_) if !session.is_still_live() => return Err(Stop::NotRunning(session.id.clone())),
            Err(why) => why,
        };
        if why.is_silence() || asked.elapsed() + LOOK_WAIT >= silence_max {
            return Err(Stop::Failed(why.told(session)));
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
    fn what_is_waited_for() {
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
