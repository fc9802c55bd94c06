//! Checkpoints over real files: what they store, and how one of another version is replaced.

use super::model::Reached;
use std::time::Instant;

use super::tests::{Lab, piece, told};
use super::*;
use crate::api::TurnRowDocument;
use crate::journal::{Generation, SegmentName};

#[test]
fn checkpoint_holds_no_streamed_text_and_loads_whole() {
    let lab = Lab::new();
    let key = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let (half, rest) = key.split_at(20);
    lab.append(1, 1, &[told(1_000, "a"), piece(2_000, &format!("use {half}")), piece(3_000, &format!("{rest} now"))]);
    let mut follower = follow::Follower::new(&lab.journal(), None);
    let mut reached = Reached::default();
    for records in 1..=4 {
        let Ok(follow::Next::Record { at, bytes, .. }) = follower.next(follow::Patience::None) else {
            panic!("a record")
        };
        let record = crate::journal::Record::parse(bytes).expect("a record");
        reached.fold.take(&at, &crate::history::Seen::of(&record, None), &mut crate::history::Rows::default());
        reached.position = follower.position().cloned();
        let (mut database, _) = database::Database::open(&lab.history(), "s").expect("a history");
        database.commit(&crate::history::Rows::default(), 0, &reached).expect("it is committed");
        drop(database);
        // The journal, in a folder of its own, holds the text.
        let entries = std::fs::read_dir(lab.session()).expect("a folder").map(|entry| entry.expect("an entry").path());
        let files: Vec<std::path::PathBuf> = entries.filter(|path| path.is_file()).collect();
        assert!(files.contains(&lab.history()), "{files:?}");
        for path in files {
            let bytes = std::fs::read(&path).expect("a file");
            assert!(memchr::memmem::find(&bytes, half.as_bytes()).is_none(), "{} after {records}", path.display());
        }
        let (mut database, _) = database::Database::open(&lab.history(), "s").expect("a history");
        reached = database.load(&lab.journal(), &mut None).expect("it can be read").0.expect("a checkpoint").reached;
    }
    let mut rows = crate::history::Rows::default();
    reached.fold.silence(u64::MAX, &mut rows);
    let joined = rows.events.last().expect("the pieces").payload_preview.clone();
    assert!(joined.contains("use [redacted] now") && rows.events.len() == 1, "{joined}");
}

