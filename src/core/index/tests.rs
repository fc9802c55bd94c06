//! The index over real files: what it reports, and how it recovers from faults.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::indexer::PRUNE_FIRST_AFTER;
use super::pace::{LongLines, Storm};
use super::*;
use crate::api::{Cursor, EventPage, GapReason};
use crate::config::RetentionBounds;
use crate::journal::{Generation, Position, SegmentName};
use crate::store::{IndexLock, SeqMark};

/// A home with a session's folder, and the mark that a ledger would store.
pub(super) struct Lab {
    dir: tempfile::TempDir,
    mark: Arc<Mutex<SeqMark>>,
    told: Arc<Mutex<Vec<String>>>,
}

impl Lab {
    pub(super) fn new() -> Lab {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        std::fs::create_dir_all(dir.path().join("sessions/s/journal")).expect("a folder");
        Lab { dir, mark: Arc::default(), told: Arc::default() }
    }

    pub(super) fn home(&self) -> &Path {
        self.dir.path()
    }

    pub(super) fn session(&self) -> PathBuf {
        self.home().join("sessions/s")
    }

    /// As if the ledger was lost.
    pub(super) fn forget_mark(&self) {
        *self.mark.lock().expect("a lock") = SeqMark::default();
    }

    /// As if an older version wrote the ledger.
    pub(super) fn forget_epoch(&self) {
        self.mark.lock().expect("a lock").epoch = None;
    }

    pub(super) fn journal(&self) -> PathBuf {
        self.session().join("journal")
    }

    pub(super) fn history(&self) -> PathBuf {
        self.session().join(HISTORY_FILE)
    }

    pub(super) fn settings(&self) -> IndexSettings {
        let retention = RetentionBounds {
            events_max: 50_000,
            tool_events_max: 20_000,
            turn_events_max: 5_000,
            age_max: Duration::from_secs(14 * 86_400),
            session_age_max: Duration::from_secs(30 * 86_400),
        };
        IndexSettings {
            session_id: "s".to_owned(),
            session_dir: self.session(),
            journal_dir: self.journal(),
            retention,
            transcript_files: TranscriptFiles::Kept,
            home: None,
            indexed_to: crate::journal::IndexedTo::default(),
        }
    }

    pub(super) fn marks(&self) -> Marks {
        let mark = Arc::clone(&self.mark);
        Box::new(move |wish| {
            let mut mark = mark.lock().expect("a lock");
            mark.reserved = mark.reserved.max(wish.up_to);
            mark.first_generation = mark.first_generation.take().or(wish.first_generation);
            mark.epoch = wish.epoch.or(mark.epoch.take());
            Ok(mark.clone())
        })
    }

    pub(super) fn notify(&self) -> Notify {
        let told = Arc::clone(&self.told);
        Box::new(move |notice| {
            let word = match notice {
                IndexNotice::Failed(why) => format!("failed: {why}"),
                IndexNotice::AwaitsLedger(why) => format!("awaits: {why}"),
                IndexNotice::Recovered => "recovered".to_owned(),
                IndexNotice::SetAside(_) => "set aside".to_owned(),
                IndexNotice::ClockJumped(jump) => format!("the clock: {jump:?}"),
                IndexNotice::TranscriptFailed(why) => format!("transcript: {why}"),
            };
            told.lock().expect("a lock").push(word);
        })
    }

    pub(super) fn catch_up(&self) -> IndexState {
        let end = crate::journal::end_of(&self.journal()).expect("there is a journal");
        self.catch_up_to(end)
    }

    fn catch_up_to(&self, end: Position) -> IndexState {
        // An index that was told to stop may still hold the lock.
        let mut lock = None;
        until("the lock", || {
            lock = IndexLock::try_take(&self.session()).expect("it can be locked");
            lock.is_some()
        });
        Index::catch_up(self.settings(), Some(end), self.marks(), self.notify()).0
    }

