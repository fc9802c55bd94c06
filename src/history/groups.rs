//! Pieces of one item, such as a streamed answer, joined into few events.
//!
//! Which pieces belong together depends on the records alone: a group takes the pieces of one item and method that come
//! within [`GROUP_US_MAX`] of its first, up to [`GROUP_BYTES_MAX`] of text, and no other record of that item in between.
//! Source: the contract of the history.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::event::{EventRow, Key, cut};
use super::happening::{Place, Told};
use crate::engine::redacted;
use crate::journal::Position;
use crate::wire::{TokenKind, tokens};

/// How long after its first piece a group ends, in microseconds.
const GROUP_US_MAX: u64 = 100_000;

/// After how long without its end a group is closed, in microseconds: by then no piece can come that belongs to it.
const SILENCE_US: u64 = 250_000;

/// How much text ends a group, in bytes.
const GROUP_BYTES_MAX: usize = 4 << 10;

/// Longest parameters beside the text that are kept of a group's first piece, in bytes.
const BESIDE_BYTES_MAX: usize = 2 << 10;

/// Groups that are open at once; over that the oldest is closed.
const OPEN_MAX: usize = 256;

/// The groups that are open, in the order in which they began.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Groups(Vec<Group>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Group {
    /// Where its first record stands.
    at: Position,
    first_us: u64,
    method: String,
    thread_id: Option<String>,
    turn_id: Option<String>,
    item_id: String,
    /// The parameters of the first piece, up to its text and behind it.
    beside: Option<(String, String)>,
    text: String,
    count: u64,
}

impl Groups {
    /// Time has come to `at_us`: what can have no more pieces is closed.
    pub(super) fn time(&mut self, at_us: u64, events: &mut Vec<EventRow>) {
        self.close_if(|group| at_us > group.first_us + GROUP_US_MAX, events);
    }

    /// Nothing was recorded up to `now_us`.
    pub(super) fn silence(&mut self, now_us: u64, events: &mut Vec<EventRow>) {
        self.close_if(|group| now_us >= group.first_us + SILENCE_US, events);
    }

    /// A run is over.
    pub(super) fn close_all(&mut self, events: &mut Vec<EventRow>) {
        self.close_if(|_| true, events);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Where the first piece stands of all that are in a group still.
    pub(super) fn first(&self) -> Option<&Position> {
        self.0.iter().map(|group| &group.at).min()
    }

    /// Takes a message. Gives whether it was a piece; of anything else that tells of an item the groups of that are closed.
    pub(super) fn take(&mut self, at: &Position, at_us: u64, told: &Told<'_>, events: &mut Vec<EventRow>) -> bool {
        let Place { thread_id, turn_id, item_id: Some(item_id), delta } = &told.place else { return false };
        let is_of_item = |group: &Group| {
            group.item_id == **item_id
                && group.turn_id.as_deref() == turn_id.as_deref()
                && group.thread_id.as_deref() == thread_id.as_deref()
        };
        let piece = delta.as_deref().filter(|_| is_piece(&told.method));
        match piece {
            Some(text) => {
                self.close_if(|group| is_of_item(group) && group.method != told.method, events);
                match self.0.iter_mut().find(|group| is_of_item(group)) {
                    Some(group) => {
                        group.text.push_str(text);
                        group.count += 1;
                    }
                    None => self.0.push(Group::of(at, at_us, told, item_id, text)),
                }
                self.close_if(|group| group.text.len() >= GROUP_BYTES_MAX, events);
                if self.0.len() > OPEN_MAX {
                    events.push(self.0.remove(0).into_event());
                }
                true
            }
            None => {
                self.close_if(is_of_item, events);
                false
            }
        }
    }

    fn close_if(&mut self, is_over: impl Fn(&Group) -> bool, events: &mut Vec<EventRow>) {
        if self.0.iter().any(&is_over) {
            let (over, open) = std::mem::take(&mut self.0).into_iter().partition(|group| is_over(group));
            self.0 = open;
            let over: Vec<Group> = over;
            events.extend(over.into_iter().map(Group::into_event));
        }
    }
}

/// Whether a method tells of a piece of an item.
fn is_piece(method: &str) -> bool {
    let last = method.rsplit('/').next().unwrap_or_default();
    last.ends_with("Delta") || last == "delta"
}

impl Group {
    fn of(at: &Position, first_us: u64, told: &Told<'_>, item_id: &str, text: &str) -> Group {
        let owned = |part: &Option<std::borrow::Cow<'_, str>>| part.as_deref().map(str::to_owned);
        Group {
            at: at.clone(),
            first_us,
            method: told.method.clone().into_owned(),
            thread_id: owned(&told.place.thread_id),
            turn_id: owned(&told.place.turn_id),
            item_id: item_id.to_owned(),
            beside: told.params.written().and_then(|params| beside(params.get())),
            text: text.to_owned(),
            count: 1,
        }
    }

    fn into_event(self) -> EventRow {
        // Pieces may each be harmless and together a secret.
        let text = Value::from(redacted(&self.text).unwrap_or(self.text)).to_string();
        let payload = match self.beside {
            Some((before, after)) => format!("{before}{text}{after}"),
            None => format!("{{\"delta\":{text}}}"),
        };
        EventRow {
            payload_preview: cut(&payload, super::event::PREVIEW_CHARS_MAX),
            key: Key(self.at),
            at_us: self.first_us,
            event_type: self.method,
            thread_id: self.thread_id,
            turn_id: self.turn_id,
            item_id: Some(self.item_id),
            delta_count: Some(self.count),
        }
    }
}

/// What stands before and after the text of a piece.
fn beside(params: &str) -> Option<(String, String)> {
    let mut is_next = false;
    let text = tokens(params).find(|token| {
        let found = is_next && token.kind == TokenKind::Text;
        is_next = token.kind == TokenKind::Name && &params[token.range.clone()] == "\"delta\"";
        found
    })?;
    let (before, after) = (&params[..text.range.start], &params[text.range.end..]);
    (before.len() + after.len() <= BESIDE_BYTES_MAX).then(|| (before.to_owned(), after.to_owned()))
}
