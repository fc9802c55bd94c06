//! What makes a request riskier than it looks, and whether an answer to it is asked about once more before it is sent.
//!
//! Pure. One place decides this for the terminal UI, the page and `codex-shim respond`. Each reason is a sentence without its end:
//! `it deletes a file`.

use serde_json::Value;

use super::danger::{self, CommandPlace};
use super::view::{ChangedFile, RequestView, is_inside, unseen};
use crate::api::Request;
use crate::engine::{RequestKind, RequestType, Subject, one_line, permissions_in_words};
use crate::protocol::{CommandText, Word};
use crate::requests::answer::answer_word;

/// Holds longer than the turn.
const HOLDS: &str = "it holds for the whole session";

/// Changes the rules of codex or its settings.
const CHANGES_RULES: &str = "it changes what is asked about from now on";

impl RequestView {
    /// Why to ask once more before this body answers the request; `None` if it may go at once. A command of which the words say nothing
    /// dangerous may do anything all the same.
    pub fn asked_again(&self, row: &Request, body: &Value) -> Option<String> {
        asked_again(row, self.kind, &self.dangers, body)
    }
}

pub(super) fn asked_again(row: &Request, kind: RequestKind, dangers: &[String], body: &Value) -> Option<String> {
    if kind.request_type() == RequestType::UserInput {
        return None;
    }
    let answer = body.get("result").unwrap_or(body);
    // An offer of an unknown form may accept.
    let accepts = answer_word(answer) == "accepted" || answer["decision"].is_object() && !refuses_network(answer);
    let dangers = dangers.iter().filter(|_| accepts).cloned();
    let reasons: Vec<String> = dangers.chain(more_than_asked(row, answer)).chain(lasting(answer)).collect();
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

fn refuses_network(answer: &Value) -> bool {
    answer["decision"]["applyNetworkPolicyAmendment"]["network_policy_amendment"]["action"] == "deny"
}

/// What the answer grants beyond what is asked.
fn more_than_asked(row: &Request, answer: &Value) -> Option<String> {
    let asked = permissions_in_words(&row.request_payload["permissions"]);
    let granted = permissions_in_words(&answer["permissions"]);
    let more: Vec<String> = granted.into_iter().filter(|one| !asked.contains(one)).collect();
    (!more.is_empty()).then(|| format!("it grants more than what is asked: {}", more.join(", ")))
}

/// How long the answer holds, if for longer than this request.
fn lasting(answer: &Value) -> Option<String> {
    let persist = [&answer["persist"], &answer["_meta"]["persist"]].into_iter().find_map(Value::as_str);
    let is_for_session = answer["decision"].as_str().and_then(Word::named) == Some(Word::AcceptForSession);
    let lasts = match (answer["decision"].is_object(), persist) {
        (true, _) | (false, Some("always")) => CHANGES_RULES,
        (false, Some(_)) => HOLDS,
        (false, None) if is_for_session || answer["scope"] == "session" => HOLDS,
        (false, None) => return None,
    };
    Some(lasts.to_owned())
}

/// The folder in which the thread of a request works, if it is known.
pub(super) fn folder_of(row: &Request) -> Option<&str> {
    row.thread()?.cwd.as_deref().filter(|folder| folder.starts_with('/'))
}

/// Everything in a request that makes accepting it riskier than it looks.
pub(super) fn dangers(row: &Request, kind: RequestKind, files: &[ChangedFile]) -> Vec<String> {
    let payload = &row.request_payload;
    let mut dangers = Vec::new();
    if let Some(root) = payload["grantRoot"].as_str() {
        dangers.push(format!("all below {root} may be written to from then on"));
    }
    if !payload["additionalPermissions"].is_null() {
        dangers.push("it is given more than the sandbox allows".to_owned());
    }
    dangers.extend(wide_permissions(&payload["permissions"], payload["cwd"].as_str().unwrap_or_default()));
    if !payload["networkApprovalContext"].is_null() {
        let host = payload["networkApprovalContext"]["host"].as_str().unwrap_or("the network");
        dangers.push(format!("it reaches {host}"));
    }
    let risk = &payload["risk"];
    let level = [&risk["riskLevel"], &risk["risk_level"]].into_iter().find_map(Value::as_str);
    dangers.extend(level.filter(|level| *level != "low").map(|level| format!("codex calls its risk {level}")));
    dangers.extend(in_words(row).into_iter().map(|reason| format!("it {reason}")));
    dangers.extend(of_files(files, folder_of(row)));
    if kind.subject() == Some(Subject::Diff) {
        dangers.extend(unseen(files));
    }
    // Of a request on another machine, a part may have stayed there: other lines of a command, or what it may do.
    dangers.extend(row.left_out.clone());
    dangers
}

/// What looks dangerous in the words of the command.
fn in_words(row: &Request) -> Vec<String> {
    let payload = &row.request_payload;
    let place = CommandPlace { folder: folder_of(row), cwd: payload["cwd"].as_str() };
    match CommandText::of(&payload["command"]) {
        Some(CommandText::Line(line)) => danger::of_line(line, place),
        Some(CommandText::Words(words)) => danger::of_words(&words, place),
        None => Vec::new(),
    }
}

/// Deleted files, and those outside the folder.
fn of_files(files: &[ChangedFile], folder: Option<&str>) -> impl Iterator<Item = String> {
    let counted = |count: usize, does: &str, what: &str| match count {
        0 => None,
        1 => Some(format!("it {does} a file{what}")),
        many => Some(format!("it {does} {many} files{what}")),
    };
    let deleted = files.iter().filter(|file| file.kind == "delete").count();
    let outside = files.iter().filter(|file| file.is_outside(folder)).count();
    [counted(deleted, "deletes", ""), counted(outside, "changes", " outside the folder")].into_iter().flatten()
}

/// The requested permissions that reach the network or files outside the folder; an unknown permission is one of them.
fn wide_permissions(wanted: &Value, cwd: &str) -> Vec<String> {
    let mut wide = Vec::new();
    for (name, value) in wanted.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
        match &**name {
            "network" if value["enabled"] == false => {}
            "network" => wide.push("it reaches the network".to_owned()),
            "fileSystem" => {
                let entries = value["entries"].as_array().into_iter().flatten();
                let entries =
                    entries.filter(|entry| !matches!(entry["access"].as_str(), Some("read" | "none" | "deny")));
                let paths = value["write"].as_array().into_iter().flatten();
                let is_outside = entries.map(|entry| &entry["path"]).chain(paths).any(|path| !is_inside(path, cwd));
                wide.extend(is_outside.then(|| "it may write outside its folder".to_owned()));
            }
            name => wide.push(format!("it asks for a permission of an unknown kind: {}", one_line(name))),
        }
    }
    wide
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const COMMAND: &str = "item/commandExecution/requestApproval";
    const CHANGE: &str = "item/fileChange/requestApproval";
    const PERMISSIONS: &str = "item/permissions/requestApproval";
    const ELICITATION: &str = "mcpServer/elicitation/request";

    fn row(method: &str, payload: Value) -> Request {
        let row = json!({ "request_method": method, "request_payload": payload, "thread": { "cwd": "/w" } });
        Request::from(row).with_choices()
    }

    fn change(changes: Value) -> Request {
        Request { changes, ..row(CHANGE, json!({})) }
    }

    fn changed(kind: &str, path: &str) -> Value {
        json!({ "path": path, "kind": { "type": kind }, "diff": "x" })
    }

    #[test]
    fn answers_that_are_asked_about_once_more() {
        let plain = || row(COMMAND, json!({ "command": "make", "cwd": "/w" }));
        let removes = || row(COMMAND, json!({ "command": "/bin/bash -lc 'rm -rf x'", "cwd": "/w" }));
        let old = |command: Value| row("execCommandApproval", json!({ "command": command, "cwd": "/w" }));
        let network = json!({ "network": { "enabled": true } });
        let asks = |permissions: &Value| row(PERMISSIONS, json!({ "permissions": permissions, "cwd": "/w" }));
        let form = |meta: Value| row(ELICITATION, json!({ "message": "?", "_meta": meta }));
        let always = json!({ "acceptWithExecpolicyAmendment": { "execpolicy_amendment": ["make"] } });
        let host = |action: &str| json!({ "applyNetworkPolicyAmendment": { "network_policy_amendment": { "host": "a.b", "action": action } } });
        let (removing, reaches) = ("it deletes folders with all that is in them", "it reaches the network");
        let both = |one: &str, other: &str| format!("{one}; {other}");
        let table: Vec<(Request, Value, Option<String>)> = vec![
            (plain(), json!({ "decision": "accept" }), None),
            (plain(), json!({ "decision": "decline" }), None),
            (plain(), json!({ "decision": "acceptForSession" }), Some(HOLDS.to_owned())),
            (plain(), json!({ "decision": always }), Some(CHANGES_RULES.to_owned())),
            (plain(), json!({ "decision": host("allow") }), Some(CHANGES_RULES.to_owned())),
            (plain(), json!({ "decision": host("deny") }), Some(CHANGES_RULES.to_owned())),
            (plain(), json!({ "decision": { "new": 1 } }), Some(CHANGES_RULES.to_owned())),
            (removes(), json!({ "decision": "accept" }), Some(removing.to_owned())),
            (removes(), json!({ "result": { "decision": "accept" } }), Some(removing.to_owned())),
            (removes(), json!({ "decision": "acceptForSession" }), Some(both(removing, HOLDS))),
            (removes(), json!({ "decision": always }), Some(both(removing, CHANGES_RULES))),
            (removes(), json!({ "decision": "decline", "reason": "no" }), None),
            (removes(), json!({ "decision": "cancel" }), None),
            (removes(), json!({ "decision": host("deny") }), Some(CHANGES_RULES.to_owned())),
            (old(json!(["rm", "-rf", "x"])), json!({ "decision": "accept" }), Some(removing.to_owned())),
            (old(json!(["rm", "-rf", "x"])), json!({ "decision": "approved" }), Some(removing.to_owned())),
            (old(json!(["ls"])), json!({ "decision": "approved_for_session" }), Some(HOLDS.to_owned())),
            (change(json!([changed("update", "/w/a")])), json!({ "decision": "accept" }), None),
            (change(json!([changed("update", "a")])), json!({ "decision": "accept" }), None),
            (
                change(json!([changed("delete", "/w/a")])),
                json!({ "decision": "accept" }),
                Some("it deletes a file".to_owned()),
            ),
            (
                change(json!([changed("delete", "/x/a"), changed("delete", "/w/b"), changed("add", "/w/../y")])),
                json!({ "decision": "accept" }),
                Some("it deletes 2 files; it changes 2 files outside the folder".to_owned()),
            ),
            (asks(&network), json!({ "permissions": network, "scope": "turn" }), Some(reaches.to_owned())),
            (asks(&network), json!({ "permissions": network, "scope": "session" }), Some(both(reaches, HOLDS))),
            (asks(&network), json!({ "permissions": {} }), None),
            (
                asks(&json!({ "fileSystem": { "write": ["/w/x"] } })),
                json!({ "permissions": { "network": { "enabled": true }, "fileSystem": { "write": ["/w/x"] } } }),
                Some("it grants more than what is asked: network access".to_owned()),
            ),
            (form(Value::Null), json!({ "action": "accept", "content": null }), None),
            (form(Value::Null), json!({ "action": "accept", "persist": "session" }), Some(HOLDS.to_owned())),
            (form(Value::Null), json!({ "action": "accept", "persist": "always" }), Some(CHANGES_RULES.to_owned())),
            (form(Value::Null), json!({ "action": "decline", "persist": "always" }), Some(CHANGES_RULES.to_owned())),
            (
                row("item/tool/requestUserInput", json!({ "questions": [] })),
                json!({ "answers": { "q": "rm -rf x" } }),
                None,
            ),
        ];
        for (row, body, expect) in table {
            assert_eq!(RequestView::of(&row).asked_again(&row, &body), expect, "{body} {row:?}");
        }
    }

    #[test]
    fn nothing_is_outside_an_unknown_folder() {
        let check = |thread: Value, expect: usize| {
            let thread = serde_json::from_value(json!({ "thread": thread })).map(|row: Request| row.thread);
            let row = Request {
                thread: thread.expect("BUG: it is a thread"),
                ..change(json!([changed("update", "/etc/x")]))
            };
            assert_eq!(RequestView::of(&row).warnings.len(), expect, "{row:?}");
        };
        let row = row(COMMAND, json!({ "command": "echo x > /etc/x", "cwd": "/w" }));
        assert_eq!(RequestView::of(&row).warnings, ["it writes a file outside the folder"]);
        check(json!({ "cwd": "/w" }), 1);
        check(json!({ "cwd": "/" }), 0);
        check(json!({ "cwd": null }), 0);
        check(Value::Null, 0);
    }
}
