//! `backup` copies a home while relays and a hub run, and is killed in the middle; `restore` puts the sessions into another home, where
//! every tool works on them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use rusqlite::Connection;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::faults::SmallDisk;
use crate::kills::spread;
use crate::old_home::old_home;
use crate::support::both_ends::{Live, told};
use crate::support::eventually;
use crate::support::hub::{Hub, asked, resume};
use crate::support::requests::{answer, command_asked, decision, turn_started};
use crate::support::shim::{Home, out_of_reach};

/// Kills of a backup in the middle; `make many-cases` sets more.
#[expect(clippy::disallowed_methods, reason = "a test is told their number by its environment")]
fn kills() -> u64 {
    std::env::var("BACKUP_KILLS").map_or(40, |kills| kills.parse().expect("a number"))
}

fn tool(home: &Home, args: &[&str]) -> Output {
    home.shim(args).current_dir(home.beside()).stdin(Stdio::null()).output().expect("the tool runs")
}

fn copy_of(home: &Home) -> PathBuf {
    home.beside().join("copy")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// A run of `backup`; returns its document.
fn back_up(home: &Home, more: &[&str]) -> Value {
    let copy = copy_of(home);
    told(&tool(home, &[&["backup", text(&copy), "--json"], more].concat()))
}

/// Restores into another home; returns the document.
fn restore(copy: &Path, to: &Home, more: &[&str]) -> Value {
    told(&tool(to, &[&["restore", text(copy), "--json"], more].concat()))
}

/// A failure that says all these words in one run.
fn refused(output: &Output, code: i32, words: &[&str]) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    for word in words {
        assert!(stderr.contains(word), "{word} is not in: {stderr}");
    }
}

/// All files below a folder with their bytes; links are not followed.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut found, mut dirs) = (BTreeMap::new(), vec![dir.to_owned()]);
    while let Some(next) = dirs.pop() {
        for entry in fs::read_dir(next).expect("a folder") {
            let (path, kind) = entry.map(|entry| (entry.path(), entry.file_type().expect("a kind"))).expect("an entry");
            if kind.is_dir() {
                dirs.push(path);
            } else if kind.is_file() {
                found.insert(path.strip_prefix(dir).expect("it is below").to_owned(), fs::read(&path).expect("a file"));
            }
        }
    }
    found
}

/// The segments of a session in order, with their bytes.
fn journal(home: &Path, session: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    files(&home.join("sessions").join(session).join("journal"))
}

/// The rows of a table as text.
fn rows(session: &Path, sql: &str) -> Vec<String> {
    let ledger = Connection::open(session.join("ledger.db")).expect("it opens");
    let mut statement = ledger.prepare(sql).expect("its columns");
    let columns = statement.column_count();
    let row = |row: &rusqlite::Row<'_>| {
        let cells: Vec<_> =
            (0..columns).map(|at| row.get::<_, rusqlite::types::Value>(at)).collect::<Result<_, _>>()?;
        Ok(format!("{cells:?}"))
    };
    statement.query_map([], row).expect("it reads").collect::<Result<_, _>>().expect("rows")
}

/// A relay in front of `cat`, with a writer of as many lines as a test wants, and a reader that compares every byte that comes back.
struct Busy {
    relay: Child,
    writer: Option<std::thread::JoinHandle<std::process::ChildStdin>>,
    reader: Option<std::thread::JoinHandle<u64>>,
    is_over: Arc<AtomicBool>,
    wanted: Arc<AtomicU64>,
    lines: Arc<AtomicU64>,
}

fn busy_line(number: u64) -> String {
    let fill = "x".repeat(spread(number) as usize % 4_000);
    format!("{{\"method\":\"m\",\"params\":{{\"number\":{number},\"fill\":\"{fill}\"}}}}\n")
}

impl Busy {
    fn start(mut command: Command) -> Busy {
        let mut relay = command.stderr(Stdio::null()).spawn().expect("the shim starts");
        let mut stdin = relay.stdin.take().expect("stdin is piped");
        let mut stdout = BufReader::new(relay.stdout.take().expect("stdout is piped"));
        let busy = Busy {
            relay,
            writer: None,
            reader: None,
            is_over: Arc::default(),
            wanted: Arc::default(),
            lines: Arc::default(),
        };
        let (over, wanted, seen) = (Arc::clone(&busy.is_over), Arc::clone(&busy.wanted), Arc::clone(&busy.lines));
        let writer = std::thread::spawn(move || {
            for number in 0.. {
                while number >= wanted.load(SeqCst) {
                    if over.load(SeqCst) {
                        return stdin;
                    }
                    std::thread::park_timeout(Duration::from_millis(1));
                }
                stdin.write_all(busy_line(number).as_bytes()).expect("the relay reads");
            }
            unreachable!("BUG: numbers do not end")
        });
        let reader = std::thread::spawn(move || {
            let mut line = String::new();
            for number in 0.. {
                line.clear();
                if stdout.read_line(&mut line).expect("it can be read") == 0 {
                    return number;
                }
                assert_eq!(line, busy_line(number), "line {number} is altered");
                seen.store(number + 1, SeqCst);
            }
            unreachable!("BUG: a relay ends")
        });
        Busy { writer: Some(writer), reader: Some(reader), ..busy }
    }

    /// Has more lines written from now on.
    fn goes_on(&self, lines: u64) {
        self.wanted.fetch_add(lines, SeqCst);
    }

    /// Waits until all lines that it was to write have come back.
    fn settles(&self) {
        eventually("all lines", || (self.lines.load(SeqCst) == self.wanted.load(SeqCst)).then_some(()));
    }

    /// Ends it; returns how many lines have come back.
    fn end(mut self) -> u64 {
        self.is_over.store(true, SeqCst);
        drop(self.writer.take().expect("it runs").join().expect("it wrote"));
        let seen = self.reader.take().expect("it runs").join().expect("it read");
        assert!(self.relay.wait().expect("it ends").success());
        seen
    }
}

/// A session `s` with a request that was answered and one that waits, in a relay that runs.
fn with_requests() -> Live {
    let mut live = Live::start().in_turn();
    live.say_plainly(&command_asked("7", "t"));
    live.send(&answer("7", &decision("accept")));
    live.say_plainly(&command_asked("8", "t"));
    live
}

fn end(mut live: Live) -> Home {
    drop((live.stdin.take(), live.down.take()));
    live.relay.wait().expect("it ends");
    live.home
}

