//! An event on one line: time, number, type, thread and the important part of its payload.
//!
//! Pure, but for colours.

use serde::Deserialize;
use serde_json::Value;

use super::super::clock::Clock;
use super::super::screen::{Screen, Tone};
use super::super::table::{Cell, Column, Table};
use crate::engine::{RequestKind, one_line, without_shell};
use crate::history::action_in_words;
use crate::protocol::Method;

/// Longest shown part of a payload, in characters.
const WORDS_CHARS_MAX: usize = 100;

/// Shown characters of a thread's id: the time part of a UUIDv7.
const THREAD_CHARS: usize = 13;

/// Members that are shown elsewhere on the line, or tell a person nothing.
const ELSEWHERE: [&str; 6] = ["threadId", "turnId", "itemId", "conversationId", "thread_id", "turn_id"];

/// The members of an event that a line shows.
#[derive(Debug, Deserialize)]
pub(super) struct Event {
    pub(super) seq: Option<u64>,
    #[serde(default)]
    timestamp: String,
    pub(super) event_type: String,
    #[serde(default)]
    pub(super) thread_id: Option<String>,
    #[serde(default)]
    payload_preview: Value,
    #[serde(default)]
    delta_count: Option<u64>,
    #[serde(default)]
    pub(super) key: Option<String>,
    #[serde(default)]
    pub(super) epoch: Option<String>,
}

/// An empty table of events.
pub(super) fn table(clock: &Clock, to: Screen) -> Table {
    let columns = vec![
        Column::whole(clock.head("TIME")).spare(),
        Column::number("NUMBER"),
        // A cut type cannot be given to --type.
        Column::whole("TYPE"),
        Column::whole("THREAD").spare(),
        Column::text("DETAILS"),
    ];
    Table::new(columns, to)
}

impl Event {
    /// Whether the event reports missing events.
    pub(super) fn is_gap(&self) -> bool {
        self.event_type == "event_gap"
    }

    /// The cells: time, number, type, thread, important part.
    pub(super) fn cells(&self, clock: &Clock, to: Screen) -> Vec<Cell> {
        let thread: String = self.thread_id.as_deref().unwrap_or("-").chars().take(THREAD_CHARS).collect();
        vec![
            (Tone::Faint, clock.cell(&self.timestamp, to)),
            (Tone::Faint, self.seq.map_or_else(|| "-".to_owned(), |seq| seq.to_string())),
            (Tone::Plain, self.event_type.clone()),
            (Tone::Faint, thread),
            (self.tone(), self.words()),
        ]
    }

    fn tone(&self) -> Tone {
        let payload = Payload(&self.payload_preview);
        match (Method::of(&self.event_type), &*self.event_type) {
            (Some(Method::Error), _) | (_, "event_gap") => Tone::Bad,
            (Some(Method::TurnCompleted), _) if payload.text(&["turn", "status"]).as_deref() == Some("failed") => {
                Tone::Bad
            }
            (_, asked) if is_request(asked) => Tone::Warning,
            _ => Tone::Strong,
        }
    }

    /// The important part of the payload.
    fn words(&self) -> String {
        let payload = Payload(&self.payload_preview);
        let quoted = |text: String| format!("“{text}”");
        let words = match (Method::of(&self.event_type), &*self.event_type) {
            (_, "event_gap") => Some(gap(&self.payload_preview)),
            (Some(Method::ItemStarted | Method::ItemCompleted), _) => Some(item(&payload)),
            (Some(Method::TurnStart | Method::TurnSteer), _) => payload.text(&["input", "0", "text"]).map(quoted),
            (Some(Method::TurnStarted), _) => payload.text(&["turn", "id"]).map(|id| format!("turn {id}")),
            (Some(Method::TurnCompleted), _) => payload.text(&["turn", "status"]).map(|status| {
                let error = payload.text(&["turn", "error", "message"]);
                error.map_or(status.clone(), |error| format!("{status}: {error}"))
            }),
            (Some(Method::Error), _) => payload.text(&["error", "message"]).or_else(|| payload.text(&["message"])),
            (Some(Method::ThreadStatusChanged), _) => payload.text(&["status", "type"]).map(|status| {
                let flags = &self.payload_preview["status"]["activeFlags"];
                let flags: Vec<&str> = flags.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
                if flags.is_empty() { status } else { format!("{status}: {}", flags.join(", ")) }
            }),
            (_, "request_resolved") => Some(resolved(&payload)),
            (_, asked) if is_request(asked) => asked_for(&payload),
            _ if self.delta_count.is_some() => payload.text(&["delta"]).map(quoted),
            _ => None,
        };
        let words = words.filter(|words| !words.is_empty());
        let words = words.unwrap_or_else(|| members(&self.payload_preview, 3));
        let words = short(&words);
        match self.delta_count {
            Some(count) if count > 1 => format!("{words} ({count} pieces)"),
            Some(_) | None => words,
        }
    }
}

