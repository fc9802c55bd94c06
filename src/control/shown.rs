//! A request as rows for a person: everything there is to decide on, and its outcome, in words.
//!
//! Pure. Members that are not known by name are shown too, so that no one approves something unseen: their names as words, and
//! below the second level as JSON, because that is data and not protocol. The texts are untrusted; the caller escapes them
//! before they reach a terminal.

use serde_json::Value;

use super::answer::in_words;
use crate::engine::{command_line, one_line, permissions_in_words, without_shell};

/// How to display a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meant {
    /// The text of a question.
    Asked,
    Plain,
    Added,
    Removed,
    /// The position of a hunk in a diff.
    Place,
}

/// A text with a label; lines of a diff have none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub label: String,
    /// One line or several.
    pub text: String,
    pub meant: Meant,
}

/// Everything there is to decide on, except questions and forms.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Shown {
    /// The members of the request.
    pub members: Vec<Row>,
    /// The changed files, each with its diff.
    pub changes: Vec<Row>,
}

/// Members that come first, under their own names.
const FIRST: [&str; 4] = ["command", "message", "cwd", "reason"];

/// Members that are shown elsewhere (ids, choices, questions, forms, diffs) or tell a person nothing.
const ELSEWHERE: [&str; 19] = [
    "threadId",
    "turnId",
    "itemId",
    "conversationId",
    "callId",
    "approvalId",
    "elicitationId",
    "challenge",
    "startedAtMs",
    "autoResolutionMs",
    "availableDecisions",
    "proposedExecpolicyAmendment",
    "proposedNetworkPolicyAmendments",
    "commandActions",
    "parsedCmd",
    "questions",
    "requestedSchema",
    "fileChanges",
    "isBlocking",
];

/// Longest JSON on one line, in bytes.
const JSON_LINE_BYTES_MAX: usize = 100;

/// The content of a ledger row.
#[must_use]
pub(crate) fn shown(row: &Value) -> Shown {
    let payload = &row["request_payload"];
    let mut shown = Shown::default();
    let mut some = |label: &str, value: &Value, meant: Meant| {
        if let Some(text) = in_text(value) {
            shown.members.push(Row { label: label.to_owned(), text, meant });
        }
    };
    match &payload["command"] {
        Value::Array(words) if words.iter().all(Value::is_string) => {
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            some("command", &command_line(&words).into(), Meant::Asked);
        }
        Value::String(command) => some("command", &without_shell(command).into(), Meant::Asked),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            some("command", &payload["command"], Meant::Asked);
        }
    }
    some("message", &payload["message"], Meant::Asked);
    some("cwd", &payload["cwd"], Meant::Plain);
    some("reason", &payload["reason"], Meant::Plain);
    match payload.as_object() {
        Some(members) => {
            let is_known = |name: &String| FIRST.contains(&name.as_str()) || ELSEWHERE.contains(&name.as_str());
            for (name, value) in members.iter().filter(|(name, _)| !is_known(name)) {
                if let Some((label, text)) = member_in_words(name, value) {
                    some(&label, &text, Meant::Plain);
                }
            }
            some("proposes", &Value::String(proposals(payload).join("\n")), Meant::Plain);
        }
        None => some("payload", payload, Meant::Plain),
    }
    changes(if row["changes"].is_null() { &payload["fileChanges"] } else { &row["changes"] }, &mut shown.changes);
    shown
}

