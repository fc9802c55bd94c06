//! The environment of the home's files: other users, links, FIFOs, the umask, and relays that do not answer.

use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::both_ends::Live;
use crate::support::requests::{command_asked, parsed, turn_completed};
use crate::support::shim::{Home, copy_shim};
use crate::support::{PATIENCE, eventually, make_fifo, stop};

const LINE: &[u8] = b"{\"id\":1}\n";

/// A user who is neither us nor root.
const NOBODY: u32 = 65_534;

/// Read-only tools, on session `s`.
const READERS: [&[&str]; 8] = [
    &["sessions"],
    &["status"],
    &["requests"],
    &["events"],
    &["tail"],
    &["children"],
    &["context", "show"],
    &["fragments"],
];

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("it is there").permissions().mode() & 0o7777
}

fn folder(path: &Path, bits: u32) {
    fs::create_dir_all(path).expect("a folder");
    chmod(path, bits);
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The output of a process once it has ended. A hanging process is killed and fails the test.
pub fn ends(child: Child, what: &str) -> Output {
    let pid = Pid::from_child(&child);
    let (done, output) = std::sync::mpsc::sync_channel(1);
    std::thread::spawn(move || done.send(child.wait_with_output().expect("it is ours")));
    output.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        let _ = kill_process(pid, Signal::KILL);
        panic!("{what}: it hangs");
    })
}

fn tool(home: &Home, args: &[&str]) -> Output {
    let child = home.shim(args).stdin(Stdio::null()).spawn().expect("it starts");
    ends(child, &format!("{args:?}"))
}

/// Lets a relay pass a line to `cat` and back; returns its stderr.
fn relays(mut command: Command, what: &str) -> String {
    let mut relay = command.spawn().expect("the shim starts");
    let mut stdin = relay.stdin.take().expect("stdin is piped");
    stdin.write_all(LINE).expect("a pipe has room");
    drop(stdin);
    let output = ends(relay, what);
    assert!(output.status.success() && output.stdout == LINE, "{what}: {output:?}");
    text(&output.stderr)
}

fn relay(home: &Home, what: &str) -> String {
    relays(home.shim(&["run", "--session", "s", "--", "cat"]), what)
}

/// The folders of a session, as a relay creates them.
fn session_folders(home: &Home) -> [PathBuf; 4] {
    let sessions = home.path().join("sessions");
    let session = sessions.join("s");
    let folders = [home.path(), sessions, session.clone(), session.join("journal")];
    folders.iter().for_each(|path| folder(path, 0o700));
    folders
}

fn is_root(what: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        let _ = writeln!(std::io::stderr(), "SKIPPED: {what}: only root can become another user");
    }
    is_root
}

fn doctor_finds(home: &Home, found: &str, remedy: &str) {
    let told: Value = serde_json::from_slice(&tool(home, &["doctor", "--json"]).stdout).expect("one document");
    let checks = told["checks"].as_array().expect("checks");
    let has = |check: &&Value| {
        let member = |name: &str| check[name].as_str().unwrap_or_default();
        check["status"] == "broken" && member("found").contains(found) && member("remedy").contains(remedy)
    };
    assert!(checks.iter().any(|check| has(&check)), "{found}, {remedy}: {told}");
}

// Folders

#[test]
fn folders_that_others_can_write_to_are_refused() {
    for (number, bits) in [(0, 0o770), (0, 0o1777), (1, 0o775), (2, 0o702), (3, 0o720)] {
        let home = Home::new();
        let folders = session_folders(&home);
        let open = &folders[number];
        chmod(open, bits);
        let said = relay(&home, &format!("{number} {bits:o}"));
        let remedy = format!("chmod go-w {}", open.display());
        assert!(said.lines().count() == 1 && said.starts_with("codex-shim: "), "{said}");
        assert!(said.contains(&remedy) && said.contains(&format!("mode {bits:04o}")), "{said}");
        let (journal, lock) = (fs::read_dir(&folders[3]).expect("a folder").count(), folders[2].join("lock").exists());
        assert_eq!((journal, mode(open)), (0, bits), "nothing is recorded, and the mode stays");
        assert!(number == 3 || !lock, "{number}");
        if number < 3 {
            // A folder with a lock is a session.
            fs::write(folders[2].join("lock"), "").expect("write");
            doctor_finds(&home, &format!("write to {}", open.display()), &remedy);
            let output = tool(&home, &["status", "--session", "s"]);
            assert!(output.status.code() == Some(1) && text(&output.stderr).contains(&remedy), "{output:?}");
            for args in READERS {
                let output = tool(&home, args);
                assert!(text(&output.stderr).contains(&remedy), "{args:?}: {output:?}");
            }
        }
        chmod(open, 0o700);
        assert_eq!(relay(&home, "mended"), "");
    }
}

