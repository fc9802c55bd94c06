//! `codex-shim respond`: answers a request, and says whose answer won.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::clock::Clock;
use super::super::{FAILED, screen};
use super::args::RespondArguments;
use super::name::NotNamed;
use super::{CliError, Done, Refused, body, detail_view, named, needed, print_json, terminal, text};
use crate::config::Environment;
use crate::control::client;
use crate::control::shown::ending;
use crate::store::Found;

/// How long the relay may take: it allows itself 10 s to decide and store the answer.
const DECISION_WAIT_MAX: Duration = Duration::from_secs(15);

pub(in crate::cli) fn run_respond(arguments: &RespondArguments, environment: &Environment) -> Done {
    let raw = raw(arguments)?;
    let clock = Clock::of(&arguments.times);
    let (session, mut document) = named(arguments.session.name(), &arguments.request, environment)?;
    if !session.live {
        return Err(CliError::not_running(&session.id));
    }
    let row = document["request"].take();
    let body = match (raw, arguments.word, &arguments.answers[..]) {
        (Some(body), _, _) => body,
        (None, Some(word), _) => body::of_word(&row, word, arguments.reason.as_deref()).map_err(CliError::usage)?,
        (None, None, [_, ..]) => body::of_answers(&row, &arguments.answers).map_err(CliError::usage)?,
        (None, None, []) => asked(&row, &clock, environment)?,
    };
    answer(&session, &row, &body, &clock, arguments.json.is_some())
}

/// The body given with `--json`.
fn raw(arguments: &RespondArguments) -> Result<Option<Value>, CliError> {
    let Some(text) = arguments.json.as_ref().and_then(Option::as_deref) else { return Ok(None) };
    if arguments.word.is_some() || !arguments.answers.is_empty() {
        return Err(CliError::usage("--json JSON is the whole answer; do not combine it with a decision or --answer"));
    }
    match serde_json::from_str::<Value>(text) {
        Ok(body @ Value::Object(_)) => Ok(Some(body)),
        Ok(_) | Err(_) => {
            Err(CliError::usage("the value of --json must be a JSON object, such as '{\"decision\":\"accept\"}'"))
        }
    }
}

/// Shows the whole request and asks the user at the terminal.
fn asked(row: &Value, clock: &Clock, environment: &Environment) -> Result<Value, CliError> {
    if !terminal::is_there() {
        let how = detail_view::next(row, screen::Screen::None);
        let how = how.trim_start_matches("respond").split('\n').next().unwrap_or_default().trim();
        return Err(CliError::usage(match how {
            "" => format!("no answer given, and request {} is not pending", text(row, "request_id")),
            how => format!("no answer given, and no terminal to ask at; use {how}"),
        }));
    }
    let screen = screen::Screen::of_stdout(environment);
    screen::print(&detail_view::question(row, clock, screen));
    if row["status"] != "pending" {
        let id = text(row, "request_id");
        return Err(CliError::failed(format!("request {id} is not pending any more; it was {}", ending(row))));
    }
    terminal::ask(row).map_err(CliError::failed)
}

/// Sends the answer and prints who answered first.
fn answer(session: &Found, row: &Value, body: &Value, clock: &Clock, as_json: bool) -> Done {
    let id = text(row, "request_id");
    let path = format!("/sessions/self/codex-requests/{id}/respond");
    let asked = client::post_within(&session.dir, &path, body.to_string(), DECISION_WAIT_MAX);
    if let Err(error) = &asked
        && !error.is_unsent()
        && session.is_still_live()
    {
        // A hung relay may still take the answer later.
        let told = error.message(session);
        return Err(CliError::failed(format!("{told}; `codex-shim show {id}` then shows which answer won")));
    }
    let answer = needed(session, asked)?;
    if !answer.status.is_success() {
        let refused = Refused::of(&answer);
        return Err(match refused.code.as_str() {
            "request_not_found" => CliError::from(NotNamed::Unknown { name: id.to_owned(), there_are: Vec::new() }),
            "invalid_response" => CliError::usage(format!(
                "not a valid answer to request {id}: {}; `codex-shim show {id}` shows what is; nothing was sent",
                refused.message
            )),
            "request_unavailable" => {
                CliError::failed(format!("{}; nothing was sent; see `codex-shim show {id}`", refused.message))
            }
            _ => CliError::failed(refused.message),
        });
    }
    let document: Value = answer.document().map_err(CliError::failed)?;
    let (line, is_ours) = verdict(&document, body, clock);
    let printed = if as_json { print_json(&document) } else { screen::print(&format!("{}\n", screen::plain(&line))) };
    Ok(if is_ours { printed } else { FAILED })
}

/// Who answered first, and whether the winning answer equals this one.
fn verdict(document: &Value, body: &Value, clock: &Clock) -> (String, bool) {
    let row = &document["request"];
    let id = text(row, "request_id");
    if document["idempotent"] == json!(false) {
        return (format!("request {id} {}", ending(row)), true);
    }
    let is_ours = body::is_stored(row, body);
    let so = if is_ours { "the same as your answer" } else { "your answer was not sent" };
    (format!("request {id} was {} at {}; {so}", ending(row), clock.text(text(row, "resolved_at"))), is_ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_names_the_winner() {
        let check = |idempotent: bool, code: Value, expect: &str, is_ours: bool| {
            let document = json!({ "idempotent": idempotent, "request": {
                "request_id": "g-0", "status": "resolved", "request_method": "item/commandExecution/requestApproval", "request_payload": {},
                "resolved_payload": if code.is_null() { json!({ "decision": "accept" }) } else { Value::Null },
                "resolution_source": "client", "resolved_by": "ide", "resolved_at": "T", "error_code": code,
            }});
            let said = json!({ "decision": if is_ours { "accept" } else { "decline" } });
            assert_eq!(
                verdict(&document, &said, &Clock::stopped("2026-01-02T03:04:05Z")),
                (expect.to_owned(), is_ours)
            );
        };
        check(false, Value::Null, "request g-0 answered by client (ide): accept", true);
        let first = "request g-0 was answered by client (ide): accept at T; the same as your answer";
        check(true, Value::Null, first, true);
        let other = "request g-0 was answered by client (ide): accept at T; your answer was not sent";
        check(true, Value::Null, other, false);
        let gone = "request g-0 was withdrawn by the server before there was an answer at T; your answer was not sent";
        check(true, json!("withdrawn_by_server"), gone, false);
    }
}