#[test]
fn copy_of_a_busy_relay_and_a_hub_is_whole() {
    let hub = Hub::new();
    let mut server = hub.server();
    let mut client = hub.client("ide");
    resume(&mut client);
    server.ask("t", "item/commandExecution/requestApproval", asked());
    hub.row("pending");
    let busy = Busy::start(hub.home.shim(&["run", "--session", "busy", "--", "cat"]));
    busy.goes_on(100);
    busy.settles();
    let mut complete_to = String::new();
    for run in 1..=5 {
        busy.goes_on(400);
        let document = back_up(&hub.home, &[]);
        let (number, none) = (json!(run), json!([]));
        assert_eq!([&document["run"], &document["faults"], &document["lacking"]], [&number, &none, &none]);
        let now = document["complete_to"].as_str().expect("a time").to_owned();
        assert!(complete_to < now, "{complete_to} {now}");
        complete_to = now;
        let to = Home::new();
        let restored = restore(&copy_of(&hub.home), &to, &[]);
        let names: Vec<&Value> =
            restored["sessions"].as_array().expect("a list").iter().map(|one| &one["session_id"]).collect();
        assert_eq!(names, ["busy", "h"]);
        let copied = journal(&to.path(), "busy");
        let source = journal(&hub.home.path(), "busy");
        for (name, bytes) in &copied {
            assert!(source[name].starts_with(bytes) && bytes.ends_with(b"\n"), "{}", name.display());
        }
        let requests = told(&tool(&to, &["requests", "--session", "h", "--all", "--json"]));
        assert_eq!(requests["requests"][0]["status"], "orphaned", "{requests}");
        let status = told(&tool(&to, &["status", "--session", "busy", "--json"]));
        assert_eq!((&status["state"], &status["index"]["persisted"]), (&json!("stopped"), &json!(true)));
    }
    assert_eq!(busy.end(), 2_100);
    // Everything is there, except the state of processes.
    back_up(&hub.home, &[]);
    let to = Home::new();
    restore(&copy_of(&hub.home), &to, &[]);
    assert_eq!(journal(&to.path(), "busy"), journal(&hub.home.path(), "busy"));
    assert!(!to.path().join("sessions/h/server.json").exists());
    assert_eq!(hub.row("pending")["late"], false);
}

/// A backup that is stopped at any instant holds nothing that a relay waits for: lines pass, and requests and answers are committed in time.
#[test]
fn relay_never_waits_for_a_backup() {
    let mut live = with_requests();
    // Large enough for its copy to be met in the middle.
    let ledger = Connection::open(live.session.join("ledger.db")).expect("it opens");
    ledger.busy_timeout(Duration::from_secs(10)).expect("a limit");
    ledger.execute_batch("CREATE TABLE filler (bytes BLOB) STRICT").expect("a table");
    for _ in 0..40 {
        ledger.execute("INSERT INTO filler VALUES (randomblob(1000000))", []).expect("a row");
    }
    drop(ledger);
    let (mut met, mut number) = (0, 100);
    for run in 1..200 {
        let copy = copy_of(&live.home);
        let mut command = live.home.shim(&["backup", text(&copy)]);
        let mut backup = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        let pid = Pid::from_raw(i32::try_from(backup.id()).expect("a pid")).expect("a pid");
        // Its copy of the ledger has begun, or it has ended.
        let began = copy.join(format!("sessions/s/ledger.db.{run}"));
        eventually("a copy of the ledger", || {
            (began.exists() || backup.try_wait().expect("it is ours").is_some()).then_some(())
        });
        let _ = kill_process(pid, Signal::STOP);
        let copied = began.metadata().map_or(0, |file| file.len());
        met += u64::from(copied > 0 && copied < 40 << 20);
        number += 1;
        let id = number.to_string();
        live.say_plainly(&command_asked(&id, "t"));
        live.send(&answer(&id, &decision("decline")));
        let request = live.row(&format!("{}-{id}", live.generation()));
        assert_eq!((&request["late"], &request["resolution_source"]), (&json!(false), &json!("client")), "{request}");
        let _ = kill_process(pid, Signal::CONT);
        assert!(backup.wait().expect("it ends").success());
        if met >= 3 {
            break;
        }
    }
    assert!(met >= 3, "the copy of a ledger was met {met} times");
    let faults = live.get("/sessions/self")["faults"].take();
    assert_eq!(faults, json!([]));
    end(live);
}

#[test]
fn later_runs_copy_what_was_added() {
    let mut live = with_requests();
    let bytes = |document: &Value| document["copied"]["bytes"].as_u64().expect("a number");
    let copied = |home: &Home| fs::read(journal_copy(home)).expect("it is there").len();
    let first = back_up(&live.home, &[]);
    let before = copied(&live.home);
    assert!(bytes(&first) > before as u64, "{first}");
    live.say_plainly(
        r#"{"method":"m","params":{"filler":"yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy"}}"#,
    );
    let inode = |home: &Home| {
        use std::os::unix::fs::MetadataExt as _;
        journal_copy(home).metadata().expect("it is there").ino()
    };
    let own = inode(&live.home);
    back_up(&live.home, &[]);
    let after = copied(&live.home);
    assert!(after > before && own == inode(&live.home));
    let home = end(live);
    // A stopped session that does not change costs nothing, once its times of change are a little old.
    eventually("nothing to copy", || (bytes(&back_up(&home, &[])) == 0).then_some(()));
    let document = back_up(&home, &["--session", "s"]);
    assert_eq!((bytes(&document), &document["faults"]), (0, &json!([])));
    let modes = files(&copy_of(&home)).into_keys().map(|path| copy_of(&home).join(path));
    for path in modes {
        assert_eq!(path.metadata().expect("it is there").permissions().mode() & 0o777, 0o600, "{}", path.display());
    }
    for folder in ["", "sessions", "sessions/s", "sessions/s/journal"] {
        let mode = copy_of(&home).join(folder).metadata().expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{folder}");
    }
}

/// How many states of the first session a backup has.
fn points(document: &Value) -> usize {
    document["sessions"][0]["points"].as_array().expect("a list").len()
}

/// The copy of the only segment of session `s`.
fn journal_copy(home: &Home) -> PathBuf {
    let folder = copy_of(home).join("sessions/s/journal");
    let mut segments = fs::read_dir(folder).expect("a folder");
    let segment = segments.next().expect("a segment").expect("an entry").path();
    assert!(segments.next().is_none());
    segment
}

/// `kill -9` at any instant: the copy opens, is intact, and never says that it is complete up to less than before.
#[test]
fn killed_backup_leaves_the_former_copy() {
    let home = Home::new();
    let busy = Busy::start(home.shell("cat"));
    busy.goes_on(100);
    busy.settles();
    let copy = copy_of(&home);
    let mut complete_to = back_up(&home, &[])["complete_to"].as_str().expect("a time").to_owned();
    let (kills, mut met) = (kills(), 0);
    for number in 0..kills {
        busy.goes_on(50);
        let mut command = home.shim(&["backup", text(&copy)]);
        let mut backup = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        // At another instant each time: a run takes some milliseconds, more on a busy machine.
        let looks = spread(number) % 60;
        let has_ended = (0..looks).any(|_| {
            std::thread::park_timeout(Duration::from_millis(1));
            backup.try_wait().expect("it is ours").is_some()
        });
        met += u64::from(!has_ended);
        let _ = backup.kill();
        backup.wait().expect("it is ours");
        let checked = told(&tool(
            &home,
            &["restore", text(&copy), "--to", text(&home.beside().join("x")), "--dry-run", "--json"],
        ));
        assert_eq!((&checked["damaged"], &checked["faults"]), (&json!([]), &json!([])), "kill {number}");
        let now = checked["sessions"][0]["restored_to"].as_str().expect("a time").to_owned();
        assert!(now >= complete_to, "kill {number}: {now} is before {complete_to}");
        complete_to = now;
        if number % 10 == 0 {
            let to = Home::new();
            restore(&copy, &to, &[]);
            let source = journal(&home.path(), "s");
            for (name, bytes) in journal(&to.path(), "s") {
                assert!(source[&name].starts_with(&bytes) && bytes.ends_with(b"\n"), "kill {number}");
            }
            let events = told(&tool(&to, &["events", "--session", "s", "--json"]));
            assert!(events["latest_seq"].as_u64() > Some(0), "{events}");
        }
    }
    assert!(met >= kills / 4, "only {met} of {kills} were killed in the middle");
    busy.end();
    // The next run that is left alone has everything, and nothing else stays in the folder.
    back_up(&home, &[]);
    let to = Home::new();
    restore(&copy, &to, &[]);
    assert_eq!(journal(&to.path(), "s"), journal(&home.path(), "s"));
    let manifest: Value =
        serde_json::from_slice(&fs::read(copy.join("backup.json")).expect("it is there")).expect("JSON");
    let session = &manifest["backup"]["sessions"]["s"];
    let mut named = vec!["backup.json".to_owned(), "backup.lock".to_owned()];
    let file = |one: &Value| one["file"].as_str().map(str::to_owned);
    named.extend(session["journal"].as_array().expect("a list").iter().filter_map(file));
    named.extend(session["points"].as_array().expect("a list").iter().filter_map(|point| file(&point["ledger"])));
    named.extend(file(&session["history"]));
    named.sort();
    named.dedup();
    let there: Vec<String> = files(&copy).into_keys().map(|path| text(&path).to_owned()).collect();
    assert_eq!(there, named);
}

