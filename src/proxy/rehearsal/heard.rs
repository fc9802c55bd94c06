//! The messages of a server in a conversation, by kind, and the differences between two servers. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::engine::one_line;
use crate::protocol::{Method, PlayedItem, is_dispensable};

/// Longest text of an error, in characters.
const WORDS_CHARS_MAX: usize = 300;

/// The messages that a client has received, by kind.
#[derive(Debug, Clone, Default)]
pub struct Heard {
    /// The first error that each method was answered by.
    errors: BTreeMap<String, String>,
    /// The notifications by method, those of items also by the type of the item.
    told: BTreeSet<(String, Option<String>)>,
    /// The server's requests, by method.
    asked: BTreeSet<String>,
    /// Those of them to which the client has no answer on record.
    unanswered: BTreeSet<String>,
    /// Something that was awaited never came; the method of the call.
    stuck: Option<String>,
    /// Its codex did not offer the model a tool of the plan, so what that causes is missing.
    lacks_tools: bool,
}

/// The kind of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HeardKind {
    /// A call fails, or what it begins never ends.
    Fails,
    /// The server asks what the client has no answer to.
    Unanswered,
    /// The server says or asks something no more.
    Gone,
}

/// A difference between two servers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeardDifference {
    pub kind: HeardKind,
    pub method: String,
    /// The type of an item.
    pub item: Option<String>,
    pub words: String,
}

impl Heard {
    pub(super) fn response(&mut self, method: &str, response: &Value) {
        if let Some(error) = response.get("error") {
            let words = error["message"].as_str().unwrap_or("an error without a message");
            let words: String = one_line(words).chars().take(WORDS_CHARS_MAX).collect();
            self.errors.entry(method.to_owned()).or_insert(words);
        }
    }

    pub(super) fn notification(&mut self, method: &str, message: &Value) {
        let item = message.pointer("/params/item/type").and_then(Value::as_str);
        self.told.insert((method.to_owned(), item.map(str::to_owned)));
    }

    pub(super) fn request(&mut self, method: &str) {
        self.asked.insert(method.to_owned());
    }

    pub(super) fn has_no_answer(&mut self, method: &str) {
        self.unanswered.insert(method.to_owned());
    }

    pub(super) fn is_stuck(&mut self, method: &str) {
        self.stuck.get_or_insert_with(|| method.to_owned());
    }

    pub(super) fn lacks_tools(&mut self) {
        self.lacks_tools = true;
    }

    /// Why a comparison with another one is not complete.
    #[must_use]
    pub fn doubt(&self) -> Option<String> {
        match (&self.stuck, self.lacks_tools) {
            (Some(method), _) => Some(format!("{method} never comes to its end")),
            (None, true) => Some("it does not offer its model the tools that the recorded one used".to_owned()),
            (None, false) => None,
        }
    }

    /// The types of items that it has heard to the end.
    fn items(&self) -> BTreeSet<&str> {
        let completed = self.told.iter().filter(|(method, _)| method == Method::ItemCompleted.name());
        completed.filter_map(|(_, item)| item.as_deref()).collect()
    }
}

/// The origin of the messages before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surroundings {
    /// A playback, as those of now.
    Same,
    /// The recording. Some of its messages depend on its user's settings.
    Recorded,
}

/// The differences for a client between `from` and `to`.
#[must_use]
pub fn differences(from: &Heard, to: &Heard, surroundings: Surroundings) -> Vec<HeardDifference> {
    let mut all = Vec::new();
    let mut add = |kind, method: &str, item: Option<&str>, words: String| {
        all.push(HeardDifference { kind, method: method.to_owned(), item: item.map(str::to_owned), words });
    };
    for (method, words) in to.errors.iter().filter(|(method, _)| !from.errors.contains_key(*method)) {
        add(HeardKind::Fails, method, None, format!("played again, it fails: {words}"));
    }
    if let Some(method) = to.stuck.as_ref().filter(|_| from.stuck.is_none()) {
        add(HeardKind::Fails, method, None, "played again, it never comes to its end".to_owned());
    }
    for method in to.unanswered.iter().filter(|method| !from.asked.contains(*method)) {
        add(
            HeardKind::Unanswered,
            method,
            None,
            "played again, codex asks it, and this client has never answered it".to_owned(),
        );
    }
    if to.stuck.is_some() || to.lacks_tools {
        // Later messages are missing for that reason.
        return all;
    }
    for method in from.asked.iter().filter(|method| surroundings == Surroundings::Same && !to.asked.contains(*method)) {
        add(HeardKind::Gone, method, None, "played again, it never comes".to_owned());
    }
    match surroundings {
        Surroundings::Same => {
            for (method, item) in from.told.difference(&to.told).filter(|(method, _)| !is_dispensable(method)) {
                add(HeardKind::Gone, method, item.as_deref(), "played again, it never comes".to_owned());
            }
        }
        Surroundings::Recorded => {
            for item in from.items().difference(&to.items()).filter(|item| PlayedItem::of(item).is_some()) {
                add(
                    HeardKind::Gone,
                    Method::ItemCompleted.name(),
                    Some(item),
                    "played again, it never comes".to_owned(),
                );
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn heard(say: impl FnOnce(&mut Heard)) -> Heard {
        let mut heard = Heard::default();
        heard.response("turn/start", &json!({"result": {}}));
        heard.notification("item/completed", &json!({"params": {"item": {"type": "agentMessage"}}}));
        heard.notification("account/updated", &json!({"params": {}}));
        heard.request("item/commandExecution/requestApproval");
        say(&mut heard);
        heard
    }

    fn nothing_more(_: &mut Heard) {}

    fn told(from: &Heard, to: &Heard, surroundings: Surroundings) -> Vec<(HeardKind, String)> {
        differences(from, to, surroundings).into_iter().map(|it| (it.kind, it.method)).collect()
    }

    #[test]
    fn each_kind_of_difference_is_found_and_no_other() {
        let before = heard(nothing_more);
        let fails = |heard: &mut Heard| heard.response("thread/read", &json!({"error": {"message": "no"}}));
        let asks = |heard: &mut Heard| {
            heard.request("x/ask");
            heard.has_no_answer("x/ask");
        };
        let (same, recorded) = (Surroundings::Same, Surroundings::Recorded);
        let gone = |method: &str| (HeardKind::Gone, method.to_owned());
        for (from, to, surroundings, expect) in [
            (&before, heard(nothing_more), same, vec![]),
            (&before, heard(fails), same, vec![(HeardKind::Fails, "thread/read".to_owned())]),
            (&before, heard(fails), recorded, vec![(HeardKind::Fails, "thread/read".to_owned())]),
            (&heard(fails), heard(fails), same, vec![]),
            (&before, heard(asks), same, vec![(HeardKind::Unanswered, "x/ask".to_owned())]),
            (&before, heard(|it| it.is_stuck("turn/start")), same, vec![(HeardKind::Fails, "turn/start".to_owned())]),
            (
                &before,
                Heard::default(),
                same,
                vec![gone("item/commandExecution/requestApproval"), gone("account/updated"), gone("item/completed")],
            ),
            // A codex without the user's settings does not send these.
            (&before, Heard::default(), recorded, vec![gone("item/completed")]),
            // After a stop nothing later is missed.
            (
                &before,
                {
                    let mut stuck = Heard::default();
                    stuck.is_stuck("turn/start");
                    stuck
                },
                same,
                vec![(HeardKind::Fails, "turn/start".to_owned())],
            ),
        ] {
            assert_eq!(told(from, &to, surroundings), expect, "{to:?}");
        }
    }
}
