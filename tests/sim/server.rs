//! The server: it answers, repeats what the user said, streams, and asks.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::dice::Dice;
use super::side::{Ear, Mouth};

#[derive(Debug, Default)]
pub struct Server {
    pub mouth: Mouth,
    pub ear: Ear,
    turns: u64,
    /// The turn that runs in a thread.
    running: BTreeMap<String, String>,
    next_request: u64,
    /// Requests that wait, with their threads.
    waiting: BTreeMap<u64, String>,
    /// Answers to requests that waited, in the order in which they came.
    pub answers: Vec<(u64, Value)>,
    /// A request that was answered once more.
    pub answered_twice: Option<u64>,
}

impl Server {
    fn tell(&mut self, method: &str, params: &Value) {
        self.mouth.say(json!({"method": method, "params": params}).to_string());
    }

    pub fn hear(&mut self, bytes: &[u8]) {
        for line in self.ear.take(bytes) {
            let Ok(line) = serde_json::from_str::<Value>(&line) else { continue };
            match (line["method"].as_str(), &line["id"]) {
                (Some(method), id) if !id.is_null() => self.called(method, id, &line["params"]),
                (None, Value::Number(id)) => self.answered(id.as_u64().expect("ids are small"), &line),
                _ => {}
            }
        }
    }

    fn called(&mut self, method: &str, id: &Value, params: &Value) {
        let thread = params["threadId"].as_str().unwrap_or_default().to_owned();
        let result = match method {
            "initialize" => json!({"userAgent": "sim/0.169.0 (Linux; x86_64) sim"}),
            "turn/start" => {
                let turn = self.running.get(&thread).cloned().unwrap_or_else(|| {
                    self.turns += 1;
                    format!("u{}", self.turns)
                });
                json!({"turn": {"id": turn, "items": [], "status": "inProgress"}})
            }
            _ => json!({}),
        };
        self.mouth.say(json!({"id": id, "result": result}).to_string());
        match method {
            "turn/start" => {
                let turn = result["turn"]["id"].as_str().expect("it was given").to_owned();
                if self.running.insert(thread.clone(), turn.clone()).is_none() {
                    self.tell("turn/started", &json!({"threadId": thread, "turn": {"id": turn, "items": []}}));
                }
                let item = json!({"type": "userMessage", "id": format!("m{id}"), "content": params["input"]});
                self.tell("item/started", &json!({"threadId": thread, "turnId": turn, "item": item}));
            }
            "turn/interrupt" => self.end(&thread, "interrupted"),
            _ => {}
        }
    }

    fn answered(&mut self, id: u64, line: &Value) {
        let answer = line.get("result").unwrap_or(&line["error"]).clone();
        if self.answers.iter().any(|(answered, _)| *answered == id) {
            self.answered_twice = Some(id);
        }
        if let Some(thread) = self.waiting.remove(&id) {
            self.answers.push((id, answer));
            self.tell("serverRequest/resolved", &json!({"threadId": thread, "requestId": id}));
        }
    }

    fn end(&mut self, thread: &str, status: &str) {
        let Some(turn) = self.running.remove(thread) else { return };
        let over: Vec<u64> = self.waiting.iter().filter(|(_, of)| *of == thread).map(|(id, _)| *id).collect();
        self.tell("turn/completed", &json!({"threadId": thread, "turn": {"id": turn, "status": status, "items": []}}));
        for id in over {
            self.waiting.remove(&id);
            self.tell("serverRequest/resolved", &json!({"threadId": thread, "requestId": id}));
        }
    }

    /// Does something of its own accord.
    pub fn work(&mut self, dice: &mut Dice) {
        let Some((thread, turn)) = self.running.iter().next().map(|(thread, turn)| (thread.clone(), turn.clone()))
        else {
            return;
        };
        let (thread, turn) = match self.running.iter().nth(dice.roll(self.running.len() as u64) as usize) {
            Some((thread, turn)) => (thread.clone(), turn.clone()),
            None => (thread, turn),
        };
        let place = json!({"threadId": thread, "turnId": turn, "itemId": "a1"});
        let with = |more: Value| {
            let mut params = place.clone();
            let members = more.as_object().expect("BUG: members").clone();
            params.as_object_mut().expect("it is one").extend(members);
            params
        };
        match dice.roll(30) {
            0..=15 => self.tell("item/agentMessage/delta", &with(json!({"delta": "some words "}))),
            16..=20 => {
                let item = json!({"type": "agentMessage", "id": "a1", "text": "some words"});
                self.tell("item/completed", &with(json!({"item": item})));
            }
            21..=28 => {
                let id = self.next_request;
                self.next_request += 1;
                self.waiting.insert(id, thread.clone());
                let params = with(json!({"itemId": format!("c{id}"), "command": "touch x", "cwd": "/w"}));
                let method = "item/commandExecution/requestApproval";
                self.mouth.say(json!({"id": id, "method": method, "params": params}).to_string());
            }
            _ => self.end(&thread, "completed"),
        }
    }
}
