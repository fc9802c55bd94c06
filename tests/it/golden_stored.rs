//! Golden files of stopped sessions: the home of version 0.1 (`fixtures/home-0.1`) and one of 0.2 (`fixtures/home-0.2`), read and
//! changed with tools.

use std::fs::{self, File, Permissions};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use regex::Regex;
use serde_json::{Value, json};

use crate::golden::{Golden, Shell};
use crate::golden_text::{Names, Stored};
use crate::old_home::old_home;
use crate::support::shim::Home;

/// Limits so high that a fixture never exceeds them, however old it is.
const RETENTION: &str = "journal_age_max = \"1000y\"\nhistory_age_max = \"1000y\"\nsession_age_max = \"1000y\"\n";

/// The folder that held the home of 0.2 when it was written.
const ROOT: &str = "/tmp/home-of-0.2";

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let below = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    let mut files: Vec<PathBuf> = entries.filter(|path| !path.is_symlink()).flat_map(below).collect();
    files.sort();
    files
}

fn stored(name: &str, times: Vec<Range<&'static str>>) -> Stored {
    let read = |path: PathBuf| String::from_utf8_lossy(&fs::read(path).expect("a file")).into_owned();
    Stored { text: files(&fixture(name).join("home")).into_iter().map(read).collect(), times, is_live: false }
}

pub fn stored_01() -> Stored {
    stored("home-0.1", vec!["2026-11-22T20:30:25Z".."2026-11-22T20:31:00Z"])
}

pub fn stored_02() -> Stored {
    let of_tape = "2026-01-01T00:00:00Z".."2026-01-01T00:00:09Z";
    stored("home-0.2", vec![of_tape, "2026-11-29T09:57:00Z".."2026-11-29T09:58:00Z"])
}

/// Gives sessions the times of their last use, which git does not keep. The first one was used last.
fn used(home: &Home, last_s: u64, sessions: &[&str]) {
    for (session, at_s) in sessions.iter().zip((0..=last_s).rev()) {
        for file in files(&home.path().join("sessions").join(session)) {
            let at = UNIX_EPOCH + Duration::from_secs(at_s);
            File::options().append(true).open(file).expect("a file").set_modified(at).expect("it is ours");
        }
    }
}

const OF_01: [&str; 4] = ["main", "context", "killed", "01a204f3-f59f-767e-8696-f692b2c31af9"];

pub fn home_01() -> Home {
    let home = old_home();
    // 2026-11-22T20:30:40Z
    used(&home, 1_795_379_440, &OF_01);
    home
}

/// A copy of the home of 0.2 that is the original for codex-shim: a copy would begin with new numbers.
pub fn home_02() -> Home {
    let home = Home::new();
    let copied = Command::new("cp").arg("-r").arg(fixture("home-0.2").join("home")).arg(home.path()).status();
    assert!(copied.expect("cp runs").success());
    let mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
    for file in files(&home.path()) {
        mode(&file, 0o600);
        file.ancestors()
            .skip(1)
            .take_while(|folder| folder.starts_with(home.path()))
            .for_each(|folder| mode(folder, 0o700));
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    for file in files(&home.path().join("marks")) {
        let mut mark: Value = serde_json::from_str(&fs::read_to_string(&file).expect("a mark")).expect("JSON");
        let metadata = file.metadata().expect("a file");
        let born = metadata.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
        let born_ns = born.map(|born| born.as_nanos() as u64);
        mark["file"] = json!({ "inode": metadata.ino(), "born_ns": born_ns });
        mark["boot"] = json!(Some(boot.trim()).filter(|boot| !boot.is_empty()));
        fs::write(&file, format!("{mark}\n")).expect("write");
    }
    let config = home.path().join("config.toml");
    let text = fs::read_to_string(&config).expect("it is there");
    fs::write(&config, format!("{RETENTION}{text}")).expect("write");
    // 2026-11-29T09:57:55Z
    used(&home, 1_795_946_275, &["hub", "work"]);
    home
}

/// A thread that the tape of the real codex has.
pub const OF_TAPE: &str = "00000000-0000-7000-8000-000000000002";

/// The name of a request of 0.2 by the end of it.
pub fn request_02(end: &str) -> String {
    let generation = if end.starts_with("hub") { "hub" } else { "work" };
    let journals = files(&fixture("home-0.2").join("home/sessions").join(generation).join("journal"));
    let text = fs::read_to_string(journals.last().expect("a journal")).expect("it is text");
    let (_, from) = text.split_once("\"request_id\":\"").expect("a request");
    let generation = from.split('-').next().expect("an id");
    format!("{generation}-{}", end.trim_start_matches("hub "))
}

/// Whether a file has all events and requests of a session as JSON, or the last ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    All,
    Last,
}

