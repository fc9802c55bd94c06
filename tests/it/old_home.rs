//! A home that version 0.1 wrote (`fixtures/home-0.1`), opened with this build: every tool works on it, no row is lost, and a
//! new relay goes on in it.
//!
//! The tests compare rows and events by content, and never the bytes of `history.db`: a later build may migrate or rebuild it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use rusqlite::Connection;
use rusqlite::types::Value as Cell;
use serde_json::{Value, json};

use crate::support::both_ends::{Live, carried, envelope, names, told, turn};
use crate::support::eventually;
use crate::support::pane::Pane;
use crate::support::shim::{Home, SHIM, put_program};
use crate::support::tmux::Tmux;

/// The folder that held the home when version 0.1 wrote it.
const OLD_ROOT: &str = "/tmp/home-of-0.1";

/// The session of the working directory. Its secrets were masked, and its history was pruned.
const UNNAMED: &str = "01a204f3-f59f-767e-8696-f692b2c31af9";
const SESSIONS: [&str; 4] = [UNNAMED, "context", "killed", "main"];

/// Limits so high that the fixture never exceeds them, however old it is.
const RETENTION: &str = "journal_age_max = \"1000y\"\nhistory_age_max = \"1000y\"\nsession_age_max = \"1000y\"\n";

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/home-0.1")
}

/// A copy of the home with its original modes. Files that name the home itself name the copy.
pub fn old_home() -> Home {
    let home = Home::new();
    copy(&fixture().join("home"), &home.path(), home.beside());
    copy(&fixture().join("user"), &home.beside().join("user"), home.beside());
    for file in [home.path().join("wrapped.json"), home.beside().join("user/.config/Code/User/settings.json")] {
        let text = fs::read_to_string(&file).expect("it is there");
        fs::write(&file, text.replace(OLD_ROOT, &home.beside().display().to_string())).expect("write");
    }
    let config = home.path().join("config.toml");
    let text = fs::read_to_string(&config).expect("it is there");
    fs::write(&config, format!("{RETENTION}{text}")).expect("write");
    home
}

fn copy(from: &Path, to: &Path, root: &Path) {
    fs::create_dir(to).expect("a folder");
    fs::set_permissions(to, fs::Permissions::from_mode(0o700)).expect("a mode");
    for entry in fs::read_dir(from).expect("a folder") {
        let from = entry.expect("an entry").path();
        let to = to.join(from.file_name().expect("a name"));
        if from.is_symlink() {
            let leads_to = fs::read_link(&from).expect("a link");
            let below = leads_to.strip_prefix(OLD_ROOT).expect("it leads into the old home");
            symlink(root.join(below), to).expect("a link");
        } else if from.is_dir() {
            copy(&from, &to, root);
        } else {
            fs::write(&to, fs::read(&from).expect("a file")).expect("write");
            fs::set_permissions(&to, fs::Permissions::from_mode(0o600)).expect("a mode");
        }
    }
}

pub fn tool(home: &Home, args: &[&str]) -> Output {
    home.shim(args).current_dir(home.beside()).stdin(Stdio::null()).output().expect("the tool runs")
}

/// The JSON document that a tool prints.
fn document(home: &Home, args: &[&str]) -> Value {
    told(&tool(home, args))
}

/// The JSON lines that a tool prints.
fn lines(home: &Home, args: &[&str]) -> Vec<Value> {
    let output = tool(home, args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn list<'a>(document: &'a Value, name: &str) -> &'a Vec<Value> {
    document[name].as_array().unwrap_or_else(|| panic!("no {name}: {document}"))
}

/// Rows of a table: the values of these columns, as SQLite returns them.
fn rows(database: &Path, table: &str, columns: &[String]) -> Vec<Vec<Cell>> {
    let connection = Connection::open(database).expect("it opens");
    let sql = format!("SELECT {} FROM {table} ORDER BY rowid", columns.join(", "));
    let mut statement = connection.prepare(&sql).expect("the columns are there");
    let row = |row: &rusqlite::Row<'_>| (0..columns.len()).map(|at| row.get(at)).collect::<Result<Vec<Cell>, _>>();
    statement.query_map([], row).expect("it reads").collect::<Result<_, _>>().expect("rows")
}