fn is_request(event_type: &str) -> bool {
    event_type.ends_with("/requestApproval") || RequestKind::of(event_type).is_some_and(RequestKind::is_for_human)
}

/// A payload, whole or cut.
struct Payload<'a>(&'a Value);

impl Payload<'_> {
    /// The text at a path; in a cut payload, the first remaining member of that name.
    fn text(&self, path: &[&str]) -> Option<String> {
        let found = path.iter().try_fold(self.0, |value, name| match value {
            Value::Array(all) => all.get(name.parse::<usize>().ok()?),
            Value::Object(members) => members.get(*name),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        });
        match found {
            Some(Value::String(text)) => Some(text.clone()),
            Some(Value::Number(number)) => Some(number.to_string()),
            Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) => None,
            None if self.0["truncated"] == true => member_of_start(self.0["preview"].as_str()?, path.last()?),
            None => None,
        }
    }
}

/// The text of a member in cut JSON, as far as it goes.
fn member_of_start(start: &str, name: &str) -> Option<String> {
    let member = format!("\"{name}\":\"");
    let text = &start[start.find(&member)? + member.len()..];
    let mut end = text.len();
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' if !is_escaped => {
                end = at;
                break;
            }
            b'\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    // The cut may be inside an escape.
    let whole = |end: usize| serde_json::from_str(&format!("\"{}\"", text.get(..end)?)).ok();
    (end.saturating_sub(6)..=end).rev().find_map(whole)
}

fn gap(payload: &Value) -> String {
    let reason = payload["reason"].as_str().unwrap_or("unknown");
    match reason {
        "new_epoch" => return "the numbering has begun anew: all events that are kept follow".to_owned(),
        "cursor_ahead" => {
            let after = payload["after_seq"].as_u64().unwrap_or(0);
            return format!("event {after} does not belong to this history; all of its events follow");
        }
        _ => {}
    }
    match (payload["after_seq"].as_u64(), payload["up_to_seq"].as_u64(), payload["lines"].as_u64()) {
        (Some(after), Some(up_to), _) if reason == "retention" => {
            format!("events {} to {up_to} have been deleted", after + 1)
        }
        (Some(after), Some(up_to), _) => format!("events {} to {up_to} come late ({reason})", after + 1),
        (_, _, Some(1)) => format!("1 line is missing here ({reason})"),
        (_, _, Some(lines)) if lines > 0 => format!("{lines} lines are missing here ({reason})"),
        (_, _, Some(_) | None) => format!("lines are missing here ({reason})"),
    }
}

fn item(payload: &Payload<'_>) -> String {
    let text = |name: &str| payload.text(&["item", name]);
    let kind = text("type").unwrap_or_default();
    let what = match &*kind {
        "commandExecution" => text("command").map(|command| without_shell(&command)),
        "fileChange" => payload.text(&["item", "changes", "0", "path"]).or_else(|| text("path")),
        "userMessage" => payload.text(&["item", "content", "0", "text"]),
        _ => text("tool").or_else(|| text("text")).or_else(|| text("query")),
    };
    let exit = text("exitCode").filter(|code| code != "0").map(|code| format!(" (exit {code})")).unwrap_or_default();
    // The end of the line must survive the cut.
    let what = format!("{}{exit}", what.map(|what| short(&what)).unwrap_or_default());
    match (action_kind(&kind), text("status").as_deref()) {
        (Some(action), Some("inProgress")) => action_in_words(action, "running", &what),
        (Some(action), Some(status)) => action_in_words(action, status, &what),
        (_, Some("completed" | "inProgress") | None) => format!("{kind} {what}").trim_end().to_owned(),
        (None, Some(status)) => format!("{} [{status}]", format!("{kind} {what}").trim_end()),
    }
}

/// The name of an item type in [`action_in_words`]; `None` for items that are not actions.
fn action_kind(item_type: &str) -> Option<&'static str> {
    match item_type {
        "commandExecution" => Some("command"),
        "fileChange" => Some("file_change"),
        "mcpToolCall" | "dynamicToolCall" | "collabAgentToolCall" => Some("tool"),
        _ => None,
    }
}

fn resolved(payload: &Payload<'_>) -> String {
    let text = |name: &str| payload.text(&[name]);
    let status = text("error_code").or_else(|| text("status")).unwrap_or_default();
    let decision = text("decision").map(|decision| format!(": {decision}")).unwrap_or_default();
    let source = text("source").map(|source| format!(" by {source}")).unwrap_or_default();
    format!("{} {status}{decision}{source}", text("request_id").unwrap_or_default())
}

