//! Epochs: a number never stands for two events without the reader being told, whatever was restored, deleted or cut.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::eventually;
use crate::support::history::{Echo, Recorded, Stream, history_path, page, rows};
use crate::support::shim::Home;

fn lines(from: u64, count: u64) -> Vec<String> {
    (from..from + count).map(|number| format!(r#"{{"method":"m","params":{{"number":{number}}}}}"#)).collect()
}

/// A reader that knows nothing of epochs: it asks with the last number that it has, and goes on with `next_seq - 1`.
#[derive(Default)]
struct Reader {
    cursor: u64,
    epoch: String,
    seen: BTreeSet<String>,
    numbered: BTreeMap<u64, String>,
}

impl Reader {
    /// Reads to the end; gives the reason of the first gap.
    fn reads(&mut self, session: &Path) -> Value {
        let mut reason = Value::Null;
        loop {
            let page = page(session, &format!("since_seq={}&limit=100", self.cursor));
            assert_eq!(page["history_gap"], page["gap_reason"] != Value::Null, "{page}");
            if reason.is_null() {
                reason = page["gap_reason"].clone();
            }
            self.epoch = page["epoch"].as_str().expect("an epoch").to_owned();
            let events = page["events"].as_array().expect("an array");
            for event in events {
                let (seq, key) = (event["seq"].as_u64().expect("a number"), event["key"].as_str().expect("a key"));
                assert_eq!(event["epoch"], page["epoch"]);
                let before = self.numbered.insert(seq, key.to_owned());
                assert!(before.is_none_or(|before| before == key), "{seq} was issued twice");
                self.seen.insert(key.to_owned());
            }
            self.cursor = page["next_seq"].as_u64().expect("a number") - 1;
            if events.is_empty() {
                return reason;
            }
        }
    }

    /// Every event that the history has was read.
    fn misses_nothing(&self, session: &Path) {
        let keys = rows(session).expect("rows").into_iter().map(|row| crate::support::history::key_of(&row.place));
        let missed: Vec<String> = keys.filter(|key| !self.seen.contains(key)).collect();
        assert!(missed.is_empty(), "{} events were missed: {:?}", missed.len(), &missed[..3.min(missed.len())]);
    }
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").arg(from).arg(to).status().expect("cp runs").success());
}

/// A run that passes so many lines, and a reader that has read all of it.
fn run(home: Home, from: u64, count: u64, reader: &mut Reader) -> (Home, Value) {
    let mut echo = Echo::start(home);
    echo.pass(&lines(from, count));
    let last = format!("number\":{}", from + count - 1);
    let session = echo.session.clone();
    eventually("the last event", || page(&session, "limit=1")["events"].to_string().contains(&last).then_some(()));
    let told = reader.reads(&session);
    reader.misses_nothing(&session);
    let status = crate::support::both_ends::http(&session, "GET /sessions/self", b"").1;
    assert_eq!(status["index"]["epoch"], json!(reader.epoch));
    (echo.end(), told)
}

/// Three runs, with harm done between the second and the third. Returns the gap reason in the third run, and whether the epoch
/// changed.
fn told_after(harm: impl FnOnce(&Home, &Path)) -> (Value, bool) {
    let mut reader = Reader::default();
    let (home, told) = run(Home::new(), 0, 100, &mut reader);
    assert_eq!(told, Value::Null);
    copy(&home.path(), &home.beside().join("copy"));
    let (home, told) = run(home, 1_000, 200, &mut reader);
    assert_eq!(told, Value::Null);
    let epoch = reader.epoch.clone();
    harm(&home, &home.beside().join("copy"));
    let (home, told) = run(home, 2_000, 400, &mut reader);
    let changed = epoch != reader.epoch;
    // It stays so.
    let epoch = reader.epoch.clone();
    let (_, again) = run(home, 3_000, 10, &mut reader);
    assert_eq!((again, reader.epoch), (Value::Null, epoch));
    (told, changed)
}

fn session(home: &Path) -> PathBuf {
    home.join("sessions/s")
}

fn forget(session: &Path, databases: &[&str]) {
    for database in databases {
        for beside in ["", "-wal", "-shm"] {
            let _ = fs::remove_file(session.join(format!("{database}{beside}")));
        }
    }
}

/// The segments of the journal, oldest first.
fn segments(session: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        fs::read_dir(session.join("journal")).expect("a folder").map(|file| file.expect("a file").path()).collect();
    found.sort();
    found
}

fn cut_lines(segment: &Path, count: usize) {
    let text = fs::read_to_string(segment).expect("it is there");
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    fs::write(segment, lines[..lines.len() - count].concat()).expect("it can be cut");
}

const NEW: (&str, bool) = ("new_epoch", true);

fn check(harm: impl FnOnce(&Home, &Path), (reason, changed): (&str, bool)) {
    let (told, has_changed) = told_after(harm);
    assert_eq!((told.as_str().unwrap_or(""), has_changed), (reason, changed));
}

#[test]
fn restored_session_folder_begins_a_new_epoch() {
    check(
        |home, backup| {
            fs::remove_dir_all(session(&home.path())).expect("it goes");
            copy(&session(backup), &session(&home.path()));
        },
        NEW,
    );
}

#[test]
fn session_folder_restored_in_place_is_noticed() {
    check(
        |home, backup| {
            let kept = segments(&session(backup));
            let name = |path: &PathBuf| path.file_name().map(ToOwned::to_owned);
            for segment in segments(&session(&home.path())) {
                if !kept.iter().any(|kept| name(kept) == name(&segment)) {
                    fs::remove_file(segment).expect("it goes");
                }
            }
            copy(&session(backup).join("."), &session(&home.path()));
        },
        NEW,
    );
}

#[test]
fn restored_home_begins_a_new_epoch() {
    check(
        |home, backup| {
            fs::remove_dir_all(home.path()).expect("it goes");
            copy(backup, &home.path());
        },
        NEW,
    );
}

#[test]
fn home_restored_in_place_begins_a_new_epoch() {
    check(|home, backup| copy(&backup.join("."), &home.path()), NEW);
}

#[test]
fn deleted_session_folder_gives_no_number_twice() {
    check(|home, _| fs::remove_dir_all(session(&home.path())).expect("it goes"), NEW);
}

#[test]
fn deleted_witness_begins_a_new_epoch() {
    check(|home, _| fs::remove_dir_all(home.path().join("marks")).expect("it goes"), NEW);
}

#[test]
fn moved_home_keeps_its_epoch() {
    check(
        |home, _| {
            let away = home.beside().join("away");
            fs::rename(home.path(), &away).expect("it can be moved");
            fs::rename(&away, home.path()).expect("it can be moved");
        },
        ("", false),
    );
}

#[test]
fn databases_alone_are_rebuilt_under_their_epoch() {
    for databases in [&["history.db"][..], &["ledger.db"], &["history.db", "ledger.db"]] {
        check(|home, _| forget(&session(&home.path()), databases), ("", false));
        check(
            |home, backup| {
                forget(&session(&home.path()), databases);
                for database in databases {
                    for beside in ["", "-wal"] {
                        let file = session(backup).join(format!("{database}{beside}"));
                        if file.exists() {
                            copy(&file, &session(&home.path()));
                        }
                    }
                }
            },
            ("", false),
        );
    }
}

#[test]
fn lost_tail_and_history_begin_a_new_epoch() {
    let harm = |databases: &'static [&'static str]| {
        move |home: &Home, _: &Path| {
            let session = session(&home.path());
            forget(&session, databases);
            cut_lines(segments(&session).last().expect("a segment"), 30);
        }
    };
    check(harm(&["history.db"]), NEW);
    check(harm(&["history.db", "ledger.db"]), NEW);
    // The history has what the journal lacks, unless the run did not wait for it at its end.
    let mut is_whole = false;
    let (told, has_changed) = told_after(|home, copy| {
        let session = session(&home.path());
        is_whole = rows(&session).expect("rows").len() == Recorded::read(&session).whole.len();
        harm(&[])(home, copy);
    });
    let outcome = (told.as_str().unwrap_or(""), has_changed);
    assert!(outcome == ("", false) || !is_whole && outcome == NEW, "{outcome:?}, whole: {is_whole}");
}

#[test]
fn other_history_in_the_folder_begins_a_new_epoch() {
    check(
        |home, _| {
            let mut other = Reader::default();
            let (other_home, _) = run(Home::new(), 5_000, 50, &mut other);
            fs::remove_dir_all(session(&home.path())).expect("it goes");
            fs::rename(session(&other_home.path()), session(&home.path()))
                .or_else(|_| {
                    copy(&session(&other_home.path()), &session(&home.path()));
                    Ok::<(), std::io::Error>(())
                })
                .expect("it can be put there");
        },
        NEW,
    );
}

#[test]
fn restart_of_the_machine_after_a_clean_end_changes_nothing() {
    let restart = |home: &Home, _: &Path| {
        let path = home.path().join("marks/s");
        let mut witness: Value =
            serde_json::from_str(fs::read_to_string(&path).expect("it is there").lines().next().expect("a line"))
                .expect("JSON");
        if !witness["boot"].is_null() {
            witness["boot"] = json!("another");
        }
        fs::write(&path, format!("{witness}\n")).expect("it can be written");
    };
    check(restart, ("", false));
}

/// Three runs of which the history is lost, and what happened to the second one. Gives the pages' words.
fn rebuilt(harm: impl FnOnce(&[PathBuf])) -> (Value, Vec<String>) {
    let mut home = Home::new();
    for number in 0..3 {
        home = run(home, number * 100, 100, &mut Reader::default()).0;
    }
    let dir = session(&home.path());
    harm(&segments(&dir));
    forget(&dir, &["history.db"]);
    let echo = Echo::start(home);
    let (mut words, mut cursor, mut told) = (Vec::new(), 0, Value::Null);
    eventually("all of it", || (page(&dir, "limit=1")["gap_reason"] != "persistence_error").then_some(()));
    loop {
        let page = page(&dir, &format!("since_seq={cursor}&limit=500"));
        let events = page["events"].as_array().expect("an array");
        if events.is_empty() {
            break;
        }
        told = if told.is_null() { page["gap_reason"].clone() } else { told };
        words.extend(events.iter().map(|event| format!("{} {}", event["event_type"], event["payload_preview"])));
        cursor = page["next_seq"].as_u64().expect("a number") - 1;
    }
    echo.end();
    (told, words)
}

fn of_type<'a>(words: &'a [String], event_type: &str) -> Vec<&'a String> {
    words.iter().filter(|word| word.starts_with(&format!("\"{event_type}\""))).collect()
}

