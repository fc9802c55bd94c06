//! Bodies for `POST …/codex-requests/ID/respond`, built from a word or from named answers.
//!
//! Pure. The relay decides whether a request can be answered; this module only knows the form of an answer for each kind.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::form::{self, FieldError};
use crate::api::Request;
use crate::engine::{GivenAnswer, Persist, RequestKind, RequestType, UNANSWERED, answers_nothing};
use crate::protocol::{Word, of_name};

/// The arguments of `respond` that fill in a form. They fail if they are pasted as they are, because `…` is not a decision.
const FIELDS: &str = "--answer FIELD=TEXT …";

/// The argument of `respond` for a decision.
pub fn argument(word: Word) -> &'static str {
    match word {
        Word::AcceptForSession => "accept-for-session",
        Word::Accept | Word::Decline | Word::Cancel => word.decision(),
    }
}

/// How much longer than once an accepted request can hold. An answer to a form has more to say than that.
pub fn offers(row: &Request) -> Vec<Persist> {
    let is_elicitation = row.kind().request_type() == RequestType::Elicitation;
    if is_elicitation && form::fields(row).is_empty() { Persist::offered(&row.request_payload) } else { Vec::new() }
}

/// The body that accepts an elicitation for longer than once.
pub fn persisting(persist: Persist) -> Value {
    json!({ "action": Word::Accept.decision(), "persist": persist })
}

/// The body that declines a suggestion for good, if the request offers it.
pub fn declining_for_good(row: &Request) -> Option<Value> {
    let is_elicitation = row.kind().request_type() == RequestType::Elicitation;
    let persist = Persist::offered_to_decline(&row.request_payload).filter(|_| is_elicitation)?;
    Some(json!({ "action": Word::Decline.decision(), "persist": persist }))
}

/// The decisions that a request takes: those of its kind, and what only this one offers.
pub fn words(row: &Request) -> Vec<Word> {
    let mut words = row.kind().words().to_vec();
    if offers(row).contains(&Persist::Session) {
        words.insert(1, Word::AcceptForSession);
    }
    words
}

/// What a request takes: `a request of kind `command` takes accept, …`.
#[must_use]
pub fn takes(row: &Request) -> String {
    let (kind, words) = (row.kind(), words(row));
    let may_end_turn = words.is_empty() || words.contains(&Word::Cancel);
    let words: Vec<&str> = words.into_iter().map(argument).collect();
    let takes = match (kind.request_type(), &words[..]) {
        (RequestType::UserInput, _) => "--answer ID=TEXT, once for each question".to_owned(),
        (_, [words @ .., last]) => format!("{} or {last}", words.join(", ")),
        (_, []) => "--json '{\"result\":…}'".to_owned(),
    };
    let otherwise = if may_end_turn { "" } else { "; to end the turn, use `codex-shim interrupt`" };
    format!("a request of kind `{}` takes {takes}{otherwise}", kind.name())
}

/// Whether declining a request of this kind takes a reason.
pub fn takes_reason(kind: RequestKind) -> bool {
    kind.request_type() == RequestType::Approval
}

/// The ways to answer a request with `respond`, each as one command line: a line that is pasted into a shell does what it says
/// or fails. A form is offered only if there is one, and a plain `accept` only if no field is required.
#[must_use]
pub fn respond_arguments(row: &Request) -> Vec<&'static str> {
    let kind = row.kind();
    let fields = form::fields(row);
    let is_complete = !fields.iter().any(|field| field.is_required);
    match kind.request_type() {
        RequestType::UserInput => vec!["--answer ID=TEXT …"],
        RequestType::Other => vec!["--json '{\"result\":…}'"],
        RequestType::Approval | RequestType::Permissions | RequestType::Elicitation => {
            let of_word = |word: &Word| match word {
                Word::Accept => {
                    let form = Some(FIELDS).filter(|_| !fields.is_empty());
                    [Some(argument(*word)).filter(|_| is_complete), form]
                }
                Word::AcceptForSession | Word::Decline | Word::Cancel => [Some(argument(*word)), None],
            };
            words(row).iter().flat_map(of_word).flatten().collect()
        }
    }
}

