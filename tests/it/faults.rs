//! A fault of codex-shim never affects the user: lines pass, and unrecorded ones are counted.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use codex_shim::testing::control::client;
use serde_json::{Value, json};

use crate::support::both_ends::{Live, turn};
use crate::support::engine::{Engine, assembles};
use crate::support::eventually;
use crate::support::history::page;
use crate::support::journal::Journal;
use crate::support::launch::inherits;
use crate::support::requests::command_asked;
use crate::support::shim::{Home, SHIM};

const LINES: usize = 2_000;

/// `count` numbered lines of 100 bytes.
fn lines(count: usize) -> Vec<u8> {
    (0..count)
        .flat_map(|number| format!("{{\"id\":{number:06},\"x\":\"{}\"}}\n", "y".repeat(80)).into_bytes())
        .collect()
}

/// Writes `bytes` to a relay in front of `cat` and checks that they come back.
fn pass(mut relay: Child, bytes: &[u8]) -> Output {
    let mut stdin = relay.stdin.take().expect("stdin is piped");
    let mut back = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(bytes).expect("the relay reads"));
        relay.stdout.as_mut().expect("stdout is piped").read_to_end(&mut back).expect("stdout can be read");
    });
    assert!(back == bytes, "altered");
    let output = relay.wait_with_output().expect("the shim ends");
    assert!(output.status.success(), "{output:?}");
    output
}

/// The single line that reports the fault; its effect on a database is reported in another.
fn told_once(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.lines().all(|line| line.starts_with("codex-shim: ")), "{stderr}");
    let of_database = |line: &&str| line.contains("history.db") || line.contains("ledger.db");
    let (databases, others): (Vec<&str>, Vec<&str>) = stderr.lines().partition(of_database);
    assert!(databases.len() <= 2 && others.len() == 1, "{stderr}");
    others[0].to_owned()
}

/// Checks that recorded and missing lines add up to all forwarded lines.
fn accounts_for(journal: &Journal, lines: usize) {
    let missing: u64 = journal.gaps.iter().map(|(lines, _)| lines).sum();
    assert!(missing > 0, "the test made no gap");
    assert_eq!(journal.client.len() + journal.server.len() + missing as usize, lines);
}

#[test]
fn a_file_that_may_not_grow_is_a_gap_and_the_next_segment_goes_on() {
    let home = Home::new();
    let mut command = Command::new("sh");
    // In blocks of 512 bytes: the journal's segments end at 16 KiB.
    command.args(["-c", "ulimit -f 32; exec \"$0\" run --session s -- cat", SHIM]);
    home.adopt(&mut command).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = pass(command.spawn().expect("the shim starts"), &lines(LINES));
    assert!(told_once(&output).contains("File too large"));
    let journal = home.journal();
    accounts_for(&journal, 2 * LINES);
    assert!(journal.headers.len() > 1);
    assert_eq!(journal.event_names().last(), Some(&"generation_ended"));
}

#[test]
fn a_gap_in_the_journal_is_told_to_every_cursor_before_it_for_good() {
    let home = Home::new();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 32; exec \"$0\" run --session s -- cat", SHIM]);
    home.adopt(&mut command).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    pass(command.spawn().expect("the shim starts"), &lines(LINES));
    accounts_for(&home.journal(), 2 * LINES);
    let session = home.path().join("sessions/s");
    for run in 0..2 {
        let mut relay = home.shim(&["run", "--session", "s", "--", "cat"]).spawn().expect("the shim starts");
        // Everything recorded is indexed, so no other gap is reported.
        let latest = eventually("the rest of the history", || {
            let document: Value = serde_json::from_slice(&client::get(&session, "/sessions/self").ok()?.body).ok()?;
            let index = &document["index"];
            (index["lag_lines"] == 0 && index["persisted"] == true).then(|| page(&session, "limit=1"))
        });
        let latest_seq = latest["latest_seq"].as_u64().expect("there is an event");
        let told = page(&session, "since_seq=0&limit=500");
        assert_eq!((&told["history_gap"], &told["gap_reason"]), (&json!(true), &json!("journal_gap")), "{run}: {told}");
        let told = page(&session, &format!("since_seq={latest_seq}"));
        assert_eq!((&told["history_gap"], &told["gap_reason"]), (&json!(false), &Value::Null), "{run}: {told}");
        drop(relay.stdin.take());
        assert!(relay.wait().expect("the shim ends").success());
    }
}