/// The tables of a database and their columns, except SQLite's own.
fn tables(database: &Path) -> BTreeMap<String, Vec<String>> {
    let connection = Connection::open(database).expect("it opens");
    let names = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
    let mut statement = connection.prepare(names).expect("a schema");
    let names: Vec<String> =
        statement.query_map([], |row| row.get(0)).expect("it reads").collect::<Result<_, _>>().expect("names");
    let columns = |name: &String| -> Vec<String> {
        let mut statement = connection.prepare("SELECT name FROM pragma_table_info(?1)").expect("a pragma");
        let columns = statement.query_map([name], |row| row.get(0)).expect("it reads");
        columns.collect::<Result<_, _>>().expect("columns")
    };
    names.iter().map(|name| (name.clone(), columns(name))).collect()
}

/// A session's ledger as version 0.1 left it: the columns and rows of each table.
type Ledger = BTreeMap<String, (Vec<String>, Vec<Vec<Cell>>)>;

fn old_ledger(session: &str) -> Ledger {
    let home = old_home();
    let path = home.path().join("sessions").join(session).join("ledger.db");
    let read = |(table, columns): (String, Vec<String>)| {
        let rows = rows(&path, &table, &columns);
        (table, (columns, rows))
    };
    tables(&path).into_iter().map(read).collect()
}

fn text(value: &str) -> Cell {
    Cell::Text(value.to_owned())
}

/// Brings a row to the state that the next start gives it: open requests are orphaned. Returns the columns whose values
/// the start chooses.
fn brought_forward(table: &str, columns: &[String], row: &mut [Cell]) -> Vec<usize> {
    let at = |name: &str| columns.iter().position(|column| column == name).expect("a column of 0.1");
    let mut chosen = Vec::new();
    match table {
        "codex_pending_requests" if matches!(&row[at("status")], Cell::Text(status) if status == "pending" || status == "expired") =>
        {
            row[at("status")] = text("orphaned");
            row[at("error_code")] = text("server_restarted");
            row[at("resolution_source")] = text("policy");
            chosen.extend([at("resolved_at"), at("error_message")]);
        }
        // A start sets `unknown`; a tool leaves the value.
        "codex_context_deliveries" if row[at("outcome")] == text("sent") => chosen.push(at("outcome")),
        "codex_seq_marks" => chosen.push(at("reserved")),
        _ => {}
    }
    chosen
}

/// Checks that the ledger still holds every row with every column.
fn assert_kept(home: &Home, session: &str, old: &Ledger) {
    let path = home.path().join("sessions").join(session).join("ledger.db");
    for (table, (columns, old_rows)) in old {
        let now = rows(&path, table, columns);
        for old_row in old_rows {
            let mut expect = old_row.clone();
            let chosen = brought_forward(table, columns, &mut expect);
            let is_same = |row: &&Vec<Cell>| (0..columns.len()).all(|at| chosen.contains(&at) || row[at] == expect[at]);
            let count = now.iter().filter(is_same).count();
            assert_eq!(count, 1, "{session}: {table}: {expect:?} is one of {now:?}");
        }
    }
}

/// An event without its number.
fn content(event: &Value) -> Vec<Value> {
    let members =
        ["timestamp", "event_type", "thread_id", "turn_id", "item_id", "generation", "delta_count", "payload_preview"];
    members.iter().map(|name| event[*name].clone()).collect()
}

