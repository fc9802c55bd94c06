//! The control socket from outside: the answer to each caller, and no effect on the relay.

use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use codex_shim::testing::control::{self, client};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};

use crate::support::shim::{Home, SHIM};
use crate::support::{PATIENCE, eventually};

/// Answers `initialize` and echoes every later line.
const SERVER: &str =
    r#"read -r line; printf '{"id":0,"result":{"userAgent":"x/0.169.0 (Debian; x86_64) dumb"}}\n'; cat"#;

const INITIALIZE: &str =
    r#"{"id":0,"method":"initialize","params":{"clientInfo":{"name":"test-client","title":null,"version":"1.0"}}}"#;

/// A relay in session `s` with a responsive control socket, and the client's ends of its stdio.
struct Live {
    home: Home,
    session: PathBuf,
    relay: Child,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
}

impl Live {
    fn start() -> Live {
        Live::start_in(Home::new(), "s")
    }

    fn start_in(home: Home, name: &str) -> Live {
        let mut command = home.shim(&["run", "--session", name, "--", "sh", "-c", SERVER]);
        let mut relay = command.current_dir(home.beside()).spawn().expect("the shim starts");
        let session = home.path().join("sessions").join(name);
        let live = Live {
            stdin: relay.stdin.take(),
            stdout: relay.stdout.take().expect("stdout is piped"),
            relay,
            home,
            session,
        };
        live.await_socket();
        live
    }

    fn await_socket(&self) {
        eventually("the control socket", || client::get(&self.session, "/healthz").ok());
    }

    /// Sends a line and reads one back.
    fn ask(&mut self, line: &str) -> String {
        writeln!(self.stdin.as_mut().expect("stdin is open"), "{line}").expect("the relay reads");
        let mut answer = Vec::new();
        while answer.last() != Some(&b'\n') {
            let mut byte = [0];
            self.stdout.read_exact(&mut byte).expect("the relay answers");
            answer.push(byte[0]);
        }
        String::from_utf8(answer).expect("it is text")
    }

    fn document(&self) -> Value {
        let answer = client::get(&self.session, "/sessions/self").expect("it answers");
        assert_eq!(answer.status, 200);
        serde_json::from_slice(&answer.body).expect("it is JSON")
    }

    fn connect(&self) -> UnixStream {
        connect(&control::resolve(&self.session).expect("there is a socket"))
    }

    fn tool(&self, args: &[&str]) -> Output {
        tool(&self.home, args)
    }

    /// Closes the client's stdin; returns the relay's stderr.
    fn end(mut self) -> (Home, String) {
        drop(self.stdin.take());
        self.stdout.read_to_end(&mut Vec::new()).expect("stdout can be read");
        let output = self.relay.wait_with_output().expect("the shim ends");
        assert!(output.status.success(), "{output:?}");
        (self.home, String::from_utf8(output.stderr).expect("it is text"))
    }
}

fn connect(socket: &Path) -> UnixStream {
    let stream = UnixStream::connect(socket).expect("it can be connected to");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    stream.set_write_timeout(Some(PATIENCE)).expect("a timeout can be set");
    stream
}