/// Tools that read any session, each with `--json` and without.
fn reads(golden: &mut Golden, shell: &Shell<'_>, session: &str, extent: Extent) {
    let whole: [&[&str]; 2] = [&["events", "--since", "0"], &["requests", "--all"]];
    let as_json = ["--session", session, "--json"];
    let as_text = ["--session", session, "--utc"];
    for words in whole {
        if extent == Extent::All {
            golden.tool(shell, &[words, &as_json].concat());
        }
        golden.tool(shell, &[words, &as_text].concat());
    }
    for words in [
        &["status"][..],
        &["events", "-n", "3"],
        &["events", "--type", "item/*", "-n", "4"],
        &["tail", "-n", "200"],
        &["reviews", "--all"],
        &["usage", "--by", "turn"],
        &["context", "show"],
        &["context", "show", "--last"],
        &["fragments"],
    ] {
        golden.tool(shell, &[words, &as_json].concat());
        golden.tool(shell, &[words, &as_text].concat());
    }
}

/// Each thread as a conversation, and each request in full.
fn whole(golden: &mut Golden, shell: &Shell<'_>, session: &str, threads: &[&str]) {
    for thread in threads {
        for more in [&["--json"][..], &["--utc"], &["--format", "md", "--full", "--diff", "--paths", "--utc"]] {
            golden.tool(shell, &[&["transcript", thread, "--session", session, "--all-threads"], more].concat());
        }
    }
    let listed = shell.command(&["requests", "--all", "--json", "--session", session]).output().expect("it runs");
    let listed: Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    for row in listed["requests"].as_array().expect("a list") {
        let id = row["request_id"].as_str().expect("an id");
        golden.tool(shell, &["show", id, "--session", session, "--json"]);
        golden.tool(shell, &["show", id, "--session", session, "--utc"]);
    }
}

/// Checks of the doctor about the machine, and not about the home.
const OF_THE_MACHINE: &str = r#"\{[^{}]*"name":"(?:path|servers)"[^{}]*\},?"#;

fn doctor(golden: &mut Golden, shell: &Shell<'_>) {
    let mut output = shell.command(&["doctor", "--json"]).output().expect("it runs");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    output.stdout = Regex::new(OF_THE_MACHINE).expect("BUG: it is valid").replace_all(&text, "").into_owned().into();
    golden.output("doctor --json", &output, Names::body);
}

/// Tools over all sessions of a home.
fn overviews(golden: &mut Golden, shell: &Shell<'_>) {
    for words in [
        &["sessions", "--json"][..],
        &["sessions", "--utc"],
        &["children", "--json"],
        &["children"],
        &["requests", "--json"],
        &["requests"],
        &["requests", "--all", "--utc"],
        &["usage", "--json"],
        &["usage", "--by", "model", "--utc"],
        &["usage", "--by", "thread", "--json"],
        &["usage", "--by", "session"],
        &["usage", "--since", "2026-11-22T20:30:26Z", "--utc"],
        &["reviews", "--json"],
        &["reviews"],
        &["rules", "--json"],
        &["rules", "backtest", "--json"],
        &["rules", "backtest", "--utc"],
        &["rules", "suggest", "--min", "1", "--json"],
        &["rules", "suggest", "--min", "1", "--utc"],
        &["rules", "--utc"],
        &["hub", "status", "--json"],
        &["hub", "status"],
        &["wait", "--for", "idle", "--json"],
        &["prune", "--dry-run", "--json"],
        &["redact", "--all", "--dry-run", "--json"],
    ] {
        golden.tool(shell, words);
    }
    doctor(golden, shell);
}