/// The events that version 0.1 had numbered, by their numbers.
fn old_events(session: &str) -> BTreeMap<u64, Vec<Value>> {
    let home = old_home();
    let database = home.path().join("sessions").join(session).join("history.db");
    let columns = "seq, timestamp, event_type, thread_id, turn_id, item_id, generation, delta_count, payload_preview";
    let columns: Vec<String> = columns.split(", ").map(str::to_owned).collect();
    let value = |(at, cell): (usize, &Cell)| match cell {
        Cell::Text(text) if columns[at] == "payload_preview" => serde_json::from_str(text).expect("JSON"),
        Cell::Text(text) => json!(text),
        Cell::Integer(number) => json!(number),
        Cell::Null | Cell::Real(_) | Cell::Blob(_) => Value::Null,
    };
    let row = |row: Vec<Cell>| {
        let mut values = row.iter().enumerate().map(value).collect::<Vec<_>>();
        (values.remove(0).as_u64().expect("a number"), values)
    };
    rows(&database, "codex_events", &columns).into_iter().map(row).collect()
}

/// All events of a session as reported today.
fn events(home: &Home, session: &str) -> Vec<Value> {
    list(&document(home, &["events", "--session", session, "--since", "0", "--json"]), "events").clone()
}

/// Checks that today's events include all the old ones, in order and with their numbers.
fn assert_told(home: &Home, session: &str) {
    let told: BTreeMap<u64, Vec<Value>> =
        events(home, session).iter().map(|event| (event["seq"].as_u64().expect("a number"), content(event))).collect();
    let old = old_events(session);
    assert!(old.len() > 10, "{session}: {}", old.len());
    for (seq, expect) in old {
        assert_eq!(told.get(&seq), Some(&expect), "{session}: event {seq}");
    }
}

fn assert_no_damage(home: &Home) {
    for session in home.sessions() {
        for entry in fs::read_dir(&session).expect("a folder") {
            let name = entry.expect("a file").file_name().into_string().expect("UTF-8");
            assert!(!name.contains("corrupt") && !name.contains("newer"), "{name} was set aside");
        }
    }
}

#[test]
fn old_fixture_is_small_and_of_no_machine() {
    let mut bytes = 0;
    let mut folders = vec![fixture()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_symlink() {
                assert!(fs::read_link(&path).expect("a link").starts_with(OLD_ROOT), "{}", path.display());
            } else if path.is_dir() {
                folders.push(path);
            } else {
                let text = fs::read(&path).expect("a file");
                bytes += text.len();
                let text = String::from_utf8_lossy(&text).replace(OLD_ROOT, "");
                for foreign in ["/root", "/Users/", env!("CARGO_MANIFEST_DIR"), "uid 0,", " root"] {
                    assert!(!text.contains(foreign), "{}: {foreign}", path.display());
                }
            }
        }
    }
    assert!(bytes < 1_000_000, "{bytes}");
}

#[test]
fn old_fixture_holds_every_kind_and_end() {
    let column = |name: &str| {
        let values = SESSIONS.map(|session| {
            let ledger = old_ledger(session);
            let (columns, rows) = &ledger["codex_pending_requests"];
            let at = columns.iter().position(|column| column == name).expect("a column");
            rows.iter()
                .filter_map(|row| if let Cell::Text(text) = &row[at] { Some(text.clone()) } else { None })
                .collect()
        });
        values.into_iter().flat_map(|values: Vec<String>| values).collect::<std::collections::BTreeSet<String>>()
    };
    let all = |words: &str| words.split(' ').map(str::to_owned).collect();
    assert_eq!(
        column("request_method"),
        all(concat!(
            "applyPatchApproval execCommandApproval item/commandExecution/requestApproval item/fileChange/requestApproval ",
            "item/permissions/requestApproval item/tool/requestUserInput lab/unknown mcpServer/elicitation/request"
        ))
    );
    assert_eq!(column("status"), all("expired orphaned pending resolved"));
    assert_eq!(column("resolution_source"), all("api client policy server tui"));
    assert_eq!(
        column("error_code"),
        all("outcome_unknown request_expired server_exited server_restarted withdrawn_by_server")
    );
    assert!(column("request_id").iter().any(|name| name.ends_with("-0.2")));
    let sources = ["codex_context_commands", "codex_fragment_states", "codex_projection_epochs"];
    assert!(sources.iter().all(|table| !old_ledger("context")[*table].1.is_empty()));
}

