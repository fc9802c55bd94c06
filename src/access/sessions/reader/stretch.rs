//! Finds a page, an entry or a match in a stretch of a recording that is read forwards. Pure.
//!
//! The reader of a recording begins somewhere before the place in question, because the meaning of an event depends on earlier
//! ones, and hands over one event after the other. Behind the place, events complete the entries that are still open.

use std::io;

use super::kept::PAGE_ENTRIES;
use crate::journal::Position;
use crate::sessions::entry::{BODY_BYTES_MAX, Entry, Key, Matcher};
use crate::sessions::news::{Page, Sought};
use crate::sessions::timeline::{Range, SessionEvent, Timeline};

/// Longest body of an entry in full, in bytes.
pub const FULL_BYTES_MAX: usize = 1 << 20;

/// Whether to continue after an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Go {
    On,
    Stop,
}

/// Why a read has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// The recording has nothing further.
    End,
    /// Enough was read.
    Enough,
    /// The read was cancelled.
    Unwanted,
}

/// Takes an event.
pub type Takes<'a> = &'a mut dyn FnMut(&SessionEvent) -> Go;

/// The result of a search for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Matched {
    At(Key),
    Nothing,
    /// Nothing among so many events next to the place where the search began.
    NothingAmong(u64),
    Unwanted,
}

impl Matched {
    /// The match with the entries before it, which `older` reads; `None` if the search was cancelled.
    pub fn with_page(self, older: impl FnOnce(&Key, usize) -> io::Result<Option<Page>>) -> io::Result<Option<Sought>> {
        match self {
            Matched::At(key) => Ok(older(&key.behind(), PAGE_ENTRIES)?.map(|page| Sought::At(key, page))),
            Matched::Nothing => Ok(Some(Sought::Nothing)),
            Matched::NothingAmong(events) => Ok(Some(Sought::NothingAmong(events))),
            Matched::Unwanted => Ok(None),
        }
    }

    fn of(left: Left, key: Option<Key>) -> Matched {
        match (left, key) {
            (Left::Unwanted, _) => Matched::Unwanted,
            (_, Some(key)) => Matched::At(key),
            (_, None) => Matched::Nothing,
        }
    }
}

/// Reads until nothing is open behind the place in question, or so many events beyond it were read.
fn until(
    timeline: &mut Timeline,
    is_behind: impl Fn(&Position) -> bool,
    beyond_max: usize,
    read: impl FnOnce(Takes<'_>) -> io::Result<Left>,
) -> io::Result<Left> {
    let mut beyond = 0;
    read(&mut |event| {
        timeline.take(event);
        let is_behind = is_behind(&event.at);
        beyond += usize::from(is_behind);
        if is_behind && (!timeline.has_open() || beyond > beyond_max) { Go::Stop } else { Go::On }
    })
}

/// The entries before one, whose record is at `at`, as they follow from the events of a read, and whether older ones are missing. `None`
/// if the read was cancelled.
pub fn older(
    before: &Key,
    at: &Position,
    beyond_max: usize,
    read: impl FnOnce(Takes<'_>) -> io::Result<Left>,
) -> io::Result<Option<(Vec<Entry>, bool)>> {
    let mut timeline = Timeline::of(Range { after: None, before: Some(before.clone()) }, BODY_BYTES_MAX);
    let left = until(&mut timeline, |event| event >= at, beyond_max, read)?;
    let has_older = timeline.has_older;
    Ok((left != Left::Unwanted).then(|| (timeline.into_entries(), has_older)))
}

/// The page after an entry; without one, the first page.
pub fn newer(
    after: Option<Key>,
    beyond_max: usize,
    read: impl FnOnce(Takes<'_>) -> io::Result<Left>,
) -> io::Result<Option<Page>> {
    let mut timeline = Timeline::of(Range { after, before: None }, BODY_BYTES_MAX);
    let (mut is_full, mut beyond) = (false, 0);
    let left = read(&mut |event| {
        timeline.take(event);
        if !is_full && timeline.entries().len() >= PAGE_ENTRIES {
            is_full = true;
            timeline.end_before(Key { nth: u16::MAX, ..Key::recorded(event.at.clone()) });
        }
        beyond += usize::from(is_full);
        if is_full && (!timeline.has_open() || beyond > beyond_max) { Go::Stop } else { Go::On }
    })?;
    Ok((left != Left::Unwanted).then(|| Page { entries: timeline.into_entries(), is_last: left == Left::End }))
}

/// The entry with this key, whose record is at `at`, in full.
pub fn one(
    key: &Key,
    at: &Position,
    beyond_max: usize,
    read: impl FnOnce(Takes<'_>) -> io::Result<Left>,
) -> io::Result<Option<Entry>> {
    // No events come from before the first record of a segment.
    let in_front = |offset| Key { nth: u16::MAX, ..Key::recorded(Position { segment: at.segment.clone(), offset }) };
    let after = match key.nth.checked_sub(1) {
        Some(nth) => Some(Key { at: key.at.clone(), nth }),
        None => at.offset.checked_sub(1).map(in_front),
    };
    let mut timeline = Timeline::of(Range { after, before: Some(key.behind()) }, FULL_BYTES_MAX);
    until(&mut timeline, |event| event > at, beyond_max, read)?;
    Ok(timeline.into_entries().pop())
}

/// The last match before an entry, whose record is at `at`.
pub fn last_match(
    matcher: &Matcher,
    before: &Key,
    at: &Position,
    beyond_max: usize,
    read: impl FnOnce(Takes<'_>) -> io::Result<Left>,
) -> io::Result<Matched> {
    let range = Range { after: None, before: Some(before.clone()) };
    let mut timeline = Timeline::of(range, BODY_BYTES_MAX).looking(matcher.clone());
    let left = until(&mut timeline, |event| event > at, beyond_max, read)?;
    Ok(Matched::of(left, timeline.into_matches().1))
}

/// The first match after an entry, and why the read has ended.
pub fn first_match(
    matcher: &Matcher,
    after: &Key,
    read: impl FnOnce(Takes<'_>) -> io::Result<Left>,
) -> io::Result<(Matched, Left)> {
    let range = Range { after: Some(after.clone()), before: None };
    let mut timeline = Timeline::of(range, BODY_BYTES_MAX).looking(matcher.clone());
    let left = read(&mut |event| {
        timeline.take(event);
        if timeline.has_match() { Go::Stop } else { Go::On }
    })?;
    Ok((Matched::of(left, timeline.into_matches().0), left))
}