/// What each tool says that cannot do its work.
fn refusals(golden: &mut Golden, shell: &Shell<'_>, session: &str) {
    for words in [
        &["status", "nope", "--json"][..],
        &["events", "nope", "--json"],
        &["events", session, "--since", "999999", "-n", "1", "--json"],
        &["events", session, "--thread", "nope", "--json"],
        &["tail", "nope", "--json"],
        &["tail", session, "-n", "201", "--json"],
        &["transcript", "nope", "--session", session, "--json"],
        &["transcript", "latest", "--session", "nope", "--json"],
        &["search", "\"open", "--json"],
        &["search", "--regex", "(", "--json"],
        &["search", "nothing-has-this", "--json"],
        &["requests", "nope", "--json"],
        &["show", "nope", "--json"],
        &["show", "latest", "--json"],
        &["show", "latest", "--session", session, "--json"],
        &["respond", "nope", "accept", "--json"],
        &["respond", "latest", "accept", "--session", session, "--json"],
        &["send", "hi", "--session", session, "--json"],
        &["send", "hi", "--json"],
        &["interrupt", session, "--json"],
        &["wait", session, "--for", "pending", "--json"],
        &["reviews", "nope", "--json"],
        &["overrule", "latest", "--json"],
        &["overrule", "nope", "--session", session, "--json"],
        &["usage", "nope", "--json"],
        &["usage", "--since", "yesterday", "--json"],
        &["drift", "--codex", "0.9.0", "--json"],
        &["children", "nope", "--json"],
        &["sessions", "nope", "--json"],
        &["context", "show", "--session", "nope", "--json"],
        &["context", "drop", "1000", "--session", session, "--json"],
        &["fragments", "nope", "--json"],
        &["rules", "test", "--request", "nope", "--json"],
        &["prune", "nope", "--dry-run", "--json"],
        &["redact", "nope", "--dry-run", "--json"],
        &["redact", "--all", "--pattern", "(", "--dry-run", "--json"],
        &["doctor", "nope", "--json"],
        &["tape", "show", "nope", "--json"],
        &["tape", "check", "nope", "--json"],
        &["tape", "export", "nope", "-o", "nope.jsonl", "--json"],
        &["audit", "export", "--session", "nope", "-o", "nope.jsonl", "--json"],
        &["audit", "verify", "nope", "--json"],
        &["notify", "test", "--json"],
        &["web", "--new-link", "--json"],
        &["web", "--browsers", "--json"],
        &["web", "--sign-out", "--json"],
        &["wrap", "nope", "--dry-run", "--json"],
        &["unwrap", "nope", "--json"],
        &["watch-pty", "--json"],
        &["nope", "--json"],
    ] {
        golden.tool(shell, words);
    }
}

#[test]
fn old_home_looks_as_before() {
    let home = home_01();
    let mut golden = Golden::new("old-home", Some(stored_01()));
    golden.know_home(&home);
    let shell = Shell::beside(&home);
    // The first tool that opens a session brings it forward.
    golden.tool(&shell, &["children"]);
    for session in OF_01 {
        reads(&mut golden, &shell, session, if session == "killed" { Extent::All } else { Extent::Last });
    }
    whole(&mut golden, &shell, "main", &["thread-1"]);
    whole(&mut golden, &shell, "context", &["thread-1", "thread-2"]);
    whole(&mut golden, &shell, "killed", &["thread-1"]);
    whole(&mut golden, &shell, OF_01[3], &["thread-2"]);
    overviews(&mut golden, &shell);
    for words in [
        &["search", "touch", "--json"][..],
        &["search", "touch", "-n", "4", "--utc"],
        &["search", "--regex", "run.before", "--json"],
        &["tape", "show", "killed", "--json"],
        &["tape", "show", "killed", "--method", "approval"],
        &["tape", "show", "context", "--record", "12"],
        &["unwrap", "--dry-run", "--json"],
        &["unwrap", "--dry-run"],
    ] {
        golden.tool(&shell, words);
    }
    refusals(&mut golden, &shell, "main");
    golden.check();
}

#[test]
fn stored_home_looks_as_before() {
    let home = home_02();
    let mut golden = Golden::new("stored-home", Some(stored_02()));
    golden.know_home(&home);
    let shell = Shell::beside(&home);
    // The first tool that opens a session brings it forward.
    golden.tool(&shell, &["children"]);
    for session in ["work", "hub"] {
        reads(&mut golden, &shell, session, Extent::All);
    }
    whole(&mut golden, &shell, "work", &[OF_TAPE, "thread-1", "thread-1-agent"]);
    whole(&mut golden, &shell, "hub", &["thread-red", "thread-blue", "thread-title"]);
    golden.tool(&shell, &["transcript", "thread-1", "--session", "work", "--format", "html", "--utc"]);
    overviews(&mut golden, &shell);
    for words in [
        &["search", "linker", "--json"][..],
        &["search", "make", "--utc"],
        &["search", "make", "--kind", "request", "--json"],
        &["search", "--all-threads", "title", "--json"],
        &["search", "--regex", "rm .* *build", "--json"],
        &["tape", "show", "hub", "--json"],
        &["tape", "show", "hub", "--conn", "2"],
        &["tape", "show", "work", "--method", "approval", "--json"],
        &["tape", "show", "work", "--kind", "event"],
        &["tape", "show", "work", "--record", "3"],
        &["rules", "test", "--json", "--", "git", "push", "--force"],
        &["rules", "test", "--cwd", ROOT, "--", "make deploy production"],
        &["rules", "test", "--request", &request_02("2"), "--json"],
    ] {
        golden.tool(&shell, words);
    }
    golden.exact_tool(&shell, &["config", "--json"]);
    golden.exact_tool(&shell, &["config"]);
    refusals(&mut golden, &shell, "work");
    golden.check();
}