#[test]
fn a_journal_that_is_read_only_is_a_gap_and_goes_on_once_it_is_not() {
    let home = Home::new();
    fs::create_dir_all(home.path().join("sessions/s")).expect("a folder");
    let Some(disk) = SmallDisk::mount(&home.path().join("sessions/s/journal")) else { return };
    let remount = |how: &str| {
        let done = Command::new("mount").args(["-o", &format!("remount,{how}")]).arg(&disk.path).status();
        assert!(done.is_ok_and(|status| status.success()), "it was mounted by us");
    };
    remount("ro");
    let mut relay = home.shim(&["run", "--session", "s", "--", "cat"]).spawn().expect("the shim starts");
    let mut stdin = relay.stdin.take().expect("stdin is piped");
    let mut stdout = relay.stdout.take().expect("stdout is piped");
    let mut passed = 0;
    let mut pass = |line: &[u8; 9]| {
        stdin.write_all(line).expect("the relay reads");
        stdout.read_exact(&mut [0; 9]).expect("the line comes back");
        passed += 1;
    };
    (0..100).for_each(|_| pass(b"{\"id\":1}\n"));
    remount("rw");
    // A segment gets its name when it is begun; lines that arrive before that are missing from it. Each line is recorded
    // twice.
    let is_recorded = || {
        let segments = fs::read_dir(&disk.path).expect("a folder").map(|segment| segment.expect("a name").path());
        let named = segments.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
        named.filter_map(|path| fs::read_to_string(path).ok()).any(|text| text.matches("\"id\":2").count() >= 4)
    };
    eventually("a journal", || {
        pass(b"{\"id\":2}\n");
        is_recorded().then_some(())
    });
    drop(stdin);
    let output = relay.wait_with_output().expect("the shim ends");
    assert!(output.status.success(), "{output:?}");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.lines().all(|line| line.starts_with("codex-shim: ")), "{stderr}");
    assert_eq!(stderr.matches("Read-only file system").count(), 1, "{stderr}");
    let journal = Journal::read(&home.path().join("sessions/s"));
    accounts_for(&journal, 2 * passed);
    assert!(journal.client.len() >= 2, "what came later is on record");
}

#[test]
fn shims_that_start_at_the_same_instant_have_a_session_each_and_lose_nothing() {
    const TOGETHER: usize = 6;
    for name in [&["--session", "s"][..], &[]] {
        let home = Home::new();
        let args = [&["run"], name, &["--", "cat"]].concat();
        let commands: Vec<Command> = (0..TOGETHER)
            .map(|_| {
                let mut command = home.shim(&args);
                command.current_dir(home.beside());
                command
            })
            .collect();
        let mut relays: Vec<Child> =
            commands.into_iter().map(|mut command| command.spawn().expect("the shim starts")).collect();
        for (number, relay) in relays.iter_mut().enumerate() {
            let line = format!("{{\"id\":{number}}}\n");
            relay.stdin.as_mut().expect("stdin is piped").write_all(line.as_bytes()).expect("the relay reads");
            let mut back = vec![0; line.len()];
            relay.stdout.as_mut().expect("stdout is piped").read_exact(&mut back).expect("the line comes back");
            assert_eq!(back, line.as_bytes());
        }
        // All of them run now, each with its own socket.
        let sessions = home.sessions();
        let ids: Vec<Value> = sessions
            .iter()
            .map(|session| {
                let answer = || client::get(session, "/sessions/self").ok();
                let document = || serde_json::from_slice::<Value>(&answer()?.body).ok();
                eventually("the control socket", document)["session_id"].clone()
            })
            .collect();
        assert_eq!(ids.len(), TOGETHER, "{ids:?}");
        for (session, id) in sessions.iter().zip(&ids) {
            assert_eq!(session.file_name().and_then(|name| name.to_str()), id.as_str());
        }
        if !name.is_empty() {
            assert_eq!(json!(ids), json!(["s", "s.2", "s.3", "s.4", "s.5", "s.6"]));
        }
        for mut relay in relays {
            drop(relay.stdin.take());
            let output = relay.wait_with_output().expect("the shim ends");
            assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        }
        let journals: Vec<Journal> = sessions.iter().map(|session| Journal::read(session)).collect();
        let lines: BTreeSet<String> = journals.iter().map(|journal| format!("{:?}", journal.client)).collect();
        assert_eq!(lines.len(), TOGETHER, "{lines:?}");
        assert!(journals.iter().all(|journal| journal.headers.len() == 1 && journal.client.len() == 1));
    }
}