    fn start(&self) -> Index {
        Index::start(self.settings(), self.marks(), self.notify()).expect("a thread")
    }

    /// Appends records to a segment; the first begins with a header.
    pub(super) fn append(&self, generation: u32, number: u32, records: &[String]) {
        let generation = Generation::after(None, generation, 0);
        let path = self.journal().join(SegmentName { generation: generation.clone(), number }.to_string());
        let mut text = std::fs::read_to_string(&path).unwrap_or_default();
        if text.is_empty() {
            text = format!(
                r#"{{"journal":1,"session":"s","generation":"{generation}","segment":{number},"at":1,"argv":[],"cwd":"/","codex":{{"path":"c"}},"shim":"0"}}"#
            );
            text.push('\n');
        }
        records.iter().for_each(|record| {
            text.push_str(record);
            text.push('\n');
        });
        std::fs::write(path, text).expect("write");
    }

    pub(super) fn page(&self, since: Option<u64>, limit: u64) -> EventPage {
        History::new(&self.history())
            .events(since.map(Cursor::from).as_ref(), limit, 0, false)
            .expect("it can be asked")
    }

    /// All events as text.
    pub(super) fn events(&self) -> Vec<String> {
        words(&self.page(Some(0), 10_000))
    }
}

pub(super) fn words(page: &EventPage) -> Vec<String> {
    page.events.iter().map(|event| format!("{} {}", event.seq.expect("a number"), event.event_type)).collect()
}

