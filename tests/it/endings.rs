//! How a relay ends, and how each side sees it: exit codes, closed streams, signals, slow and absent readers.
//!
//! Each shim leads its own process group, and its guard kills that group, so no process of a server outlives the test.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use codex_shim::testing::control::client;
use codex_shim::testing::wire::Side;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus};
use serde_json::Value;

use crate::support::launch::{LAUNCHERS, Launcher};
use crate::support::shim::{Home, SHIM};
use crate::support::{PATIENCE, eventually, make_fifo, stop};

/// Prints `got-NAME` at a signal and exits with its own code; ends for nothing else.
const TRAPS: &str =
    "trap 'echo got-TERM; exit 7' TERM; trap 'echo got-INT; exit 8' INT; trap 'echo got-HUP; exit 9' HUP
    echo ready; while :; do sleep 0.05; done";

/// Ignores everything except SIGKILL.
const STUBBORN: &str = "trap '' TERM; echo ready; while :; do sleep 0.05; done";

/// The shim's limit on allocated memory. Mapped file pages do not count: in a test build they alone are as large as a
/// whole release build may be.
const ALLOCATED_KIB_MAX: u64 = 12 << 10;

/// A reading end whose reads time out, so that a hanging shim fails a test instead of blocking it.
struct Output(OwnedFd);

impl Output {
    /// The available bytes, up to `bytes_max`; empty at the end of the stream.
    fn take(&self, bytes_max: usize) -> Vec<u8> {
        let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        let ready = rustix::event::poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&patience));
        assert_eq!(ready, Ok(1), "neither bytes nor an end came");
        let mut bytes = vec![0; bytes_max];
        let read = rustix::io::read(&self.0, &mut bytes[..]).expect("it can be read");
        bytes.truncate(read);
        bytes
    }

    /// Exactly the next `bytes`, read in pieces of at most `piece`.
    fn exactly(&self, bytes: usize, piece: usize) -> Vec<u8> {
        let mut seen = Vec::with_capacity(bytes);
        while seen.len() < bytes {
            let taken = self.take(piece.min(bytes - seen.len()));
            assert!(!taken.is_empty(), "the stream ended after {} of {bytes} bytes", seen.len());
            seen.extend(taken);
        }
        seen
    }

    /// The next line, without reading further.
    fn line(&self) -> String {
        let mut line = String::new();
        while !line.ends_with('\n') {
            line.push(char::from(self.exactly(1, 1)[0]));
        }
        line
    }

    /// Everything up to the end of the stream.
    fn rest(&self) -> String {
        let mut seen = Vec::new();
        loop {
            let taken = self.take(4096);
            if taken.is_empty() {
                return String::from_utf8_lossy(&seen).into_owned();
            }
            seen.extend(taken);
        }
    }

    /// Number of unread bytes.
    fn waiting(&self) -> u64 {
        rustix::io::ioctl_fionread(&self.0).expect("a pipe tells")
    }
}

/// A running shim and the client's ends of its stdio.
struct Run {
    home: Home,
    shim: Child,
    stdin: Option<OwnedFd>,
    stdout: Option<Output>,
    stderr: Option<Output>,
}

impl Run {
    /// Starts `command` as the leader of a process group. Consumes the command, because it holds its ends of the
    /// streams.
    fn start(home: Home, mut command: Command) -> Run {
        let mut shim = command.process_group(0).spawn().expect("the shim starts");
        Run {
            home,
            stdin: shim.stdin.take().map(OwnedFd::from),
            stdout: shim.stdout.take().map(|end| Output(end.into())),
            stderr: shim.stderr.take().map(|end| Output(end.into())),
            shim,
        }
    }

    /// A relay in front of a shell, whose `$DIR` is a folder for [`Run::noted`].
    fn shell(script: &str) -> Run {
        Run::with(&[], script)
    }