#[test]
fn whichever_record_meets_the_limit_the_end_is_on_record_and_stderr_is_ours() {
    // A segment of 1 KiB holds its header and little more. With the length of the line, the record that no longer fits
    // varies: in some of these runs it is the last.
    for fill in (1..=400).step_by(40) {
        let home = Home::new();
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -f 2; exec \"$0\" run --session s -- cat", SHIM]);
        home.adopt(&mut command).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // The log is already over the limit: a failure to log is no reason to write to the user's stderr.
        std::fs::create_dir_all(home.path().join("sessions/s")).expect("a folder");
        std::fs::write(home.path().join("sessions/s/shim.log"), [b'.'; 2_000]).expect("a file");
        let line = format!("\"{}\"\n", "z".repeat(fill));
        let output = pass(command.spawn().expect("the shim starts"), line.as_bytes());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.lines().all(|line| line.starts_with("codex-shim: ")), "{fill}: {stderr}");
        let journal = home.journal();
        let missing: u64 = journal.gaps.iter().map(|(lines, _)| lines).sum();
        assert_eq!(journal.client.len() + journal.server.len() + missing as usize, 2, "{fill}");
        assert_eq!(journal.event_names().last(), Some(&"generation_ended"), "{fill}: {:?}", journal.texts);
    }
}

#[test]
fn the_limit_on_files_is_ours_and_its_signal_is_not_the_child_s() {
    let home = Home::new();
    let mut command = Command::new("sh");
    let child = "head -c 100000 /dev/zero >big; echo $?";
    command.args(["-c", "ulimit -f 32; exec \"$0\" run --session s -- sh -c \"$1\"", SHIM, child]);
    home.adopt(&mut command).current_dir(home.beside()).stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.output().expect("the shim runs");
    // 128 + 25: SIGXFSZ killed the child's child, as without codex-shim.
    assert_eq!(String::from_utf8_lossy(&output.stdout), "153\n");
}

#[test]
fn a_full_disk_is_a_gap_that_is_marked_once_there_is_room() {
    let home = Home::new();
    let Some(disk) = SmallDisk::mount(&home.beside().join("disk")) else { return };
    let filler = disk.path.join("filler");
    let mut command = home.shim(&["run", "--session", "s", "--", "cat"]);
    command.env("CODEX_SHIM_HOME", disk.path.join("home"));
    let mut relay = command.spawn().expect("the shim starts");
    let mut stdin = relay.stdin.take().expect("stdin is piped");
    let mut stdout = relay.stdout.take().expect("stdout is piped");
    let sent = lines(LINES);
    let mut pass = || {
        let mut back = vec![0; sent.len()];
        std::thread::scope(|scope| {
            scope.spawn(|| stdin.write_all(&sent).expect("the relay reads"));
            stdout.read_exact(&mut back).expect("the lines come back");
        });
        assert!(back == sent, "altered");
    };
    pass();
    // Fills the rest of the disk.
    let _ = std::fs::write(&filler, vec![0; 8 << 20]);
    pass();
    pass();
    std::fs::remove_file(&filler).expect("the filler can go");
    pass();
    drop(stdin);
    let output = relay.wait_with_output().expect("the shim ends");
    assert!(told_once(&output).contains("No space left on device"));
    accounts_for(&Journal::read(&disk.path.join("home/sessions/s")), 8 * LINES);
}

/// A file system of 4 MiB.
pub struct SmallDisk {
    pub path: std::path::PathBuf,
}

impl SmallDisk {
    /// Mounts one; prints that the test is skipped if mounting is not permitted.
    pub fn mount(path: &Path) -> Option<SmallDisk> {
        std::fs::create_dir(path).expect("a folder");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m,mode=700", "none"]).arg(path).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(SmallDisk { path: path.to_owned() });
        }
        let _ = writeln!(std::io::stderr(), "SKIPPED: the test of a full disk: mounting a tmpfs is not allowed here");
        None
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}