/// A tool in the environment of these relays.
fn tool(home: &Home, args: &[&str]) -> Output {
    home.shim(args).current_dir(home.beside()).output().expect("the tool runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("it is text")
}

/// Sends a raw request and reads the whole response; the request must ask for the connection to close.
fn exchange(mut stream: UnixStream, request: &[u8]) -> (u16, Value) {
    stream.write_all(request).expect("it is read");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it is answered");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, serde_json::from_str(body).unwrap_or_else(|_| panic!("no JSON: {body}")))
}

fn request(live: &Live, line: &str, headers: &str) -> (u16, Value) {
    let request = format!("{line} HTTP/1.1\r\nHost: shim\r\nConnection: close\r\n{headers}\r\n");
    exchange(live.connect(), request.as_bytes())
}

/// Checks status, code and non-empty message of a refusal.
fn refused((status, body): (u16, Value), expect: (u16, &str)) {
    assert_eq!((status, body["detail"]["error_code"].as_str()), (expect.0, Some(expect.1)), "{body}");
    assert!(body["detail"]["message"].as_str().is_some_and(|message| !message.is_empty()), "{body}");
}

#[test]
fn the_socket_is_ours_alone_and_goes_at_the_end() {
    let live = Live::start();
    let socket = live.session.join("control.sock");
    let target = fs::read_link(&socket).expect("it is a link");
    let there = fs::symlink_metadata(&target).expect("it is there");
    assert!(there.file_type().is_socket());
    assert_eq!(there.permissions().mode() & 0o777, 0o600);
    let (home, stderr) = live.end();
    assert_eq!(stderr, "");
    assert!(fs::symlink_metadata(&socket).is_err() && fs::symlink_metadata(&target).is_err());
    drop(home);
}

#[test]
fn however_soon_a_relay_ends_it_leaves_no_socket() {
    let home = Home::new();
    for _ in 0..30 {
        let output = home.shim(&["run", "--session", "s", "--", "true"]).output().expect("the shim runs");
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        assert!(fs::symlink_metadata(home.path().join("sessions/s/control.sock")).is_err());
    }
}

#[test]
fn a_live_session_tells_who_speaks_and_what_has_passed() {
    let mut live = Live::start();
    assert_eq!(request(&live, "GET /healthz", ""), (200, json!({"status": "ok"})));
    let before = live.document();
    assert_eq!((&before["child"]["codex_version"], &before["client"]["name"]), (&Value::Null, &Value::Null));
    let secret = r#"{"id":1,"method":"account/read"}"#;
    let answers = [live.ask(INITIALIZE), live.ask(secret)].concat();
    let mut document = live.document();
    assert_eq!(document, request(&live, "GET /sessions/s", "").1);
    let pid = document["child"]["pid"].as_u64().expect("a pid");
    assert!(fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|command| command.contains("read -r line")));
    let journal = live.home.journal();
    assert_eq!(document["generation"], journal.headers[0].generation);
    let on_disk = fs::read_dir(live.session.join("journal")).expect("a folder");
    let on_disk: u64 = on_disk.map(|file| file.expect("a file").metadata().expect("it is there").len()).sum();
    assert_eq!(document["journal"], json!({"bytes": on_disk, "gaps": 0}));
    let started_at = document["started_at"].as_str().expect("a time");
    assert!(started_at.ends_with('Z') && started_at.len() == "2026-01-02T03:04:05.678Z".len(), "{started_at}");
    let appended = document["counters"]["journal_appended_bytes"].take();
    assert!(appended.as_u64().is_some_and(|bytes| bytes > 0 && bytes < on_disk));
    assert!(document["state_since"].is_string(), "{document}");
    for varies in ["generation", "started_at", "journal", "state_since"] {
        document[varies].take();
    }
    let config = document.as_object_mut().and_then(|document| document.remove("config")).expect("the settings");
    assert_eq!((&config["restart_needed"], &config["error"]), (&json!([]), &Value::Null), "{config}");
    let epoch = document["index"].as_object_mut().and_then(|index| index.remove("epoch")).expect("an epoch");
    assert_eq!(epoch.as_str().map(str::len), Some(12), "{epoch}");
    assert_eq!(
        document,
        json!({
            "session_id": "s", "state": "idle", "activity_state": "idle", "state_since": null, "generation": null,
            "socket": live.session.join("control.sock"),
            "child": {"pid": pid, "codex_version": "0.169.0"},
            "client": {"name": "test-client", "version": "1.0"},
            "threads": [], "pending_requests": 0, "context_waiting": 0, "journal": null,
            "index": {
                "lag_lines": 0, "lag_ms": 0, "persisted": true, "event_persist_error": 0,
                "pruned": {"events": 0, "tool_events": 0, "turn_events": 0, "took_ms": 0},
            },
            "faults": [],
            "counters": {
                "client_lines": 2, "client_bytes": INITIALIZE.len() + secret.len() + 2, "server_lines": 2,
                "server_bytes": answers.len(), "omitted_lines": 2, "journal_appended_bytes": null,
                "journal_missed_lines": 0, "turns_projected": 0, "fragments_told": 0, "fragments_failed": 0,
                "faults_unlisted": 0,
            },
            "started_at": null,
        })
    );
    live.end();
}

