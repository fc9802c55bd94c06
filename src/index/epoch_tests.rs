//! Epochs over real files: which evidence continues an epoch, and what begins a new one.

use super::tables::RowPage;
use super::tests::{Lab, numbered, piece, told, words};
use super::*;
use crate::journal::{Generation, SegmentName};

const ENDED: &str = r#"{"at":9,"from":"shim","event":"generation_ended","data":{}}"#;

impl Lab {
    fn epoch(&self) -> String {
        self.catch_up().epoch.expect("an epoch")
    }

    /// Removes the last `count` lines of a run.
    fn cut(&self, generation: u32, count: usize) {
        let text = std::fs::read_to_string(self.segment(generation)).expect("it is there");
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        std::fs::write(self.segment(generation), lines[..lines.len() - count].concat()).expect("it can be cut");
    }

    /// Replaces the history with an older one.
    fn restore(&self, history: &[u8]) {
        for beside in ["history.db-wal", "history.db-shm"] {
            let _ = std::fs::remove_file(self.session().join(beside));
        }
        std::fs::write(self.history(), history).expect("it can be restored");
    }

    fn turns(&self, since: u64, epoch: Option<&str>) -> RowPage {
        let cursor = Cursor { seq: since, epoch: epoch.map(str::to_owned) };
        History::new(&self.history()).rows(Table::Turns, Some(&cursor), 9, 0, false).expect("it can be asked")
    }

    fn segment(&self, generation: u32) -> std::path::PathBuf {
        let name = SegmentName { generation: Generation::after(None, generation, 0), number: 1 };
        self.journal().join(name.to_string())
    }

    /// Changes the boot id in the witness; false if the system has none.
    fn restart_machine(&self) -> bool {
        let path = self.home().join("marks/s");
        let text = std::fs::read_to_string(&path).expect("it is there");
        let Some(boot) = crate::store::boot_id() else { return false };
        std::fs::write(&path, text.replace(&boot, "another")).expect("it can be written");
        true
    }
}

#[test]
fn restart_of_the_machine_after_a_crash_begins_an_epoch() {
    let check = |last: Option<&str>, expect: &[&str]| {
        let lab = Lab::new();
        lab.append(1, 1, &numbered(1..=2));
        lab.append(1, 1, &last.map(str::to_owned).into_iter().collect::<Vec<_>>());
        let epoch = lab.epoch();
        let is_known = lab.restart_machine();
        lab.append(2, 1, &[numbered(3..=3), vec![ENDED.to_owned()]].concat());
        let is_new = lab.epoch() != epoch;
        assert!(!is_known || (is_new == last.is_none() && lab.events() == expect), "{:?}", lab.events());
        let epoch = lab.epoch();
        assert_eq!(lab.epoch(), epoch);
    };
    check(None, &["10001 m1", "10002 m2", "10003 m3", "10004 generation_ended"]);
    check(Some(ENDED), &["1 m1", "2 m2", "3 generation_ended", "4 m3", "5 generation_ended"]);
}

