//! The history from outside: each recorded line is indexed once, however the process ends.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::kills::spread;
use crate::support::both_ends::{Live, http, text};
use crate::support::codex::Lab;
use crate::support::conversations::ALL;
use crate::support::eventually;
use crate::support::history::{Echo, Recorded, all_indexed_once, dump, history_path, line, open};
use crate::support::peer::Peer;
use crate::support::requests::{command_asked, turn_started};
use crate::support::shim::{Home, SHIM};

const KILLS: u64 = 20;

fn tape(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/tapes").join(format!("{name}.jsonl"))
}

/// Deletes the database and its side files.
fn forget(session: &Path) {
    for beside in ["", "-wal", "-shm"] {
        let mut path = history_path(session).into_os_string();
        path.push(beside);
        let _ = fs::remove_file(path);
    }
    assert!(!history_path(session).exists());
}

/// Checks that the tables now begin with the earlier rows.
fn built_again(session: &Path, before: &std::collections::BTreeMap<&str, Vec<Vec<rusqlite::types::Value>>>) {
    for (table, rows) in dump(session) {
        let before = &before[table];
        assert!(rows.len() >= before.len(), "{table}: {} rows, there were {}", rows.len(), before.len());
        for (row, before) in rows.iter().zip(before) {
            assert_eq!(row, before, "{table}");
        }
    }
}

#[test]
fn tapes_are_indexed_once_and_built_again_as_they_were() {
    let home = Home::new();
    for (name, conversation) in ALL {
        let lab = Lab::bare();
        let mut command = lab.command(SHIM);
        home.adopt(&mut command).args(["run", "--session", "s", "--", SHIM, "replay"]).arg(tape(name));
        let mut peer = Peer::start(&mut command);
        (conversation.drive)(&mut peer, &lab);
        assert!(peer.finish().1.success(), "{name}");
    }
    let echo = Echo::start(home);
    let rows = all_indexed_once(&echo.session);
    let recorded = Recorded::read(&echo.session);
    assert!(recorded.piece_count() > 10 && recorded.whole.len() > 100, "the tapes told too little");
    assert!(rows.iter().any(|row| row.pieces.is_some_and(|pieces| pieces > 1)), "nothing was joined");
    let before = dump(&echo.session);
    assert!(before.iter().all(|(table, rows)| *table == "codex_event_gaps" || !rows.is_empty()), "{before:?}");
    let session = echo.session.clone();
    let home = echo.end();
    forget(&session);
    let echo = Echo::start(home);
    all_indexed_once(&session);
    built_again(&session, &before);
    echo.end();
}

#[test]
fn history_holds_no_key_that_was_said() {
    const KEY: &str = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let mut live = Live::configured("transcript_files = true\n");
    let said = |method: &str, params: &Value| json!({"method": method, "params": params}).to_string();
    let item = |item: Value| json!({"threadId": "t", "turnId": "u", "item": item});
    live.say_plainly(&turn_started("t", "u"));
    let user = json!({"type": "userMessage", "id": "a", "content": [{"type": "text", "text": format!("use {KEY}")}]});
    live.say_plainly(&said("item/completed", &item(user)));
    let plan = json!({"threadId": "t", "turnId": "u", "plan": [{"step": format!("use {KEY}"), "status": "pending"}]});
    live.say_plainly(&said("turn/plan/updated", &plan));
    let asked =
        json!({"threadId": "t", "turnId": "u", "itemId": "b", "command": format!("curl -H {KEY}"), "cwd": "/w"});
    live.say_plainly(&json!({"method": "item/commandExecution/requestApproval", "id": 0, "params": asked}).to_string());
    let delta = json!({"threadId": "t", "turnId": "u", "itemId": "c", "delta": format!("{KEY} it is")});
    live.say_plainly(&said("item/agentMessage/delta", &delta));
    live.say_plainly(&said("turn/diff/updated", &json!({"threadId": "t", "turnId": "u", "diff": format!("+{KEY}")})));
    let (session, entries) = (live.session.clone(), "SELECT group_concat(entry) FROM codex_transcript_entries");
    let transcript = eventually("the transcript", || {
        let told = open(&session).query_row(entries, [], |row| row.get::<_, String>(0)).ok();
        told.filter(|told| told.contains("use [redacted]") && told.contains("\"role\":\"diff\""))
    });
    assert!(!transcript.contains(KEY), "{transcript}");
    no_key_in_history(&session, KEY);
    let home = live.kill();
    // The next relay ends the open turn, with its plan.
    let echo = Echo::start(home);
    eventually("the transcript's file", || {
        let kept = fs::read_to_string(session.join("transcripts/t.jsonl")).ok();
        kept.filter(|kept| kept.contains("use [redacted]") && kept.contains("\"role\":\"plan\""))
    });
    let _home = echo.end();
    no_key_in_history(&session, KEY);
}

