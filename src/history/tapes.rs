//! Recorded conversations with the real server, for tests.

use serde_json::Value;

use super::conversation::{Conversation, Purpose};
use super::fold::{Fold, Recall, Rows};
use super::record_event::Seen;
use super::transcript::{Entry, Transcript};
use super::ui::{UiEvent, UiFold};
use crate::journal::{Generation, Position, Record, SegmentName};

/// Loads a tape by name.
macro_rules! tapes {
    ($($name:literal),*) => {
        [$(($name, include_str!(concat!("../../fixtures/tapes/", $name, ".jsonl")))),*]
    };
}

const TAPES: [(&str, &str); 9] = tapes![
    "command_approval",
    "end_in_mid_turn",
    "file_change_approval",
    "interrupt",
    "list_read_resume",
    "plain_turn",
    "question",
    "reasoning",
    "streamed_deltas"
];

fn tape(name: &str) -> &'static str {
    TAPES.iter().find(|(of, _)| *of == name).expect("BUG: a test names a tape that is there").1
}

/// Adds the notes of a current journal: requests are opened, and resolved by the client.
fn with_notes(tape: &str) -> String {
    let mut lines = Vec::new();
    let mut open: Option<String> = None;
    for line in tape.lines() {
        let record: Value = serde_json::from_str(line).expect("a tape holds JSON");
        let (said, at) = (&record["line"], &record["at"]);
        let note = |event: &str, data: Value| {
            serde_json::json!({ "at": at, "from": "shim", "event": event, "data": data }).to_string()
        };
        let is_request = record["from"] == "server" && !said["id"].is_null() && !said["method"].is_null();
        if is_request {
            let request_id = format!("000000000001-{}", said["id"]);
            lines.push(note("request_opened", serde_json::json!({ "request_id": request_id, "request_type": "x" })));
            open = Some(request_id);
        }
        lines.push(line.to_owned());
        let is_answer = record["from"] == "client" && !said["result"].is_null();
        if is_answer && let Some(request_id) = open.take() {
            let decision = &said["result"]["decision"];
            lines.push(note(
                "request_resolved",
                serde_json::json!({ "request_id": request_id, "status": "resolved", "source": "client",
                    "decision": decision, "error_code": null }),
            ));
        }
    }
    lines.join("\n")
}

