//! What is kept goes when it should, and secrets in it are masked everywhere.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::kills::spread;
use crate::support::eventually;
use crate::support::shim::Home;

/// Known by its shape.
const KEY: &str = "sk-abcdefghijklmnopqrstuvwxyz012345";
/// Known by its shape once its pieces are put together.
const SPLIT: [&str; 3] = ["sk-split", "splitsplit", "split9876"];
/// Known by the name that it is under.
const NAMED: &str = "kornblume-7";
/// Known by a pattern alone, and written with escapes.
const OWN: &str = "zimt\"stern\\42";
const PATTERN: &str = "zimt.stern.\\d+";
/// The line of a private key that can be told from others.
const PEM: &str = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC";

const DAY: Duration = Duration::from_secs(86_400);

fn tool(home: &Home, args: &[&str]) -> Output {
    let mut command = home.shim(args);
    command.env("CODEX_SHIM_TRANSCRIPT_FILES", "true").stdin(Stdio::null());
    command.output().expect("the shim runs")
}

fn done(home: &Home, args: &[&str]) -> String {
    let output = tool(home, args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).expect("it is UTF-8")
}

fn document(home: &Home, args: &[&str]) -> Value {
    serde_json::from_str(&done(home, args)).expect("one document")
}

fn redact(home: &Home, more: &[&str]) -> Value {
    document(home, &[&["redact", "--session", "s", "--pattern", PATTERN, "--json"], more].concat())
}

/// A conversation full of secrets, `turns` turns long.
fn lines(turns: usize) -> Vec<String> {
    let mut lines = vec![json!({"method": "thread/started", "params": {"thread": {"id": "t"}}})];
    for turn in 0..turns {
        let turn_id = format!("u{turn}");
        let in_turn = |method: &str, more: Value| {
            let mut params = json!({"threadId": "t", "turnId": turn_id});
            more.as_object().expect("members").iter().for_each(|(name, value)| params[name] = value.clone());
            json!({"method": method, "params": params})
        };
        let item = format!("i{turn}");
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{PEM}\n-----END PRIVATE KEY-----\n");
        lines.push(in_turn("turn/started", json!({"turn": {"id": turn_id}})));
        lines.extend(SPLIT.map(|piece| in_turn("item/agentMessage/delta", json!({"itemId": item, "delta": piece}))));
        // As early 2026 tells it: in Base64, the second so long that its row shows the start only.
        let (first, second) = OWN.split_at(OWN.len() / 2);
        lines.extend([format!("a {first}"), format!("{second} {}", "x".repeat(6_000))].map(|text| {
            let msg = json!({"type": "exec_command_output_delta", "call_id": format!("c{turn}"), "stream": "stdout",
                "chunk": BASE64_STANDARD.encode(text)});
            json!({"method": "codex/event/exec_command_output_delta",
                "params": {"id": turn_id, "msg": msg, "conversationId": "t"}})
        }));
        let message = json!({"type": "agentMessage", "id": item, "text": format!("{} {KEY} {OWN}", SPLIT.concat())});
        lines.push(in_turn("item/completed", json!({"item": message})));
        let command = json!({"type": "commandExecution", "id": format!("c{turn}"), "command": format!("login {OWN}"),
            "cwd": "/", "status": "completed", "aggregatedOutput": pem, "exitCode": 0, "env": {"DB_PASSWORD": NAMED}});
        lines.push(in_turn("item/started", json!({"item": command})));
        lines.push(in_turn("item/completed", json!({"item": command})));
        lines.push(in_turn("turn/completed", json!({"turn": {"id": turn_id, "status": "completed"}})));
    }
    lines.push(json!({"id": 7, "method": "item/commandExecution/requestApproval",
        "params": {"threadId": "t", "turnId": "u0", "itemId": "c0", "command": format!("curl -H 'Authorization: Bearer {KEY}' {OWN}")}}));
    lines.iter().map(Value::to_string).collect()
}

/// A run of session `s`: the server says all that, the client has asked for a turn and answers the request.
fn run(home: &Home, turns: usize) {
    let script = home.beside().join("said");
    fs::write(&script, lines(turns).join("\n") + "\n").expect("write");
    let mut command = home.shell(&format!("read -r line; cat {}; cat > /dev/null", script.display()));
    let mut relay = command.stdout(Stdio::null()).spawn().expect("the shim starts");
    let mut stdin = relay.stdin.take().expect("stdin is piped");
    let asked = json!({"id": 1, "method": "turn/start", "params": {"threadId": "t", "input": [{"type": "text", "text": format!("use {KEY} and {OWN}")}]}});
    writeln!(stdin, "{asked}").expect("it reads");
    let session = home.path().join("sessions/s");
    eventually("the request is kept", || {
        let ledger = Connection::open(session.join("ledger.db")).ok()?;
        let count = "SELECT COUNT(*) FROM codex_pending_requests WHERE status = 'pending'";
        ledger.query_row(count, [], |row| row.get::<_, i64>(0)).ok().filter(|count| *count == 1)
    });
    writeln!(stdin, "{}", json!({"id": 7, "result": {"decision": "decline", "reason": OWN}})).expect("it reads");
    drop(stdin);
    assert!(relay.wait().expect("it ends").success());
    fs::remove_file(script).expect("it is there");
    done(home, &["context", "push", "--session", "s", "--cmd", &format!("echo {KEY} {OWN}")]);
}

