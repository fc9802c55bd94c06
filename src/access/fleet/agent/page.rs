//! A page of a session's history, and the messages that it becomes. Pure.

use serde_json::value::RawValue;

use super::super::level;
use super::super::wire::{self, EventMessage, Gap, MESSAGE_BYTES_MAX, VERSION};
use super::cursors::Cursor;
use crate::api::{Cursor as Seen, EventDocument, EventPage, EventsQuery, GapReason, Verbatim};
use crate::config::FleetLevel;

/// Most events of a page, and so the bound of messages of a session that the server has not acknowledged.
pub(super) const PAGE_EVENTS_MAX: u64 = 256;

/// Room for the members around an event, in bytes.
const ENVELOPE_BYTES_MAX: usize = 2 << 10;

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

/// A page of a session's history.
pub(super) type Page = EventPage<Verbatim<EventDocument>>;

/// The query of the page after a cursor.
pub(super) fn query(after: Option<&Cursor>) -> EventsQuery {
    let seen = after.map_or(Seen::from(0), |Cursor { epoch, seq }| Seen { seq: *seq, epoch: Some(epoch.clone()) });
    EventsQuery::after(Some(&seen), PAGE_EVENTS_MAX)
}

/// Whether the history cannot be read now.
pub(super) fn is_unreadable(page: &Page) -> bool {
    page.epoch.is_none() || page.gap_reason == Some(GapReason::PersistenceError)
}

/// Whether nothing follows.
pub(super) fn is_last(page: &Page) -> bool {
    (page.events.len() as u64) < PAGE_EVENTS_MAX
}

/// The messages, in order.
pub(super) fn outgoing(page: &Page, after: Option<&Cursor>, of: Of<'_>) -> Vec<Outgoing> {
    let Some(epoch) = &page.epoch else { return Vec::new() };
    let numbered = page.events.iter().map_while(|event| Some((event.document.seq?, &event.text)));
    let numbered: Vec<(u64, &Box<RawValue>)> = numbered.collect();
    let message = |seq: u64, event: Option<Box<RawValue>>, gap: Option<Gap>| {
        let (host, session) = (of.host.to_owned(), of.session.to_owned());
        let message = EventMessage { v: VERSION, host, session, epoch: epoch.clone(), seq, event, gap };
        let cursor = Cursor { epoch: epoch.clone(), seq };
        Outgoing { id: message.id(), payload: wire::bytes(&message), cursor }
    };
    let before_first = numbered.first().map_or(page.next_seq, |(first, _)| *first).saturating_sub(1);
    let gap = gap(page.gap_reason, after, epoch, before_first).map(|gap| message(before_first, None, Some(gap)));
    let events = numbered.iter().map(|(seq, event)| message(*seq, shipped(event, of.level), None));
    gap.into_iter().chain(events).collect()
}

/// The gap before the first event. A gap of the journal is an event itself.
fn gap(reason: Option<GapReason>, after: Option<&Cursor>, epoch: &str, before_first: u64) -> Option<Gap> {
    let reason = match reason? {
        reason @ (GapReason::Retention | GapReason::NewEpoch | GapReason::CursorAhead) => reason.name().to_owned(),
        GapReason::PersistenceError | GapReason::JournalGap | GapReason::Newer(_) => return None,
    };
    let other_epoch = after.map(|after| &after.epoch).filter(|known| *known != epoch);
    let after_seq = after.map_or(0, |after| after.seq);
    if other_epoch.is_none() && before_first <= after_seq {
        return None;
    }
    Some(Gap { reason, after_seq, after_epoch: other_epoch.cloned() })
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
    use crate::api::Query as _;

    fn page(first: u64, events: u64, gap_reason: Value, epoch: &str) -> Page {
        let events: Vec<Value> = (first..first + events).map(|seq| json!({ "seq": seq, "event_type": "e" })).collect();
        let next_seq = first + events.len() as u64;
        serde_json::from_value(
            json!({ "events": events, "next_seq": next_seq, "history_gap": !gap_reason.is_null(), "gap_reason": gap_reason,
                "epoch": epoch, "new": 1 }),
        )
        .expect("a page")
    }

    fn cursor(epoch: &str, seq: u64) -> Cursor {
        Cursor { epoch: epoch.to_owned(), seq }
    }

    fn check(page: &Page, after: Option<Cursor>, expect: &[&str]) {
        let of = Of { host: "h", session: "s", level: FleetLevel::Full };
        let outgoing = outgoing(page, after.as_ref(), of);
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
        waits.events.push(serde_json::from_str(r#"{"seq":null}"#).expect("an event"));
        waits.events.push(serde_json::from_str(r#"{"seq":3}"#).expect("an event"));
        check(&waits, None, &["h/s/e/1"]);
    }

    #[test]
    fn unreadable_history_is_not_a_gap() {
        let json = json!({ "events": [], "next_seq": 8, "history_gap": true, "gap_reason": "persistence_error" });
        let page: Page = serde_json::from_value(json).expect("a page");
        assert!(is_unreadable(&page));
        check(&page, Some(cursor("e", 7)), &[]);
    }

    #[test]
    fn cursor_stands_in_the_path() {
        assert_eq!(query(None).path(), "/sessions/self/codex-events?since_seq=0&limit=256");
        assert_eq!(
            query(Some(&cursor("ab", 7))).path(),
            "/sessions/self/codex-events?since_seq=7&since_epoch=ab&limit=256"
        );
    }
}
