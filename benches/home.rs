//! A big home: many sessions with millions of events, and what the tools take that look at all of them.
//!
//! `HOME_SESSIONS=50 HOME_EVENTS=10000000 cargo bench --profile dist --bench relay -- home` makes the home and measures it; `HOME_KEEP=DIR` keeps it in
//! that folder, and a home that is there already is measured again. The time to make it is bounded: only one session is indexed, and
//! all others are copies of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rusqlite::Connection;

use crate::support::{self, Table};

/// The size that the targets are for.
const SESSIONS: u64 = 50;
const EVENTS: u64 = 10_000_000;

/// A look in a few seconds.
const QUICK_SESSIONS: u64 = 4;
const QUICK_EVENTS: u64 = 20_000;

/// How long a tool that looks at all sessions may take, in milliseconds.
const TARGET_MS: f64 = 1_000.0;

/// Runs of each tool; the first one finds the files cold in its own caches.
const RUNS: usize = 3;

/// Events of one turn; see [`turn`].
const TURN_EVENTS: u64 = 20;

/// The tools, each with its arguments. A tool that the binary does not know is left out, so that one table fits each build.
const TOOLS: &[&[&str]] = &[
    &["sessions"],
    &["children"],
    &["status", "big-home-000"],
    &["requests", "--all"],
    &["tail", "big-home-000", "-n", "20"],
    &["events", "big-home-000", "--json", "-n", "500"],
    &["transcript", "--session", "big-home-000"],
    &["reviews"],
    &["reviews", "--all", "--json"],
    &["usage"],
    &["usage", "--by", "session"],
    &["usage", "--by", "folder"],
    &["usage", "--by", "branch"],
    &["search", "number 77"],
    &["search", "status:failed since:7d"],
    &["search", "kind:command folder:project number_77"],
    &["events", "big-home-000", "--filter", "kind:diff since:7d", "--json", "-n", "500"],
    &["requests", "--all", "--filter", "by:cli"],
    &["rules", "suggest"],
    &["blame", CHANGED],
    &["audit", "export"],
];