#[test]
fn folders_of_other_users_are_refused() {
    if !is_root("the test of other users' folders") {
        return;
    }
    for number in 0..4 {
        let home = Home::new();
        let folders = session_folders(&home);
        std::os::unix::fs::chown(&folders[number], Some(NOBODY), None).expect("root may");
        let said = relay(&home, &number.to_string());
        assert!(said.lines().count() == 1, "{said}");
        let found = format!("{} belongs to another user (uid 65534)", folders[number].display());
        assert!(said.contains(&found) && said.contains("CODEX_SHIM_HOME"), "{said}");
        assert_eq!(fs::read_dir(&folders[3]).expect("a folder").count(), 0);
    }
}

#[test]
fn a_home_behind_our_own_link_is_used() {
    let home = Home::new();
    let real = home.beside().join("real");
    folder(&real, 0o750);
    symlink(&real, home.path()).expect("a link");
    assert_eq!(relay(&home, "behind a link"), "");
    assert!(real.join("sessions/s/lock").exists() && mode(&real) == 0o750);
    assert!(tool(&home, &["events", "--session", "s"]).status.success());
    chmod(&real, 0o777);
    assert!(relay(&home, "behind a link").contains("chmod go-w"));
}

#[test]
fn settings_that_others_can_write_are_ignored() {
    let home = Home::new();
    folder(&home.path(), 0o777);
    let touched = home.beside().join("touched");
    let codex = home.beside().join("codex");
    fs::write(home.path().join("config.toml"), format!("codex = {codex:?}\non_idle = [\"touch\", {touched:?}]\n"))
        .expect("write");
    fs::write(home.path().join("wrapped.json"), json!([{"codex": codex, "link": "/x/codex"}]).to_string())
        .expect("write");
    let output = tool(&home, &["config", "--json"]);
    let settings: Value = serde_json::from_slice(&output.stdout).expect("one document");
    assert_eq!((&settings["codex"]["source"], output.status.code()), (&json!("default"), Some(1)));
    assert!(text(&output.stderr).contains("chmod go-w"), "{output:?}");
    chmod(&home.path(), 0o755);
    let settings: Value = serde_json::from_slice(&tool(&home, &["config", "--json"]).stdout).expect("one document");
    assert_eq!(settings["codex"]["value"], json!(codex));
    // A link in a folder that only the user can write to belongs to the user.
    fs::rename(home.path().join("config.toml"), home.beside().join("dotfile.toml")).expect("it moves");
    symlink(home.beside().join("dotfile.toml"), home.path().join("config.toml")).expect("a link");
    let settings: Value = serde_json::from_slice(&tool(&home, &["config", "--json"]).stdout).expect("one document");
    assert_eq!(settings["codex"]["value"], json!(codex));
}

#[test]
fn settings_file_that_others_can_write_is_ignored() {
    let home = Home::new();
    folder(&home.path(), 0o700);
    let config = home.path().join("config.toml");
    fs::write(&config, "exit_grace = \"3s\"\n").expect("write");
    let source = || {
        let settings: Value = serde_json::from_slice(&tool(&home, &["config", "--json"]).stdout).expect("one document");
        settings["exit_grace"]["source"].clone()
    };
    let check = |found: &str, remedy: &str| {
        let said = relay(&home, found);
        assert!(said.lines().count() == 1 && said.starts_with("codex-shim: config.toml is ignored: "), "{said}");
        assert!(said.contains(found) && said.contains(remedy), "{said}");
        assert_eq!(source(), json!("default"));
        doctor_finds(&home, found, "`codex-shim config`");
    };
    for bits in [0o666, 0o602] {
        chmod(&config, bits);
        check(&format!("(mode {bits:04o})"), &format!("chmod go-w {}", config.display()));
    }
    chmod(&config, 0o644);
    assert_eq!((source(), relay(&home, "mended")), (json!("config.toml"), String::new()));
    if is_root("the test of another user's settings file") {
        std::os::unix::fs::chown(&config, Some(NOBODY), None).expect("root may");
        check(&format!("belongs to another user (uid {NOBODY})"), "chown");
        std::os::unix::fs::chown(&config, Some(0), Some(NOBODY)).expect("root may");
        chmod(&config, 0o664);
        check("(mode 0664)", "chmod go-w");
    }
}

