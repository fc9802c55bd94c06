//! A relay of version 0.1 that still runs after an upgrade, asked by the tools of today: the test answers at its socket as that
//! version did.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};

use serde_json::Value;

use crate::old_home::{old_home, tool};
use crate::support::shim::Home;

const NOT_FOUND: &str = r#"{"detail":{"error_code":"not_found","message":"there is no such path; docs/control.md lists those that there are"}}"#;

/// The answers of a relay of commit 09c9f19 to `GET` of these paths, with other paths and times.
const ANSWERS: [(&str, &str); 9] = [
    ("/healthz", r#"{"status":"ok"}"#),
    (
        "/sessions/self",
        r#"{"session_id":"main","state":"waiting_permission","activity_state":"waiting_permission","state_since":"2026-11-22T19:52:50.971Z","generation":"6b05eb12d770","socket":"/home/user/sessions/s/control.sock","child":{"pid":30105,"codex_version":"0.169.0"},"client":{"name":"vscode","version":"1"},"threads":[{"thread_id":"t","activity_state":"waiting_permission","since":"2026-11-22T19:52:50.971Z","turn_id":"u","pending":1,"last_action":"Approval requested: rm -rf build","stalled_since":null}],"pending_requests":1,"context_waiting":1,"journal":{"bytes":2056,"gaps":0},"index":{"lag_lines":0,"lag_ms":0,"persisted":true,"event_persist_error":0,"pruned":{"events":0,"tool_events":0,"turn_events":0,"took_ms":0}},"faults":[],"counters":{"client_lines":3,"client_bytes":157,"server_lines":6,"server_bytes":579,"omitted_lines":0,"journal_appended_bytes":1849,"journal_missed_lines":0,"turns_projected":0,"fragments_told":0,"fragments_failed":0,"faults_unlisted":0},"started_at":"2026-11-22T19:52:50.956Z"}"#,
    ),
    (
        "/sessions/self/context",
        r#"{"commands":[{"cmd":"ls","exit_code":2,"cwd":"/home/user","block_id":null,"ts":1795549983845,"preview":{"lines":[],"truncated":false},"shell_id":null,"source":"push","thread_id":null}],"total_commands_run":1}"#,
    ),
    (
        "/sessions/self/codex-pending-requests",
        r#"{"requests":[{"available_decisions":["accept","acceptForSession","decline","cancel"],"changes":null,"confirmed_at":null,"dispatched_at":null,"error_code":null,"error_message":null,"expires_at":null,"item":null,"item_id":null,"late":false,"process_generation":"6b05eb12d770","request_id":"6b05eb12d770-0","request_method":"item/commandExecution/requestApproval","request_payload":{"command":"rm -rf build","threadId":"t"},"request_type":"request_approval","requested_at":"2026-11-22T19:52:50.971Z","resolution_source":null,"resolved_at":null,"resolved_by":null,"resolved_payload":null,"rpc_request_id":0,"session_id":"main","status":"pending","summary":"run rm -rf build","thread_id":"t","turn_id":null}]}"#,
    ),
    (
        "/sessions/self/codex-events",
        r#"{"events":[{"session_id":"main","seq":4,"timestamp":"2026-11-22T19:52:50.971Z","event_type":"turn/started","thread_id":"t","turn_id":"u","item_id":null,"payload_preview":{"threadId":"t","turn":{"id":"u"}},"generation":"6b05eb12d770","delta_count":null,"key":"6b05eb12d770:1:846","persisted":true}],"earliest_seq":1,"latest_seq":4,"next_seq":5,"history_gap":false,"gap_reason":null,"epoch":null}"#,
    ),
    (
        "/sessions/self/activity",
        r#"{"activity_state":"waiting_permission","since":"2026-11-22T19:52:50.971Z","threads":[{"activity_state":"waiting_permission","last_action":"Approval requested: rm -rf build","pending":1,"since":"2026-11-22T19:52:50.971Z","stalled_since":null,"thread_id":"t","turn_id":"u"}]}"#,
    ),
    (
        "/sessions/self/activity-actions",
        r#"{"actions":[{"action_kind":"approval","ended_at":null,"item_id":null,"session_id":"main","source_provider":"codex-app","started_at":"2026-11-22T19:52:50.971Z","status":"pending","summary_text":"Approval requested: rm -rf build","thread_id":"t","turn_id":null}]}"#,
    ),
    ("/sessions/self/fragments", r#"{"threads":[]}"#),
    (
        "/sessions/self/threads/t/transcript",
        r#"{"thread_id":"t","entries":[{"ts":"2026-11-22T19:52:50.971Z","role":"assistant","item_id":"m","event":"item/completed","turn_id":"u","text":"hi"}]}"#,
    ),
];

/// Answers one request, and closes the connection.
fn answer(mut stream: UnixStream) {
    let mut lines = BufReader::new(stream.try_clone().expect("a descriptor")).lines().map_while(Result::ok);
    let Some(first) = lines.next() else { return };
    let mut words = first.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    while lines.next().is_some_and(|line| !line.is_empty()) {}
    let path = path.split('?').next().unwrap_or_default();
    let known = ANSWERS.iter().find(|(of, _)| method == "GET" && *of == path);
    let (status, body) = known.map_or(("404 Not Found", NOT_FOUND), |(_, body)| ("200 OK", *body));
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length:");
    let _ = write!(stream, "{head} {}\r\n\r\n{body}", body.len());
}

/// The home of version 0.1, in whose session `main` a relay of that version runs as long as the file is open.
fn with_relay() -> (Home, fs::File) {
    let home = old_home();
    let session = home.path().join("sessions/main");
    let lock = fs::File::open(session.join("lock")).expect("it is there");
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).expect("nobody has it");
    let listener = UnixListener::bind(session.join("control.sock")).expect("a socket");
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || answer(stream));
        }
    });
    (home, lock)
}