fn asked_for(payload: &Payload<'_>) -> Option<String> {
    let what = payload.text(&["command"]).map(|command| without_shell(&command));
    let what = what.or_else(|| payload.text(&["questions", "0", "question"])).or_else(|| payload.text(&["message"]));
    let reason = payload.text(&["reason"]);
    match (what, reason) {
        (Some(what), Some(reason)) => Some(format!("{what} ({reason})")),
        (what, reason) => what.or(reason),
    }
}

/// The first scalar members of an object.
fn members(value: &Value, most: usize) -> String {
    let plain = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    };
    let told = |(name, value): (&String, &Value)| match (ELSEWHERE.contains(&&**name), plain(value)) {
        (false, Some(text)) if !text.is_empty() => Some(format!("{name}={text}")),
        (false, _) | (true, _) => None,
    };
    match value {
        Value::Object(_) if value["truncated"] == true => value["preview"].as_str().unwrap_or_default().to_owned(),
        Value::Object(members) => members.iter().filter_map(told).take(most).collect::<Vec<_>>().join(" "),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            plain(value).unwrap_or_default()
        }
    }
}

/// Text on one line, cut to a limit.
pub(super) fn short(text: &str) -> String {
    let line = one_line(text);
    match line.char_indices().nth(WORDS_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(event_type: &str, payload: Value, delta_count: Option<u64>) -> Event {
        let event = json!({
            "seq": 7, "timestamp": "2026-01-02T03:04:05.000Z", "event_type": event_type,
            "thread_id": "0192abcd-1234-7000", "payload_preview": payload, "delta_count": delta_count,
        });
        serde_json::from_value(event).expect("an event")
    }

    fn check(event_type: &str, payload: Value, expect: &str) {
        assert_eq!(event(event_type, payload, None).words(), expect, "{event_type}");
    }

    #[test]
    fn lines_are_aligned_and_escaped() {
        let clock = Clock::stopped("2026-01-02T03:04:07Z");
        let told = |event: &Event| table(&clock, Screen::None).add(vec![event.cells(&clock, Screen::None)]);
        let line = event("turn/start", json!({"input": [{"type": "text", "text": "a\u{1b}[1m\nb"}]}), None);
        assert_eq!(told(&line), "2026-01-02T03:04:05Z  7  turn/start  0192abcd-1234  “a [1m b”\n");
        let bare = Event { seq: None, thread_id: None, payload_preview: Value::Null, ..line };
        assert_eq!(told(&bare), "2026-01-02T03:04:05Z  -  turn/start  -\n");
    }

    #[test]
    fn important_part_of_payload_is_shown() {
        let command = json!({"item": {"type": "commandExecution", "command": "/bin/bash -lc 'cargo test'", "exitCode": 101, "status": "failed"}});
        check("item/completed", command, "ran cargo test (exit 101)");
        let command =
            |status: &str| json!({"item": {"type": "commandExecution", "command": "rm -rf build", "status": status}});
        check("item/completed", command("declined"), "declined: rm -rf build");
        check("item/started", command("inProgress"), "runs rm -rf build");
        let tool = json!({"item": {"type": "mcpToolCall", "tool": "lookup", "status": "failed"}});
        check("item/completed", tool, "failed: call lookup");
        check("item/completed", json!({"item": {"type": "agentMessage", "text": "hi\nyou"}}), "agentMessage hi you");
        check("item/started", json!({"item": {"type": "userMessage", "content": [{"text": "go"}]}}), "userMessage go");
        check("turn/completed", json!({"turn": {"status": "failed", "error": {"message": "no"}}}), "failed: no");
        let asked = json!({"command": "make", "reason": "to see"});
        check("item/commandExecution/requestApproval", asked, "make (to see)");
        let resolved = json!({"request_id": "g-0", "status": "resolved", "source": "cli", "decision": "accept"});
        check("request_resolved", resolved, "g-0 resolved: accept by cli");
        check("event_gap", json!({"lines": 2, "reason": "disk full"}), "2 lines are missing here (disk full)");
        let gap = json!({"reason": "retention", "after_seq": 0, "up_to_seq": 9});
        check("event_gap", gap, "events 1 to 9 have been deleted");
        check("new/thing", json!({"threadId": "t", "a": 1, "b": {}, "c": "x"}), "a=1 c=x");
        let delta = event("item/agentMessage/delta", json!({"delta": "abc"}), Some(3));
        assert_eq!(delta.words(), "“abc” (3 pieces)");
    }

    #[test]
    fn cut_payload_still_gives_members() {
        let cut = |preview: &str| json!({"truncated": true, "preview": preview, "original_chars": 9_999});
        let start = r#"{"item":{"type":"commandExecution","command":"echo \"a\"","output":"xx\u00"#;
        check("item/completed", cut(start), "commandExecution echo \"a\"");
        let start = r#"{"item":{"type":"agentMessage","text":"one \"two\" \u00"#;
        check("item/completed", cut(start), "agentMessage one \"two\"");
        check("other", cut("{\"a\":[1"), "{\"a\":[1");
    }
}
