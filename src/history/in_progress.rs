//! Items in progress, with what they run or change: an approval request names only its item.

use serde::{Deserialize, Serialize};

use super::bounded::{Bounded, Weigh};
use super::item::Item;
use super::record_event::Place;

/// Approximate limit of all stored items, in bytes.
const BYTES_MAX: usize = 8 << 20;

/// Items in progress, by thread and item.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct InProgress(Bounded<(String, String), Operation, BYTES_MAX>);

/// What an item runs or changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Operation {
    Runs {
        command: Option<String>,
        cwd: Option<String>,
    },
    /// As JSON text; parsed, it would take many times the memory.
    Changes(String),
}

impl Weigh for Operation {
    fn weight(&self) -> usize {
        match self {
            Operation::Runs { command, cwd } => command.weight() + cwd.weight(),
            Operation::Changes(changes) => changes.weight(),
        }
    }
}

impl InProgress {
    pub(super) fn started(&mut self, place: &Place<'_>, item: &Item) {
        let Some(key) = key(place) else { return };
        let does = match (item.changes(), item.command()) {
            (Some(changes), _) => Operation::Changes(changes.to_string()),
            (None, Some(command)) => Operation::Runs { command: Some(command), cwd: item.cwd().map(str::to_owned) },
            (None, None) => return,
        };
        // Approvals of evicted items lack these details.
        self.0.insert(key, does);
    }

    pub(super) fn completed(&mut self, place: &Place<'_>) {
        if let Some(key) = key(place) {
            self.0.remove(&key);
        }
    }

    /// The operation of an item.
    pub(super) fn of(&self, place: &Place<'_>) -> Option<&Operation> {
        self.0.get(&key(place)?)
    }
}

/// Item ids are unique only within a thread.
fn key(place: &Place<'_>) -> Option<(String, String)> {
    Some((place.thread_id.as_deref()?.to_owned(), place.item_id.as_deref()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_items_are_bounded() {
        let mut items = InProgress::default();
        let text = "x".repeat(1 << 20);
        let item = |id: &str| {
            let json = format!(r#"{{"id":"{id}","type":"commandExecution","command":"{text}"}}"#);
            Item::of(serde_json::from_str(&json).expect("it is JSON")).expect("it names its type")
        };
        let place =
            |id: &'static str| Place { thread_id: Some("t".into()), item_id: Some(id.into()), ..Place::default() };
        let ids = ["0", "1", "2", "3", "4", "5", "6", "7", "8"];
        ids.into_iter().for_each(|id| items.started(&place(id), &item(id)));
        assert!(items.of(&place("0")).is_none() && items.of(&place("8")).is_some());
        assert!(items.of(&place("2")).is_some());
        items.started(&place("8"), &item("8"));
        assert!(items.of(&place("2")).is_some());
        ids.into_iter().for_each(|id| items.completed(&place(id)));
        assert_eq!(items, InProgress::default());
    }

    #[test]
    fn changes_are_kept_as_text() {
        let json = r#"{"id":"i","type":"fileChange","changes":[[],[]]}"#;
        let item = Item::of(serde_json::from_str(json).expect("it is JSON")).expect("it names its type");
        let place = Place { thread_id: Some("t".into()), item_id: Some("i".into()), ..Place::default() };
        let mut items = InProgress::default();
        items.started(&place, &item);
        assert_eq!(items.of(&place), Some(&Operation::Changes("[[],[]]".to_owned())));
    }
}
