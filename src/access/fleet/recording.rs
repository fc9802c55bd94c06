//! The timeline of a session on any host, from the events that the server has stored.
//!
//! A stream is read forwards only. To read backwards, a reader begins some time before the place in question, and earlier if that
//! is not enough. A read holds at most a window of entries, and stops once its view is gone. A search reads at most
//! [`SEARCHED_MAX`] events and says so.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, SystemTime};

use super::client::StoredEvent;
use super::feed::{Feed, place};
use super::stored::Start;
use crate::sessions::entry::{Entry, Happening, Key, Matcher, Spot};
use crate::sessions::news::{News, Page, Sought, Way};
use crate::sessions::poller::us;
use crate::sessions::reader::stretch::{Go, Left, Matched, Takes, first_match, last_match, newer, older, one};
use crate::sessions::reader::{Following, Gone, PAGE_ENTRIES, Teller};
use crate::sessions::source::Recorded;
use crate::sessions::timeline::{SessionEvent, Timeline};

/// How far before a place a read begins; at last with the first event.
const BEGINS_BEFORE: [Duration; 5] = [
    Duration::from_secs(10 * 60),
    Duration::from_secs(3_600),
    Duration::from_secs(6 * 3_600),
    Duration::from_secs(48 * 3_600),
    Duration::from_secs(14 * 24 * 3_600),
];

/// Most events read beyond a page to complete its open entries.
const BEYOND_MAX: usize = 5_000;

/// Most events that a search reads.
pub(super) const SEARCHED_MAX: u64 = 50_000;

/// Shortest time that a search is limited to, if more events than it may read are in a longer one.
const SEARCHED_TIME_MIN: Duration = Duration::from_secs(1);

/// Polling interval of new events.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// Pause after a failed read.
const AGAIN_AFTER: Duration = Duration::from_secs(5);

/// Reads a page of the stored events of a session.
pub(super) type ReadPage = Box<dyn Fn(&Start) -> Result<Vec<StoredEvent>, String> + Send>;

/// The stored events of a session.
pub(super) struct Recording {
    pub(super) read_page: ReadPage,
    /// Says what the host leaves out.
    pub(super) left_out: Option<&'static str>,
    /// Whether the view is still there.
    pub(super) wanted: Arc<AtomicBool>,
    /// Most events that a search reads at once.
    pub(super) searched_max: u64,
}

/// A message that the server has stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Placed {
    at: SystemTime,
    /// Number of messages of the session from here on.
    from_here: u64,
}

/// No limit on the events of a read.
const ALL: u64 = u64::MAX;

/// The number of a place among the stored messages.
fn number_of(key: &Key) -> u64 {
    match &key.at {
        Spot::Recorded(at) => at.offset,
        Spot::Kept(_) => 0,
    }
}

/// A start some time before `at`, or at the first event.
fn begin(at: SystemTime, before: Option<&Duration>) -> Start {
    let early = before.and_then(|before| at.checked_sub(*before));
    early.map_or(Start::After(0), Start::Time)
}

/// [`begin`] for each attempt; the last one has everything.
fn attempts(at: SystemTime) -> impl Iterator<Item = Start> {
    BEGINS_BEFORE.iter().map(Some).chain([None]).map(move |before| begin(at, before))
}

impl Recording {
    fn page(&self, start: &Start) -> io::Result<Vec<StoredEvent>> {
        (self.read_page)(start).map_err(io::Error::other)
    }

    /// The place of a message; the end of the stream for one that is not there.
    fn placed(&self, number: u64) -> io::Result<Placed> {
        let end = Placed { at: SystemTime::now(), from_here: 0 };
        if number > i64::MAX as u64 {
            return Ok(end);
        }
        let page = self.page(&Start::After(number.saturating_sub(1)))?;
        let at = page.first().and_then(|stored| stored.at).unwrap_or(end.at);
        Ok(Placed { at, from_here: count(&page) })
    }

    /// Number of messages from `start` on, before this place.
    fn count_before(&self, start: &Start, place: Placed) -> io::Result<u64> {
        Ok(count(&self.page(start)?).saturating_sub(place.from_here))
    }

