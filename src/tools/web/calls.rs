//! Calls to the relay of a session on behalf of the page: answers, messages, interruptions. They block.
//!
//! The relay decides. Its refusals are passed on as they are; only the form of an answer is built and checked here, so that the
//! page need not know the protocol.

use std::borrow::Cow;
use std::collections::BTreeMap;

use axum::body::Bytes;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::routes::On;
use super::shown;
use crate::api::{self, Command, OneRequest};
use crate::control::client::Unanswered;
use crate::control::{Refusal, Responded, ok};
use crate::protocol::Word;
use crate::requests::answer::{is_stored, of_word};
use crate::requests::form::{Field, FieldError, in_one_line};
use crate::sessions::ask::{Ask, of_row};

/// The body of an answer.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Given {
    Offered(Offered),
    Reason(Reason),
    Answers(Answers),
}

/// An offered answer as it stands.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Offered {
    body: Value,
}

/// Declines with a reason.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reason {
    reason: String,
}

/// Texts by question or field.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Answers {
    answers: BTreeMap<String, Vec<String>>,
}

/// Sends an answer; the response says whose answer counts.
pub(super) fn respond(on: On<'_>, request_id: &str, given: &Given) -> Responded {
    let (one, ask) = match ask(on, request_id)? {
        Ok(found) => found,
        Err(error) => return unanswered(on, error),
    };
    let body = body(&ask, given)?;
    let replied = on.0.command(on.1, &Command::Respond(one, body.clone())).and_then(|reply| reply.document());
    match replied {
        Ok(api::Responded { idempotent, request, .. }) => {
            let mut told = shown::ending(&request);
            told["won"] = json!(!idempotent || is_stored(&request, &body));
            ok(&told)
        }
        Err(error) => unanswered(on, error),
    }
}

/// Further lines of the diff of a request's file.
pub(super) fn diff(on: On<'_>, request_id: &str, file: usize, from: usize) -> Responded {
    match ask(on, request_id)? {
        Ok((_, ask)) if ask.row.is_pending() => {
            let no_line = || Refusal::new(StatusCode::NOT_FOUND, "line_not_found", "the diff has no such line");
            ok(&shown::part_of_diff(&ask, file, from).ok_or_else(no_line)?)
        }
        Ok((_, ask)) => {
            let message = format!("the request no longer waits: it was {}", crate::requests::view::ending(&ask.row));
            Err(Refusal::new(StatusCode::NOT_FOUND, "request_unavailable", message))
        }
        Err(error) => unanswered(on, error),
    }
}

/// Sends a command; the response is that of the session.
pub(super) fn command(on: On<'_>, command: &Command) -> Responded {
    match on.0.command(on.1, command) {
        Ok(reply) => Ok(passed_on(StatusCode::OK, reply.0)),
        Err(error) => unanswered(on, error),
    }
}

/// A request of the ledger, pending or not.
fn ask(on: On<'_>, request_id: &str) -> Result<Result<(OneRequest, Ask), Unanswered>, Refusal> {
    let unknown = || Refusal::new(StatusCode::NOT_FOUND, "request_not_found", "unknown request; reload the page");
    let one = OneRequest::of(request_id).ok_or_else(unknown)?;
    Ok(on.0.request(on.1, &one).map(|request| (one, of_row(request, 0))))
}

/// The body for the relay.
fn body(ask: &Ask, given: &Given) -> Result<Value, Refusal> {
    match given {
        Given::Offered(Offered { body }) if shown::is_offered(ask, body) => Ok(body.clone()),
        Given::Offered(_) => Err(invalid("not_offered", "the request does not offer this answer; reload the page")),
        Given::Reason(Reason { reason }) => {
            let reason = Some(reason.trim()).filter(|reason| !reason.is_empty());
            of_word(&ask.row, Word::Decline, reason).map_err(|why| invalid("invalid_response", why))
        }
        Given::Answers(Answers { answers }) => {
            let kept = without_removed_defaults(ask, answers);
            kept.answered(&texts(ask, answers)).map_err(|errors| of_fields(&errors))
        }
    }
}