#[test]
fn what_cannot_be_asked_is_refused_with_a_reason() {
    let live = Live::start();
    refused(request(&live, "GET /sessions/other", ""), (404, "session_not_found"));
    refused(request(&live, "GET /sessions/%ff", ""), (404, "session_not_found"));
    refused(request(&live, "GET /nowhere", ""), (404, "not_found"));
    refused(request(&live, "GET /sessions/self/nowhere", ""), (404, "not_found"));
    refused(request(&live, "DELETE /sessions/self", ""), (405, "method_not_allowed"));
    refused(request(&live, "GET /healthz", "Origin: http://localhost\r\n"), (403, "origin_refused"));
    refused(request(&live, "GET /healthz", "Origin: null\r\n"), (403, "origin_refused"));
    live.end();
}

#[test]
fn what_a_page_in_a_browser_could_ask_is_refused_whatever_it_asks() {
    let live = Live::start();
    let ask = |line: &str, headers: &str| {
        let request = format!("{line} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n");
        exchange(live.connect(), request.as_bytes())
    };
    let asked = [
        "GET /healthz",
        "GET /sessions/self/codex-events/stream?mode=raw",
        "POST /sessions/self/codex-requests/x/respond",
        "POST /sessions/self/rpc",
        "POST /sessions/self/attach",
    ];
    let pages = [
        "evil.example",
        "evil.example:8080",
        "127.0.0.1.evil.example:80",
        "192.168.0.7:80",
        "[fe80::1]:80",
        "e.",
        "a@b",
    ];
    for line in asked {
        refused(ask(line, "Host: shim\r\nOrigin: http://evil.example\r\n"), (403, "origin_refused"));
        for page in pages {
            refused(ask(line, &format!("Host: {page}\r\n")), (403, "host_refused"));
        }
    }
    refused(ask("GET /healthz", "Host: shim\r\nHost: evil.example\r\n"), (403, "host_refused"));
    refused(ask("GET http://evil.example/healthz", "Host: shim\r\n"), (403, "host_refused"));
    let tools =
        ["shim", "x", "localhost", "LOCALHOST:80", "codex-shim", "127.0.0.1:4500", "[::1]:80", "a.b.localhost", ""];
    for tool in tools {
        assert_eq!(ask("GET /healthz", &format!("Host: {tool}\r\n")).0, 200, "{tool}");
    }
    assert_eq!(ask("GET /healthz", "").0, 200);
    let old = exchange(live.connect(), b"GET /healthz HTTP/1.0\r\n\r\n");
    assert_eq!(old.0, 200);
    live.end();
}

#[test]
fn another_user_is_shown_the_door() {
    if !rustix::process::geteuid().is_root() {
        let _ =
            writeln!(std::io::stderr(), "SKIPPED: the test of another user at the socket: only root can become one");
        return;
    }
    let live = Live::start();
    // Opens all file permissions on another way to the socket, so that only the check of the caller's user is left.
    let target = fs::read_link(live.session.join("control.sock")).expect("it is a link");
    let beside = tempfile::tempdir_in(target.ancestors().nth(2).expect("a folder")).expect("BUG: a temporary folder");
    let socket = beside.path().join("socket");
    fs::hard_link(&target, &socket).expect("the folders are on one file system");
    for path in [beside.path(), &socket] {
        fs::set_permissions(path, Permissions::from_mode(0o777)).expect("it is ours");
    }
    let stranger = std::thread::spawn(move || {
        // Only this thread changes its user.
        let nobody = rustix::fs::Uid::from_raw(65_534);
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("root may");
        let mut stream = connect(&socket);
        let mut answer = Vec::new();
        let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: shim\r\n\r\n");
        // If the relay closes a connection with unread bytes, reading may fail.
        let _ = stream.read_to_end(&mut answer);
        answer
    });
    assert_eq!(stranger.join().expect("it ends"), b"");
    assert_eq!(request(&live, "GET /healthz", "").0, 200);
    live.end();
}

#[test]
fn a_body_that_is_too_big_is_read_away_and_refused() {
    let live = Live::start();
    let post = |bytes: usize| {
        let head = format!(
            "POST /sessions/self HTTP/1.1\r\nHost: shim\r\nConnection: close\r\nContent-Length: {bytes}\r\n\r\n"
        );
        exchange(live.connect(), &[head.as_bytes(), &vec![b'x'; bytes]].concat())
    };
    refused(post(1 << 20), (405, "method_not_allowed"));
    refused(post((1 << 20) + 1), (413, "body_too_large"));
    refused(post(15 << 20), (413, "body_too_large"));
    let chunk = format!("{:x}\r\n{}\r\n", 600_000, "x".repeat(600_000));
    let chunked = format!(
        "POST / HTTP/1.1\r\nHost: shim\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}{chunk}0\r\n\r\n"
    );
    refused(exchange(live.connect(), chunked.as_bytes()), (413, "body_too_large"));
    live.end();
}