/// The label and text of a member; `None` if it tells a person nothing.
fn member_in_words(name: &str, value: &Value) -> Option<(String, Value)> {
    let lines = |words: Vec<String>| Value::String(words.join("\n"));
    let (label, text) = match (name, value.as_str()) {
        ("kind", Some("writeStdin")) => ("kind", "input for a command that is already running".into()),
        ("kind", Some("humanCommand")) => ("kind", "must be decided by a person, each time".into()),
        ("kind", Some("command")) | ("environmentId", Some("local")) => return None,
        ("mode", Some("form" | "openai/form" | "openaiForm" | "url")) => return None,
        ("environmentId", _) => ("environment", value.clone()),
        ("serverName", _) => ("asked by", value.clone()),
        ("url", _) => ("address", value.clone()),
        ("_meta", _) => ("more", members_in_words(value)),
        ("grantRoot", Some(root)) => ("allows", format!("writing anywhere below {root}").into()),
        ("additionalPermissions", _) if value.is_object() => ("also wants", lines(permissions_in_words(value))),
        ("permissions", _) if value.is_object() => ("wants", lines(permissions_in_words(value))),
        ("networkApprovalContext", _) if value["host"].is_string() => {
            let host = value["host"].as_str().unwrap_or_default();
            let protocol = value["protocol"].as_str().map(|protocol| match protocol {
                "socks5Tcp" => " (SOCKS5, TCP)".to_owned(),
                "socks5Udp" => " (SOCKS5, UDP)".to_owned(),
                other => format!(" ({other})"),
            });
            ("network", format!("{host}{}", protocol.unwrap_or_default()).into())
        }
        (_, _) => return Some((name_in_words(name), members_in_words(value))),
    };
    Some((label.to_owned(), text))
}

/// An object as lines of names and values; any other value as it is.
fn members_in_words(value: &Value) -> Value {
    let Some(members) = value.as_object().filter(|members| !members.is_empty()) else { return value.clone() };
    let line = |(name, value): (&String, &Value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), one_line);
        format!("{}: {text}", name_in_words(name))
    };
    Value::String(members.iter().filter(|(_, value)| !value.is_null()).map(line).collect::<Vec<_>>().join("\n"))
}

/// The words of a member's name: `risk level` of `riskLevel` and of `risk_level`.
fn name_in_words(name: &str) -> String {
    let name = one_line(name);
    let mut words = String::new();
    let mut was_upper = true;
    for char in name.trim_start_matches('_').chars() {
        if char == '_' || char.is_ascii_uppercase() && !was_upper {
            words.push(' ');
        }
        was_upper = char.is_ascii_uppercase();
        words.extend((char != '_').then(|| char.to_ascii_lowercase()));
    }
    words
}

/// The rules that the server proposes, if it does not offer them as decisions.
fn proposals(payload: &Value) -> Vec<String> {
    let is_offered = payload["availableDecisions"].as_array().into_iter().flatten().any(Value::is_object);
    let command = in_text(&payload["proposedExecpolicyAmendment"]).map(|words| format!("no longer ask for `{words}`"));
    let hosts = payload["proposedNetworkPolicyAmendments"].as_array().into_iter().flatten();
    let hosts = hosts.filter_map(|rule| {
        let does = if rule["action"] == "deny" { "always refuse" } else { "no longer ask for" };
        Some(format!("{does} {}", rule["host"].as_str()?))
    });
    if is_offered { Vec::new() } else { command.into_iter().chain(hosts).collect() }
}

/// A decision that is an object, in words; as JSON if it is unknown.
#[must_use]
pub(crate) fn offered(offer: &Value) -> String {
    let always = &offer["acceptWithExecpolicyAmendment"]["execpolicy_amendment"];
    let network = &offer["applyNetworkPolicyAmendment"]["network_policy_amendment"];
    let words = always.as_array().filter(|words| !words.is_empty()).and_then(|_| in_text(always));
    match (words, network["host"].as_str(), network["action"].as_str()) {
        (Some(words), _, _) => format!("accept, and do not ask again for `{words}`"),
        (None, Some(host), Some("allow")) => format!("accept, and do not ask again for {host}"),
        (None, Some(host), Some("deny")) => format!("decline, and always refuse {host}"),
        (None, _, _) => offer.to_string(),
    }
}

/// A value as text; `None` if it is null or empty.
#[must_use]
pub(crate) fn in_text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
        Value::Array(words) if words.iter().all(Value::is_string) => {
            Some(words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "))
        }
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            let line = value.to_string();
            let is_short = line.len() <= JSON_LINE_BYTES_MAX;
            Some(if is_short { line } else { serde_json::to_string_pretty(value).expect("BUG: JSON can be written") })
        }
    }
}

