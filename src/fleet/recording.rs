//! The timeline of a session on any host, from the events that the server has stored.
//!
//! A stream is read forwards only. To read backwards, a reader begins some time before the place in question, and earlier if that
//! is not enough. No read holds more than a window of entries.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, SystemTime};

use serde_json::json;

use super::client::Client;
use super::feed::{Feed, place};
use super::stored::{Start, Stored};
use super::wire::EventMessage;
use crate::tui::entry::{BODY_BYTES_MAX, Entry, Key, Matcher, Spot};
use crate::tui::model::{News, Page, Way};
use crate::tui::reader::{Following, Go, Gone, Left, Teller};
use crate::tui::source::Recorded;
use crate::tui::timeline::{Range, SessionEvent, Timeline};

/// How far before a place a read begins; at last with the first event.
const BEGINS_BEFORE: [Duration; 5] = [
    Duration::from_secs(10 * 60),
    Duration::from_secs(3_600),
    Duration::from_secs(6 * 3_600),
    Duration::from_secs(48 * 3_600),
    Duration::from_secs(14 * 24 * 3_600),
];

/// Entries of a page.
const PAGE_ENTRIES: usize = 300;

/// Longest body of an entry in full, in bytes.
const FULL_BYTES_MAX: usize = 1 << 20;

/// Most events read beyond a page to complete its open entries.
const BEYOND_MAX: usize = 5_000;

/// Polling interval of new events.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// Pause after a failed read.
const AGAIN_AFTER: Duration = Duration::from_secs(5);

/// The stored events of a session.
pub(super) struct Recording {
    pub(super) client: Arc<Client>,
    pub(super) host: String,
    pub(super) session: String,
    /// What the host leaves out, in words.
    pub(super) left_out: Option<&'static str>,
    pub(super) wanted: Arc<AtomicBool>,
}

/// The number of a place among the stored messages.
fn number_of(key: &Key) -> u64 {
    match &key.at {
        Spot::Recorded(at) => at.offset,
        Spot::Kept(_) => 0,
    }
}

/// Where to begin: some time before `at`, or with the first event.
fn begin(at: SystemTime, before: Option<&Duration>) -> Start {
    let early = before.and_then(|before| at.checked_sub(*before));
    early.map_or(Start::After(0), |early| Start::Time(humantime::format_rfc3339_millis(early).to_string()))
}

/// [`begin`] for each attempt; the last one has everything.
fn attempts(at: SystemTime) -> impl Iterator<Item = Start> {
    BEGINS_BEFORE.iter().map(Some).chain([None]).map(move |before| begin(at, before))
}

impl Recording {
    fn page(&self, start: &Start) -> io::Result<Vec<Stored>> {
        self.client.events_of(&self.host, &self.session, start).map_err(|error| io::Error::other(error.to_string()))
    }

    /// When the server has stored a message, or now for one that is not there.
    fn time_of(&self, number: u64) -> io::Result<SystemTime> {
        let now = SystemTime::now();
        if number > i64::MAX as u64 {
            return Ok(now);
        }
        let page = self.page(&Start::After(number.saturating_sub(1)))?;
        Ok(page.first().and_then(|stored| humantime::parse_rfc3339(&stored.at).ok()).unwrap_or(now))
    }

    /// Reads events as long as `takes` accepts them.
    fn from(&self, start: Start, mut takes: impl FnMut(&SessionEvent) -> Go) -> io::Result<Left> {
        let (mut start, mut feed, mut events) = (start, Feed::default(), Vec::new());
        loop {
            if !self.wanted.load(Ordering::Relaxed) {
                return Ok(Left::Unwanted);
            }
            let page = self.page(&start)?;
            let Some(last) = page.last() else { return Ok(Left::End) };
            start = Start::After(last.number);
            for stored in &page {
                feed_with(&mut feed, stored, &mut events);
                for event in events.drain(..) {
                    if takes(&event) == Go::Stop {
                        return Ok(Left::Enough);
                    }
                }
            }
        }
    }