fn each_seen(lines: &str, mut take: impl FnMut(&Seen<'_>)) {
    for line in lines.lines() {
        let record = Record::parse(line.as_bytes()).expect("a tape holds records");
        take(&Seen::of(&record, None));
    }
}

/// Transcript entries of the whole fold, stored and resumed between any two records.
pub(super) fn entries(lines: &str) -> Vec<Entry> {
    let (mut fold, mut rows) = (Fold::default(), Rows::default());
    let segment = SegmentName { generation: Generation::after(None, 1, 1), number: 1 };
    let mut at = Position { segment, offset: 0 };
    each_seen(lines, |seen| {
        fold.take(&at, seen, &mut rows);
        at.offset += 1;
        let stored = serde_json::to_string(&fold).expect("plain data");
        let mut recall = Recall::of(serde_json::from_str(&stored).expect("as it was stored"));
        if recall.begins().is_some() {
            let mut before = Position { offset: 0, ..at.clone() };
            each_seen(lines, |seen| {
                if before < at {
                    recall.take(&before, seen);
                }
                before.offset += 1;
            });
        }
        let again = recall.finish();
        assert_eq!(again, fold);
        fold = again;
    });
    rows.entries
}

pub(super) fn ui_events(lines: &str) -> Vec<UiEvent> {
    let (mut fold, mut events) = (UiFold::default(), Vec::new());
    each_seen(lines, |seen| fold.take(seen, &mut events));
    events
}

fn json(event: &UiEvent) -> String {
    serde_json::to_string(event).expect("plain data")
}

/// Records from `who line` notation, one microsecond apart, starting at one millisecond.
pub(super) fn records(playbook: &str) -> String {
    let lines = playbook.lines().map(str::trim).filter(|line| !line.is_empty()).enumerate().map(|(number, line)| {
        let at = 1_000 + number;
        let (who, said) = line.split_once(' ').unwrap_or((line, ""));
        match who {
            ">>" => format!(r#"{{"at":{at},"from":"client","line":{said}}}"#),
            "<<" => format!(r#"{{"at":{at},"from":"server","line":{said}}}"#),
            "gap" => format!(r#"{{"at":{at},"gap":{{"lines":1,"reason":"x"}}}}"#),
            event => {
                let data = if said.is_empty() { "null" } else { said };
                format!(r#"{{"at":{at},"from":"shim","event":"{event}","data":{data}}}"#)
            }
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn rebuild_gives_same_entries_once() {
    for (name, tape) in TAPES {
        for lines in [tape.to_owned(), with_notes(tape)] {
            let once = entries(&lines);
            assert!(once.len() >= 3, "{name}: {once:?}");
            assert_eq!(entries(&lines), once, "{name}");
            let identities: std::collections::BTreeSet<_> =
                once.iter().map(|entry| (&entry.thread_id, &entry.identity)).collect();
            assert_eq!(identities.len(), once.len(), "{name}: {once:?}");
            let twice = entries(&format!("{}\n{}", lines.trim_end(), lines));
            assert_eq!(twice, once, "{name}");
            // A transcript without memory produces the same identities.
            let (mut given, mut conversation) = (Vec::new(), Conversation::default());
            let segment = SegmentName { generation: Generation::after(None, 1, 1), number: 1 };
            let at = Position { segment, offset: 0 };
            each_seen(&format!("{}\n{}", lines.trim_end(), lines), |seen| {
                let step = conversation.take(Purpose::Rows(&at), seen);
                Transcript::default().take(&step, &conversation, &mut given);
                if matches!(seen.event, super::RecordEvent::ShimEvent { event: "generation_ended", .. }) {
                    conversation = Conversation::default();
                }
            });
            let again: std::collections::BTreeSet<_> =
                given.iter().map(|entry| (&entry.thread_id, &entry.identity)).collect();
            assert_eq!(again, identities, "{name}");
        }
    }
}

#[test]
fn entries_and_events_are_self_describing_json() {
    let roles = [
        "user",
        "assistant",
        "reasoning",
        "diff",
        "command",
        "file_change",
        "tool",
        "plan",
        "status",
        "error",
        "token_usage",
        "context_compacted",
        "approval",
    ];
    for (name, tape) in TAPES {
        for entry in entries(&with_notes(tape)) {
            let json: Value = serde_json::from_str(&entry.json).expect("an entry is JSON");
            assert!(roles.contains(&json["role"].as_str().unwrap_or_default()), "{name}: {json}");
            assert!(entry.json.starts_with(r#"{"ts":"2026-01-01T00:00:0"#), "{name}: {json}");
            assert!(json["event"].is_string() && json["turn_id"].is_string(), "{name}: {json}");
        }
        for event in ui_events(&with_notes(tape)) {
            let json: Value = serde_json::from_str(&json(&event)).expect("an event is JSON");
            assert_eq!(json["type"], serde_json::to_value(event.kind).expect("plain data"), "{name}");
            assert!(json["ts"].is_string(), "{name}: {json}");
        }
    }
}

#[test]
fn rereading_a_thread_adds_nothing() {
    let lines = tape("list_read_resume");
    let texts = |lines: &str| {
        let entries = entries(lines).into_iter();
        let texts = entries.filter_map(|entry| {
            let json: Value = serde_json::from_str(&entry.json).expect("an entry is JSON");
            Some(format!("{} {} {}", json["event"].as_str()?, json["role"].as_str()?, json["text"].as_str()?))
        });
        texts.collect::<Vec<_>>()
    };
    let live = ["item/completed user one", "item/completed assistant First."];
    assert_eq!(texts(lines)[..2], live);
    assert_eq!(texts(lines).len(), 4, "{:?}", texts(lines));
    // A recording that missed the conversation learns it from a thread read, once.
    let from_read: Vec<&str> = lines.lines().filter(|line| !line.contains(r#""method":"item/"#)).collect();
    assert_eq!(texts(&from_read.join("\n")), ["thread/read user one", "thread/read assistant First."]);
    // The entries are the same: equal names, equal times.
    let named = |lines: &str| {
        let message = entries(lines).into_iter().take_while(|entry| !entry.json.contains("\"two\""));
        let message = message.filter(|entry| entry.json.contains("\"text\""));
        message.map(|entry| (entry.identity, entry.json[..34].to_owned())).collect::<Vec<_>>()
    };
    assert_eq!(named(lines), named(&from_read.join("\n")));
}

/// `expect` is a file under `fixtures/history`.
fn check_golden(name: &str, transcript: &str, ui: &str) {
    let lines = with_notes(tape(name));
    let message: String =
        entries(&lines).iter().map(|entry| format!("{}\n  {}\n", entry.identity, entry.json)).collect();
    assert!(message == transcript, "{name}.transcript is now:\n{message}");
    let message: String = ui_events(&lines).iter().map(|event| format!("{}\n", json(event))).collect();
    assert!(message == ui, "{name}.ui is now:\n{message}");
}

#[test]
fn approved_command_matches_golden_files() {
    check_golden(
        "command_approval",
        include_str!("../../fixtures/history/command_approval.transcript"),
        include_str!("../../fixtures/history/command_approval.ui"),
    );
}

#[test]
fn declined_change_matches_golden_files() {
    check_golden(
        "file_change_approval",
        include_str!("../../fixtures/history/file_change_approval.transcript"),
        include_str!("../../fixtures/history/file_change_approval.ui"),
    );
}