    /// The same, with command-line options for codex-shim.
    fn with(options: &[&str], script: &str) -> Run {
        let home = Home::new();
        let args = [&["run", "--session", "s"], options, &["--", "sh", "-c", script]].concat();
        let mut command = home.shim(&args);
        command.env("DIR", home.beside());
        Run::start(home, command)
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.shim)
    }

    fn send(&self, text: &str) -> Result<(), Errno> {
        rustix::io::write(self.stdin.as_ref().expect("stdin is open"), text.as_bytes()).map(drop)
    }

    fn stdout(&self) -> &Output {
        self.stdout.as_ref().expect("stdout is open")
    }

    fn stderr(&self) -> &Output {
        self.stderr.as_ref().expect("stderr is open")
    }

    /// Returns after the server has printed `ready`.
    fn ready(self) -> Run {
        assert_eq!(self.stdout().line(), "ready\n");
        self
    }

    fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.pid(), signal).expect("the shim is there");
    }

    /// The file `name` in the server's `$DIR`.
    fn path(&self, name: &str) -> PathBuf {
        self.home.beside().join(name)
    }

    /// The first line of a file that the server writes.
    fn noted(&self, name: &str) -> String {
        let path = self.path(name);
        eventually(name, || fs::read_to_string(&path).ok()?.split_once('\n').map(|(line, _)| line.to_owned()))
    }

    /// The server's pid, read from the file `pid`.
    fn server(&self) -> Pid {
        pid(&self.noted("pid"))
    }

    /// Waits until that many pipes of the shim are full, so that everything in front of them waits. Only Linux tells.
    fn wait_for_full_pipes(&self, count: usize) {
        let folder = format!("/proc/{}/fd", self.pid().as_raw_nonzero());
        let is_full = |path: PathBuf| {
            let kind = fs::metadata(&path).ok().filter(|kind| kind.file_type().is_fifo())?;
            let pipe = rustix::fs::open(path, OFlags::RDONLY | OFlags::NONBLOCK, rustix::fs::Mode::empty()).ok()?;
            (rustix::io::ioctl_fionread(&pipe).ok()? > 60_000).then(|| kind.ino())
        };
        eventually("full pipes", || {
            let Ok(ends) = fs::read_dir(&folder) else { return Some(()) };
            let full: BTreeSet<u64> = ends.flatten().filter_map(|end| is_full(end.path())).collect();
            (full.len() >= count).then_some(())
        });
    }

    /// Waits until the shim has reaped the server and finished everything that does not need the client.
    fn wait_until_reaped(&self) {
        let server = self.server();
        eventually("the end of the server", || state(server).is_none().then_some(()));
        eventually("a shim at rest", || matches!(state(self.pid()), Some('S' | 'Z')).then_some(()));
    }

    /// The shim's status if it has exited. The shim is not reaped, so that its group keeps its id until the guard has
    /// used it.
    fn ended(&self) -> Option<WaitIdStatus> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        rustix::process::waitid(WaitId::Pid(self.pid()), options).expect("it is our child")
    }

    /// Waits for the shim to exit; returns its exit code.
    fn exit(&self) -> i32 {
        let status = eventually("the end of the shim", || self.ended());
        status.exit_status().unwrap_or_else(|| panic!("a signal ended the shim: {:?}", status.terminating_signal()))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process_group(self.pid(), Signal::KILL);
        let _ = self.shim.wait();
    }
}

fn pid(text: &str) -> Pid {
    let number = text.trim().parse().expect("a pid is a number");
    Pid::from_raw(number).expect("a pid is not 0")
}

/// The state letter of an existing process.
fn state(pid: Pid) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// The number in a line `NAME: NUMBER …` of a file in `/proc/PID`.
fn figure(pid: Pid, file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/{file}", pid.as_raw_nonzero())).expect("the process is there");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("the file has this line");
    line.trim_start_matches(':').split_whitespace().next().and_then(|word| word.parse().ok()).expect("it is a number")
}

/// The output of `seq 100000 999999 | head -c BYTES`.
fn numbers(bytes: usize) -> Vec<u8> {
    (100_000..1_000_000).flat_map(|number| format!("{number}\n").into_bytes()).take(bytes).collect()
}

/// A reading end and a writing end.
fn ends(kind: &str) -> (OwnedFd, OwnedFd) {
    if kind == "socket" {
        let (one, other) = UnixStream::pair().expect("a pair");
        return (one.into(), other.into());
    }
    let (reading, writing) = std::io::pipe().expect("a pipe");
    (reading.into(), writing.into())
}

fn skip(test: &str, why: &str) {
    // The harness captures stdout, so write to stderr directly: a skipped test must be visible.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: {why}");
}