#[test]
fn doctor_names_inner_folders_that_others_can_write() {
    let home = Home::new();
    let _ = relay(&home, "a run");
    let session = home.path().join("sessions/s");
    folder(&session.join("transcripts"), 0o700);
    let inner = ["journal", "transcripts"].map(|name| session.join(name));
    folder(&home.path().join("shell"), 0o700);
    for path in inner.into_iter().chain(["marks", "places", "shell"].map(|name| home.path().join(name))) {
        chmod(&path, 0o777);
        let remedy = format!("chmod go-w {}", path.display());
        doctor_finds(&home, &format!("write to {} (mode 0777)", path.display()), &remedy);
        let output = tool(&home, &["events", "--session", "s"]);
        let said = text(&output.stderr);
        let is_journal = path.ends_with("journal");
        assert_eq!((said.contains(&remedy), output.status.success()), (is_journal, !is_journal), "{said}");
        assert!(!said.contains("not affected"), "{said}");
        chmod(&path, 0o700);
    }
}

// Links

#[test]
fn links_in_a_session_are_never_followed() {
    let precious = |path: &Path| {
        fs::write(path, "precious").expect("write");
        chmod(path, 0o644);
    };
    for name in [
        "sessions/s/lock",
        "sessions/s/shim.log",
        "sessions/s/index.lock",
        "sessions/s/ledger.db",
        "sessions/s/ledger.db-wal",
        "sessions/s/history.db",
        "sessions/s/history.db-wal",
        "sessions/s/history.db-shm",
        "sessions/s/journal",
        "sessions/s/transcripts",
        "sessions/s",
        "sessions",
        "places",
    ] {
        for is_there in [true, false] {
            let home = Home::new();
            folder(&home.path(), 0o700);
            if name.starts_with("sessions/s/") {
                session_folders(&home);
            } else if name == "sessions/s" {
                folder(&home.path().join("sessions"), 0o700);
            }
            let outside = home.beside().join("outside");
            folder(&outside, 0o755);
            let link = home.path().join(name);
            let is_folder = !name.contains('.') && !name.ends_with("lock");
            let target = if is_folder { outside.clone() } else { outside.join("file") };
            match (is_there, is_folder) {
                (true, false) => precious(&target),
                (true, true) => precious(&outside.join("file")),
                (false, false) => {}
                (false, true) => fs::remove_dir(&outside).expect("it is empty"),
            }
            let _ = fs::remove_dir(&link);
            symlink(&target, &link).expect("a link");
            let mut command = home.shim(&["run", "--session", "s", "--", "cat"]);
            command.env("CODEX_SHIM_TRANSCRIPT_FILES", "true");
            relays(command, name);
            tool(&home, &["context", "push", "--session", "s", "--cmd", "ls"]);
            READERS.iter().for_each(|args| drop(tool(&home, args)));
            if is_there {
                let left: Vec<_> = fs::read_dir(&outside).expect("a folder").collect();
                assert_eq!(left.len(), 1, "{name}: {left:?}");
                assert_eq!(fs::read(outside.join("file")).expect("it is there"), b"precious", "{name}");
                assert_eq!((mode(&outside.join("file")), mode(&outside)), (0o644, 0o755), "{name}");
            } else {
                assert!(fs::symlink_metadata(&target).is_err(), "{name}: something was created behind the link");
            }
            assert!(fs::symlink_metadata(&link).is_ok_and(|there| there.is_symlink()), "{name}");
        }
    }
}

// FIFOs and other file types.

