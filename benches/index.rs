//! The speed of indexing a journal and of queries to a history.

use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use codex_shim::testing::config::RetentionBounds;
use codex_shim::testing::index::{Cursor, History, Index, IndexSettings};
use codex_shim::testing::journal::{Generation, SegmentName};
use codex_shim::testing::store::SeqMark;

use crate::support::{self, Table};

/// The index alone, and a page of what it has made.
pub fn speed(table: &mut Table) {
    let lines = if support::is_quick() { 200_000 } else { 1_000_000 };
    for (what, line, most_us) in [("one event", event as fn(u64) -> String, 5.0), ("a piece", piece, 0.7)] {
        let dir = tempfile::tempdir().unwrap();
        let settings = journal(dir.path(), lines, line);
        let began = Instant::now();
        let last_seq = indexed(&settings);
        let per_line = began.elapsed().as_secs_f64() * 1e6 / lines as f64;
        table.at_most(&format!("index, processor time for a line that is {what}"), per_line, "µs", most_us);
        let history = History::new(&settings.history_path());
        let mut pages: Vec<Duration> = [None, Some(last_seq / 2), Some(0), Some(last_seq / 3)]
            .into_iter()
            .map(|since: Option<u64>| {
                let began = Instant::now();
                history.events(since.map(Cursor::from).as_ref(), 500, 0, false).unwrap();
                began.elapsed()
            })
            .collect();
        let page_ms = support::percentile(&mut pages, 50).as_secs_f64() * 1e3;
        table.at_most(&format!("a page of 500 of {lines} lines, each {what}"), page_ms, "ms", 5.0);
    }
}

/// Makes and indexes a journal, for a profiler: the kind of its lines and their number.
pub fn index_lines(args: &[String]) {
    let line = match &*args[0] {
        "event" => event,
        "item" => item,
        _ => piece,
    };
    let dir = tempfile::tempdir().unwrap();
    indexed(&journal(dir.path(), args[1].parse().unwrap(), line));
}

fn event(number: u64) -> String {
    let padding = "x".repeat(58);
    format!(
        r#"{{"method":"thread/status/changed","params":{{"threadId":"019a0000-0000-7000-8000-000000000002","number":{number},"padding":"{padding}"}},"emittedAtMs":1767225600000}}"#
    )
}

fn piece(number: u64) -> String {
    format!(
        r#"{{"method":"item/agentMessage/delta","params":{{"threadId":"019a0000-0000-7000-8000-000000000002","turnId":"019a0000-0000-7000-8000-000000000003","itemId":"msg_1","delta":"some words {number:07}"}}}}"#
    )
}

/// A finished item: a command, a message or a change, with lines of our own sources.
fn item(number: u64) -> String {
    static SOURCES: LazyLock<Vec<String>> = LazyLock::new(sources);
    // SplitMix64.
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut any = |below: usize| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % below as u64) as usize
    };
    let mut some = |count: usize, sign: &str| -> String {
        let at = any(SOURCES.len() - count);
        SOURCES[at..at + count].iter().map(|line| format!("{sign}{line}\n")).collect()
    };
    let item = match number % 4 {
        0 | 1 => serde_json::json!({
            "type": "commandExecution", "command": format!("rg -n needle{} {}", number % 10_000, some(1, "").trim()),
            "cwd": "/home/me/project", "status": "completed", "exitCode": 0, "aggregatedOutput": some(20, ""),
        }),
        2 => serde_json::json!({ "type": "agentMessage", "text": some(8, "") }),
        _ => {
            let kind = serde_json::json!({ "type": "update" });
            let change =
                serde_json::json!({ "path": "/home/me/project/src/a.rs", "kind": kind, "diff": some(12, "+") });
            serde_json::json!({ "type": "fileChange", "status": "completed", "changes": [change] })
        }
    };
    let mut item = item;
    item["id"] = format!("item_{number}").into();
    item["completedAtMs"] = (1_767_225_600_000 + number * 400).into();
    let params = serde_json::json!({ "threadId": "019a0000-0000-7000-8000-000000000002", "turnId": "u", "item": item });
    serde_json::json!({ "method": "item/completed", "params": params }).to_string()
}

