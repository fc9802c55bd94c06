//! The server: it answers, repeats the user's words, streams, and sends requests.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::dice::Dice;
use super::rules::COMMANDS;
use super::side::{Ear, Mouth, Said};
use super::spelling::{Spelling, junk};

#[derive(Debug, Default)]
pub struct Server {
    pub mouth: Mouth,
    pub ear: Ear,
    turns: u64,
    /// The running turn of each thread.
    pub running: BTreeMap<String, String>,
    next_request: u64,
    /// Pending requests and their threads.
    pub waiting: BTreeMap<u64, String>,
    /// The line of each request.
    lines: BTreeMap<u64, Vec<u8>>,
    /// Number of answered requests.
    pub answers: u64,
}

/// The user's words without the text before them.
fn words(text: &str) -> Option<&str> {
    text.strip_prefix("\u{1e}CODEX_META ")?.split_once('\u{1f}').map(|(_, words)| words)
}

/// A thread with its sandbox: that of the first one lets its model write nowhere.
fn described(thread: &str) -> Value {
    let (cwd, sandbox) = match thread {
        "t0" => ("/w", json!({"type": "readOnly"})),
        _ => ("/w/t1", json!({"type": "workspaceWrite", "writableRoots": []})),
    };
    json!({"thread": {"id": thread}, "cwd": cwd, "sandbox": sandbox})
}

impl Server {
    fn say(&mut self, dice: &mut Dice, value: &Value) {
        self.mouth.say(Spelling::by_chance(dice).line(value));
    }

    fn tell(&mut self, dice: &mut Dice, method: &str, params: &Value) {
        self.say(dice, &json!({"method": method, "params": params}));
    }

    /// Receives a line.
    pub fn hear(&mut self, dice: &mut Dice, line: &[u8]) {
        let Ok(line) = serde_json::from_slice::<Value>(line) else { return };
        match (line["method"].as_str(), &line["id"]) {
            (Some(method), id) if !id.is_null() => self.called(dice, method, id, &line["params"]),
            (None, Value::Number(id)) => self.answered(dice, id.as_u64().expect("ids are small")),
            _ => {}
        }
    }

    fn called(&mut self, dice: &mut Dice, method: &str, id: &Value, params: &Value) {
        let thread = params["threadId"].as_str().unwrap_or_default().to_owned();
        let result = match method {
            "initialize" => json!({"userAgent": "sim/0.169.0 (Linux; x86_64) sim"}),
            "thread/resume" => described(&thread),
            "turn/start" => {
                let turn = self.running.get(&thread).cloned().unwrap_or_else(|| {
                    self.turns += 1;
                    format!("u{}", self.turns)
                });
                json!({"turn": {"id": turn, "items": [], "status": "inProgress"}})
            }
            _ => json!({}),
        };
        self.say(dice, &json!({"id": id, "result": result}));
        match method {
            "turn/start" => {
                let turn = result["turn"]["id"].as_str().expect("it was given").to_owned();
                if self.running.insert(thread.clone(), turn.clone()).is_none() {
                    self.tell(dice, "turn/started", &json!({"threadId": thread, "turn": {"id": turn, "items": []}}));
                }
                self.repeat(dice, &thread, &turn, id, &params["input"]);
            }
            "turn/interrupt" => self.end(dice, &thread, "interrupted"),
            _ => {}
        }
    }

    /// Repeats the user's input, with everything before it.
    fn repeat(&mut self, dice: &mut Dice, thread: &str, turn: &str, id: &Value, input: &Value) {
        let with = |content: &Value| {
            let item = json!({"type": "userMessage", "id": format!("m{id}"), "content": content});
            json!({"method": "item/started", "params": {"threadId": thread, "turnId": turn, "item": item}})
        };
        let spelling = Spelling::by_chance(dice);
        let mut content = input.clone();
        let plain = content[0]["text"].as_str().and_then(words).map(str::to_owned).map(|words| {
            content[0]["text"] = Value::from(words);
            spelling.line(&with(&content))
        });
        self.mouth.say_both(Said { bytes: spelling.line(&with(input)), plain });
    }

