//! A page of a session's history, and the messages that it becomes. Pure.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::level;
use super::super::wire::{self, EventMessage, Gap, MESSAGE_BYTES_MAX, VERSION};
use super::cursors::Cursor;
use crate::config::FleetLevel;

/// Most events of a page, and so the bound of messages of a session that the server has not acknowledged.
pub(super) const PAGE_EVENTS_MAX: u64 = 256;

/// Room for the members around an event, in bytes.
const ENVELOPE_BYTES_MAX: usize = 2 << 10;

/// A page, as the control socket gives it.
#[derive(Debug, Deserialize)]
pub(super) struct Page {
    events: Vec<Box<RawValue>>,
    next_seq: u64,
    gap_reason: Option<String>,
    epoch: Option<String>,
}

/// A message for the server, and the cursor once the server has it.
#[derive(Debug, Clone)]
pub(super) struct Outgoing {
    pub(super) id: String,
    pub(super) payload: Vec<u8>,
    pub(super) cursor: Cursor,
}

/// The session whose page it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Of<'a> {
    pub(super) host: &'a str,
    pub(super) session: &'a str,
    pub(super) level: FleetLevel,
}

impl Page {
    /// The path of the page after a cursor at the control socket.
    pub(super) fn path(after: Option<&Cursor>) -> String {
        let cursor = after.map_or_else(
            || "since_seq=0".to_owned(),
            |Cursor { epoch, seq }| format!("since_seq={seq}&since_epoch={epoch}"),
        );
        format!("/sessions/self/codex-events?{cursor}&limit={PAGE_EVENTS_MAX}")
    }

    /// Whether the history cannot be read now.
    pub(super) fn is_unreadable(&self) -> bool {
        self.epoch.is_none() || self.gap_reason.as_deref() == Some("persistence_error")
    }

    /// Whether nothing follows.
    pub(super) fn is_last(&self) -> bool {
        (self.events.len() as u64) < PAGE_EVENTS_MAX
    }

    /// The messages, in order.
    pub(super) fn outgoing(&self, after: Option<&Cursor>, of: Of<'_>) -> Vec<Outgoing> {
        #[derive(Deserialize)]
        struct Numbered {
            seq: Option<u64>,
        }
        let Some(epoch) = &self.epoch else { return Vec::new() };
        let seq_of = |event: &RawValue| serde_json::from_str::<Numbered>(event.get()).ok()?.seq;
        let numbered = self.events.iter().map_while(|event| Some((seq_of(event)?, event)));
        let numbered: Vec<(u64, &Box<RawValue>)> = numbered.collect();
        let message = |seq: u64, event: Option<Box<RawValue>>, gap: Option<Gap>| {
            let (host, session) = (of.host.to_owned(), of.session.to_owned());
            let message = EventMessage { v: VERSION, host, session, epoch: epoch.clone(), seq, event, gap };
            let cursor = Cursor { epoch: epoch.clone(), seq };
            Outgoing { id: message.id(), payload: wire::bytes(&message), cursor }
        };
        let before_first = numbered.first().map_or(self.next_seq, |(first, _)| *first).saturating_sub(1);
        let gap = self.gap(after, epoch, before_first).map(|gap| message(before_first, None, Some(gap)));
        let events = numbered.iter().map(|(seq, event)| message(*seq, shipped(event, of.level), None));
        gap.into_iter().chain(events).collect()
    }

    /// The gap before the first event. A gap of the journal is an event itself.
    fn gap(&self, after: Option<&Cursor>, epoch: &str, before_first: u64) -> Option<Gap> {
        let reason =
            self.gap_reason.as_deref().filter(|reason| ["retention", "new_epoch", "cursor_ahead"].contains(reason))?;
        let other_epoch = after.map(|after| &after.epoch).filter(|known| *known != epoch);
        let after_seq = after.map_or(0, |after| after.seq);
        if other_epoch.is_none() && before_first <= after_seq {
            return None;
        }
        Some(Gap { reason: reason.to_owned(), after_seq, after_epoch: other_epoch.cloned() })
    }
}

