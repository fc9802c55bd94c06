//! Entries from before the journal: messages and actions from the transcripts, without their intermediate states.
//!
//! Pure. A transcript line is converted to a `mode=ui` event and taken by a timeline like any other, so it looks as it did
//! while the journal contained it.

use serde_json::{Value, json};

use super::entry::{Entry, Key, Kind, Spot, Stage};
use super::timeline::{Range, SessionEvent, Timeline};
use crate::index::{JournalGap, TranscriptLine};
use crate::journal::{Generation, Position, SegmentName};

/// The entry of a transcript line; `None` if the timeline does not show it.
pub(super) fn entry_of(said: &TranscriptLine, body_bytes_max: usize) -> Option<Entry> {
    let mut fields: Value = serde_json::from_str(&said.entry).ok()?;
    let role = fields["role"].as_str().unwrap_or_default().to_owned();
    let kind = match role.as_str() {
        "user" => "message",
        "assistant" => "assistant_finalize",
        "reasoning" => "reasoning_finalize",
        "diff" | "plan" | "status" | "error" => &role,
        "approval" => "approval",
        "context_compacted" => {
            fields["status"] = json!("completed");
            fields["subject"] = json!("compaction");
            "status"
        }
        "command" | "file_change" | "tool" => "tool_end",
        _ => return None,
    };
    fields["type"] = json!(kind);
    fields["thread_id"] = json!(said.thread_id);
    match role.as_str() {
        "status" => fields["subject"] = json!("turn"),
        "error" => fields["message"] = fields["text"].take(),
        _ => {}
    }
    let at_us = fields["ts"].as_str().and_then(us_of).unwrap_or_default();
    let mut timeline = Timeline::of(Range::default(), body_bytes_max);
    if role == "approval" {
        // The request comes before its outcome.
        let mut asked = fields.clone();
        asked["status"] = json!("pending");
        timeline.take(&SessionEvent { at: nowhere(), at_us, fields: asked });
    }
    timeline.take(&SessionEvent { at: nowhere(), at_us, fields });
    let mut entry = timeline.into_entries().pop()?;
    entry.key = Key { at: Spot::Kept(said.id), nth: 0 };
    entry.handle = None;
    if entry.stage == Stage::Open {
        entry.stage = Stage::Done;
    }
    Some(entry)
}

/// A gap in the journal; `nth` distinguishes several after the same line.
pub(super) fn entry_of_lacking(lacking: &JournalGap, nth: u16) -> Option<Entry> {
    let fields = json!({ "type": "gap", "lines": lacking.lines, "reason": lacking.reason });
    let at_us = us_of(&lacking.at).unwrap_or_default();
    let mut entry = alone(at_us, fields)?;
    entry.key = Key { at: Spot::Kept(lacking.after_id), nth: nth.saturating_add(1) };
    Some(entry)
}

/// The entry that marks the start of the journal.
pub(super) fn journal_begins(at_us: u64) -> Entry {
    marker(
        Key::JOURNAL_BEGINS,
        Kind::Run,
        at_us,
        "the journal begins here; from before, only messages and actions are kept",
    )
}

/// The entry that marks the end of the kept history.
pub(super) fn nothing_before(at_us: u64) -> Entry {
    marker(Key::START, Kind::Gap, at_us, "nothing before this is kept")
}

fn marker(key: Key, kind: Kind, at_us: u64, title: &str) -> Entry {
    let mut entry = Entry::new(key, kind, at_us);
    entry.stage = Stage::Done;
    entry.title = title.to_owned();
    entry
}

fn alone(at_us: u64, fields: Value) -> Option<Entry> {
    let mut timeline = Timeline::default();
    timeline.take(&SessionEvent { at: nowhere(), at_us, fields });
    timeline.into_entries().pop()
}

fn us_of(text: &str) -> Option<u64> {
    let at = humantime::parse_rfc3339(text).ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    u64::try_from(at.as_micros()).ok()
}

fn no_run() -> Generation {
    Generation::parse("000000000000").expect("BUG: these are 12 hex digits")
}

/// A placeholder: these entries have no position in the journal.
fn nowhere() -> Position {
    Position { segment: SegmentName { generation: no_run(), number: 0 }, offset: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(entry: Value) -> Option<String> {
        let said = TranscriptLine { id: 7, thread_id: "t".to_owned(), entry: entry.to_string() };
        let entry = entry_of(&said, 1_000)?;
        assert_eq!((&entry.key.at, entry.thread_id.as_deref()), (&Spot::Kept(7), Some("t")));
        assert!(entry.handle.is_none() && entry.stage != Stage::Open && entry.at_us == 1_767_225_600_858_000);
        let exit = entry.exit_code.map(|code| format!(" [{code}]")).unwrap_or_default();
        Some(format!("{}: {}{exit} | {}", entry.kind.name(), entry.title, entry.body))
    }

    #[test]
    fn old_entries_look_like_recorded_ones() {
        let check = |mut entry: Value, expect: &str| {
            entry["ts"] = json!("2026-01-01T00:00:00.858Z");
            assert_eq!(shown(entry.clone()).as_deref(), Some(expect), "{entry}");
        };
        check(json!({"role": "user", "text": "run it", "content": ["text", "image"]}), "you: [image] | run it");
        check(json!({"role": "assistant", "text": "It ran."}), "codex:  | It ran.");
        check(json!({"role": "reasoning", "text": "Hm"}), "thinks:  | Hm");
        check(json!({"role": "diff", "text": "--- a/a.rs\n+++ b/a.rs\n+x"}), "diff: a.rs | --- a/a.rs\n+++ b/a.rs\n+x");
        check(
            json!({"role": "command", "item_type": "commandExecution", "command": "ls", "output": "a\n", "exit_code": 2, "is_error": true}),
            "runs: ls [2] | a\n",
        );
        check(
            json!({"role": "plan", "steps": [{"step": "read", "status": "completed"}], "explanation": "first"}),
            "plan: first | [x] read",
        );
        check(json!({"role": "status", "status": "completed", "duration_ms": 2000}), "turn: turn completed in 2s | ");
        check(json!({"role": "error", "text": "broke"}), "error: broke | ");
        check(
            json!({"role": "approval", "kind": "command", "command": "ls", "request_id": "g-0", "status": "resolved", "decision": "accept", "source": "tui"}),
            "asks: to run ls → accept (tui) | ",
        );
        check(json!({"role": "context_compacted"}), "turn: compaction completed | ");
        assert_eq!(shown(json!({"role": "token_usage"})), None);
    }
}
