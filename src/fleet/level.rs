//! The parts of events and requests that leave the machine at each level. Pure.
//!
//! With [`FleetLevel::Summary`] only the members that are listed here leave it: what happened, when and where, but no output, no diff
//! and no message text. A member that is not listed stays, so that a new one of codex leaves only once it is listed.

use serde_json::{Map, Value};

use crate::config::FleetLevel;
use crate::control::answer::kind_of;
use crate::control::request_view::files;
use crate::engine::{one_line, without_shell};
use crate::secrets::{redacted, redacted_json};

/// Members of an event.
const EVENT: [&str; 11] = [
    "seq",
    "session_id",
    "generation",
    "timestamp",
    "event_type",
    "thread_id",
    "turn_id",
    "item_id",
    "delta_count",
    "persisted",
    "epoch",
];

/// Members of an event's payload, by their path.
const PAYLOAD: [&str; 19] = [
    "item.type",
    "item.id",
    "item.status",
    "item.exitCode",
    "item.durationMs",
    "turn.id",
    "turn.status",
    "status.type",
    "status",
    "request_id",
    "source",
    "error_code",
    "lines",
    "after_seq",
    "up_to_seq",
    "version",
    "exit_code",
    "conn",
    "tokenUsage.total.totalTokens",
];

/// Members of the row of a request.
const REQUEST: [&str; 17] = [
    "request_id",
    "session_id",
    "process_generation",
    "request_method",
    "request_type",
    "thread_id",
    "turn_id",
    "item_id",
    "requested_at",
    "expires_at",
    "dispatched_at",
    "confirmed_at",
    "resolved_at",
    "status",
    "error_code",
    "resolution_source",
    "resolved_by",
];

/// Members of a request's payload.
const REQUEST_PAYLOAD: [&str; 3] = ["command", "cwd", "itemId"];

/// Members of an answer.
const ANSWER: [&str; 4] = ["at", "source", "by", "won"];

/// Longest text of a member that stays, in bytes. Ids, names and states are short; a longer text may be a message.
const TEXT_BYTES_MAX: usize = 128;

/// An event of the history, as it leaves the machine.
pub(crate) fn event(event: &str, level: FleetLevel) -> String {
    let event = redacted_json(event).unwrap_or_else(|| event.to_owned());
    match level {
        FleetLevel::Full => event,
        FleetLevel::Summary => {
            let Ok(whole) = serde_json::from_str::<Value>(&event) else { return "{}".to_owned() };
            let mut kept = picked(&whole, &EVENT, TEXT_BYTES_MAX);
            kept.insert("payload_preview".to_owned(), of_paths(&whole["payload_preview"]));
            Value::Object(kept).to_string()
        }
    }
}

/// The members of `value` with these names; of texts, only short ones.
fn picked(value: &Value, names: &[&str], text_bytes_max: usize) -> Map<String, Value> {
    let is_kept = |value: &Value| match value {
        Value::String(text) => text.len() <= text_bytes_max,
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
        Value::Array(_) | Value::Object(_) => false,
    };
    let named = names.iter().filter_map(|name| Some(((*name).to_owned(), value.get(name)?.clone())));
    named.filter(|(_, value)| is_kept(value)).collect()
}

fn of_paths(payload: &Value) -> Value {
    let mut kept = Map::new();
    for path in PAYLOAD {
        let found = path.split('.').try_fold(payload, |value, name| value.get(name));
        let word = found.filter(|value| match value {
            Value::String(text) => is_word(text),
            Value::Bool(_) | Value::Number(_) => true,
            Value::Null | Value::Array(_) | Value::Object(_) => false,
        });
        if let Some(value) = word {
            put(&mut kept, path, value.clone());
        }
    }
    Value::Object(kept)
}

/// Whether a text is an id, a state or a name, and no sentence.
fn is_word(text: &str) -> bool {
    text.len() <= TEXT_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./:".contains(&byte))
}

/// Puts a value at a path, with the objects above it.
fn put(members: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => drop(members.insert(path.to_owned(), value)),
        Some((first, rest)) => {
            let below = members.entry(first).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(below) = below {
                put(below, rest, value);
            }
        }
    }
}

/// The row of a request, as it leaves the machine.
pub(crate) fn request(row: &Value, level: FleetLevel) -> Value {
    match level {
        FleetLevel::Full => masked(row),
        FleetLevel::Summary => {
            let row = &masked(row);
            let mut kept = picked(row, &REQUEST, usize::MAX);
            let payload = picked(&row["request_payload"], &REQUEST_PAYLOAD, usize::MAX);
            kept.insert("request_payload".to_owned(), Value::Object(payload));
            kept.insert("summary".to_owned(), Value::from(summary(row, level)));
            let decision = row["resolved_payload"].get("decision").and_then(Value::as_str).filter(|word| is_word(word));
            let resolved = match (decision, row["resolved_payload"].is_null()) {
                (Some(word), _) => serde_json::json!({ "decision": word }),
                (None, true) => Value::Null,
                (None, false) => serde_json::json!({}),
            };
            kept.insert("resolved_payload".to_owned(), resolved);
            let offered = row["available_decisions"].as_array().into_iter().flatten();
            let words = offered.filter(|offer| offer.as_str().is_some_and(is_word)).cloned();
            kept.insert("available_decisions".to_owned(), words.collect());
            Value::Object(kept)
        }
    }
}

