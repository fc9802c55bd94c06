//! A part of `make picture`: the terminal UI beside a scripted server, in a real terminal. Two of its screens become
//! `docs/tui.svg` and `docs/tui-review.svg`; everything it wrote to the terminal, with times, becomes `target/tui.cast`
//! for asciinema.

#![allow(
    unreachable_pub,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "prints, may fail where it stands, and is no library"
)]

#[path = "support/patience.rs"]
mod patience;
#[path = "picture/screen.rs"]
mod screen;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use patience::eventually;
use serde_json::json;

const COLUMNS: usize = 120;
const ROWS: usize = 34;

/// Answers `initialize` and `thread/start`, prints the file `$1`, and after an answer the file `$2`; starts every turn.
const SERVER: &str = r#"
said() { while IFS= read -r line; do case $line in wait) sleep 0.4;; *) printf '%s\n' "$line";; esac; done < "$1"; }
while IFS= read -r line; do
  id=$(printf %s "$line" | sed -n 's/.*"id":\("[^"]*"\|[0-9]*\).*/\1/p')
  case $line in
    *'"initialized"'*) said "$1" & ;;
    *'"thread/start"'*) printf '{"id":%s,"result":{"model":"gpt-5.5","thread":{"id":"0192c4f0-8e6f-7a10-9f00-3d5b8c1d2e4f"}}}\n' "$id" ;;
    *'"initialize"'*) printf '{"id":%s,"result":{"userAgent":"codex_cli_rs/0.169.0 (x)"}}\n' "$id" ;;
    *'"decision"'*) said "$2" & ;;
    *'"turn/start"'*) printf '{"id":%s,"result":{"turn":{"id":"turn-2","items":[]}}}\n' "$id"; said "$3" & ;;
  esac
done"#;

/// The scene up to the request.
const FIRST: &str = r##"
item/completed {"type":"userMessage","id":"m1","content":[{"type":"text","text":"The health check answers 500 since yesterday. Find out why and mend it."}]}
wait
item/completed {"type":"reasoning","id":"r1","summary":["**Looking** at what changed since then"],"content":[]}
wait
item/started {"type":"commandExecution","id":"c1","command":"cargo test health","cwd":"/home/ada/api","status":"inProgress"}
item/commandExecution/outputDelta c1 running 2 tests\ntest health_is_ok ... FAILED\ntest health_is_fast ... ok\n
wait
item/completed {"type":"commandExecution","id":"c1","command":"cargo test health","cwd":"/home/ada/api","status":"failed","exitCode":101,"durationMs":2300,"aggregatedOutput":"running 2 tests\ntest health_is_ok ... FAILED\ntest health_is_fast ... ok\n"}
wait
item/completed {"type":"agentMessage","id":"a1","text":"The pool is asked for a connection **before it is open**:\n\n1. `health.rs` calls `try_get()` at once\n2. `pool.rs` opens it *later*, see [the docs](https://docs.rs/pool)\n\nI will wait for it:\n\n```rust\nlet connection = pool.opened().await?.get().await;\n```"}
wait
item/started {"type":"fileChange","id":"f1","status":"inProgress","changes":[{"path": "/home/ada/api/src/health.rs", "kind": {"type": "update", "move_path": null}, "diff": "@@ -1,3 +1,4 @@\n use crate::pool::Pool;\n+use crate::pool::Closed;\n \n /// Whether the service can answer.\n@@ -12,4 +13,6 @@ pub async fn health(pool: &Pool) -> Status {\n-    let connection = pool.try_get();\n-    connection.map_or(Status::Error, |_| Status::Ok)\n+    match pool.opened().await {\n+        Ok(pool) => pool.get().await.map_or(Status::Busy, |_| Status::Ok),\n+        Err(Closed) => Status::Error,\n+    }\n }\n \n"}, {"path": "/home/ada/api/src/pool.rs", "kind": {"type": "update", "move_path": null}, "diff": "@@ -30,4 +30,9 @@ impl Pool {\n     pub fn try_get(&self) -> Option<Connection> {\n         self.free.pop()\n     }\n+\n+    /// Waits until the pool is open.\n+    pub async fn opened(&self) -> Result<&Pool, Closed> {\n+        self.state.wait_for(State::Open).await.map(|_| self)\n+    }\n }\n"}, {"path": "/home/ada/api/tests/health.rs", "kind": {"type": "add"}, "diff": "#[tokio::test]\nasync fn health_waits_for_the_pool() {\n    let pool = Pool::closed();\n    let answer = health(&pool);\n    pool.open().await;\n    assert_eq!(answer.await, Status::Ok);\n}\n"}, {"path": "/home/ada/api/src/retry.rs", "kind": {"type": "delete"}, "diff": "//! Asks again until there is an answer.\npub fn retry() {}\n"}]}
asks
"##;