#[test]
fn a_session_that_cannot_be_opened_is_tried_again_and_its_journal_begins_with_the_gap() {
    let home = Home::new();
    std::fs::write(home.path(), "in the way").expect("a file");
    let mut relay = home.shim(&["run", "--session", "s", "--", "cat"]).spawn().expect("the shim starts");
    let mut stdin = relay.stdin.take().expect("stdin is piped");
    let mut stdout = relay.stdout.take().expect("stdout is piped");
    let mut pass = |line: &[u8; 9]| {
        stdin.write_all(line).expect("the relay reads");
        stdout.read_exact(&mut [0; 9]).expect("the line comes back");
    };
    pass(b"{\"id\":1}\n");
    std::fs::remove_file(home.path()).expect("it can be removed");
    eventually("a journal", || {
        pass(b"{\"id\":2}\n");
        (!home.sessions().is_empty()).then_some(())
    });
    drop(stdin);
    let output = relay.wait_with_output().expect("the shim ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("home is a file, not a folder"), "{stderr}");
    assert!(stderr.contains("the session is open; recording begins"), "{stderr}");
    let journal = home.journal();
    assert!(journal.texts[1].contains("\"gap\":{\"lines\":"), "{:?}", &journal.texts[..2]);
    assert_eq!(journal.event_names(), ["generation_started", "generation_ended"]);
    assert_eq!(home.sessions().len(), 1);
    assert!(journal.gaps[0].0 >= 2 && journal.client.len() + journal.server.len() > 0);
}

#[test]
fn a_log_that_cannot_be_opened_costs_only_the_log() {
    let home = Home::new();
    std::fs::create_dir_all(home.path().join("sessions/s/shim.log")).expect("a folder");
    let relay = home.shim(&["run", "--session", "s", "--", "cat"]).spawn().expect("the shim starts");
    let output = pass(relay, &lines(3));
    assert!(told_once(&output).contains("this run has no log"));
    assert_eq!(home.journal().client.len(), 3);
}

#[test]
fn a_journal_folder_that_is_none_is_told_once() {
    let home = Home::new();
    std::fs::create_dir_all(home.path().join("sessions/s")).expect("a folder");
    std::fs::write(home.path().join("sessions/s/journal"), "in the way").expect("a file");
    let relay = home.shim(&["run", "--session", "s", "--", "cat"]).spawn().expect("the shim starts");
    let output = pass(relay, &lines(10));
    assert!(told_once(&output).contains("sessions/s/journal is a file, not a folder"));
}

#[test]
fn a_journal_folder_that_is_removed_under_us_costs_the_client_nothing() {
    let home = Home::new();
    let session = home.path().join("sessions/s");
    std::fs::create_dir_all(session.join("journal")).expect("a folder");
    let mut relay = home.shim(&["run", "--session", "s", "--", "cat"]).spawn().expect("the shim starts");
    let mut stdin = relay.stdin.take().expect("stdin is piped");
    let mut stdout = relay.stdout.take().expect("stdout is piped");
    stdin.write_all(b"{\"id\":1}\n").expect("the relay reads");
    stdout.read_exact(&mut [0; 9]).expect("the line comes back");
    // The segment stays open for writing, so no write fails; the deleted records are lost.
    std::fs::remove_dir_all(session.join("journal")).expect("it can be removed");
    stdin.write_all(b"{\"id\":2}\n").expect("the relay reads");
    stdout.read_exact(&mut [0; 9]).expect("the line comes back");
    drop(stdin);
    assert!(relay.wait().expect("the shim ends").success());
}

#[test]
fn a_child_that_floods_stderr_is_not_our_concern() {
    let home = Home::new();
    let script = "head -c 3000000 /dev/zero >&2; echo done";
    let mut command = home.shell(script);
    let file = std::fs::File::create(home.beside().join("stderr")).expect("a file");
    let output = command.stdin(Stdio::null()).stderr(file).output().expect("the shim runs");
    assert_eq!(output.stdout, b"done\n");
    let flooded = || std::fs::metadata(home.beside().join("stderr")).is_ok_and(|file| file.len() == 3_000_000);
    eventually("the child's stderr", || flooded().then_some(()));
}

#[test]
fn a_journal_over_its_bound_loses_its_oldest_segment_and_nothing_else() {
    const LINES_BIG: usize = 5_000;
    let home = Home::new();
    let mut command = home.shim(&["run", "--session", "s", "--", "cat"]);
    let mut relay = command.env("CODEX_SHIM_JOURNAL_BYTES_MAX", "1MiB").spawn().expect("the shim starts");
    let mut stdin = relay.stdin.take().expect("stdin is piped");
    let mut stdout = relay.stdout.take().expect("stdout is piped");
    let line = format!("\"{}\"\n", "z".repeat(8_000)).into_bytes();
    // 80 MB in both directions: the first segment is full, and the second one has begun.
    let mut back = vec![0; line.len() * LINES_BIG];
    std::thread::scope(|scope| {
        scope.spawn(|| (0..LINES_BIG).for_each(|_| stdin.write_all(&line).expect("the relay reads")));
        stdout.read_exact(&mut back).expect("the lines come back");
    });
    let segments = || {
        let names = std::fs::read_dir(home.path().join("sessions/s/journal")).expect("it can be read");
        let mut names: Vec<String> =
            names.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8")).collect();
        names.sort();
        names
    };
    eventually("the bound", || segments().first().is_some_and(|name| name.ends_with("-002.jsonl")).then_some(()));
    drop(stdin);
    assert!(relay.wait().expect("the shim ends").success());
    assert_eq!(segments().len(), 1);
}

const TURN_COMPLETED: &str =
    r#"{"method":"turn/completed","params":{"threadId":"t","turn":{"id":"u1","status":"completed"}}}"#;

/// A relay that has run `script` as its idle hook.
fn idle_with(script: &str) -> Live {
    let mut live = Live::configured(&format!("on_idle = [\"sh\", \"-c\", '''{script}''']\n"));
    assert_eq!(live.turn(1, "t"), [""; 0]);
    live.take_turn(1);
    live.say_plainly(TURN_COMPLETED);
    live
}

#[test]
fn a_hook_that_hangs_ends_with_all_that_it_has_started_though_the_relay_was_killed() {
    let live = idle_with(
        r#"sleep 1000 & echo $$ $! > "$CODEX_SHIM_HOME/new"; mv "$CODEX_SHIM_HOME/new" "$CODEX_SHIM_HOME/pids"; wait"#,
    );
    let pids = live.home.path().join("pids");
    let pids = eventually("a hook that runs", || fs::read_to_string(&pids).ok());
    let _home = live.kill();
    let lives = |pid: &str| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
    };
    assert_eq!(pids.split_whitespace().count(), 2, "{pids}");
    for pid in pids.split_whitespace() {
        eventually("the end of what hangs", || (!lives(pid)).then_some(()));
    }
}