/// The exit status of a tool, and all that it prints.
fn told(home: &Home, args: &[&str]) -> (Option<i32>, String) {
    let output = tool(home, args);
    let text = String::from_utf8([output.stdout, output.stderr].concat()).expect("UTF-8");
    (output.status.code(), text)
}

#[test]
fn relay_of_the_old_version_answers_most_tools() {
    let (home, _lock) = with_relay();
    for (args, words) in [
        (&["status", "main"][..], "the relay 0.1.0"),
        (&["sessions"], "waiting_permission"),
        (&["children", "main"], "rm -rf build"),
        (&["requests", "main"], "rm -rf build"),
        (&["tail", "main"], "Approval requested: rm -rf build"),
        (&["fragments", "main"], "no fragments"),
        (&["transcript", "t", "--session", "main"], "hi"),
        (&["search", "touch", "--session", "main"], "touch x"),
    ] {
        let (status, text) = told(&home, args);
        assert!(status == Some(0) && text.contains(words), "{args:?}: {status:?} {text}");
    }
    let doctor = tool(&home, &["doctor", "--session", "main", "--json"]);
    let doctor: Value = serde_json::from_slice(&doctor.stdout).expect("JSON");
    let checks = doctor["checks"].as_array().expect("checks");
    let versions = checks.iter().find(|check| check["name"] == "versions").expect("a check of the versions");
    assert!(versions["found"].as_str().is_some_and(|found| found.contains("main runs 0.1.0")), "{versions}");
    assert!(versions["status"] == "note" && versions["remedy"].is_string(), "{versions}");
}

#[test]
fn tools_say_what_an_old_relay_lacks() {
    let (home, _lock) = with_relay();
    for args in [
        &["usage", "--session", "main"][..],
        &["reviews", "--session", "main"],
        &["context", "show", "main"],
        &["context", "drop", "1", "--session", "main"],
    ] {
        let (status, text) = told(&home, args);
        assert_eq!(status, Some(1), "{args:?}: {text}");
        assert!(
            text.contains("start its client again") && text.contains("`codex-shim status` names"),
            "{args:?}: {text}"
        );
        assert!(!text.contains("path"), "{args:?}: {text}");
    }
    // The tool shows the other sessions.
    let (status, text) = told(&home, &["usage"]);
    assert!(status == Some(1) && text.contains("start its client again") && text.lines().count() > 1, "{text}");
}
