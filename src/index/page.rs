//! A page of events, and the gap that it reports for a cursor.
//!
//! Pure: plain data and one rule.

use serde::Serialize;
use serde_json::value::RawValue;

use super::epochs::{Cause, Epoch};

/// An event, as returned to readers.
#[derive(Debug, Clone, Serialize)]
pub struct EventDocument {
    pub session_id: String,
    /// Its number; `null` if it is not indexed yet.
    pub seq: Option<u64>,
    /// When it happened, RFC 3339.
    pub timestamp: String,
    /// The method, or a name of ours.
    pub event_type: String,
    pub thread_id: Option<String>,
    pub turn_id: Option<String>,
    pub item_id: Option<String>,
    /// Its payload, possibly shortened.
    pub payload_preview: Box<RawValue>,
    /// The run of the server.
    pub generation: String,
    /// The number of deltas that were joined.
    pub delta_count: Option<u64>,
    /// The position of its record, the same before and after the event has a number.
    pub key: String,
    /// Whether it is stored in the history.
    pub persisted: bool,
    /// The epoch of its number; `null` for an event without a number.
    pub epoch: Option<String>,
}

/// Why a page lacks something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GapReason {
    /// Retention has deleted it.
    Retention,
    /// It is recorded but not indexed yet.
    PersistenceError,
    /// It could not be recorded, or its record is gone.
    JournalGap,
    /// The cursor belongs to an earlier epoch.
    NewEpoch,
    /// The cursor is a number that this history has not issued.
    CursorAhead,
}

impl GapReason {
    /// The name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            GapReason::Retention => "retention",
            GapReason::PersistenceError => "persistence_error",
            GapReason::JournalGap => "journal_gap",
            GapReason::NewEpoch => "new_epoch",
            GapReason::CursorAhead => "cursor_ahead",
        }
    }
}

/// A reader's position in a history.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The last number that the reader has; 0 before it has one.
    pub seq: u64,
    /// The epoch of that number, if the reader knows it.
    pub epoch: Option<String>,
}

impl From<u64> for Cursor {
    fn from(seq: u64) -> Cursor {
        Cursor { seq, epoch: None }
    }
}

#[derive(Debug, Clone, Serialize)]
pub struct EventPage {
    /// The events, in order.
    pub events: Vec<EventDocument>,
    /// The lowest stored number.
    pub earliest_seq: Option<u64>,
    /// The highest stored number.
    pub latest_seq: Option<u64>,
    /// One more than the next cursor.
    pub next_seq: u64,
    /// The page lacks something after the cursor.
    pub history_gap: bool,
    pub gap_reason: Option<GapReason>,
    /// The epoch of all numbers of this history; `null` if it cannot be read.
    pub epoch: Option<String>,
}

impl EventPage {
    /// The answer if the history cannot be read at all.
    #[must_use]
    pub fn unreadable(since: Option<u64>) -> EventPage {
        EventPage {
            events: Vec::new(),
            earliest_seq: None,
            latest_seq: None,
            next_seq: next_seq(None, since),
            history_gap: true,
            gap_reason: Some(GapReason::PersistenceError),
            epoch: None,
        }
    }
}

/// The start of a page for a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Begun {
    /// The page starts after this number; `None` for the last rows.
    pub(super) from: Option<u64>,
    /// The reason, if the cursor does not belong to this history.
    other_history: Option<GapReason>,
}

impl Begun {
    /// The start of the page for a reader.
    pub(super) fn of(since: Option<&Cursor>, around: &Around) -> Begun {
        match since.map(|cursor| begin(cursor, around)) {
            Some((from, other_history)) => Begun { from: Some(from), other_history },
            None => Begun { from: None, other_history: None },
        }
    }

    /// One more than the next cursor, and the gap to report, for a page with these first and last numbers.
    pub(super) fn end(self, first: Option<u64>, last: Option<u64>, around: &Around) -> (u64, Option<GapReason>) {
        let Begun { from, other_history } = self;
        let gap_reason = other_history.or_else(|| gap(from, first, around));
        let next = match other_history {
            // An empty page must not skip the next event.
            Some(GapReason::NewEpoch | GapReason::CursorAhead) => last.unwrap_or(around.last) + 1,
            Some(GapReason::Retention | GapReason::PersistenceError | GapReason::JournalGap) | None => {
                next_seq(last, from)
            }
        };
        (next, gap_reason)
    }
}

/// Facts about a table besides the rows of a page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Around {
    /// The lowest number in the table, or the next one if the table is empty.
    pub(super) earliest: Option<u64>,
    /// The last issued number.
    pub(super) last: u64,
    /// The number before the last stretch that the journal lacks.
    pub(super) last_gap_after: Option<u64>,
    /// Some recorded lines are not indexed.
    pub(super) is_behind: bool,
    /// `None` while the database is being created.
    pub(super) epoch: Option<Epoch>,
}

