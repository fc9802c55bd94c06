//! Damage to the history's file: the client notices nothing, cursors stay correct, and events arrive live without a
//! number and later again with their number.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::support::eventually;
use crate::support::history::{Collected, Echo, Load, Row, Stream, all_indexed_once, history_path, open, page};
use crate::support::shim::Home;

/// A relay under load, and a reader of its history.
struct Watched {
    session: PathBuf,
    load: Load,
    stream: Collected,
}

fn is_behind(session: &Path) -> bool {
    let page = page(session, "since_seq=0&limit=1");
    assert_eq!(page["history_gap"], page["gap_reason"] != Value::Null, "{page}");
    page["gap_reason"] == "persistence_error"
}

impl Watched {
    fn start(echo: Echo) -> Watched {
        let session = echo.session.clone();
        let stream = Stream::open(&session, "since_seq=0", None).begun().collected();
        let load = Load::start(echo);
        load.more(50);
        Watched { session, load, stream }
    }

    /// Checks that everything works.
    fn is_well(&self) {
        eventually("an index that is up", || (!is_behind(&self.session)).then_some(()));
    }

    fn index(&self) -> Value {
        let (_, document) = crate::support::both_ends::http(&self.session, "GET /sessions/self", b"");
        document["index"].clone()
    }

    /// Waits until live events have no number, and checks the other reports about that.
    fn is_told_live(&mut self) {
        let before = self.stream.seen().len();
        eventually("an event without a number", || {
            let live = |event: &Value| event["persisted"] == false && event["event_type"] != "event_gap";
            let found = self.stream.seen()[before..].iter().map(crate::support::history::Sent::json).find(live)?;
            assert!(found["seq"].is_null() && found["key"].is_string(), "{found}");
            Some(())
        });
        self.load.more(100);
        assert!(is_behind(&self.session));
        let index = self.index();
        assert!(index["persisted"] == false && index["lag_lines"].as_u64() > Some(0), "{index}");
    }

    /// Waits until everything is indexed again, which has its own event.
    fn recovers(&self) {
        eventually("the recovery", || {
            let count = "SELECT COUNT(*) FROM codex_events WHERE event_type = 'event_persist_recovered'";
            let found: i64 = Connection::open(history_path(&self.session))
                .and_then(|database| database.query_row(count, [], |row| row.get(0)))
                .unwrap_or_default();
            (found > 0).then_some(())
        });
        self.load.more(50);
        self.is_well();
        assert_eq!(self.index()["persisted"], true);
    }

    /// Ends the load, and checks that each event arrived once with its number, and without one only before that.
    fn ends(mut self) -> (Echo, Vec<Row>) {
        let echo = self.load.end();
        let rows = all_indexed_once(&self.session);
        let last = rows.len() as u64;
        let stream = &mut self.stream;
        eventually("the last event", || {
            stream.seen().last().is_some_and(|sent| sent.seq() == Some(last)).then_some(())
        });
        let mut numbered: BTreeMap<String, u64> = BTreeMap::new();
        let mut expect = 1;
        for sent in stream.seen() {
            let event = sent.json();
            if event["event_type"] == "event_gap" && event.get("key").is_none() {
                continue;
            }
            let key = event["key"].as_str().unwrap_or_else(|| panic!("no key: {event}")).to_owned();
            match event["seq"].as_u64() {
                Some(seq) => {
                    assert_eq!((seq, &event["persisted"]), (expect, &json!(true)), "{event}");
                    numbered.insert(key, seq);
                    expect += 1;
                }
                None => {
                    assert_eq!((&event["persisted"], &sent.id), (&json!(false), &None), "{event}");
                    assert_eq!(numbered.get(&key), None, "it had a number already: {event}");
                }
            }
        }
        for sent in stream.seen() {
            let event = sent.json();
            let key = event["key"].as_str().unwrap_or_default();
            assert!(event.get("key").is_none() || numbered.contains_key(key), "it never got a number: {event}");
        }
        (echo, rows)
    }
}

