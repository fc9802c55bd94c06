//! Comparing what a client sends with what a tape has, where ids, paths and times may differ.
//!
//! What differs in such a place is remembered as a pair, held to from then on, and put into everything that the player
//! says. Pure.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::wire::{TokenKind, tokens};

/// A place where a client's message differs from the tape's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The message, in words.
    pub message: String,
    /// Where in it, such as `params.input[0].text`; empty for the whole.
    pub place: String,
    /// What the tape has; `None` for nothing.
    pub on_tape: Option<String>,
    /// What the client sent; `None` for nothing.
    pub sent: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)?;
        if !self.place.is_empty() {
            write!(f, " at {}", self.place)?;
        }
        write!(f, "\n  - {}", self.on_tape.as_deref().unwrap_or("(nothing on the tape)"))?;
        write!(f, "\n  + {}", self.sent.as_deref().unwrap_or("(nothing sent)"))
    }
}

/// Pairs of what stands on the tape and what stands for it now.
#[derive(Debug, Clone, Default)]
pub(super) struct Mapping {
    ids: BTreeMap<String, String>,
    /// Paths, to be replaced also at the beginning of longer ones.
    paths: BTreeMap<String, String>,
}

impl Mapping {
    /// Compares two values, learns what may differ, and returns what may not.
    pub(super) fn compare(&mut self, message: &str, on_tape: &Value, sent: &Value) -> Vec<Difference> {
        let mut comparison = Comparison { mapping: self, message, found: Vec::new() };
        comparison.values("params", on_tape, sent);
        comparison.found
    }

    /// A line of the tape with everything that was learned put in.
    pub(super) fn applied(&self, line: &str) -> String {
        if self.ids.is_empty() && self.paths.is_empty() {
            return line.to_owned();
        }
        let mut mapped = String::with_capacity(line.len());
        let mut copied = 0;
        for token in tokens(line).filter(|token| token.kind == TokenKind::Text) {
            if let Some(replacement) = self.string(&line[token.range.clone()]) {
                mapped.push_str(&line[copied..token.range.start]);
                mapped.push_str(&replacement);
                copied = token.range.end;
            }
        }
        mapped.push_str(&line[copied..]);
        mapped
    }

    fn string(&self, quoted: &str) -> Option<String> {
        let text: String = serde_json::from_str(quoted).ok()?;
        let mapped = self.text(&text);
        (mapped != text).then(|| Value::String(mapped).to_string())
    }

    fn text(&self, text: &str) -> String {
        if let Some(id) = self.ids.get(text) {
            return id.clone();
        }
        // Longest first: in this order a path comes before what it begins with.
        let mapped = self.paths.iter().rev().find_map(|(on_tape, now)| {
            let rest = text.strip_prefix(on_tape.as_str())?;
            (rest.is_empty() || rest.starts_with('/')).then(|| format!("{now}{rest}"))
        });
        mapped.unwrap_or_else(|| text.to_owned())
    }
}

struct Comparison<'a> {
    mapping: &'a mut Mapping,
    message: &'a str,
    found: Vec<Difference>,
}

impl Comparison<'_> {
    fn values(&mut self, place: &str, on_tape: &Value, sent: &Value) {
        match (on_tape, sent) {
            (Value::Object(on_tape), Value::Object(sent)) => {
                let names = on_tape.keys().chain(sent.keys().filter(|name| !on_tape.contains_key(*name)));
                for name in names {
                    let place = format!("{place}.{name}");
                    // An explicit null says the same as no member.
                    let (on_tape, sent) = (on_tape.get(name), sent.get(name));
                    self.values(&place, on_tape.unwrap_or(&Value::Null), sent.unwrap_or(&Value::Null));
                }
            }
            (Value::Array(on_tape), Value::Array(sent)) if on_tape.len() == sent.len() => {
                for (index, (on_tape, sent)) in on_tape.iter().zip(sent).enumerate() {
                    self.values(&format!("{place}[{index}]"), on_tape, sent);
                }
            }
            (Value::String(on_tape_text), Value::String(sent_text)) => {
                if !self.texts(on_tape_text, sent_text) {
                    self.differ(place, on_tape, sent);
                }
            }
            (Value::Number(_), Value::Number(_)) if is_time(place) => {}
            (on_tape, sent) if on_tape == sent => {}
            (on_tape, sent) => self.differ(place, on_tape, sent),
        }
    }

    /// Whether two texts are the same, or may stand for each other from now on.
    fn texts(&mut self, on_tape: &str, sent: &str) -> bool {
        if self.mapping.text(on_tape) == sent {
            return true;
        }
        let pairs = if is_id(on_tape) && is_id(sent) {
            &mut self.mapping.ids
        } else if is_path(on_tape) && is_path(sent) {
            &mut self.mapping.paths
        } else {
            return false;
        };
        if pairs.contains_key(on_tape) {
            return false;
        }
        pairs.insert(on_tape.to_owned(), sent.to_owned());
        true
    }

    fn differ(&mut self, place: &str, on_tape: &Value, sent: &Value) {
        let shown = |value: &Value| (!value.is_null()).then(|| value.to_string());
        self.found.push(Difference {
            message: self.message.to_owned(),
            place: place.to_owned(),
            on_tape: shown(on_tape),
            sent: shown(sent),
        });
    }
}

/// The shape of a UUID.
fn is_id(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

fn is_path(text: &str) -> bool {
    text.starts_with('/')
}

/// Whether a member is a time by its name.
fn is_time(place: &str) -> bool {
    place.ends_with("At") || place.ends_with("Ms")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const A: &str = "00000000-0000-7000-8000-000000000001";
    const B: &str = "11111111-0000-7000-8000-000000000001";

    #[test]
    fn ids_paths_and_times_may_differ_and_are_held_to() {
        let mut mapping = Mapping::default();
        let on_tape = json!({"threadId": A, "cwd": "/home/user/project", "startedAt": 5, "x": null});
        let sent = json!({"threadId": B, "cwd": "/w", "startedAt": 9});
        assert_eq!(mapping.compare("m", &on_tape, &sent), []);
        let line = format!(r#"{{"id":"{A}","p":"/home/user/project/a","q":"/home/user/projects","n":"{A}x"}}"#);
        let expect = format!(r#"{{"id":"{B}","p":"/w/a","q":"/home/user/projects","n":"{A}x"}}"#);
        assert_eq!(mapping.applied(&line), expect);
        assert_eq!(mapping.compare("m", &json!({"threadId": A}), &json!({"threadId": A})).len(), 1);
    }

    #[test]
    fn everything_else_is_a_difference_with_its_place() {
        let found = Mapping::default().compare(
            "turn/start",
            &json!({"input": [{"text": "a"}], "n": 1}),
            &json!({"input": [{"text": "b"}], "more": true, "n": 2}),
        );
        let places: Vec<&str> = found.iter().map(|difference| difference.place.as_str()).collect();
        assert_eq!(places, ["params.input[0].text", "params.n", "params.more"]);
        assert_eq!(found[0].to_string(), "turn/start at params.input[0].text\n  - \"a\"\n  + \"b\"");
        assert_eq!(found[2].to_string(), "turn/start at params.more\n  - (nothing on the tape)\n  + true");
    }
}
