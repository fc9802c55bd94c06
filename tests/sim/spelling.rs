//! Spellings of JSON: the same value in one of many forms, and lines that are not messages.
//!
//! A relay that parses and reserializes lines, instead of forwarding bytes, cannot reproduce them.

use serde_json::Value;

use super::dice::Dice;

/// The spelling of one line. The spelling of a part does not depend on its surroundings, so a text whose start is
/// removed keeps the spelling of the rest.
#[derive(Debug, Clone, Copy)]
pub struct Spelling(u64);

impl Spelling {
    /// The plain spelling, or once in three times an odd one.
    pub fn by_chance(dice: &mut Dice) -> Spelling {
        Spelling(if dice.once_in(3) { 1 + dice.roll(1 << 30) } else { 0 })
    }

    pub fn is_odd(self) -> bool {
        self.0 != 0
    }

    /// Writes a value.
    pub fn line(self, value: &Value) -> Vec<u8> {
        if !self.is_odd() {
            return value.to_string().into_bytes();
        }
        let mut out = String::new();
        self.value(value, &mut out);
        out.push_str(["", "", "\r", " "][self.one_of(4, 'e' as u64)]);
        out.into_bytes()
    }

    /// A choice of this spelling, the same for equal `about`.
    fn one_of(self, sides: u64, about: u64) -> usize {
        (Dice::new(self.0.wrapping_mul(31).wrapping_add(about)).roll(sides)) as usize
    }

    fn gap(self, about: char, out: &mut String) {
        out.push_str(["", " ", "\t", "  "][self.one_of(4, about as u64)]);
    }

    fn value(self, value: &Value, out: &mut String) {
        match value {
            Value::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                if self.one_of(2, 'k' as u64) == 0 {
                    members.reverse();
                }
                self.list('{', '}', &members, out, |(name, value), out| {
                    self.text(name, out);
                    self.gap('<', out);
                    out.push(':');
                    self.gap(':', out);
                    self.value(value, out);
                });
            }
            Value::Array(values) => {
                let values: Vec<_> = values.iter().collect();
                self.list('[', ']', &values, out, |value, out| self.value(value, out));
            }
            Value::String(text) => self.text(text, out),
            Value::Null | Value::Bool(_) | Value::Number(_) => out.push_str(&value.to_string()),
        }
    }

    fn list<T>(self, open: char, close: char, all: &[T], out: &mut String, each: impl Fn(&T, &mut String)) {
        out.push(open);
        self.gap(open, out);
        for (index, one) in all.iter().enumerate() {
            if index > 0 {
                out.push(',');
                self.gap(',', out);
            }
            each(one, out);
        }
        self.gap(close, out);
        out.push(close);
    }

    fn text(self, text: &str, out: &mut String) {
        out.push('"');
        for char in text.chars() {
            let is_escaped = self.one_of(12, char as u64) == 0;
            match char {
                '/' if is_escaped => out.push_str("\\/"),
                '"' | '\\' => out.extend(['\\', char]),
                _ if is_escaped || char.is_control() => {
                    char.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04X}")));
                }
                _ => out.push(char),
            }
        }
        out.push('"');
    }
}

/// A line that is neither a request nor an answer.
pub fn junk(dice: &mut Dice) -> Vec<u8> {
    let all: [&[u8]; 10] = [
        b"no JSON at all",
        b"",
        b"\r",
        b"\xff\xfe\x00{\"id\":1}",
        b" [ 1 ,2]\t",
        b"[{\"id\":1,\"method\":\"thread/list\"}]",
        b"{\"a\":1,\"a\" :2}",
        b"{\"a\":1e400}",
        b"{\"method\" :\"a/b\\/c\",\"params\":{\"x\":\"\\ud83d\\uDE00 \\u00e9\"}}",
        b"data: {\"id\":1,\xc3(}",
    ];
    all[dice.roll(all.len() as u64) as usize].to_vec()
}