/// The events of a session without their numbers, and the epoch.
fn events(home: &Home, session: &str) -> (Vec<Value>, Value) {
    let page = told(&tool(home, &["events", "--session", session, "--since", "0", "--json"]));
    let content = |event: &Value| {
        let mut event = event.clone();
        ["seq", "epoch", "session_id"]
            .iter()
            .for_each(|member| drop(event.as_object_mut().expect("members").remove(*member)));
        event
    };
    (page["events"].as_array().expect("a list").iter().map(content).collect(), page["epoch"].clone())
}

/// A restore on another machine: another home, another user, other paths. Every tool works on it, and a relay goes on.
#[test]
fn every_tool_works_on_a_restored_home() {
    let source = old_home();
    let copy = copy_of(&source);
    let sessions = ["01a204f3-f59f-767e-8696-f692b2c31af9", "context", "killed", "main"];
    // As it was left, before any tool has looked at it.
    back_up(&source, &[]);
    let to = Home::new();
    let restored = restore(&copy, &to, &[]);
    assert_eq!(restored["sessions"].as_array().map(Vec::len), Some(4), "{restored}");
    // Nobody gets settings unasked.
    assert_eq!((&restored["settings_restored"], to.path().join("config.toml").exists()), (&json!(false), false));
    let other = |args: &[&str]| {
        let mut command = to.shim(args);
        command.env("HOME", to.beside().join("nobody")).env("USER", "nobody").env_remove("XDG_STATE_HOME");
        command.current_dir(to.beside()).stdin(Stdio::null()).output().expect("it runs")
    };
    for session in sessions {
        let dir = |home: &Home| home.path().join("sessions").join(session);
        let requests = told(&other(&["requests", "--session", session, "--all", "--json"]));
        assert!(
            requests["requests"].as_array().expect("a list").iter().all(|row| row["status"] != "pending"),
            "{requests}"
        );
        let (mine, epoch) = events(&to, session);
        let (theirs, their_epoch) = events(&source, session);
        assert_eq!(mine, theirs, "{session}");
        assert_ne!(epoch, their_epoch, "{session}");
        for table in
            ["codex_pending_requests WHERE status = 'resolved'", "codex_request_answers", "codex_context_commands"]
        {
            let sql = format!("SELECT * FROM {table} ORDER BY rowid");
            assert_eq!(rows(&dir(&to), &sql), rows(&dir(&source), &sql), "{session}: {table}");
        }
        assert_eq!(journal(&to.path(), session), journal(&source.path(), session));
        for args in [
            &["status", "--session", session, "--json"][..],
            &["tail", "--session", session, "--json"],
            &["usage", "--session", session, "--json"],
            &["context", "show", "--session", session, "--json"],
            &["fragments", "--session", session, "--json"],
            &["tape", "show", session],
            &["children", "--session", session, "--json"],
        ] {
            let output = other(args);
            assert!(output.status.success(), "{args:?}: {output:?}");
        }
    }
    let audit = to.beside().join("audit.jsonl");
    for args in [
        &["sessions", "--json"][..],
        &["search", "touch", "--json"],
        &["transcript", "latest", "--session", "context", "--json"],
        &["audit", "export", "-o", text(&audit)],
        &["audit", "verify", text(&audit)],
        &["prune", "--dry-run", "--json"],
        &["redact", "--all", "--dry-run", "--json"],
        &["rules"],
        &["config", "--json"],
    ] {
        let output = other(args);
        assert!(output.status.success(), "{args:?}: {output:?}");
    }
    let checks = other(&["doctor", "--json"]);
    let checks = String::from_utf8(checks.stdout).expect("UTF-8");
    assert!(!checks.contains("corrupt") && !checks.contains("not used"), "{checks}");
    relay_goes_on(&to);
}

/// A relay starts on restored session `main`: its events follow, each with a new number.
fn relay_goes_on(home: &Home) {
    let page = || told(&tool(home, &["events", "--session", "main", "--since", "0", "--json"]));
    let before = page();
    let mut command = home.shim(&["run", "--session", "main", "--", "cat"]);
    let mut relay = command.stderr(Stdio::null()).spawn().expect("it starts");
    let mut stdin = relay.stdin.take().expect("stdin is piped");
    stdin.write_all(b"{\"method\":\"goes/on\",\"params\":{}}\n").expect("the relay reads");
    let mut back = [0; 32];
    relay.stdout.as_mut().expect("it is piped").read_exact(&mut back).expect("it comes back");
    drop(stdin);
    assert!(relay.wait().expect("it ends").success());
    let after = page();
    assert_eq!(before["epoch"], after["epoch"]);
    let (old, new) = (before["events"].as_array().expect("a list"), after["events"].as_array().expect("a list"));
    assert_eq!(&new[..old.len()], &old[..]);
    assert!(new[old.len()..].iter().any(|event| event["event_type"] == "goes/on"), "{after}");
    let numbers: Vec<u64> = new.iter().map(|event| event["seq"].as_u64().expect("a number")).collect();
    assert!(numbers.is_sorted_by(|one, next| one < next));
}