/// The changed files: a list, or, until early 2026, an object keyed by path.
fn changes(changes: &Value, rows: &mut Vec<Row>) {
    match changes {
        Value::Array(all) => all.iter().for_each(|change| of_file(change["path"].as_str().unwrap_or(""), change, rows)),
        Value::Object(all) => all.iter().for_each(|(path, change)| of_file(path, change, rows)),
        Value::Null => {}
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            rows.push(Row { label: "changes".to_owned(), text: changes.to_string(), meant: Meant::Plain });
        }
    }
}

fn of_file(path: &str, change: &Value, rows: &mut Vec<Row>) {
    let kind = [&change["kind"]["type"], &change["kind"], &change["type"]].into_iter().find_map(Value::as_str);
    let kind = kind.unwrap_or("change");
    let moved = [&change["kind"]["move_path"], &change["move_path"]].into_iter().find_map(Value::as_str);
    let moved = moved.map(|to| format!(" → {to}")).unwrap_or_default();
    rows.push(Row { label: "file".to_owned(), text: format!("{kind} {path}{moved}"), meant: Meant::Asked });
    let bare = |text: &str, meant: Meant| Row { label: String::new(), text: text.to_owned(), meant };
    match ["diff", "unified_diff", "content"].iter().find_map(|name| change[*name].as_str()) {
        Some(diff) => rows.extend(diff.lines().map(|line| bare(line, meant(line, kind)))),
        None if too_large(change).is_some() => rows.extend(too_large(change).map(|text| bare(&text, Meant::Plain))),
        None => rows.extend(in_text(change).map(|text| bare(&text, Meant::Plain))),
    }
}

/// The text in place of a diff that was too large to store.
#[must_use]
pub(crate) fn too_large(change: &Value) -> Option<String> {
    let size = change["diff_bytes"].as_u64().map(|bytes| format!(" of {}", bytesize::ByteSize(bytes)));
    let told = format!("(this diff{} is too large to keep: see it in the client)", size.unwrap_or_default());
    (change["omitted"] == "size").then_some(told)
}

/// How to display a line of a diff. For an added or deleted file the diff is its whole text.
#[must_use]
pub(crate) fn meant(line: &str, kind: &str) -> Meant {
    match (kind, line.as_bytes().first()) {
        ("add", _) => Meant::Added,
        ("delete", _) => Meant::Removed,
        (_, Some(b'+')) => Meant::Added,
        (_, Some(b'-')) => Meant::Removed,
        (_, Some(b'@')) => Meant::Place,
        (_, Some(_) | None) => Meant::Plain,
    }
}

/// A stored answer: the decision, or each question or field with the text given for it.
#[must_use]
pub(crate) fn answer_in_words(payload: &Value) -> String {
    if payload["decision"].is_object() {
        return offered(&payload["decision"]);
    }
    let given = |(name, value): (&String, &Value)| {
        let texts = if value["answers"].is_array() { &value["answers"] } else { value };
        format!("{name}: {}", in_text(texts).unwrap_or_else(|| "nothing".to_owned()))
    };
    let of_questions = payload["answers"].as_object().into_iter().flatten().map(given);
    let of_form = payload["content"].as_object().into_iter().flatten().map(given);
    let fields = of_questions.chain(of_form).collect::<Vec<_>>().join("; ");
    match (fields.is_empty(), payload["action"].as_str()) {
        (true, _) => in_words(payload),
        (false, Some(action)) => format!("{action}; {fields}"),
        (false, None) => fields,
    }
}

/// Who resolved a ledger row.
#[must_use]
pub(crate) fn who(row: &Value) -> String {
    match (row["resolution_source"].as_str(), row["resolved_by"].as_str()) {
        (Some(source), Some(by)) => format!("{source} ({by})"),
        (Some(source), None) => source.to_owned(),
        (None, _) => "-".to_owned(),
    }
}

