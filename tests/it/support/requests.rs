//! Shared by the request tests: the server's requests, their rows in the ledger, and answers through the API.

use std::fs;
use std::path::Path;
use std::thread::JoinHandle;

use serde_json::{Value, json};

use super::both_ends::{Live, http, text};
use super::eventually;

pub const PENDING: &str = "/sessions/self/codex-pending-requests";

/// The client's name.
pub const CLIENT: &str = "tester";

const INITIALIZE: &str = r#"{"id":0,"method":"initialize","params":{"clientInfo":{"name":"tester","version":"1"}}}"#;

/// The server's request to run a command, in turn `u` of a thread.
pub fn command_asked(id: &str, thread: &str) -> String {
    format!(
        r#"{{"method":"item/commandExecution/requestApproval","id":{id},"params":{{"kind":"command","threadId":"{thread}","turnId":"u","itemId":"i","reason":"why not","command":"/bin/bash -lc 'touch x'","cwd":"/w","availableDecisions":["accept",{{"acceptWithExecpolicyAmendment":{{"execpolicy_amendment":["touch","x"]}}}},"cancel"]}}}}"#
    )
}

/// The server's request to change files; the item has the changes.
pub fn change_asked(id: &str) -> String {
    format!(
        r#"{{"method":"item/fileChange/requestApproval","id":{id},"params":{{"threadId":"t","turnId":"u","itemId":"f","reason":null,"grantRoot":null}}}}"#
    )
}

pub const CHANGES: &str = r#"[{"path":"/w/new.txt","kind":{"type":"add"},"diff":"hello\n"}]"#;

pub fn change_started() -> String {
    format!(
        r#"{{"method":"item/started","params":{{"threadId":"t","turnId":"u","item":{{"type":"fileChange","id":"f","changes":{CHANGES},"status":"inProgress"}}}}}}"#
    )
}

pub fn permissions_asked(id: &str) -> String {
    format!(
        r#"{{"method":"item/permissions/requestApproval","id":{id},"params":{{"threadId":"t","turnId":"u","itemId":"p","reason":"why","permissions":{{"network":{{"enabled":true}}}}}}}}"#
    )
}

/// The server's question, whose answer may be a secret.
pub fn question_asked(id: &str, is_secret: bool) -> String {
    format!(
        r#"{{"method":"item/tool/requestUserInput","id":{id},"params":{{"threadId":"t","turnId":"u","itemId":"q","questions":[{{"id":"color","header":"Color","question":"Which?","isOther":true,"isSecret":{is_secret},"options":[{{"label":"Red","description":"red"}}]}}],"isBlocking":true,"autoResolutionMs":null}}}}"#
    )
}

pub fn elicitation_asked(id: &str) -> String {
    format!(
        r#"{{"method":"mcpServer/elicitation/request","id":{id},"params":{{"threadId":"t","turnId":"u","serverName":"srv","mode":"form","message":"Your name?","requestedSchema":{{"type":"object","properties":{{"name":{{"type":"string"}}}},"required":["name"]}}}}}}"#
    )
}