/// The body for a decision.
///
/// # Errors
///
/// The message says what this kind of request accepts.
pub fn of_word(row: &Request, word: Word, reason: Option<&str>) -> Result<Value, String> {
    let kind = row.kind();
    if !kind.words().is_empty() && !takes_reason(kind) && reason.is_some() {
        let instead = "takes no reason: leave it out, and tell the model with `codex-shim send`";
        return Err(format!("a request of kind `{}` {instead}", kind.name()));
    }
    if !words(row).contains(&word) {
        return Err(takes(row));
    }
    match kind.request_type() {
        RequestType::Approval => {
            let mut body = json!({ "decision": word.decision() });
            reason.into_iter().for_each(|reason| body["reason"] = json!(reason));
            Ok(body)
        }
        RequestType::Permissions => Ok(match word {
            Word::Accept => json!({ "permissions": asked_for(row), "scope": "turn" }),
            Word::AcceptForSession => json!({ "permissions": asked_for(row), "scope": "session" }),
            Word::Decline | Word::Cancel => json!({ "permissions": {} }),
        }),
        RequestType::Elicitation if word == Word::AcceptForSession => Ok(persisting(Persist::Session)),
        RequestType::Elicitation => Ok(json!({ "action": word.decision() })),
        RequestType::UserInput | RequestType::Other => Err(takes(row)),
    }
}

/// The requested permissions, without null members.
fn asked_for(row: &Request) -> Value {
    let asked = row.request_payload["permissions"].as_object().into_iter().flatten();
    Value::Object(
        asked.filter(|(_, value)| !value.is_null()).map(|(name, value)| (name.clone(), value.clone())).collect(),
    )
}

/// The body for answers to questions, or for the fields of an elicitation. A question that is answered twice gets both answers.
///
/// # Errors
///
/// One error for each invalid field, or one that says what this kind of request accepts.
pub fn of_answers(row: &Request, answers: &[(String, String)]) -> Result<Value, Vec<FieldError>> {
    let kind = row.kind();
    let refused = |message: String| Err(vec![FieldError { field: None, message }]);
    match kind.request_type() {
        RequestType::UserInput => {
            let mut given: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
            for (id, answer) in answers {
                given.entry(id).or_default().push(answer);
            }
            Ok(json!({ "answers": given }))
        }
        RequestType::Elicitation => {
            form::content(row, answers).map(|content| json!({ "action": "accept", "content": content }))
        }
        RequestType::Approval | RequestType::Permissions => refused(takes(row)),
        RequestType::Other => {
            refused("codex-shim does not know this kind of request: answer with --json '{\"result\":…}'".to_owned())
        }
    }
}

/// Whether `body` is equivalent to the stored answer. An answer that was not stored is never equivalent.
pub fn is_stored(row: &Request, body: &Value) -> bool {
    let Ok(given) = serde_json::from_value::<GivenAnswer>(body.clone()) else { return false };
    let Ok(payload) = serde_json::from_str::<Box<RawValue>>(&row.request_payload.to_string()) else { return false };
    given
        .check(row.kind(), &row.request_method, Some(&payload))
        .is_ok_and(|checked| normalized(&checked.result) == normalized(&row.resolved_payload))
}