pub(super) fn told(at_us: u64, method: &str) -> String {
    format!(r#"{{"at":{at_us},"from":"server","line":{{"method":"{method}","params":{{"threadId":"t"}}}}}}"#)
}

pub(super) fn piece(at_us: u64, text: &str) -> String {
    format!(
        r#"{{"at":{at_us},"from":"server","line":{{"method":"item/agentMessage/delta","params":{{"threadId":"t","turnId":"u","itemId":"i","delta":"{text}"}}}}}}"#
    )
}

/// Records with the current time: retention would delete older ones while a test waits.
pub(super) fn numbered(range: std::ops::RangeInclusive<u64>) -> Vec<String> {
    let now_us = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("a clock").as_micros() as u64;
    range.map(|number| told(now_us + number, &format!("m{number}"))).collect()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn each_record_is_indexed_once() {
    let lab = Lab::new();
    lab.append(1, 1, &numbered(1..=3));
    assert_eq!(lab.catch_up().last_seq, 3);
    assert_eq!(lab.catch_up().last_seq, 3);
    lab.append(1, 1, &numbered(4..=4));
    lab.append(1, 2, &numbered(5..=5));
    lab.append(2, 1, &numbered(6..=6));
    assert_eq!(lab.catch_up().last_seq, 6);
    assert_eq!(lab.events(), ["1 m1", "2 m2", "3 m3", "4 m4", "5 m5", "6 m6"]);
    assert_eq!(lab.mark.lock().expect("a lock").reserved, 10_000);
}

#[test]
fn resting_index_is_woken_by_growth() {
    let lab = Lab::new();
    lab.append(1, 1, &numbered(1..=1));
    let (index, began) = (lab.start(), Instant::now());
    let state = index.state();
    // The first pruning interrupts the rest once.
    until("the index rests", || index.rests() && began.elapsed() > PRUNE_FIRST_AFTER + Duration::from_secs(1));
    lab.append(1, 1, &numbered(2..=2));
    index.journal_grew(1);
    until("the record is indexed", || state.borrow().last_seq == 2);
    until("the index rests again", || index.rests());
    index.end();
}

#[test]
fn index_stands_back_while_the_journal_grows_fast() {
    let mut storm = Storm { measured_at: Instant::now(), appended_bytes: 0, stood_back: Duration::ZERO };
    let mut appended_bytes = 0;
    let mut stands_back_after = |bytes: u64, passed: Duration| {
        storm.measured_at -= passed;
        appended_bytes += bytes;
        storm.stand_back(appended_bytes) > Duration::ZERO
    };
    assert!(!stands_back_after(100_000, Duration::from_millis(40)));
    let in_storm: Vec<bool> = (0..200).map(|_| stands_back_after(4_000_000, Duration::from_millis(20))).collect();
    let standing = in_storm.iter().filter(|stands| **stands).count();
    // At most a second in one piece, and later half of the time.
    assert!(in_storm[..49].iter().all(|stands| *stands) && !in_storm[52..].iter().take(4).all(|stands| *stands));
    assert!((100..=130).contains(&standing), "{standing}");
}

#[test]
fn index_waits_while_long_lines_pass() {
    let mut now = Instant::now();
    let mut lines = LongLines::new(now);
    let mut waits_after = |bytes: usize, passed: Duration| {
        now += passed;
        lines.pass(now, bytes)
    };
    let (short, long, a_while) = (1 << 20, 32 << 20, Duration::from_millis(20));
    assert!(!waits_after(short, a_while));
    // Five seconds if a line stays, and then no longer.
    let waits: Vec<bool> = (0..300).map(|_| waits_after(long, a_while)).collect();
    assert!(waits[..250].iter().all(|waits| *waits) && !waits[250..].contains(&true));
    // Once it is gone, the next ones are waited for again, and so are the pauses between them.
    assert!(!waits_after(short, Duration::from_secs(9)));
    assert!(waits_after(long, a_while) && waits_after(short, a_while) && waits_after(long, a_while));
    assert!(waits_after(short, a_while * 4) && !waits_after(short, a_while) && !waits_after(short, a_while));
}

#[test]
fn deltas_are_joined_across_steps() {
    let lab = Lab::new();
    lab.append(1, 1, &[told(1_000, "a"), piece(2_000, "x"), piece(3_000, "y")]);
    let index = lab.start();
    let mut state = index.state();
    until("three records are read", || {
        index.wake();
        state.borrow_and_update().position.as_ref().is_some_and(|at| at.offset > 300)
    });
    let checkpoint = || -> i64 {
        let database = rusqlite::Connection::open(lab.history()).expect("it is there");
        database.query_row("SELECT byte_offset FROM codex_event_checkpoints", [], |row| row.get(0)).expect("a row")
    };
    // The group may have been closed by silence on a slow machine; then the checkpoint is at the end.
    if lab.events() == ["1 a"] {
        assert!(checkpoint() < state.borrow().position.clone().expect("a position").offset as i64);
    }
    index.end();
    lab.append(1, 1, &[piece(50_000, "z"), piece(150_001, "new"), told(150_002, "b")]);
    lab.catch_up();
    let all: Vec<String> = lab
        .page(Some(0), 10)
        .events
        .iter()
        .map(|event| format!("{} {}", event.event_type, event.payload_preview.get()))
        .filter(|event| event.contains("delta"))
        .collect();
    let texts: Vec<&str> =
        all.iter().filter_map(|event| event.split(r#""delta":""#).nth(1)?.split('"').next()).collect();
    assert!(texts == ["xyz", "new"] || texts == ["xy", "z", "new"], "{all:?}");
}

#[test]
fn lost_history_is_rebuilt_with_the_same_numbers() {
    let lab = Lab::new();
    lab.append(1, 1, &numbered(1..=3));
    lab.append(1, 2, &numbered(4..=5));
    lab.catch_up();
    let before = lab.events();
    std::fs::remove_file(lab.history()).expect("it is there");
    lab.catch_up();
    assert_eq!(lab.events(), before);
    std::fs::write(lab.history(), "no database, and long enough to be seen as none ".repeat(99)).expect("write");
    lab.catch_up();
    assert_eq!(lab.events(), before);
    assert_eq!(*lab.told.lock().expect("a lock"), ["set aside"]);
}

#[test]
fn partial_rebuild_issues_no_number_twice() {
    let lab = Lab::new();
    lab.append(1, 1, &numbered(1..=3));
    lab.append(2, 1, &numbered(4..=5));
    lab.catch_up();
    std::fs::remove_file(lab.history()).expect("it is there");
    let first = SegmentName::list(&lab.journal()).expect("a folder").remove(0);
    std::fs::remove_file(lab.journal().join(first.to_string())).expect("it is there");
    lab.catch_up();
    assert_eq!(lab.events(), ["10001 m4", "10002 m5"]);
    let page = lab.page(Some(5), 10);
    assert_eq!((page.gap_reason, page.next_seq), (Some(GapReason::Retention), 10_003));
}

#[test]
fn gaps_are_reported_forever() {
    let lab = Lab::new();
    let gap = r#"{"at":2,"gap":{"lines":7,"reason":"disk full"}}"#.to_owned();
    lab.append(1, 1, &[told(1, "a"), gap, told(3, "b")]);
    lab.append(1, 3, &[told(4, "c"), "no record".to_owned()]);
    lab.catch_up();
    assert_eq!(lab.events(), ["1 a", "2 event_gap", "3 b", "4 event_gap", "5 c", "6 event_gap"]);
    let reason = |since| lab.page(Some(since), 1).gap_reason;
    assert_eq!(reason(0), Some(GapReason::JournalGap));
    assert_eq!(reason(5), Some(GapReason::JournalGap));
    assert_eq!(reason(6), None);
}

#[test]
fn replaced_line_is_indexed_as_sent() {
    let lab = Lab::new();
    let line = |from: &str, name: &str| {
        format!(r#"{{"at":1,{from},"line":{{"method":"{name}","params":{{"a":"\u001eX"}}}}}}"#)
    };
    let (server, instead) = (r#""from":"server""#, r#""from":"shim","to":"client","replaces":true"#);
    lab.append(1, 1, &[line(server, "a"), line(instead, "b"), line(server, "c"), line(server, "d")]);
    lab.catch_up();
    assert_eq!(lab.events(), ["1 b", "2 c", "3 d"]);
    lab.append(1, 1, &[line(instead, "e")]);
    lab.catch_up();
    assert_eq!(lab.events(), ["1 b", "2 c", "3 d"]);
}

#[test]
fn own_message_is_indexed_without_context() {
    let lab = Lab::new();
    let own = |start: &str| {
        let params = format!(r#"{{"threadId":"t","input":[{{"type":"text","text":"{start}hi"}}]}}"#);
        format!(
            r#"{{"at":1,"from":"shim","to":"server","line":{{"id":"codex-shim:0","method":"turn/start","params":{params}}}}}"#
        )
    };
    let envelope = r#"\u001eCODEX_META {\"v\":1,\"type\":\"user_cmd_context\",\"commands\":[]}\u001f"#;
    lab.append(1, 1, &[own(envelope), own("")]);
    lab.catch_up();
    let page = serde_json::to_value(lab.page(None, 10)).expect("BUG: plain data is JSON");
    let previews: Vec<_> =
        page["events"].as_array().expect("events").iter().map(|event| &event["payload_preview"]).collect();
    let text = |preview: &serde_json::Value| preview["input"][0]["text"].clone();
    assert_eq!(previews.into_iter().map(text).collect::<Vec<_>>(), ["hi", "hi"], "{page}");
}

#[test]
fn pages_are_contiguous() {
    let lab = Lab::new();
    lab.append(1, 1, &numbered(1..=25));
    lab.catch_up();
    assert_eq!(words(&lab.page(None, 2)), ["24 m24", "25 m25"]);
    let (mut since, mut seen) = (0, Vec::new());
    loop {
        let page = lab.page(Some(since), 10);
        assert_eq!((page.earliest_seq, page.latest_seq, page.history_gap), (Some(1), Some(25), false));
        if page.events.is_empty() {
            break;
        }
        seen.extend(words(&page));
        since = page.next_seq - 1;
    }
    assert_eq!(seen.len(), 25);
    for ahead in [26, 99, u64::MAX] {
        let page = lab.page(Some(ahead), 5);
        assert_eq!((page.gap_reason, page.next_seq), (Some(GapReason::CursorAhead), 6), "{ahead}");
        assert_eq!(words(&page)[0], "1 m1");
    }
    assert_eq!((lab.page(Some(25), 5).gap_reason, lab.page(Some(25), 5).next_seq), (None, 26));
}

#[test]
fn locked_history_is_sent_live_then_indexed() {
    let lab = Lab::new();
    lab.append(1, 1, &numbered(1..=2));
    let index = lab.start();
    let mut live = index.live();
    let state = index.state();
    until("it is indexed", || state.borrow().last_seq == 2);
    let locker = rusqlite::Connection::open(lab.history()).expect("it is there");
    locker.execute_batch("BEGIN IMMEDIATE").expect("a lock");
    lab.append(1, 1, &numbered(3..=4));
    index.journal_grew(1);
    let mut keys = Vec::new();
    until("both are told live", || {
        if let Ok(event) = live.try_recv() {
            let event: serde_json::Value = serde_json::from_str(&event.json).expect("JSON");
            assert_eq!((event["seq"].is_null(), &event["persisted"]), (true, &serde_json::json!(false)));
            keys.push(event["key"].as_str().expect("a key").to_owned());
        }
        keys.len() == 2
    });
    assert!(state.borrow().fault.is_some());
    locker.execute_batch("ROLLBACK").expect("it is let go");
    until("it is indexed too", || state.borrow().last_seq == 4 && state.borrow().fault.is_none());
    let page = lab.page(Some(2), 10);
    assert_eq!(page.events.iter().filter_map(|event| event.key.clone()).collect::<Vec<_>>(), keys);
    let told = lab.told.lock().expect("a lock").clone();
    assert!(told[0].contains("locked") && told.last().is_some_and(|last| last == "recovered"), "{told:?}");
    index.end();
}

#[test]
fn deleted_or_corrupt_history_is_rebuilt_while_running() {
    let lab = Lab::new();
    lab.append(1, 1, &numbered(1..=2));
    let index = lab.start();
    let state = index.state();
    until("it is indexed", || state.borrow().last_seq == 2);
    std::fs::remove_file(lab.history()).expect("it is there");
    // A reader notices it, or the index itself as long as it does not rest.
    let woken = || index.wake();
    until("it is there again", || {
        woken();
        lab.history().exists() && state.borrow().opened == 2 && state.borrow().last_seq == 2
    });
    std::fs::OpenOptions::new().write(true).open(lab.history()).expect("it is there").set_len(100).expect("cut");
    until("it is there again", || {
        woken();
        state.borrow().opened == 3 && state.borrow().last_seq == 2
    });
    lab.append(1, 1, &numbered(3..=3));
    index.journal_grew(1);
    until("it goes on", || state.borrow().last_seq == 3);
    assert_eq!(lab.events(), ["1 m1", "2 m2", "3 m3"]);
    index.end();
}

#[test]
fn oldest_rows_are_pruned_in_batches() {
    let lab = Lab::new();
    let now_us = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("a clock").as_micros() as u64;
    let records: Vec<String> = (0..1_300).map(|number| told(now_us + number, "m")).collect();
    lab.append(1, 1, &records);
    lab.catch_up();
    let connection = rusqlite::Connection::open(lab.history()).expect("it is there");
    let bounds = RetentionBounds { events_max: 100, ..lab.settings().retention };
    let mut went = Vec::new();
    loop {
        let pruned = maintenance::prune(&connection, &bounds, now_us).expect("it works");
        if pruned.rows() == 0 {
            break;
        }
        went.push(pruned.events);
    }
    assert_eq!(went, [500, 500, 200]);
    let page = lab.page(Some(7), 1);
    assert_eq!((page.earliest_seq, page.gap_reason), (Some(1_201), Some(GapReason::Retention)));
    let day_us = 86_400_000_000;
    let pruned = maintenance::prune(&connection, &bounds, now_us + 15 * day_us).expect("it works");
    assert_eq!(pruned.events, 100);
    let page = lab.page(Some(7), 1);
    assert_eq!((page.earliest_seq, page.gap_reason, page.next_seq), (None, Some(GapReason::Retention), 8));
    lab.append(1, 1, &[told(now_us + 9_999, "next")]);
    lab.catch_up();
    assert_eq!(lab.events(), ["1301 next"]);
}

#[test]
fn newer_history_is_not_changed() {
    let lab = Lab::new();
    lab.append(1, 1, &numbered(1..=2));
    let newer = rusqlite::Connection::open(lab.history()).expect("a file");
    newer.execute_batch("PRAGMA user_version = 99").expect("a number");
    drop(newer);
    let state = lab.catch_up();
    assert!(state.fault.is_some_and(|fault| fault.contains("newer codex-shim")));
    assert!(Path::new(&lab.history()).exists());
}

fn message(at_us: u64, thread: &str, text: &str) -> String {
    format!(
        r#"{{"at":{at_us},"from":"server","line":{{"method":"item/completed","params":{{"threadId":"{thread}","turnId":"u","item":{{"type":"agentMessage","id":"i{at_us}","text":"{text}"}}}}}}}}"#
    )
}

#[test]
fn transcript_file_faults_are_reported_once() {
    let lab = Lab::new();
    let file = lab.session().join("transcripts/a_b.jsonl");
    let entries = || History::new(&lab.history()).transcript("a/b", 0).expect("it can be asked");
    let kept = || std::fs::read_to_string(&file).expect("it is there");
    lab.append(1, 1, &[message(1, "a/b", "one"), message(2, "c", "two")]);
    lab.catch_up();
    assert_eq!(kept(), entries().join("\n") + "\n");
    std::fs::remove_dir_all(file.parent().expect("a folder")).expect("it is there");
    std::fs::write(lab.session().join("transcripts"), "in the way").expect("write");
    lab.append(1, 1, &[message(3, "a/b", "three"), message(4, "c", "four")]);
    assert_eq!(lab.catch_up().fault, None);
    let told = std::mem::take(&mut *lab.told.lock().expect("a lock"));
    assert!(told.len() == 1 && told[0].starts_with("transcript: write "), "{told:?}");
    std::fs::remove_file(lab.session().join("transcripts")).expect("it is there");
    lab.catch_up();
    assert_eq!(kept(), entries().join("\n") + "\n");
    assert!(entries().len() >= 2 && kept().contains("three"));
}

#[test]
fn transcript_has_the_order_of_its_thread() {
    let lab = Lab::new();
    let call =
        r#"{"at":3000000,"from":"client","line":{"id":1,"method":"thread/items/list","params":{"threadId":"t"}}}"#;
    let item = |text: &str, at_ms: u64| {
        format!(
            r#"{{"turnId":"u","item":{{"type":"agentMessage","id":"{text}","text":"{text}","completedAtMs":{at_ms}}}}}"#
        )
    };
    let items = [item("early", 1_000), item("late", 2_500)].join(",");
    let answer = format!(r#"{{"at":3000001,"from":"server","line":{{"id":1,"result":{{"data":[{items}]}}}}}}"#);
    lab.append(1, 1, &[message(2_000_000, "t", "live"), call.to_owned(), answer]);
    lab.catch_up();
    let words = || {
        let history = History::new(&lab.history());
        let [whole, end] = [history.transcript("t", 0), history.transcript_end("t", usize::MAX, 0)];
        let whole = whole.expect("it can be asked");
        assert_eq!(end.expect("it can be asked"), whole);
        let text = |entry: &String| serde_json::from_str::<serde_json::Value>(entry).expect("JSON")["text"].to_string();
        whole.iter().map(text).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(words(), r#""early" "live" "late""#);
    // An older version knows no places.
    let older = rusqlite::Connection::open(lab.history()).expect("it is there");
    older
        .execute_batch(
            "DROP INDEX codex_transcript_entries_in_order; ALTER TABLE codex_transcript_entries DROP COLUMN place_us",
        )
        .expect("our own SQL");
    assert_eq!(words(), r#""live" "early" "late""#);
}

#[test]
fn transcript_keeps_its_order_if_the_clock_is_set_back() {
    let lab = Lab::new();
    let call =
        r#"{"at":4000000,"from":"client","line":{"id":1,"method":"thread/items/list","params":{"threadId":"t"}}}"#;
    let item = |text: &str, at_ms: u64| {
        format!(
            r#"{{"turnId":"v","item":{{"type":"agentMessage","id":"{text}","text":"{text}","completedAtMs":{at_ms}}}}}"#
        )
    };
    let items = [item("early", 1_000), item("missed", 9_500)].join(",");
    let answer = format!(r#"{{"at":4000001,"from":"server","line":{{"id":1,"result":{{"data":[{items}]}}}}}}"#);
    for (generation, records) in [
        (1, vec![message(9_000_000, "t", "one"), message(9_000_001, "t", "two")]),
        (2, vec![message(3_000_000, "t", "three"), message(3_000_001, "t", "four")]),
        (3, vec![call.to_owned(), answer, message(4_000_002, "t", "five")]),
    ] {
        lab.append(generation, 1, &records);
        lab.catch_up();
    }
    let history = History::new(&lab.history());
    let words = |entries: Vec<String>| {
        let text = |entry: &String| serde_json::from_str::<serde_json::Value>(entry).expect("JSON")["text"].to_string();
        entries.iter().map(text).collect::<Vec<_>>().join(" ").replace('"', "")
    };
    let whole = history.transcript("t", 0).expect("it can be asked");
    assert_eq!(words(whole.clone()), "early one two three four missed five");
    let end = history.transcript_end("t", whole.last().map_or(0, String::len) + 1, 0).expect("it can be asked");
    assert_eq!(words(end), "five");
}

#[test]
fn activity_is_the_same_live_and_reread() {
    let tapes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/tapes");
    let mut states = std::collections::BTreeSet::new();
    for name in ["command_approval", "question", "interrupt", "end_in_mid_turn"] {
        let tape = std::fs::read_to_string(tapes.join(format!("{name}.jsonl"))).expect("a tape");
        let records: Vec<String> = tape.lines().skip(1).map(str::to_owned).collect();
        let live = Lab::new();
        let index = live.start();
        let (mut state, file) = (index.state(), SegmentName { generation: Generation::after(None, 1, 0), number: 1 });
        for (count, record) in records.iter().enumerate() {
            live.append(1, 1, std::slice::from_ref(record));
            let end = std::fs::metadata(live.journal().join(file.to_string())).expect("it is there").len();
            until("the record is read", || {
                index.wake();
                state.borrow_and_update().position.as_ref().is_some_and(|at| at.offset == end)
            });
            let again = Lab::new();
            again.append(1, 1, &records[..=count]);
            let (_, activity) = Index::catch_up(again.settings(), None, again.marks(), again.notify());
            let at_us =
                serde_json::from_str::<serde_json::Value>(record).expect("JSON")["at"].as_u64().expect("a time");
            for now_us in [at_us, at_us + 3_000_000, at_us + 600_000_000] {
                let told = |fold: &crate::history::SessionActivity| (fold.session(now_us), fold.threads(now_us));
                assert_eq!(told(&index.activity()), told(&activity), "{name}: {record}");
                states.insert(activity.session(now_us).0.name());
            }
            // The same must hold if it continues from a checkpoint.
            let resumed = Lab::new();
            resumed.append(1, 1, &records[..=count]);
            let copy = resumed.history();
            let database = rusqlite::Connection::open(live.history()).expect("it is there");
            database.execute("VACUUM INTO ?1", [copy.to_str().expect("UTF-8")]).expect("a copy");
            let (_, resumed) = Index::catch_up(resumed.settings(), None, resumed.marks(), resumed.notify());
            assert_eq!(resumed, activity, "{name}: {record}");
        }
        index.end();
    }
    assert_eq!(states.len(), 6, "the tapes cover too little: {states:?}");
}

#[test]
fn history_found_corrupt_by_a_reader_is_rebuilt() {
    let lab = Lab::new();
    lab.append(1, 1, &numbered(1..=3));
    let index = lab.start();
    let state = index.state();
    until("it is indexed", || state.borrow().last_seq == 3);
    let told = || lab.told.lock().expect("a lock").clone();
    index.rebuild(state.borrow().opened + 1);
    lab.append(1, 1, &numbered(4..=4));
    index.journal_grew(1);
    until("it goes on", || state.borrow().last_seq == 4);
    assert_eq!((told(), state.borrow().opened), (Vec::new(), 1));
    index.rebuild(1);
    until("it is built again", || state.borrow().opened == 2 && state.borrow().last_seq == 4);
    assert_eq!(told(), ["set aside"]);
    assert_eq!(lab.events(), ["1 m1", "2 m2", "3 m3", "4 m4"]);
    index.end();
}

#[test]
fn bounded_indexing_leaves_a_new_relays_records() {
    let lab = Lab::new();
    lab.append(1, 1, &[told(10, "m1"), piece(20, "a")]);
    let torn = lab.journal().join(SegmentName { generation: Generation::after(None, 1, 0), number: 1 }.to_string());
    let text = std::fs::read_to_string(&torn).expect("it is there");
    std::fs::write(&torn, text + r#"{"at":30,"fr"#).expect("write");
    let end = crate::journal::end_of(&lab.journal()).expect("there is a journal");
    lab.append(2, 1, &[told(40, "m2")]);
    assert_eq!(lab.catch_up_to(end.clone()).last_seq, 2);
    assert_eq!(lab.catch_up_to(end).last_seq, 2);
    assert_eq!(lab.events(), ["1 m1", "2 item/agentMessage/delta"]);
    // Its own index continues there.
    assert_eq!(lab.catch_up().last_seq, 3);
    assert_eq!(lab.events()[2], "3 m2");
}

#[test]
fn index_waits_for_a_command() {
    let lab = Lab::new();
    lab.append(1, 1, &numbered(1..=2));
    let lock = IndexLock::try_take(&lab.session()).expect("it can be locked").expect("nobody has it");
    let index = lab.start();
    let state = index.state();
    index.wake();
    assert!(!lab.history().exists());
    drop(lock);
    until("it is indexed", || state.borrow().last_seq == 2);
    assert!(IndexLock::try_take(&lab.session()).expect("it can be locked").is_none());
    assert!(lab.told.lock().expect("a lock").is_empty());
    index.end();
    until("it lets go", || IndexLock::try_take(&lab.session()).expect("it can be locked").is_some());
}

#[test]
fn tool_rows_of_unknown_events_are_skipped() {
    let lab = Lab::new();
    lab.append(1, 1, &numbered(1..=1));
    lab.catch_up();
    let insert = "INSERT INTO codex_tool_events (session_id, item_id, event_type, item_type, phase, created_at)
        VALUES ('s', ?1, ?2, 'x', 'running', '2026-01-01T00:00:00.000Z')";
    let newer = rusqlite::Connection::open(lab.history()).expect("it is there");
    for row in [["i", "started"], ["j", "nonsense"]] {
        newer.execute(insert, row).expect("our own SQL");
    }
    let actions = History::new(&lab.history()).actions(9, 0).expect("it can be asked");
    let actions: Vec<_> = actions.iter().map(|action| (&*action.summary_text, action.item_id.as_deref())).collect();
    assert_eq!(actions, [("Started: x", Some("i"))]);
}
