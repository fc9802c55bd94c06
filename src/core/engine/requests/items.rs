//! The items in progress: what they change or run. A request for a file change names only its item, and one for a command may do
//! so, but a person must see what they approve.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::protocol::ItemPlace;
use crate::wire::{Members, elements};

/// Items tracked at once.
const ITEMS_MAX: usize = 64;

/// Bytes of all tracked changes. Nobody reads a diff of more than a few megabytes before they answer, and the list of pending
/// requests has the same bound. A larger diff is tracked as its files and sizes.
const BYTES_MAX: usize = 8 << 20;

/// Files of a diff without its text that are named; the last entry counts the others.
const FILES_MAX: usize = 1000;

/// The content of items, oldest first.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::engine) struct Items {
    known: VecDeque<(ItemPlace, Does)>,
    bytes: usize,
}

/// What an item changes or runs.
#[derive(Debug, Serialize, Deserialize)]
enum Does {
    Changes(Box<RawValue>),
    Command(Box<RawValue>),
}

impl Does {
    fn raw(&self) -> &RawValue {
        match self {
            Does::Changes(raw) | Does::Command(raw) => raw,
        }
    }
}

impl Items {
    /// Tracks an item that started; returns its changes if it changes files.
    pub(in crate::engine) fn started(&mut self, params: &RawValue) -> Option<(ItemPlace, &RawValue)> {
        let params = Members::of(params)?;
        let raw_item = params.get("item")?;
        let item = Members::of(raw_item)?;
        let does = match item.text("type").as_deref() {
            Some("fileChange") => {
                Does::Changes(within_bounds(item.get("changes")?).filter(|kept| kept.get().len() <= BYTES_MAX)?)
            }
            Some("commandExecution") if raw_item.get().len() <= BYTES_MAX => Does::Command(raw_item.to_owned()),
            Some(_) | None => return None,
        };
        let place = ItemPlace {
            thread_id: params.text("threadId"),
            turn_id: params.text("turnId"),
            item_id: Some(item.text("id")?),
        };
        self.bytes += does.raw().get().len();
        self.known.push_back((place, does));
        self.forget_texts();
        while (self.known.len() > ITEMS_MAX || self.bytes > BYTES_MAX)
            && let Some((_, oldest)) = self.known.pop_front()
        {
            self.bytes -= oldest.raw().get().len();
        }
        match self.known.back() {
            Some((place, Does::Changes(changes))) => Some((place.clone(), changes)),
            Some((_, Does::Command(_))) | None => None,
        }
    }

    /// Removes a completed item; returns its place.
    pub(in crate::engine) fn completed(&mut self, params: &RawValue) -> Option<ItemPlace> {
        let params = Members::of(params)?;
        let item_id = Members::of(params.get("item")?)?.text("id")?;
        let place =
            ItemPlace { thread_id: params.text("threadId"), turn_id: params.text("turnId"), item_id: Some(item_id) };
        if let Some(index) = self.known.iter().position(|(of, _)| is_same_item(of, &place))
            && let Some((_, gone)) = self.known.remove(index)
        {
            self.bytes -= gone.raw().get().len();
        }
        Some(place)
    }

    /// Drops the texts of the oldest diffs until the rest fits; their files are still shown.
    fn forget_texts(&mut self) {
        let last = self.known.len().saturating_sub(1);
        for (_, does) in self.known.iter_mut().take(last) {
            if self.bytes <= BYTES_MAX {
                return;
            }
            if let Does::Changes(changes) = does
                && let Some(brief) = without_texts(changes, 0)
                && brief.get().len() < changes.get().len()
            {
                self.bytes -= changes.get().len() - brief.get().len();
                *changes = brief;
            }
        }
    }

    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// The content of the item that a request names.
    pub(in crate::engine) fn of(&self, place: &ItemPlace) -> About<'_> {
        let known = self.known.iter().rev().find(|(of, _)| is_same_item(of, place)).map(|(_, does)| does);
        match known {
            Some(Does::Changes(changes)) => About { changes: Some(changes), item: None },
            Some(Does::Command(item)) => About { changes: None, item: Some(item) },
            None => About::default(),
        }
    }
}

/// Changes as they are, or without the texts of their largest diffs if they are too large to keep.
fn within_bounds(changes: &RawValue) -> Option<Box<RawValue>> {
    match changes.get().len() {
        0..=BYTES_MAX => Some(changes.to_owned()),
        _ => without_texts(changes, BYTES_MAX / 2),
    }
}

/// Changes with the sizes of their diffs in the place of the texts, `{"path","kind","omitted":"size","diff_bytes"}`; diffs
/// that fit into `bytes_max` together stay. `None` if they are not a list.
fn without_texts(changes: &RawValue, bytes_max: usize) -> Option<Box<RawValue>> {
    let all = elements(changes)?;
    let mut left = bytes_max;
    let brief = all.iter().take(FILES_MAX).map(|change| {
        if change.get().len() <= left {
            left -= change.get().len();
            return (*change).to_owned();
        }
        let Some(members) = Members::of(change) else { return value(&json!({"omitted": "size"})) };
        let diff_bytes = members.text("diff").map(|diff| diff.len());
        let size =
            diff_bytes.map_or_else(|| members.get("diff_bytes").map(|raw| json!(raw)), |bytes| Some(json!(bytes)));
        value(&json!({
            "path": members.text("path"), "kind": members.get("kind"), "omitted": "size", "diff_bytes": size,
        }))
    });
    let mut brief: Vec<Box<RawValue>> = brief.collect();
    if all.len() > FILES_MAX {
        let path = format!("and {} more files", all.len() - FILES_MAX);
        brief.push(value(&json!({"path": path, "kind": null, "omitted": "size"})));
    }
    Some(to_raw_value(&brief).expect("BUG: plain data is JSON"))
}