pub fn resolved(id: &str) -> String {
    format!(r#"{{"method":"serverRequest/resolved","params":{{"threadId":"t","requestId":{id}}}}}"#)
}

pub fn turn_started(thread: &str, turn: &str) -> String {
    format!(
        r#"{{"method":"turn/started","params":{{"threadId":"{thread}","turn":{{"id":"{turn}","status":"inProgress"}}}}}}"#
    )
}

pub fn turn_completed(thread: &str, turn: &str) -> String {
    format!(
        r#"{{"method":"turn/completed","params":{{"threadId":"{thread}","turn":{{"id":"{turn}","status":"completed"}}}}}}"#
    )
}

/// An answer to a request of the server.
pub fn answer(id: &str, result: &Value) -> String {
    format!(r#"{{"id":{id},"result":{result}}}"#)
}

pub fn decision(word: &str) -> Value {
    json!({ "decision": word })
}

/// A line as JSON.
pub fn parsed(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"))
}

impl Live {
    /// A relay after `initialize`.
    pub fn initialized(config: &str) -> Live {
        Live::configured(config).initialize()
    }

    pub fn initialize(mut self) -> Live {
        assert_eq!(self.send(INITIALIZE), format!("{INITIALIZE}\n"));
        self.say_plainly(r#"{"id":0,"result":{"userAgent":"codex_cli_rs/0.150.0 (x)"}}"#);
        self
    }

    /// The prefix of all request names in this run.
    pub fn generation(&self) -> String {
        text(&self.get("/sessions/self")["generation"])
    }

    /// The server sends a request, and the client receives it unchanged; returns the full name of the request with this
    /// ending.
    pub fn asked(&mut self, line: &str, ending: &str) -> String {
        self.say_plainly(line);
        let request_id = format!("{}-{ending}", self.generation());
        assert_eq!(self.row(&request_id)["status"], "pending");
        request_id
    }

    /// The pending requests, oldest first.
    pub fn pending(&self) -> Vec<Value> {
        self.get(PENDING)["requests"].as_array().expect("an array").clone()
    }

    pub fn kept(&self, request_id: &str) -> (Value, Vec<Value>) {
        let kept = self.get(&format!("/sessions/self/codex-requests/{request_id}"));
        (kept["request"].clone(), kept["answers"].as_array().expect("an array").clone())
    }

    pub fn row(&self, request_id: &str) -> Value {
        self.kept(request_id).0
    }

    /// The row, as soon as a member of it has a value.
    pub fn row_with(&self, request_id: &str, member: &str) -> Value {
        eventually(member, || Some(self.row(request_id)).filter(|row| !row[member].is_null()))
    }

    /// The answers, as soon as there are `count` of them.
    pub fn answers(&self, request_id: &str, count: usize) -> Vec<Value> {
        eventually("every answer", || Some(self.kept(request_id).1).filter(|answers| answers.len() == count))
    }

    pub fn respond(&self, request_id: &str, given: &Value) -> (u16, Value) {
        self.http(&format!("POST {}", respond_path(request_id)), given.to_string().as_bytes())
    }

    /// Gives the first answer, through the API; returns the row.
    pub fn responded(&self, request_id: &str, given: &Value) -> Value {
        let (status, document) = self.respond(request_id, given);
        assert_eq!(
            (status, &document["ok"], &document["idempotent"]),
            (200, &json!(true), &json!(false)),
            "{document}"
        );
        document["request"].clone()
    }

    /// Calls the control socket from another thread, so that the test can play the server meanwhile.
    pub fn posted(&self, path: &str, body: &Value) -> JoinHandle<(u16, Value)> {
        let (session, line, body) = (self.session.clone(), format!("POST /sessions/self/{path}"), body.to_string());
        std::thread::spawn(move || http(&session, &line, body.as_bytes()))
    }

    pub fn post_to(&self, path: &str, body: &Value) -> (u16, Value) {
        self.http(&format!("POST /sessions/self/{path}"), body.to_string().as_bytes())
    }

    /// The client answers, and the server receives the answer unchanged.
    pub fn answer_plainly(&mut self, line: &str) {
        assert_eq!(self.send(line), format!("{line}\n"));
    }

    /// Nothing else has reached the server: the next line there is one that the client sends now.
    pub fn nothing_at_server(&mut self) {
        self.answer_plainly(r#"{"method":"marker/client"}"#);
    }

    /// The same for the client.
    pub fn nothing_at_client(&mut self) {
        self.say_plainly(r#"{"method":"marker/server"}"#);
    }
}

pub fn respond_path(request_id: &str) -> String {
    format!("/sessions/self/codex-requests/{request_id}/respond")
}

/// Checks that a call was refused, and how.
pub fn refused((status, document): (u16, Value), expect: (u16, &str)) -> Value {
    let detail = &document["detail"];
    assert_eq!((status, detail["error_code"].as_str()), (expect.0, Some(expect.1)), "{document}");
    assert!(detail["message"].as_str().is_some_and(|message| !message.is_empty()), "{document}");
    detail.clone()
}

/// Checks that no file in a folder contains these words.
pub fn assert_nowhere(folder: &Path, words: &str) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("a file").path();
        if path.is_dir() {
            assert_nowhere(&path, words);
        } else if path.is_file() {
            let bytes = fs::read(&path).expect("it can be read");
            let is_there = bytes.windows(words.len()).any(|window| window == words.as_bytes());
            assert!(!is_there, "{}", path.display());
        }
    }
}