    fn answered(&mut self, dice: &mut Dice, id: u64) {
        if self.waiting.contains_key(&id) && dice.once_in(5) {
            // The server accepts the answer silently and repeats the request.
            self.answers += 1;
            return self.ask_again(id);
        }
        if let Some(thread) = self.waiting.remove(&id) {
            self.answers += 1;
            self.tell(dice, "serverRequest/resolved", &json!({"threadId": thread, "requestId": id}));
        }
    }

    /// The identical line, as for a client that resumes.
    fn ask_again(&mut self, id: u64) {
        if let Some(line) = self.lines.get(&id) {
            self.mouth.say(line.clone());
        }
    }

    fn end(&mut self, dice: &mut Dice, thread: &str, status: &str) {
        let Some(turn) = self.running.remove(thread) else { return };
        let over: Vec<u64> = self.waiting.iter().filter(|(_, of)| *of == thread).map(|(id, _)| *id).collect();
        let turn = json!({"id": turn, "status": status, "items": []});
        self.tell(dice, "turn/completed", &json!({"threadId": thread, "turn": turn}));
        for id in over {
            self.waiting.remove(&id);
            self.tell(dice, "serverRequest/resolved", &json!({"threadId": thread, "requestId": id}));
        }
    }

    /// The server withdraws a request.
    pub fn withdraw(&mut self, dice: &mut Dice, id: u64) {
        if let Some(thread) = self.waiting.remove(&id) {
            self.tell(dice, "serverRequest/resolved", &json!({"threadId": thread, "requestId": id}));
        }
    }

    fn ask(&mut self, dice: &mut Dice, id: u64, thread: &str, params: &Value) {
        self.waiting.insert(id, thread.to_owned());
        let method = "item/commandExecution/requestApproval";
        let line = Spelling::by_chance(dice).line(&json!({"id": id, "method": method, "params": params}));
        self.lines.insert(id, line.clone());
        self.mouth.say(line);
    }

    /// Sends something unprompted.
    pub fn work(&mut self, dice: &mut Dice) {
        let count = self.running.len().max(1) as u64;
        let Some((thread, turn)) = self.running.iter().nth(dice.roll(count) as usize) else { return };
        let (thread, turn) = (thread.clone(), turn.clone());
        let place = json!({"threadId": thread, "turnId": turn, "itemId": "a1"});
        let with = |more: Value| {
            let mut params = place.clone();
            let members = more.as_object().expect("BUG: members").clone();
            params.as_object_mut().expect("it is one").extend(members);
            params
        };
        match dice.roll(30) {
            0..=9 => self.tell(dice, "item/agentMessage/delta", &with(json!({"delta": "some words "}))),
            10..=13 => {
                let item = json!({"type": "agentMessage", "id": "a1", "text": "some words"});
                self.tell(dice, "item/completed", &with(json!({"item": item})));
            }
            14 => self.mouth.say(junk(dice)),
            15 => {
                // The server withdraws the request.
                let Some((id, of)) = self.waiting.pop_first() else { return };
                let says_so = !dice.once_in(3);
                if says_so {
                    self.tell(dice, "serverRequest/resolved", &json!({"threadId": of, "requestId": id}));
                }
                if !says_so || dice.once_in(2) {
                    // It asks for something else under the same id.
                    let params = with(json!({"itemId": format!("d{id}"), "command": "touch y", "cwd": "/w"}));
                    self.ask(dice, id, &thread, &params);
                }
            }
            16 => {
                // A client has resumed: the server repeats its last open request.
                let last = self.waiting.keys().next_back().copied();
                last.into_iter().for_each(|id| self.ask_again(id));
            }
            17..=28 => {
                let id = self.next_request;
                self.next_request += 1;
                let command = COMMANDS[dice.roll(COMMANDS.len() as u64) as usize];
                let cwd = if dice.once_in(6) { "/w/x" } else { "/w" };
                let mut params = with(json!({"itemId": format!("c{id}"), "command": command, "cwd": cwd}));
                if dice.once_in(8) {
                    params["networkApprovalContext"] = json!({"host": "example.org"});
                }
                self.ask(dice, id, &thread, &params);
            }
            _ => self.end(dice, &thread, "completed"),
        }
    }
}