#[test]
fn old_ledger_and_history_survive_every_tool() {
    let old: BTreeMap<&str, Ledger> = SESSIONS.into_iter().map(|session| (session, old_ledger(session))).collect();
    let home = old_home();
    for session in SESSIONS {
        let status = document(&home, &["status", "--session", session, "--json"]);
        assert_eq!((&status["session_id"], &status["state"]), (&json!(session), &json!("stopped")));
        assert_eq!(status["index"]["persisted"], true, "{session}: {status}");
        let requests = document(&home, &["requests", "--session", session, "--all", "--json"]);
        let requests = list(&requests, "requests");
        assert_eq!(requests.len(), old[session]["codex_pending_requests"].1.len());
        for request in requests {
            let name = request["request_id"].as_str().expect("a name");
            let shown = document(&home, &["show", name, "--session", session, "--json"]);
            assert_eq!(shown["request"]["request_id"], name);
            assert_ne!(shown["request"]["status"], "pending", "nobody is left to answer it");
        }
        assert_told(&home, session);
        let actions = document(&home, &["tail", "--session", session, "--json"]);
        assert_eq!(list(&actions, "actions").is_empty(), session == "context", "{session}");
        document(&home, &["children", "--session", session, "--json"]);
        document(&home, &["context", "show", "--session", session, "--json"]);
        tool(&home, &["context", "show", "--last", "--session", session, "--json"]);
        document(&home, &["fragments", "--session", session, "--json"]);
        assert_kept(&home, session, &old[session]);
    }
    assert_eq!(list(&document(&home, &["sessions", "--json"]), "sessions").len(), SESSIONS.len());
    assert_eq!(document(&home, &["prune", "--dry-run", "--json"])["went"], json!([]));
    assert_eq!(tool(&home, &["send", "hello", "--session", "main"]).status.code(), Some(4));
    assert_no_damage(&home);
}

/// Tools that change something, need a running relay or wait, each with its exit status and words that it prints.
#[test]
fn every_other_tool_works_on_the_old_home() {
    let home = old_home();
    let not_running = "main is not running";
    for (args, status, words) in [
        (&["wait", "--for", "idle", "--session", "main", "--timeout", "1s"][..], 4, not_running),
        (&["interrupt", "main"], 4, not_running),
        (&["attach", "main"], 4, not_running),
        (&["respond", "latest", "accept", "--session", "main"], 3, "no requests are pending"),
        (&["context", "push", "--session", "main", "--cmd", "ls"], 0, "session main carries"),
        (&["context", "drop", "1000", "--session", "context"], 1, "no command with the number `1000` waits"),
        (&["context", "clear", "--session", "context"], 0, "no commands are waiting in session context"),
        (&["exec", "--session", "main", "--", "echo", "run anyway"], 0, "run anyway"),
        (&["tape", "show", "killed"], 0, "codex-shim 0.1.0"),
        (&["events", "main"], 0, "request_resolved"),
        (&["tail", "main", "-n", "100"], 0, "Approval failed"),
        (&["transcript", "latest", "--session", "context"], 0, "another thread"),
        (&["search", "touch", "--kind", "command"], 0, "touch x"),
        (&["search", "--regex", "run.before"], 0, "the run before"),
        (&["children"], 0, "killed"),
        (&["prune"], 0, "nothing to delete"),
        (&["usage"], 0, "the record has no earlier turns"),
        (&["usage", "--session", "killed"], 0, "client:1"),
        (&["drift"], 2, "name one with --codex"),
        (&["reviews"], 0, "has denied nothing in any session"),
        (&["overrule", "latest"], 3, "no denial of a running session"),
        (&["rules"], 0, "no rules are set"),
        (&["notify", "test"], 1, "no command is configured"),
        (&["hub", "status"], 4, "no hub is running"),
        (&["audit", "export", "-o", "audit.jsonl"], 0, "the last hash is"),
        (&["audit", "verify", "audit.jsonl"], 0, "audit.jsonl is intact"),
        (&["wrap"], 2, "no target"),
        (&["hook", "bash"], 0, "codex-shim"),
        (&["completions", "zsh"], 0, "codex-shim"),
        (&["unwrap", "--dry-run"], 0, "would"),
    ] {
        let output = tool(&home, args);
        let said = [&output.stdout[..], &output.stderr].concat();
        let said = String::from_utf8(said).expect("UTF-8");
        assert_eq!(output.status.code(), Some(status), "{args:?}: {said}");
        assert!(said.contains(words), "{args:?}: {said}");
    }
    let mut pane = Pane::start(&home, &[SHIM, "shell", "bash", "--session", "main"]);
    pane.types("echo in a shell\n exit\n");
    assert_eq!(pane.ends(), 0, "{}", pane.shown());
    let waiting = names(&document(&home, &["context", "show", "--session", "main", "--json"]));
    assert!(
        waiting.iter().any(|name| name == "ls") && waiting.iter().any(|name| name.starts_with("echo")),
        "{waiting:?}"
    );
    let Some(tmux) = Tmux::tui("every_other_tool_works_on_the_old_home", &home, "killed") else { return };
    eventually("the timeline", || tmux.screen().contains("before the kill").then_some(()));
    tmux.leaves();
    assert_no_damage(&home);
}