#[test]
fn a_client_that_closes_its_writing_end_is_answered() {
    let live = Live::start();
    let mut stream = live.connect();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: shim\r\n\r\n").expect("it is read");
    stream.shutdown(std::net::Shutdown::Write).expect("it can be");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it is answered");
    assert!(answer.ends_with("{\"status\":\"ok\"}\n"), "{answer}");
    live.end();
}

#[test]
fn clients_do_not_stop_one_another() {
    let live = Live::start();
    let silent: Vec<UnixStream> = (0..8).map(|_| live.connect()).collect();
    let mut half = live.connect();
    half.write_all(b"POST /healthz HTTP/1.1\r\nHost: shim\r\nContent-Length: 10\r\n\r\n12").expect("it is read");
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..50).for_each(|_| assert_eq!(live.document()["session_id"], "s")));
        }
    });
    drop((silent, half));
    live.end();
}

#[test]
fn the_relay_goes_on_while_a_client_never_reads() {
    let mut live = Live::start();
    let mut greedy = live.connect();
    greedy.set_nonblocking(true).expect("it can be");
    // Until neither requests nor responses move.
    let question = b"GET /sessions/self HTTP/1.1\r\nHost: shim\r\n\r\n".repeat(100);
    let mut stuck = 0;
    eventually("a full socket", || {
        match greedy.write(&question) {
            Ok(_) => stuck = 0,
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
                stuck += 1;
            }
        }
        (stuck > 20).then_some(())
    });
    live.ask(INITIALIZE);
    for number in 0..100 {
        let line = format!("{{\"id\":{number}}}");
        assert_eq!(live.ask(&line), format!("{line}\n"));
    }
    assert_eq!(live.document()["counters"]["client_lines"], 101);
    live.end();
}

/// Opens an endless live stream, and reads the head of the response.
fn streamed(live: &Live, mode: &str) -> UnixStream {
    let mut stream = live.connect();
    let request = format!("GET /sessions/self/codex-events/stream?mode={mode} HTTP/1.1\r\nHost: shim\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it is read");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("it is answered");
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&head));
    stream
}

/// Checks that a request on a new connection is answered.
fn is_answered(live: &Live) {
    let (status, health) = request(live, "GET /healthz", "");
    assert_eq!((status, &health["status"]), (200, &json!("ok")));
}

/// A number from the metrics.
fn metric(live: &Live, name: &str) -> u64 {
    let mut stream = live.connect();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: shim\r\nConnection: close\r\n\r\n").expect("it is read");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it is answered");
    let value = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {name}: {answer}")).parse().expect("a number")
}