/// Whether the user has removed the default of a field. The page does not show the default of a secret, so that one stays.
fn removes_default(field: &Field, given: &[String]) -> bool {
    !field.is_secret && field.default.is_some() && given.iter().all(String::is_empty)
}

/// The request without the defaults that the user has removed, so that an empty answer does not bring its default back.
fn without_removed_defaults<'a>(ask: &'a Ask, answers: &BTreeMap<String, Vec<String>>) -> Cow<'a, Ask> {
    let is_removed = |field: &&Field| answers.get(&field.name).is_some_and(|given| removes_default(field, given));
    let removed: Vec<&Field> = ask.view.fields.iter().filter(is_removed).collect();
    if removed.is_empty() {
        return Cow::Borrowed(ask);
    }
    let mut row = ask.row.clone();
    let properties = &mut row.request_payload["requestedSchema"]["properties"];
    removed.iter().for_each(|field| properties[&field.name]["default"] = Value::Null);
    Cow::Owned(of_row(row, ask.asked_us))
}

/// Names and texts. Several choices of a field become one text in JSON, because a label may contain a comma. So does the
/// empty list of a field from which all choices were removed.
fn texts(ask: &Ask, answers: &BTreeMap<String, Vec<String>>) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (name, given) in answers {
        let given: Vec<&String> = given.iter().filter(|text| !text.is_empty()).collect();
        let field = ask.view.fields.iter().find(|field| field.name == *name && field.takes_many);
        let is_removed = field.is_some_and(|field| removes_default(field, &answers[name]));
        let value_of = |text: &&String| {
            let choice = field?.choices.iter().find(|choice| choice.label == **text);
            choice.map(|choice| choice.value.clone())
        };
        let values: Option<Vec<Value>> = given.iter().map(value_of).collect();
        match values.filter(|values| !values.is_empty() || is_removed) {
            Some(values) => all.push((name.clone(), Value::Array(values).to_string())),
            None => all.extend(given.into_iter().map(|text| (name.clone(), text.clone()))),
        }
    }
    all
}

fn invalid(error_code: &'static str, message: impl Into<String>) -> Refusal {
    Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, error_code, message)
}

/// The refusal for a form that is not filled in well, with a message for each field.
fn of_fields(errors: &[FieldError]) -> Refusal {
    let named = errors.iter().filter_map(|error| Some((error.field.clone()?, json!(error.message))));
    let named: Map<String, Value> = named.collect();
    invalid("invalid_response", in_one_line(errors)).with("fields", Value::Object(named))
}

/// The response if a session has no document. A refusal is passed on as it is.
fn unanswered((source, found): On<'_>, error: Unanswered) -> Responded {
    let error = match error {
        Unanswered::Refused(refused) => return Ok(passed_on(refused.answer.status, refused.answer.body)),
        Unanswered::Invalid(why) => {
            let message = format!("the relay of this session has another version: {why}; start its client again");
            return Err(Refusal::new(StatusCode::BAD_GATEWAY, "not_understood", message));
        }
        Unanswered::NoAnswer(error) => error,
    };
    if !source.is_still_live(found) {
        let message = "this session has stopped; start its client again";
        return Err(Refusal::new(StatusCode::CONFLICT, "session_stopped", message));
    }
    Err(match error.is_unsent() {
        true => Refusal::new(StatusCode::BAD_GATEWAY, "session_silent", error.message(found)),
        false => {
            let message =
                format!("no reply, so it may or may not count; look at the session: {}", error.message(found));
            Refusal::new(StatusCode::GATEWAY_TIMEOUT, "timeout", message)
        }
    })
}

