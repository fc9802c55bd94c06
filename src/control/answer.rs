//! Bodies for `POST …/codex-requests/ID/respond`, built from a word or from named answers.
//!
//! Pure. The relay decides whether a request can be answered; this module only knows the form of an answer for each kind.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::form::{self, FieldError};
use crate::engine::GivenAnswer;
use crate::protocol::RequestKind;

/// A decision in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    /// Approve once.
    Accept,
    /// Approve, and approve the same again in this session without asking.
    AcceptForSession,
    /// Decline; the model goes on without it.
    Decline,
    /// Decline and end the turn.
    Cancel,
}

/// The kind of the request in a ledger row.
pub(crate) fn kind_of(row: &Value) -> RequestKind {
    row["request_method"].as_str().and_then(RequestKind::of).unwrap_or(RequestKind::Other)
}

/// How the requests of a kind are answered.
struct Answers {
    /// The kind as users read it.
    name: &'static str,
    /// The decisions that it takes.
    words: &'static [Word],
    takes_reason: bool,
    /// The arguments of `respond`.
    respond: &'static str,
    /// Follows the name of the kind in a refusal.
    takes: &'static str,
}

const APPROVAL: Answers = Answers {
    name: "command",
    words: &[Word::Accept, Word::AcceptForSession, Word::Decline, Word::Cancel],
    takes_reason: true,
    respond: "accept|accept-for-session|decline|cancel",
    takes: "takes accept, accept-for-session, decline or cancel",
};

const fn answers_of(kind: RequestKind) -> Answers {
    match kind {
        RequestKind::Command | RequestKind::OldCommand => APPROVAL,
        RequestKind::FileChange | RequestKind::OldPatch => Answers { name: "file change", ..APPROVAL },
        RequestKind::Permissions => Answers {
            name: "permissions",
            words: &[Word::Accept, Word::AcceptForSession, Word::Decline],
            takes_reason: false,
            respond: "accept|accept-for-session|decline",
            takes: "takes accept, accept-for-session or decline; to end the turn, use `codex-shim interrupt`",
        },
        RequestKind::Elicitation => Answers {
            name: "elicitation",
            words: &[Word::Accept, Word::Decline, Word::Cancel],
            takes_reason: false,
            respond: "accept|decline|cancel, or --answer FIELD=TEXT …",
            takes: "takes accept, decline or cancel",
        },
        RequestKind::UserInput => Answers {
            name: "question",
            words: &[],
            takes_reason: false,
            respond: "--answer ID=TEXT …",
            takes: "takes --answer ID=TEXT, once for each question",
        },
        RequestKind::Other => Answers {
            name: "other",
            words: &[],
            takes_reason: false,
            respond: "--json '{\"result\":…}'",
            takes: "takes --json '{\"result\":…}'",
        },
    }
}

/// The kind as users read it.
pub(crate) fn kind_name(kind: RequestKind) -> &'static str {
    answers_of(kind).name
}

/// Whether declining a request of this kind takes a reason.
pub(crate) fn takes_reason(kind: RequestKind) -> bool {
    answers_of(kind).takes_reason
}

/// The arguments of `respond` for a kind; only a form with fields takes their texts.
#[must_use]
pub(crate) fn respond_arguments(kind: RequestKind, has_fields: bool) -> &'static str {
    match kind {
        RequestKind::Elicitation if !has_fields => "accept|decline|cancel",
        RequestKind::Command
        | RequestKind::OldCommand
        | RequestKind::FileChange
        | RequestKind::OldPatch
        | RequestKind::Permissions
        | RequestKind::Elicitation
        | RequestKind::UserInput
        | RequestKind::Other => answers_of(kind).respond,
    }
}