/// Numbers continue only if the home itself can vouch for them.
#[test]
fn restored_numbers_never_lie() {
    let home = end(with_requests());
    let epoch = |home: &Home| events(home, "s").1;
    let (first, own) = (events(&home, "s").0, epoch(&home));
    back_up(&home, &[]);
    // Into the same home, whose witness knows that nothing came after.
    let session = home.path().join("sessions/s");
    fs::remove_dir_all(&session).expect("it is there");
    let copy = copy_of(&home);
    told(&tool(&home, &["restore", text(&copy), "--json"]));
    assert_eq!((events(&home, "s").0, epoch(&home)), (first.clone(), own.clone()));
    // More happens after the backup, and is lost.
    let mut live = Live::start_in(home).in_turn();
    live.say_plainly(r#"{"method":"later","params":{}}"#);
    let home = end(live);
    assert_eq!(epoch(&home), own);
    fs::remove_dir_all(&session).expect("it is there");
    told(&tool(&home, &["restore", text(&copy), "--json"]));
    assert_eq!(events(&home, "s").0, first);
    assert_ne!(epoch(&home), own);
    // In other homes each restore has an epoch of its own.
    let epochs: Vec<Value> = (0..2)
        .map(|_| {
            let to = Home::new();
            restore(&copy, &to, &[]);
            let (restored, epoch) = events(&to, "s");
            assert_eq!(restored, first);
            epoch
        })
        .collect();
    assert!(epochs[0] != own && epochs[1] != own && epochs[0] != epochs[1]);
}

/// Open requests of a copy look as after a crash, and no tool accepts an answer.
#[test]
fn restored_requests_are_not_answerable() {
    let live = with_requests();
    let name = format!("{}-8", live.generation());
    back_up(&live.home, &[]);
    let to = Home::new();
    let restored = restore(&copy_of(&live.home), &to, &[]);
    assert_eq!(restored["sessions"][0]["orphaned"], 1);
    let row = told(&tool(&to, &["show", &name, "--session", "s", "--json"]))["request"].take();
    assert_eq!((&row["status"], &row["error_code"]), (&json!("orphaned"), &json!("server_restarted")));
    assert!(
        row["error_message"].as_str().expect("a text").contains("restored from a backup that is complete up to 20")
    );
    assert_eq!(told(&tool(&to, &["requests", "--session", "s", "--json"]))["requests"], json!([]));
    assert!(!tool(&to, &["respond", &name, "accept", "--session", "s"]).status.success());
    // The one of the relay that runs is not touched.
    assert_eq!(live.row(&name)["status"], "pending");
    end(live);
}

#[test]
fn earlier_state_is_restored_by_time() {
    let mut live = with_requests();
    let first = back_up(&live.home, &[])["sessions"][0]["complete_to"].as_str().expect("a time").to_owned();
    live.send(&answer("8", &decision("decline")));
    live.say_plainly(&turn_started("t", "later"));
    let copy = copy_of(&live.home);
    back_up(&live.home, &[]);
    let points = back_up(&live.home, &[])["sessions"][0]["points"].take();
    let points = points.as_array().expect("a list");
    assert!(points.len() >= 2 && points.iter().all(|point| point["from"].as_str() <= point["until"].as_str()));
    let to = Home::new();
    let output = tool(&to, &["restore", text(&copy), "--json", "--at", "2020-01-01"]);
    refused(&output, 1, &["the backup has no session as it was at 2020-01-01", "name a later time with --at"]);
    let restored = restore(&copy, &to, &["--at", &first]);
    let session = &restored["sessions"][0];
    assert!(session["restored_to"].as_str().expect("a time") <= &*first, "{restored}");
    let status = |home: &Home| {
        let rows = told(&tool(home, &["requests", "--session", "s", "--all", "--json"]));
        rows["requests"].as_array().expect("a list").iter().map(|row| row["status"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(status(&to), ["resolved", "orphaned"]);
    let has_later = |home: &Home| events(home, "s").0.iter().any(|event| event["turn_id"] == "later");
    assert!(!has_later(&to));
    let now = Home::new();
    restore(&copy, &now, &[]);
    assert_eq!(status(&now), ["resolved", "resolved"]);
    assert!(has_later(&now));
    end(live);
}

/// Masked secrets leave the copy with the next run, also from earlier ledgers and deleted segments.
#[test]
fn redacted_secrets_leave_the_copy() {
    const SECRET: &str = "kornblume-seven";
    let mut live = with_requests();
    live.say_plainly(&format!(r#"{{"method":"m","params":{{"text":"{SECRET}"}}}}"#));
    live.push(&json!({"cmd": format!("echo {SECRET}")}), 1);
    back_up(&live.home, &[]);
    live.push(&json!({"cmd": "more"}), 2);
    back_up(&live.home, &[]);
    let home = end(live);
    back_up(&home, &[]);
    let with_secret = |dir: &Path| -> Vec<PathBuf> {
        let has = |bytes: &Vec<u8>| memchr::memmem::find(bytes, SECRET.as_bytes()).is_some();
        files(dir).into_iter().filter(|(_, bytes)| has(bytes)).map(|(path, _)| path).collect()
    };
    let before = with_secret(&copy_of(&home));
    assert!(before.iter().any(|path| text(path).contains("journal")), "{before:?}");
    assert!(before.iter().any(|path| text(path).contains("ledger.db")), "{before:?}");
    let redact = |pattern: &str| told(&tool(&home, &["redact", "s", "--pattern", pattern, "--json"]));
    // After a redaction without a match the copy stays.
    let segment = journal_copy(&home);
    redact("no-such-text");
    let document = back_up(&home, &[]);
    assert_eq!((journal_copy(&home), points(&document)), (segment, 2), "{document}");
    assert!(!redact(SECRET)["masked"].as_array().expect("a list").is_empty());
    let document = back_up(&home, &[]);
    assert!(document["removed"]["bytes"].as_u64() > Some(0), "{document}");
    assert_eq!(with_secret(&copy_of(&home)), Vec::<PathBuf>::new());
    let to = Home::new();
    restore(&copy_of(&home), &to, &[]);
    assert_eq!(journal(&to.path(), "s"), journal(&home.path(), "s"));
}

/// While nobody knows whether a redaction masks something, the copy stays as it was.
#[test]
fn redaction_that_has_not_ended_takes_nothing_from_the_copy() {
    let kept = Kept::new();
    fs::write(kept.session().join("redacted"), "01930000-0000-7000-8000-000000000000 begun\n").expect("it is ours");
    let output = tool(&kept.home, &["backup", text(&copy_of(&kept.home))]);
    refused(&output, 1, &["its redaction has not ended", "run it again"]);
    kept.is_whole("a redaction that was killed");
    told(&tool(&kept.home, &["redact", "s", "--pattern", "no-such-text", "--json"]));
    let document = back_up(&kept.home, &[]);
    assert_eq!((points(&document), &document["sessions"][0]["segments"]), (1, &json!(1)), "{document}");
}

/// A ledger that is damaged at the source replaces no intact copy; its journal goes on being copied.
#[test]
fn damaged_ledger_of_the_home_is_no_copy() {
    let home = end(with_requests());
    let first = back_up(&home, &[]);
    let home = end(Live::start_in(home).in_turn());
    let ledger = home.path().join("sessions/s/ledger.db");
    let mut bytes = fs::read(&ledger).expect("it is there");
    bytes[4_096..].fill(0xff);
    fs::write(&ledger, bytes).expect("it is ours");
    let copy = copy_of(&home);
    let output = tool(&home, &["backup", text(&copy), "--json"]);
    refused(&output, 1, &["session s: its ledger was not copied"]);
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(document["complete_to"], first["complete_to"], "{document}");
    let to = Home::new();
    restore(&copy, &to, &[]);
    assert_eq!(journal(&to.path(), "s"), journal(&home.path(), "s"));
    let requests = told(&tool(&to, &["requests", "--session", "s", "--all", "--json"]));
    assert_eq!(requests["requests"].as_array().map(Vec::len), Some(2), "{requests}");
}

/// Each way to damage a copy is named, changes nothing in the home, and the rest can be restored.
#[test]
fn damaged_copy_is_named_and_the_rest_restored() {
    let home = end(with_requests());
    let home = end(Live::start_in(home).in_turn());
    told(&tool(&home, &["events", "--session", "s", "--json"]));
    let mut command = home.shim(&["run", "--session", "whole", "--", "true"]);
    assert!(command.stdin(Stdio::null()).status().expect("it runs").success());
    back_up(&home, &[]);
    let find = |part: &str| {
        let found =
            files(&copy_of(&home)).into_keys().find(|path| text(path).starts_with(&format!("sessions/s/{part}")));
        found.unwrap_or_else(|| panic!("no {part}"))
    };
    let flip = |path: &Path| {
        let mut bytes = fs::read(path).expect("it is there");
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
        fs::write(path, bytes).expect("it is ours");
    };
    let shorten = |path: &Path| {
        let bytes = fs::read(path).expect("it is there");
        fs::write(path, &bytes[..bytes.len() - 1]).expect("it is ours");
    };
    let remove = |path: &Path| fs::remove_file(path).expect("it is there");
    let link = |path: &Path| {
        fs::rename(path, path.with_added_extension("aside")).expect("it is there");
        symlink(path.with_added_extension("aside"), path).expect("a link");
    };
    type Harm<'a> = &'a dyn Fn(&Path);
    let check = |part: &str, harm: Harm<'_>, words: &str, left_out: &str| {
        let file = find(part);
        let path = copy_of(&home).join(&file);
        let intact = fs::read(&path).expect("it is there");
        harm(&path);
        let to = Home::new();
        let output = tool(&to, &["restore", text(&copy_of(&home))]);
        refused(&output, 1, &[text(&path), words, "nothing was restored; whole are: whole", "--salvage"]);
        assert!(!to.path().exists());
        let only = restore(&copy_of(&home), &to, &["--session", "whole"]);
        assert_eq!(only["sessions"][0]["session_id"], "whole");
        let to = Home::new();
        let salvaged = restore(&copy_of(&home), &to, &["--salvage"]);
        assert_eq!(salvaged["damaged"][0]["file"], text(&file), "{salvaged}");
        let said = salvaged["sessions"][0]["left_out"].to_string();
        assert!(said.contains(left_out), "{said}");
        for args in [&["events", "--session", "s", "--json"][..], &["requests", "--session", "s", "--all", "--json"]] {
            told(&tool(&to, args));
        }
        let _ = fs::remove_file(&path);
        let _ = fs::remove_file(path.with_added_extension("aside"));
        fs::write(&path, intact).expect("it is ours");
    };
    let differs = "its content differs from its checksum";
    for (part, left_out) in [
        ("journal/", "the journal's segment "),
        ("ledger.db", "all requests and answers, because no ledger is whole"),
        ("history.db", "events from before the journal"),
    ] {
        check(part, &flip, differs, left_out);
        check(part, &shorten, " bytes and not ", left_out);
        check(part, &remove, "it is missing", left_out);
        check(part, &link, "is a symbolic link, not a regular file", left_out);
    }
    // The manifest itself.
    let manifest = copy_of(&home).join("backup.json");
    let intact = fs::read_to_string(&manifest).expect("it is there");
    for (damaged, words) in [
        (intact.replacen("\"runs\":1", "\"runs\":2", 1), "is damaged: its content differs from its checksum"),
        (intact[..intact.len() / 2].to_owned(), "is damaged: "),
        (String::new(), "is damaged: "),
    ] {
        fs::write(&manifest, damaged).expect("it is ours");
        for tools in [["restore", text(&copy_of(&home))], ["backup", text(&copy_of(&home))]] {
            refused(&tool(&home, &tools), 1, &["backup.json", words, "codex-shim backup"]);
        }
    }
    fs::write(&manifest, intact).expect("it is ours");
    restore(&copy_of(&home), &Home::new(), &[]);
}

#[test]
fn restore_replaces_nothing() {
    let live = with_requests();
    let copy = copy_of(&live.home);
    back_up(&live.home, &[]);
    let before = journal(&live.home.path(), "s");
    let there = "has these sessions already: s; nothing was restored";
    // It runs, and then it is stopped.
    refused(
        &tool(&live.home, &["restore", text(&copy)]),
        1,
        &[there, "with --missing, or into another home with --to"],
    );
    let home = end(live);
    refused(&tool(&home, &["restore", text(&copy)]), 1, &[there]);
    assert!(journal(&home.path(), "s").len() == before.len());
    refused(&tool(&home, &["restore", text(&copy), "--session", "nope"]), 3, &["unknown session `nope`; sessions: "]);
    refused(&tool(&home, &["restore", text(&home.path())]), 1, &["has no backup", "name the folder"]);
    let inside = copy.join("home");
    refused(&tool(&home, &["restore", text(&copy), "--to", text(&inside)]), 1, &["is in", "must be apart"]);
    // A restore that was killed has left something, which the next one removes.
    let to = Home::new();
    fs::create_dir_all(to.path().join("sessions/~restoring.s.1/journal")).expect("folders");
    for folder in ["", "sessions", "sessions/~restoring.s.1"] {
        fs::set_permissions(to.path().join(folder), fs::Permissions::from_mode(0o700)).expect("it is ours");
    }
    fs::write(to.path().join("config.toml"), "record = true\n").expect("write");
    let restored = restore(&copy, &to, &[]);
    assert_eq!(restored["settings_restored"], false);
    assert_eq!(to.sessions().len(), 1, "{:?}", to.sessions());
    assert_eq!(fs::read_to_string(to.path().join("config.toml")).expect("it is there"), "record = true\n");
}

/// Deleted data stays in the copy, unless the user says otherwise.
#[test]
fn deleted_sessions_stay_unless_told() {
    let home = end(with_requests());
    let mut command = home.shim(&["run", "--session", "gone", "--", "true"]);
    assert!(command.stdin(Stdio::null()).status().expect("it runs").success());
    back_up(&home, &[]);
    fs::remove_dir_all(home.path().join("sessions/gone")).expect("it is there");
    let ids = |document: &Value| -> Vec<String> {
        let sessions = document["sessions"].as_array().expect("a list");
        sessions.iter().map(|one| one["session_id"].as_str().expect("an id").to_owned()).collect()
    };
    let kept = back_up(&home, &[]);
    assert_eq!(ids(&kept), ["gone", "s"]);
    assert!(kept["sessions"][0]["gone_since"].is_string() && kept["sessions"][1]["gone_since"].is_null(), "{kept}");
    let said = tool(&home, &["backup", text(&copy_of(&home))]);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("1 session that the home no longer has stay in it; --delete removes them"), "{said}");
    let deleted = back_up(&home, &["--delete"]);
    assert_eq!(ids(&deleted), ["s"]);
    assert!(!copy_of(&home).join("sessions/gone").exists() && deleted["removed"]["bytes"].as_u64() > Some(0));
    // An empty home is more likely a mistake.
    fs::remove_dir_all(home.path().join("sessions/s")).expect("it is there");
    let output = tool(&home, &["backup", text(&copy_of(&home)), "--delete"]);
    refused(&output, 1, &["has no session, and the backup has 1", "without --delete they stay"]);
    assert_eq!(ids(&back_up(&home, &[])), ["s"]);
}

#[test]
fn follow_keeps_up_and_ends_on_a_signal() {
    let mut live = with_requests();
    let copy = copy_of(&live.home);
    let spins = tool(&live.home, &["backup", text(&copy), "--follow", "--every", "0s"]);
    refused(&spins, 2, &["`0s` is too short"]);
    for (word, signal) in [("followed-once", Signal::TERM), ("followed-twice", Signal::INT)] {
        let args = ["backup", text(&copy), "--follow", "--every", "50ms", "--json"];
        let mut following = live.home.shim(&args).stderr(Stdio::null()).spawn().expect("it starts");
        let mut lines = BufReader::new(following.stdout.take().expect("it is piped")).lines();
        let mut next =
            || -> Value { serde_json::from_str(&lines.next().expect("a line").expect("text")).expect("JSON") };
        let first = next();
        assert_eq!(first["faults"], json!([]), "{first}");
        live.say_plainly(&format!(r#"{{"method":"m","params":{{"word":"{word}"}}}}"#));
        let copied = || {
            fs::read(journal_copy(&live.home))
                .is_ok_and(|bytes| memchr::memmem::find(&bytes, word.as_bytes()).is_some())
        };
        let mut run = first["run"].as_u64();
        while !copied() {
            let document = next();
            assert!(document["run"].as_u64() > run, "{document}");
            run = document["run"].as_u64();
        }
        kill_process(Pid::from_raw(i32::try_from(following.id()).expect("a pid")).expect("a pid"), signal)
            .expect("it runs");
        let status = following.wait().expect("it ends");
        assert_eq!(status.code(), Some(0), "{signal:?}");
        let checked = told(&tool(&live.home, &["restore", text(&copy), "--to", "x", "--dry-run", "--json"]));
        assert_eq!(checked["damaged"], json!([]));
    }
    end(live);
}

/// A disk that becomes full in the middle: the copy is the one before.
#[test]
fn full_disk_leaves_the_former_copy() {
    let home = end(with_requests());
    let Some(disk) = SmallDisk::mount(&home.beside().join("disk")) else { return };
    let copy = disk.path.join("copy");
    told(&tool(&home, &["backup", text(&copy), "--json"]));
    let busy = Busy::start(home.shim(&["run", "--session", "big", "--", "cat"]));
    busy.goes_on(4_000);
    busy.end();
    let output = tool(&home, &["backup", text(&copy)]);
    refused(&output, 1, &["No space left on device"]);
    let to = Home::new();
    let restored = restore(&copy, &to, &["--session", "s"]);
    assert_eq!(restored["sessions"][0]["session_id"], "s");
    assert_eq!(journal(&to.path(), "s"), journal(&home.path(), "s"));
}

#[test]
fn copy_that_cannot_be_trusted_is_refused() {
    let home = end(with_requests());
    let shared = home.beside().join("shared");
    fs::create_dir(&shared).expect("a folder");
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).expect("it is ours");
    refused(&tool(&home, &["backup", text(&shared)]), 1, &["others can write to", "a folder of your own"]);
    let inside = home.path().join("copy");
    refused(&tool(&home, &["backup", text(&inside)]), 1, &["is in", "must be apart"]);
    refused(&tool(&home, &["backup", text(home.beside())]), 1, &["is in", "must be apart"]);
    let link = home.beside().join("link");
    symlink(home.beside().join("nowhere"), &link).expect("a link");
    refused(&tool(&home, &["backup", text(&link)]), 1, &["is a symbolic link, not a folder"]);
    assert!(!home.beside().join("nowhere").exists());
    // A link in the place of a file of the copy is not followed, and not a reason to lose the copy.
    back_up(&home, &[]);
    let precious = home.beside().join("precious");
    fs::write(&precious, "mine").expect("write");
    let segment = journal_copy(&home);
    fs::remove_file(&segment).expect("it is there");
    symlink(&precious, &segment).expect("a link");
    back_up(&home, &[]);
    assert_eq!(fs::read_to_string(&precious).expect("it is there"), "mine");
    let to = Home::new();
    restore(&copy_of(&home), &to, &[]);
    assert_eq!(journal(&to.path(), "s"), journal(&home.path(), "s"));
    // Another home is another backup.
    let other = end(with_requests());
    let output = tool(&other, &["backup", text(&copy_of(&home))]);
    refused(&output, 1, &["has a backup of", "name another folder"]);
}

/// A home with two runs of session `s`, whose first segment only the copy has any more; and the copy's journal and requests.
struct Kept {
    home: Home,
    journal: BTreeMap<PathBuf, Vec<u8>>,
    /// The names in the home, oldest first.
    segments: Vec<PathBuf>,
}

const REQUESTS: &str = "SELECT status FROM codex_pending_requests WHERE status = 'resolved'";

impl Kept {
    fn new() -> Kept {
        let home = end(with_requests());
        let mut live = Live::start_in(home).in_turn();
        live.say_plainly(r#"{"method":"m","params":{"text":"kornblume-eight"}}"#);
        back_up(&live.home, &[]);
        live.say_plainly(&command_asked("9", "t"));
        live.send(&answer("9", &decision("accept")));
        let home = end(live);
        back_up(&home, &[]);
        let journal = journal(&home.path(), "s");
        let segments: Vec<PathBuf> =
            journal.keys().map(|name| home.path().join("sessions/s/journal").join(name)).collect();
        assert_eq!(segments.len(), 2);
        let mut order = segments.clone();
        order.sort_by_key(|path| path.metadata().and_then(|file| file.modified()).expect("a time"));
        fs::remove_file(&order[0]).expect("it is there");
        back_up(&home, &[]);
        Kept { home, journal, segments: order }
    }

    fn session(&self) -> PathBuf {
        self.home.path().join("sessions/s")
    }

    /// The copy has all that it had, as a restore shows.
    fn is_whole(&self, what: &str) {
        let to = Home::new();
        let restored = restore(&copy_of(&self.home), &to, &[]);
        let now = journal(&to.path(), "s");
        for (name, bytes) in &self.journal {
            assert!(now.get(name).is_some_and(|now| now.starts_with(bytes)), "{what}: {}", name.display());
        }
        assert_eq!(rows(&to.path().join("sessions/s"), REQUESTS).len(), 2, "{what}");
        let mut sessions = restored["sessions"].as_array().expect("a list").iter();
        let session = sessions.find(|session| session["session_id"] == "s").expect("it is restored");
        assert!(session["points"].as_array().expect("a list").len() >= 2, "{what}: {restored}");
    }
}

/// A home that loses or damages something without a redaction takes nothing from its copy. The file is named, with exit status 1.
#[test]
fn damage_of_the_home_takes_nothing_from_the_copy() {
    type Harm = fn(&Kept) -> PathBuf;
    let change: Harm = |kept| {
        let path = kept.segments[1].clone();
        let mut bytes = fs::read(&path).expect("it is there");
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
        fs::write(&path, bytes).expect("it is ours");
        path
    };
    let shorten: Harm = |kept| {
        let path = kept.segments[1].clone();
        let bytes = fs::read(&path).expect("it is there");
        fs::write(&path, &bytes[..bytes.len() / 2]).expect("it is ours");
        path
    };
    let empty_segment: Harm = |kept| {
        fs::write(&kept.segments[1], "").expect("it is ours");
        kept.segments[1].clone()
    };
    let no_journal: Harm = |kept| {
        fs::remove_dir_all(kept.session().join("journal")).expect("it is there");
        kept.session().join("journal")
    };
    let empty_ledger: Harm = |kept| {
        fs::write(kept.session().join("ledger.db"), "").expect("it is ours");
        kept.session().join("ledger.db")
    };
    let no_ledger: Harm = |kept| {
        let ledger = kept.session().join("ledger.db");
        fs::remove_file(&ledger).expect("it is there");
        ledger
    };
    let no_lock: Harm = |kept| {
        fs::remove_file(kept.session().join("lock")).expect("it is there");
        kept.session()
    };
    let file_for_folder: Harm = |kept| {
        fs::rename(kept.session(), kept.home.beside().join("aside")).expect("it is there");
        fs::write(kept.session(), "").expect("it is ours");
        kept.session().join("lock")
    };
    let link_for_lock: Harm = |kept| {
        fs::remove_file(kept.session().join("lock")).expect("it is there");
        symlink("elsewhere", kept.session().join("lock")).expect("a link");
        kept.session().join("lock")
    };
    for (what, harm, more) in [
        ("a changed byte", change, &[][..]),
        ("a shorter segment", shorten, &[]),
        ("an empty segment", empty_segment, &[]),
        ("no folder of the journal", no_journal, &["--delete"]),
        ("an empty ledger", empty_ledger, &[]),
        ("no ledger", no_ledger, &[]),
        ("no lock", no_lock, &["--delete"]),
        ("a file in the place of the session", file_for_folder, &["--delete"]),
        ("a link in the place of the lock", link_for_lock, &["--delete"]),
    ] {
        let kept = Kept::new();
        let mut command = kept.home.shim(&["run", "--session", "other", "--", "true"]);
        assert!(command.stdin(Stdio::null()).status().expect("it runs").success());
        // With --delete the first segment is not known to be deleted only if its folder is gone.
        let named = harm(&kept);
        let copy = copy_of(&kept.home);
        let output = tool(&kept.home, &[&["backup", text(&copy), "--json"], more].concat());
        refused(&output, 1, &[text(&named)]);
        kept.is_whole(what);
        assert!(copy_of(&kept.home).join("sessions/s").is_dir());
    }
}

/// A restore and the next backup into the same folder lose neither a state, nor a segment, nor the mark of a redaction.
#[test]
fn restored_session_goes_on_in_its_backup() {
    for redacts in [false, true] {
        let mut kept = Kept::new();
        if redacts {
            let redact = ["redact", "s", "--pattern", "kornblume-eight", "--json"];
            assert!(!told(&tool(&kept.home, &redact))["masked"].as_array().expect("a list").is_empty());
            kept.journal = journal(&kept.home.path(), "s");
            back_up(&kept.home, &[]);
            let home = end(Live::start_in(kept.home).in_turn());
            back_up(&home, &[]);
            kept.home = home;
        }
        let before = back_up(&kept.home, &[]);
        let first = before["sessions"][0]["points"][0]["until"].as_str().expect("a time").to_owned();
        let copy = copy_of(&kept.home);
        let mut last = points(&before);
        for more in [&["--at", &*first][..], &[]] {
            fs::rename(kept.session(), kept.home.beside().join(format!("aside-{}", more.len()))).expect("it is there");
            told(&tool(&kept.home, &[&["restore", text(&copy), "--json"], more].concat()));
            let output = tool(&kept.home, &["backup", text(&copy), "--json"]);
            let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
            assert!(points(&document) >= last, "{more:?}: {document}");
            assert_eq!(document["sessions"][0]["segments"], before["sessions"][0]["segments"], "{more:?}: {document}");
            last = points(&document);
            let to = Home::new();
            restore(&copy, &to, &[]);
            for (name, bytes) in &kept.journal {
                assert!(journal(&to.path(), "s")[name].starts_with(bytes), "{more:?}: {}", name.display());
            }
            // A fault at most once: the user has asked for the earlier state.
            told(&tool(&kept.home, &["backup", text(&copy), "--json"]));
        }
    }
}

/// A folder that has lost its copy gets no other one by itself, with --follow and in single runs.
#[test]
fn backup_that_is_gone_is_not_begun_anew() {
    const HAD: &str = "had a backup of this home, and has none now";
    type Lose = fn(&Path);
    let lose: [(Lose, &str); 4] = [
        (|_| {}, HAD),
        // The mount point of a disk that is gone.
        (|copy| fs::create_dir(copy).expect("a folder"), HAD),
        (
            |copy| {
                fs::create_dir_all(copy.join("sessions/s/journal")).expect("a folder");
                fs::write(copy.join("backup.lock"), "").expect("write");
            },
            HAD,
        ),
        (
            |copy| {
                fs::create_dir(copy).expect("a folder");
                fs::write(copy.join("notes.txt"), "mine").expect("write");
            },
            HAD,
        ),
    ];
    let home = end(with_requests());
    let (copy, aside) = (copy_of(&home), home.beside().join("aside"));
    back_up(&home, &[]);
    let args = ["backup", text(&copy), "--follow", "--every", "50ms", "--json"];
    let mut following = home.shim(&args).spawn().expect("it starts");
    let mut lines = BufReader::new(following.stdout.take().expect("it is piped")).lines();
    let mut said = BufReader::new(following.stderr.take().expect("it is piped")).lines();
    let mut run = || -> Value { serde_json::from_str(&lines.next().expect("a line").expect("text")).expect("JSON") };
    let mut last = run();
    // From now on a run writes only its manifest, wherever the folder is.
    while last["copied"]["bytes"] != 0 {
        last = run();
    }
    for (lose, words) in lose {
        fs::rename(&copy, &aside).expect("it is there");
        lose(&copy);
        let before = copy.exists().then(|| files(&copy));
        let fault = said.by_ref().map(|line| line.expect("text")).find(|line| line.contains(words));
        assert!(fault.is_some());
        // A link with a slash behind it leads nowhere else.
        for spelling in [text(&copy).to_owned(), format!("{}/", copy.display())] {
            refused(&tool(&home, &["backup", &spelling]), 1, &[words, "--new"]);
        }
        assert_eq!(copy.exists().then(|| files(&copy)), before);
        let _ = fs::remove_dir_all(&copy);
        fs::rename(&aside, &copy).expect("it is there");
        // Runs of before the loss may still be in the pipe.
        let number = last["run"].as_u64().expect("a number");
        let manifest = || -> u64 {
            let text = fs::read(copy.join("backup.json")).expect("it is there");
            serde_json::from_slice::<Value>(&text).expect("JSON")["backup"]["runs"].as_u64().expect("a number")
        };
        let at = manifest();
        assert!(at >= number);
        eventually("the work goes on", || (manifest() > at).then_some(()));
        while last["run"].as_u64() <= Some(at) {
            last = run();
        }
    }
    kill_process(Pid::from_raw(i32::try_from(following.id()).expect("a pid")).expect("a pid"), Signal::TERM)
        .expect("it runs");
    assert_eq!(following.wait().expect("it ends").code(), Some(0));
    drop((lines, said));
    // It is begun anew only on request, and another copy of the home does not take its place by itself.
    fs::rename(&copy, &aside).expect("it is there");
    let output = tool(&home, &["backup", text(&copy), "--new"]);
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("a new backup begins in "), "{output:?}");
    refused(&tool(&home, &["backup", text(&copy), "--new"]), 1, &["so --new begins none"]);
    fs::remove_dir_all(&copy).expect("it is there");
    fs::rename(&aside, &copy).expect("it is there");
    refused(&tool(&home, &["backup", text(&copy)]), 1, &["has another backup of this home than before"]);
}

/// A run removes nothing from a folder whose `backup.json` is lost.
#[test]
fn folder_without_its_manifest_is_left_alone() {
    let home = end(with_requests());
    back_up(&home, &[]);
    let copy = copy_of(&home);
    let manifest = copy.join("backup.json");
    let intact = fs::read_to_string(&manifest).expect("it is there");
    fs::remove_file(&manifest).expect("it is there");
    let before = files(&copy);
    refused(&tool(&home, &["backup", text(&copy)]), 1, &["has none now"]);
    refused(&tool(&home, &["backup", text(&copy), "--new"]), 1, &["backup.json is missing", "name another folder"]);
    refused(&tool(&home, &["restore", text(&copy)]), 1, &["backup.json is missing", "put backup.json back"]);
    assert_eq!(files(&copy), before);
    fs::write(&manifest, intact).expect("it is ours");
    // A program that copies files may leave out locks.
    fs::remove_file(copy.join("backup.lock")).expect("it is there");
    back_up(&home, &[]);
}

/// A home is known by what it is, not by its path.
#[test]
fn another_home_at_the_same_path_is_refused() {
    let home = end(with_requests());
    back_up(&home, &[]);
    let before = files(&copy_of(&home));
    fs::rename(home.path(), home.beside().join("first")).expect("it is there");
    let mut command = home.shim(&["run", "--session", "main", "--", "true"]);
    assert!(command.stdin(Stdio::null()).status().expect("it runs").success());
    for more in [&[][..], &["--delete"], &["--new"]] {
        let output = tool(&home, &[&["backup", text(&copy_of(&home))], more].concat());
        refused(&output, 1, &["has a backup of another home that was at ", "name another folder"]);
    }
    assert_eq!(files(&copy_of(&home)), before);
}

/// Settings name programs: a restore writes them only on request, and never from a folder that a model can change.
#[test]
fn settings_are_restored_only_on_request_and_from_out_of_reach() {
    let home = Home::away();
    fs::create_dir_all(home.path()).expect("a folder");
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o700)).expect("it is ours");
    fs::write(home.path().join("config.toml"), "record = true\n").expect("write");
    let workspace = out_of_reach();
    let mut command = home.shim(&["run", "--session", "s", "--", "true"]);
    assert!(command.current_dir(workspace.path()).stdin(Stdio::null()).status().expect("it runs").success());
    let safe = out_of_reach();
    for (folder, in_reach) in [
        (home.beside().to_owned(), Some("where the model may write")),
        (workspace.path().to_owned(), Some("where the model may write")),
        (safe.path().to_owned(), None),
    ] {
        let copy = folder.join("copy");
        let document = told(&tool(&home, &["backup", text(&copy), "--json"]));
        let said = document["in_reach"].as_str();
        assert_eq!(said.is_some(), in_reach.is_some(), "{document}");
        assert!(in_reach.is_none_or(|words| said.is_some_and(|said| said.contains(words))), "{document}");
        // Also in a home that knows nothing of the workspace.
        let to = Home::away();
        let output = tool(&to, &["restore", text(&copy), "--with-settings"]);
        let restored = to.path().join("config.toml");
        match in_reach {
            Some(words) => refused(&output, 1, &["config.toml is not restored from there", words, "look at "]),
            None => assert_eq!(fs::read_to_string(&restored).expect("it is there"), "record = true\n"),
        }
        assert_eq!(restored.exists(), in_reach.is_none());
        let to = Home::away();
        let output = tool(&to, &["restore", text(&copy)]);
        let words = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            words.contains("config.toml: not restored; after a look at ") && !to.path().join("config.toml").exists()
        );
        assert_eq!(String::from_utf8_lossy(&output.stderr).contains("where the model may write"), in_reach.is_some());
        assert!(output.status.success(), "{output:?}");
        // Damaged settings matter only with --with-settings.
        let file = fs::read_dir(&copy).expect("a folder").map(|entry| entry.expect("an entry").path());
        let file = file.into_iter().find(|path| text(path).contains("config.toml.")).expect("it is there");
        fs::write(&file, "record = TRUE\n").expect("it is ours");
        let to = Home::away();
        if in_reach.is_none() {
            let output = tool(&to, &["restore", text(&copy), "--with-settings"]);
            refused(&output, 1, &["config.toml.1: its content differs", "are restored without --with-settings"]);
        }
        told(&tool(&to, &["restore", text(&copy), "--json"]));
    }
}

#[test]
fn link_to_a_backup_is_refused_with_and_without_a_slash() {
    let home = end(with_requests());
    back_up(&home, &[]);
    let link = home.beside().join("link");
    symlink(copy_of(&home), &link).expect("a link");
    for end in ["", "/", "/."] {
        let link = format!("{}{end}", link.display());
        for tools in [["backup", &link], ["restore", &link]] {
            refused(&tool(&home, &tools), 1, &["is a symbolic link, not a folder"]);
        }
    }
    let copy = format!("{}/", copy_of(&home).display());
    told(&tool(&home, &["backup", &copy, "--json"]));
    told(&tool(&Home::new(), &["restore", &copy, "--json"]));
}

/// Each thing that a restore leaves out, and the flag that includes it.
#[test]
fn restore_leaves_out_what_nobody_has_asked_for() {
    let home = end(with_requests());
    for session in ["deleted", "young"] {
        let mut command = home.shim(&["run", "--session", session, "--", "true"]);
        assert!(command.stdin(Stdio::null()).status().expect("it runs").success());
        if session == "deleted" {
            back_up(&home, &[]);
            fs::remove_dir_all(home.path().join("sessions/deleted")).expect("it is there");
        }
    }
    let copy = copy_of(&home);
    let document = back_up(&home, &[]);
    let young = document["sessions"][2]["restorable_from"].as_str().expect("a time");
    let s = document["sessions"][1]["points"][0]["from"].as_str().expect("a time");
    assert!(s < young, "{document}");
    let ids = |to: &Home| -> Vec<String> {
        to.sessions().iter().map(|dir| text(dir).rsplit('/').next().expect("a name").to_owned()).collect()
    };
    let check = |before: &[&str], args: &[&str], code: i32, words: &str, expect: &[&str]| {
        let to = Home::new();
        for session in before {
            told(&tool(&to, &["restore", text(&copy), "--json", "--session", session]));
        }
        let output = tool(&to, &[&["restore", text(&copy)], args].concat());
        assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
        let said = [&output.stdout[..], &output.stderr].concat();
        assert!(String::from_utf8_lossy(&said).contains(words), "{args:?}: {output:?}");
        assert_eq!(ids(&to), expect, "{args:?}");
    };
    check(&[], &[], 0, "session deleted was deleted from its home", &["s", "young"]);
    check(&[], &["--deleted"], 0, "deleted: restored", &["deleted", "s", "young"]);
    check(&[], &["--session", "deleted"], 0, "deleted: restored", &["deleted"]);
    // A restore that was interrupted.
    check(&["s"], &[], 1, "with --missing", &["s"]);
    check(&["s"], &["--missing"], 0, "young: restored", &["s", "young"]);
    // Not all of them were there at that time.
    check(&[], &["--at", s], 1, "session young: the backup has it from ", &["s"]);
}

/// The words of a restore say which ledger it took.
#[test]
fn salvaged_ledger_names_its_own_time() {
    let mut live = with_requests();
    back_up(&live.home, &[]);
    live.send(&answer("8", &decision("decline")));
    let home = end(live);
    let document = back_up(&home, &[]);
    let states = document["sessions"][0]["points"].as_array().expect("a list");
    let (earlier, last) = (&states[states.len() - 2], &states[states.len() - 1]);
    let copy = copy_of(&home);
    let ledger = copy.join(format!("sessions/s/ledger.db.{}", document["run"]));
    let mut bytes = fs::read(&ledger).expect("it is there");
    bytes[100] ^= 1;
    fs::write(&ledger, &bytes).expect("it is ours");
    let to = Home::new();
    let restored = restore(&copy, &to, &["--salvage"]);
    assert_eq!(restored["sessions"][0]["restored_to"], earlier["until"], "{restored} {last}");
    let messages = rows(&to.path().join("sessions/s"), "SELECT error_message FROM codex_pending_requests");
    let until = earlier["until"].as_str().expect("a time");
    assert!(messages.iter().any(|message| message.contains(until)), "{messages:?}");
    // A backup does not read its copy unless it is asked to; then it makes it whole.
    back_up(&home, &[]);
    assert_eq!(tool(&Home::new(), &["restore", text(&copy)]).status.code(), Some(1));
    let output = tool(&home, &["backup", text(&copy), "--verify"]);
    refused(&output, 1, &[text(&ledger), "--at cannot take it any more"]);
    restore(&copy, &Home::new(), &[]);
    back_up(&home, &["--verify"]);
}
