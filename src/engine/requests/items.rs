//! What the items that are under way change, so that nobody is asked to approve what cannot be seen: the request for a
//! file change names only its item.

use std::collections::VecDeque;

use serde_json::value::RawValue;

use super::RequestPlace;
use crate::wire::Members;

/// Items that are remembered at once.
const ITEMS_MAX: usize = 64;

/// Bytes of changes that are remembered in all.
const BYTES_MAX: usize = 8 << 20;

/// Changes by item, oldest first.
#[derive(Debug, Default)]
pub(in crate::engine) struct Items {
    changes: VecDeque<(RequestPlace, Box<RawValue>)>,
    bytes: usize,
}

impl Items {
    /// An item was begun; gives what it changes, where it changes files.
    pub(in crate::engine) fn started(&mut self, params: &RawValue) -> Option<(RequestPlace, &RawValue)> {
        let params = Members::of(params)?;
        let item = Members::of(params.get("item")?)?;
        let changes = item.get("changes")?;
        if item.text("type").as_deref() != Some("fileChange") || changes.get().len() > BYTES_MAX {
            return None;
        }
        let place = RequestPlace {
            thread_id: params.text("threadId"),
            turn_id: params.text("turnId"),
            item_id: Some(item.text("id")?),
        };
        self.bytes += changes.get().len();
        self.changes.push_back((place, changes.to_owned()));
        while (self.changes.len() > ITEMS_MAX || self.bytes > BYTES_MAX)
            && let Some((_, oldest)) = self.changes.pop_front()
        {
            self.bytes -= oldest.get().len();
        }
        self.changes.back().map(|(place, changes)| (place.clone(), &**changes))
    }

    /// An item is done with; gives its place.
    pub(in crate::engine) fn completed(&mut self, params: &RawValue) -> Option<RequestPlace> {
        let params = Members::of(params)?;
        let item_id = Members::of(params.get("item")?)?.text("id")?;
        let place =
            RequestPlace { thread_id: params.text("threadId"), turn_id: params.text("turnId"), item_id: Some(item_id) };
        if let Some(index) = self.changes.iter().position(|(of, _)| is_same_item(of, &place))
            && let Some((_, gone)) = self.changes.remove(index)
        {
            self.bytes -= gone.get().len();
        }
        Some(place)
    }

    /// Nothing is remembered.
    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// What the item changes that a request names.
    pub(in crate::engine) fn of(&self, place: &RequestPlace) -> Option<&RawValue> {
        self.changes.iter().rev().find(|(of, _)| is_same_item(of, place)).map(|(_, changes)| &**changes)
    }
}

/// Items are named per thread.
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
    fn changes_are_known_while_their_item_is_under_way() {
        let mut items = Items::default();
        let started =
            raw(r#"{"threadId":"t","turnId":"u","item":{"id":"i","type":"fileChange","changes":[{"path":"/a"}]}}"#);
        let (place, _) = items.started(started).expect("it changes files");
        assert_eq!(items.of(&place).map(RawValue::get), Some(r#"[{"path":"/a"}]"#));
        let elsewhere = RequestPlace { thread_id: Some("x".to_owned()), ..place.clone() };
        assert!(items.of(&elsewhere).is_none());
        assert!(
            items.started(raw(r#"{"threadId":"t","item":{"id":"j","type":"agentMessage","changes":[]}}"#)).is_none()
        );
        items.completed(started);
        assert!(items.of(&place).is_none() && items.bytes == 0);
    }

    #[test]
    fn not_more_is_remembered_than_so_much() {
        let mut items = Items::default();
        for number in 0..200 {
            let started = format!(r#"{{"threadId":"t","item":{{"id":"{number}","type":"fileChange","changes":[]}}}}"#);
            assert!(items.started(raw(&started)).is_some());
        }
        assert_eq!((items.changes.len(), items.bytes), (ITEMS_MAX, 2 * ITEMS_MAX));
    }
}