/// Checks that the database, its log and all transcripts do not contain the key.
fn no_key_in_history(session: &Path, key: &str) {
    let files = [session.to_owned(), session.join("transcripts")];
    let files = files.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
    let mut looked_at = 0;
    for path in files.map(|entry| entry.expect("an entry").path()) {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if name.starts_with("history.db") || name.ends_with(".jsonl") {
            let bytes = fs::read(&path).expect("a file");
            assert!(!bytes.windows(key.len()).any(|window| window == key.as_bytes()), "{name}");
            looked_at += 1;
        }
    }
    assert!(looked_at > 1, "there is no history");
}

/// How fast lines arrive.
#[derive(Clone, Copy, PartialEq)]
enum Pace {
    /// At full speed: the index has hardly begun when it is killed.
    Storm,
    /// A line now and then: the index is killed while it joins deltas.
    Steady,
}

/// Sends lines through a relay until `bytes_min` bytes have come back, and kills it.
fn pass_and_kill(home: &Home, from: u64, bytes_min: usize, pace: Pace) {
    let mut command = home.shim(&["run", "--session", "s", "--", "cat"]);
    let mut relay = command.stderr(std::process::Stdio::null()).spawn().expect("the shim starts");
    let mut stdin = relay.stdin.take().expect("stdin is piped");
    let mut stdout = relay.stdout.take().expect("stdout is piped");
    let writer = std::thread::spawn(move || {
        for number in from.. {
            if writeln!(stdin, "{}", line(number)).is_err() {
                return;
            }
            // First enough lines to join, then so few that the slowest index catches up.
            match pace {
                Pace::Storm => {}
                Pace::Steady if number - from < 300 => std::thread::park_timeout(Duration::from_micros(500)),
                Pace::Steady => std::thread::park_timeout(Duration::from_millis(20)),
            }
        }
    });
    let (mut back, mut chunk) = (0, [0; 8192]);
    let session = home.path().join("sessions/s");
    let has_begun = || {
        let events =
            "SELECT COUNT(*) FROM codex_events WHERE generation = (SELECT generation FROM codex_event_checkpoints)
            AND delta_count IS NOT NULL";
        let generation = Recorded::generations(&session).pop();
        let database = open(&session);
        let reached = database.query_row("SELECT generation FROM codex_event_checkpoints", [], |row| row.get(0));
        let joined: rusqlite::Result<i64> = database.query_row(events, [], |row| row.get(0));
        reached.ok() == generation && joined.is_ok_and(|joined| joined > 0)
    };
    while back <= bytes_min || (pace == Pace::Steady && !has_begun()) {
        let read = stdout.read(&mut chunk).expect("stdout can be read");
        assert!(read > 0, "the relay ended by itself");
        back += read;
    }
    relay.kill().expect("it runs");
    relay.wait().expect("it was killed");
    let _ = stdout.read_to_end(&mut Vec::new());
    writer.join().expect("the writer ends with the relay");
}

#[test]
fn however_often_it_is_killed_each_record_is_indexed_once() {
    let home = Home::new();
    for number in 0..KILLS {
        match number % 2 {
            0 => pass_and_kill(&home, number * 100_000, spread(number) as usize % 300_000, Pace::Storm),
            _ => pass_and_kill(&home, number * 100_000, spread(number) as usize % 20_000, Pace::Steady),
        }
    }
    assert_eq!(home.sessions().len(), 1, "a kill left its lock behind");
    let echo = Echo::start(home);
    let rows = all_indexed_once(&echo.session);
    let generations: std::collections::BTreeSet<_> = rows.iter().map(|row| &row.place.0).collect();
    assert_eq!(generations.len() as u64, KILLS + 1);
    let before = dump(&echo.session);
    let session = echo.session.clone();
    let home = echo.kill();
    forget(&session);
    let echo = Echo::start(home);
    all_indexed_once(&session);
    built_again(&session, &before);
    echo.end();
}