/// All files below a folder, links left as such.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).expect("a folder") {
            let entry = entry.expect("an entry");
            let kind = entry.file_type().expect("a kind");
            if kind.is_dir() {
                dirs.push(entry.path());
            } else if kind.is_file() {
                found.insert(entry.path(), fs::read(entry.path()).expect("it can be read"));
            }
        }
    }
    found
}

/// The files in which any secret stands, in whatever way it is written.
fn leaks(home: &Home) -> Vec<String> {
    let escaped = |text: &str| {
        let once = Value::from(text).to_string().trim_matches('"').to_owned();
        let twice = Value::from(&*once).to_string().trim_matches('"').to_owned();
        [text.to_owned(), once, twice]
    };
    let mut secrets = vec![KEY.to_owned(), NAMED.to_owned(), PEM.to_owned()];
    secrets.extend(SPLIT.iter().skip(1).map(|piece| (*piece).to_owned()));
    secrets.extend(escaped(OWN));
    let mut found = Vec::new();
    for (path, bytes) in files(&home.path()) {
        for secret in &secrets {
            if memchr::memmem::find(&bytes, secret.as_bytes()).is_some() {
                found.push(format!("{secret} in {}", path.display()));
            }
        }
        found.extend(in_base64(&bytes).map(|text| format!("{text} in Base64 in {}", path.display())));
    }
    found
}

/// The chunks of output in which a part of a secret stands.
fn in_base64(bytes: &[u8]) -> impl Iterator<Item = String> {
    memchr::memmem::find_iter(bytes, b"chunk").filter_map(|at| {
        let is_sign = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
        let rest = &bytes[at + "chunk".len()..];
        let from = rest.iter().position(|byte| is_sign(&byte))?;
        let length = rest[from..].iter().take_while(is_sign).count();
        let text = String::from_utf8(BASE64_STANDARD.decode(&rest[from..from + length / 4 * 4]).ok()?).ok()?;
        let (first, second) = OWN.split_at(OWN.len() / 2);
        (text.contains(first) || text.contains(second)).then_some(text)
    })
}

fn segments(home: &Home) -> Vec<PathBuf> {
    let journal = home.path().join("sessions/s/journal");
    let mut found: Vec<PathBuf> =
        fs::read_dir(journal).expect("a folder").map(|entry| entry.expect("one").path()).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    found.sort();
    found
}

/// Numbers, kinds, threads and places of all events.
fn events(home: &Home) -> Vec<String> {
    let history = Connection::open(home.path().join("sessions/s/history.db")).expect("it is there");
    let select =
        "SELECT seq || ' ' || event_type || ' ' || IFNULL(thread_id, '') || ' ' || IFNULL(delta_count, 0) || ' '
        || generation || ' ' || segment || ' ' || byte_offset FROM codex_events ORDER BY seq";
    let mut select = history.prepare(select).expect("a table");
    let rows = select.query_map([], |row| row.get(0)).expect("rows");
    rows.collect::<Result<_, _>>().expect("text")
}

fn check_readable(home: &Home, what: &str) {
    for segment in segments(home) {
        let checked = tool(home, &["tape", "check", segment.to_str().expect("UTF-8")]);
        assert!(checked.status.success(), "{what}: {checked:?}");
    }
    for name in ["history.db", "ledger.db"] {
        let path = home.path().join("sessions/s").join(name);
        if path.exists() {
            let database = Connection::open(path).expect("it can be opened");
            let check: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("a word");
            assert_eq!(check, "ok", "{what}: {name}");
        }
    }
}

