//! Reviews of codex's own reviewer, and the call that overrules one.
//!
//! The notification of a review is written in the names of the protocol, in camel case. The call takes the same review as an event of
//! codex's core, whose names are in snake case, and compares the action in it with what the model tries next. Source: codex
//! 0.169, which refuses the names of the notification.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::ItemPlace;
use crate::wire::Members;

/// An action that codex's own reviewer has denied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Denial {
    pub review_id: String,
    pub thread_id: String,
    pub turn_id: String,
    /// The parameters of the call that overrules it, as JSON.
    pub call: String,
}

impl Denial {
    /// Reads the notification of a review that has ended; `None` if it did not deny anything.
    pub fn of(params: &RawValue) -> Option<Denial> {
        let params: Value = serde_json::from_str(params.get()).ok()?;
        let text = |member: &str| params[member].as_str().map(str::to_owned);
        let review = &params["review"];
        if review["status"] != "denied" {
            return None;
        }
        let (review_id, thread_id, turn_id) = (text("reviewId")?, text("threadId")?, text("turnId")?);
        let event = json!({
            "id": review_id,
            "target_item_id": params["targetItemId"],
            "turn_id": turn_id,
            "started_at_ms": params["startedAtMs"],
            "completed_at_ms": params["completedAtMs"],
            "status": "denied",
            "risk_level": review["riskLevel"],
            "user_authorization": review["userAuthorization"],
            "rationale": review["rationale"],
            "decision_source": params["decisionSource"],
            "action": action(params["action"].as_object()?),
        });
        let call = json!({ "threadId": thread_id, "event": event }).to_string();
        Some(Denial { review_id, thread_id, turn_id, call })
    }
}

/// The review whose denial a call overrules, and its place: the item is the reviewed one.
pub fn overruled_review(params: &RawValue) -> Option<(String, ItemPlace)> {
    #[derive(Deserialize)]
    struct ReviewCall {
        #[serde(rename = "threadId", default)]
        thread_id: Option<String>,
        event: ReviewEvent,
    }
    #[derive(Deserialize)]
    struct ReviewEvent {
        id: String,
        #[serde(default)]
        turn_id: Option<String>,
        #[serde(default)]
        target_item_id: Option<String>,
    }
    let ReviewCall { thread_id, event: ReviewEvent { id, turn_id, target_item_id } } =
        serde_json::from_str(params.get()).ok()?;
    Some((id, ItemPlace { thread_id, turn_id, item_id: target_item_id }))
}

/// Actions under review that let the model write no more files than the sandbox and a command do.
const OF_SANDBOX: [&str; 5] = ["command", "execve", "mcpToolCall", "networkAccess", "writeStdin"];

/// Whether the action of a review lets the model write in more places, or is not known. It may be a patch or a request for permissions.
pub fn review_widens(params: &RawValue) -> bool {
    let action = Members::of(params).and_then(|params| params.get("action")).and_then(Members::of);
    action.and_then(|action| action.text("type")).is_none_or(|of| !OF_SANDBOX.contains(&of.as_str()))
}

/// The action in the names of codex's core.
fn action(action: &Map<String, Value>) -> Value {
    let kind = action.get("type").and_then(Value::as_str).unwrap_or_default();
    let member = |(name, value): (&String, &Value)| {
        let value = match (name.as_str(), value) {
            ("type" | "source" | "protocol", Value::String(word)) => Value::from(snake(word)),
            // The core has a URI here, and a path in all other actions.
            ("cwd", Value::String(path)) if kind == "writeStdin" => Value::from(file_uri(path)),
            (_, value) => renamed(value),
        };
        (snake(name), value)
    };
    Value::Object(action.iter().map(member).collect())
}