/// The line about a request. At [`FleetLevel::Summary`] it names the command or the files, and has no reason and no question,
/// which the model or a tool has written.
pub(crate) fn summary(row: &Value, level: FleetLevel) -> String {
    let line = match level {
        FleetLevel::Full => row["summary"].as_str().unwrap_or_default().to_owned(),
        FleetLevel::Summary => {
            let command =
                row["request_payload"]["command"].as_str().map(|command| format!("run {}", without_shell(command)));
            let files = files(&row["changes"]);
            let changes = match &files[..] {
                [] => None,
                [one] => Some(format!("change {}", one.path)),
                several => Some(format!("change {} files", several.len())),
            };
            one_line(&command.or(changes).unwrap_or_else(|| kind_of(row).name().to_owned()))
        }
    };
    redacted(&line).unwrap_or(line)
}

/// An answer to a request, as it leaves the machine.
pub(crate) fn answer(answer: &Value, level: FleetLevel) -> Value {
    match level {
        FleetLevel::Full => masked(answer),
        FleetLevel::Summary => Value::Object(picked(answer, &ANSWER, usize::MAX)),
    }
}

/// A document with all secrets masked.
pub(crate) fn masked(document: &Value) -> Value {
    redacted_json(&document.to_string())
        .and_then(|json| serde_json::from_str(&json).ok())
        .unwrap_or_else(|| document.clone())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn kept(payload: Value) -> Value {
        let whole =
            json!({ "seq": 7, "event_type": "item/completed", "thread_id": "t", "payload_preview": payload, "new": 1 });
        let left: Value = serde_json::from_str(&event(&whole.to_string(), FleetLevel::Summary)).expect("JSON");
        assert_eq!((&left["seq"], left.get("new")), (&json!(7), None));
        left["payload_preview"].clone()
    }

    #[test]
    fn summary_has_no_output_and_no_text() {
        let command = json!({ "item": { "type": "commandExecution", "command": "echo SECRETWORD", "aggregatedOutput": "SECRETWORD",
            "status": "completed", "exitCode": 0 } });
        assert_eq!(
            kept(command),
            json!({ "item": { "type": "commandExecution", "status": "completed", "exitCode": 0 } })
        );
        assert_eq!(kept(json!({ "delta": "SECRETWORD" })), json!({}));
        assert_eq!(
            kept(json!({ "item": { "type": "agentMessage", "text": "SECRETWORD" } })),
            json!({ "item": { "type": "agentMessage" } })
        );
        assert_eq!(kept(json!({ "truncated": true, "preview": "{\"item\":\"SECRETWORD" })), json!({}));
        assert_eq!(
            kept(json!({ "turn": { "status": "failed", "error": { "message": "SECRETWORD" } } })),
            json!({ "turn": { "status": "failed" } })
        );
        // A state that is a sentence is not a state.
        assert_eq!(kept(json!({ "status": "the SECRETWORD is here" })), json!({}));
        assert_eq!(kept(json!("SECRETWORD")), json!({}));
    }

    proptest! {
        #[test]
        fn no_json_like_text_leaves_under_summary(text in "\\PC{0,40}", name in "[a-zA-Z.]{1,12}") {
            let secret = format!("a secret sentence {text}");
            let payload = json!({ &name: secret, "item": { &name: secret, "text": secret }, "list": [secret] });
            let whole = json!({ "seq": 1, "event_type": "e", "payload_preview": payload });
            let left = event(&whole.to_string(), FleetLevel::Summary);
            prop_assert!(!left.contains("secret sentence"), "{}", left);
            let _ = event(&text, FleetLevel::Full);
            let _ = event(&text, FleetLevel::Summary);
        }
    }

    #[test]
    fn full_events_are_masked() {
        let whole = json!({ "seq": 1, "payload_preview": { "password": "hunter2hunter2" } }).to_string();
        let left = event(&whole, FleetLevel::Full);
        assert!(left.contains("payload_preview") && !left.contains("hunter2"), "{left}");
    }

    #[test]
    fn summary_of_request_has_no_diff_and_no_question() {
        let row = json!({ "request_id": "g-0", "request_method": "item/fileChange/requestApproval", "summary": "change a.rs",
            "changes": [{ "path": "a.rs", "diff": "SECRETWORD" }], "request_payload": { "reason": "SECRETWORD" },
            "available_decisions": ["accept", { "acceptWithExecpolicyAmendment": ["SECRETWORD"] }] });
        let left = request(&row, FleetLevel::Summary);
        assert_eq!((&left["summary"], &left["available_decisions"]), (&json!("change a.rs"), &json!(["accept"])));
        assert!(!left.to_string().contains("SECRETWORD"), "{left}");
        let asked = json!({ "request_id": "g-1", "request_method": "item/tool/requestUserInput", "summary": "SECRETWORD?",
            "request_payload": { "questions": [{ "id": "q", "question": "SECRETWORD?" }] } });
        let left = request(&asked, FleetLevel::Summary);
        assert!(!left.to_string().contains("SECRETWORD") && left["summary"] != "", "{left}");
        assert!(request(&asked, FleetLevel::Full).to_string().contains("SECRETWORD"));
    }

    #[test]
    fn summary_of_command_names_the_command() {
        let row = json!({ "request_method": "item/commandExecution/requestApproval", "summary": "run make (to see)",
            "request_payload": { "command": "make", "cwd": "/p", "reason": "to see" } });
        let left = request(&row, FleetLevel::Summary);
        assert_eq!(
            (&left["summary"], &left["request_payload"]),
            (&json!("run make"), &json!({ "command": "make", "cwd": "/p" }))
        );
        let given =
            json!({ "at": "T", "source": "cli", "by": "uid 0", "won": true, "payload": { "text": "SECRETWORD" } });
        assert_eq!(
            answer(&given, FleetLevel::Summary),
            json!({ "at": "T", "source": "cli", "by": "uid 0", "won": true })
        );
    }
}