#[test]
fn fifos_in_place_of_files_block_nothing() {
    let recorded = Home::new();
    assert_eq!(relay(&recorded, "a session"), "");
    let segments = fs::read_dir(recorded.path().join("sessions/s/journal")).expect("a folder");
    let segment = segments.map(|segment| segment.expect("a name").file_name()).next().expect("a segment");
    let segment = format!("sessions/s/journal/{}", segment.to_string_lossy());
    let place = fs::read_dir(recorded.path().join("places")).expect("a folder").next().expect("a place").expect("one");
    let place = format!("places/{}", place.file_name().to_string_lossy());
    for name in [
        "config.toml",
        "wrapped.json",
        &place,
        "sessions/s/lock",
        "sessions/s/shim.log",
        "sessions/s/index.lock",
        "sessions/s/ledger.db",
        "sessions/s/ledger.db-wal",
        "sessions/s/history.db",
        "sessions/s/history.db-wal",
        &segment,
    ] {
        let home = Home::new();
        assert_eq!(relay(&home, name), "");
        let at = home.path().join(name);
        if name == segment {
            let own = fs::read_dir(home.path().join("sessions/s/journal")).expect("a folder").next();
            let own = own.expect("a segment").expect("one").path();
            fs::remove_file(&own).expect("it goes");
            // A relay that ends at once may leave the file to the next start.
            let _ = fs::remove_file(home.path().join("sessions/s/history.db"));
            make_fifo(&own);
        } else {
            let _ = fs::remove_file(&at);
            fs::create_dir_all(at.parent().expect("a folder")).expect("a folder");
            make_fifo(&at);
        }
        for args in READERS.iter().copied().chain([
            &["doctor"][..],
            &["config"],
            &["context", "push", "--session", "s", "--cmd", "ls"],
            &["context", "clear", "--session", "s"],
            &["tape", "show", "s"],
            &["tape", "export", "s", "-o", "/dev/null"],
            &["prune", "--dry-run"],
            &["prune"],
            &["redact", "--all", "--dry-run"],
            &["redact", "--all"],
            &["unwrap", "--dry-run"],
            &["unwrap"],
            &["wait", "--for", "idle", "--session", "s", "--timeout", "1s"],
            &["send", "hello", "--session", "s"],
            &["interrupt", "s"],
            &["respond", "latest", "accept", "--session", "s"],
            &["attach", "s"],
            &["context", "drop", "1", "--session", "s"],
            &["exec", "--session", "s", "--", "true"],
            &["completions", "bash"],
            &["hook", "bash"],
        ]) {
            let output = tool(&home, args);
            assert!(output.status.code().is_some_and(|code| code < 100), "{name}: {args:?}: {output:?}");
        }
        let mut command = home.shim(&["run", "--", "cat"]);
        command.current_dir(home.beside());
        relays(command, name);
        let said = relay(&home, name);
        if ["config.toml", "sessions/s/lock", "sessions/s/shim.log"].contains(&name) {
            let found = format!("{} is a FIFO, not a regular file", at.display());
            assert!(said.lines().count() == 1 && said.contains(&found), "{name}: {said}");
        }
    }
}

#[test]
fn an_unusable_history_is_named_with_its_kind() {
    for (name, args) in [("history.db", &["events"][..]), ("lock", &["status", "--session", "s"])] {
        for kind in ["a FIFO", "a folder", "a socket"] {
            let home = Home::new();
            assert_eq!(relay(&home, name), "");
            let at = home.path().join("sessions/s").join(name);
            // A relay that ends at once may leave the history to the next start.
            let _ = fs::remove_file(&at);
            let _listener = match kind {
                "a FIFO" => {
                    make_fifo(&at);
                    None
                }
                "a folder" => {
                    fs::create_dir(&at).expect("a folder");
                    None
                }
                _ => Some(UnixListener::bind(&at).expect("a socket")),
            };
            let output = tool(&home, args);
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{name} {kind}: {output:?}");
            assert!(said.contains(&format!("{} is {kind}, not a regular file", at.display())), "{name} {kind}: {said}");
        }
    }
}

#[test]
fn a_tape_may_come_through_a_fifo() {
    let home = Home::new();
    assert_eq!(relay(&home, "a tape"), "");
    let (tape, pipe) = (home.beside().join("tape"), home.beside().join("pipe"));
    assert!(tool(&home, &["tape", "export", "s", "-o", tape.to_str().expect("UTF-8")]).status.success());
    make_fifo(&pipe);
    let checking = home.shim(&["tape", "check", pipe.to_str().expect("UTF-8")]).spawn().expect("it starts");
    fs::write(&pipe, fs::read(&tape).expect("it is there")).expect("somebody reads");
    assert!(ends(checking, "tape check").status.success());
}