/// An event as it leaves the machine, cut if it is too long for a message.
fn shipped(event: &RawValue, level: FleetLevel) -> Option<Box<RawValue>> {
    let json = level::event(event.get(), level);
    let bytes_max = MESSAGE_BYTES_MAX - ENVELOPE_BYTES_MAX;
    let json = match json.len() <= bytes_max {
        true => json,
        false => wire::cut(&serde_json::from_str(&json).unwrap_or_default(), bytes_max).to_string(),
    };
    RawValue::from_string(json).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn page(first: u64, events: u64, gap_reason: Value, epoch: &str) -> Page {
        let events: Vec<Value> = (first..first + events).map(|seq| json!({ "seq": seq, "event_type": "e" })).collect();
        let next_seq = first + events.len() as u64;
        serde_json::from_value(
            json!({ "events": events, "next_seq": next_seq, "gap_reason": gap_reason, "epoch": epoch, "new": 1 }),
        )
        .expect("a page")
    }

    fn cursor(epoch: &str, seq: u64) -> Cursor {
        Cursor { epoch: epoch.to_owned(), seq }
    }

    fn check(page: &Page, after: Option<Cursor>, expect: &[&str]) {
        let of = Of { host: "h", session: "s", level: FleetLevel::Full };
        let outgoing = page.outgoing(after.as_ref(), of);
        let shown = |outgoing: &Outgoing| {
            let message: EventMessage = serde_json::from_slice(&outgoing.payload).expect("a message");
            assert_eq!((message.id(), message.seq), (outgoing.id.clone(), outgoing.cursor.seq));
            let gap = message.gap.map(|gap| format!(" {} after {}", gap.reason, gap.after_seq));
            format!("{}{}", outgoing.id, gap.unwrap_or_default())
        };
        assert_eq!(outgoing.iter().map(shown).collect::<Vec<_>>(), expect);
    }

    #[test]
    fn events_become_messages_in_order() {
        check(&page(1, 2, Value::Null, "e"), None, &["h/s/e/1", "h/s/e/2"]);
        check(&page(8, 1, Value::Null, "e"), Some(cursor("e", 7)), &["h/s/e/8"]);
        check(&page(8, 0, Value::Null, "e"), Some(cursor("e", 7)), &[]);
        check(&page(8, 1, json!("journal_gap"), "e"), Some(cursor("e", 7)), &["h/s/e/8"]);
    }

    #[test]
    fn gaps_stand_before_the_next_event() {
        check(&page(5, 1, json!("retention"), "e"), Some(cursor("e", 2)), &["h/s/e/4 retention after 2", "h/s/e/5"]);
        check(&page(5, 1, json!("retention"), "e"), None, &["h/s/e/4 retention after 0", "h/s/e/5"]);
        let begun = &["h/s/f/10000 new_epoch after 42", "h/s/f/10001"];
        check(&page(10_001, 1, json!("new_epoch"), "f"), Some(cursor("e", 42)), begun);
        check(&page(10_001, 0, json!("new_epoch"), "f"), Some(cursor("e", 42)), &["h/s/f/10000 new_epoch after 42"]);
        // All that was deleted was shipped before.
        check(&page(8, 0, json!("retention"), "e"), Some(cursor("e", 7)), &[]);
    }

    #[test]
    fn events_without_a_number_wait() {
        let mut waits = page(1, 1, Value::Null, "e");
        waits.events.push(RawValue::from_string(r#"{"seq":null}"#.to_owned()).expect("JSON"));
        waits.events.push(RawValue::from_string(r#"{"seq":3}"#.to_owned()).expect("JSON"));
        check(&waits, None, &["h/s/e/1"]);
    }

    #[test]
    fn unreadable_history_is_not_a_gap() {
        let json = json!({ "events": [], "next_seq": 8, "gap_reason": "persistence_error", "epoch": null });
        let page: Page = serde_json::from_value(json).expect("a page");
        assert!(page.is_unreadable());
        check(&page, Some(cursor("e", 7)), &[]);
    }

    #[test]
    fn cursor_stands_in_the_path() {
        assert_eq!(Page::path(None), "/sessions/self/codex-events?since_seq=0&limit=256");
        assert_eq!(
            Page::path(Some(&cursor("ab", 7))),
            "/sessions/self/codex-events?since_seq=7&since_epoch=ab&limit=256"
        );
    }
}