/// The rows of a route, as soon as one has this type.
fn told(session: &Path, route: &str, event_type: &str) -> Vec<Value> {
    eventually(event_type, || {
        let (status, document) = http(session, &format!("GET /sessions/self/{route}?since_id=0"), b"");
        assert_eq!(status, 200, "{document}");
        let events = document["events"].as_array().expect("an array").clone();
        events.iter().any(|event| event["event_type"] == event_type).then_some(events)
    })
}

/// A running session reports from records that the index read as they came, a stopped one from a single reading of all.
#[test]
fn what_is_told_live_is_told_again_once_the_history_is_built_again() {
    let mut live = Live::initialized("");
    let item = |method: &str, thread: &str, status: &str| {
        format!(
            r#"{{"method":"{method}","params":{{"threadId":"{thread}","turnId":"u","item":{{"type":"commandExecution","id":"i","command":"make","cwd":"/w","status":"{status}"}}}}}}"#
        )
    };
    for thread in ["t", "w"] {
        live.say_plainly(&turn_started(thread, "u"));
        live.say_plainly(&item("item/started", thread, "inProgress"));
    }
    live.say_plainly(&item("item/completed", "w", "completed"));
    live.say_plainly(
        r#"{"method":"turn/completed","params":{"threadId":"w","turn":{"id":"u","status":"completed","items":[]}}}"#,
    );
    live.asked(&command_asked("7", "t"), "7");
    let told = || {
        ["activity", "activity-actions", "tool-events?since_id=0", "turn-events?since_id=0", "codex-events?since_seq=0"]
            .map(|route| live.get(&format!("/sessions/self/{route}")))
    };
    eventually("all of it to be told", || {
        let [activity, actions, _, turns, _] = told();
        let is_over = turns.to_string().contains("completed");
        (activity["activity_state"] == "waiting_permission" && actions.to_string().contains("approval") && is_over)
            .then_some(())
    });
    let before = told();
    assert_eq!(before[0]["threads"].as_array().map(Vec::len), Some(2), "{:#}", before[0]);
    forget(&live.session);
    eventually("another history", || live.session.join("history.db").exists().then_some(()));
    let events = |told: &[Value; 5]| told[4]["events"].as_array().map(Vec::len);
    let after = eventually("all of it again", || Some(told()).filter(|after| events(after) >= events(&before)));
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before, after);
    }
    live.end();
}

#[test]
fn what_a_dead_child_leaves_open_has_failed() {
    let mut live = Live::initialized("");
    live.say_plainly(&turn_started("t", "u"));
    live.say_plainly(
        r#"{"method":"item/started","params":{"threadId":"t","turnId":"u","item":{"type":"commandExecution","id":"i","command":"make","cwd":"/w","status":"inProgress"}}}"#,
    );
    live.asked(&command_asked("7", "t"), "7");
    let state = || text(&live.get("/sessions/self/activity")["activity_state"]);
    eventually("the request to be waited for", || (state() == "waiting_permission").then_some(()));
    let pid = live.get("/sessions/self")["child"]["pid"].as_i64().expect("a pid") as i32;
    let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it runs");
    let Live { home, mut relay, session, down, stdin, .. } = live;
    drop(down);
    eventually("the relay's end", || relay.try_wait().expect("it is ours"));
    drop(stdin);
    let echo = Echo::start(home);
    all_indexed_once(&session);
    for (route, what) in [("tool-events", "tool"), ("turn-events", "turn")] {
        let rows = told(&session, route, "failed");
        let failed: Vec<&Value> = rows.iter().filter(|row| row["event_type"] == "failed").collect();
        assert!(!failed.is_empty(), "{what}: {rows:#?}");
        for row in failed {
            assert_eq!(row["error_code"], "app_server_stream_closed", "{what}: {row:#}");
            assert_eq!((&row["thread_id"], &row["turn_id"]), (&json!("t"), &json!("u")), "{what}: {row:#}");
        }
    }
    let (_, document) = http(&session, "GET /sessions/self/activity-actions", b"");
    let actions = document["actions"].as_array().expect("an array");
    let status = |kind: &str| {
        let action = actions.iter().find(|action| action["action_kind"] == kind);
        action.map(|action| text(&action["status"])).unwrap_or_default()
    };
    assert_eq!(status("command"), "failed", "{document:#}");
    assert!(actions.iter().all(|action| action["ended_at"].is_string()), "{document:#}");
    echo.end();
}
