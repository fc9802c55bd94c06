//! The client: it says what clients say, and answers what it is asked, once or twice or not at all.

use serde_json::{Value, json};

use super::dice::Dice;
use super::side::{Ear, Mouth};

#[derive(Debug, Default)]
pub struct Client {
    pub mouth: Mouth,
    pub ear: Ear,
    next_id: u64,
    /// Requests that it has not answered for good.
    asked: Vec<u64>,
}

impl Client {
    pub fn begin(&mut self) {
        self.call("initialize", &json!({"clientInfo": {"name": "sim", "version": "1"}}));
        let input = json!([{"type": "text", "text": "begin", "text_elements": []}]);
        self.call("turn/start", &json!({"threadId": "t0", "input": input}));
    }

    pub fn call(&mut self, method: &str, params: &Value) {
        let id = self.next_id;
        self.next_id += 1;
        self.mouth.say(json!({"id": id, "method": method, "params": params}).to_string());
    }

    /// Says something.
    pub fn speak(&mut self, dice: &mut Dice) {
        let thread = format!("t{}", dice.roll(2));
        match dice.roll(16) {
            0..=2 => {
                let words = ["fix it", "what was that?", "\u{1e}CODEX quoted", "äöü €"][dice.roll(4) as usize];
                let input = json!([{"type": "text", "text": format!("{words} {}", self.next_id), "text_elements": []}]);
                self.call("turn/start", &json!({"threadId": thread, "input": input}));
            }
            3 => self.call("thread/list", &json!({"fill": "x".repeat(dice.roll(900) as usize)})),
            4 => self.call("turn/interrupt", &json!({"threadId": thread})),
            5 => self.mouth.say("no JSON at all".to_owned()),
            6 => self.mouth.say(json!({"method": "initialized"}).to_string()),
            // Of a request that there is not, and will not be.
            7 => self.answer(1_000 + dice.roll(40)),
            _ => {
                if !self.asked.is_empty() {
                    let index = dice.roll(self.asked.len() as u64) as usize;
                    // Now and then once more.
                    let id = if dice.once_in(4) { self.asked[index] } else { self.asked.swap_remove(index) };
                    self.answer(id);
                }
            }
        }
    }

    fn answer(&mut self, id: u64) {
        self.mouth.say(json!({"id": id, "result": {"decision": "accept"}}).to_string());
    }

    pub fn hear(&mut self, bytes: &[u8]) {
        for line in self.ear.take(bytes) {
            let Ok(line) = serde_json::from_str::<Value>(&line) else { continue };
            if line["method"].as_str().is_some_and(|method| method.ends_with("requestApproval"))
                && let Some(id) = line["id"].as_u64()
            {
                self.asked.push(id);
            }
        }
    }
}