/// The scene after the answer.
const SECOND: &str = r##"
resolved
wait
item/completed {"type":"fileChange","id":"f1","status":"completed","changes":[{"path": "/home/ada/api/src/health.rs", "kind": {"type": "update", "move_path": null}, "diff": "@@ -1,3 +1,4 @@\n use crate::pool::Pool;\n+use crate::pool::Closed;\n \n /// Whether the service can answer.\n@@ -12,4 +13,6 @@ pub async fn health(pool: &Pool) -> Status {\n-    let connection = pool.try_get();\n-    connection.map_or(Status::Error, |_| Status::Ok)\n+    match pool.opened().await {\n+        Ok(pool) => pool.get().await.map_or(Status::Busy, |_| Status::Ok),\n+        Err(Closed) => Status::Error,\n+    }\n }\n \n"}, {"path": "/home/ada/api/src/pool.rs", "kind": {"type": "update", "move_path": null}, "diff": "@@ -30,4 +30,9 @@ impl Pool {\n     pub fn try_get(&self) -> Option<Connection> {\n         self.free.pop()\n     }\n+\n+    /// Waits until the pool is open.\n+    pub async fn opened(&self) -> Result<&Pool, Closed> {\n+        self.state.wait_for(State::Open).await.map(|_| self)\n+    }\n }\n"}, {"path": "/home/ada/api/tests/health.rs", "kind": {"type": "add"}, "diff": "#[tokio::test]\nasync fn health_waits_for_the_pool() {\n    let pool = Pool::closed();\n    let answer = health(&pool);\n    pool.open().await;\n    assert_eq!(answer.await, Status::Ok);\n}\n"}, {"path": "/home/ada/api/src/retry.rs", "kind": {"type": "delete"}, "diff": "//! Asks again until there is an answer.\npub fn retry() {}\n"}]}
wait
item/completed {"type":"commandExecution","id":"c2","command":"cargo test health","cwd":"/home/ada/api","status":"completed","exitCode":0,"durationMs":2100,"aggregatedOutput":"running 2 tests\ntest health_is_ok ... ok\ntest health_is_fast ... ok\n"}
wait
item/completed {"type":"agentMessage","id":"a2","text":"Both tests pass."}
ends
"##;

/// The reply to a message.
const THIRD: &str = r#"
item/completed {"type":"userMessage","id":"m2","content":[{"type":"text","text":"Thanks! Put it into the changelog, too."}]}
wait
item/completed {"type":"agentMessage","id":"a3","text":"It stands there now."}
"#;

/// The server's lines of a scene.
fn lines(scene: &str) -> String {
    let place = |mut params: serde_json::Value| {
        params["threadId"] = json!(THREAD);
        params["turnId"] = json!("turn-1");
        params
    };
    let mut text = String::new();
    for line in scene.lines().filter(|line| !line.is_empty()) {
        let (method, rest) = line.split_once(' ').unwrap_or((line, ""));
        let message = match method {
            "wait" => {
                text.push_str("wait\n");
                continue;
            }
            "asks" => json!({"id": 0, "method": "item/fileChange/requestApproval",
                "params": place(json!({"itemId": "f1", "reason": "the workspace is read-only", "grantRoot": null}))}),
            "resolved" => json!({"method": "serverRequest/resolved", "params": place(json!({"requestId": 0}))}),
            "ends" => json!({"method": "turn/completed",
                "params": place(json!({"turn": {"id": "turn-1", "status": "completed", "error": null, "items": []}}))}),
            "item/commandExecution/outputDelta" => {
                let (item, delta) = rest.split_once(' ').expect("an item and what it prints");
                json!({"method": method, "params": place(json!({"itemId": item, "delta": delta.replace("\\n", "\n")}))})
            }
            _ => {
                let item: serde_json::Value = serde_json::from_str(rest).expect("an item");
                json!({"method": method, "params": place(json!({"item": item}))})
            }
        };
        text.push_str(&format!("{message}\n"));
    }
    text
}

