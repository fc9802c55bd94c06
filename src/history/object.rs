//! Writes JSON objects with members in a chosen order.

use serde::Serialize;
use serde_json::Value;

/// An object being written.
#[derive(Debug)]
pub(super) struct Object(String);

impl Object {
    pub(super) fn new() -> Object {
        Object("{".to_owned())
    }

    /// Adds a member.
    pub(super) fn with(self, name: &str, value: impl Serialize) -> Object {
        self.member(name, &json(value))
    }

    /// Adds a member unless it is missing or `null`.
    pub(super) fn with_some(self, name: &str, value: Option<impl Serialize>) -> Object {
        match value.map(json) {
            Some(written) if written != "null" => self.member(name, &written),
            Some(_) | None => self,
        }
    }

    /// The finished JSON.
    pub(super) fn finish(self) -> String {
        self.0 + "}"
    }

    fn member(mut self, name: &str, written: &str) -> Object {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push_str(&json(name));
        self.0.push(':');
        self.0.push_str(written);
        self
    }
}

fn json(value: impl Serialize) -> String {
    serde_json::to_string(&value).expect("BUG: plain data becomes JSON without error")
}

/// A value up to `bytes_max` of JSON; a longer one is replaced with its end as text.
pub(super) fn bounded(value: &Value, bytes_max: usize) -> Value {
    let written = value.to_string();
    match tail(&written, bytes_max) {
        (_, 0) => value.clone(),
        (tail, cut_bytes) => serde_json::json!({ "truncated_by_bytes": cut_bytes, "tail": tail }),
    }
}

/// The end of a text, and the number of bytes cut off before it.
pub(super) fn tail(text: &str, bytes_max: usize) -> (&str, usize) {
    let from = text.ceil_char_boundary(text.len().saturating_sub(bytes_max));
    (&text[from..], from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_keep_insertion_order() {
        let check = |object: Object, expect: &str| assert_eq!(object.finish(), expect);
        check(Object::new(), "{}");
        check(Object::new().with("b", 1).with("a\"", "x\n"), r#"{"b":1,"a\"":"x\n"}"#);
        check(Object::new().with_some("a", None::<u8>).with_some("b", Some(Value::Null)), "{}");
        check(Object::new().with("n", Value::Null).with_some("v", Some([1, 2])), r#"{"n":null,"v":[1,2]}"#);
    }

    #[test]
    fn end_is_kept_without_splitting_characters() {
        let check = |text: &str, bytes_max, expect| assert_eq!(tail(text, bytes_max), expect);
        check("abc", 3, ("abc", 0));
        check("abc", 2, ("bc", 1));
        check("aüc", 2, ("c", 3));
        check("", 0, ("", 0));
        let value = serde_json::json!({ "a": "bcdef" });
        assert_eq!(bounded(&value, 13), value);
        assert_eq!(bounded(&value, 4), serde_json::json!({ "truncated_by_bytes": 9, "tail": "ef\"}" }));
    }
}