// Relays that do not answer.

/// Tools that call a relay, and whether each fails without an answer.
const ASKING: &[(&[&str], bool)] = &[
    (&["sessions"], false),
    (&["children"], false),
    (&["exec", "--", "true"], false),
    (&["status", "--session", "s"], true),
    (&["status", "--session", "s", "--json"], true),
    (&["requests", "--session", "s"], true),
    (&["show", "latest", "--session", "s"], true),
    (&["respond", "latest", "accept", "--session", "s"], true),
    (&["events", "--session", "s"], true),
    (&["events", "--session", "s", "-f"], true),
    (&["tail", "--session", "s"], true),
    (&["tail", "--session", "s", "-f"], true),
    (&["transcript", "t", "--session", "s"], true),
    (&["send", "hi", "--session", "s"], true),
    (&["interrupt", "--session", "s"], true),
    (&["wait", "--for", "idle", "--session", "s"], true),
    (&["attach", "--session", "s"], true),
    (&["context", "show", "--session", "s"], true),
    (&["context", "push", "--cmd", "ls", "--session", "s"], true),
    (&["context", "clear", "--session", "s"], true),
    (&["fragments", "--session", "s"], true),
    (&["doctor", "--session", "s"], true),
    (&["config"], false),
];

/// Runs all of [`ASKING`] at once; each must end and name the session, the process and the remedy.
fn all_give_up(home: &Home, pid: u32) {
    let begin = |(args, fails): &(&'static [&'static str], bool)| {
        let mut command = home.shim(args);
        command.current_dir(home.beside()).stdin(Stdio::null());
        (*args, *fails, command.spawn().expect("it starts"))
    };
    let begun: Vec<_> = ASKING.iter().map(begin).collect();
    for (args, fails, child) in begun {
        let output = ends(child, &format!("{args:?}"));
        let said = text(&output.stderr) + &text(&output.stdout);
        assert_eq!(output.status.code(), Some(i32::from(fails)), "{args:?}: {said}");
        let pid = format!("pid {pid}");
        // What has taken the place of a relay's socket is named with another remedy.
        let has_remedy = said.contains("kill ") || said.contains("move it away");
        assert!(said.contains("no answer in ") && said.contains(&pid) && has_remedy, "{args:?}: {said}");
        assert!(said.contains('s') && said.contains("control.sock"), "{args:?}: {said}");
    }
}

#[test]
fn every_tool_gives_up_on_a_stopped_relay() {
    let live = Live::start();
    let relay = Pid::from_child(&live.relay);
    stop(relay);
    all_give_up(&live.home, live.relay.id());
    kill_process(relay, Signal::CONT).expect("it is there");
    live.kill();
}

#[test]
fn every_tool_gives_up_on_half_an_answer() {
    let mut live = Live::start();
    // The stopped relay keeps its lock and reads nothing; another process listens at its socket.
    stop(Pid::from_child(&live.relay));
    let socket = live.session.join("control.sock");
    fs::remove_file(&socket).expect("it is there");
    let listener = UnixListener::bind(&socket).expect("a socket");
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 64]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n{\"session_id\"");
            kept.push(stream);
        }
    });
    all_give_up(&live.home, live.relay.id());
    live.relay.kill().expect("it is there");
    live.relay.wait().expect("it was killed");
}

#[test]
fn nothing_is_sent_to_a_relay_that_hangs() {
    let live = Live::start();
    stop(Pid::from_child(&live.relay));
    let socket = live.session.join("control.sock");
    fs::remove_file(&socket).expect("it is there");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let asking = live.home.shim(&["send", "hello", "--session", "s"]).stdin(Stdio::null()).spawn().expect("it starts");
    let (mut stream, _) = listener.accept().expect("somebody comes");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let mut sent = Vec::new();
    stream.read_to_end(&mut sent).expect("it is closed in the end");
    let output = ends(asking, "send");
    assert!(text(&sent).starts_with("GET /healthz") && !text(&sent).contains("hello"), "{}", text(&sent));
    assert!(text(&output.stderr).contains("nothing was sent"), "{output:?}");
    live.kill();
}

