//! The client: it sends a client's lines, and answers requests once, twice or not at all.

use serde_json::{Value, json};

use super::dice::Dice;
use super::side::{Ear, Mouth};
use super::spelling::{Spelling, junk};

#[derive(Debug, Default)]
pub struct Client {
    pub mouth: Mouth,
    pub ear: Ear,
    next_id: u64,
    next_answer: u64,
    /// Requests without a final answer.
    asked: Vec<u64>,
}

impl Client {
    pub fn begin(&mut self, dice: &mut Dice) {
        self.call(dice, "initialize", &json!({"clientInfo": {"name": "sim", "version": "1"}}));
        if dice.once_in(2) {
            self.call(dice, "thread/resume", &json!({"threadId": "t0"}));
        }
        let input = json!([{"type": "text", "text": "begin", "text_elements": []}]);
        self.call(dice, "turn/start", &json!({"threadId": "t0", "input": input}));
    }

    fn say(&mut self, dice: &mut Dice, value: &Value) {
        self.mouth.say(Spelling::by_chance(dice).line(value));
    }

    fn call(&mut self, dice: &mut Dice, method: &str, params: &Value) {
        let id = self.next_id;
        self.next_id += 1;
        self.say(dice, &json!({"id": id, "method": method, "params": params}));
    }

    /// Sends a line.
    pub fn speak(&mut self, dice: &mut Dice) {
        let thread = format!("t{}", dice.roll(2));
        match dice.roll(19) {
            0..=2 => {
                let words = ["fix it", "what was that?", "\u{1e}CODEX quoted", "äöü € 😀"][dice.roll(4) as usize];
                let input = json!([{"type": "text", "text": format!("{words} {}", self.next_id), "text_elements": []}]);
                self.call(dice, "turn/start", &json!({"threadId": thread, "input": input}));
            }
            3 => {
                let fill = "x".repeat(dice.roll(900) as usize);
                self.call(dice, "thread/list", &json!({"fill": fill}));
            }
            4 => self.call(dice, "turn/interrupt", &json!({"threadId": thread})),
            5 => self.mouth.say(junk(dice)),
            6 => self.say(dice, &json!({"method": "initialized"})),
            8 => self.call(dice, "thread/resume", &json!({"threadId": thread})),
            // An answer to a request that does not exist and never will.
            7 => {
                let id = 1_000 + dice.roll(40);
                self.answer(dice, id);
            }
            _ => {
                if !self.asked.is_empty() {
                    let index = dice.roll(self.asked.len() as u64) as usize;
                    // Now and then it answers again.
                    let id = if dice.once_in(4) { self.asked[index] } else { self.asked.swap_remove(index) };
                    self.answer(dice, id);
                }
            }
        }
    }

    /// Answers, with different content each time.
    pub fn answer(&mut self, dice: &mut Dice, id: u64) {
        self.next_answer += 1;
        let nth = self.next_answer;
        let answer = match dice.roll(4) {
            0 => json!({"id": id, "error": {"code": -32_000, "message": format!("no / {nth}")}}),
            1 => json!({"id": id, "result": {"decision": "decline", "nth": nth}}),
            _ => json!({"id": id, "result": {"decision": "accept", "nth": nth}}),
        };
        self.say(dice, &answer);
    }

    /// Receives a line.
    pub fn hear(&mut self, line: &[u8]) {
        let Ok(line) = serde_json::from_slice::<Value>(line) else { return };
        if line["method"].as_str().is_some_and(|method| method.ends_with("requestApproval"))
            && let Some(id) = line["id"].as_u64()
        {
            self.asked.push(id);
        }
    }
}
