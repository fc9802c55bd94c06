//! The speed of indexing a journal and of queries to a history. An argument sets the number of lines, so that a
//! profiler that counts instructions need not wait for a million.

#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::time::{Duration, Instant};

use codex_shim::testing::config::RetentionBounds;
use codex_shim::testing::index::{Cursor, History, Index, IndexSettings};
use codex_shim::testing::journal::{Generation, SegmentName};
use codex_shim::testing::store::SeqMark;

/// Default number of indexed lines.
const LINES: u64 = 1_000_000;

fn main() {
    let lines = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(LINES);
    let dir = tempfile::tempdir().expect("a temporary folder");
    for (what, line) in [("events of 200 bytes", event as fn(u64) -> String), ("pieces of 200 bytes", piece)] {
        let session_dir = dir.path().join(what.replace(' ', "-"));
        measure(what, &session_dir, lines, line);
    }
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

fn measure(what: &str, session_dir: &std::path::Path, lines: u64, line: fn(u64) -> String) {
    let journal_dir = session_dir.join("journal");
    std::fs::create_dir_all(&journal_dir).expect("a folder");
    let generation = Generation::after(None, 1, 0);
    let mut text = format!(
        "{{\"journal\":1,\"session\":\"s\",\"generation\":\"{generation}\",\"segment\":1,\"at\":1,\"argv\":[],\"cwd\":\"/\",\"codex\":{{\"path\":\"c\"}},\"shim\":\"0\"}}\n"
    );
    for number in 0..lines {
        // 100,000 lines a second.
        let at = 1_767_225_600_000_000 + number * 10;
        text.push_str(&format!("{{\"at\":{at},\"from\":\"server\",\"line\":{}}}\n", line(number)));
    }
    std::fs::write(journal_dir.join(SegmentName { generation, number: 1 }.to_string()), text).expect("write");
    let settings = IndexSettings {
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
    };
    let marks = Box::new(|wish: codex_shim::testing::store::SeqWish| {
        Ok(SeqMark { reserved: wish.up_to, first_generation: wish.first_generation, epoch: wish.epoch })
    });
    let began = Instant::now();
    let (state, _) = Index::catch_up(settings.clone(), None, marks, Box::new(|_| {}));
    let took = began.elapsed();
    println!(
        "index, {what:<20} {:>9.0} lines a second, {} events, {:?}",
        lines as f64 / took.as_secs_f64(),
        state.last_seq,
        state.fault
    );
    let history = History::new(&settings.history_path());
    let page = |since: Option<u64>| {
        let began = Instant::now();
        let page = history.events(since.map(Cursor::from).as_ref(), 500, 0, false).expect("a page");
        (page.events.len(), began.elapsed())
    };
    page(None);
    println!("a page of 500: {:?} {:?} {:?}", page(None), page(Some(state.last_seq / 2)), page(Some(0)));
}