/// A result without null members and without the default scope, which some clients leave out.
fn normalized(result: &Value) -> Value {
    let Some(members) = result.as_object() else { return result.clone() };
    let says = |(name, value): &(&String, &Value)| {
        let is_usual_scope = *name == "scope" && *value == "turn";
        !value.is_null() && !is_usual_scope
    };
    Value::Object(members.iter().filter(says).map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// An acceptance that holds for longer than once.
pub fn persist_in_words(persist: Persist) -> &'static str {
    match persist {
        Persist::Session => "accept for the session",
        Persist::Always => "accept, and do not ask again",
    }
}

/// An answer no that holds for longer than once.
pub const DECLINED_FOR_GOOD: &str = "decline, and do not suggest it again";

/// A stored answer in a few words.
pub fn in_words(payload: &Value) -> String {
    let first = ["decision", "action"].iter().find_map(|name| payload[*name].as_str());
    match (first, payload) {
        (Some(word), _) => match (payload["_meta"]["persist"].as_str().and_then(of_name), word) {
            (Some(persist), "accept") => persist_in_words(persist).to_owned(),
            (Some(Persist::Always), "decline") => DECLINED_FOR_GOOD.to_owned(),
            (Some(_) | None, _) => word.to_owned(),
        },
        (None, Value::Null) => "no answer".to_owned(),
        (None, _) => match (payload["permissions"].as_object(), payload["omitted"].as_str()) {
            (Some(granted), _) if granted.is_empty() => "nothing granted".to_owned(),
            (Some(_), _) => format!("granted for the {}", payload["scope"].as_str().unwrap_or("turn")),
            (None, Some(_)) => "an answer that is not stored".to_owned(),
            (None, None) if answers_nothing(payload) => "no answer".to_owned(),
            (None, None) => payload.to_string(),
        },
    }
}

/// The outcome of a request in one word: `accepted`, `declined`, `expired`.
#[must_use]
pub fn outcome_word(row: &Request) -> &str {
    match (row.is_withdrawn(), row.is_resolved()) {
        (true, _) => "withdrawn",
        (false, true) => answer_word(&row.resolved_payload),
        (false, false) => &row.status,
    }
}

/// What an answer does, in one word: `accepted`, `declined`, `cancelled`, `unanswered`, or `answered` for all others.
pub fn answer_word(payload: &Value) -> &'static str {
    let network = &payload["decision"]["applyNetworkPolicyAmendment"]["network_policy_amendment"];
    let decision = [&payload["decision"], &payload["action"], &network["action"]].into_iter().find_map(Value::as_str);
    match (decision.and_then(Word::named), decision, payload["permissions"].as_object()) {
        (Some(Word::Accept | Word::AcceptForSession), ..) | (None, Some("allow"), _) => "accepted",
        (Some(Word::Decline), ..) | (None, Some("deny"), _) => "declined",
        (Some(Word::Cancel), ..) => "cancelled",
        (None, None, _) if payload["decision"]["acceptWithExecpolicyAmendment"].is_object() => "accepted",
        (None, None, Some(granted)) if granted.is_empty() => "declined",
        (None, None, Some(_)) => "accepted",
        (None, None, None) if answers_nothing(payload) => UNANSWERED,
        (None, ..) => "answered",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(method: &str, payload: &Value) -> Value {
        json!({ "request_method": method, "request_payload": payload })
    }

    const COMMAND: &str = "item/commandExecution/requestApproval";
    const PERMISSIONS: &str = "item/permissions/requestApproval";
    const QUESTIONS: &str = "item/tool/requestUserInput";
    const ELICITATION: &str = "mcpServer/elicitation/request";

    #[test]
    fn each_kind_takes_its_own_words() {
        let check = |method: &str, word: Word, expect: Option<Value>| {
            let payload = json!({ "permissions": { "network": { "enabled": true }, "fileSystem": null } });
            assert_eq!(of_word(&Request::from(&row(method, &payload)), word, None).ok(), expect, "{method} {word:?}");
        };
        let network = json!({ "network": { "enabled": true } });
        check(COMMAND, Word::Accept, Some(json!({ "decision": "accept" })));
        check("applyPatchApproval", Word::AcceptForSession, Some(json!({ "decision": "acceptForSession" })));
        check(COMMAND, Word::Cancel, Some(json!({ "decision": "cancel" })));
        check(PERMISSIONS, Word::Accept, Some(json!({ "permissions": network, "scope": "turn" })));
        check(PERMISSIONS, Word::AcceptForSession, Some(json!({ "permissions": network, "scope": "session" })));
        check(PERMISSIONS, Word::Decline, Some(json!({ "permissions": {} })));
        check(PERMISSIONS, Word::Cancel, None);
        check(ELICITATION, Word::Decline, Some(json!({ "action": "decline" })));
        check(ELICITATION, Word::AcceptForSession, None);
        let offered = |fields: Value| {
            json!({ "_meta": { "codex_approval_kind": "mcp_tool_call", "persist": ["session"] },
            "requestedSchema": { "properties": fields } })
        };
        let for_session =
            |payload: &Value| of_word(&Request::from(&row(ELICITATION, payload)), Word::AcceptForSession, None).ok();
        assert_eq!(for_session(&offered(json!({}))), Some(json!({ "action": "accept", "persist": "session" })));
        assert_eq!(for_session(&offered(json!({ "n": { "type": "string" } }))), None);
        check(QUESTIONS, Word::Accept, None);
        check("new/method", Word::Accept, None);
    }

    #[test]
    fn each_way_to_respond_is_one_command() {
        let check = |method: &str, payload: Value, expect: &[&str]| {
            assert_eq!(respond_arguments(&Request::from(&row(method, &payload))), expect, "{method} {payload}");
        };
        check(COMMAND, json!({}), &["accept", "accept-for-session", "decline", "cancel"]);
        check(PERMISSIONS, json!({}), &["accept", "accept-for-session", "decline"]);
        check(QUESTIONS, json!({}), &["--answer ID=TEXT …"]);
        check("new/method", json!({}), &["--json '{\"result\":…}'"]);
        let form = |required: Value| json!({ "requestedSchema": { "properties": { "n": { "type": "string" } }, "required": required } });
        check(ELICITATION, json!({}), &["accept", "decline", "cancel"]);
        let tool = json!({ "_meta": { "codex_approval_kind": "mcp_tool_call", "persist": ["session", "always"] } });
        check(ELICITATION, tool, &["accept", "accept-for-session", "decline", "cancel"]);
        check(ELICITATION, form(json!([])), &["accept", FIELDS, "decline", "cancel"]);
        check(ELICITATION, form(json!(["n"])), &[FIELDS, "decline", "cancel"]);
    }

    #[test]
    fn reasons_are_refused_if_the_kind_has_none() {
        let with = |method: &str| of_word(&Request::from(&row(method, &json!({}))), Word::Decline, Some("no"));
        assert_eq!(with(COMMAND), Ok(json!({ "decision": "decline", "reason": "no" })));
        assert!(with(PERMISSIONS).is_err() && with(ELICITATION).is_err());
    }

    #[test]
    fn answers_go_to_questions_or_fields() {
        let given = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(id, answer)| ((*id).to_owned(), (*answer).to_owned())).collect()
        };
        let questions =
            of_answers(&Request::from(&row(QUESTIONS, &json!({}))), &given(&[("a", "x"), ("b", "y"), ("a", "z")]));
        assert_eq!(questions, Ok(json!({ "answers": { "a": ["x", "z"], "b": ["y"] } })));
        let schema = json!({ "requestedSchema": { "properties": { "n": { "type": "integer" }, "yes": { "type": "boolean" } } } });
        let elicit = |pairs| of_answers(&Request::from(&row(ELICITATION, &schema)), &given(pairs));
        assert_eq!(
            elicit(&[("n", "3"), ("yes", "no")]),
            Ok(json!({ "action": "accept", "content": { "n": 3, "yes": false } }))
        );
        assert!(elicit(&[("n", "three")]).is_err());
        assert!(of_answers(&Request::from(&row(COMMAND, &json!({}))), &given(&[("a", "x")])).is_err());
    }

    #[test]
    fn equivalent_answers_match_the_stored_one() {
        let check = |method: &str, stored: Value, body: Value, expect: bool| {
            let mut row = row(method, &json!({ "questions": [{ "id": "a" }] }));
            row["resolved_payload"] = stored.clone();
            assert_eq!(is_stored(&Request::from(&row), &body), expect, "{stored} {body}");
        };
        check(COMMAND, json!({ "decision": "accept" }), json!({ "decision": "accept" }), true);
        check(COMMAND, json!({ "decision": "decline" }), json!({ "decision": "accept" }), false);
        check("applyPatchApproval", json!({ "decision": "denied" }), json!({ "decision": "decline" }), true);
        check(PERMISSIONS, json!({ "permissions": {} }), json!({ "permissions": {} }), true);
        check(ELICITATION, json!({ "action": "decline" }), json!({ "action": "decline" }), true);
        let always = json!({ "action": "accept", "content": null, "_meta": { "persist": "always" } });
        check(ELICITATION, always, json!({ "action": "accept" }), false);
        check(QUESTIONS, json!({ "answers": { "a": { "answers": ["x"] } } }), json!({ "answers": { "a": "x" } }), true);
        check(QUESTIONS, json!({ "omitted": "secret" }), json!({ "answers": { "a": "x" } }), false);
        check(COMMAND, Value::Null, json!({ "decision": "accept" }), false);
    }

    #[test]
    fn answers_are_described_in_words() {
        let check = |payload: Value, expect: &str| assert_eq!(in_words(&payload), expect);
        check(json!({ "decision": "accept" }), "accept");
        check(json!({ "action": "cancel", "content": null }), "cancel");
        check(json!({ "action": "accept", "_meta": { "persist": "session" } }), "accept for the session");
        check(json!({ "action": "accept", "_meta": { "persist": "always" } }), "accept, and do not ask again");
        check(json!({ "action": "accept", "_meta": { "persist": "ever" } }), "accept");
        check(json!({ "action": "decline", "_meta": { "persist": "always" } }), DECLINED_FOR_GOOD);
        check(json!({ "action": "cancel", "_meta": { "persist": "always" } }), "cancel");
        check(json!({ "permissions": {} }), "nothing granted");
        check(json!({ "permissions": { "network": {} }, "scope": "session" }), "granted for the session");
        check(json!({ "omitted": "secret" }), "an answer that is not stored");
        check(json!({ "decision": { "x": 1 } }), "{\"decision\":{\"x\":1}}");
        check(Value::Null, "no answer");
        check(json!({ "answers": {} }), "no answer");
    }

    #[test]
    fn outcomes_have_one_word() {
        let check = |row: Value, expect: &str| assert_eq!(outcome_word(&Request::from(&row)), expect, "{row}");
        check(json!({ "status": "pending" }), "pending");
        check(json!({ "status": "orphaned", "error_code": "server_restarted" }), "orphaned");
        check(json!({ "status": "expired", "error_code": "request_expired" }), "expired");
        check(json!({ "status": "resolved", "error_code": "withdrawn_by_server" }), "withdrawn");
        let answered = |payload: Value, expect: &str| {
            check(json!({ "status": "resolved", "resolved_payload": payload, "error_code": null }), expect);
        };
        answered(json!({ "decision": "acceptForSession" }), "accepted");
        answered(json!({ "decision": "denied" }), "declined");
        answered(json!({ "action": "cancel", "content": null }), "cancelled");
        answered(json!({ "decision": { "acceptWithExecpolicyAmendment": {} } }), "accepted");
        let network = json!({ "applyNetworkPolicyAmendment": { "network_policy_amendment": { "action": "deny" } } });
        answered(json!({ "decision": network }), "declined");
        answered(json!({ "permissions": {} }), "declined");
        answered(json!({ "permissions": { "network": {} }, "scope": "turn" }), "accepted");
        answered(json!({ "answers": {} }), "unanswered");
        answered(json!({ "answers": { "q": { "answers": [] } } }), "unanswered");
        answered(json!({ "answers": { "q": { "answers": ["x"] } } }), "answered");
        answered(json!({ "omitted": "secret" }), "answered");
    }
}