    /// A beginning so long before a place, or less if there are more than `events_max` events in that time. The time that is `searched`
    /// already is not tried again.
    fn search_from(
        &self,
        place: Placed,
        before: Option<Duration>,
        searched: Duration,
        events_max: u64,
    ) -> io::Result<Begin> {
        let start = begin(place.at, before.as_ref());
        let events = self.count_before(&start, place)?;
        if events <= events_max {
            return Ok(Begin::AsWanted(start, events));
        }
        let longest = before.unwrap_or_else(|| place.at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default());
        let mut time = longest / 2;
        while time > searched.max(SEARCHED_TIME_MIN) && self.wanted.load(Ordering::Relaxed) {
            let start = begin(place.at, Some(&time));
            let events = self.count_before(&start, place)?;
            if events <= events_max {
                return Ok(Begin::Later(start, events));
            }
            time /= 2;
        }
        Ok(Begin::Nowhere)
    }

    /// The last match before a place.
    fn find_back(&self, matcher: &Matcher, from: &Key) -> io::Result<Matched> {
        let number = number_of(from);
        let placed = self.placed(number)?;
        let (mut searched, mut known) = (Duration::ZERO, 0);
        for before in BEGINS_BEFORE.into_iter().map(Some).chain([None]) {
            let (start, events, is_last) = match self.search_from(placed, before, searched, self.searched_max)? {
                Begin::AsWanted(start, events) => (start, events, false),
                Begin::Later(start, events) => (start, events, true),
                Begin::Nowhere => break,
            };
            let read = |takes: Takes<'_>| self.from(start, ALL, takes);
            let matched = last_match(matcher, from, &place(number), BEYOND_MAX, read)?;
            if matched != Matched::Nothing {
                return Ok(matched);
            }
            known = events;
            if is_last {
                return Ok(Matched::NothingAmong(known));
            }
            match before {
                Some(before) => searched = before,
                None => return Ok(Matched::Nothing),
            }
        }
        Ok(if self.wanted.load(Ordering::Relaxed) { Matched::NothingAmong(known) } else { Matched::Unwanted })
    }

    /// The first match after a place. The events before it by which the first ones are understood count too; if they are too many,
    /// the search begins later.
    fn find_forward(&self, matcher: &Matcher, from: &Key) -> io::Result<Matched> {
        let place = self.placed(number_of(from))?;
        let (before, before_max) = (BEGINS_BEFORE.first().copied(), self.searched_max / 2);
        let (start, before) = match self.search_from(place, before, Duration::ZERO, before_max)? {
            Begin::AsWanted(start, events) | Begin::Later(start, events) => (start, events),
            Begin::Nowhere => (Start::After(number_of(from).saturating_sub(1)), 0),
        };
        let read = |takes: Takes<'_>| self.from(start, self.searched_max, takes);
        Ok(match first_match(matcher, from, read)? {
            (Matched::Nothing, Left::Enough) => Matched::NothingAmong(self.searched_max.saturating_sub(before)),
            (matched, _) => matched,
        })
    }