#[test]
fn deleted_run_is_a_gap_after_a_rebuild() {
    let (told, words) = rebuilt(|segments| fs::remove_file(&segments[1]).expect("it goes"));
    assert_eq!((told, of_type(&words, "m").len()), (json!("new_epoch"), 200));
    assert_eq!(of_type(&words, "event_gap").len(), 1, "{words:?}");
}

#[test]
fn run_cut_at_its_end_is_a_gap_after_a_rebuild() {
    let (told, words) = rebuilt(|segments| cut_lines(&segments[1], 30));
    assert_eq!(told, json!("new_epoch"));
    assert!(of_type(&words, "m").len() < 300);
    assert_eq!(of_type(&words, "event_gap").len(), 1, "{words:?}");
}

#[test]
fn whole_journal_is_rebuilt_without_a_gap() {
    let (told, words) = rebuilt(|_| {});
    assert_eq!((told, of_type(&words, "m").len()), (Value::Null, 300));
    assert!(of_type(&words, "event_gap").is_empty());
}

#[test]
fn journal_without_its_first_run_is_no_damage() {
    let (told, words) = rebuilt(|segments| fs::remove_file(&segments[0]).expect("it goes"));
    assert_eq!((told, of_type(&words, "m").len()), (json!("retention"), 200));
    assert!(of_type(&words, "event_gap").is_empty());
}

