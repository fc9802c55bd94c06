//! The past of a thread, as the response to a call shows it to a client: turns and items that may be on record already, or not.
//!
//! A client reads a thread whole, or page by page: the ends of turns in some pages, items in others, the newest first if it
//! wants that. [`Past`] gives any of them as [`Part`]s of turns, oldest first. Nothing here knows what is on record.
//!
//! Which methods show a past, and where, is said by [`Method::past`] alone.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::item::ThreadItem;
use super::record_event::{Params, name};
use super::turn::{TurnEnd, number};
use crate::protocol::{Method, PastForm};
use crate::wire::{Members, elements};

/// The order of the lists in a response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Order {
    #[default]
    OldestFirst,
    NewestFirst,
}

impl Order {
    /// The order that the parameters of a call ask for.
    pub(super) fn asked(method: Option<Method>, params: Params<'_>) -> Order {
        let Some(form) = method.and_then(Method::past) else { return Order::OldestFirst };
        let params = params.members();
        let page = match form {
            PastForm::Thread => params.and_then(|params| Members::of(params.get("initialTurnsPage")?)),
            PastForm::Turns | PastForm::Items | PastForm::Timeline => params,
        };
        let direction = page.and_then(|page| page.text("sortDirection"));
        match (direction.as_deref(), form) {
            (Some("asc"), _) => Order::OldestFirst,
            (Some("desc"), _) | (_, PastForm::Thread | PastForm::Turns) => Order::NewestFirst,
            (_, PastForm::Items | PastForm::Timeline) => Order::OldestFirst,
        }
    }
}

/// What a response shows of a thread.
pub(super) struct Past<'a> {
    pub(super) thread_id: String,
    /// Oldest first. Only one part is held in full at a time, because a thread can have many megabytes.
    pub(super) parts: Box<dyn Iterator<Item = Part> + 'a>,
}

/// A turn, or some of its items.
pub(super) struct Part {
    pub(super) turn_id: String,
    /// Finished items, in order.
    pub(super) items: Vec<ThreadItem>,
    /// `None` if the turn goes on, or if the response does not say.
    pub(super) end: Option<TurnEnd>,
    /// When the turn ended, or else began, in microseconds since the Unix epoch.
    pub(super) at_us: Option<u64>,
    /// The response leaves out items of the turn.
    pub(super) lacks_items: bool,
    /// It has only the first and the last message of the turn, as a client shows them in a list of threads.
    pub(super) is_summary: bool,
}

impl<'a> Past<'a> {
    /// Reads a response to a call of `method`; `None` if it shows no thread. Pages do not name their thread, but their calls do.
    pub(super) fn of(method: Method, order: Order, called_for: Option<&str>, result: &'a RawValue) -> Option<Past<'a>> {
        let form = method.past()?;
        if form == PastForm::Thread {
            return Past::of_thread(order, result);
        }
        let Page { data } = serde_json::from_str(result.get()).ok()?;
        let data = in_order(data.unwrap_or_default(), order);
        let parts: Box<dyn Iterator<Item = Part> + 'a> = match form {
            PastForm::Thread | PastForm::Turns => Box::new(data.into_iter().filter_map(Part::of_turn)),
            PastForm::Items => Box::new(Grouped { entries: data.into_iter().filter_map(Entry::of_item), next: None }),
            PastForm::Timeline => {
                Box::new(Grouped { entries: data.into_iter().filter_map(Entry::of_timeline), next: None })
            }
        };
        Some(Past { thread_id: called_for?.to_owned(), parts })
    }