#[test]
fn checkpoint_of_another_version_is_folded_again() {
    let now_us = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("a clock").as_micros() as u64;
    let line = |after_ms: u64, method: &str, params: &str| {
        let at = now_us + after_ms * 1_000;
        format!(r#"{{"at":{at},"from":"server","line":{{"method":"{method}","params":{{"threadId":"t",{params}}}}}}}"#)
    };
    let lab = Lab::new();
    let piece = line(1, "item/agentMessage/delta", r#""turnId":"u","itemId":"i","delta":"Hi""#);
    lab.append(1, 1, &[line(0, "turn/started", r#""turn":{"id":"u"}"#), piece]);
    let epoch = lab.catch_up().epoch;
    lab.age_checkpoint();
    lab.append(1, 1, &[line(9, "turn/completed", r#""turn":{"id":"u","status":"completed"}"#)]);
    assert_eq!(lab.catch_up().epoch, epoch);
    assert_eq!(lab.events(), ["1 turn/started", "2 item/agentMessage/delta", "3 turn/completed"]);
    let turns =
        History::new(&lab.history()).rows::<TurnRowDocument>(None, 9, 0, false).expect("it can be asked").events;
    let ends = turns.iter().map(|row| (&*row.event_type, row.latency_ms, row.output_preview.as_deref()));
    assert_eq!(ends.collect::<Vec<_>>(), [("started", None, None), ("completed", Some(9), Some("Hi"))]);
}

impl Lab {
    /// A turn that is still running at the checkpoint, which is in another segment.
    fn with_running_turn(&self) {
        let at = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("a clock").as_micros() as u64;
        self.append(1, 1, &[turn(at, "turn/started")]);
        self.append(1, 2, &[turn(at + 1, "thread/x")]);
        self.catch_up();
        self.age_checkpoint();
        self.append(1, 2, &[turn(at + 9_000, "turn/completed")]);
    }

    /// As if another version had written the checkpoint.
    fn age_checkpoint(&self) {
        let older = rusqlite::Connection::open(self.history()).expect("it is there");
        let set = "UPDATE codex_event_checkpoints SET state = json_set(state, '$.form', 0, '$.fold', json('{}'))";
        assert_eq!(older.execute(set, []).expect("our own SQL"), 1);
    }

    /// Makes the first segment unreadable: the journal has no links.
    fn hide_first_segment(&self) -> impl Fn() {
        let name = SegmentName { generation: Generation::after(None, 1, 0), number: 1 };
        let (path, aside) = (self.journal().join(name.to_string()), self.session().join("aside"));
        std::fs::rename(&path, &aside).expect("it is there");
        std::os::unix::fs::symlink(&aside, &path).expect("a link");
        move || std::fs::rename(&aside, &path).expect("it is there")
    }

    fn turn_latencies(&self) -> Vec<String> {
        let turns =
            History::new(&self.history()).rows::<TurnRowDocument>(None, 9, 0, false).expect("it can be asked").events;
        turns.iter().map(|row| format!("{} {:?}", row.event_type, row.latency_ms)).collect()
    }
}

fn turn(at_us: u64, method: &str) -> String {
    told(at_us, method).replace(r#""threadId":"t""#, r#""threadId":"t","turn":{"id":"u","status":"completed"}"#)
}

#[test]
fn unreadable_journal_is_not_folded_again_in_part() {
    let lab = Lab::new();
    lab.with_running_turn();
    let unhide = lab.hide_first_segment();
    assert!(lab.catch_up().fault.is_some());
    unhide();
    assert_eq!(lab.catch_up().fault, None);
    assert_eq!(lab.turn_latencies(), ["started None", "completed Some(9)"]);
}

#[test]
fn journal_is_folded_again_once() {
    let lab = Lab::new();
    lab.with_running_turn();
    let locker = rusqlite::Connection::open(lab.history()).expect("it is there");
    locker.execute_batch("BEGIN IMMEDIATE").expect("a lock");
    let (index, mut stepped) = indexer::Stepped::new(lab.settings(), lab.marks(), lab.notify());
    stepped.step();
    assert!(index.state().borrow().fault.is_some());
    let _ = lab.hide_first_segment();
    stepped.step();
    locker.execute_batch("ROLLBACK").expect("it is let go");
    (0..3).for_each(|_| stepped.step());
    assert_eq!(index.state().borrow().fault, None);
    assert_eq!(lab.turn_latencies(), ["started None", "completed Some(9)"]);
}

#[test]
fn fold_of_another_version_ends_groups_at_the_same_gaps() {
    let lab = Lab::new();
    lab.append(1, 1, &[piece(1_000, "a"), "broken".to_owned(), piece(2_000, "b")]);
    lab.append(1, 3, &[piece(3_000, "c")]);
    let mut follower = follow::Follower::new(&lab.journal(), None);
    let scope = follow::Scope { patience: follow::Patience::Some, until: None };
    let batch = follow::read(&crate::history::Fold::default(), &mut follower, &mut Instant::now(), &scope);
    let batch = batch.expect("it can be read").expect("records");
    let position = follower.position().cloned();
    let reached = Reached { fold: batch.fold, position, ..Reached::default() };
    assert_eq!((batch.rows.gaps.len(), reached.fold.awaits_silence()), (2, true));
    let open = || database::Database::open(&lab.history(), "s").expect("a history").0;
    open().commit(&crate::history::Rows::default(), 0, &reached).expect("it is committed");
    lab.age_checkpoint();
    let loaded = open().load(&lab.journal(), &mut None).expect("it can be read").0.expect("a checkpoint").reached;
    assert_eq!(loaded.fold, reached.fold);
}
