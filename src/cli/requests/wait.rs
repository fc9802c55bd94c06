//! `codex-shim wait`, and waiting for the end of a turn.
//!
//! Both poll: a document that the relay has ready and returns in well under a millisecond, and the turn rows, of which one is
//! written at the start and one at the end of a turn. There is no stream of these states, and 200 ms is short for a person and
//! costs the relay nothing.

use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use super::super::{FAILED, say, screen};
use super::args::{Goal, WaitArguments};
use super::{CliError, Done, Refused, needed, print_json, readable, select_session, text};
use crate::config::Environment;
use crate::control::client;
use crate::history::Activity;
use crate::store::Found;

/// Polling interval.
const POLL_WAIT: Duration = Duration::from_millis(200);

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
        std::thread::park_timeout(left.map_or(POLL_WAIT, |left| left.min(POLL_WAIT)));
    };
    let at = select_session::argument_for(&session, arguments.common.session.name(), environment);
    let printed = match (arguments.common.as_json, has_come) {
        (true, _) => print_json(&document),
        (false, true) => screen::print(&told(arguments.goal, &document, &at)),
        (false, false) => 0,
    };
    if has_come {
        return Ok(printed);
    }
    let pending = pending(&document);
    let requests = screen::counted(pending, "pending request", "pending requests");
    let state: Option<Activity> = serde_json::from_value(document["state"].clone()).ok();
    say(&format!(
        "timed out: the session {}, with {}",
        state.map_or("is in an unknown state", screen::sentence),
        requests.as_deref().unwrap_or("no pending requests")
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
            Err(_) if !session.is_still_live() => return Err(CliError::not_running(session)),
            Err(why) => why,
        };
        if why.is_silence() || asked.elapsed() + POLL_WAIT >= silence_max {
            return Err(CliError::failed(why.message(session)));
        }
        std::thread::park_timeout(POLL_WAIT);
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

/// `at` names the session in the suggested command.
fn told(goal: Goal, document: &Value, at: &str) -> String {
    match (goal, pending(document)) {
        (Goal::Idle, _) => "idle\n".to_owned(),
        (Goal::Pending, 1) => format!("1 request is pending; see `codex-shim show latest{at}`\n"),
        (Goal::Pending, many) => format!("{many} requests are pending; see `codex-shim requests{at}`\n"),
    }
}

/// Most rows per poll.
const ROWS_MAX: u64 = 500;

/// A position in the turn rows before the awaited turn.
pub(super) struct TurnWatch {
    since_id: u64,
    /// Names the session in suggested commands; empty if they find it.
    at: String,
}

pub(super) struct TurnEnd {
    /// The server's response to the message.
    turn: Value,
    /// `completed`, `failed` or `interrupted`.
    outcome: String,
    /// Set if the turn failed.
    error: Option<String>,
    /// The model's last message.
    message: Option<String>,
}

#[derive(Deserialize)]
struct Rows {
    events: Vec<Value>,
}

#[derive(Deserialize)]
struct Transcript {
    entries: Vec<Value>,
}

impl TurnWatch {
    /// Remembers the current end of the rows.
    pub(super) fn begin(session: &Found, at: String) -> Result<TurnWatch, CliError> {
        let last = rows(session, "limit=1")?;
        Ok(TurnWatch { since_id: last.last().and_then(|row| row["id"].as_u64()).unwrap_or(0), at })
    }

    /// Waits until `turn` has ended or the time `left` is over.
    pub(super) fn end(
        mut self,
        session: &Found,
        turn: Value,
        left: impl Fn() -> Option<Duration>,
    ) -> Result<TurnEnd, CliError> {
        let mut told_of = None;
        loop {
            let new = rows(session, &format!("since_id={}&limit={ROWS_MAX}", self.since_id))?;
            let is_of_turn = |row: &&Value| row["turn_id"] == turn["turn_id"] && row["thread_id"] == turn["thread_id"];
            let ended = new.iter().filter(is_of_turn).find(|row| text(row, "event_type") != "started");
            if let Some(row) = ended {
                let error = [&row["error_message"], &row["error_code"]].into_iter().find_map(Value::as_str);
                return Ok(TurnEnd {
                    outcome: text(row, "event_type").to_owned(),
                    error: error.map(str::to_owned),
                    message: last_message(session, &turn)?,
                    turn,
                });
            }
            self.since_id = new.last().and_then(|row| row["id"].as_u64()).unwrap_or(self.since_id);
            tell_of_requests(session, text(&turn, "thread_id"), &mut told_of)?;
            let left = left();
            if left.is_some_and(|left| left.is_zero()) {
                let at = &self.at;
                return Err(CliError::failed(format!(
                    "timed out; the turn is still running: `codex-shim wait --for idle{at}` waits for it, \
                     `codex-shim transcript {}{at}` shows its messages",
                    text(&turn, "thread_id")
                )));
            }
            std::thread::park_timeout(left.map_or(POLL_WAIT, |left| left.min(POLL_WAIT)));
        }
    }
}

impl TurnEnd {
    /// Prints the message; returns the exit status.
    pub(super) fn print(self, as_json: bool) -> Done {
        let TurnEnd { mut turn, outcome, error, message } = self;
        let is_completed = outcome == "completed";
        let printed = if as_json {
            turn["status"] = json!(outcome);
            turn["message"] = json!(message);
            turn["error"] = json!(error);
            print_json(&turn)
        } else {
            let lines = message.as_deref().unwrap_or_default().lines().map(screen::plain);
            let printed = screen::print(&lines.map(|line| format!("{line}\n")).collect::<String>());
            if !is_completed {
                let why = error.map(|why| format!(": {}", screen::plain(&why))).unwrap_or_default();
                say(&format!("the turn {}{why}", if outcome == "interrupted" { "was interrupted" } else { "failed" }));
            }
            printed
        };
        Ok(if is_completed { printed } else { FAILED })
    }
}

fn rows(session: &Found, query: &str) -> Result<Vec<Value>, CliError> {
    let answer = needed(session, client::get(&session.dir, &format!("/sessions/self/turn-events?{query}")))?;
    if !answer.status.is_success() {
        let why = Refused::of(&answer).message;
        return Err(CliError::failed(format!("--wait needs the history of this session: {why}")));
    }
    answer.document().map(|Rows { events }| events).map_err(CliError::failed)
}

/// The model's last message in a turn.
fn last_message(session: &Found, turn: &Value) -> Result<Option<String>, CliError> {
    let path = format!("/sessions/self/threads/{}/transcript", text(turn, "thread_id"));
    let answer = needed(session, client::get(&session.dir, &path))?;
    let Ok(Transcript { entries }) = answer.document() else { return Ok(None) };
    let is_message = |entry: &&Value| entry["role"] == "assistant" && entry["turn_id"] == turn["turn_id"];
    Ok(entries.iter().rev().find(is_message).map(|entry| text(entry, "text").to_owned()))
}

/// Reports on stderr, once, that a request is pending in the thread: the turn is blocked until someone answers it.
fn tell_of_requests(session: &Found, thread_id: &str, told_of: &mut Option<String>) -> Result<(), CliError> {
    let answer = needed(session, client::get(&session.dir, "/sessions/self"))?;
    let document: Value = answer.document().map_err(CliError::failed)?;
    if document["pending_requests"].as_u64().unwrap_or(0) == 0 {
        return Ok(());
    }
    let rows = super::rows(session, crate::store::WhichRequests::Pending)?;
    let pending = rows.iter().find(|row| row["thread_id"].is_null() || text(row, "thread_id") == thread_id);
    if let Some(row) = pending.filter(|row| told_of.as_deref() != row["request_id"].as_str()) {
        let id = text(row, "request_id");
        say(&screen::plain(&format!(
            "waiting for an answer to: {}; answer with `codex-shim respond {id}`",
            text(row, "summary")
        )));
        *told_of = Some(id.to_owned());
    }
    Ok(())
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
