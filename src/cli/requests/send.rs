//! `codex-shim send` and `codex-shim interrupt`: message the model or stop it, beside the client.

use std::io::Read as _;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use super::super::history::thread_named;
use super::super::screen;
use super::args::{InterruptArguments, SendArguments};
use super::wait::TurnWatch;
use super::{CliError, Done, Refused, needed, print_json, running, select_session, text};
use crate::config::Environment;
use crate::control::client;
use crate::protocol::Method;
use crate::store::Found;

/// How long the relay may take: it gives the server 30 s.
const TURN_WAIT_MAX: Duration = Duration::from_secs(35);

/// Sends a message to the model.
pub(in crate::cli) fn run_send(arguments: SendArguments, environment: &Environment) -> Done {
    let session = running(arguments.session.name(), environment)?;
    let says = match arguments.text.as_str() {
        "-" => from_stdin()?,
        _ => arguments.text,
    };
    if says.trim().is_empty() {
        return Err(CliError::usage("the message is empty"));
    }
    let thread = match (arguments.is_new, &arguments.thread) {
        (true, _) => Some(new_thread(&session)?),
        (false, Some(name)) => Some(thread_named(&session, name, environment)?),
        (false, None) => None,
    };
    let began = Instant::now();
    let at = select_session::argument_for(&session, arguments.session.name(), environment);
    let watch = arguments.wait.then(|| TurnWatch::begin(&session, at)).transpose()?;
    let body = with_thread(json!({ "text": says }), thread);
    let asked = client::post_within(&session.dir, "/sessions/self/input", body, TURN_WAIT_MAX);
    let answer = needed(&session, asked)?;
    if !answer.status.is_success() {
        return Err(CliError::failed(refusal(&Refused::of(&answer), "send it again")));
    }
    let turn: Value = answer.document().map_err(CliError::failed)?;
    if let Some(watch) = watch {
        let left = || arguments.timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
        return watch.end(&session, turn, left)?.print(arguments.as_json);
    }
    if arguments.as_json {
        return Ok(print_json(&turn));
    }
    let (turn_id, thread_id) = (screen::plain(text(&turn, "turn_id")), screen::plain(text(&turn, "thread_id")));
    Ok(screen::print(&match turn["steered"] == true {
        true => format!("sent to running turn {turn_id} in thread {thread_id}\n"),
        false => format!("started turn {turn_id} in thread {thread_id}\n"),
    }))
}

/// Starts a thread in the session's folder; returns its id.
fn new_thread(session: &Found) -> Result<String, CliError> {
    let mut params = json!({});
    if let Some(holder) = &session.holder {
        params["cwd"] = json!(holder.place.cwd);
    }
    let body = json!({ "method": Method::ThreadStart.name(), "params": params }).to_string();
    let answer = needed(session, client::post_within(&session.dir, "/sessions/self/rpc", body, TURN_WAIT_MAX))?;
    if !answer.status.is_success() {
        return Err(CliError::failed(format!("start a thread: {}", Refused::of(&answer).message)));
    }
    let document: Value = answer.document().map_err(CliError::failed)?;
    match document["result"]["thread"]["id"].as_str() {
        Some(id) => Ok(id.to_owned()),
        None => {
            let why = document["error"]["message"].as_str().unwrap_or("the server's answer names no thread");
            Err(CliError::failed(format!("start a thread: {why}")))
        }
    }
}

/// All of stdin without the final line break of a shell or editor.
fn from_stdin() -> Result<String, CliError> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().lock().read_to_end(&mut bytes);
    read.map_err(|error| CliError::failed(format!("read stdin: {error}")))?;
    let text = String::from_utf8(bytes).map_err(|_| CliError::failed("the message on stdin is not valid UTF-8"))?;
    Ok(text.strip_suffix('\n').unwrap_or(&text).to_owned())
}

fn with_thread(mut body: Value, thread: Option<String>) -> String {
    if let Some(thread) = thread {
        body["thread_id"] = json!(thread);
    }
    body.to_string()
}

/// The refusal of a call, and the next step.
fn refusal(refused: &Refused, again: &str) -> String {
    let Refused { code, message, detail } = refused;
    match code.as_str() {
        "pending_structured_request" => {
            let pending = &detail["pending_request"];
            let id = text(pending, "request_id");
            let at = humantime::parse_rfc3339(text(pending, "requested_at")).ok();
            let waiting = at.map(|at| screen::age(at, SystemTime::now()));
            format!(
                "request {id} is pending in this thread{}; answer it with `codex-shim respond {id}`, then {again}",
                waiting.map(|age| format!(" for {age}")).unwrap_or_default()
            )
        }
        "thread_not_found" => {
            "no turn has run in this session yet; start a thread with --new, or name one with --thread".to_owned()
        }
        "no_active_turn" => format!("{message}; nothing to interrupt"),
        _ => message.clone(),
    }
}

/// Interrupts the running turn.
pub(in crate::cli) fn run_interrupt(arguments: InterruptArguments, environment: &Environment) -> Done {
    let session = running(arguments.common.session.name(), environment)?;
    let thread = arguments.thread.map(|name| thread_named(&session, &name, environment)).transpose()?;
    let body = with_thread(json!({}), thread);
    let asked = client::post_within(&session.dir, "/sessions/self/interrupt", body, TURN_WAIT_MAX);
    let answer = needed(&session, asked)?;
    if !answer.status.is_success() {
        return Err(CliError::failed(refusal(&Refused::of(&answer), "try again")));
    }
    if arguments.common.as_json {
        let document: Value = answer.document().map_err(CliError::failed)?;
        return Ok(print_json(&document));
    }
    Ok(screen::print("interrupted\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_the_next_step() {
        let refused = |code: &str, detail: Value| {
            refusal(&Refused { code: code.to_owned(), message: "m".to_owned(), detail }, "send it again")
        };
        let pending = json!({ "pending_request": { "request_id": "g-0", "requested_at": "2026" } });
        let told = refused("pending_structured_request", pending);
        assert!(told.starts_with("request g-0 is pending") && told.contains("codex-shim respond g-0"), "{told}");
        assert!(refused("thread_not_found", Value::Null).contains("--thread"));
        assert_eq!(refused("timeout", Value::Null), "m");
    }

    #[test]
    fn thread_is_named_if_known() {
        assert_eq!(with_thread(json!({}), None), "{}");
        assert_eq!(with_thread(json!({}), Some("t".to_owned())), r#"{"thread_id":"t"}"#);
    }
}