fn recovered(rows: &[Row]) -> usize {
    rows.iter().filter(|row| row.event_type == "event_persist_recovered").count()
}

#[test]
fn a_history_that_another_process_locks() {
    let mut watched = Watched::start(Echo::start(Home::new()));
    watched.is_well();
    let locker = open(&watched.session);
    locker.execute_batch("BEGIN IMMEDIATE").expect("a lock");
    watched.is_told_live();
    // As long as it takes.
    watched.load.more(500);
    locker.execute_batch("ROLLBACK").expect("it is let go");
    watched.recovers();
    let (echo, rows) = watched.ends();
    assert_eq!(recovered(&rows), 1);
    echo.end();
}

#[test]
fn a_history_that_another_process_has_for_itself_from_before_the_start() {
    let echo = Echo::start(Home::new());
    let session = echo.session.clone();
    all_indexed_once(&session);
    let home = echo.end();
    let locker = open(&session);
    locker.execute_batch("PRAGMA locking_mode=EXCLUSIVE; BEGIN IMMEDIATE; COMMIT; BEGIN EXCLUSIVE").expect("a lock");
    let mut watched = Watched::start(Echo::start(home));
    watched.is_told_live();
    drop(locker);
    watched.recovers();
    let (echo, rows) = watched.ends();
    assert_eq!(recovered(&rows), 1);
    echo.end();
}

/// Mounts a file system; prints that the test is skipped if mounting is not permitted.
fn mount(args: &[&str], at: &Path) -> Option<Mounted> {
    let mounted = Command::new("mount").args(args).arg(at).output();
    if mounted.is_ok_and(|output| output.status.success()) {
        return Some(Mounted(at.to_owned()));
    }
    let _ = writeln!(std::io::stderr(), "SKIPPED: a test of the history's disk: mounting is not allowed here");
    None
}

struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_history_that_cannot_be_written_to() {
    let echo = Echo::start(Home::new());
    let session = echo.session.clone();
    all_indexed_once(&session);
    let home = echo.end();
    let path = history_path(&session);
    let Some(mounted) = mount(&["--bind", path.to_str().expect("UTF-8")], &path) else { return };
    let read_only = Command::new("mount").args(["-o", "remount,ro,bind"]).arg(&path).status().expect("it runs");
    assert!(read_only.success());
    let mut watched = Watched::start(Echo::start(home));
    watched.is_told_live();
    drop(mounted);
    watched.recovers();
    let (echo, _) = watched.ends();
    echo.end();
}

#[test]
fn a_history_whose_disk_is_full() {
    let home = Home::new();
    // The session is on a small disk, and its journal on another one.
    let (disk, journal) = (home.path().join("sessions/s"), home.beside().join("journal"));
    fs::create_dir_all(&disk).expect("a folder");
    fs::create_dir(&journal).expect("a folder");
    let Some(_mounted) = mount(&["-t", "tmpfs", "-o", "size=16m,mode=700", "none"], &disk) else { return };
    fs::create_dir(disk.join("journal")).expect("a folder");
    let journal = journal.to_str().expect("UTF-8");
    let Some(_journal) = mount(&["--bind", journal], &disk.join("journal")) else { return };
    let mut watched = Watched::start(Echo::start(home));
    watched.is_well();
    let filler = disk.join("filler");
    let _ = fs::write(&filler, vec![0; 32 << 20]);
    watched.is_told_live();
    fs::remove_file(&filler).expect("it can go");
    watched.recovers();
    let (echo, _) = watched.ends();
    echo.end();
}

/// Checkpoints a database into its file, so that damage to the file matters.
fn written_back(session: &Path) -> u64 {
    eventually("the database in its file", || {
        let busy: i64 = open(session)
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))
            .expect("it can be asked for");
        (busy == 0).then_some(())
    });
    fs::metadata(history_path(session)).expect("it is there").len()
}