#[test]
fn redaction_and_unrecorded_runs_leave_the_chain_whole() {
    check(
        |home, _| {
            let status = home
                .shim(&["run", "--session", "s", "--", "true"])
                .env("CODEX_SHIM_RECORD", "false")
                .stdin(Stdio::null())
                .status()
                .expect("it runs");
            assert!(status.success());
            let redacted =
                home.shim(&["redact", "--session", "s", "--pattern", "number", "--json"]).output().expect("it runs");
            assert!(redacted.status.success(), "{redacted:?}");
            forget(&session(&home.path()), &["history.db"]);
        },
        ("", false),
    );
}

#[test]
fn journal_of_older_versions_has_no_chain() {
    check(
        |home, _| {
            for segment in segments(&session(&home.path())) {
                let text = fs::read_to_string(&segment).expect("it is there");
                let (header, rest) = text.split_once('\n').expect("a header");
                // Of equal length, so that each record stays at its place.
                let header = header.replace("\"previous\":", "\"unknown_\":");
                fs::write(&segment, format!("{header}\n{rest}")).expect("it can be written");
            }
            forget(&session(&home.path()), &["history.db", "ledger.db"]);
            fs::remove_dir_all(home.path().join("marks")).expect("it goes");
        },
        // The numbers are the same, but without evidence.
        ("", true),
    );
}