    /// Follows the events from the last ones on.
    pub(super) fn follow(self, epoch: u64, teller: Teller) -> io::Result<Following> {
        let (ends, ended) = sync_channel(1);
        std::thread::Builder::new().name("follow".to_owned()).spawn(move || {
            let _ = self.follow_until(epoch, &teller, &ended);
        })?;
        Ok(Following::of(ends))
    }

    fn follow_until(&self, epoch: u64, teller: &Teller, ended: &Receiver<()>) -> Result<(), Gone> {
        let (mut feed, mut last) = loop {
            match self.restored() {
                Ok((feed, last, timeline)) => {
                    teller.tell(News::Restored { epoch, timeline: Box::new(timeline) })?;
                    break (feed, last);
                }
                Err(error) => failed(&error, teller)?,
            }
            if is_over(ended, AGAIN_AFTER) {
                return Ok(());
            }
        };
        loop {
            let mut events = Vec::new();
            let wait = match self.page(&Start::After(last)) {
                Ok(page) => {
                    page.iter().for_each(|stored| feed_with(&mut feed, stored, &mut events));
                    last = page.last().map_or(last, |stored| stored.number);
                    if page.is_empty() { LOOK_EVERY } else { Duration::ZERO }
                }
                Err(error) => {
                    failed(&error, teller)?;
                    AGAIN_AFTER
                }
            };
            if !events.is_empty() {
                teller.tell(News::Events { epoch, events })?;
            }
            if is_over(ended, wait) {
                return Ok(());
            }
        }
    }

    /// The last entries, the number of the last message, and the state after it.
    fn restored(&self) -> io::Result<(Feed, u64, Timeline)> {
        let now = SystemTime::now();
        for start in attempts(now) {
            let is_whole = start == Start::After(0);
            let (mut feed, mut timeline, mut last) = (Feed::default(), Timeline::default(), 0);
            let (mut start, mut events) = (start, Vec::new());
            loop {
                let page = self.page(&start)?;
                let Some(stored) = page.last() else { break };
                last = stored.number;
                start = Start::After(last);
                page.iter().for_each(|stored| feed_with(&mut feed, stored, &mut events));
                events.drain(..).for_each(|event| timeline.take(&event));
            }
            if timeline.entries().len() < PAGE_ENTRIES && !is_whole {
                continue;
            }
            timeline.has_older |= !is_whole;
            if let Some(left_out) = self.left_out {
                let fields = json!({ "type": "gap", "lines": 0, "reason": left_out });
                let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                let at_us = u64::try_from(now.as_micros()).unwrap_or_default();
                timeline.take(&SessionEvent { at: place(last), at_us, fields });
            }
            return Ok((feed, last, timeline));
        }
        unreachable!("BUG: the last attempt has everything")
    }
}

fn feed_with(feed: &mut Feed, stored: &Stored, events: &mut Vec<SessionEvent>) {
    // A message that cannot be read is of a later version.
    if let Ok(message) = serde_json::from_slice::<EventMessage>(&stored.payload) {
        feed.take(stored.number, &stored.at, &message, events);
    }
}

fn failed(error: &io::Error, teller: &Teller) -> Result<(), Gone> {
    teller.tell(News::Unreadable(format!("read the events of the fleet: {error}; trying again")))
}

/// Whether nobody follows any more, after a pause.
fn is_over(ended: &Receiver<()>, pause: Duration) -> bool {
    ended.recv_timeout(pause) != Err(RecvTimeoutError::Timeout)
}

impl Recorded for Recording {
    fn start(&self) -> io::Result<Option<Page>> {
        self.newer(&Key::START)
    }

    fn older(&self, before: &Key, count: usize) -> io::Result<Option<Page>> {
        let number = number_of(before);
        if number == 0 {
            return Ok(Some(Page { entries: Vec::new(), is_last: true }));
        }
        for start in attempts(self.time_of(number)?) {
            let is_whole = start == Start::After(0);
            let mut timeline = Timeline::of(Range { after: None, before: Some(before.clone()) }, BODY_BYTES_MAX);
            let mut beyond = 0;
            let left = self.from(start, |event| {
                timeline.take(event);
                beyond += usize::from(event.at.offset >= number);
                let is_over = event.at.offset >= number && (!timeline.has_open() || beyond > BEYOND_MAX);
                if is_over { Go::Stop } else { Go::On }
            })?;
            if left == Left::Unwanted {
                return Ok(None);
            }
            let has_older = timeline.has_older;
            let mut entries = timeline.into_entries();
            if entries.len() < count && !is_whole {
                continue;
            }
            let too_many = entries.len().saturating_sub(count);
            entries.drain(..too_many);
            return Ok(Some(Page { entries, is_last: is_whole && too_many == 0 && !has_older }));
        }
        unreachable!("BUG: the last attempt has everything")
    }

