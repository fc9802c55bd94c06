//! Retention deletes data on time, and masking reaches secrets everywhere.

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
use crate::support::pane::Pane;
use crate::support::shim::{Home, SHIM};

/// A secret by its shape.
const KEY: &str = "sk-abcdefghijklmnopqrstuvwxyz012345";
/// A secret by its shape, once its pieces are joined.
const SPLIT: [&str; 3] = ["sk-split", "splitsplit", "split9876"];
/// A secret by the name of its member.
const NAMED: &str = "kornblume-7";
/// A secret only by a pattern, written with escapes.
const OWN: &str = "zimt\"stern\\42";
const PATTERN: &str = "zimt.stern.\\d+";
/// The distinctive line of a private key.
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
        // As early 2026 sends it: in Base64, the second one so long that its row shows only its beginning.
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

/// A run of session `s`: the server sends all these lines, the client has started a turn and answers the request.
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

/// All files below a folder; links are not followed.
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

/// The files that contain any secret, in any encoding.
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

/// The output chunks that contain a part of a secret.
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

/// Returns secrets in all forms: the text, and the random word in it that no other secret has.
fn planted() -> Vec<(String, String)> {
    const FORMS: [&str; 24] = [
        "sk-@",
        "ghp_@",
        "github_pat_@",
        "glpat-@",
        "xoxb-@",
        "npm_@",
        "hf_@",
        "sk_live_@",
        "hvs.@",
        "shpat_@",
        "AIza@",
        "eyJhbGciOiJIUzI1NiJ9.@.@",
        "AWS_SECRET_ACCESS_KEY=@",
        "db_pass: @",
        "aws_secret_access_key = @",
        "export SECRET_KEY_BASE=@",
        "declare -x PRIVATE_KEY=\"@\"",
        "--password @",
        "{\"SecretAccessKey\": \"@\"}",
        "{\\\"private_key\\\":\\\"@\\\"}",
        "Authorization: Basic @",
        "Cookie: sid=@",
        "postgres://u:@#h/db",
        "-----BEGIN RSA PRIVATE KEY-----\n@\n-----END RSA PRIVATE KEY-----",
    ];
    const NEIGHBOURS: [&str; 14] =
        ["", " ", "\"", "'", "=", "a ", "x", "7", "_", "密钥", "キー", "\u{1b}[32m", "\\n", "\\u001b[1;31m"];
    let mut planted = Vec::new();
    for form in FORMS {
        for neighbour in NEIGHBOURS {
            // An option and a header are separate words.
            let joins_word = matches!(neighbour, "x" | "7" | "_" | "=" | "密钥" | "キー");
            if joins_word && (form.starts_with("--p") || form.starts_with("Cookie") || form.starts_with("Auth")) {
                continue;
            }
            let word = format!("q7Zk{:03}Rt9XmW3vL8pBd5Jn2Hf6Y", planted.len());
            // More characters than the largest minimum length.
            let secret = form.replace('@', &format!("{word}c4Gs")).replace('#', "@");
            planted.push((format!("go {neighbour}{secret}\n end"), word));
        }
    }
    // Command lines, whose beginning tells what is secret in them, behind all that stands before one on a screen.
    for command in ["curl -u me:@ https://x", "docker login -p @ r.io", "sshpass -p @ ssh h"] {
        for before in ["", "\u{1b}[32m", "$ ", "+ ", "12:", "   7\t"] {
            let word = format!("q7Zk{:03}Rt9XmW3vL8pBd5Jn2Hf6Y", planted.len());
            planted.push((format!("{before}{}\nend", command.replace('@', &word)), word));
        }
    }
    planted
}

/// Returns the byte at which a text is split into two deltas. Across all secrets, the split falls on every byte.
fn split_of(number: usize, text: &str) -> usize {
    text.floor_char_boundary(1 + number % text.len())
}