#[test]
fn a_hook_that_runs_when_the_relay_ends_is_not_cut_short() {
    let live = idle_with(
        r#"cat > "$CODEX_SHIM_HOME/began"; until [ -e "$CODEX_SHIM_HOME/go" ]; do sleep 0.1; done; echo $CODEX_SHIM_SESSION > "$CODEX_SHIM_HOME/did""#,
    );
    let dir = live.home.path();
    eventually("a hook that runs", || fs::read_to_string(dir.join("began")).ok().filter(|told| told.ends_with('\n')));
    let _home = live.end_quietly();
    fs::write(dir.join("go"), "").expect("a file");
    let did = eventually("its end", || fs::read_to_string(dir.join("did")).ok().filter(|did| did.ends_with('\n')));
    assert_eq!(did, "s\n");
}

/// The name of the pipe behind a descriptor, as `/proc` shows it.
#[cfg(target_os = "linux")]
fn name_of(end: &impl std::os::fd::AsFd) -> String {
    format!("pipe:[{}]", rustix::fs::fstat(end).expect("it is open").st_ino)
}

/// A shell script that writes the targets of the processes' descriptors into a file, atomically.
#[cfg(target_os = "linux")]
fn tells_descriptors(of: &[&str], file: &Path) -> String {
    let globs: Vec<String> = of.iter().map(|pid| format!("/proc/{pid}/fd/*")).collect();
    let (globs, file) = (globs.join(" "), file.display());
    format!("for fd in {globs}; do readlink $fd; done > {file}.new; mv {file}.new {file}")
}