fn begin() -> String {
    let turn = json!({"threadId": THREAD, "turn": {"id": "turn-1", "status": "inProgress", "items": []}});
    let usage = json!({"threadId": THREAD, "turnId": "turn-1", "tokenUsage": {"modelContextWindow": 272_000,
        "last": {"totalTokens": 18_400, "inputTokens": 17_000, "cachedInputTokens": 0, "outputTokens": 1_400, "reasoningOutputTokens": 0},
        "total": {"totalTokens": 18_400, "inputTokens": 17_000, "cachedInputTokens": 0, "outputTokens": 1_400, "reasoningOutputTokens": 0}}});
    let line = |method: &str, params| format!("{}\n", json!({"method": method, "params": params}));
    line("turn/started", turn) + &line("thread/tokenUsage/updated", usage)
}

/// The thread of all scenes.
const THREAD: &str = "0192c4f0-8e6f-7a10-9f00-3d5b8c1d2e4f";

/// A terminal.
struct Tmux(PathBuf);

impl Tmux {
    fn run(&self, args: &[&str]) -> String {
        let output = Command::new("tmux").arg("-S").arg(&self.0).args(args).output();
        let output = output.expect("tmux is needed for a picture");
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).expect("a screen is text")
    }

    /// Waits until the screen shows all of these texts.
    fn shows(&self, what: &[&str]) {
        eventually(&format!("{what:?} on the screen"), || {
            let screen = self.run(&["capture-pane", "-p"]);
            what.iter().all(|what| screen.contains(what)).then_some(())
        });
    }

    /// Types with a person's rhythm: what comes within 50 ms is a paste to the UI.
    fn types(&self, text: &str) {
        for letter in text.chars() {
            self.run(&["send-keys", "-l", &letter.to_string()]);
            std::thread::park_timeout(std::time::Duration::from_millis(90));
        }
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = Command::new("tmux").arg("-S").arg(&self.0).arg("kill-server").stderr(Stdio::null()).status();
    }
}

