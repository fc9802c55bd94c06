//! Items in progress, for approvals: the request for a file change names only its item, as does a command request of
//! early 2026, and a person must see what they approve.

use std::collections::VecDeque;

use serde_json::value::RawValue;

use super::About;
use crate::protocol::RequestPlace;
use crate::wire::Members;

/// Items tracked at once.
const ITEMS_MAX: usize = 64;

/// Bytes of all tracked changes.
const BYTES_MAX: usize = 8 << 20;

/// The content of items, oldest first.
#[derive(Debug, Default)]
pub(in crate::engine) struct Items {
    known: VecDeque<(RequestPlace, Does)>,
    bytes: usize,
}

/// What an item changes or runs.
#[derive(Debug)]
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
    pub(in crate::engine) fn started(&mut self, params: &RawValue) -> Option<(RequestPlace, &RawValue)> {
        let params = Members::of(params)?;
        let raw_item = params.get("item")?;
        let item = Members::of(raw_item)?;
        let does = match item.text("type").as_deref() {
            Some("fileChange") => Does::Changes(item.get("changes")?.to_owned()),
            Some("commandExecution") => Does::Command(raw_item.to_owned()),
            Some(_) | None => return None,
        };
        let bytes = does.raw().get().len();
        if bytes > BYTES_MAX {
            return None;
        }
        let place = RequestPlace {
            thread_id: params.text("threadId"),
            turn_id: params.text("turnId"),
            item_id: Some(item.text("id")?),
        };
        self.bytes += bytes;
        self.known.push_back((place, does));
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
    pub(in crate::engine) fn completed(&mut self, params: &RawValue) -> Option<RequestPlace> {
        let params = Members::of(params)?;
        let item_id = Members::of(params.get("item")?)?.text("id")?;
        let place =
            RequestPlace { thread_id: params.text("threadId"), turn_id: params.text("turnId"), item_id: Some(item_id) };
        if let Some(index) = self.known.iter().position(|(of, _)| is_same_item(of, &place))
            && let Some((_, gone)) = self.known.remove(index)
        {
            self.bytes -= gone.raw().get().len();
        }
        Some(place)
    }

    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// The content of the item that a request names.
    pub(in crate::engine) fn of(&self, place: &RequestPlace) -> About<'_> {
        let known = self.known.iter().rev().find(|(of, _)| is_same_item(of, place)).map(|(_, does)| does);
        match known {
            Some(Does::Changes(changes)) => About { changes: Some(changes), item: None },
            Some(Does::Command(item)) => About { changes: None, item: Some(item) },
            None => About::default(),
        }
    }
}

/// Item ids are unique only within a thread.
pub(super) fn is_same_item(one: &RequestPlace, other: &RequestPlace) -> bool {
    one.item_id.is_some() && one.item_id == other.item_id && one.thread_id == other.thread_id
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
        let elsewhere = RequestPlace { thread_id: Some("x".to_owned()), ..place.clone() };
        assert!(items.of(&elsewhere).changes.is_none());
        assert!(
            items.started(raw(r#"{"threadId":"t","item":{"id":"j","type":"agentMessage","changes":[]}}"#)).is_none()
        );
        items.completed(started);
        assert!(items.of(&place).changes.is_none() && items.bytes == 0);
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