/// The number before the page of a cursor, and the reason if that is not the cursor itself. If the cursor does not belong
/// to this history, the oldest page has every event that its reader can lack.
fn begin(cursor: &Cursor, around: &Around) -> (u64, Option<GapReason>) {
    let Some(epoch) = &around.epoch else { return (cursor.seq, Some(GapReason::PersistenceError)) };
    if cursor.epoch.as_ref().is_some_and(|of| *of != epoch.id) {
        return (0, Some(GapReason::NewEpoch));
    }
    if cursor.seq > around.last.max(epoch.promised) {
        return (0, Some(GapReason::CursorAhead));
    }
    if cursor.seq > around.last {
        // The database is being rebuilt and does not have that number yet.
        return (cursor.seq, Some(GapReason::PersistenceError));
    }
    match epoch.cause {
        Cause::First | Cause::StartLost => (cursor.seq, None),
        Cause::JournalShorter | Cause::MachineRestarted | Cause::Copied | Cause::OtherHistory | Cause::OtherEvents => {
            (cursor.seq, (cursor.seq < epoch.after_seq).then_some(GapReason::NewEpoch))
        }
    }
}

/// The gap to report for a cursor. `first` is the first number of the page, if any.
fn gap(since: Option<u64>, first: Option<u64>, around: &Around) -> Option<GapReason> {
    let Around { earliest, last_gap_after, is_behind, .. } = *around;
    // Without a cursor, the page itself is the position.
    let since = since.or(first.map(|first| first.saturating_sub(1)));
    let is_before = |seq: u64| since.is_some_and(|since| since < seq);
    if earliest.is_some_and(|earliest| is_before(earliest.saturating_sub(1))) {
        return Some(GapReason::Retention);
    }
    if is_behind {
        return Some(GapReason::PersistenceError);
    }
    last_gap_after.filter(|after| is_before(after + 1)).map(|_| GapReason::JournalGap)
}

/// One more than the next cursor.
fn next_seq(last: Option<u64>, since: Option<u64>) -> u64 {
    last.map_or_else(|| since.map_or(1, |since| since.saturating_add(1)), |last| last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_gets_its_gap_reason() {
        let around = Around { earliest: Some(11), last: 90, last_gap_after: Some(50), ..Around::default() };
        let check = |since, expect| assert_eq!(gap(since, Some(60), &around), expect, "{since:?}");
        check(Some(0), Some(GapReason::Retention));
        check(Some(9), Some(GapReason::Retention));
        check(Some(10), Some(GapReason::JournalGap));
        check(Some(50), Some(GapReason::JournalGap));
        check(Some(51), None);
        check(Some(u64::MAX), None);
        check(None, None);
        let behind = Around { is_behind: true, ..around.clone() };
        assert_eq!(gap(Some(0), None, &behind), Some(GapReason::Retention));
        assert_eq!(gap(Some(10), None, &behind), Some(GapReason::PersistenceError));
        assert_eq!(gap(Some(90), None, &behind), Some(GapReason::PersistenceError));
        assert_eq!(gap(Some(7), None, &Around::default()), None);
    }

    #[test]
    fn cursor_of_another_history_gets_the_oldest_page() {
        let epoch = |cause| Epoch { id: "b".to_owned(), after_seq: 20, cause, promised: 40 };
        let check = |seq: u64, of: Option<&str>, cause, expect| {
            let around = Around { last: 30, epoch: Some(epoch(cause)), ..Around::default() };
            let cursor = Cursor { seq, epoch: of.map(str::to_owned) };
            assert_eq!(begin(&cursor, &around), expect, "{cursor:?} {cause:?}");
        };
        check(25, None, Cause::Copied, (25, None));
        check(25, Some("b"), Cause::Copied, (25, None));
        check(25, Some("a"), Cause::Copied, (0, Some(GapReason::NewEpoch)));
        check(19, None, Cause::Copied, (19, Some(GapReason::NewEpoch)));
        check(20, None, Cause::Copied, (20, None));
        check(19, None, Cause::StartLost, (19, None));
        check(31, None, Cause::First, (31, Some(GapReason::PersistenceError)));
        check(41, None, Cause::First, (0, Some(GapReason::CursorAhead)));
        check(u64::MAX, Some("b"), Cause::First, (0, Some(GapReason::CursorAhead)));
        let begun = Around { last: 30, ..Around::default() };
        assert_eq!(begin(&Cursor::from(99), &begun), (99, Some(GapReason::PersistenceError)));
    }

    #[test]
    fn next_seq_follows_the_page() {
        assert_eq!((next_seq(Some(7), Some(3)), next_seq(None, Some(3)), next_seq(None, None)), (8, 4, 1));
        assert_eq!(next_seq(None, Some(u64::MAX)), u64::MAX);
    }
}