/// How it was resolved, to follow "it was": by whom, and with which answer.
#[must_use]
pub(crate) fn ending(row: &Value) -> String {
    let text = |member: &str| row[member].as_str().unwrap_or_default();
    match (text("status"), text("error_code")) {
        ("resolved", "withdrawn_by_server") => "withdrawn by the server before there was an answer".to_owned(),
        ("resolved", _) => format!("answered by {}: {}", who(row), answer_in_words(&row["resolved_payload"])),
        (status, _) => format!("{status}: {}", row["error_message"].as_str().unwrap_or("unknown reason")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn too_large_diff_is_named_with_its_size() {
        let row =
            json!({"changes": [{"path": "/a", "kind": {"type": "add"}, "omitted": "size", "diff_bytes": 9 << 20}]});
        let told: Vec<String> = shown(&row).changes.into_iter().map(|row| row.text).collect();
        assert_eq!(told, ["add /a", "(this diff of 9.0 MiB is too large to keep: see it in the client)"]);
    }

    #[test]
    fn every_member_is_shown() {
        let row = json!({
            "request_payload": {"command": ["ls", "-l"], "cwd": "/w", "reason": null, "threadId": "t",
                "new": {"x": 1}, "long": {"y": "z".repeat(100)}},
            "changes": {"/a": {"type": "add", "content": "x\n-y\n"}, "/b": {"odd": 1}},
        });
        let rows = |rows: &[Row]| -> Vec<String> {
            rows.iter().map(|row| format!("{:?} {}: {}", row.meant, row.label, row.text)).collect()
        };
        let shown = shown(&row);
        let long = format!("Plain long: y: {}", "z".repeat(100));
        assert_eq!(rows(&shown.members), ["Asked command: ls -l", "Plain cwd: /w", &long, "Plain new: x: 1"]);
        let expect = ["Asked file: add /a", "Added : x", "Added : -y", "Asked file: change /b", "Plain : {\"odd\":1}"];
        assert_eq!(rows(&shown.changes), expect);
    }

    #[test]
    fn structured_decisions_are_put_in_words() {
        let check = |offer: Value, expect: &str| assert_eq!(offered(&offer), expect);
        let always = json!({"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["touch", "x"]}});
        check(always, "accept, and do not ask again for `touch x`");
        let network = |action: &str| json!({"applyNetworkPolicyAmendment": {"network_policy_amendment": {"host": "a.b", "action": action}}});
        check(network("allow"), "accept, and do not ask again for a.b");
        check(network("deny"), "decline, and always refuse a.b");
        check(json!({"new": {"x": 1}}), "{\"new\":{\"x\":1}}");
    }

    #[test]
    fn non_objects_are_shown_too() {
        let row = json!({ "request_payload": [1, 2], "changes": null });
        assert_eq!(shown(&row).members[0].text, "[1,2]");
        assert_eq!(shown(&json!({})), Shown::default());
    }

    #[test]
    fn answers_are_in_words() {
        let check = |payload: Value, expect: &str| assert_eq!(answer_in_words(&payload), expect);
        check(json!({"answers": {"color": {"answers": ["Red"]}}}), "color: Red");
        check(json!({"action": "accept", "content": {"n": 3, "s": "x"}}), "accept; n: 3; s: x");
        check(json!({"action": "decline"}), "decline");
        check(json!({"permissions": {}}), "nothing granted");
        let always = json!({"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["touch", "x"]}});
        check(json!({ "decision": always }), "accept, and do not ask again for `touch x`");
    }

    #[test]
    fn names_become_words() {
        let names = ["riskLevel", "risk_level", "_meta", "isURL", "x"].map(name_in_words);
        assert_eq!(names, ["risk level", "risk level", "meta", "is url", "x"]);
    }

    #[test]
    fn proposals_are_shown_unless_they_are_offered() {
        let payload = json!({ "proposedExecpolicyAmendment": ["touch", "x"],
            "proposedNetworkPolicyAmendments": [{ "host": "a.b", "action": "deny" }, { "host": "c.d", "action": "allow" }] });
        let of = |payload: &Value| shown(&json!({ "request_payload": payload })).members;
        let expect = "no longer ask for `touch x`\nalways refuse a.b\nno longer ask for c.d";
        assert_eq!(of(&payload), [Row { label: "proposes".to_owned(), text: expect.to_owned(), meant: Meant::Plain }]);
        let mut offered = payload;
        offered["availableDecisions"] = json!(["accept", { "acceptWithExecpolicyAmendment": {} }]);
        assert_eq!(of(&offered), []);
    }
}