/// A document of a session as it was sent.
fn passed_on(status: StatusCode, body: Bytes) -> Response {
    (status, [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(text: &str) -> Option<Given> {
        serde_json::from_str(text).ok()
    }

    fn ask_of(method: &str, payload: Value) -> Ask {
        of_row(json!({ "request_method": method, "request_payload": payload }).into(), 0)
    }

    fn built(ask: &Ask, text: &str) -> Result<Value, Value> {
        let given = given(text).expect("it can be read");
        body(ask, &given).map_err(|refusal| serde_json::to_value(&refusal).expect("it is JSON")["detail"].take())
    }

    #[test]
    fn only_offered_answers_are_sent() {
        let ask = ask_of("item/commandExecution/requestApproval", json!({ "command": "ls" }));
        let accept = json!({ "decision": "accept" });
        assert_eq!(built(&ask, r#"{"body":{"decision":"accept"}}"#), Ok(accept));
        let refused = built(&ask, r#"{"body":{"decision":{"acceptWithExecpolicyAmendment":{}}}}"#);
        assert_eq!(refused.map_err(|detail| detail["error_code"].clone()), Err(json!("not_offered")));
        assert_eq!(built(&ask, r#"{"reason":" no "}"#), Ok(json!({ "decision": "decline", "reason": "no" })));
        assert_eq!(built(&ask, r#"{"reason":""}"#), Ok(json!({ "decision": "decline" })));
        for wrong in [r#"{}"#, r#"{"body":1,"reason":""}"#, r#"{"answers":{"a":"x"}}"#, r#"{"decision":"accept"}"#] {
            assert!(given(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn each_field_of_a_form_gets_its_error() {
        let schema = json!({ "type": "object", "required": ["n"], "properties": { "n": { "type": "integer", "maximum": 9 },
            "zones": { "type": "array", "items": { "enum": ["a", "b"], "enumNames": ["A, north", "B"] } } } });
        let ask = ask_of("mcpServer/elicitation/request", json!({ "message": "?", "requestedSchema": schema }));
        let wrong = built(&ask, r#"{"answers":{"n":["99"]}}"#).expect_err("it is too much");
        assert_eq!(wrong["fields"], json!({ "n": "99 is greater than the maximum of 9" }));
        let missing = built(&ask, r#"{"answers":{"n":[""]}}"#).expect_err("it is missing");
        assert_eq!(missing["fields"], json!({ "n": "a value is required" }));
        let body = built(&ask, r#"{"answers":{"n":["3"],"zones":["A, north"]}}"#);
        assert_eq!(body, Ok(json!({ "action": "accept", "content": { "n": 3, "zones": ["a"] } })));
    }

    #[test]
    fn removed_answers_do_not_become_defaults() {
        let schema = json!({ "type": "object", "required": ["must"], "properties": {
            "must": { "type": "string", "default": "m" },
            "note": { "type": "string", "default": "n" },
            "words": { "type": "array", "items": { "type": "string" }, "default": ["w"] },
            "zones": { "type": "array", "items": { "enum": ["dev", "prod"] }, "default": ["prod"] },
            "api_token": { "type": "string", "default": "hunter2" } } });
        let ask = ask_of("mcpServer/elicitation/request", json!({ "message": "?", "requestedSchema": schema }));
        let body = built(&ask, r#"{"answers":{"must":["x"],"note":[],"words":[""],"zones":[],"api_token":[]}}"#);
        let content = json!({ "must": "x", "words": [], "zones": [], "api_token": "hunter2" });
        assert_eq!(body, Ok(json!({ "action": "accept", "content": content })));
        let missing = built(&ask, r#"{"answers":{"must":[]}}"#).expect_err("it is missing");
        assert_eq!(missing["fields"], json!({ "must": "a value is required" }));
        let untouched = json!({ "must": "m", "note": "n", "words": ["w"], "zones": ["prod"], "api_token": "hunter2" });
        assert_eq!(built(&ask, r#"{"answers":{}}"#), Ok(json!({ "action": "accept", "content": untouched })));
    }

    #[test]
    fn questions_need_one_answer() {
        let ask = ask_of("item/tool/requestUserInput", json!({ "questions": [{ "id": "q", "question": "?" }] }));
        assert_eq!(built(&ask, r#"{"answers":{"q":["x"]}}"#), Ok(json!({ "answers": { "q": ["x"] } })));
        assert!(built(&ask, r#"{"answers":{}}"#).is_err() && built(&ask, r#"{"answers":{"q":[""]}}"#).is_err());
    }
}