/// Tools that read no stored data, and those that a test starts by another name: `Live` has `run`, and `Tmux` has `tui`.
const NOT_HERE: [&str; 8] = ["demo", "docs", "fleet", "run", "serve", "tui", "watch-pty", "web"];

#[test]
fn no_tool_is_untried_on_the_old_home() {
    let help = Home::new().shim(&["--help"]).output().expect("it runs").stdout;
    let help = String::from_utf8(help).expect("UTF-8");
    let (_, groups) = help.split_once("Start here:").expect("a first group");
    let (groups, _) = groups.split_once("Ways to start a relay:").expect("an end");
    let rows = groups.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names: Vec<&str> =
        rows.filter_map(|row| row.split_whitespace().next()).filter(|name| *name != "help").collect();
    assert!(names.len() > 30, "{names:?}");
    let tried = |name: &&str| include_str!("old_home.rs").contains(&format!("\"{name}\""));
    let untried: Vec<&str> = names.into_iter().filter(|name| !NOT_HERE.contains(name) && !tried(name)).collect();
    assert_eq!(untried, Vec::<&str>::new());
}

#[test]
fn old_changes_of_files_are_known_to_blame() {
    let output = tool(&old_home(), &["blame", &format!("{OLD_ROOT}/project/new.txt")]);
    let said = String::from_utf8_lossy(&output.stderr);
    // The file itself was never part of the fixture.
    assert!(output.status.code() == Some(1) && said.contains("it was last changed 2026-11-22T20:30:25"), "{output:?}");
}

#[test]
fn an_old_home_is_backed_up_and_restored_elsewhere() {
    let (home, other) = (old_home(), Home::new());
    let copied = home.beside().join("copy");
    let copied = copied.to_str().expect("UTF-8");
    document(&home, &["backup", copied, "--json"]);
    document(&other, &["restore", copied, "--json"]);
    let of = |home: &Home, args: &[&str], name: &str| -> Vec<String> {
        let document = document(home, args);
        let mut ids: Vec<String> = list(&document, name).iter().map(|row| row.to_string()).collect();
        ids.sort_unstable();
        ids
    };
    let rows = |home: &Home| of(home, &["requests", "--all", "--json"], "requests");
    let before = rows(&home);
    assert!(before.len() > 3 && rows(&other).len() == before.len(), "{before:#?}");
    for session in ["context", "killed", "main"] {
        let waiting = ["context", "show", "--session", session, "--json"];
        assert_eq!(names(&document(&other, &waiting)), names(&document(&home, &waiting)), "{session}");
    }
    let total = |home: &Home| document(home, &["usage", "--json"])["total"].clone();
    assert_eq!(total(&other), total(&home));
}