#[test]
fn stored_home_changes_as_before() {
    let home = home_02();
    let mut golden = Golden::new("stored-home-changes", Some(stored_02()));
    golden.know_home(&home);
    let shell = Shell::beside(&home);
    let push = ["context", "push", "--session", "work", "--cwd", "/w", "--ts", "1000", "--cmd"];
    for words in [
        &[&push[..], &["make", "--exit-code", "2", "--json"]].concat()[..],
        &[&push[..], &["for one", "--thread", "thread-1", "--block-id", "b", "--shell-id", "s", "--json"]].concat(),
        &[&push[..], &["for nobody", "--thread", "nope", "--json"]].concat(),
        &[&push[..], &["", "--json"]].concat(),
        &["context", "show", "--session", "work", "--json"],
        &["context", "drop", "latest", "--session", "work", "--json"],
        &["context", "drop", "5", "--session", "work"],
        &["context", "clear", "--session", "work", "--json"],
        &["context", "clear", "--session", "work"],
        &["tape", "export", "work", "-o", "work.jsonl", "--redact", "--json"],
        &["tape", "export", "hub", "--conn", "2", "-o", "hub.jsonl", "--json"],
        &["tape", "export", "hub", "--conn", "9", "-o", "nine.jsonl", "--json"],
        &["tape", "check", "work.jsonl", "--json"],
        &["tape", "check", "hub.jsonl"],
        &["tape", "show", "hub.jsonl", "--json"],
    ] {
        golden.tool(&shell, words);
    }
    for words in [
        &["audit", "export", "--session", "work"][..],
        &["audit", "export", "--session", "work", "--format", "csv"],
        &["audit", "export", "--session", "work", "-o", "audit.jsonl", "--json"],
        &["audit", "export", "--session", "work", "-o", "audit.jsonl", "--json"],
        &["audit", "verify", "audit.jsonl", "--json"],
        &["audit", "verify", "audit.jsonl"],
        &["audit", "verify", "work.jsonl", "--json"],
        &["redact", "work", "--pattern", "linker", "--json"],
        &["redact", "work", "--pattern", "linker", "--yes", "--json"],
        &["transcript", "thread-1", "--session", "work", "--json"],
        &["search", "linker", "--json"],
    ] {
        golden.tool(&shell, words);
    }
    // The session itself is used, and its rows are old.
    let lock = home.path().join("sessions/hub/lock");
    File::options().append(true).open(lock).expect("a file").set_modified(SystemTime::now()).expect("it is ours");
    for words in [
        &["prune", "hub", "--older-than", "10m", "--dry-run", "--json"][..],
        &["prune", "hub", "--older-than", "10m", "--json"],
        &["prune", "hub", "--older-than", "10m", "--yes", "--json"],
        &["sessions", "--json"],
        &["wrap", "vscode", "--dry-run", "--json"],
        &["wrap", "vscode", "--json"],
        &["unwrap", "--json"],
    ] {
        golden.tool(&shell, words);
    }
    golden.check();
}

#[test]
fn stored_home_is_small_and_of_no_machine() {
    let mut bytes = 0;
    for file in files(&fixture("home-0.2").join("home")) {
        let text = fs::read(&file).expect("a file");
        bytes += text.len();
        let text = String::from_utf8_lossy(&text).replace(ROOT, "");
        for foreign in ["/root", "/Users/", env!("CARGO_MANIFEST_DIR"), "uid 0,"] {
            assert!(!text.contains(foreign), "{}: {foreign}", file.display());
        }
    }
    assert!((100_000..300_000).contains(&bytes), "{bytes}");
}