/// Returns the lines of a server that sends each secret in two deltas and in two completed items.
fn told_of(planted: &[(String, String)]) -> Vec<String> {
    let mut lines = vec![
        json!({"method": "thread/started", "params": {"thread": {"id": "t"}}}),
        json!({"method": "turn/started", "params": {"threadId": "t", "turn": {"id": "u"}}}),
    ];
    for (number, (text, _)) in planted.iter().enumerate() {
        let (first, second) = text.split_at(split_of(number, text));
        for (kind, method) in [("c", "item/commandExecution/outputDelta"), ("m", "item/agentMessage/delta")] {
            let item = format!("{kind}{number}");
            lines.extend([first, second].map(|delta| {
                json!({"method": method, "params": {"threadId": "t", "turnId": "u", "itemId": item, "delta": delta}})
            }));
        }
        let command = json!({"type": "commandExecution", "id": format!("c{number}"), "command": format!("echo {text}"), "cwd": "/",
            "status": "completed", "aggregatedOutput": text, "exitCode": 0});
        let message = json!({"type": "agentMessage", "id": format!("m{number}"), "text": text});
        lines.extend(
            [command, message].map(
                |item| json!({"method": "item/completed", "params": {"threadId": "t", "turnId": "u", "item": item}}),
            ),
        );
    }
    lines.push(
        json!({"method": "turn/completed", "params": {"threadId": "t", "turn": {"id": "u", "status": "completed"}}}),
    );
    lines.iter().map(Value::to_string).collect()
}

/// Tables whose rows are masked before they are written.
const MASKED_AT_ONCE: [&str; 4] =
    ["codex_events", "codex_tool_events", "codex_turn_events", "codex_transcript_entries"];

/// Returns the whole text of a table.
fn table(home: &Home, name: &str) -> String {
    let history = Connection::open(home.path().join("sessions/s/history.db")).expect("it is there");
    let mut select = history.prepare(&format!("SELECT * FROM {name}")).expect("a table");
    let columns = select.column_count();
    let mut rows = select.query([]).expect("rows");
    let mut text = String::new();
    while let Some(row) = rows.next().expect("a row") {
        for column in 0..columns {
            if let Ok(value) = row.get_ref(column).expect("a value").as_str() {
                text += value;
                text.push('\n');
            }
        }
    }
    text
}

/// Shortest part of a split word that counts as found, in bytes: shorter parts occur by chance.
const HALF_BYTES_MIN: usize = 8;

/// Returns the planted texts of which `text` contains the word, or a half of it as the deltas split it.
fn words_in<'a>(planted: &'a [(String, String)], text: &[u8]) -> Vec<&'a str> {
    let is_in = |(number, (planted, word)): &(usize, &(String, String))| {
        let split = split_of(*number, planted);
        planted.match_indices(word.as_str()).any(|(at, word)| {
            let (first, second) = word.split_at(split.clamp(at, at + word.len()) - at);
            let halves = [word, first, second].into_iter().filter(|half| half.len() >= HALF_BYTES_MIN);
            halves.into_iter().any(|half| memchr::memmem::find(text, half.as_bytes()).is_some())
        })
    };
    planted.iter().enumerate().filter(is_in).map(|(_, (text, _))| text.as_str()).collect()
}