#[test]
fn a_redacted_store_has_the_secrets_nowhere_and_is_the_same_otherwise() {
    let home = Home::new();
    run(&home, 3);
    run(&home, 2);
    let session = home.path().join("sessions/s");
    fs::write(session.join("history.db.corrupt-1"), format!("\0\u{1}{KEY}\0")).expect("write");
    assert!(!document(&home, &["prune", "--json"])["dry_run"].as_bool().expect("told"));
    let (before, lengths) = (
        events(&home),
        segments(&home).iter().map(|path| fs::metadata(path).expect("it is there").len()).collect::<Vec<_>>(),
    );
    let times: Vec<_> = segments(&home)
        .iter()
        .map(|path| fs::metadata(path).expect("it is there").modified().expect("a time"))
        .collect();
    assert!(before.len() > 20 && leaks(&home).len() > 5, "{before:?} {:?}", leaks(&home));

    let dry = redact(&home, &["--dry-run"]);
    let wet = redact(&home, &[]);
    assert_eq!(wet["masked"], dry["masked"]);
    let places: Vec<&str> =
        wet["masked"].as_array().expect("a list").iter().filter_map(|found| found["place"].as_str()).collect();
    assert_eq!(places, ["journal", "history", "ledger", "transcripts", "log"], "{wet}");
    assert_eq!(leaks(&home), Vec::<String>::new());
    check_readable(&home, "redacted");
    assert_eq!(
        segments(&home).iter().map(|path| fs::metadata(path).expect("it is there").len()).collect::<Vec<_>>(),
        lengths
    );
    assert_eq!(
        segments(&home)
            .iter()
            .map(|path| fs::metadata(path).expect("it is there").modified().expect("a time"))
            .collect::<Vec<_>>(),
        times
    );
    assert_eq!(events(&home), before);
    let again = redact(&home, &[]);
    assert_eq!(again["masked"], json!([]), "{again}");

    fs::remove_file(session.join("history.db")).expect("it is there");
    done(&home, &["prune"]);
    assert_eq!(events(&home), before, "built again");
    assert_eq!(leaks(&home), Vec::<String>::new());
    let transcript = fs::read_to_string(session.join("transcripts/t.jsonl")).expect("it is there");
    assert_eq!(transcript.lines().collect::<std::collections::BTreeSet<_>>().len(), transcript.lines().count());
    run(&home, 1);
    done(&home, &["prune"]);
    assert!(events(&home).len() > before.len() && events(&home).starts_with(&before));
}

#[test]
fn to_look_changes_no_byte() {
    let home = Home::new();
    run(&home, 1);
    done(&home, &["prune"]);
    let before = files(&home.path());
    let told = done(&home, &["prune", "--dry-run", "--older-than", "0s"]);
    assert!(told.contains("session ") && told.contains("1 of 1 sessions entirely"), "{told}");
    assert!(done(&home, &["redact", "--all", "--dry-run"]).contains("would be masked"));
    assert!(!done(&home, &["prune", "--dry-run"]).contains("would be deleted"));
    let after = files(&home.path());
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
    assert!(before == after);
}

#[test]
fn kills_in_the_middle_of_a_redaction_leave_a_store_that_can_be_read() {
    let home = Home::new();
    run(&home, 200);
    done(&home, &["prune"]);
    let before = events(&home);
    let mut killed = 0;
    for number in 0..30 {
        let mut redacting = home.shim(&["redact", "--session", "s", "--pattern", PATTERN]);
        let mut redacting = redacting.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the shim starts");
        let looks = spread(number) % 60_000;
        if !(0..looks).any(|_| redacting.try_wait().expect("it is ours").is_some()) {
            killed += 1;
        }
        let _ = redacting.kill();
        redacting.wait().expect("it is ours");
        check_readable(&home, &format!("kill {number}"));
        assert_eq!(events(&home), before, "kill {number}");
    }
    assert!(killed > 3, "{killed}");
    redact(&home, &[]);
    assert_eq!(leaks(&home), Vec::<String>::new());
    let rests = files(&home.path()).into_keys().filter(|path| path.extension().is_some_and(|end| end == "redacting"));
    assert_eq!(rests.count(), 0);
}

#[test]
fn beside_a_relay_closed_segments_and_what_is_stored_are_masked() {
    let home = Home::new();
    run(&home, 2);
    let mut relay = home.shell("cat").spawn().expect("the shim starts");
    let mut stdin = relay.stdin.take().expect("stdin is piped");
    writeln!(stdin, "{{\"method\":\"x\",\"params\":{{\"text\":\"{KEY}\"}}}}").expect("it reads");
    let of_closed = |found: &Vec<String>| found.iter().filter(|leak| leak.contains("journal")).count();
    let last = eventually("what is closed is masked", || {
        redact(&home, &[]);
        let (found, last) = (leaks(&home), segments(&home).pop()?);
        let last = last.display().to_string();
        (segments(&home).len() == 2 && found.iter().all(|leak| !leak.contains("journal") || leak.contains(&last)))
            .then_some(last)
    });
    assert!(of_closed(&leaks(&home)) > 0, "the segment that is written stays");
    writeln!(stdin, "{{\"method\":\"y\"}}").expect("it reads");
    drop(stdin);
    let output = relay.wait_with_output().expect("it ends");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    redact(&home, &[]);
    assert_eq!(leaks(&home), Vec::<String>::new(), "{last}");
    check_readable(&home, "after the relay");
}