/// The body for a decision.
///
/// # Errors
///
/// The message says what this kind of request accepts.
pub(crate) fn of_word(row: &Value, word: Word, reason: Option<&str>) -> Result<Value, String> {
    let kind = kind_of(row);
    let Answers { name, words, takes_reason, takes, .. } = answers_of(kind);
    let refused = |takes: &str| Err(format!("a request of kind `{name}` {takes}"));
    if !takes_reason && !words.is_empty() && reason.is_some() {
        return refused("takes no reason: leave it out, and tell the model with `codex-shim send`");
    }
    if !words.contains(&word) {
        return refused(takes);
    }
    let decision = match word {
        Word::Accept => "accept",
        Word::AcceptForSession => "acceptForSession",
        Word::Decline => "decline",
        Word::Cancel => "cancel",
    };
    match (kind, word) {
        (RequestKind::Permissions, Word::Accept) => Ok(json!({ "permissions": asked_for(row), "scope": "turn" })),
        (RequestKind::Permissions, Word::AcceptForSession) => {
            Ok(json!({ "permissions": asked_for(row), "scope": "session" }))
        }
        (RequestKind::Permissions, Word::Decline | Word::Cancel) => Ok(json!({ "permissions": {} })),
        (RequestKind::Elicitation, _) => Ok(json!({ "action": decision })),
        (RequestKind::Command | RequestKind::FileChange | RequestKind::OldCommand | RequestKind::OldPatch, _) => {
            let mut body = json!({ "decision": decision });
            reason.into_iter().for_each(|reason| body["reason"] = json!(reason));
            Ok(body)
        }
        (RequestKind::UserInput | RequestKind::Other, _) => refused(takes),
    }
}

/// The requested permissions, without null members.
fn asked_for(row: &Value) -> Value {
    let asked = row["request_payload"]["permissions"].as_object().into_iter().flatten();
    Value::Object(
        asked.filter(|(_, value)| !value.is_null()).map(|(name, value)| (name.clone(), value.clone())).collect(),
    )
}

/// The body for answers to questions, or for the fields of an elicitation. A question that is answered twice gets both answers.
///
/// # Errors
///
/// One error for each invalid field, or one that says what this kind of request accepts.
pub(crate) fn of_answers(row: &Value, answers: &[(String, String)]) -> Result<Value, Vec<FieldError>> {
    let kind = kind_of(row);
    let whole = |message: String| Err(vec![FieldError { field: None, message }]);
    match kind {
        RequestKind::UserInput => {
            let mut given: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
            for (id, answer) in answers {
                given.entry(id).or_default().push(answer);
            }
            Ok(json!({ "answers": given }))
        }
        RequestKind::Elicitation => {
            form::content(row, answers).map(|content| json!({ "action": "accept", "content": content }))
        }
        RequestKind::Command
        | RequestKind::FileChange
        | RequestKind::OldCommand
        | RequestKind::OldPatch
        | RequestKind::Permissions => {
            whole(format!("a request of kind `{}` {}", kind_name(kind), answers_of(kind).takes))
        }
        RequestKind::Other => {
            whole("codex-shim does not know this kind of request: answer with --json '{\"result\":…}'".to_owned())
        }
    }
}