/// A client connected to a relay.
fn serve(shim: &Path, dir: &Path) -> Child {
    let scenes = [("1", begin() + &lines(FIRST)), ("2", lines(SECOND)), ("3", lines(THIRD))];
    let cwd = dir.join("api");
    for (name, text) in &scenes {
        std::fs::write(dir.join(name), text.replace("/home/ada/api", &cwd.to_string_lossy())).expect("a file");
    }
    std::fs::create_dir(&cwd).expect("a folder");
    let mut run = Command::new(shim);
    run.args(["run", "--session", "api", "--", "sh", "-c", SERVER, "server"]).current_dir(cwd);
    run.args(scenes.iter().map(|(name, _)| dir.join(name)));
    run.env("CODEX_SHIM_HOME", dir.join("home")).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut relay = run.spawn().expect("the shim starts");
    let call = |id: u32, method: &str, params| format!("{}\n", json!({"id": id, "method": method, "params": params}));
    let client = json!({"clientInfo": {"name": "codex_vscode", "version": "1.0"}});
    let calls = call(1, "initialize", client) + &call(2, "thread/start", json!({})) + "{\"method\":\"initialized\"}\n";
    relay.stdin.as_mut().expect("stdin is piped").write_all(calls.as_bytes()).expect("the relay reads");
    relay
}

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let this = std::env::current_exe().expect("this program has a path");
    let shim = this.parent().and_then(Path::parent).expect("it stands in examples/").join("codex-shim");
    let dir = tempfile::tempdir().expect("a temporary folder");
    let mut relay = serve(&shim, dir.path());
    let socket = dir.path().join("home/sessions/api/control.sock");
    eventually("the relay", || socket.exists().then_some(()));
    let tmux = Tmux(dir.path().join("tmux"));
    let (columns, rows) = (COLUMNS.to_string(), ROWS.to_string());
    let program = format!(
        "stty -echo; read _; CODEX_SHIM_HOME='{}' COLORTERM= TZ=UTC LC_ALL=C.UTF-8 '{}' tui api",
        dir.path().join("home").display(),
        shim.display()
    );
    tmux.run(&["-f", "/dev/null", "new-session", "-d", "-x", &columns, "-y", &rows, &program]);

    // Everything written to the terminal, from the first byte on.
    let fifo = dir.path().join("written");
    let made = Command::new("mkfifo").arg(&fifo).status().expect("mkfifo");
    assert!(made.success(), "a FIFO");
    tmux.run(&["pipe-pane", "-O", &format!("cat > '{}'", fifo.display())]);
    let recorder = std::thread::spawn(move || record(&fifo));
    tmux.run(&["send-keys", "Enter"]);

    tmux.shows(&["1 pending ^R", "18.4k"]);
    // The session may have been attached before its request was pending.
    tmux.run(&["send-keys", "C-r"]);
    tmux.shows(&["accept for the session", "asked 3s ago"]);
    let request = tmux.run(&["capture-pane", "-p", "-e"]);
    tmux.run(&["send-keys", "v", "n"]);
    tmux.shows(&["file 2/4"]);
    let review = tmux.run(&["capture-pane", "-p", "-e"]);
    tmux.run(&["send-keys", "Escape"]);
    tmux.shows(&["accept for the session", "asked 5s ago"]);
    tmux.run(&["send-keys", "a"]);
    // The change deletes a file. A key answers only a question that has been there for half a second.
    tmux.shows(&["Really?", "asked 7s ago"]);
    tmux.run(&["send-keys", "y"]);
    tmux.shows(&["turn completed"]);
    tmux.types("Thanks! Put it into the changelog, too.");
    tmux.run(&["send-keys", "Enter"]);
    tmux.shows(&["It stands there now."]);
    tmux.run(&["send-keys", "C-c"]);
    let cast = recorder.join().expect("it ends with the program");

    let picture = |name: &str, title: &str, screen: &str| {
        std::fs::write(root.join("docs").join(name), screen::svg(title, screen, COLUMNS, ROWS)).expect("a file");
    };
    picture("tui.svg", "codex-shim tui: a pending request beside the timeline", &request);
    picture("tui-review.svg", "codex-shim tui: a diff under review", &review);
    std::fs::write(root.join("target/tui.cast"), cast).expect("a file");
    println!(
        "docs/tui.svg and docs/tui-review.svg: screens; target/tui.cast: the recording (`asciinema play target/tui.cast`)"
    );
    relay.kill().expect("it runs");
    relay.wait().expect("it was killed");
}

/// Everything written to a terminal, in version 2 of asciicast: one line for each write, with its time in seconds.
fn record(fifo: &Path) -> String {
    let mut written = File::open(fifo).expect("a FIFO");
    let began = Instant::now();
    let mut cast = format!("{}\n", json!({"version": 2, "width": COLUMNS, "height": ROWS, "title": "codex-shim tui"}));
    let (mut buffer, mut rest) = (vec![0; 64 << 10], Vec::new());
    while let Ok(read @ 1..) = written.read(&mut buffer) {
        rest.extend_from_slice(&buffer[..read]);
        // An incomplete character waits for the rest.
        let whole = match std::str::from_utf8(&rest) {
            Ok(text) => text.len(),
            Err(error) => error.valid_up_to(),
        };
        let text = String::from_utf8(rest.drain(..whole).collect()).expect("it was looked at");
        cast += &format!("{}\n", json!([began.elapsed().as_secs_f64(), "o", text]));
    }
    let _ = std::io::stdout().flush();
    cast
}