/// All names of members in snake case; values are unchanged.
fn renamed(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            Value::Object(members.iter().map(|(name, value)| (snake(name), renamed(value))).collect())
        }
        Value::Array(elements) => Value::Array(elements.iter().map(renamed).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

fn snake(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    for char in name.chars() {
        if char.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(char.to_ascii_lowercase());
    }
    snake
}

/// The URI of a path; a text that is a URI already stays as it is.
fn file_uri(path: &str) -> String {
    if !path.starts_with('/') {
        return path.to_owned();
    }
    let mut uri = "file://".to_owned();
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denial(status: &str, action: &Value) -> Option<Denial> {
        let params = json!({
            "threadId": "t", "turnId": "u", "reviewId": "r", "targetItemId": "i", "startedAtMs": 1, "completedAtMs": 2,
            "decisionSource": "agent", "action": action,
            "review": {"status": status, "riskLevel": "high", "userAuthorization": "low", "rationale": "no"},
        });
        Denial::of(&RawValue::from_string(params.to_string()).expect("BUG: it is JSON"))
    }

    #[test]
    fn only_denials_can_be_overruled() {
        let action = json!({"type": "command", "source": "unifiedExec", "command": "ls", "cwd": "/w"});
        for status in ["inProgress", "approved", "timedOut", "aborted", "new"] {
            assert_eq!(denial(status, &action), None, "{status}");
        }
        let denied = denial("denied", &action).expect("it is one");
        assert_eq!((&*denied.review_id, &*denied.thread_id, &*denied.turn_id), ("r", "t", "u"));
        let expect = json!({"threadId": "t", "event": {
            "id": "r", "target_item_id": "i", "turn_id": "u", "started_at_ms": 1, "completed_at_ms": 2,
            "status": "denied", "risk_level": "high", "user_authorization": "low", "rationale": "no",
            "decision_source": "agent",
            "action": {"type": "command", "source": "unified_exec", "command": "ls", "cwd": "/w"},
        }});
        assert_eq!(serde_json::from_str::<Value>(&denied.call).ok(), Some(expect));
        assert_eq!(denial("denied", &Value::Null), None);
        assert_eq!(Denial::of(RawValue::NULL), None);
    }

    #[test]
    fn actions_have_the_names_of_the_core() {
        let check = |given: Value, expect: Value| {
            let denied = denial("denied", &given).expect("it is one");
            let call: Value = serde_json::from_str(&denied.call).expect("it is JSON");
            assert_eq!(call["event"]["action"], expect);
        };
        check(
            json!({"type": "networkAccess", "target": "x", "host": "h", "protocol": "socks5Tcp", "port": 1}),
            json!({"type": "network_access", "target": "x", "host": "h", "protocol": "socks5_tcp", "port": 1}),
        );
        check(
            json!({"type": "mcpToolCall", "server": "s", "toolName": "someTool", "connectorId": null}),
            json!({"type": "mcp_tool_call", "server": "s", "tool_name": "someTool", "connector_id": null}),
        );
        check(
            json!({"type": "writeStdin", "approvalId": "aB", "processId": "1", "stdin": "Y\n", "cwd": "/a b/ä"}),
            json!({"type": "write_stdin", "approval_id": "aB", "process_id": "1", "stdin": "Y\n",
                "cwd": "file:///a%20b/%C3%A4"}),
        );
        let entries = json!([{"path": {"type": "path", "path": "/X"}, "access": "write"}]);
        check(
            json!({"type": "requestPermissions", "reason": null,
                "permissions": {"fileSystem": {"entries": entries, "globScanMaxDepth": 3}}}),
            json!({"type": "request_permissions", "reason": null,
                "permissions": {"file_system": {"entries": entries, "glob_scan_max_depth": 3}}}),
        );
    }

    #[test]
    fn reviews_of_patches_and_permissions_widen() {
        let widens = |action: &str| {
            let params = RawValue::from_string(format!(r#"{{"threadId":"t","action":{action}}}"#));
            review_widens(&params.expect("BUG: it is JSON"))
        };
        for action in ["requestPermissions", "applyPatch", "newThing"] {
            assert!(widens(&format!(r#"{{"type":"{action}"}}"#)), "{action}");
        }
        assert!(widens("null") && widens("{}"));
        for action in OF_SANDBOX {
            assert!(!widens(&format!(r#"{{"type":"{action}"}}"#)), "{action}");
        }
    }
}
