//! A thread as returned to a client that reads it: ended turns with their items.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::item::Item;

/// A thread being read. Only one turn is held in full at a time, because a thread can have many megabytes.
pub(super) struct ThreadRead<'a> {
    pub(super) thread_id: String,
    /// Ended turns, in order.
    pub(super) turns: Box<dyn Iterator<Item = TurnRead> + 'a>,
}

/// An ended turn.
pub(super) struct TurnRead {
    pub(super) turn_id: String,
    pub(super) items: Vec<Item>,
    /// End time in microseconds since the Unix epoch.
    pub(super) at_us: Option<u64>,
    /// Other members.
    pub(super) rest: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Holds<'a> {
    #[serde(borrow)]
    thread: Thread<'a>,
    #[serde(borrow)]
    initial_turns_page: Option<Page<'a>>,
}

#[derive(Deserialize)]
struct Thread<'a> {
    id: String,
    #[serde(borrow)]
    turns: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    data: Option<Vec<&'a RawValue>>,
}

impl<'a> ThreadRead<'a> {
    /// Parses a response; `None` if it has no thread.
    pub(super) fn of(result: &'a RawValue) -> Option<ThreadRead<'a>> {
        let Holds { thread, initial_turns_page } = serde_json::from_str(result.get()).ok()?;
        let mut page = initial_turns_page.and_then(|page| page.data).unwrap_or_default();
        if let [first, .., last] = page[..]
            && began(first) > began(last)
        {
            page.reverse();
        }
        let turns = thread.turns.unwrap_or_default().into_iter().chain(page).filter_map(TurnRead::of);
        Some(ThreadRead { thread_id: thread.id, turns: Box::new(turns) })
    }
}

impl TurnRead {
    /// Parses a turn; `None` if it is invalid or still running.
    fn of(raw: &RawValue) -> Option<TurnRead> {
        let mut turn: Value = serde_json::from_str(raw.get()).ok()?;
        if matches!(turn["status"].as_str()?, "inProgress") {
            return None;
        }
        let items = match turn.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => items,
            Some(_) | None => Vec::new(),
        };
        let items = items.into_iter().filter_map(|item| match item {
            Value::Object(members) => Item::of(members),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => None,
        });
        let seconds = turn["completedAt"].as_u64().or_else(|| turn["startedAt"].as_u64());
        let at_us = seconds.map(|seconds| seconds.saturating_mul(1_000_000));
        Some(TurnRead { turn_id: turn["id"].as_str()?.to_owned(), items: items.collect(), at_us, rest: turn })
    }
}

/// Start time in seconds since the Unix epoch.
fn began(raw: &RawValue) -> Option<u64> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Began {
        started_at: Option<u64>,
    }
    serde_json::from_str::<Began>(raw.get()).ok()?.started_at
}