#[test]
fn idle_streams_shut_nobody_out_and_the_oldest_ends() {
    let mut live = Live::start();
    live.ask(INITIALIZE);
    let mut streams: Vec<UnixStream> = (0..64).map(|_| streamed(&live, "raw")).collect();
    is_answered(&live);
    let streams_now = || metric(&live, "codex_shim_connections{kind=\"stream\"}");
    assert_eq!(streams_now(), 64);
    // A new stream is served. The longest idle stream ends with the reason.
    let late = streamed(&live, "raw");
    let mut said = String::new();
    streams.remove(0).read_to_string(&mut said).expect("it ends");
    assert!(said.contains(": closed: too many streams are open") && said.contains("\nretry: 5000\n\n"), "{said}");
    assert!(said.ends_with("0\r\n\r\n"), "the answer is whole: {said}");
    assert_eq!(streams_now(), 64);
    assert_eq!(metric(&live, "codex_shim_connections_closed_total{kind=\"stream\"}"), 1);
    assert_eq!(metric(&live, "codex_shim_connections_closed_total{kind=\"request\"}"), 0);
    // The others continue.
    live.ask(r#"{"method":"one/more"}"#);
    for mut stream in streams.into_iter().chain([late]) {
        let mut seen = Vec::new();
        while memchr::memmem::find(&seen, b"one/more").is_none() {
            let mut piece = [0; 4_096];
            let count = stream.read(&mut piece).expect("it goes on");
            assert!(count > 0, "{}", String::from_utf8_lossy(&seen));
            seen.extend_from_slice(&piece[..count]);
        }
    }
    live.end();
}

#[test]
fn clients_that_send_nothing_shut_nobody_out() {
    let live = Live::start();
    let post = "POST /sessions/self/context HTTP/1.1\r\nHost: shim\r\nContent-Length: 900\r\n\r\n";
    let idle = "GET /healthz HTTP/1.1\r\nHost: shim\r\n\r\n";
    for (what, begins) in [("nothing", ""), ("half a head", "GET /healthz HT"), ("no body", post), ("no more", idle)] {
        let silent: Vec<UnixStream> = (0..130)
            .map(|_| {
                let mut stream = live.connect();
                // A connection that was closed for another one may refuse the bytes.
                let _ = stream.write_all(begins.as_bytes());
                if begins == idle {
                    let mut answer = [0; 400];
                    let count = stream.read(&mut answer).expect("it is answered");
                    assert!(answer[..count].starts_with(b"HTTP/1.1 200 "), "{what}");
                }
                stream
            })
            .collect();
        is_answered(&live);
        drop(silent);
    }
    assert!(metric(&live, "codex_shim_connections_closed_total{kind=\"request\"}") > 0);
    live.end();
}

#[test]
fn calls_that_wait_shut_nobody_out() {
    let mut live = Live::start();
    live.ask(INITIALIZE);
    let call = |live: &Live| {
        let body = r#"{"method":"slow","timeout_ms":600000}"#;
        let mut stream = live.connect();
        let length = body.len();
        let head = format!("POST /sessions/self/rpc HTTP/1.1\r\nHost: shim\r\nContent-Length: {length}\r\n\r\n{body}");
        stream.write_all(head.as_bytes()).expect("it is read");
        stream
    };
    let calls: Vec<UnixStream> = (0..80).map(|_| call(&live)).collect();
    is_answered(&live);
    drop(calls);
    live.end();
}

#[test]
fn a_reader_of_the_stream_that_takes_nothing_is_cut_off() {
    let mut live = Live::start();
    live.ask(INITIALIZE);
    let stalled = streamed(&live, "raw");
    let reads = streamed(&live, "raw");
    // More than a socket buffer holds.
    let line = format!("{{\"x\":\"{}\"}}", "y".repeat(50_000));
    for _ in 0..40 {
        live.ask(&line);
    }
    let hung_up = |stream: &UnixStream| {
        let mut fds = [PollFd::new(stream, PollFlags::empty())];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).expect("it can be looked at");
        fds[0].revents().contains(PollFlags::HUP)
    };
    // A reader that takes a little now and then stays connected, however far behind: it never finishes at this rate.
    let mut sip = [0; 8_000];
    eventually("the end of a connection that nobody reads", || {
        (&reads).read_exact(&mut sip).expect("it goes on");
        hung_up(&stalled).then_some(())
    });
    assert!(!hung_up(&reads));
    drop((stalled, reads));
    live.end();
}

#[test]
fn a_listener_of_another_user_is_told_nothing() {
    if !rustix::process::geteuid().is_root() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: the test of another user's listener: only root can become one");
        return;
    }
    let home = Home::new();
    let session = home.path().join("sessions/s");
    fs::create_dir_all(&session).expect("a folder");
    let open = tempfile::tempdir().expect("a folder");
    fs::set_permissions(open.path(), Permissions::from_mode(0o777)).expect("it is ours");
    let socket = open.path().join("x.sock");
    symlink(&socket, session.join("control.sock")).expect("a link");
    let (bound, is_bound) = std::sync::mpsc::sync_channel(1);
    let at = socket.clone();
    let stranger = std::thread::spawn(move || {
        // Only this thread changes its user.
        let nobody = rustix::fs::Uid::from_raw(65_534);
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("root may");
        let listener = std::os::unix::net::UnixListener::bind(at).expect("everybody may");
        bound.send(()).expect("it is waited for");
        let (mut stream, _) = listener.accept().expect("somebody comes");
        let mut told = Vec::new();
        stream.read_to_end(&mut told).expect("it can be read");
        told
    });
    is_bound.recv_timeout(PATIENCE).expect("it is bound");
    let error = client::post(&session, "/sessions/self/input", "{\"text\":\"secret\"}".to_owned());
    let error = error.expect_err("another user answers").to_string();
    assert!(error.ends_with("control.sock: it belongs to another user (uid 65534)"), "{error}");
    assert_eq!(stranger.join().expect("it ends"), b"");
}