#[test]
fn old_wraps_are_renewed_by_the_same_wrap() {
    let home = old_home();
    let (user, bin) = (home.beside().join("user"), home.beside().join("sbin"));
    fs::create_dir(&bin).expect("a folder");
    symlink(SHIM, bin.join("codex-shim")).expect("a link");
    fs::create_dir(home.beside().join("real")).expect("a folder");
    put_program(&home.beside().join("real/codex"), b"#!/bin/sh\necho codex-cli 0.169.0\n");
    let renewed = |target: &str| {
        let path = format!("{0}/user/bin:{0}/sbin:{0}/real:/usr/bin:/bin", home.beside().display());
        let mut wrap = home.shim(&["wrap", target, "--yes"]);
        wrap.env("PATH", path).env("HOME", &user).env_remove("XDG_CONFIG_HOME").current_dir(home.beside());
        let output = wrap.stdin(Stdio::null()).output().expect("it runs");
        assert!(output.status.success(), "{target}: {output:?}");
    };
    // A pinned codex of the settings comes before the one on PATH.
    let config = home.path().join("config.toml");
    let text = fs::read_to_string(&config).expect("it is there").replace("codex = ", "# codex = ");
    fs::write(&config, text).expect("write");
    renewed("path");
    renewed("vscode");
    for link in [user.join("bin/codex"), home.path().join("bin/codex")] {
        let mut codex = std::process::Command::new(&link);
        let codex = home.adopt(&mut codex).arg("--version").env("PATH", "/usr/bin:/bin").env("HOME", &user);
        let output = codex.output().expect("the link leads to codex-shim");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "codex-cli 0.169.0\n", "{output:?}");
    }
    assert_eq!(document(&home, &["unwrap", "--json"])["unwrapped"].as_array().map(Vec::len), Some(3));
    let settings = fs::read_to_string(user.join(".config/Code/User/settings.json")).expect("it is there");
    assert_eq!(settings, "{\n  // kept\n  \"editor.tabSize\": 4,\n}\n");
}

#[test]
fn old_context_fragments_and_transcripts_are_shown() {
    let home = old_home();
    let waiting = |session: &str| names(&document(&home, &["context", "show", "--session", session, "--json"]));
    assert_eq!(waiting("context"), ["for another thread", "cargo test"]);
    assert_eq!(waiting("killed"), ["in flight", "buffered"]);
    let last = &lines(&home, &["context", "show", "--last", "--session", "context", "--json"])[0];
    assert_eq!((&last["carrier"], &last["outcome"]), (&json!("inject_items"), &json!("delivered")));
    assert_eq!(names(&envelope(last["text"].as_str().expect("a text"))), ["cargo build"]);
    let fragments = document(&home, &["fragments", "--session", "context", "--json"]);
    let told = list(&fragments, "threads").iter().flat_map(|thread| list(thread, "fragments"));
    let told: Vec<(&str, &str, bool)> = told
        .map(|told| {
            let text = |name: &str| told[name].as_str().expect("a text");
            (text("thread_id"), text("name"), told["stale"].as_bool().expect("a bool"))
        })
        .collect();
    let expect = ["house_rules", "notes", "developer_addition"];
    let expect = [("thread-2", true), ("thread-1", false)].map(|(of, stale)| expect.map(|name| (of, name, stale)));
    assert_eq!(told, expect.concat());
    for (session, thread, entries) in
        [("main", "thread-1", 23), ("context", "thread-1", 14), ("killed", "thread-1", 3), (UNNAMED, "thread-1", 16)]
    {
        let said = lines(&home, &["transcript", thread, "--session", session, "--json"]);
        assert!(said.len() >= entries, "{session}: {}", said.len());
        assert!(said.iter().all(|entry| entry["role"].is_string()), "{session}");
    }
    let words: Vec<Value> = lines(&home, &["transcript", "thread-1", "--session", "context", "--json"]);
    let users = words.iter().filter(|entry| entry["role"] == "user").map(|entry| entry["text"].clone());
    let users: Vec<Value> = users.collect();
    assert_eq!(users, ["why does it fail?", "and now?", "once more", "and with that?"]);
}