// The umask.

#[test]
fn created_files_stay_usable_under_any_umask() {
    if !is_root("the test of a umask that takes the owner's rights") {
        return;
    }
    for umask in ["0277", "0777", "0400"] {
        let home = Home::new();
        // The other user must be able to reach the binary.
        let binary = home.beside().join("codex-shim");
        copy_shim(&binary);
        chmod(home.beside(), 0o755);
        let theirs = home.beside().join("theirs");
        folder(&theirs, 0o700);
        std::os::unix::fs::chown(&theirs, Some(NOBODY), Some(NOBODY)).expect("root may");
        let command = |args: &[&str]| {
            let mut command = Command::new("sh");
            home.adopt(&mut command).env("CODEX_SHIM_HOME", theirs.join("deep/home")).env("HOME", &theirs);
            command.env("CODEX_SHIM_TRANSCRIPT_FILES", "true").env("TMPDIR", &theirs).current_dir("/");
            command.args(["-c", &format!("umask {umask}; exec \"$0\" \"$@\"")]).arg(&binary).args(args);
            command.uid(NOBODY).gid(NOBODY);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command
        };
        let done = |args: &[&str]| {
            let output = ends(command(args).stdin(Stdio::null()).spawn().expect("it starts"), &format!("{args:?}"));
            assert!(output.status.success(), "{umask}: {args:?}: {output:?}");
            output
        };
        for run in 0..3 {
            let session = theirs.join("deep/home/sessions/s");
            if run == 2 {
                // The state after a process that ended before SQLite had set the mode.
                fs::write(session.join("history.db-wal"), "").expect("write");
                std::os::unix::fs::chown(session.join("history.db-wal"), Some(NOBODY), Some(NOBODY)).expect("root may");
                chmod(&session.join("history.db-wal"), 0o200);
            }
            let said = relays(command(&["run", "--session", "s", "--", "cat"]), umask);
            assert_eq!(said, "", "{umask}, run {run}");
            let said = relays(command(&["run", "--", "cat"]), umask);
            assert_eq!(said, "", "{umask}, run {run}");
            done(&["context", "push", "--session", "s", "--cmd", "ls"]);
            done(&["events", "--session", "s"]);
            done(&["redact", "--all"]);
            done(&["prune"]);
        }
        let tape = theirs.join("tape");
        done(&["tape", "export", "s", "-o", tape.to_str().expect("UTF-8")]);
        assert_eq!(mode(&tape), 0o600, "{umask}");
        // A start at the same place found its session again.
        let sessions = fs::read_dir(theirs.join("deep/home/sessions")).expect("a folder").count();
        assert_eq!(sessions, 1, "{umask}");
        let mut dirs = vec![theirs.join("deep")];
        while let Some(dir) = dirs.pop() {
            assert_eq!(mode(&dir), 0o700, "{umask}: {}", dir.display());
            for entry in fs::read_dir(dir).expect("a folder") {
                let path = entry.expect("an entry").path();
                let name = path.file_name().expect("a name").to_string_lossy().into_owned();
                match path.is_dir() {
                    true => dirs.push(path),
                    // The process ended while it created a file, and the file never got its name.
                    false if name.starts_with('.') && name.ends_with(".new") => {}
                    false => assert_eq!(mode(&path), 0o600, "{umask}: {}", path.display()),
                }
            }
        }
        assert_eq!(fs::metadata(theirs.join("deep/home")).expect("it is there").uid(), NOBODY);
    }
}

/// Rewrites the config file of a relay; returns its `config` member as soon as it has read the file and the member
/// matches.
fn configure(live: &Live, file: &str, expect: impl Fn(&Value) -> bool) -> Value {
    fs::write(live.home.path().join("config.toml"), file).expect("a file");
    eventually("the new settings", || {
        Some(live.get("/sessions/self")["config"].clone()).filter(|config| expect(config))
    })
}

/// Whether the relay has read the file since its report `before`.
fn is_newer_than(before: &Value) -> impl Fn(&Value) -> bool {
    let before = before["loaded_at"].clone();
    move |config| config["loaded_at"] != before && config["error"].is_null()
}

