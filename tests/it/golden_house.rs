//! A house for golden files: a hub with two clients and threads in two folders, one of which is a repository, a session of `serve`, and a
//! session that has stopped. All servers are scripted, and each step waits until the one before is on record.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::Receiver;

use codex_shim::testing::control::client;
use serde_json::{Value, json};

use crate::golden::{Golden, Shell, a_millisecond_later};
use crate::support::both_ends::{SERVER, http, lines_of, next};
use crate::support::hub::{Hub, server_pid};
use crate::support::requests::parsed;
use crate::support::shim::Home;
use crate::support::websocket::{Client, FakeServer};
use crate::support::{eventually, make_fifo};

pub struct House {
    pub hub: Hub,
    pub server: FakeServer,
    pub tui: Client,
    pub editor: Client,
    pub bot: Bot,
}

/// The session of `serve`, with its server's end.
pub struct Bot {
    process: Child,
    pub dir: PathBuf,
    server: Receiver<Vec<u8>>,
    down: File,
}

/// The end of what each session has on record.
const MARKER: &str = "the marker";

impl Bot {
    fn start(home: &Home) -> Bot {
        let cwd = home.beside().join("green");
        let (up, down) = (home.beside().join("up"), home.beside().join("down"));
        for path in [&up, &down] {
            make_fifo(path);
        }
        let mut command = home.shim(&["serve", "--session", "bot", "--", "sh", "-c", SERVER]);
        command.current_dir(cwd).env("UP", &up).env("DOWN", &down).stdin(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().expect("the shim starts");
        let server = lines_of(File::open(up).expect("the server opens it"));
        let down = OpenOptions::new().write(true).open(down).expect("the server opens it");
        let dir = home.path().join("sessions/bot");
        let mut bot = Bot { process, dir, server, down };
        bot.initialized();
        bot
    }

    /// The server is initialized by codex-shim.
    pub fn initialized(&mut self) {
        self.answers(r#""result":{"userAgent":"codex-shim/0.169.0 (x)"}"#);
        assert!(self.at_server().contains("\"initialized\""));
        eventually("a server", || {
            let answer = client::get(&self.dir, "/sessions/self").ok()?;
            let document: Value = serde_json::from_slice(&answer.body).ok()?;
            document["child"]["codex_version"].is_string().then_some(())
        });
    }

    pub fn at_server(&self) -> String {
        next(&self.server, "a line at the server")
    }

    pub fn says(&mut self, line: &str) {
        writeln!(self.down, "{line}").expect("the relay reads");
    }

    /// The server answers the next call; returns it.
    pub fn answers(&mut self, answer: &str) -> String {
        let line = self.at_server();
        self.says(&format!(r#"{{"id":{},{answer}}}"#, parsed(line.trim_end())["id"]));
        line
    }

    /// A call at the socket that the server answers.
    fn call(&mut self, path: &str, body: &Value, answer: &str) {
        let (dir, line, body) = (self.dir.clone(), format!("POST /sessions/self/{path}"), body.to_string());
        let asked = std::thread::spawn(move || http(&dir, &line, body.as_bytes()));
        self.answers(answer);
        let (status, document) = asked.join().expect("it does not panic");
        assert_eq!(status, 200, "{document}");
    }

    /// A thread in which a form waits.
    fn works(&mut self, cwd: &str) {
        let thread = json!({ "id": "thread-green", "cwd": cwd, "preview": "", "threadSource": "user" });
        self.call(
            "rpc",
            &json!({ "method": "thread/start", "params": { "cwd": cwd } }),
            &format!(r#""result":{{"thread":{thread}}}"#),
        );
        let lines = |bot: &Bot| bot.get("")["counters"]["server_lines"].as_u64();
        let before = lines(self);
        self.says(&json!({ "method": "thread/started", "params": { "thread": thread } }).to_string());
        eventually("the thread", || (lines(self) > before).then_some(()));
        let turn = r#""result":{"turn":{"id":"turn-green","status":"inProgress","items":[]}}"#;
        self.call("input", &json!({ "text": "fill it in", "thread_id": "thread-green" }), turn);
        self.says(r#"{"method":"turn/started","params":{"threadId":"thread-green","turn":{"id":"turn-green","status":"inProgress"}}}"#);
        let schema = json!({ "type": "object", "required": ["name"], "properties": { "name": { "type": "string" } } });
        let params = json!({ "threadId": "thread-green", "turnId": "turn-green", "serverName": "lab", "mode": "form",
            "message": "Your name?", "requestedSchema": schema });
        self.says(&json!({ "method": "mcpServer/elicitation/request", "id": "form-1", "params": params }).to_string());
        self.is_pending(1);
    }

    fn is_pending(&self, count: u64) {
        eventually("requests", || (self.get("")["pending_requests"] == count).then_some(()));
    }

    pub fn get(&self, path: &str) -> Value {
        let (status, document) = http(&self.dir, &format!("GET /sessions/self{path}"), b"");
        assert_eq!(status, 200, "{document}");
        document
    }
}

impl Drop for Bot {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A session of an echo, which has stopped.
fn stopped(home: &Home) {
    let mut command = home.shim(&["run", "--session", "done", "--", "sh", "-c", "exec cat"]);
    command.current_dir(home.beside()).stderr(Stdio::null());
    let mut relay = command.spawn().expect("the shim starts");
    let mut stdin = relay.stdin.take().expect("it is piped");
    let mut stdout = BufReader::new(relay.stdout.take().expect("it is piped"));
    let text = json!([{ "type": "text", "text": "hello" }]);
    let item = json!({ "type": "userMessage", "id": "item-0", "content": text });
    for line in [
        json!({ "method": "turn/started", "params": { "threadId": "thread-0", "turn": { "id": "turn-0" } } }),
        json!({ "method": "item/completed", "params": { "threadId": "thread-0", "turnId": "turn-0", "item": item } }),
        json!({ "method": "turn/completed", "params": { "threadId": "thread-0", "turn": { "id": "turn-0", "status": "completed" } } }),
    ] {
        writeln!(stdin, "{line}").expect("the relay reads");
        stdout.read_line(&mut String::new()).expect("it comes back");
    }
    drop(stdin);
    assert!(relay.wait().expect("it ends").success());
}

impl House {
    pub fn start(home: Home) -> House {
        for folder in ["red/.git", "red/src", "blue", "green"] {
            fs::create_dir_all(home.beside().join(folder)).expect("a folder");
        }
        stopped(&home);
        let bot = Bot::start(&home);
        let hub = Hub::at(home);
        let mut server = hub.server();
        let tui = hub.client("codex-tui");
        hub.own_connection(&mut server);
        let editor = hub.client("editor");
        server.wait_for("\"editor\"");
        let mut house = House { hub, server, tui, editor, bot };
        house.threads();
        house.requests();
        house.is_later();
        let green = house.folder("green");
        house.bot.works(&green);
        house
    }

    /// Waits until a file that is written now is younger than what the hub has written, so that another session is the last one used.
    pub fn is_later(&self) {
        let modified = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).expect("a time");
        let written = || {
            let journal = fs::read_dir(self.hub.session().join("journal")).expect("a folder");
            journal.map(|entry| modified(&entry.expect("a file").path())).max()
        };
        let probe = self.hub.home.beside().join("probe");
        eventually("a later time", || {
            fs::write(&probe, "x").expect("a file");
            (Some(modified(&probe)) > written()).then_some(())
        });
    }

    pub fn folder(&self, name: &str) -> String {
        self.hub.home.beside().join(name).display().to_string()
    }

    /// The number of a client's connection at the server.
    fn number(&mut self, name: &str) -> u64 {
        let all = self.server.connections();
        let found = all.iter().find(|connection| connection["name"] == name);
        found.unwrap_or_else(|| panic!("{all:?}"))["number"].as_u64().expect("a number")
    }

    /// The server says something to one client, which gets it.
    fn says(&mut self, to: &str, method: &str, params: &Value) {
        a_millisecond_later();
        let number = self.number(to);
        self.server.say(number, &json!({ "method": method, "params": params }).to_string());
        let client = if to == "editor" { &mut self.editor } else { &mut self.tui };
        client.wait_for(method, |message| message["method"] == method && message["params"] == *params);
    }

    /// The server says something to everybody, one after the other.
    fn says_to_all(&mut self, method: &str, params: &Value) {
        self.says("codex-tui", method, params);
        self.says("editor", method, params);
        let lines = |house: &House| house.hub.get("/sessions/self")["counters"]["server_lines"].as_u64();
        let (before, number) = (lines(self), self.number("codex-shim"));
        self.server.say(number, &json!({ "method": method, "params": params }).to_string());
        eventually("the line of the hub", || (lines(self) > before).then_some(()));
    }

    /// A client has a thread.
    fn has(&mut self, client: &str, thread: &str, folder: &str, more: &Value) {
        let mut described = json!({ "id": thread, "cwd": self.folder(folder), "preview": "", "threadSource": "user", "name": null,
            "gitInfo": { "branch": "main", "originUrl": "https://me:secret@example.org/me/proj.git", "sha": null } });
        for (name, value) in more.as_object().expect("members") {
            described[name] = value.clone();
        }
        let of = if client == "editor" { &mut self.editor } else { &mut self.tui };
        // The answer of the scripted server does not say whose thread it is.
        of.call("thread/resume", json!({ "threadId": thread }));
        self.says_to_all("thread/started", &json!({ "thread": described }));
    }

    /// A client speaks in a thread; returns the turn.
    fn speaks(&mut self, client: &str, thread: &str, words: &str) -> String {
        a_millisecond_later();
        let input = json!([{ "type": "text", "text": words, "text_elements": [] }]);
        let of = if client == "editor" { &mut self.editor } else { &mut self.tui };
        let result = of.call("turn/start", json!({ "threadId": thread, "input": input }));
        let turn = result["turn"]["id"].as_str().expect("an id").to_owned();
        of.wait_for("turn/started", |message| {
            message["method"] == "turn/started" && message["params"]["turn"]["id"] == *turn
        });
        let item = json!({ "type": "userMessage", "id": format!("{turn}-user"), "content": input });
        self.says(client, "item/completed", &json!({ "threadId": thread, "turnId": turn, "item": item }));
        turn
    }

    fn ends(&mut self, client: &str, thread: &str, turn: &str, answer: &str, total: u64) {
        let item = json!({ "type": "agentMessage", "id": format!("{turn}-agent"), "text": answer });
        self.says(client, "item/completed", &json!({ "threadId": thread, "turnId": turn, "item": item }));
        let tokens = json!({ "totalTokens": total, "inputTokens": total - 5, "cachedInputTokens": 2, "outputTokens": 5,
            "reasoningOutputTokens": 1 });
        let usage = json!({ "last": tokens, "total": tokens, "modelContextWindow": 272_000 });
        self.says(
            client,
            "thread/tokenUsage/updated",
            &json!({ "threadId": thread, "turnId": turn, "tokenUsage": usage }),
        );
        let turn = json!({ "id": turn, "status": "completed", "error": null });
        self.says(client, "turn/completed", &json!({ "threadId": thread, "turn": turn }));
    }

    /// Two folders, two clients; a thread for a title, and a sub-agent.
    fn threads(&mut self) {
        self.has("codex-tui", "thread-red", "red", &json!({}));
        self.has("codex-tui", "thread-title", "red", &json!({ "threadSource": "thread_title", "ephemeral": true }));
        self.has("editor", "thread-blue", "blue", &json!({}));
        self.has(
            "editor",
            "thread-agent",
            "blue",
            &json!({ "threadSource": "subagent", "parentThreadId": "thread-blue" }),
        );
        let turn = self.speaks("codex-tui", "thread-title", "a title for: count the files");
        self.ends("codex-tui", "thread-title", &turn, "Counting", 10);
        self.says_to_all("thread/name/updated", &json!({ "threadId": "thread-red", "threadName": "Counting" }));
        let turn = self.speaks("codex-tui", "thread-red", "count the files");
        let mut command = json!({ "type": "commandExecution", "id": "item-ls", "command": "/bin/bash -lc 'ls | wc -l'",
            "cwd": self.folder("red"), "status": "inProgress" });
        self.says("codex-tui", "item/started", &json!({ "threadId": "thread-red", "turnId": turn, "item": command }));
        (command["status"], command["exitCode"]) = (json!("completed"), json!(0));
        (command["aggregatedOutput"], command["durationMs"]) = (json!("3\n"), json!(12));
        self.says("codex-tui", "item/completed", &json!({ "threadId": "thread-red", "turnId": turn, "item": command }));
        self.ends("codex-tui", "thread-red", &turn, "There are three.", 40);
        let turn = self.speaks("editor", "thread-agent", "look for paint");
        self.ends("editor", "thread-agent", &turn, "There is blue paint.", 30);
    }

    /// A command waits in one folder, a question and a change in the other.
    fn requests(&mut self) {
        let turn = self.speaks("codex-tui", "thread-red", "and remove one");
        let params = json!({ "turnId": turn, "itemId": "item-rm", "reason": "you said so", "command": "/bin/bash -lc 'rm -rf three'",
            "cwd": self.folder("red"), "availableDecisions": ["accept", "acceptForSession", "cancel"] });
        self.server.ask("thread-red", "item/commandExecution/requestApproval", params);
        self.tui.wait_for("the request", |message| message["method"] == "item/commandExecution/requestApproval");
        let turn = self.speaks("editor", "thread-blue", "paint it");
        a_millisecond_later();
        let options = json!([{ "label": "Red", "description": "warm" }, { "label": "Blue", "description": "cold" }]);
        let questions = json!([{ "id": "color", "header": "Color", "question": "Which?", "isOther": true, "isSecret": false, "options": options }]);
        let params = json!({ "turnId": turn, "itemId": "item-q", "questions": questions, "isBlocking": true, "autoResolutionMs": null });
        self.server.ask("thread-blue", "item/tool/requestUserInput", params);
        self.editor.wait_for("the question", |message| message["method"] == "item/tool/requestUserInput");
        a_millisecond_later();
        let diff = "@@ -1 +1,2 @@\n-white\n+blue\n+blue again\n";
        let changes = json!([{ "path": self.folder("blue/wall.txt"), "kind": { "type": "update", "move_path": null }, "diff": diff }]);
        let item = json!({ "type": "fileChange", "id": "item-f", "changes": changes, "status": "inProgress" });
        self.says("editor", "item/started", &json!({ "threadId": "thread-blue", "turnId": turn, "item": item }));
        let params = json!({ "turnId": turn, "itemId": "item-f", "reason": null, "grantRoot": null });
        self.server.ask("thread-blue", "item/fileChange/requestApproval", params);
        self.editor.wait_for("the change", |message| message["method"] == "item/fileChange/requestApproval");
        self.says(
            "editor",
            "error",
            &json!({ "threadId": "thread-blue", "turnId": turn, "willRetry": true,
            "error": { "message": MARKER, "codexErrorInfo": "other" } }),
        );
        eventually("requests", || (self.hub.get("/sessions/self")["pending_requests"] == 3).then_some(()));
    }

    /// Names what differs from run to run.
    pub fn named(&self, golden: &mut Golden) {
        golden.know_home(&self.hub.home);
        for (session, name) in [("h", "hub"), ("bot", "bot")] {
            let dir = self.hub.home.path().join("sessions").join(session);
            let (_, document) = http(&dir, "GET /sessions/self", b"");
            golden.names.know_run(document["generation"].as_str().expect("an id"), &format!("{name}-run"));
            let requests = http(&dir, "GET /sessions/self/codex-pending-requests", b"").1;
            let request = requests["requests"][0]["request_id"].as_str().expect("an id");
            golden.names.know_run(request.split('-').next().expect("a run"), &format!("{name}-server"));
        }
        golden.names.know_number(self.hub.pid(), "hub-pid");
        golden.names.know_number(self.bot.process.id(), "bot-pid");
        golden.names.know_number(std::process::id(), "client-pid");
        if let Some(pid) = server_pid(&self.hub).and_then(|pid| u32::try_from(pid).ok()) {
            golden.names.know_number(pid, "server-pid");
        }
    }

    /// Tools that are run in this folder.
    pub fn shell(&self, folder: &str) -> Shell<'_> {
        let codex_home = self.hub.home.beside().join("codex-home").display().to_string();
        let codex = self.hub.codex.display().to_string();
        let variables = vec![("CODEX_HOME", codex_home), ("CODEX_SHIM_CODEX", codex)];
        Shell { home: &self.hub.home, cwd: self.hub.home.beside().join(folder), variables }
    }

    /// The id of a pending request, by a part of its summary.
    pub fn request(&self, part: &str) -> String {
        let listed = [self.hub.get("/sessions/self/codex-pending-requests"), self.bot.get("/codex-pending-requests")];
        let rows = listed.iter().flat_map(|listed| listed["requests"].as_array().expect("a list"));
        let found = rows.into_iter().find(|row| row["summary"].as_str().is_some_and(|summary| summary.contains(part)));
        found.unwrap_or_else(|| panic!("{listed:?}"))["request_id"].as_str().expect("an id").to_owned()
    }
}