/// The lines of our own sources, without blanks at their ends and without empty ones.
fn sources() -> Vec<String> {
    let mut dirs = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut lines = Vec::new();
    while let Some(dir) = dirs.pop() {
        let mut entries: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        for path in entries {
            if path.is_dir() {
                dirs.push(path);
            } else {
                let text = std::fs::read_to_string(path).unwrap();
                lines.extend(text.lines().map(str::trim_end).filter(|line| !line.is_empty()).map(str::to_owned));
            }
        }
    }
    lines
}

/// Writes segments of about 64 MiB with so many lines, of which every fifth is a finished item. Returns the number of items.
pub fn fill_with_items(journal_dir: &Path, session: &str, lines: u64) -> u64 {
    std::fs::create_dir_all(journal_dir).unwrap();
    let (mut items, mut number, mut segment) = (0, 0, 0);
    while number < lines {
        segment += 1;
        let mut text = format!(
            "{{\"journal\":1,\"session\":\"{session}\",\"generation\":\"000000010000\",\"segment\":{segment},\"at\":1,\
             \"argv\":[],\"cwd\":\"/\",\"codex\":{{\"path\":\"c\"}},\"shim\":\"0\"}}\n"
        );
        while number < lines && text.len() < (64 << 20) - (1 << 20) {
            let line = if number % 5 == 4 { item(items) } else { event(number) };
            items += u64::from(number % 5 == 4);
            let at = 1_767_225_600_000_000 + number * 80_000;
            text.push_str(&format!("{{\"at\":{at},\"from\":\"server\",\"line\":{line}}}\n"));
            number += 1;
        }
        std::fs::write(journal_dir.join(format!("000000010000-{segment:03}.jsonl")), text).unwrap();
    }
    items
}

/// A journal of `lines` lines.
fn journal(session_dir: &Path, lines: u64, line: fn(u64) -> String) -> IndexSettings {
    let journal_dir = session_dir.join("journal");
    std::fs::create_dir_all(&journal_dir).unwrap();
    let generation = Generation::after(None, 1, 0);
    let mut text = format!(
        "{{\"journal\":1,\"session\":\"s\",\"generation\":\"{generation}\",\"segment\":1,\"at\":1,\"argv\":[],\"cwd\":\"/\",\"codex\":{{\"path\":\"c\"}},\"shim\":\"0\"}}\n"
    );
    for number in 0..lines {
        // 100,000 lines a second.
        let at = 1_767_225_600_000_000 + number * 10;
        text.push_str(&format!("{{\"at\":{at},\"from\":\"server\",\"line\":{}}}\n", line(number)));
    }
    std::fs::write(journal_dir.join(SegmentName { generation, number: 1 }.to_string()), text).unwrap();
    IndexSettings {
        session_id: "s".to_owned(),
        session_dir: session_dir.to_owned(),
        journal_dir,
        retention: RetentionBounds {
            events_max: 50_000,
            tool_events_max: 20_000,
            turn_events_max: 5_000,
            age_max: Duration::from_secs(86_400),
            session_age_max: Duration::from_secs(30 * 86_400),
        },
        transcript_files: codex_shim::testing::index::TranscriptFiles::None,
        home: None,
        indexed_to: codex_shim::testing::journal::IndexedTo::default(),
    }
}

/// Indexes a journal; returns the last number.
fn indexed(settings: &IndexSettings) -> u64 {
    let marks = Box::new(|wish: codex_shim::testing::store::SeqWish| {
        Ok(SeqMark { reserved: wish.up_to, first_generation: wish.first_generation, epoch: wish.epoch })
    });
    let (state, _) = Index::catch_up(settings.clone(), None, marks, Box::new(|_| {}));
    assert_eq!(state.fault, None);
    state.last_seq
}
