//! A client of the hub: it subscribes to threads, begins turns, answers requests once, twice or not at all, and leaves at
//! any moment.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Value, json};

use super::super::dice::Dice;
use super::super::side::Said;
use super::super::spelling::Spelling;
use super::server::{FOLDERS, Server};

/// Messages that a client's end takes before the client reads some.
pub const UNREAD_MAX: usize = 4;

/// The name of codex's daemon, which only looks whether a server answers.
pub const PROBE: &str = "codex_app_server_daemon";

#[derive(Debug, Default)]
pub struct Client {
    /// All that it has written.
    pub said: Vec<Said>,
    /// How many of these the hub has read.
    pub read: usize,
    /// Messages from the hub that it has not read.
    pub unread: VecDeque<Vec<u8>>,
    /// The client has closed the connection.
    pub has_left: bool,
    /// The hub has closed the connection.
    pub is_left: bool,
    calls: u64,
    /// Open calls that begin a subscription.
    subscribing: BTreeMap<u64, ()>,
    threads: Vec<String>,
    /// Requests without a final answer.
    asked: Vec<u64>,
    /// The last request that it has been asked.
    last_asked: Option<u64>,
}

/// Text that is not a message. A WebSocket carries only UTF-8.
const JUNK: [&str; 4] = ["no JSON at all", " [ 1 ,2]\t", "{\"a\":1,\"a\" :2}", "{\"a\":1e400}"];

impl Client {
    /// Introduces itself.
    pub fn begin(&mut self, dice: &mut Dice) {
        let name = if dice.once_in(10) { PROBE } else { "sim" };
        self.call(dice, "initialize", &json!({"clientInfo": {"name": name, "version": "1"}}));
        self.say(dice, &json!({"method": "initialized"}));
    }

    fn say(&mut self, dice: &mut Dice, value: &Value) {
        let bytes = Spelling::by_chance(dice).line(value);
        self.said.push(Said { bytes, plain: None });
    }

    fn call(&mut self, dice: &mut Dice, method: &str, params: &Value) -> u64 {
        let id = self.calls;
        self.calls += 1;
        self.say(dice, &json!({"id": id, "method": method, "params": params}));
        id
    }

    pub fn subscribe(&mut self, dice: &mut Dice, thread: &str) {
        let id = self.call(dice, "thread/resume", &json!({"threadId": thread}));
        self.subscribing.insert(id, ());
    }

    /// Follows a thread of the server, or a new one.
    pub fn joins(&mut self, dice: &mut Dice, server: &Server) {
        match server.some_thread(dice) {
            Some(thread) if !dice.once_in(6) => self.subscribe(dice, &thread),
            Some(_) | None => {
                self.starts(dice, &json!({}));
            }
        }
    }

    /// Starts a thread in a folder of the user.
    fn starts(&mut self, dice: &mut Dice, params: &Value) {
        let mut params = params.clone();
        params["cwd"] = FOLDERS[dice.roll(FOLDERS.len() as u64) as usize].into();
        let id = self.call(dice, "thread/start", &params);
        self.subscribing.insert(id, ());
    }

    /// Writes a message.
    pub fn speak(&mut self, dice: &mut Dice, server: &Server, answers: &mut u64) {
        let thread = match self.threads.len() as u64 {
            0 => None,
            count => Some(self.threads[dice.roll(count) as usize].clone()),
        };
        match (dice.roll(20), thread) {
            (0, _) => {
                let params = if dice.once_in(3) && !server.is_plain {
                    json!({"threadSource": "thread_title", "ephemeral": true})
                } else {
                    json!({})
                };
                self.starts(dice, &params);
            }
            (1, _) => self.joins(dice, server),
            (2..=7, Some(thread)) => {
                let words = ["fix it", "what was that?", "\u{1e}CODEX quoted", "äöü € 😀"][dice.roll(4) as usize];
                let input = json!([{"type": "text", "text": format!("{words} {}", self.calls), "text_elements": []}]);
                self.call(dice, "turn/start", &json!({"threadId": thread, "input": input}));
            }
            (8, Some(thread)) if dice.once_in(3) => {
                self.threads.retain(|of| *of != thread);
                self.call(dice, "thread/unsubscribe", &json!({"threadId": thread}));
            }
            (9, Some(thread)) if dice.once_in(2) => {
                self.call(dice, "turn/interrupt", &json!({"threadId": thread}));
            }
            (10, _) => {
                let fill = "x".repeat(dice.roll(300) as usize);
                self.call(dice, "thread/list", &json!({"fill": fill}));
            }
            (11, _) => {
                let bytes = JUNK[dice.roll(JUNK.len() as u64) as usize].as_bytes().to_vec();
                self.said.push(Said { bytes, plain: None });
            }
            // An answer to a request that may exist, whether or not this client was asked.
            (12, _) => {
                let last = server.waits_for().last().unwrap_or_default();
                let id = (last + 2).saturating_sub(dice.roll(6));
                self.answer(dice, id, answers);
            }
            _ => {
                if !self.asked.is_empty() {
                    let index = dice.roll(self.asked.len() as u64) as usize;
                    // Now and then it answers again.
                    let id = if dice.once_in(4) { self.asked[index] } else { self.asked.swap_remove(index) };
                    self.answer(dice, id, answers);
                }
            }
        }
    }

    /// Answers every request that it has been asked.
    pub fn answer_all(&mut self, dice: &mut Dice, answers: &mut u64) {
        for id in std::mem::take(&mut self.asked) {
            self.answer(dice, id, answers);
        }
    }

    /// Answers the last request, perhaps once more.
    pub fn answer_last(&mut self, dice: &mut Dice, answers: &mut u64) {
        if let Some(id) = self.last_asked {
            self.answer(dice, id, answers);
        }
    }

    /// Answers, with different content each time.
    fn answer(&mut self, dice: &mut Dice, id: u64, answers: &mut u64) {
        *answers += 1;
        let nth = *answers;
        let answer = match dice.roll(4) {
            0 => json!({"id": id, "error": {"code": -32_000, "message": format!("no / {nth}")}}),
            1 => json!({"id": id, "result": {"decision": "decline", "nth": nth}}),
            _ => json!({"id": id, "result": {"decision": "accept", "nth": nth}}),
        };
        self.say(dice, &answer);
    }

    /// Reads the next message.
    pub fn hear(&mut self) -> bool {
        let Some(line) = self.unread.pop_front() else { return false };
        let Ok(line) = serde_json::from_slice::<Value>(&line) else { return true };
        match (line["method"].as_str(), line["id"].as_u64()) {
            (Some(method), Some(id)) if method.ends_with("requestApproval") => {
                self.asked.push(id);
                self.last_asked = Some(id);
            }
            (None, Some(id)) if self.subscribing.remove(&id).is_some() => {
                self.threads.extend(line["result"]["thread"]["id"].as_str().map(str::to_owned));
            }
            _ => {}
        }
        true
    }
}