#[test]
fn rebuild_that_gives_other_events_begins_an_epoch() {
    let check = |old: &str, new: &str| {
        let lab = Lab::new();
        lab.append(1, 1, &numbered(1..=4));
        let epoch = lab.epoch();
        let text = std::fs::read_to_string(lab.segment(1)).expect("it is there");
        assert!(text.contains(old) && old.len() == new.len());
        std::fs::write(lab.segment(1), text.replacen(old, new, 1)).expect("it can be written");
        std::fs::remove_file(lab.history()).expect("it is there");
        assert_ne!(lab.epoch(), epoch);
        let events = lab.events();
        assert!(events.iter().all(|event| event.starts_with("1000")) && events.len() >= 3, "{events:?}");
        lab.append(1, 1, &numbered(5..=5));
        assert_eq!(lab.epoch(), lab.epoch());
        assert_eq!(lab.page(Some(4), 9).gap_reason, Some(GapReason::NewEpoch));
    };
    // Fewer events, and an event at another position.
    check(r#"{"method":"m4","#, r#"{"xethod":"m4","#);
    check(r#"{"method":"m2","#, r#"{"xethod":"m2","#);
}

#[test]
fn rebuild_in_another_order_begins_an_epoch() {
    let lab = Lab::new();
    let now_us = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("a clock").as_micros() as u64;
    lab.append(1, 1, &[piece(now_us, "x")]);
    // This read closes the group at once; a rebuild closes it after the next event.
    lab.catch_up();
    lab.append(1, 1, &[told(now_us + 2, "m"), told(now_us + 200_000, "m3")]);
    let epoch = lab.epoch();
    assert_eq!(lab.events(), ["1 item/agentMessage/delta", "2 m", "3 m3"]);
    std::fs::remove_file(lab.history()).expect("it is there");
    assert_ne!(lab.epoch(), epoch);
    assert_eq!(lab.events(), ["10001 m", "10002 item/agentMessage/delta", "10003 m3"]);
}

#[test]
fn renamed_session_goes_on_with_its_numbers() {
    let lab = Lab::new();
    lab.append(1, 1, &numbered(1..=2));
    let epoch = lab.epoch();
    let settings = || IndexSettings { session_id: "t".to_owned(), ..lab.settings() };
    lab.append(1, 1, &numbered(3..=3));
    for _ in 0..2 {
        let (state, _) = Index::catch_up(settings(), None, lab.marks(), lab.notify());
        assert_eq!((state.fault, state.last_seq, state.epoch.as_ref()), (None, 3, Some(&epoch)));
    }
    assert_eq!(words(&lab.page(Some(0), 9)), ["1 m1", "2 m2", "3 m3"]);
}

#[test]
fn epoch_stays_without_a_place_for_the_witness() {
    let lab = Lab::new();
    std::fs::write(lab.home().join("marks"), "in the way").expect("write");
    lab.append(1, 1, &numbered(1..=2));
    let epoch = lab.epoch();
    lab.append(2, 1, &numbered(3..=3));
    assert_eq!(lab.epoch(), epoch);
    std::fs::remove_file(lab.home().join("marks")).expect("it is there");
    lab.append(2, 1, &numbered(4..=4));
    assert_eq!((lab.epoch(), lab.home().join("marks/s").exists()), (epoch, true));
    assert_eq!(lab.events(), ["1 m1", "2 m2", "3 m3", "4 m4"]);
}

#[test]
fn history_of_an_older_version_is_adopted() {
    let lab = Lab::new();
    lab.append(1, 1, &numbered(1..=3));
    lab.catch_up();
    std::fs::remove_dir_all(lab.home().join("marks")).expect("it is there");
    lab.forget_epoch();
    let older = rusqlite::Connection::open(lab.history()).expect("it is there");
    older.execute_batch("DROP TABLE codex_event_epochs; PRAGMA user_version = 1").expect("our own SQL");
    drop(older);
    lab.append(1, 1, &numbered(4..=4));
    let epoch = lab.epoch();
    assert_eq!(lab.events(), ["1 m1", "2 m2", "3 m3", "4 m4"]);
    assert_eq!((lab.epoch(), lab.page(Some(3), 9).gap_reason), (epoch, None));
}

#[test]
fn rows_that_the_journal_lacks_stay_in_a_new_epoch() {
    let lab = Lab::new();
    lab.append(1, 1, &numbered(1..=3));
    lab.append(2, 1, &numbered(4..=5));
    lab.catch_up();
    std::fs::remove_file(lab.segment(1)).expect("it is there");
    std::fs::remove_dir_all(lab.home().join("marks")).expect("it is there");
    lab.append(2, 1, &numbered(6..=6));
    lab.catch_up();
    let page = lab.page(Some(0), 9);
    let first = page.earliest_seq.expect("events");
    assert!(first > 20_000 && first % 10_000 == 1, "{first}");
    let expect: Vec<String> = (0..6).map(|number| format!("{} m{}", first + number, number + 1)).collect();
    assert_eq!((words(&page), page.gap_reason), (expect, Some(GapReason::NewEpoch)));
}

#[test]
fn witness_names_every_number_that_was_issued() {
    let lab = Lab::new();
    lab.append(1, 1, &numbered(1..=2));
    lab.catch_up();
    let older = std::fs::read(lab.history()).expect("it is there");
    lab.append(1, 1, &numbered(3..=3));
    lab.catch_up();
    // As after a crash between writing the witness and the commit: the next read indexes the third event with all later
    // ones.
    lab.restore(&older);
    lab.append(2, 1, &numbered(4..=6));
    let epoch = lab.epoch();
    assert_eq!(lab.events().len(), 6);
    // The history alone was restored.
    lab.restore(&older);
    std::fs::remove_file(lab.segment(2)).expect("it is there");
    lab.append(3, 1, &numbered(7..=9));
    assert_ne!(lab.epoch(), epoch);
    assert_eq!(lab.page(Some(6), 9).gap_reason, Some(GapReason::NewEpoch));
}

#[test]
fn lost_end_of_the_last_run_is_a_gap() {
    let lab = Lab::new();
    lab.append(1, 1, &numbered(1..=3));
    lab.append(2, 1, &numbered(4..=6));
    let epoch = lab.epoch();
    lab.cut(2, 1);
    std::fs::remove_file(lab.history()).expect("it is there");
    lab.append(3, 1, &numbered(7..=7));
    let after = lab.epoch();
    assert_ne!(after, epoch);
    let expect = ["10001 m1", "10002 m2", "10003 m3", "10004 m4", "10005 m5", "10006 event_gap", "10007 m7"];
    for _ in 0..2 {
        assert_eq!(lab.events(), expect);
        assert_eq!(lab.page(Some(0), 9).gap_reason, Some(GapReason::NewEpoch));
        assert_eq!(lab.page(Some(10_002), 9).gap_reason, Some(GapReason::JournalGap));
        assert_eq!(lab.page(Some(10_006), 9).gap_reason, None);
        // The next rebuild records the gap too.
        std::fs::remove_file(lab.history()).expect("it is there");
        assert_eq!(lab.epoch(), after);
    }
}

#[test]
fn lost_last_run_is_a_gap() {
    let lab = Lab::new();
    lab.append(1, 1, &numbered(1..=2));
    lab.append(2, 1, &numbered(3..=4));
    lab.catch_up();
    [lab.segment(2), lab.history()].iter().for_each(|path| std::fs::remove_file(path).expect("it is there"));
    lab.append(3, 1, &numbered(5..=5));
    lab.catch_up();
    assert_eq!(lab.events(), ["10001 m1", "10002 m2", "10003 event_gap", "10004 m5"]);
}

#[test]
fn without_evidence_only_the_epoch_tells() {
    let lab = Lab::new();
    lab.append(1, 1, &numbered(1..=4));
    let epoch = lab.epoch();
    lab.cut(1, 2);
    std::fs::remove_file(lab.history()).expect("it is there");
    std::fs::remove_dir_all(lab.home().join("marks")).expect("it is there");
    lab.forget_mark();
    lab.append(2, 1, &numbered(5..=5));
    assert_ne!(lab.epoch(), epoch);
    assert_eq!(lab.events(), ["1 m1", "2 m2", "3 m5"]);
    let told = |seq, epoch: Option<&str>| {
        let cursor = Cursor { seq, epoch: epoch.map(str::to_owned) };
        History::new(&lab.history()).events(Some(&cursor), 9, 0, false).expect("it can be asked").gap_reason
    };
    assert_eq!(told(2, Some(&epoch)), Some(GapReason::NewEpoch));
    assert_eq!(told(4, None), Some(GapReason::CursorAhead));
    assert_eq!((told(3, None), told(0, None)), (None, None));
}

#[test]
fn rebuild_of_rows_of_another_version_begins_an_epoch() {
    let started = |at: &String| at.replace("m1", "turn/started").replace(r#""threadId":"t""#, r#""turn":{"id":"u"}"#);
    for (records, is_new) in [(numbered(1..=1), false), (numbered(1..=1).iter().map(started).collect(), true)] {
        let lab = Lab::new();
        lab.append(1, 1, &records);
        let epoch = lab.epoch();
        let path = lab.home().join("marks/s");
        let text = std::fs::read_to_string(&path).expect("it is there");
        let form = format!("\"form\":{}", crate::history::Fold::FORM);
        assert!(text.contains(&form), "{text}");
        std::fs::write(&path, text.replace(&form, "\"form\":1")).expect("it can be written");
        // A history that goes on gives no number twice, but a later rebuild would.
        lab.append(1, 1, &numbered(2..=2));
        assert_eq!(lab.epoch(), epoch);
        std::fs::remove_file(lab.history()).expect("it is there");
        let rebuilt = lab.epoch();
        assert_eq!(rebuilt != epoch, is_new);
        std::fs::remove_file(lab.history()).expect("it is there");
        assert_eq!(lab.epoch(), rebuilt);
    }
}

#[test]
fn rows_have_the_epoch_of_the_events() {
    let turn = |number: u64| {
        let at = numbered(number..=number)[0].clone();
        let line = |method: &str| {
            let turn = format!(r#""turn":{{"id":"u{number}","status":"completed"}}"#);
            at.replace(&format!("m{number}"), method).replace(r#""threadId":"t""#, &format!(r#""threadId":"t",{turn}"#))
        };
        vec![line("turn/started"), line("turn/completed")]
    };
    let ids = |page: &RowPage| -> Vec<u64> { page.events.iter().filter_map(|row| row["id"].as_u64()).collect() };
    let lab = Lab::new();
    lab.append(1, 1, &turn(1));
    lab.append(2, 1, &turn(2));
    let epoch = lab.epoch();
    for _ in 0..2 {
        let page = lab.turns(0, None);
        assert_eq!((ids(&page), page.next_id, page.gap_reason), (vec![1, 2, 3, 4], 5, None));
        assert_eq!((page.epoch, page.earliest_id, page.latest_id), (Some(epoch.clone()), Some(1), Some(4)));
        assert_eq!(ids(&lab.turns(3, Some(&epoch))), [4]);
        let unindexed = lab.turns(5, None);
        assert_eq!((ids(&unindexed), unindexed.gap_reason), (vec![1, 2, 3, 4], Some(GapReason::CursorAhead)));
        // A whole journal yields the same numbers.
        std::fs::remove_file(lab.history()).expect("it is there");
        assert_eq!(lab.epoch(), epoch);
    }
    let check_new = |gap: Option<GapReason>| {
        let page = lab.turns(2, None);
        let first = page.earliest_id.expect("rows");
        assert!(first > 10_000, "{first}");
        assert_eq!((ids(&page), page.gap_reason), ((first..first + 4).collect(), gap));
        let other = lab.turns(first + 1, Some(&epoch));
        assert_eq!((other.events.len(), other.gap_reason), (4, Some(GapReason::NewEpoch)));
        assert_eq!(
            (ids(&lab.turns(first, None)), lab.turns(first, None).gap_reason),
            (vec![first + 1, first + 2, first + 3], None)
        );
    };
    // The database's rows continue in the new epoch.
    std::fs::remove_dir_all(lab.home().join("marks")).expect("it is there");
    assert_ne!(lab.epoch(), epoch);
    check_new(Some(GapReason::NewEpoch));
    // A rebuilt database's rows do too.
    std::fs::remove_file(lab.history()).expect("it is there");
    lab.catch_up();
    check_new(Some(GapReason::NewEpoch));
}
