//! A JSON-RPC client over a process's stdio, like the published ones.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Instant;

use serde_json::{Value, json};

use super::{PATIENCE, eventually};

/// A client and its server.
pub struct Peer {
    pub child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    /// Every message the server sent, in order.
    pub seen: Vec<Value>,
    /// The test has already waited for messages up to here.
    cursor: usize,
    next_id: i64,
}

impl Peer {
    /// Starts `command` with piped stdio; its stderr is discarded unless the command redirects it.
    pub fn start(command: &mut Command) -> Peer {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the server starts");
        let stdout = child.stdout.take().expect("stdout is piped");
        let stdin = child.stdin.take();
        let (send, lines) = sync_channel(100_000);
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                if line.is_err() || send.send(line.expect("checked above")).is_err() {
                    return;
                }
            }
        });
        Peer { child, stdin, lines, seen: Vec::new(), cursor: 0, next_id: 0 }
    }

    /// `initialize` and `initialized`.
    pub fn initialize(&mut self) -> Value {
        let result = self.call(
            "initialize",
            json!({"clientInfo": {"name": "test-client", "title": null, "version": "1.0"},
                "capabilities": {"experimentalApi": true}}),
        );
        self.write(&json!({"method": "initialized"}));
        result
    }

    /// Sends a request; returns its id.
    pub fn request(&mut self, method: &str, params: Value) -> i64 {
        let id = self.next_id;
        self.next_id += 1;
        self.write(&json!({"id": id, "method": method, "params": params}));
        id
    }

    /// Sends a request and waits for its result.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params);
        self.result_of(id, method)
    }

    fn result_of(&mut self, id: i64, what: &str) -> Value {
        let answer = self.wait_for(&format!("the answer to {what}"), |message| {
            message.get("method").is_none() && message["id"] == id
        });
        assert!(answer.get("error").is_none(), "{what}: {answer}");
        answer["result"].clone()
    }

    /// Sends a request line as given, with `ID` replaced; returns its result.
    pub fn call_as_written(&mut self, line: &str) -> Value {
        let id = self.next_id;
        self.next_id += 1;
        let stdin = self.stdin.as_mut().expect("stdin is open until the end");
        writeln!(stdin, "{}", line.replace("ID", &id.to_string())).expect("the server reads");
        self.result_of(id, line)
    }

    /// Answers a request of the server.
    pub fn answer(&mut self, request: &Value, result: Value) {
        self.write(&json!({"id": request["id"], "result": result}));
    }

    /// Waits for a notification or a request of this method.
    pub fn wait_for_method(&mut self, method: &str) -> Value {
        self.wait_for(method, |message| message["method"] == method)
    }

    /// Waits for a message after the last one awaited; skips others.
    pub fn wait_for(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            while let Some(message) = self.seen.get(self.cursor) {
                self.cursor += 1;
                if wanted(message) {
                    return message.clone();
                }
            }
            let left = PATIENCE.saturating_sub(began.elapsed());
            match self.lines.recv_timeout(left) {
                Ok(line) => self.seen.push(parsed(&line)),
                Err(_) => panic!("{what}: it did not come; seen: {:#?}", self.seen),
            }
        }
    }

    /// Closes the server's stdin; returns all its messages and its exit status.
    pub fn finish(mut self) -> (Vec<Value>, ExitStatus) {
        drop(self.stdin.take());
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            self.seen.push(parsed(&line));
        }
        let status = eventually("the server's exit", || self.child.try_wait().expect("it is our child"));
        (self.seen, status)
    }

    fn write(&mut self, message: &Value) {
        let stdin = self.stdin.as_mut().expect("stdin is open until the end");
        writeln!(stdin, "{message}").expect("the server reads");
    }
}

fn parsed(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON on stdout: {line}"))
}