    /// Reads events as long as `takes` accepts them, but not more than `events_max`.
    fn from(&self, start: Start, events_max: u64, takes: Takes<'_>) -> io::Result<Left> {
        let (mut start, mut feed, mut events) = (start, Feed::default(), Vec::new());
        let mut left = events_max;
        loop {
            if !self.wanted.load(Ordering::Relaxed) {
                return Ok(Left::Unwanted);
            }
            let page = self.page(&start)?;
            let Some(last) = page.last() else { return Ok(Left::End) };
            start = Start::After(last.number);
            for stored in &page {
                let Some(less) = left.checked_sub(1) else { return Ok(Left::Enough) };
                left = less;
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
        let (mut feed, mut start) = loop {
            match self.restored(ended) {
                Ok(Some((feed, start, timeline))) => {
                    teller.tell(News::Restored { epoch, timeline: Box::new(timeline) })?;
                    break (feed, start);
                }
                Ok(None) => return Ok(()),
                Err(error) => failed(&error, teller)?,
            }
            if is_over(ended, AGAIN_AFTER) {
                return Ok(());
            }
        };
        loop {
            let mut events = Vec::new();
            let wait = match self.read_on(&mut start, &mut feed, &mut events) {
                Ok(true) => Duration::ZERO,
                Ok(false) => LOOK_EVERY,
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

    /// Reads a page and goes behind it. Returns whether there may be more messages.
    fn read_on(&self, start: &mut Start, feed: &mut Feed, events: &mut Vec<SessionEvent>) -> io::Result<bool> {
        let page = self.page(start)?;
        page.iter().for_each(|stored| feed_with(feed, stored, events));
        page.last().into_iter().for_each(|last| *start = Start::After(last.number));
        Ok(!page.is_empty())
    }

    /// The last entries, the place behind the last message, and the state there; `None` if the view is gone.
    fn restored(&self, ended: &Receiver<()>) -> io::Result<Option<(Feed, Start, Timeline)>> {
        let now = SystemTime::now();
        for mut start in attempts(now) {
            let is_whole = start == Start::After(0);
            let (mut feed, mut timeline, mut events) = (Feed::default(), Timeline::default(), Vec::new());
            loop {
                if is_over(ended, Duration::ZERO) {
                    return Ok(None);
                }
                if !self.read_on(&mut start, &mut feed, &mut events)? {
                    break;
                }
                events.drain(..).for_each(|event| timeline.take(&event));
            }
            if timeline.entries().len() < PAGE_ENTRIES && !is_whole {
                continue;
            }
            timeline.has_older |= !is_whole;
            let last = if let Start::After(number) = start { number } else { 0 };
            if let Some(left_out) = self.left_out {
                let what = Happening::Gap { lines: 0, reason: left_out.to_owned() };
                timeline.take(&SessionEvent { at: place(last), at_us: us(now), what });
            }
            return Ok(Some((feed, Start::After(last), timeline)));
        }
        unreachable!("BUG: the last attempt has everything")
    }
}

/// The start of a search, and the number of events from there on.
enum Begin {
    AsWanted(Start, u64),
    /// There are too many events after the wanted start.
    Later(Start, u64),
    Nowhere,
}

/// Number of messages of a page and behind it.
fn count(page: &[StoredEvent]) -> u64 {
    page.last().map_or(0, |last| last.more.saturating_add(page.len() as u64))
}

fn feed_with(feed: &mut Feed, stored: &StoredEvent, events: &mut Vec<SessionEvent>) {
    if let Some(message) = &stored.message {
        feed.take((stored.number, stored.at.map(us).unwrap_or_default()), message, events);
    }
}

fn failed(error: &io::Error, teller: &Teller) -> Result<(), Gone> {
    teller.tell(News::Unreadable(format!("read the events of the fleet: {error}; trying again")))
}

/// Pauses, then returns whether the view is gone.
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
        for start in attempts(self.placed(number)?.at) {
            let is_whole = start == Start::After(0);
            let read = |takes: Takes<'_>| self.from(start, ALL, takes);
            let Some((mut entries, has_older)) = older(before, &place(number), BEYOND_MAX, read)? else {
                return Ok(None);
            };
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
            // Entries that begin here depend on earlier events.
            number => begin(self.placed(number)?.at, BEGINS_BEFORE.first()),
        };
        let after = (number > 0).then(|| after.clone());
        newer(after, BEYOND_MAX, |takes| self.from(start, ALL, takes))
    }

    fn one(&self, key: &Key) -> io::Result<Option<Entry>> {
        let number = number_of(key);
        let start = begin(self.placed(number)?.at, BEGINS_BEFORE.first());
        one(key, &place(number), BEYOND_MAX, |takes| self.from(start, ALL, takes))
    }

    fn find(&self, matcher: &Matcher, from: &Key, way: Way) -> io::Result<Option<Sought>> {
        let matched = match way {
            Way::Back => self.find_back(matcher, from)?,
            Way::Forward => self.find_forward(matcher, from)?,
        };
        matched.with_page(|key, count| self.older(key, count))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use serde_json::value::RawValue;

    use serde_json::json;

    use super::super::wire::EventMessage;
    use super::*;

    /// Messages of a page.
    const PAGE: u64 = 256;

    /// Events of a search in these tests.
    const SEARCHED: u64 = 5_000;

    /// Message `number` of so many, which come each second until now.
    fn message(number: u64, count: u64, now: SystemTime) -> StoredEvent {
        let stored_at = now - Duration::from_secs(count - number);
        let at = humantime::format_rfc3339(stored_at).to_string();
        let item = json!({ "type": "agentMessage", "id": format!("m{number}"), "text": format!("says {number}") });
        let event = json!({ "event_type": "item/completed", "generation": "0123456789ab", "timestamp": at, "thread_id": "t",
            "payload_preview": { "threadId": "t", "turnId": "u", "item": item } });
        let event = RawValue::from_string(event.to_string()).ok();
        let (host, session, epoch) = ("h".to_owned(), "s".to_owned(), "e".to_owned());
        let message = Some(EventMessage { v: 1, host, session, epoch, seq: number, event, gap: None });
        StoredEvent { number, at: Some(stored_at), message, more: count - number }
    }

    /// A session with so many events, and the number of its pages that were read. Before each page, `looks` is called.
    fn recording(count: u64, looks: impl Fn(u64) + Send + 'static) -> (Recording, Arc<Mutex<u64>>) {
        let (now, read) = (SystemTime::now(), Arc::new(Mutex::new(0)));
        let own = Arc::clone(&read);
        let read_page: ReadPage = Box::new(move |start| {
            let mut read = own.lock().expect("no thread panics with it");
            *read += 1;
            looks(*read);
            let first = match start {
                Start::After(number) => number + 1,
                Start::Time(at) => {
                    let ago = now.duration_since(*at).unwrap_or_default();
                    count.saturating_sub(ago.as_secs()).max(1)
                }
            };
            Ok((first..=count.min(first + PAGE - 1)).map(|number| message(number, count, now)).collect())
        });
        (Recording { read_page, left_out: None, wanted: Arc::new(AtomicBool::new(true)), searched_max: SEARCHED }, read)
    }

    fn matcher(text: &str) -> Matcher {
        Matcher { text: Some(text.to_owned()), ..Matcher::default() }
    }

    #[test]
    fn follower_that_nobody_hears_reads_no_further() {
        let (ends, ended) = sync_channel::<()>(1);
        let ends = Mutex::new(Some(ends));
        // The view is closed while the third page is read.
        let looks = move |page| {
            if page == 3 {
                ends.lock().expect("no thread panics with it").take();
            }
        };
        let (recording, read) = recording(1_000_000, looks);
        let (events, _happened) = sync_channel(4);
        recording.follow_until(0, &Teller::of(events), &ended).expect("nobody is told anything");
        assert_eq!(*read.lock().expect("no thread panics with it"), 3);
    }

    #[test]
    fn search_is_bounded_and_says_so() {
        let count = 4 * SEARCHED;
        let (recording, read) = recording(count, |_| ());
        let end = Key::recorded(place(u64::MAX));
        let find = |text: &str, from: &Key, way| {
            recording.find(&matcher(text), from, way).expect("it reads").expect("it is wanted")
        };
        let Sought::NothingAmong(events) = find("nowhere", &end, Way::Back) else { panic!("it has an end") };
        assert!((SEARCHED / 4..=SEARCHED).contains(&events), "{events}");
        let pages = *read.lock().expect("no thread panics with it");
        assert!(pages < 3 * SEARCHED / PAGE, "{pages}");
        let near = format!("says {}", count - 1_000);
        let Sought::At(key, page) = find(&near, &end, Way::Back) else { panic!("it is near") };
        assert!(number_of(&key) == count - 1_000 && page.entries.iter().any(|entry| entry.key == key));
        let start = Key::recorded(place(1));
        assert!(matches!(find("nowhere", &start, Way::Forward), Sought::NothingAmong(SEARCHED)));
    }

    #[test]
    fn search_forwards_counts_events_before_its_place() {
        let check = |searched_max: u64, expect: std::ops::RangeInclusive<u64>| {
            let (mut recording, read) = recording(4 * SEARCHED, |_| ());
            recording.searched_max = searched_max;
            let from = Key::recorded(place(2 * SEARCHED));
            let found =
                recording.find(&matcher("nowhere"), &from, Way::Forward).expect("it reads").expect("it is wanted");
            let Sought::NothingAmong(events) = found else { panic!("{found:?}") };
            assert!(expect.contains(&events), "{events}");
            // Some pages only count.
            let pages = *read.lock().expect("no thread panics with it");
            assert!(pages <= searched_max / PAGE + 5, "{pages}");
        };
        // 10 minutes have 600 events.
        check(5_000, 4_390..=4_410);
        // Fewer are read if they would leave nothing for the search.
        check(512, 256..=511);
    }

    #[test]
    fn short_session_is_searched_to_its_start() {
        let (recording, _) = recording(1_000, |_| ());
        let end = Key::recorded(place(u64::MAX));
        let find =
            |text: &str| recording.find(&matcher(text), &end, Way::Back).expect("it reads").expect("it is wanted");
        assert!(matches!(find("nowhere"), Sought::Nothing));
        assert!(matches!(find("says 7"), Sought::At(key, _) if number_of(&key) > 0));
        recording.wanted.store(false, Ordering::Relaxed);
        assert!(recording.find(&matcher("says 7"), &end, Way::Back).expect("it reads").is_none());
    }
}