#[test]
fn old_tapes_are_exported_and_played() {
    let home = old_home();
    for session in SESSIONS {
        let tape = home.beside().join(format!("{session}.jsonl"));
        let path = tape.to_str().expect("UTF-8");
        let exported = tool(&home, &["tape", "export", session, "-o", path]);
        assert!(exported.status.success(), "{exported:?}");
        let checked = tool(&home, &["tape", "check", path]);
        assert!(checked.status.success(), "{session}: {checked:?}");
        let mut player = home.shim(&["replay", path]).spawn().expect("it starts");
        let mut stdin = player.stdin.take().expect("stdin is piped");
        let asked = r#"{"id":"mine","method":"initialize","params":{"clientInfo":{"name":"editor","version":"1"}}}"#;
        // The player may have exited already, if its tape begins differently.
        let _ = writeln!(stdin, "{asked}").and_then(|()| stdin.flush());
        drop(stdin);
        let mut said = String::new();
        player.stdout.take().expect("stdout is piped").read_to_string(&mut said).expect("UTF-8");
        assert!(player.wait().expect("it is ours").success(), "{session}: {said}");
        let first: Value = serde_json::from_str(said.lines().next().expect("an answer")).expect("JSON");
        assert_eq!(first["id"], "mine", "{session}: {said}");
    }
}

#[test]
fn old_history_is_rebuilt_without_loss() {
    let home = old_home();
    for session in SESSIONS {
        for file in ["history.db", "history.db-wal"] {
            let _ = fs::remove_file(home.path().join("sessions").join(session).join(file));
        }
        let told: Vec<Vec<Value>> = events(&home, session).iter().map(content).collect();
        let mut told = told.iter();
        // A masked text in the journal is as long as the secret; in the separately masked history it is shorter.
        let compared = if session == UNNAMED { 7 } else { 8 };
        for (seq, event) in old_events(session) {
            let is_same = |told: &Vec<Value>| told[..compared] == event[..compared];
            assert!(told.any(is_same), "{session}: event {seq} is not told again: {event:?}");
        }
    }
}

#[test]
fn old_journal_gap_and_pruned_rows_are_told() {
    let home = old_home();
    let told = events(&home, "main");
    assert_eq!(told.iter().filter(|event| event["event_type"] == "event_gap").count(), 1);
    let live = Live::start_in_session(home, "main");
    let page = live.get("/sessions/self/codex-events?since_seq=0&limit=1");
    assert_eq!((&page["history_gap"], &page["gap_reason"]), (&json!(true), &json!("journal_gap")), "{page}");
    let home = live.end_quietly();
    // A rebuild may restore the pruned rows from the whole journal. Otherwise the page reports a gap.
    let live = Live::start_in_session(home, UNNAMED);
    let page = live.get("/sessions/self/codex-events?since_seq=0&limit=1");
    let is_whole = page["earliest_seq"] == 1;
    assert_eq!(page["history_gap"], json!(!is_whole), "{page}");
    live.end_quietly();
}