/// Whether `body` is equivalent to the stored answer. An answer that was not stored is never equivalent.
pub(crate) fn is_stored(row: &Value, body: &Value) -> bool {
    let Ok(given) = serde_json::from_value::<GivenAnswer>(body.clone()) else { return false };
    let Ok(payload) = serde_json::from_str::<Box<RawValue>>(&row["request_payload"].to_string()) else { return false };
    given
        .check(kind_of(row), Some(&payload))
        .is_ok_and(|checked| normalized(&checked.result) == normalized(&row["resolved_payload"]))
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

/// A stored answer in a few words.
pub(crate) fn in_words(payload: &Value) -> String {
    let first = ["decision", "action"].iter().find_map(|name| payload[*name].as_str());
    match (first, payload) {
        (Some(word), _) => word.to_owned(),
        (None, Value::Null) => "no answer".to_owned(),
        (None, _) => match (payload["permissions"].as_object(), payload["omitted"].as_str()) {
            (Some(granted), _) if granted.is_empty() => "nothing granted".to_owned(),
            (Some(_), _) => format!("granted for the {}", payload["scope"].as_str().unwrap_or("turn")),
            (None, Some(_)) => "an answer that is not stored".to_owned(),
            (None, None) => payload.to_string(),
        },
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
            assert_eq!(of_word(&row(method, &payload), word, None).ok(), expect, "{method} {word:?}");
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
        check(QUESTIONS, Word::Accept, None);
        check("new/method", Word::Accept, None);
    }

    #[test]
    fn reasons_are_refused_if_the_kind_has_none() {
        let with = |method: &str| of_word(&row(method, &json!({})), Word::Decline, Some("no"));
        assert_eq!(with(COMMAND), Ok(json!({ "decision": "decline", "reason": "no" })));
        assert!(with(PERMISSIONS).is_err() && with(ELICITATION).is_err());
    }

    #[test]
    fn answers_go_to_questions_or_fields() {
        let given = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(id, answer)| ((*id).to_owned(), (*answer).to_owned())).collect()
        };
        let questions = of_answers(&row(QUESTIONS, &json!({})), &given(&[("a", "x"), ("b", "y"), ("a", "z")]));
        assert_eq!(questions, Ok(json!({ "answers": { "a": ["x", "z"], "b": ["y"] } })));
        let schema = json!({ "requestedSchema": { "properties": { "n": { "type": "integer" }, "yes": { "type": "boolean" } } } });
        let elicit = |pairs| of_answers(&row(ELICITATION, &schema), &given(pairs));
        assert_eq!(
            elicit(&[("n", "3"), ("yes", "no")]),
            Ok(json!({ "action": "accept", "content": { "n": 3, "yes": false } }))
        );
        assert!(elicit(&[("n", "three")]).is_err());
        assert!(of_answers(&row(COMMAND, &json!({})), &given(&[("a", "x")])).is_err());
    }

    #[test]
    fn equivalent_answers_match_the_stored_one() {
        let check = |method: &str, stored: Value, body: Value, expect: bool| {
            let mut row = row(method, &json!({ "questions": [{ "id": "a" }] }));
            row["resolved_payload"] = stored.clone();
            assert_eq!(is_stored(&row, &body), expect, "{stored} {body}");
        };
        check(COMMAND, json!({ "decision": "accept" }), json!({ "decision": "accept" }), true);
        check(COMMAND, json!({ "decision": "decline" }), json!({ "decision": "accept" }), false);
        check("applyPatchApproval", json!({ "decision": "denied" }), json!({ "decision": "decline" }), true);
        check(PERMISSIONS, json!({ "permissions": {} }), json!({ "permissions": {} }), true);
        check(ELICITATION, json!({ "action": "decline" }), json!({ "action": "decline" }), true);
        check(QUESTIONS, json!({ "answers": { "a": { "answers": ["x"] } } }), json!({ "answers": { "a": "x" } }), true);
        check(QUESTIONS, json!({ "omitted": "secret" }), json!({ "answers": { "a": "x" } }), false);
        check(COMMAND, Value::Null, json!({ "decision": "accept" }), false);
    }

    #[test]
    fn answers_are_described_in_words() {
        let check = |payload: Value, expect: &str| assert_eq!(in_words(&payload), expect);
        check(json!({ "decision": "accept" }), "accept");
        check(json!({ "action": "cancel", "content": null }), "cancel");
        check(json!({ "permissions": {} }), "nothing granted");
        check(json!({ "permissions": { "network": {} }, "scope": "session" }), "granted for the session");
        check(json!({ "omitted": "secret" }), "an answer that is not stored");
        check(json!({ "decision": { "x": 1 } }), "{\"decision\":{\"x\":1}}");
        check(Value::Null, "no answer");
    }
}
