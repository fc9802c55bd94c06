//! What items do that are under way, so that what is asked about them can be shown: the request names only the item.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::bounded::Bounded;
use super::happening::Place;
use super::item::Item;

/// Bytes that are remembered in all, about.
const BYTES_MAX: usize = 8 << 20;

/// Items that are under way, by thread and item.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UnderWay {
    items: Bounded<(String, String), (Does, usize)>,
    bytes: usize,
}

/// What an item does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Does {
    Runs { command: Option<String>, cwd: Option<String> },
    Changes(Value),
}

impl UnderWay {
    /// An item has begun.
    pub(super) fn started(&mut self, place: &Place<'_>, item: &Item) {
        let Some(key) = key(place) else { return };
        let (does, bytes) = match (item.changes(), item.command()) {
            (Some(changes), _) => (Does::Changes(changes.clone()), changes.to_string().len()),
            (None, Some(command)) => {
                let bytes = command.len();
                (Does::Runs { command: Some(command), cwd: item.cwd().map(str::to_owned) }, bytes)
            }
            (None, None) => return,
        };
        self.forget(&key);
        self.bytes += bytes;
        if let Some((_, oldest)) = self.items.insert(key, (does, bytes)) {
            self.bytes -= oldest;
        }
        while self.bytes > BYTES_MAX {
            let Some(oldest) = self.items.iter().next().map(|(key, _)| key.clone()) else { break };
            self.forget(&oldest);
        }
    }

    /// An item is done with.
    pub(super) fn completed(&mut self, place: &Place<'_>) {
        if let Some(key) = key(place) {
            self.forget(&key);
        }
    }

    /// What the item does that is meant.
    pub(super) fn of(&self, place: &Place<'_>) -> Option<&Does> {
        self.items.get(&key(place)?).map(|(does, _)| does)
    }

    fn forget(&mut self, key: &(String, String)) {
        if let Some((_, bytes)) = self.items.remove(key) {
            self.bytes -= bytes;
        }
    }
}

/// Items are named per thread.
fn key(place: &Place<'_>) -> Option<(String, String)> {
    Some((place.thread_id.as_deref()?.to_owned(), place.item_id.as_deref()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_more_is_remembered_than_so_much() {
        let mut items = UnderWay::default();
        let text = "x".repeat(1 << 20);
        let item = |id: &str| {
            let json = format!(r#"{{"id":"{id}","type":"commandExecution","command":"{text}"}}"#);
            Item::of(serde_json::from_str(&json).expect("it is JSON")).expect("it names its type")
        };
        let place =
            |id: &'static str| Place { thread_id: Some("t".into()), item_id: Some(id.into()), ..Place::default() };
        let ids = ["0", "1", "2", "3", "4", "5", "6", "7", "8"];
        ids.into_iter().for_each(|id| items.started(&place(id), &item(id)));
        assert!(items.of(&place("0")).is_none() && items.of(&place("1")).is_some() && items.bytes == 8 << 20);
        items.started(&place("8"), &item("8"));
        assert_eq!(items.bytes, 8 << 20);
        ids.into_iter().for_each(|id| items.completed(&place(id)));
        assert_eq!(items, UnderWay::default());
    }
}