#[test]
fn running_relay_takes_over_changed_settings() {
    let mut live = Live::initialized("");
    let idle = live.home.beside().join("idle");
    let before = live.get("/sessions/self")["config"].clone();
    assert_eq!((&before["restart_needed"], &before["error"]), (&json!([]), &Value::Null), "{before}");
    let file =
        format!("on_idle = [\"touch\", {idle:?}]\ncontext_commands_max = 1\n[expiry]\nrequest_approval = \"1ms\"\n");
    let after = configure(&live, &file, is_newer_than(&before));
    assert_eq!(after["restart_needed"], json!([]), "{after}");
    live.push(&json!([{"cmd": "one", "exit_code": 0}, {"cmd": "two", "exit_code": 0}]), 2);
    assert_eq!(live.turn(1, "t").len(), 1);
    live.take_turn(1);
    live.say_plainly(&command_asked("0", "t"));
    assert_eq!(parsed(&live.at_server()), json!({"id": 0, "result": {"decision": "decline"}}));
    live.say_plainly(&turn_completed("t", "u1"));
    eventually("the hook", || idle.exists().then_some(()));
}

#[test]
fn invalid_config_changes_nothing_and_is_reported_once() {
    let live = Live::initialized("");
    let before = live.get("/sessions/self")["config"].clone();
    for (mistake, expect) in [("hold = = 1", "line 2"), ("hold = 3", "hold: `3`"), ("holds = true", "`holds`")] {
        let refused = configure(&live, &format!("on_idle = [\"x\"]\n{mistake}\n"), |config| {
            config["error"].as_str().is_some_and(|error| error.contains(expect))
        });
        assert_eq!(refused["loaded_at"], before["loaded_at"], "{mistake}");
        let faults = live.get("/sessions/self")["faults"].clone();
        let what = faults[0]["what"].as_str().expect("a fault");
        assert!(what.contains("is not applied until it is corrected") && !what.contains("it is ignored"), "{faults}");
        assert_eq!(faults.as_array().map(Vec::len), Some(1), "the earlier mistake is gone: {faults}");
    }
    let status = live.tool(&["status"]);
    assert!(String::from_utf8_lossy(&status.stdout).contains("config.toml is not applied"), "{status:?}");
    let told = live.tool(&["config"]);
    assert!(String::from_utf8_lossy(&told.stderr).contains(" s keeps its previous settings"), "{told:?}");
    configure(&live, "on_idle = [\"x\"]\n", is_newer_than(&before));
    assert_eq!(live.get("/sessions/self")["faults"], json!([]), "a corrected file is not a fault");
}

#[test]
fn mistake_at_the_start_ends_when_corrected() {
    let home = Home::new();
    fs::create_dir_all(home.path()).expect("a home");
    fs::write(home.path().join("config.toml"), "holds = true\n").expect("write");
    let live = Live::start_in(home);
    let before = live.get("/sessions/self");
    assert!(before["faults"][0]["what"].as_str().is_some_and(|what| what.contains("`holds`")), "{before}");
    fs::write(live.home.path().join("config.toml"), "hold = true\n").expect("write");
    eventually("no fault", || (live.get("/sessions/self")["faults"] == json!([])).then_some(()));
}

#[test]
fn settings_that_wait_for_restart_are_named() {
    let live = Live::initialized("");
    let waits = json!(["record", "exit_grace", "context_engine.command"]);
    configure(
        &live,
        "session = \"other\"\nexit_grace = \"3s\"\nrecord = false\nhold = true\n[context_engine]\ncommand = [\"x\"]\n",
        |config| config["restart_needed"] == waits,
    );
    let table = live.tool(&["config"]);
    let told = String::from_utf8_lossy(&table.stderr);
    assert!(table.status.success() && told.contains(" s to apply: record, exit_grace"), "{told}");
    let document: Value = serde_json::from_slice(&live.tool(&["config", "--json"]).stdout).expect("one document");
    assert_eq!(document["exit_grace"]["restart_needed"], json!(["s"]), "{document}");
    assert_eq!(document["hold"]["restart_needed"], json!([]), "{document}");
    let status = live.tool(&["status"]);
    assert!(String::from_utf8_lossy(&status.stdout).contains("restart this session to apply: record"), "{status:?}");
    fs::remove_file(live.home.path().join("config.toml")).expect("it is there");
    eventually("the defaults", || (live.get("/sessions/self")["config"]["restart_needed"] == json!([])).then_some(()));
}