pub fn home(table: &mut Table) {
    let (sessions, events) = if support::is_quick() { (QUICK_SESSIONS, QUICK_EVENTS) } else { (SESSIONS, EVENTS) };
    let sessions = number("HOME_SESSIONS").unwrap_or(sessions).max(1);
    let events = number("HOME_EVENTS").unwrap_or(events).max(sessions * TURN_EVENTS);
    let kept = std::env::var_os("HOME_KEEP").map(PathBuf::from);
    let temporary = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let home = kept.unwrap_or_else(|| temporary.path().join("home"));
    let is_there = home.join("sessions").is_dir();
    let began = Instant::now();
    if !is_there {
        make(&home, sessions, events / sessions / TURN_EVENTS);
    }
    let (found, total) = measure(&home.join("sessions"));
    table.figure("sessions of a big home", found.to_string());
    table.figure("events in it", format!("{:.2} million", total as f64 / 1e6));
    if !is_there {
        table.at_most("time to make it", began.elapsed().as_secs_f64(), "s", 240.0);
    }
    table.figure("its size on disk", format!("{:.2} GB", size_bytes(&home) as f64 / 1e9));
    for tool in TOOLS.iter().filter(|tool| is_known(&home, tool)) {
        let took_ms = time(&home, tool).as_secs_f64() * 1e3;
        table.at_most(&format!("`{}` in that home", tool.join(" ")), took_ms, "ms", TARGET_MS);
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Makes a home in which each session has this number of turns.
fn make(home: &Path, sessions: u64, turns: u64) {
    fs::create_dir_all(home).unwrap();
    // Nothing that was made is too old or too much.
    let kept = "events_max = 20000000\nhistory_age_max = \"10000d\"\nsession_age_max = \"10000d\"\njournal_bytes_max = \"64GiB\"\n";
    fs::write(home.join("config.toml"), kept).unwrap();
    let first = name(0);
    // A start makes a session with all its files.
    let mut process = support::start_in(home, &first, &["echo-after-hello"]);
    process.ready();
    process.end();
    let session = home.join("sessions").join(&first);
    // The index skips runs that are older than one it has read, so this run must go.
    for stored in ["journal", "history.db", "history.db-wal", "history.db-shm"].map(|name| session.join(name)) {
        if stored.is_dir() { fs::remove_dir_all(&stored) } else { fs::remove_file(&stored) }.or_else(missing).unwrap();
    }
    fs::remove_file(home.join("marks").join(&first)).or_else(missing).unwrap();
    let changed = home.join(CHANGED);
    let project = changed.parent().unwrap();
    fill(&session.join("journal"), &first, turns, project.to_str().unwrap());
    fs::create_dir(project).unwrap();
    let lines = (0..turns).filter(|number| number % 10 == 5).map(|number| format!("number {number} is done\n"));
    fs::write(&changed, lines.collect::<String>()).unwrap();
    // The first tool that reads a stopped session indexes it.
    run(home, &["events", &first, "--json", "-n", "1"]);
    for database in ["history.db", "ledger.db"] {
        // A copy of the file alone must have everything.
        let connection = Connection::open(session.join(database)).unwrap();
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    }
    for number in 1..sessions {
        copy(home, &session, &first, &name(number));
    }
    // The first tool that opens a copy notices that it is one, and gives its events new numbers.
    for number in 1..sessions {
        run(home, &["events", &name(number), "--json", "-n", "1"]);
    }
}

fn missing(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// No other text in a session's files is like this.
fn name(number: u64) -> String {
    format!("big-home-{number:03}")
}

/// Copies a session under another name. All names have the same length, so in each file the one is put in the place of the
/// other, which takes a fraction of the time that an index or a statement over all rows would.
fn copy(home: &Path, from: &Path, old: &str, new: &str) {
    let to = home.join("sessions").join(new);
    copy_folder(from, &to, old, new);
    let witness = home.join("marks");
    if witness.join(old).is_file() {
        copy_file(&witness.join(old), &witness.join(new), old, new);
    }
}

fn copy_folder(from: &Path, to: &Path, old: &str, new: &str) {
    fs::create_dir(to).unwrap();
    fs::set_permissions(to, fs::metadata(from).unwrap().permissions()).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (kind, to) = (entry.file_type().unwrap(), to.join(entry.file_name()));
        if kind.is_dir() {
            copy_folder(&entry.path(), &to, old, new);
        } else if kind.is_file() {
            copy_file(&entry.path(), &to, old, new);
        }
    }
}

fn copy_file(from: &Path, to: &Path, old: &str, new: &str) {
    let mut bytes = fs::read(from).unwrap();
    let found: Vec<usize> = memchr::memmem::find_iter(&bytes, old).collect();
    for at in found {
        bytes[at..at + new.len()].copy_from_slice(new.as_bytes());
    }
    fs::write(to, bytes).unwrap();
    fs::set_permissions(to, fs::metadata(from).unwrap().permissions()).unwrap();
}

/// Writes a journal of turns, in segments of 64 MiB.
fn fill(journal: &Path, session: &str, turns: u64, project: &str) {
    fs::create_dir_all(journal).unwrap();
    let month = Month::with(turns);
    let generation = "0fffffffffff";
    let (mut segment, mut records) = (0, String::new());
    let mut flush = |records: &mut String| {
        segment += 1;
        let header = format!(
            "{{\"journal\":1,\"session\":\"{session}\",\"generation\":\"{generation}\",\"segment\":{segment},\"at\":{},\
             \"argv\":[],\"cwd\":\"/\",\"codex\":{{\"path\":\"c\"}},\"shim\":\"0\"}}\n",
            month.at_us(0, 0)
        );
        fs::write(journal.join(format!("{generation}-{segment:03}.jsonl")), header + records).unwrap();
        records.clear();
    };
    for number in 0..turns {
        turn(&mut records, number, &month, project);
        if records.len() >= 64 << 20 {
            flush(&mut records);
        }
    }
    if !records.is_empty() {
        flush(&mut records);
    }
}

/// The month in which all turns of a session were.
struct Month {
    began_us: u64,
    turns: u64,
}

impl Month {
    const US: u64 = 30 * 86_400_000_000;

    /// The month before now, in which this number of turns were.
    fn with(turns: u64) -> Month {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Month { began_us: u64::try_from(now.as_micros()).unwrap() - Month::US, turns: turns.max(1) }
    }

    /// The time of an event: ten a second in a turn.
    fn at_us(&self, turn: u64, event: u64) -> u64 {
        self.began_us + turn * (Month::US / self.turns) + event * 100_000
    }
}

/// The file that every tenth turn adds a line to.
const CHANGED: &str = "project/list.txt";

/// The records of a turn, each of which becomes one event. `project` is the folder of its thread.
fn turn(records: &mut String, number: u64, month: &Month, project: &str) {
    let place = format!("\"threadId\":\"019a0000-0000-7000-8000-{:012}\",\"turnId\":\"u{number}\"", number / 100);
    let mut event = 0;
    let mut push = |method: &str, members: &str| {
        let at = month.at_us(number, event);
        records.push_str(&format!(
            "{{\"at\":{at},\"from\":\"server\",\"line\":{{\"method\":\"{method}\",\"params\":{{{place}{members}}}}}}}\n"
        ));
        event += 1;
    };
    let turn = |status: &str| format!(",\"turn\":{{\"id\":\"u{number}\",\"status\":\"{status}\"}}");
    push("turn/started", &turn("inProgress"));
    let said = format!("please look at number {number} once more");
    let user = format!(r#","item":{{"type":"userMessage","id":"m","content":[{{"type":"text","text":"{said}"}}]}}"#);
    push("item/started", &user);
    push("item/completed", &user);
    for command in 0..6 {
        let id = format!("c{command}");
        let words = format!("cargo test --package part-{command} number_{number}");
        let item = |status: &str, more: &str| {
            format!(
                r#","item":{{"type":"commandExecution","id":"{id}","command":"{words}","cwd":"{project}","status":"{status}"{more}}}"#
            )
        };
        push("item/started", &item("inProgress", ""));
        push(
            "item/completed",
            &item("completed", r#","exitCode":0,"durationMs":80,"aggregatedOutput":"ok. 7 passed\n""#),
        );
    }
    let answer = format!(r#","item":{{"type":"agentMessage","id":"a","text":"Number {number} is well."}}"#);
    push("item/completed", &answer);
    let tokens = r#"{"totalTokens":1500,"inputTokens":1200,"cachedInputTokens":900,"outputTokens":300,"reasoningOutputTokens":100}"#;
    push(
        "thread/tokenUsage/updated",
        &format!(r#","tokenUsage":{{"total":{tokens},"last":{tokens},"modelContextWindow":258400}}"#),
    );
    let status = if number.is_multiple_of(50) { "denied" } else { "approved" };
    let review = format!(
        r#","reviewId":"r{number}","targetItemId":"c5","startedAtMs":1,"completedAtMs":2,"decisionSource":"agent","review":{{"status":"{status}","riskLevel":"low","rationale":"Number {number}."}},"action":{{"type":"command","source":"shell","command":"make number_{number}","cwd":"{project}"}}"#
    );
    match number % 10 {
        0 => push("item/autoApprovalReview/completed", &review),
        5 => push("item/completed", &change(number, project)),
        _ => push("turn/diff/updated", &format!(r#","diff":"+{number}""#)),
    }
    push("thread/status/changed", r#","status":{"type":"idle"}"#);
    push("turn/completed", &turn("completed"));
    assert_eq!(event, TURN_EVENTS, "a turn has so many events");
}

/// A turn's line in the file, below those of the turns before it.
fn change(number: u64, project: &str) -> String {
    let lines = number / 10;
    let line = format!("number {number} is done");
    let (kind, diff) = match lines.checked_sub(1) {
        None => ("add", format!(r"{line}\n")),
        Some(_) => {
            let before = number - 10;
            (r"update", format!(r"@@ -{lines} +{lines},2 @@\n number {before} is done\n+{line}\n"))
        }
    };
    let file = format!("{project}/list.txt");
    format!(
        r#","item":{{"type":"fileChange","id":"f","status":"completed","changes":[{{"path":"{file}","kind":{{"type":"{kind}"}},"diff":"{diff}"}}]}}"#
    )
}

/// The number of sessions and of their events.
fn measure(sessions: &Path) -> (u64, u64) {
    let (mut found, mut events) = (0, 0);
    for session in fs::read_dir(sessions).unwrap() {
        let path = session.unwrap().path().join("history.db");
        let Ok(connection) = Connection::open_with_flags(path, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY) else {
            continue;
        };
        let last = connection.query_row("SELECT COUNT(*) FROM codex_events", [], |row| row.get::<_, i64>(0));
        found += 1;
        events += last.unwrap_or_default().unsigned_abs();
    }
    (found, events)
}

fn size_bytes(path: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(path) else { return 0 };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size_bytes(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.flatten().map(size).sum()
}

fn shim(home: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(&*support::SHIM);
    // Elsewhere than in a repository, so that no session is that of the folder.
    command.env("CODEX_SHIM_HOME", home).env_remove("CODEX_SHIM_SESSION").args(words).current_dir(home);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Whether this build has the tool.
fn is_known(home: &Path, tool: &[&str]) -> bool {
    let words = if tool[0] == "audit" { &tool[..2] } else { &tool[..1] };
    let help = shim(home, &[words, &["--help"]].concat()).stderr(Stdio::null()).status();
    help.unwrap().success()
}

fn run(home: &Path, tool: &[&str]) {
    let output = shim(home, tool).stderr(Stdio::piped()).output().unwrap();
    assert!(output.status.success(), "{tool:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn time(home: &Path, tool: &[&str]) -> Duration {
    let mut times: Vec<Duration> = (0..RUNS)
        .map(|_| {
            let began = Instant::now();
            run(home, tool);
            began.elapsed()
        })
        .collect();
    support::percentile(&mut times, 50)
}