/// Damages the file of a relay under load, and checks that it is rebuilt.
fn check_built_again(harm: impl FnOnce(&Path)) {
    let watched = Watched::start(Echo::start(Home::new()));
    watched.load.more(600);
    watched.is_well();
    written_back(&watched.session);
    let before = fs::read_dir(&watched.session).expect("a folder").count();
    harm(&history_path(&watched.session));
    let session = watched.session.clone();
    eventually("another database", || {
        let count = fs::read_dir(&session).expect("a folder").count();
        (count > before && history_path(&session).exists()).then_some(())
    });
    watched.load.more(50);
    watched.is_well();
    let (echo, _) = watched.ends();
    // The old file is preserved.
    let kept = fs::read_dir(&session).expect("a folder").filter_map(|file| file.ok()?.file_name().into_string().ok());
    assert!(kept.into_iter().any(|name| name.starts_with("history.db.corrupt-")));
    echo.end();
}

fn overwrite(path: &Path, from: u64) {
    let file = OpenOptions::new().write(true).open(path).expect("it is there");
    let bytes = file.metadata().expect("it is there").len();
    let noise: Vec<u8> = (from..bytes).map(|at| crate::kills::spread(at) as u8).collect();
    file.write_all_at(&noise, from).expect("it can be written over");
}

#[test]
fn a_history_that_is_cut_short() {
    check_built_again(|path| {
        OpenOptions::new().write(true).open(path).expect("it is there").set_len(5_000).expect("it can be cut");
    });
}

#[test]
fn a_history_that_begins_with_noise() {
    check_built_again(|path| overwrite(path, 0));
}

#[test]
fn a_history_with_noise_in_its_middle() {
    check_built_again(|path| overwrite(path, 4_096));
}

#[test]
fn a_history_that_was_noise_in_its_middle_before_the_start() {
    let mut echo = Echo::start(Home::new());
    echo.pass(&(0..500).map(crate::support::history::line).collect::<Vec<_>>());
    let session = echo.session.clone();
    all_indexed_once(&session);
    let home = echo.end();
    written_back(&session);
    overwrite(&history_path(&session), 4_096);
    let echo = Echo::start(home);
    eventually("an index that is up", || (!is_behind(&session)).then_some(()));
    all_indexed_once(&session);
    echo.end();
}

#[test]
fn a_history_that_is_deleted() {
    let watched = Watched::start(Echo::start(Home::new()));
    watched.load.more(300);
    watched.is_well();
    // The old file's shared memory is not used for the new one.
    let shared = watched.session.join("history.db-shm");
    let before = fs::metadata(&shared).expect("it is there").ino();
    fs::remove_file(history_path(&watched.session)).expect("it is there");
    eventually("another database", || history_path(&watched.session).exists().then_some(()));
    watched.load.more(50);
    watched.is_well();
    assert_ne!(fs::metadata(&shared).expect("it is there").ino(), before);
    watched.ends().0.end();
}

#[test]
fn a_history_in_whose_place_one_of_a_newer_version_is_put() {
    let mut watched = Watched::start(Echo::start(Home::new()));
    watched.is_well();
    let newer = watched.session.join("newer.db");
    Connection::open(&newer)
        .expect("a file")
        .execute_batch("CREATE TABLE x (y); PRAGMA user_version=99")
        .expect("a form");
    fs::rename(&newer, history_path(&watched.session)).expect("it can be put there");
    watched.is_told_live();
    let version = |path: &Path| -> i64 {
        let database = Connection::open(path).expect("it can be opened");
        database.pragma_query_value(None, "user_version", |row| row.get(0)).expect("a number")
    };
    assert_eq!(version(&history_path(&watched.session)), 99, "it was written over");
    fs::remove_file(history_path(&watched.session)).expect("it is there");
    watched.recovers();
    watched.ends().0.end();
}