/// A home with a path too long for a socket.
fn deep(root: &Home) -> PathBuf {
    root.beside().join("d".repeat(60)).join("e".repeat(60))
}

#[test]
fn a_long_path_becomes_a_link_that_tools_follow() {
    let home = Home::new();
    let runtime = home.beside().join("run");
    fs::create_dir(&runtime).expect("a folder");
    fs::set_permissions(&runtime, Permissions::from_mode(0o700)).expect("it is ours");
    let session = deep(&home).join("sessions/s");
    let start = |runtime: &Path| {
        let mut command = home.shim(&["run", "--session", "s", "--", "cat"]);
        command.env("CODEX_SHIM_HOME", deep(&home)).env("XDG_RUNTIME_DIR", runtime);
        let relay = command.spawn().expect("the shim starts");
        eventually("the control socket", || client::get(&session, "/healthz").ok());
        relay
    };
    for runtime in [&runtime, &deep(&home)] {
        let mut relay = start(runtime);
        let link = session.join("control.sock");
        let target = fs::read_link(&link).expect("it is a link");
        assert!(target.starts_with("/tmp") && target.as_os_str().len() <= 100, "{}", target.display());
        let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
        assert_eq!((mode(&target), mode(target.parent().expect("a folder"))), (0o600, 0o700));
        let mut status = home.shim(&["status", "--json"]);
        let status = status.env("CODEX_SHIM_HOME", deep(&home)).output().expect("the tool runs");
        let status: Value = serde_json::from_slice(&status.stdout).expect("it is JSON");
        assert_eq!(status["socket"], target.to_str().expect("it is UTF-8"));
        drop(relay.stdin.take());
        assert!(relay.wait().expect("the shim ends").success());
        assert!(!target.exists() && fs::symlink_metadata(&link).is_err());
    }
}

#[test]
fn what_is_in_the_way_stays_and_the_relay_goes_on() {
    let home = Home::new();
    let session = home.path().join("sessions/s");
    fs::create_dir_all(&session).expect("a folder");
    let in_the_way = session.join("control.sock");
    fs::write(&in_the_way, "precious").expect("a file");
    let mut relay = home.shim(&["run", "--session", "s", "--", "cat"]).spawn().expect("the shim starts");
    let mut stderr = relay.stderr.take().expect("stderr is piped");
    let mut told = [0; 12];
    stderr.read_exact(&mut told).expect("the fault is told");
    relay.stdin.as_mut().expect("stdin is piped").write_all(b"{\"id\":1}\n").expect("the relay reads");
    let mut back = [0; 9];
    relay.stdout.as_mut().expect("stdout is piped").read_exact(&mut back).expect("the line comes back");
    assert_eq!(&back, b"{\"id\":1}\n");

    let status = tool(&home, &["status"]);
    assert_eq!(status.status.code(), Some(1), "{status:?}");
    assert!(text(&status.stdout).starts_with("a relay is running but does not answer: "), "{status:?}");
    let listed = text(&tool(&home, &["sessions"]).stdout);
    assert!(listed.starts_with("s  live  no answer  "), "{listed}");

    drop(relay.stdin.take());
    assert!(relay.wait().expect("the shim ends").success());
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).expect("stderr can be read");
    let told = format!("{}{rest}", text(&told));
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.starts_with("codex-shim: bind ") && told.contains("is in the way"), "{told}");
    assert_eq!(fs::read_to_string(&in_the_way).expect("it is there"), "precious");
}