#[test]
fn every_planted_secret_is_masked_in_every_sink() {
    const NONE: [&str; 0] = [];
    let home = Home::new();
    let planted = planted();
    let script = home.beside().join("said");
    fs::write(&script, told_of(&planted).join("\n") + "\n").expect("write");
    let mut relay = home.shell(&format!("cat {}", script.display())).stdout(Stdio::null()).spawn().expect("it starts");
    drop(relay.stdin.take());
    assert!(relay.wait().expect("it ends").success());
    fs::remove_file(script).expect("it is there");
    let output = home.beside().join("output");
    for some in planted.chunks(8) {
        let text: Vec<&str> = some.iter().map(|(text, _)| text.as_str()).collect();
        fs::write(&output, text.join("\n")).expect("write");
        let file = output.to_str().expect("UTF-8");
        done(&home, &["context", "push", "--session", "s", "--cmd", &text.join("\n"), "--output-file", file]);
    }
    fs::remove_file(&output).expect("it is there");
    done(&home, &["prune"]);

    for name in MASKED_AT_ONCE {
        let rows = table(&home, name);
        assert!(rows.contains("[redacted]"), "{name}");
        assert_eq!(words_in(&planted, rows.as_bytes()), NONE, "{name}");
    }
    for file in ["ledger.db", "ledger.db-wal", "shim.log"] {
        let bytes = fs::read(home.path().join("sessions/s").join(file)).unwrap_or_default();
        assert_eq!(words_in(&planted, &bytes), NONE, "{file}");
    }
    let tape = home.beside().join("tape");
    done(&home, &["tape", "export", "s", "--redact", "-o", tape.to_str().expect("UTF-8")]);
    assert_eq!(words_in(&planted, &fs::read(&tape).expect("a tape")), NONE, "tape");
    // The journal contains them until it is redacted.
    let journal =
        |home: &Home| segments(home).iter().flat_map(|path| fs::read(path).expect("it is there")).collect::<Vec<_>>();
    assert_eq!(words_in(&planted, &journal(&home)).len(), planted.len());
    redact(&home, &[]);
    for (path, bytes) in files(&home.path()) {
        assert_eq!(words_in(&planted, &bytes), NONE, "{}", path.display());
    }
    check_readable(&home, "redacted");
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

/// The files but the journal that contain eight characters of a secret in a row, in any case of letters.
fn parts(home: &Home, secret: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (path, bytes) in
        files(&home.path()).into_iter().filter(|(path, _)| !path.to_string_lossy().contains("/journal/"))
    {
        let bytes = bytes.to_ascii_lowercase();
        let lower = secret.to_ascii_lowercase();
        let part = lower.as_bytes().windows(8).find(|part| memchr::memmem::find(&bytes, part).is_some());
        found.extend(part.map(|part| format!("{} in {}", String::from_utf8_lossy(part), path.display())));
    }
    found
}

#[test]
fn no_part_of_a_secret_is_left_beside_a_relay() {
    const SECRET: &str = "Qw7ZrKp2XvTn9LmB4sHd8GfJc5Yt3RbWk6NqVx1PzMhUjEaCoSi0DlFg";
    let home = Home::new();
    let mut relay = home.shell("cat");
    relay.env("CODEX_SHIM_EVENTS_MAX", "50").env("CODEX_SHIM_TOOL_EVENTS_MAX", "20").stdout(Stdio::null());
    let mut relay = relay.spawn().expect("the shim starts");
    let mut stdin = relay.stdin.take().expect("stdin is piped");
    let mut say = |method: &str, params: Value| {
        writeln!(stdin, "{}", json!({ "method": method, "params": params })).expect("it reads");
    };
    say("thread/started", json!({"thread": {"id": "t"}}));
    let mut turn = |number: usize, text: &str| {
        let turn = format!("u{number}");
        say("turn/started", json!({"threadId": "t", "turn": {"id": turn}}));
        for item in 0..30 {
            let command = json!({"type": "commandExecution", "id": format!("c{item}"), "cwd": "/", "status": "inProgress",
                "command": format!("echo {text} {}", "x ".repeat(400))});
            let message = json!({"type": "agentMessage", "id": format!("m{item}"),
                "text": format!("{text} {}", "y ".repeat(3_000))});
            for (method, item) in
                [("item/started", &command), ("item/completed", &message), ("item/completed", &command)]
            {
                say(method, json!({"threadId": "t", "turnId": turn, "item": item}));
            }
        }
        say("turn/completed", json!({"threadId": "t", "turn": {"id": turn, "status": "completed"}}));
    };
    (0..6).for_each(|number| turn(number, SECRET));
    turn(6, "harmless");
    // Retention has deleted rows, whose pages are free.
    eventually("the history has the last rows", || {
        let history = Connection::open(home.path().join("sessions/s/history.db")).ok()?;
        let ended = "SELECT id FROM codex_turn_events WHERE turn_id = 'u6' AND event_type = 'completed'
            AND (SELECT COUNT(*) FROM codex_events) <= 50 AND (SELECT COUNT(*) FROM codex_tool_events) <= 20";
        history.query_row(ended, [], |row| row.get::<_, i64>(0)).ok()
    });
    assert!(!parts(&home, SECRET).is_empty(), "the secret was stored");
    document(&home, &["redact", "--session", "s", "--pattern", SECRET, "--json"]);
    assert_eq!(parts(&home, SECRET), Vec::<String>::new());
    drop(stdin);
    let output = relay.wait_with_output().expect("it ends");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

/// Backdates everything that shows a session's use by `age`.
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
fn prune_deletes_only_what_codex_shim_created() {
    let home = Home::new();
    run_quickly(&home, "old");
    run_quickly(&home, "plain");
    let sessions = home.path().join("sessions");
    let mine = ["notes.txt", "journal/copy.jsonl.gz", "ledger.db.bak", "transcripts/readme.md", "mine/deep/file"];
    for name in mine {
        let path = sessions.join("old").join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, "mine").expect("write");
    }
    fs::write(sessions.join("old/history.db.corrupt-17"), "set aside").expect("write");
    ["old", "plain"].iter().for_each(|name| age(&sessions.join(name), DAY * 40));
    let before: Vec<PathBuf> = files(&sessions).into_keys().collect();
    let would = document(&home, &["prune", "--dry-run", "--json"]);
    assert_eq!(before, files(&sessions).into_keys().collect::<Vec<_>>());
    let shown = tool(&home, &["prune", "--dry-run"]);
    let went = document(&home, &["prune", "--json"]);
    assert_eq!((&would["went"], &would["left"]), (&went["went"], &went["left"]));
    // The report names each file, either as deleted or as left.
    let left: Vec<&str> = went["left"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    let stays = ["journal/copy.jsonl.gz", "ledger.db.bak", "mine", "notes.txt", "transcripts/readme.md"];
    assert_eq!(left, stays.map(|name| format!("sessions/old/{name}")));
    let gone: Vec<PathBuf> = went["went"]
        .as_array()
        .expect("a list")
        .iter()
        .flat_map(|went| went["files"].as_array().expect("a list"))
        .map(|file| home.path().join(file.as_str().expect("a path")))
        .collect();
    let (stdout, stderr) = (String::from_utf8_lossy(&shown.stdout), String::from_utf8_lossy(&shown.stderr));
    for path in &before {
        let name = path.strip_prefix(home.path()).expect("it is below").display().to_string();
        let is_mine = mine.iter().any(|mine| path.ends_with(mine));
        assert_eq!((gone.contains(path), path.exists()), (!is_mine, is_mine), "{name}");
        assert_eq!(stdout.contains(&name), !is_mine, "{name}: {stdout}");
    }
    assert!(left.iter().all(|path| stderr.contains(&format!("{path} stays"))), "{stderr}");
    assert!(!sessions.join("plain").exists());
    // The rest is not a session, and the name is free.
    assert!(document(&home, &["prune", "--json"])["left"].as_array().is_some_and(Vec::is_empty));
    run_quickly(&home, "old");
    assert_eq!(fs::read(sessions.join("old/notes.txt")).expect("it is there"), b"mine");
}

#[test]
fn dry_run_names_files_beside_the_session_folder() {
    let home = Home::new();
    // Without a name, the id of the session is a UUID.
    let output = home.shim(&["run", "--", "cat"]).stdin(Stdio::null()).output().expect("the shim runs");
    assert!(output.status.success(), "{output:?}");
    // What was recorded is indexed now.
    done(&home, &["events"]);
    let session = home.sessions().pop().expect("a session");
    age(&session, DAY * 40);
    let before: Vec<PathBuf> = files(&home.path()).into_keys().collect();
    let (would, went) = (document(&home, &["prune", "--dry-run", "--json"]), document(&home, &["prune", "--json"]));
    assert_eq!(would["went"], went["went"]);
    let named = went["went"][0]["files"].as_array().expect("files").iter().filter_map(Value::as_str);
    let mut named: Vec<PathBuf> = named.map(|name| home.path().join(name)).collect();
    named.sort();
    let left = files(&home.path());
    let gone: Vec<PathBuf> = before.into_iter().filter(|path| !left.contains_key(path)).collect();
    assert_eq!(named, gone);
    for dir in ["marks", "places"] {
        assert!(gone.iter().any(|path| path.starts_with(home.path().join(dir))), "{dir}: {gone:?}");
    }
}

#[test]
fn rests_of_a_removal_keep_what_is_not_ours() {
    let home = Home::new();
    run_quickly(&home, "young");
    let rest = home.path().join("sessions/~going.x.1");
    fs::create_dir(&rest).expect("a folder");
    fs::write(rest.join("lock"), "").expect("write");
    fs::write(rest.join("notes.txt"), "mine").expect("write");
    done(&home, &["prune"]);
    assert!(!rest.join("lock").exists());
    assert_eq!(fs::read(rest.join("notes.txt")).expect("it is there"), b"mine");
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

#[test]
fn redacted_tape_masks_what_the_store_masks() {
    let home = Home::new();
    let line = r#"{"method":"item/completed","params":{"threadId":"t","turnId":"u","item":{"type":"mcpToolCall","id":"i","arguments":{"pair":{"name":"DB_PASSWORD","value":"Zq8RkP2mVw7TtLx3"},"secrets":{"FOO":"Hn4WcY9bJs6KdQe1"}}}}}"#;
    assert!(home.shell(&format!("printf '%s\\n' '{line}'")).output().expect("the shim runs").status.success());
    let tape = home.beside().join("tape");
    done(&home, &["tape", "export", "s", "--redact", "-o", tape.to_str().expect("UTF-8")]);
    let text = fs::read_to_string(&tape).expect("a tape");
    assert!(text.contains("DB_PASSWORD") && text.contains("FOO"), "{text}");
    assert!(!text.contains("Zq8RkP2mVw7TtLx3") && !text.contains("Hn4WcY9bJs6KdQe1"), "{text}");
}

/// A tool at a terminal that asks; `keys` are typed as the answer. Returns the whole output after the last line, `end`.
fn answered(home: &Home, args: &[&str], keys: &str, end: &str) -> String {
    let mut pane = Pane::start_with(home, &[&[SHIM], args].concat(), &[("NO_COLOR", "1")]);
    pane.shows("[y/N] ");
    pane.types(keys);
    pane.shows(end);
    assert_eq!(pane.ends(), 0, "{args:?}: {}", pane.shown());
    pane.shown()
}

#[test]
fn prune_asks_at_a_terminal() {
    let home = Home::new();
    let old = home.path().join("sessions/old");
    let expires = || {
        run_quickly(&home, "old");
        age(&old, DAY * 40);
    };
    expires();
    let before = files(&home.path());
    for keys in ["\n", "n\n", "\u{4}"] {
        let shown = answered(&home, &["prune"], keys, "nothing was deleted");
        assert!(shown.contains("would be deleted; 1 of 1 sessions entirely"), "{shown}");
        assert!(files(&home.path()) == before, "{shown}");
    }
    let shown = answered(&home, &["prune"], "y\n", " deleted; 1 of 1 sessions entirely");
    let (plan, result) = shown.split_once("[y/N] ").expect("a question");
    assert!(plan.contains("SESSION  NAME") && plan.contains("would be deleted"), "{shown}");
    assert!(!result.contains("would be"), "{shown}");
    assert!(!old.exists());
    // Nothing to confirm, a flag that answers, a list, and stdin that is not the terminal.
    let script = |args: &str| format!("{SHIM} prune {args}; echo so that ''is all");
    let unasked = |args: &str, told: &str| {
        let mut pane = Pane::start_with(&home, &["sh", "-c", &script(args)], &[("NO_COLOR", "1")]);
        let shown = pane.shows("so that is all");
        assert!(shown.contains(told) && !shown.contains("[y/N]"), "{args}: {shown}");
    };
    unasked("", "nothing to delete");
    expires();
    unasked("--dry-run", "would be deleted");
    assert!(old.exists());
    unasked("--yes", " deleted; 1 of 1 sessions entirely");
    assert!(!old.exists());
    expires();
    unasked("</dev/null", " deleted; 1 of 1 sessions entirely");
    assert!(!old.exists());
    // Stdout holds the document alone.
    expires();
    let document = home.beside().join("document");
    let piped = format!("{SHIM} prune --json > {}", document.display());
    let mut pane = Pane::start(&home, &["sh", "-c", &piped]);
    pane.shows("would be deleted");
    pane.shows("[y/N] ");
    assert_eq!(fs::read(&document).expect("it is there"), b"");
    pane.types("yes\n");
    assert_eq!(pane.ends(), 0);
    let told: Value = serde_json::from_slice(&fs::read(&document).expect("it is there")).expect("one document");
    assert_eq!((&told["dry_run"], &told["total"]["count"]), (&json!(false), &json!(1)), "{told}");
    assert!(!old.exists());
}

#[test]
fn redact_asks_at_a_terminal() {
    let home = Home::new();
    run(&home, 1);
    done(&home, &["prune"]);
    let before = files(&home.path());
    let args = ["redact", "--all", "--pattern", PATTERN];
    let shown = answered(&home, &args, "n\n", "nothing was masked");
    assert!(shown.contains("journal records would be masked"), "{shown}");
    assert!(files(&home.path()) == before, "{shown}");
    let shown = answered(&home, &args, "y\n", "journal records masked");
    assert!(shown.contains("journal records would be masked"), "{shown}");
    assert_eq!(leaks(&home), Vec::<String>::new());
    for more in ["", "--yes", "</dev/null"] {
        let script = format!("{SHIM} redact --all {more}; echo so that ''is all");
        let mut pane = Pane::start(&home, &["sh", "-c", &script]);
        let shown = pane.shows("so that is all");
        assert!(shown.contains("no secrets found") && !shown.contains("[y/N]"), "{more}: {shown}");
    }
}