/// Makes all that tells of a session's use so old.
fn age(session: &Path, age: Duration) {
    for path in files(session).into_keys() {
        let file = fs::File::options().write(true).open(path).expect("it is there");
        file.set_modified(SystemTime::now() - age).expect("a time");
    }
}

#[test]
fn sessions_that_nobody_uses_go_and_no_link_is_followed() {
    let home = Home::new();
    run(&home, 1);
    let sessions = home.path().join("sessions");
    let outside = home.beside().join("outside");
    fs::rename(sessions.join("s"), &outside).expect("it can be moved");
    std::os::unix::fs::symlink(&outside, sessions.join("s")).expect("a link");
    run_quickly(&home, "old");
    run_quickly(&home, "young");
    age(&outside, DAY * 40);
    age(&sessions.join("old"), DAY * 40);
    std::os::unix::fs::symlink(&outside, sessions.join("old/transcripts")).expect("a link");
    let before = files(&outside);
    let would = document(&home, &["prune", "--dry-run", "--json"]);
    let went = document(&home, &["prune", "--json"]);
    assert_eq!(would["went"], went["went"]);
    assert_eq!((&went["went"][0]["session_id"], &went["went"][0]["what"]), (&json!("old"), &json!("session")));
    assert!(went["went"].as_array().is_some_and(|went| went.len() == 1), "{went}");
    assert!(!sessions.join("old").exists() && sessions.join("young").exists());
    done(&home, &["redact", "--all"]);
    assert_eq!(tool(&home, &["redact", "--session", "s"]).status.code(), Some(1));
    assert_eq!(tool(&home, &["prune", "--session", "s", "--older-than", "1s"]).status.code(), Some(1));
    assert!(files(&outside) == before);
    let places: Vec<Vec<u8>> = files(&home.path().join("places")).into_values().collect();
    assert!(places.iter().all(|place| place != b"old"), "{places:?}");
}

fn run_quickly(home: &Home, name: &str) {
    let mut command = home.shim(&["run", "--session", name, "--", "cat"]);
    let output = command.stdin(Stdio::null()).output().expect("the shim runs");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn old_segments_and_rows_go_and_what_is_new_stays() {
    let home = Home::new();
    run(&home, 2);
    run(&home, 1);
    let all = segments(&home);
    let file = fs::File::options().write(true).open(&all[0]).expect("it is there");
    file.set_modified(SystemTime::now() - DAY * 8).expect("a time");
    let config = home.path().join("config.toml");
    fs::write(&config, "events_max = 5\n").expect("write");
    let went = document(&home, &["prune", "--json"]);
    let kinds: Vec<&str> =
        went["went"].as_array().expect("a list").iter().filter_map(|went| went["what"].as_str()).collect();
    assert_eq!(kinds, ["journal_segments", "events"], "{went}");
    assert_eq!(segments(&home), all[1..]);
    assert_eq!(events(&home).len(), 5);
    let last: u64 = events(&home)[4].split(' ').next().and_then(|seq| seq.parse().ok()).expect("a number");
    assert!(last > 20, "what went was indexed first: {last}");
    assert!(done(&home, &["prune"]).contains("nothing to delete"));
    fs::write(&config, "events_mex = 5\n").expect("write");
    assert_eq!(tool(&home, &["prune"]).status.code(), Some(1));
}

#[test]
fn what_is_asked_wrongly_is_told() {
    let home = Home::new();
    assert!(done(&home, &["prune"]).contains("nothing to delete"));
    assert!(done(&home, &["redact", "--all"]).contains("no secrets found"));
    for (args, status) in [
        (&["redact", "--session", "x"][..], 3),
        (&["prune", "--session", "x"], 3),
        (&["redact", "--all", "--pattern", "("], 2),
        (&["prune", "--older-than", "soon"], 2),
        (&["redact", "--all", "--session", "s"], 2),
    ] {
        assert_eq!(tool(&home, args).status.code(), Some(status), "{args:?}");
    }
}

#[test]
fn a_wrong_pattern_is_shown_with_its_place() {
    let home = Home::new();
    let output = home.shim(&["redact", "--all", "--pattern", "ab[c"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let stderr = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(stderr.starts_with("codex-shim: `ab[c` is not a valid regular expression:\n"), "{stderr}");
    assert!(stderr.contains("\n    ab[c\n      ^\n"), "{stderr}");
}
