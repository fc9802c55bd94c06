//! The ids in a line that is not a plain message: a batch, text before a message, or a message with a repeated member.
//!
//! Codex skips such a line. Another server may process it and answer with any of the ids in it.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::value::RawValue;

use crate::wire::{Members, RpcId, elements};

/// Ids remembered per line.
const IDS_MAX: usize = 256;

/// Elements of a batch that are inspected.
const ELEMENTS_MAX: usize = 10_000;

/// Longest remembered id, in bytes.
const ID_BYTES_MAX: usize = 1_024;

/// The ids that a response to a line may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ids {
    These(Vec<RpcId>),
    Unknown,
}

/// Matches an `id` member up to its value, in any notation, including escapes in the name.
static ID_MEMBER: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"(?i)(?:^|\W)(?:i|\\u0*69)(?:d|\\u0*64)["']?\s*[:=]\s*"#).expect("BUG: it is a regular expression")
});

/// Finds all ids in a line.
pub(super) fn ids_in(line: &[u8]) -> Ids {
    let text = String::from_utf8_lossy(line);
    let ids = match serde_json::from_str::<&RawValue>(&text) {
        Ok(value) => of_messages(value),
        Err(_) => of_text(&text),
    };
    match ids {
        Some(ids) if ids.len() <= IDS_MAX && ids.iter().all(is_whole) => Ids::These(ids),
        Some(_) | None => Ids::Unknown,
    }
}

/// Whether an id is short enough and fully readable.
fn is_whole(id: &RpcId) -> bool {
    match id {
        RpcId::Integer(_) => true,
        RpcId::Text(text) | RpcId::Other(text) => {
            text.len() <= ID_BYTES_MAX && !text.contains(char::REPLACEMENT_CHARACTER)
        }
    }
}

/// The ids of a message or a batch, including all values of a repeated member.
fn of_messages(value: &RawValue) -> Option<Vec<RpcId>> {
    let (mut ids, mut open, mut seen) = (Vec::new(), vec![value], 0);
    while let Some(value) = open.pop() {
        seen += 1;
        if seen > ELEMENTS_MAX || ids.len() > IDS_MAX {
            return None;
        }
        match value.get().as_bytes().first() {
            Some(b'{') => {
                let members = Members::of(value)?;
                members.iter().filter(|(name, _)| *name == "id").for_each(|(_, id)| add(&mut ids, id));
            }
            Some(b'[') => open.extend(elements(value)?),
            Some(_) | None => {}
        }
    }
    Some(ids)
}

/// Possible ids in text that is not valid JSON.
fn of_text(text: &str) -> Option<Vec<RpcId>> {
    let mut ids = Vec::new();
    for found in ID_MEMBER.find_iter(text).take(IDS_MAX + 1) {
        let mut values = serde_json::Deserializer::from_str(&text[found.end()..]).into_iter::<&RawValue>();
        match values.next() {
            Some(Ok(id)) => add(&mut ids, id),
            // For example a string in single quotation marks, or one that is cut off.
            Some(Err(_)) | None => return None,
        }
    }
    Some(ids)
}

fn add(ids: &mut Vec<RpcId>, raw: &RawValue) {
    let id = RpcId::from_raw(raw);
    // A server may answer `1.0` with `1`.
    if let RpcId::Other(written) = &id
        && let Ok(number) = written.parse::<f64>()
        && number.fract() == 0.0
        && number.abs() < 1e15
    {
        ids.push(RpcId::Integer(number as i64));
    }
    ids.push(id);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the printed ids; `?` stands for any id.
    fn check(line: &str, expect: &[&str]) {
        let shown: Vec<String> = match ids_in(line.as_bytes()) {
            Ids::These(ids) => ids.iter().map(ToString::to_string).collect(),
            Ids::Unknown => vec!["?".to_owned()],
        };
        assert_eq!(shown, expect, "{line}");
    }

    #[test]
    fn batches_and_repeated_members_name_their_ids() {
        check(r#"[{"id":1,"params":{"id":9}},[{"id":"a"}],7,"id"]"#, &["\"a\"", "1"]);
        check(r#"{"id":1,"method":"x","\u0069d":2,"params":[{"id":9}]}"#, &["1", "2"]);
        check(r#"[{"id":1.0},{"id":null}]"#, &["null", "1", "1.0"]);
        check(r#"[{"method":"x"}]"#, &[]);
        check(&format!("[{}]", vec![r#"{"id":1}"#; 300].join(",")), &["?"]);
        check(&format!(r#"[{{"id":"{}"}}]"#, "x".repeat(2_000)), &["?"]);
        check(&format!("{}{}", "[".repeat(20_000), "]".repeat(20_000)), &["?"]);
    }

    #[test]
    fn any_possible_id_in_text_is_found() {
        check(r#"label {"id":13,"method":"x"}"#, &["13"]);
        check(r#"it's {"i\u0064" : "a\"b"} {"ID":2} tail"#, &[r#""a\"b""#, "2"]);
        check(r#"{"id":1,"method":"x""#, &["1"]);
        check(r#"{id: 4, method: "x"}"#, &["4"]);
        check(r#"{'id': 'a'}"#, &["?"]);
        check(r#"{"id":"#, &["?"]);
        check("threadid: 4 and an idea", &[]);
    }
}