    fn newer(&self, after: &Key) -> io::Result<Option<Page>> {
        let number = number_of(after);
        let start = match number {
            0 => Start::After(0),
            // Entries that begin here are understood by what comes before them.
            number => begin(self.time_of(number)?, BEGINS_BEFORE.first()),
        };
        let range = Range { after: (number > 0).then(|| after.clone()), before: None };
        let mut timeline = Timeline::of(range, BODY_BYTES_MAX);
        let (mut is_full, mut beyond) = (false, 0);
        let left = self.from(start, |event| {
            timeline.take(event);
            if !is_full && timeline.entries().len() >= PAGE_ENTRIES {
                is_full = true;
                timeline.end_before(Key { nth: u16::MAX, ..Key::recorded(event.at.clone()) });
            }
            beyond += usize::from(is_full);
            if is_full && (!timeline.has_open() || beyond > BEYOND_MAX) { Go::Stop } else { Go::On }
        })?;
        Ok((left != Left::Unwanted).then(|| Page { entries: timeline.into_entries(), is_last: left == Left::End }))
    }

    fn one(&self, key: &Key) -> io::Result<Option<Entry>> {
        let number = number_of(key);
        let before = Key { at: key.at.clone(), nth: key.nth.saturating_add(1) };
        let after = match key.nth.checked_sub(1) {
            Some(nth) => Some(Key { at: key.at.clone(), nth }),
            None => number.checked_sub(1).map(|number| Key { nth: u16::MAX, ..Key::recorded(place(number)) }),
        };
        let mut timeline = Timeline::of(Range { after, before: Some(before) }, FULL_BYTES_MAX);
        let mut beyond = 0;
        self.from(begin(self.time_of(number)?, BEGINS_BEFORE.first()), |event| {
            timeline.take(event);
            beyond += usize::from(event.at.offset > number);
            let is_over = event.at.offset > number && (!timeline.has_open() || beyond > BEYOND_MAX);
            if is_over { Go::Stop } else { Go::On }
        })?;
        Ok(timeline.into_entries().pop())
    }

    fn find(&self, matcher: &Matcher, from: &Key, way: Way) -> io::Result<Option<Option<(Key, Page)>>> {
        let number = number_of(from);
        let (range, starts): (Range, Vec<Start>) = match way {
            Way::Back => {
                let range = Range { after: None, before: Some(from.clone()) };
                (range, attempts(self.time_of(number)?).collect())
            }
            Way::Forward => {
                let range = Range { after: Some(from.clone()), before: None };
                (range, vec![begin(self.time_of(number)?, BEGINS_BEFORE.first())])
            }
        };
        for start in starts {
            let mut timeline = Timeline::of(range.clone(), BODY_BYTES_MAX).looking(matcher.clone());
            let left = self.from(start, |event| {
                timeline.take(event);
                let is_over = match way {
                    Way::Back => event.at.offset > number && !timeline.has_open(),
                    Way::Forward => timeline.has_match(),
                };
                if is_over { Go::Stop } else { Go::On }
            })?;
            if left == Left::Unwanted {
                return Ok(None);
            }
            let (first, last) = timeline.into_matches();
            let found = match way {
                Way::Back => last,
                Way::Forward => first,
            };
            if let Some(key) = found {
                let behind = Key { at: key.at.clone(), nth: key.nth.saturating_add(1) };
                return Ok(self.older(&behind, PAGE_ENTRIES)?.map(|page| Some((key, page))));
            }
        }
        Ok(Some(None))
    }
}