#[test]
fn a_socket_that_was_left_over_is_replaced() {
    let mut first = Live::start();
    first.relay.kill().expect("it runs");
    first.relay.wait().expect("it was killed");
    let socket = first.session.join("control.sock");
    assert!(fs::metadata(&socket).is_ok_and(|there| there.file_type().is_socket()));
    client::get(&first.session, "/healthz").expect_err("nobody listens");
    let second = Live::start_in(first.home, "s");
    assert_eq!(second.document()["session_id"], "s");
    let (home, stderr) = second.end();
    assert_eq!(stderr, "");

    symlink(home.beside().join("nowhere"), &socket).expect("a link");
    let third = Live::start_in(home, "s");
    assert!(fs::metadata(&socket).is_ok_and(|there| there.file_type().is_socket()));
    third.end();
}

#[test]
fn a_fault_that_was_told_is_told_by_status_too() {
    let home = Home::new();
    let mut command = home.shim(&["run", "--session", "s", "--", "cat"]);
    let mut relay = command.env("CODEX_SHIM_EXIT_GRACE", "soon").spawn().expect("the shim starts");
    let session = home.path().join("sessions/s");
    let fault = eventually("the fault", || {
        let answer = client::get(&session, "/sessions/self").ok()?;
        let document: Value = serde_json::from_slice(&answer.body).expect("it is JSON");
        document["faults"].as_array().and_then(|faults| faults.first().cloned())
    });
    assert!(fault["what"].as_str().is_some_and(|what| what.contains("`soon` is not a length of time")), "{fault}");
    assert!(fault["since"].as_str().is_some_and(|since| since.ends_with('Z')), "{fault}");
    let status = text(&tool(&home, &["status"]).stdout);
    assert!(status.starts_with("the relay is running, with 1 fault\n"), "{status}");
    assert!(status.contains("`soon` is not a length of time"), "{status}");
    drop(relay.stdin.take());
    assert!(relay.wait().expect("the shim ends").success());
}

#[test]
fn a_gap_in_the_journal_is_told_by_status() {
    let home = Home::new();
    let mut command = Command::new("sh");
    // In blocks of 512 bytes: no file may exceed 2 KiB.
    command.args(["-c", "ulimit -f 4; exec \"$0\" run --session s -- cat", SHIM]);
    home.adopt(&mut command).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut relay = command.spawn().expect("the shim starts");
    let line = format!("\"{}\"\n", "x".repeat(3_000));
    relay.stdin.as_mut().expect("stdin is piped").write_all(line.as_bytes()).expect("the relay reads");
    let mut back = vec![0; line.len()];
    relay.stdout.as_mut().expect("stdout is piped").read_exact(&mut back).expect("the line comes back");
    let session = home.path().join("sessions/s");
    let answer = eventually("the control socket", || client::get(&session, "/sessions/self").ok());
    let document: Value = serde_json::from_slice(&answer.body).expect("it is JSON");
    // No later write could close the gap, so there is one gap per direction or one for both.
    assert!(document["journal"]["gaps"].as_u64().is_some_and(|gaps| gaps > 0), "{document}");
    assert_eq!(document["counters"]["journal_missed_lines"], 2, "{document}");
    let faults = document["faults"].as_array().expect("they are listed");
    let is_told = |fault: &Value| fault["what"].as_str().is_some_and(|what| what.contains("File too large"));
    assert!(faults.iter().any(is_told), "{document}");
    let status = text(&tool(&home, &["status"]).stdout);
    assert!(
        status.starts_with("the relay is running, with ")
            && status.contains(" fault")
            && status.contains("2 lines missing"),
        "{status}"
    );
    drop(relay.stdin.take());
    assert!(relay.wait().expect("the shim ends").success());
}