#[test]
fn stream_tells_a_reader_of_another_epoch() {
    let mut reader = Reader::default();
    let (home, _) = run(Home::new(), 0, 100, &mut reader);
    let old = (reader.cursor, reader.epoch.clone());
    fs::remove_dir_all(session(&home.path())).expect("it goes");
    let mut echo = Echo::start(home);
    echo.pass(&lines(1_000, 150));
    let dir = echo.session.clone();
    let first = eventually("events", || page(&dir, "since_seq=0")["events"][0]["seq"].as_u64());
    let epoch = page(&dir, "limit=1")["epoch"].clone();
    assert_ne!(epoch, json!(old.1));
    let check = |query: &str, last_id: Option<&str>, reason: &str| {
        let mut stream = Stream::open(&dir, query, last_id).begun();
        let gap = stream.next();
        assert_eq!(
            (gap.json()["event_type"].clone(), gap.id.clone()),
            (json!("event_gap"), None),
            "{query} {last_id:?}"
        );
        assert_eq!(gap.json()["payload_preview"]["reason"], reason, "{query} {last_id:?}");
        let event = stream.next();
        assert_eq!((event.seq(), event.id.clone()), (Some(first), Some(first.to_string())), "{query} {last_id:?}");
        assert_eq!(event.json()["epoch"], epoch);
    };
    check("", Some(&old.0.to_string()), "new_epoch");
    check("", Some(&format!("{}:{}", old.1, old.0)), "new_epoch");
    check("", Some(&format!("{}:{}", old.1, first + 20)), "new_epoch");
    check(&format!("since_seq={}&since_epoch={}", first + 20, old.1), None, "new_epoch");
    check(&format!("since_seq={}", first + 1_000_000), None, "cursor_ahead");
    check("", Some(&(first + 1_000_000).to_string()), "cursor_ahead");
    let query = format!("since_seq={}&since_epoch={}", first + 20, epoch.as_str().expect("an epoch"));
    assert_eq!(Stream::open(&dir, &query, None).begun().next().seq(), Some(first + 21));
    echo.end();
}

#[test]
fn tools_tell_a_reader_of_another_history() {
    let mut reader = Reader::default();
    let (home, _) = run(Home::new(), 0, 20, &mut reader);
    let events = |home: &Home, args: &[&str]| {
        let mut command = home.shim(&["events", "--session", "s"]);
        let output = command.args(args).stdin(Stdio::null()).output().expect("it runs");
        assert!(output.status.success(), "{output:?}");
        (String::from_utf8(output.stdout).expect("UTF-8"), String::from_utf8(output.stderr).expect("UTF-8"))
    };
    let (listed, said) = events(&home, &["--since", "999"]);
    assert!(said.contains("event 999 does not belong to this history"), "{said}");
    assert_eq!(listed, events(&home, &["--since", "0"]).0);
    let document: Value = serde_json::from_str(&events(&home, &["--since", "999", "--json"]).0).expect("JSON");
    assert_eq!((&document["gap_reason"], &document["epoch"]), (&json!("cursor_ahead"), &json!(reader.epoch)));
    let status = home.shim(&["status", "--session", "s", "--json"]).stdin(Stdio::null()).output().expect("it runs");
    let status: Value = serde_json::from_slice(&status.stdout).expect("JSON");
    assert_eq!(status["index"]["epoch"], json!(reader.epoch));
    forget(&session(&home.path()), &["history.db"]);
    cut_lines(segments(&session(&home.path())).last().expect("a segment"), 5);
    let (_, said) = events(&home, &["--since", &reader.cursor.to_string()]);
    assert!(said.contains("event numbers have restarted"), "{said}");
    assert!(history_path(&session(&home.path())).exists());
}

fn exchange(one: &Path, other: &Path) {
    let flags = rustix::fs::RenameFlags::EXCHANGE;
    rustix::fs::renameat_with(rustix::fs::CWD, one, rustix::fs::CWD, other, flags).expect("they can be exchanged");
}

/// A reader that holds a stream while its session is restored goes on with the next relay.
#[test]
fn follower_over_a_restore_misses_nothing() {
    let (home, _) = run(Home::new(), 0, 20, &mut Reader::default());
    let backup = home.beside().join("copy");
    copy(&session(&home.path()), &backup);
    let mut echo = Echo::start(home);
    echo.pass(&lines(100, 30));
    let mut follower = echo
        .home
        .shim(&["events", "--session", "s", "-f", "--json", "--since", "0"])
        .stdin(Stdio::null())
        .spawn()
        .expect("it runs");
    let told = std::io::BufReader::new(follower.stdout.take().expect("it is piped"));
    let (sender, taken) = std::sync::mpsc::sync_channel(10_000);
    std::thread::spawn(move || {
        for line in std::io::BufRead::lines(told).map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    let mut seen = String::new();
    let mut until = |what: &str| {
        eventually(what, || {
            seen.extend(taken.try_iter());
            seen.contains(what).then_some(())
        });
        seen.clone()
    };
    until("\"number\":129");
    let home = echo.end();
    // The follower looks at the folder all the time: it is never gone.
    exchange(&backup, &session(&home.path()));
    let mut echo = Echo::start(home);
    echo.pass(&lines(200, 60));
    let seen = until("\"number\":259");
    assert!(seen.contains("\"reason\":\"new_epoch\""), "{seen}");
    for number in 200..260 {
        assert!(seen.contains(&format!("\"number\":{number}}}")), "{number}");
    }
    follower.kill().expect("it runs");
    follower.wait().expect("it ends");
    echo.end();
}