    fn of_thread(order: Order, result: &'a RawValue) -> Option<Past<'a>> {
        let Holds { thread, initial_turns_page } = serde_json::from_str(result.get()).ok()?;
        let page = in_order(initial_turns_page.and_then(|page| page.data).unwrap_or_default(), order);
        let turns = thread.turns.unwrap_or_default().into_iter().chain(page);
        Some(Past { thread_id: bounded(thread.id), parts: Box::new(turns.filter_map(Part::of_turn)) })
    }
}

/// A name as live records have it.
fn bounded(id: String) -> String {
    name(id.into()).into_owned()
}

fn in_order(mut list: Vec<&RawValue>, order: Order) -> Vec<&RawValue> {
    if order == Order::NewestFirst {
        list.reverse();
    }
    list
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

impl Part {
    /// Reads a turn; `None` if it is invalid. Of a turn that goes on, only items with an end are finished.
    fn of_turn(raw: &RawValue) -> Option<Part> {
        let turn = Members::of(raw)?;
        let goes_on = turn.text("status")? == "inProgress";
        let view = turn.text("itemsView");
        let items = turn.get("items").and_then(elements).unwrap_or_default();
        let is_finished = |item: &ThreadItem| !goes_on || (item.has_end() && !item.is_in_progress());
        Some(Part {
            turn_id: bounded(turn.text("id")?),
            items: items.into_iter().filter_map(ThreadItem::of_raw).filter(is_finished).collect(),
            end: (!goes_on).then(|| TurnEnd::of(Some(&turn))),
            at_us: seconds_us(number(&turn, "completedAt").or_else(|| number(&turn, "startedAt"))),
            lacks_items: view.as_deref() == Some("notLoaded"),
            is_summary: view.as_deref() == Some("summary"),
        })
    }
}

fn seconds_us(seconds: Option<u64>) -> Option<u64> {
    seconds.map(|seconds| seconds.saturating_mul(1_000_000))
}

/// An entry of a page of items.
struct Entry {
    turn_id: String,
    item: Option<ThreadItem>,
    /// The end of the turn, and its time.
    end: Option<(TurnEnd, Option<u64>)>,
}

impl Entry {
    /// Reads an item with its turn; `None` if it is invalid or not finished.
    fn of_item(raw: &RawValue) -> Option<Entry> {
        let entry = Members::of(raw)?;
        let mut item = ThreadItem::of_raw(entry.get("item")?)?;
        for name in ["startedAtMs", "completedAtMs"] {
            item.has_time(name, number(&entry, name));
        }
        // A producer that records no times records finished items.
        let is_finished = !item.is_in_progress() && (item.has_end() || item.at_us().is_none());
        is_finished.then_some(Entry { turn_id: bounded(entry.text("turnId")?), item: Some(item), end: None })
    }

    /// Reads an item, or the end of a turn.
    fn of_timeline(raw: &RawValue) -> Option<Entry> {
        let entry = Members::of(raw)?;
        match &*entry.text("type")? {
            "item" => Entry::of_item(raw),
            "turnCompleted" => {
                let end = TurnEnd::of(Some(&entry));
                // Its schema has names in another style than its messages.
                let at_us = seconds_us(number(&entry, "completedAt"));
                Some(Entry { turn_id: bounded(entry.text("turnId")?), item: None, end: Some((end, at_us)) })
            }
            _ => None,
        }
    }
}

/// Joins consecutive entries of a turn.
struct Grouped<I> {
    entries: I,
    next: Option<Entry>,
}

impl<I: Iterator<Item = Entry>> Iterator for Grouped<I> {
    type Item = Part;

    fn next(&mut self) -> Option<Part> {
        let first = self.next.take().or_else(|| self.entries.next())?;
        let turn_id = first.turn_id.clone();
        let (items, end, at_us) = (Vec::new(), None, None);
        let mut part = Part { turn_id, items, end, at_us, lacks_items: true, is_summary: false };
        let mut entry = Some(first);
        while let Some(Entry { turn_id, item, end }) = entry.take() {
            if turn_id != part.turn_id {
                self.next = Some(Entry { turn_id, item, end });
                break;
            }
            part.items.extend(item);
            if let Some((end, at_us)) = end {
                (part.end, part.at_us) = (Some(end), at_us);
            }
            entry = self.entries.next();
        }
        Some(part)
    }
}