#[cfg(target_os = "linux")]
#[test]
fn programs_of_the_user_get_no_descriptor_of_ours() {
    let home = Home::new();
    let file = |name: &str| home.beside().join(name);
    let engine_tells = format!("{}; {}", tells_descriptors(&["$$"], &file("engine-fds")), assembles("[]", ""));
    let engine = Engine::new(&home, "assemble", &[("assemble", &engine_tells)]);
    let shell = |of: &[&str], name: &str| format!(r#"["sh", "-c", "{}; echo x"]"#, tells_descriptors(of, &file(name)));
    // The hook's supervisor is its parent.
    let hook = |name: &str| shell(&["$$", "$PPID"], name);
    let fragment =
        format!("[[fragments]]\nname = \"f\"\nrole = \"developer\"\ncommand = {}", shell(&["$$"], "fragment"));
    let config = [
        format!("on_idle = {}", hook("idle")),
        format!("on_pending = {}", hook("pending")),
        engine.config(60_000),
        fragment,
    ];
    fs::create_dir_all(home.path()).expect("a folder");
    fs::write(home.path().join("config.toml"), config.join("\n")).expect("a file");
    let (reading, writing) = std::io::pipe().expect("a pipe");
    let (liveness, files) = (name_of(&reading), ["idle", "pending", "engine-fds", "fragment"].map(file));
    let mut live = Live::start_inheriting(home, writing.into());
    engine.is_ready(&live.session);
    live.send(&turn(1, "t", "hi"));
    live.at_server();
    live.say_plainly(&command_asked("7", "t"));
    eventually("a hook for the request", || files[1].exists().then_some(()));
    live.take_turn(1);
    live.say_plainly(TURN_COMPLETED);
    let ours = live.home.path().canonicalize().expect("it is there").display().to_string();
    for file in files {
        let told = eventually("a list", || fs::read_to_string(&file).ok());
        let is_bad = |target: &&str| {
            **target == liveness || target.starts_with(&ours) || target.contains("socket:") || target.contains("anon")
        };
        assert_eq!(told.lines().find(is_bad), None, "{}: {told}", file.display());
        // Its stdin, and the stdout and stderr of the engine or the output of a command.
        let pipes: BTreeSet<&str> = told.lines().filter(|target| target.starts_with("pipe:")).collect();
        assert!((1..=3).contains(&pipes.len()), "{}: {told}", file.display());
    }
    // The relay itself inherited it, as a server in its place would.
    let relay = crate::support::launch::descriptors(live.relay.id());
    assert!(relay.iter().any(|(_, target)| *target == liveness), "{relay:?}");
    live.kill();
}

#[test]
fn a_hook_does_not_hold_what_our_launcher_waits_for() {
    let home = Home::new();
    fs::create_dir_all(home.path()).expect("a folder");
    let script = r#"cat > "$CODEX_SHIM_HOME/began"; until [ -e "$CODEX_SHIM_HOME/go" ]; do sleep 0.1; done; echo > "$CODEX_SHIM_HOME/did""#;
    let config = format!("on_idle = [\"sh\", \"-c\", '''{script}''']\n");
    fs::write(home.path().join("config.toml"), config).expect("a file");
    let (mut reading, writing) = std::io::pipe().expect("a pipe");
    let mut live = Live::start_inheriting(home, writing.into());
    assert_eq!(live.turn(1, "t"), [""; 0]);
    live.take_turn(1);
    live.say_plainly(TURN_COMPLETED);
    let dir = live.home.path();
    eventually("a hook that runs", || fs::read_to_string(dir.join("began")).ok().filter(|told| told.ends_with('\n')));
    let _home = live.end_quietly();
    assert_eq!(reading.read(&mut [0]).expect("a pipe"), 0);
    // The hook was not killed for that.
    fs::write(dir.join("go"), "").expect("a file");
    eventually("its end", || dir.join("did").exists().then_some(()));
}

#[cfg(target_os = "linux")]
#[test]
fn what_doctor_runs_gets_no_descriptor_of_ours() {
    let home = Home::new();
    let (list, codex) = (home.beside().join("fds"), home.beside().join("codex"));
    let script = format!("#!/bin/sh\n{}; echo codex-cli 0.169.0\n", tells_descriptors(&["$$"], &list));
    let mut write = Command::new("sh");
    let written = write.args(["-c", r#"printf %s "$1" >"$0" && chmod 755 "$0""#]).arg(&codex).arg(script).status();
    assert!(written.expect("sh starts").success());
    let (reading, writing) = std::io::pipe().expect("a pipe");
    let mut doctor = home.shim(&["doctor", "--json"]);
    let output = inherits(doctor.env("CODEX_SHIM_CODEX", &codex), writing.into()).output().expect("it runs");
    assert!(String::from_utf8_lossy(&output.stdout).contains("codex-cli 0.169.0"), "{output:?}");
    let told = fs::read_to_string(&list).expect("it ran");
    assert!(!told.contains(&name_of(&reading)), "{told}");
}