#[test]
fn sessions_and_status_tell_what_is_live_and_what_was() {
    let mut live = Live::start();
    live.ask(INITIALIZE);
    let status = live.tool(&["status"]);
    assert_eq!(status.status.code(), Some(0), "{status:?}");
    let status = text(&status.stdout);
    let cwd = fs::canonicalize(live.home.beside()).expect("it is there");
    let head = format!("healthy\n\nsession   s\ncwd       {}\nstate     idle for ", cwd.display());
    assert!(status.starts_with(&head), "{status}");
    for told in [
        "\nrelay     live, pid ",
        ", codex 0.169.0: ",
        "client    test-client 1.0\n",
        ", no gaps\n",
        "faults    none\n",
        "control.sock\n",
    ] {
        assert!(status.contains(told), "{told}: {status}");
    }
    assert!(!status.contains('\x1b'), "{status}");
    let as_json: Value = serde_json::from_slice(&live.tool(&["status", "--json"]).stdout).expect("it is JSON");
    assert_eq!(as_json, live.document());
    let listed = text(&live.tool(&["sessions"]).stdout);
    assert!(listed.starts_with("s  live  idle  ") && listed.ends_with(&format!("  {}\n", cwd.display())), "{listed}");
    let pid = live.relay.id();
    let name = format!("{} (test-client)", cwd.file_name().expect("a folder has a name").display());
    let mut as_json: Value = serde_json::from_slice(&live.tool(&["sessions", "--json"]).stdout).expect("it is JSON");
    assert!(as_json["sessions"][0]["since"].take().is_string());
    let row = json!({
        "session_id": "s", "short_id": "s", "name": name, "live": true, "state": "idle", "since": null, "cwd": cwd, "pid": pid,
        "threads": [],
    });
    assert_eq!(as_json, json!({"sessions": [row]}));

    let (home, _) = live.end();
    let status = tool(&home, &["status"]);
    assert_eq!(status.status.code(), Some(0), "{status:?}");
    assert!(
        text(&status.stdout).starts_with("stopped: no relay is running in this session\n\nsession   s\n"),
        "{status:?}"
    );
    let as_json: Value = serde_json::from_slice(&tool(&home, &["status", "--json"]).stdout).expect("it is JSON");
    assert_eq!((&as_json["state"], &as_json["socket"]), (&json!("stopped"), &Value::Null));
    let listed = text(&tool(&home, &["sessions"]).stdout);
    assert!(listed.starts_with("s  stopped  stopped  "), "{listed}");
}

#[test]
fn a_session_that_cannot_be_told_is_an_error_of_its_own() {
    let home = Home::new();
    let check = |home: &Home, args: &[&str], variable: &str, status: i32, told: &str| {
        let mut command = home.shim(args);
        let output = command.env("CODEX_SHIM_SESSION", variable).current_dir("/").output().expect("the tool runs");
        assert_eq!(output.status.code(), Some(status), "{args:?}: {output:?}");
        let stderr = text(&output.stderr);
        assert!(stderr.starts_with("codex-shim: ") && stderr.contains(told), "{args:?}: {stderr}");
        assert_eq!(text(&output.stdout), "");
    };
    check(&home, &["status"], "", 3, "no sessions yet");
    check(&home, &["sessions"], "", 0, "no sessions yet");
    let empty = tool(&home, &["sessions", "--json"]);
    assert_eq!(serde_json::from_slice::<Value>(&empty.stdout).expect("it is JSON"), json!({"sessions": []}));

    let first = Live::start_in(home, "work");
    // The name is in use, so this session gets a number.
    let Live { home, relay, .. } = &first;
    let mut second = home.shim(&["run", "--session", "work", "--", "cat"]);
    let mut second = second.current_dir(home.beside()).spawn().expect("the shim starts");
    let other = home.path().join("sessions/work.2");
    eventually("the other socket", || client::get(&other, "/healthz").ok());
    check(home, &["status", "--session", "play"], "", 3, "unknown session `play`");
    check(home, &["status", "--session", "wo"], "", 3, "`wo` matches several sessions: ");
    check(home, &["status", "--json"], "wor", 3, "work.2");
    let here = tool(home, &["status"]);
    assert_eq!(here.status.code(), Some(0), "{here:?}");
    assert!(
        ["session   work\n", "session   work.2\n"].iter().all(|line| text(&here.stdout).contains(line)),
        "{here:?}"
    );
    let sent = tool(home, &["send", "hi"]);
    assert_eq!(sent.status.code(), Some(3), "{sent:?}");
    assert!(text(&sent.stderr).contains("several sessions are live in "), "{sent:?}");
    let named = tool(home, &["status", "--session", "work.", "--json"]);
    let named: Value = serde_json::from_slice(&named.stdout).expect("it is JSON");
    assert_eq!(named["session_id"], "work.2");
    assert!(relay.id() > 0);
    drop(second.stdin.take());
    assert!(second.wait().expect("the shim ends").success());
    let (home, _) = first.end();
    assert_eq!(tool(&home, &["status"]).status.code(), Some(0));
    assert_eq!(tool(&home, &["status", "--nonsense"]).status.code(), Some(2));
}