#[test]
fn the_servers_exit_code_is_ours_and_128_plus_n_for_a_signal() {
    for (script, code) in
        [("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("kill -9 $$", 137), ("kill -15 $$", 143), ("echo x", 0)]
    {
        let run = Run::shell(script);
        assert_eq!(run.exit(), code, "{script}");
        assert_eq!(run.stdout().rest(), if script == "echo x" { "x\n" } else { "" }, "{script}");
        assert_eq!(run.stderr().rest(), "", "{script}");
    }
}

#[test]
fn client_eof_closes_the_servers_stdin_and_what_comes_after_still_arrives() {
    let mut run = Run::shell("cat; echo tail; exit 2");
    run.send("one\nlast without newline").expect("the shim reads");
    run.stdin = None;
    assert_eq!(run.stdout().rest(), "one\nlast without newlinetail\n");
    assert_eq!(run.exit(), 2);
}

#[test]
fn a_server_that_dies_is_seen_at_once_while_the_clients_stdin_stays_open() {
    let run = Run::shell("read line; kill -9 $$");
    run.send("go\n").expect("the shim reads");
    assert_eq!(run.stdout().rest(), "");
    assert_eq!(run.exit(), 137);
    assert_eq!(run.send("more\n"), Err(Errno::PIPE));
}

#[test]
fn a_server_that_closes_its_stdout_and_lives_on_does_so_for_the_client_too() {
    let run = Run::shell("echo one; exec >&-; read line; exit 5");
    assert_eq!(run.stdout().rest(), "one\n");
    assert!(run.ended().is_none(), "the server still waits for a line");
    run.send("go\n").expect("the shim reads");
    assert_eq!(run.exit(), 5);
}

#[test]
fn a_server_that_closes_its_stdin_and_lives_on_breaks_the_clients_pipe_only() {
    let run =
        Run::shell(r#"exec <&-; echo ready; while ! [ -e "$DIR/go" ]; do sleep 0.05; done; echo tail; exit 6"#).ready();
    let error = eventually("a broken pipe", || run.send("x\n").err());
    assert_eq!(error, Errno::PIPE);
    assert!(run.ended().is_none(), "the server lives on");
    File::create(run.path("go")).expect("a file");
    assert_eq!(run.stdout().rest(), "tail\n");
    assert_eq!(run.exit(), 6);
}

#[test]
fn a_client_that_closes_its_reading_end_breaks_the_servers_pipe() {
    for (script, code) in
        [("while :; do echo x; done", 141), ("trap '' PIPE; while echo x 2>/dev/null; do :; done; exit 7", 7)]
    {
        let mut run = Run::shell(script);
        assert_eq!(run.stdout().line(), "x\n", "{script}");
        run.stdout = None;
        assert_eq!(run.exit(), code, "{script}");
    }
}

#[test]
fn termination_interrupt_and_hangup_are_passed_on() {
    for (signal, said, code) in
        [(Signal::TERM, "got-TERM\n", 7), (Signal::INT, "got-INT\n", 8), (Signal::HUP, "got-HUP\n", 9)]
    {
        let run = Run::shell(TRAPS).ready();
        run.signal(signal);
        assert_eq!(run.stdout().rest(), said);
        assert_eq!(run.exit(), code);
    }
}

#[test]
fn a_hangup_that_was_ignored_at_the_start_stays_ignored_for_both() {
    let home = Home::new();
    let mut command = Command::new("sh");
    home.adopt(&mut command).stdin(Stdio::piped()).stdout(Stdio::piped());
    let server = "echo ready; read line; kill -HUP $$; echo lived; exit 3";
    command.args(["-c", r#"trap '' HUP; exec "$0" run --session s -- sh -c "$1""#, SHIM, server]);
    let run = Run::start(home, command).ready();
    run.signal(Signal::HUP);
    run.send("go\n").expect("the shim reads");
    assert_eq!(run.stdout().rest(), "lived\n");
    assert_eq!(run.exit(), 3);
}

#[test]
fn a_server_that_ignores_eof_is_terminated_after_the_grace() {
    let mut run = Run::with(&["--exit-grace", "300ms"], TRAPS).ready();
    run.stdin = None;
    assert_eq!(run.stdout().rest(), "got-TERM\n");
    assert_eq!(run.exit(), 7);
}

#[test]
fn a_server_that_ignores_termination_is_killed_whether_that_was_asked_for_or_due_after_eof() {
    let signalled = Run::shell(STUBBORN).ready();
    let mut closed = Run::with(&["--exit-grace", "50ms"], STUBBORN).ready();
    signalled.signal(Signal::TERM);
    closed.stdin = None;
    assert_eq!(signalled.exit(), 137);
    assert_eq!(closed.exit(), 137);
}

#[test]
fn the_kill_of_the_shim_terminates_the_server_and_closes_the_pipes_of_what_it_started() {
    let run = Run::shell(
        r#"exec 3<&0; (cat <&3 >/dev/null; echo eof >"$DIR/grandchild") &
        trap 'echo got-TERM >"$DIR/server"; exit' TERM; echo $$ >"$DIR/pid"
        while :; do sleep 0.05; done"#,
    );
    let server = run.server();
    run.signal(Signal::KILL);
    assert_eq!(run.noted("server"), "got-TERM");
    eventually("the server's end", || matches!(state(server), None | Some('Z')).then_some(()));
    assert_eq!(run.noted("grandchild"), "eof");
    assert_eq!(run.stdout().rest(), "");
}

#[test]
fn a_launcher_that_leaves_its_child_behind_ends_the_relay_with_its_own_code() {
    // The lines before the end fit into the pipes, so the launcher need not wait for the client.
    let run = Run::shell(
        r#"(seq 100000 999999 | head -c 70000; echo x >"$DIR/written"; exec sleep 1000) & echo $! >"$DIR/left"
        while ! [ -e "$DIR/written" ]; do sleep 0.05; done; echo $$ >"$DIR/pid"; exit 3"#,
    );
    let left = pid(&run.noted("left"));
    run.wait_until_reaped();
    assert_eq!(run.stdout().rest().into_bytes(), numbers(70_000));
    assert_eq!(run.exit(), 3);
    assert!(!matches!(state(left), None | Some('Z')), "what is left is not ours to end");
}

#[test]
fn a_client_that_is_slow_at_the_end_gets_everything() {
    let run = Run::shell(r#"echo $$ >"$DIR/pid"; seq 100000 999999 | head -c 1048576; exit 3"#);
    // The pipes hold the rest then, so the server can exit.
    let left = 100_000;
    let mut seen = run.stdout().exactly((1 << 20) - left, 4096);
    run.wait_until_reaped();
    assert!(run.ended().is_none(), "the client has not taken all");
    seen.extend(run.stdout().exactly(left, 100));
    assert_eq!(run.stdout().rest(), "");
    assert!(seen == numbers(1 << 20), "every byte in its order");
    assert_eq!(run.exit(), 3);
}

#[test]
fn a_client_that_never_reads_and_never_closes_can_still_terminate_us() {
    let run = Run::shell("exec yes flood");
    eventually("a full pipe", || (run.stdout().waiting() > 60_000).then_some(()));
    run.signal(Signal::TERM);
    assert_eq!(run.exit(), 143);
}

#[test]
fn pipes_sockets_and_files_carry_every_byte() {
    let sent: Vec<u8> = (0..200).flat_map(|number| format!("{number:01000}\n").into_bytes()).collect();
    for (stdin, stdout) in ["pipe", "socket", "file"]
        .into_iter()
        .flat_map(|stdin| ["pipe", "socket", "file", "null"].map(|stdout| (stdin, stdout)))
    {
        let case = format!("stdin is a {stdin}, stdout a {stdout}");
        let home = Home::new();
        let (from, to) = (home.beside().join("from"), home.beside().join("to"));
        fs::write(&from, &sent).expect("a file");
        let mut command = home.shell("cat; exit 4");
        let mut writer = None;
        if stdin == "file" {
            command.stdin(File::open(&from).expect("the file"));
        } else {
            let (theirs, ours) = ends(stdin);
            command.stdin(theirs);
            let sent = sent.clone();
            writer = Some(std::thread::spawn(move || File::from(ours).write_all(&sent)));
        }
        let mut reader = None;
        match stdout {
            "null" => drop(command.stdout(Stdio::null())),
            // Earlier writers share the offset.
            "file" => {
                let mut file = File::create(&to).expect("a file");
                file.write_all(b"before\n").expect("it is open");
                command.stdout(file);
            }
            kind => {
                let (ours, theirs) = ends(kind);
                command.stdout(theirs);
                reader = Some(Output(ours));
            }
        }
        let run = Run::start(home, command);
        if let Some(reader) = reader {
            assert!(reader.rest().as_bytes() == sent, "{case}");
        }
        assert_eq!(run.exit(), 4, "{case}");
        if let Some(writer) = writer {
            writer.join().expect("the writer ends").expect("all is taken");
        }
        if stdout == "file" {
            assert!(fs::read(&to).expect("the file") == [b"before\n", &sent[..]].concat(), "{case}");
        }
        assert!(run.home.journal().bytes(Side::Server) == sent, "{case}");
    }
}

#[test]
fn streams_that_are_shared_with_others_stay_blocking() {
    for kind in ["pipe", "socket"] {
        let home = Home::new();
        let mut command = home.shell("exec cat");
        let (their_stdin, stdin) = ends(kind);
        let (stdout, their_stdout) = ends(kind);
        let shared = [&their_stdin, &their_stdout].map(|end| end.try_clone().expect("a copy"));
        command.stdin(their_stdin).stdout(their_stdout);
        let mut run = Run::start(home, command);
        run.stdin = Some(stdin);
        let check = |when: &str| {
            for end in &shared {
                let flags = rustix::fs::fcntl_getfl(end).expect("flags");
                assert!(!flags.contains(OFlags::NONBLOCK), "{kind}, {when}");
            }
        };
        run.send("x\n").expect("the shim reads");
        assert_eq!(Output(stdout.try_clone().expect("a copy")).line(), "x\n");
        check("while it runs");
        run.stdin = None;
        assert_eq!(run.exit(), 0);
        check("at the end");
    }
}

#[test]
fn a_terminal_on_both_sides_carries_lines_and_the_end() {
    if !Command::new("script").arg("--version").output().is_ok_and(|output| output.status.success()) {
        skip("a_terminal_on_both_sides_carries_lines_and_the_end", "there is no `script`");
        return;
    }
    let home = Home::new();
    let mut command = Command::new("script");
    home.adopt(&mut command).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.env("SHELL", "/bin/sh").env("SHIM", SHIM);
    command.env("SERVER", r#"while read line; do echo "got $line"; done; echo "eof"; exit 5"#);
    command.args(["-qec", r#"exec "$SHIM" run --session s -- sh -c "$SERVER""#, "/dev/null"]);
    let mut run = Run::start(home, command);
    run.send("hello\n").expect("script reads");
    while run.stdout().line() != "got hello\r\n" {}
    run.stdin = None;
    assert!(run.stdout().rest().ends_with("eof\r\n"));
    assert_eq!(run.exit(), 5);
}

#[test]
fn the_servers_stderr_is_left_as_it_is() {
    let run = Run::shell("echo one >&2; echo out; echo two >&2");
    assert_eq!(run.stdout().rest(), "out\n");
    assert_eq!(run.exit(), 0);
    assert_eq!(run.stderr().rest(), "one\ntwo\n");
}

#[test]
fn a_stderr_that_nobody_reads_stalls_only_those_who_write_to_it() {
    let mut run = Run::shell("yes noise >&2 & exec cat");
    eventually("a full stderr", || (run.stderr().waiting() > 60_000).then_some(()));
    for number in 0..200 {
        let line = format!("line {number}\n");
        run.send(&line).expect("the shim reads");
        assert_eq!(run.stdout().line(), line);
    }
    run.stdin = None;
    assert_eq!(run.stdout().rest(), "");
    assert_eq!(run.exit(), 0);
}

#[test]
fn a_home_that_cannot_be_used_costs_one_line_on_stderr_and_nothing_else() {
    let home = Home::new();
    let mut command = home.shell("cat; echo tail; exit 3");
    command.env("CODEX_SHIM_HOME", "/dev/null/x");
    let mut run = Run::start(home, command);
    run.send("{\"id\":1}\nno json\n").expect("the shim reads");
    run.stdin = None;
    assert_eq!(run.stdout().rest(), "{\"id\":1}\nno json\ntail\n");
    assert_eq!(run.exit(), 3);
    let said = run.stderr().rest();
    assert!(said.starts_with("codex-shim: ") && said.lines().count() == 1, "{said:?}");
}

#[test]
fn the_server_is_in_our_process_group_directory_and_environment() {
    let home = Home::new();
    let cwd = fs::canonicalize(home.beside()).expect("the folder is there");
    let mut command = home.shell("echo $$; pwd -P; echo \"$GREETING\"; read line");
    command.current_dir(&cwd).env("GREETING", "good day");
    let run = Run::start(home, command);
    let server = pid(&run.stdout().line());
    #[expect(clippy::disallowed_methods, reason = "both are in our process namespace")]
    let group = rustix::process::getpgid(Some(server));
    assert_eq!(group, Ok(run.pid()));
    assert_eq!(run.stdout().line(), format!("{}\n", cwd.display()));
    assert_eq!(run.stdout().line(), "good day\n");
}

#[test]
fn a_server_killed_while_we_were_stopped_ends_us_once_we_go_on() {
    let run = Run::shell("echo $$; exec cat");
    let server = pid(&run.stdout().line());
    stop(run.pid());
    rustix::process::kill_process(server, Signal::KILL).expect("the server is there");
    run.signal(Signal::CONT);
    assert_eq!(run.stdout().rest(), "");
    assert_eq!(run.exit(), 137);
}

#[test]
fn a_client_that_stops_reading_stops_the_server_and_not_its_own_lines() {
    let mut run = Run::shell(
        r#"exec 3<&0; (cat <&3 >"$DIR/received") & echo $$ >"$DIR/pid"; exec yes '{"method":"flood","params":{}}'"#,
    );
    let flood = b"{\"method\":\"flood\",\"params\":{}}\n";
    let server = run.server();
    eventually("a full pipe", || (run.stdout().waiting() > 60_000).then_some(()));
    let (mut written, mut looks) = (0, 0);
    eventually("a server that stands still", || {
        let now = figure(server, "io", "wchar");
        looks = if now == written { looks + 1 } else { 0 };
        written = now;
        (looks == 20).then_some(())
    });
    assert!(written < 1 << 20, "{written} bytes were taken off the server");

    let is_small = || {
        let allocated_kib = figure(run.pid(), "status", "RssAnon");
        assert!(allocated_kib < ALLOCATED_KIB_MAX, "{allocated_kib} KiB");
    };
    is_small();

    // Whole lines of 7 bytes, because a line is forwarded once its newline has arrived.
    let sent = numbers(280_000);
    for piece in sent.chunks(3_500) {
        run.send(str::from_utf8(piece).expect("digits")).expect("the shim reads");
    }
    let received = run.path("received");
    eventually("the client's lines", || (fs::read(&received).ok()? == sent).then_some(()));
    // API callers are not blocked either.
    let document = client::get(&run.home.path().join("sessions/s"), "/sessions/self").expect("it answers");
    let document: Value = serde_json::from_slice(&document.body).expect("it is a document");
    assert_eq!(document["counters"]["client_lines"], sent.len() / 7, "{document}");

    let seen = run.stdout().exactly(4 << 20, 64 << 10);
    assert!(seen.chunks(flood.len()).all(|line| flood.starts_with(line)), "nothing is lost between");
    is_small();
    run.stdout = None;
    assert_eq!(run.exit(), 141);
}

#[test]
fn a_client_that_leaves_a_server_that_does_not_read_is_not_waited_for() {
    let home = Home::new();
    let mut command = home.shim(&["run", "--session", "s", "--exit-grace", "200ms", "--", "sleep", "1000"]);
    let mut relay = command.stderr(Stdio::null()).spawn().expect("the shim starts");
    let mut stdin = relay.stdin.take().expect("stdin is piped");
    rustix::io::ioctl_fionbio(&stdin, true).expect("a pipe");
    // Until neither pipe nor relay accepts more.
    let line = [b"{\"id\":1}".repeat(1_000), b"\n".to_vec()].concat();
    let mut refused = 0;
    eventually("a full pipe", || {
        refused = if stdin.write(&line).is_err() { refused + 1 } else { 0 };
        (refused > 20).then_some(())
    });
    drop(stdin);
    let status = eventually("the end", || relay.try_wait().expect("it is our child"));
    assert_eq!(status.code(), Some(128 + 15));
}

#[test]
fn a_client_that_dies_after_the_server_closed_its_input_is_noticed() {
    let home = Home::new();
    let script = "exec <&-; trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done";
    let mut command = home.shim(&["run", "--session", "s", "--exit-grace", "200ms", "--", "sh", "-c", script]);
    let mut relay = command.stderr(Stdio::null()).spawn().expect("the shim starts");
    let mut stdin = relay.stdin.take().expect("stdin is piped");
    let mut stdout = relay.stdout.take().expect("stdout is piped");
    std::io::Read::read_exact(&mut stdout, &mut [0; 6]).expect("the server is ready");
    eventually("a broken pipe", || stdin.write_all(b"{}\n").is_err().then_some(()));
    drop((stdin, stdout));
    let status = eventually("the end", || relay.try_wait().expect("it is our child"));
    assert_eq!(status.code(), Some(7));
}

#[test]
fn a_launcher_that_blocks_signals_does_not_make_us_miss_the_end() {
    let home = Home::new();
    let mut command = Command::new("env");
    command.args(["--block-signal=CHLD,TERM", SHIM, "run", "--session", "s", "--", "sh", "-c", "exit 5"]);
    home.adopt(&mut command).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut relay = command.spawn().expect("env starts");
    let status = eventually("the end", || relay.try_wait().expect("it is our child"));
    assert_eq!(status.code(), Some(5));
}

#[test]
fn a_named_pipe_whose_writer_has_left_before_the_start_ends() {
    let home = Home::new();
    let pipe = home.beside().join("pipe");
    let mut command = Command::new("sh");
    let script =
        "mkfifo \"$1\"; (printf 'a\\n' >\"$1\" &); exec <\"$1\"; read -r ready; exec \"$0\" run --session s -- cat";
    command.args(["-c", script, SHIM]).arg(&pipe);
    home.adopt(&mut command).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut relay = command.spawn().expect("sh starts");
    let status = eventually("the end", || relay.try_wait().expect("it is our child"));
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_named_pipe_whose_last_writer_leaves_ends_the_client() {
    let home = Home::new();
    let (pipe, log) = (home.beside().join("pipe"), home.beside().join("log"));
    make_fifo(&pipe);
    let mut command = Command::new("sh");
    command.args(["-c", r#"exec "$0" run --session s -- cat <"$1" >"$2""#, SHIM]).args([&pipe, &log]);
    home.adopt(&mut command).stdin(Stdio::null()).stderr(Stdio::null());
    let mut relay = command.spawn().expect("sh starts");
    let mut writer = fs::File::options().write(true).open(&pipe).expect("it has a reader");
    for line in ["one\n", "two\n"] {
        writer.write_all(line.as_bytes()).expect("it is read");
        eventually("the line", || fs::read_to_string(&log).is_ok_and(|log| log.ends_with(line)).then_some(()));
    }
    drop(writer);
    let status = eventually("the end", || relay.try_wait().expect("it is our child"));
    assert_eq!(status.code(), Some(0));
    assert_eq!(fs::read_to_string(&log).expect("it is there"), "one\ntwo\n");
}

/// A relay in front of `sh -c SCRIPT`, started by `launcher`.
fn launched(launcher: Launcher, script: &str) -> Run {
    let home = Home::new();
    let mut command = home.shell(script);
    launcher.launch(&mut command).env("DIR", home.beside());
    Run::start(home, command)
}

/// The pending signals of a process, from the kernel.
fn pending(pid: Pid) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).expect("the process is there");
    let mask = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).expect("a process has this line");
    u64::from_str_radix(mask.trim(), 16).expect("it is a mask")
}

#[cfg(target_os = "linux")]
#[test]
fn a_blocked_termination_waits_as_without_us() {
    let launcher = Launcher { blocks: &[libc::SIGTERM, libc::SIGCHLD], ..Launcher::default() };
    let mut run = launched(launcher, r#"echo $$ >"$DIR/pid"; echo ready; exec cat"#).ready();
    let server = run.server();
    run.signal(Signal::TERM);
    let terminate = 1 << (libc::SIGTERM - 1);
    eventually("a signal that waits", || (pending(server) & terminate != 0).then_some(()));
    // While a server remains that ignores everything except SIGKILL.
    let stubborn = Run::shell(STUBBORN).ready();
    stubborn.signal(Signal::TERM);
    assert_eq!(stubborn.exit(), 137);
    run.send("more\n").expect("the shim reads");
    assert_eq!(run.stdout().line(), "more\n");
    run.stdin = None;
    assert_eq!(run.exit(), 0);
}

#[cfg(target_os = "linux")]
#[test]
fn an_ignored_termination_is_ignored_as_without_us() {
    let launcher = Launcher { ignores: &[libc::SIGTERM], ..Launcher::default() };
    let mut run = launched(launcher, "echo ready; exec cat").ready();
    run.signal(Signal::TERM);
    run.send("more\n").expect("the shim reads");
    assert_eq!(run.stdout().line(), "more\n");
    run.stdin = None;
    assert_eq!(run.exit(), 0);
}

#[cfg(target_os = "linux")]
#[test]
fn exit_codes_are_seen_whatever_a_launcher_blocks() {
    for launcher in LAUNCHERS {
        for way in [&["run"][..], &["exec"], &["exec", "--private"]] {
            let home = Home::new();
            let mut command = home.shim(&[way, &["--", "sh", "-c", "sh -c 'exit 4'; exit 5"]].concat());
            launcher.launch(&mut command).stderr(Stdio::null());
            let run = Run::start(home, command);
            assert_eq!(run.exit(), 5, "{way:?}, {}", launcher.name);
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_terminal_is_left_whatever_a_launcher_blocks() {
    if !Command::new("script").arg("--version").output().is_ok_and(|output| output.status.success()) {
        skip("a_terminal_is_left_whatever_a_launcher_blocks", "there is no `script`");
        return;
    }
    for how in ["--ignore-signal=CHLD", "--block-signal=CHLD,TERM,CONT"] {
        let home = Home::new();
        let mut command = Command::new("script");
        home.adopt(&mut command).stdin(Stdio::piped()).stdout(Stdio::piped()).env("SHELL", "/bin/sh").env("SHIM", SHIM);
        let script = format!(r#"exec env {how} "$SHIM" exec -- sh -c 'exit 5'"#);
        command.args(["-qec", &script, "/dev/null"]);
        assert_eq!(Run::start(home, command).exit(), 5, "{how}");
    }
}

/// Waits, with this grace period, for a server that ignores the end of its input.
///
/// The input of a server whose grace must not pass ends after its output is blocked, and its output stays blocked until the end of
/// the test: the clock runs while the server works, and on a busy machine that may take long.
fn wait_for_grace(exit_grace: &str) {
    let mut other = Run::with(&["--exit-grace", exit_grace], TRAPS).ready();
    other.stdin = None;
    other.exit();
}

/// A grace period that is over before the end of the test, if its clock runs, and one that is not.
const GRACES: [&str; 2] = ["1s", "1h"];

fn assert_alive(run: &Run) {
    assert!(matches!(state(run.server()), Some('S' | 'R' | 'D')), "the server only waits");
}

#[test]
fn a_server_that_waits_for_a_slow_client_keeps_its_grace() {
    // More than all pipes hold, so the server has to wait.
    let script = r#"echo $$ >"$DIR/pid"; echo ready; seq 100000 999999 | head -c 1048576; cat"#;
    for grace in GRACES {
        let mut run = Run::with(&["--exit-grace", grace], script).ready();
        eventually("a full pipe", || (run.stdout().waiting() > 60_000).then_some(()));
        run.stdin = None;
        wait_for_grace("1s");
        // Less than the pipe holds, so something waits for the client all the time.
        let mut seen = run.stdout().exactly(30_000, 1_000);
        wait_for_grace("1s");
        assert_alive(&run);
        if grace == "1h" {
            seen.extend(run.stdout().exactly((1 << 20) - 30_000, 64 << 10));
            assert!(seen == numbers(1 << 20), "every byte in its order");
            assert_eq!(run.stdout().rest(), "");
            assert_eq!(run.exit(), 0);
        }
    }
}

#[test]
fn lines_behind_a_slow_client_keep_the_grace_too() {
    for grace in GRACES {
        // The server stops reading while its output is not read, so the client disconnects with lines in flight.
        let script = r#"echo $$ >"$DIR/pid"; echo ready; exec cat"#;
        let mut run = Run::with(&["--exit-grace", grace], script).ready();
        let stdin = run.stdin.take().expect("stdin is open");
        // Less than all pipes hold.
        let sent = numbers(380_000);
        let line = sent.clone();
        let writer = std::thread::spawn(move || File::from(stdin).write_all(&line));
        eventually("a full pipe", || (run.stdout().waiting() > 60_000).then_some(()));
        writer.join().expect("the writer ends").expect("all is taken");
        wait_for_grace("1s");
        assert_alive(&run);
        if grace == "1h" {
            assert!(run.stdout().exactly(380_000, 64 << 10) == sent, "every byte in its order");
            assert_eq!(run.stdout().rest(), "");
            assert_eq!(run.exit(), 0);
        }
    }
}

#[test]
fn a_client_that_never_reads_again_can_terminate_us() {
    let mut run = Run::with(&["--exit-grace", "1s"], r#"echo $$ >"$DIR/pid"; echo ready; exec yes flood"#).ready();
    eventually("a full pipe", || (run.stdout().waiting() > 60_000).then_some(()));
    run.stdin = None;
    wait_for_grace("1s");
    assert_alive(&run);
    run.signal(Signal::TERM);
    assert_eq!(run.exit(), 143);
}

#[test]
fn the_grace_goes_on_once_output_is_taken() {
    // The server writes more than all pipes hold, and then ends only for a signal.
    let script = r#"trap 'exit 7' TERM; echo $$ >"$DIR/pid"; echo ready; seq 100000 999999 | head -c 1048576; cat
        while :; do sleep 0.05; done"#;
    let mut run = Run::with(&["--exit-grace", "1s"], script).ready();
    eventually("a full pipe", || (run.stdout().waiting() > 60_000).then_some(()));
    run.stdin = None;
    wait_for_grace("1s");
    assert_alive(&run);
    run.stdout().rest();
    // On a busy machine the grace may be over while the server still writes, and its end may take longer than it is waited for.
    assert!(matches!(run.exit(), 7 | 137));
}

/// A relay with a named pipe as stdout, which one of its threads feeds, and the reading end of the pipe.
fn into_named_pipe(exit_grace: &str, script: &str) -> (Run, Output) {
    let home = Home::new();
    let path = home.beside().join("out");
    make_fifo(&path);
    let reading =
        rustix::fs::open(&path, OFlags::RDONLY | OFlags::NONBLOCK, rustix::fs::Mode::empty()).expect("a FIFO");
    let mut command = home.shim(&["run", "--session", "s", "--exit-grace", exit_grace, "--", "sh", "-c", script]);
    command.env("DIR", home.beside()).stdout(File::options().write(true).open(&path).expect("a FIFO"));
    (Run::start(home, command), Output(reading))
}

#[test]
fn a_slow_reader_of_a_named_pipe_gets_everything() {
    let script = r#"echo $$ >"$DIR/pid"; seq 100000 999999 | head -c 1048576; cat; exit 3"#;
    for grace in GRACES {
        let (mut run, output) = into_named_pipe(grace, script);
        eventually("a full pipe", || (output.waiting() > 60_000).then_some(()));
        // The named one, that of the thread that feeds it, and that of the server.
        run.wait_for_full_pipes(3);
        run.stdin = None;
        wait_for_grace("1s");
        assert_alive(&run);
        if grace == "1h" {
            // The pipes hold the rest then, so the server can exit.
            let left = 100_000;
            let mut seen = output.exactly((1 << 20) - left, 4_096);
            run.wait_until_reaped();
            // The first signal only sets a deadline.
            run.signal(Signal::TERM);
            seen.extend(output.exactly(left, 4_096));
            assert_eq!(output.rest(), "");
            assert!(seen == numbers(1 << 20), "every byte in its order");
            assert_eq!(run.exit(), 3);
        }
    }
}

#[test]
fn a_named_pipe_that_nobody_reads_has_its_limit() {
    let script = r#"echo $$ >"$DIR/pid"; head -c 100000 /dev/zero; exit 3"#;
    let (run, _output) = into_named_pipe("1s", script);
    run.wait_until_reaped();
    run.signal(Signal::TERM);
    assert_eq!(run.exit(), 3);
    let (run, _output) = into_named_pipe("1h", script);
    run.wait_until_reaped();
    run.signal(Signal::TERM);
    run.signal(Signal::INT);
    assert_eq!(run.exit(), 3);
}