fn value(value: &serde_json::Value) -> Box<RawValue> {
    to_raw_value(value).expect("BUG: plain data is JSON")
}

/// Item ids are unique only within a thread.
pub(super) fn is_same_item(one: &ItemPlace, other: &ItemPlace) -> bool {
    one.item_id.is_some() && one.item_id == other.item_id && one.thread_id == other.thread_id
}

/// Known facts about the item of a request.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::engine) struct About<'a> {
    pub(in crate::engine) changes: Option<&'a RawValue>,
    pub(in crate::engine) item: Option<&'a RawValue>,
}

/// Adds the item's members to parameters that omit them.
pub(in crate::engine) fn with_item(mut params: Value, item: Option<&Value>) -> Value {
    for name in ["command", "cwd"] {
        if let (Some(members), Some(value)) = (params.as_object_mut(), item.and_then(|item| item.get(name)))
            && members.get(name).is_none_or(Value::is_null)
        {
            members.insert(name.to_owned(), value.clone());
        }
    }
    params
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> &RawValue {
        serde_json::from_str(json).expect("BUG: a test gives JSON")
    }

    #[test]
    fn changes_are_known_while_item_is_in_progress() {
        let mut items = Items::default();
        let started =
            raw(r#"{"threadId":"t","turnId":"u","item":{"id":"i","type":"fileChange","changes":[{"path":"/a"}]}}"#);
        let (place, _) = items.started(started).expect("it changes files");
        assert_eq!(items.of(&place).changes.map(RawValue::get), Some(r#"[{"path":"/a"}]"#));
        let elsewhere = ItemPlace { thread_id: Some("x".to_owned()), ..place.clone() };
        assert!(items.of(&elsewhere).changes.is_none());
        assert!(
            items.started(raw(r#"{"threadId":"t","item":{"id":"j","type":"agentMessage","changes":[]}}"#)).is_none()
        );
        items.completed(started);
        assert!(items.of(&place).changes.is_none() && items.bytes == 0);
    }

    /// An item that adds files with texts of these sizes.
    fn adds(id: &str, bytes: &[usize]) -> String {
        let change =
            |bytes: &usize| format!(r#"{{"path":"/{bytes}","kind":{{"type":"add"}},"diff":"{}"}}"#, "x".repeat(*bytes));
        let changes = bytes.iter().map(change).collect::<Vec<_>>().join(",");
        format!(r#"{{"threadId":"t","item":{{"id":"{id}","type":"fileChange","changes":[{changes}]}}}}"#)
    }

    fn changes(items: &Items, id: &str) -> serde_json::Value {
        let place = ItemPlace { thread_id: Some("t".to_owned()), turn_id: None, item_id: Some(id.to_owned()) };
        items.of(&place).changes.map_or(json!(null), |raw| serde_json::from_str(raw.get()).expect("it is JSON"))
    }

    #[test]
    fn too_large_diff_keeps_its_files_and_sizes() {
        let mut items = Items::default();
        assert!(items.started(raw(&adds("i", &[BYTES_MAX, 4]))).is_some());
        let large = json!({"path": format!("/{BYTES_MAX}"), "kind": {"type": "add"}, "omitted": "size", "diff_bytes": BYTES_MAX});
        let small = json!({"path": "/4", "kind": {"type": "add"}, "diff": "xxxx"});
        assert_eq!(changes(&items, "i"), json!([large, small]));
        let many = items.started(raw(&adds("j", &vec![BYTES_MAX / FILES_MAX; FILES_MAX + 7]))).expect("it is kept").1;
        assert!(many.get().len() <= BYTES_MAX && many.get().contains("and 7 more files"));
    }

    #[test]
    fn older_diffs_lose_their_texts_first() {
        let mut items = Items::default();
        for id in ["i", "j"] {
            assert!(items.started(raw(&adds(id, &[BYTES_MAX / 2]))).is_some());
        }
        let sizes = |id| (changes(&items, id)[0]["diff"].is_string(), changes(&items, id)[0]["diff_bytes"].clone());
        assert_eq!((sizes("i"), sizes("j")), ((false, json!(BYTES_MAX / 2)), (true, json!(null))));
        let bytes: usize = items.known.iter().map(|(_, does)| does.raw().get().len()).sum();
        assert_eq!(items.bytes, bytes);
    }

    #[test]
    fn tracked_items_are_bounded() {
        let mut items = Items::default();
        for number in 0..200 {
            let started = format!(r#"{{"threadId":"t","item":{{"id":"{number}","type":"fileChange","changes":[]}}}}"#);
            assert!(items.started(raw(&started)).is_some());
        }
        assert_eq!((items.known.len(), items.bytes), (ITEMS_MAX, 2 * ITEMS_MAX));
    }
}
