//! Reads a payload that was cut: the other direction of [`super::bounded`].

use serde_json::Value;

/// The text at the beginning of a payload that was cut.
pub fn beginning(payload: &Value) -> Option<&str> {
    payload["preview"].as_str().filter(|_| payload["truncated"] == true)
}

/// A payload; of one that was cut, its beginning, in which a text that ends early gets a mark.
pub fn mended(payload: Value, mark: &str) -> Value {
    match (payload["truncated"] == true, beginning(&payload)) {
        (false, _) => payload,
        (true, start) => start.and_then(|start| of_start(start, mark)).unwrap_or(Value::Null),
    }
}

/// Parses the beginning of a JSON text, without its incomplete part. A text that ends early gets a mark.
fn of_start(start: &str, mark: &str) -> Option<Value> {
    let mut open: Vec<char> = Vec::new();
    // The end of the last complete member, and whether a name comes next.
    let (mut complete, mut is_name) = (0, false);
    let mut text: Option<bool> = None;
    let mut is_escaped = false;
    for (at, char) in start.char_indices() {
        if let Some(of_name) = text {
            match char {
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = true,
                '"' => {
                    text = None;
                    complete = if of_name { complete } else { at + 1 };
                }
                _ => {}
            }
            continue;
        }
        match char {
            '"' => text = Some(is_name),
            '{' | '[' => {
                open.push(if char == '{' { '}' } else { ']' });
                (complete, is_name) = (at + 1, char == '{');
            }
            '}' | ']' => {
                open.pop()?;
                (complete, is_name) = (at + 1, false);
            }
            ',' => (complete, is_name) = (at, open.last() == Some(&'}')),
            ':' => is_name = false,
            _ => {}
        }
    }
    let ends: String = open.iter().rev().collect();
    let marked = |end: usize| serde_json::from_str(&format!("{}{mark}\"{ends}", start.get(..end)?)).ok();
    if text == Some(false) {
        // The cut may be inside an escape.
        return (start.len().saturating_sub(12)..=start.len()).rev().find_map(marked);
    }
    serde_json::from_str(&format!("{}{ends}", &start[..complete])).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn cut_payloads_are_mended() {
        let check = |start: &str, expect: Option<Value>| assert_eq!(of_start(start, "…"), expect, "{start}");
        check(r#"{"a":{"b":"te"#, Some(json!({ "a": { "b": "te…" } })));
        check(r#"{"a":{"b":"te\u00"#, Some(json!({ "a": { "b": "te…" } })));
        check(r#"{"a":1,"b":[1,2"#, Some(json!({ "a": 1, "b": [1] })));
        check(r#"{"a":1,"bcd"#, Some(json!({ "a": 1 })));
        check(r#"{"a":1,"bcd":"#, Some(json!({ "a": 1 })));
        check(r#"{"a":tr"#, Some(json!({})));
        check("}", None);
        check("", None);
        let cut = |start: &str| json!({ "truncated": true, "preview": start });
        assert_eq!(mended(cut(r#"{"a":"b"#), "…"), json!({ "a": "b…" }));
        assert_eq!(mended(cut("}"), "…"), Value::Null);
        assert_eq!(mended(json!({ "a": 1 }), "…"), json!({ "a": 1 }));
    }

    proptest! {
        #[test]
        fn every_beginning_is_mended(text in "\\PC{0,20}", at in 0_usize..200) {
            let whole = json!({ "item": { "text": text, "n": [1, { "x": text }], "b": true } }).to_string();
            let start = &whole[..whole.floor_char_boundary(at.clamp(1, whole.len()))];
            prop_assert!(of_start(start, "…").is_some(), "{}", start);
            let _ = of_start(&text, "…");
        }
    }
}