#[test]
fn new_relay_goes_on_in_old_session() {
    let mut home = old_home();
    for session in SESSIONS {
        let last = *old_events(session).keys().last().expect("a number");
        let old = old_ledger(session);
        let mut live = Live::start_in_session(home, session);
        let generation = live.generation();
        live.say_plainly(r#"{"method":"marker/new","params":{}}"#);
        let marker = eventually("the new event", || {
            let page = live.get(&format!("/sessions/self/codex-events?since_seq={last}&limit=500"));
            list(&page, "events").iter().find(|event| event["event_type"] == "marker/new").cloned()
        });
        assert!(marker["seq"].as_u64() > Some(last) && marker["generation"] == generation.as_str(), "{marker}");
        assert_eq!(live.pending(), Vec::<Value>::new());
        home = live.end_quietly();
        assert_kept(&home, session, &old);
        assert_told(&home, session);
    }
    assert_no_damage(&home);
}

#[test]
fn old_context_reaches_the_model() {
    let mut home = old_home();
    for (session, thread, expect) in [
        ("killed", "thread-1", vec!["in flight", "buffered"]),
        ("context", "thread-2", vec!["for another thread", "cargo test"]),
    ] {
        let mut live = Live::start_in_session(home, session);
        let sent = turn(1, thread, "hi");
        live.write(&format!("{sent}\n"));
        let mut got = live.at_server();
        // Fragments come before the turn.
        while got.contains("thread/inject_items") {
            let call: Value = serde_json::from_str(&got).expect("JSON");
            live.say_unseen(&json!({"id": call["id"], "result": {}}).to_string());
            got = live.at_server();
        }
        let mut commands = names(&envelope(&carried(&got, &sent)));
        let mut expect: Vec<String> = expect.into_iter().map(str::to_owned).collect();
        commands.sort();
        expect.sort();
        assert_eq!(commands, expect, "{session}");
        live.take_turn(1);
        assert_eq!(live.waiting(), Vec::<String>::new());
        home = live.end_quietly();
    }
}

#[test]
fn old_home_can_be_redacted_and_unwrapped() {
    let home = old_home();
    let redacted = document(&home, &["redact", "--all", "--pattern", "Because[.]", "--json"]);
    assert_eq!((&redacted["faults"], &redacted["sessions"]), (&json!([]), &json!(SESSIONS.len())));
    let masked = list(&redacted, "masked").iter().filter(|masked| masked["session_id"] == "context").count();
    assert!(masked > 0, "{redacted}");
    crate::support::requests::assert_nowhere(&home.path().join("sessions"), "Because.");
    assert!(events(&home, "context").len() > 10);
    // The user's own codex and setting are restored.
    let user = home.beside().join("user");
    assert_eq!(document(&home, &["unwrap", "--json"])["unwrapped"].as_array().map(Vec::len), Some(3));
    assert!(!user.join("bin/codex").is_symlink());
    let codex = fs::read_to_string(user.join("other/codex")).expect("it is back");
    assert_eq!(codex, "#!/bin/sh\necho codex-cli 1.2.3\n");
    let settings = fs::read_to_string(user.join(".config/Code/User/settings.json")).expect("it is there");
    assert_eq!(settings, "{\n  // kept\n  \"editor.tabSize\": 4,\n}\n");
}

#[test]
fn old_settings_and_doctor_are_understood() {
    let home = old_home();
    let config = document(&home, &["config", "--json"]);
    for (name, value) in [
        ("codex", "/tmp/home-of-0.1/bin/codex"),
        ("exit_grace", "5s"),
        ("transcript_files", "true"),
        ("on_pending_after", "400ms"),
    ] {
        let told = ["source", "value"].map(|member| config[name][member].clone());
        assert_eq!(told, [json!("config.toml"), json!(value)], "{name}");
    }
    // The codex named in the old home does not exist; all stored data is readable.
    let output = tool(&home, &["doctor", "--json"]);
    let doctor: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {output:?}"));
    let checks = list(&doctor, "checks");
    assert!(checks.iter().any(|check| check["name"] == "settings" && check["status"] == "ok"), "{doctor}");
    let stored = checks.iter().filter(|check| check.to_string().contains(".db"));
    assert!(stored.clone().all(|check| check["status"] != "broken"), "{doctor}");
}
