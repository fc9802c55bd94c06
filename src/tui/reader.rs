//! Reads a session's journal for the timeline: its end, and what is appended to it, and what stands further back.
//!
//! Two threads: one follows the journal and says what happens, one reads what somebody scrolls or searches to. Both read the
//! files with the fold of `mode=ui`, always from the start of a segment on, since what is told of a record depends on those
//! before it. Neither holds more than a window of entries.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use serde_json::{Value, json};

use super::entry::{BODY_BYTES_MAX, Entry, Key, Matcher};
use super::model::{Command, Event, News, Page, Way};
use super::timeline::{Heard, Range, Timeline};
use crate::history::{Happening, Seen, UiFold};
use crate::index::{Follower, Next, Patience};
use crate::journal::{Position, Record, SegmentName};

/// How soon the journal is looked at again.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// After how long without a record none can come that replaces the one before.
const SILENCE: Duration = Duration::from_millis(250);

/// What of the journal is read at first, in bytes, if its segments are small.
const AT_FIRST_BYTES: u64 = 4 << 20;

/// Events that are told at once.
const BATCH_MAX: usize = 256;

/// Entries of a page.
const PAGE_ENTRIES: usize = 300;

/// Longest text of an entry that is shown in full, in bytes.
const FULL_BYTES_MAX: usize = 1 << 20;

/// Records that are read beyond a page, for the sake of what is still open in it.
const BEYOND_MAX: usize = 20_000;

/// How often a reader looks whether it is still wanted, in records.
const LOOK_EVERY: usize = 1_024;

/// Where to tell what was read.
#[derive(Debug, Clone)]
pub(super) struct Teller {
    pub(super) events: SyncSender<Event>,
    pub(super) attachment: u64,
}

/// Nobody listens any more.
pub(super) struct Gone;

impl Teller {
    pub(super) fn tell(&self, news: News) -> Result<(), Gone> {
        self.events.send(Event::Of(self.attachment, news)).map_err(|_| Gone)
    }
}

/// A thread that goes on until this is dropped.
#[derive(Debug)]
pub(super) struct Following {
    _ends: SyncSender<()>,
}

/// Follows the journal from its end on.
pub(super) fn follow(journal_dir: &Path, epoch: u64, teller: Teller) -> io::Result<Following> {
    let (ends, ended) = sync_channel(1);
    let dir = journal_dir.to_owned();
    std::thread::Builder::new().name("follow".to_owned()).spawn(move || {
        let _ = follow_until(&dir, epoch, &teller, &ended);
    })?;
    Ok(Following { _ends: ends })
}

fn follow_until(dir: &Path, epoch: u64, teller: &Teller, ended: &Receiver<()>) -> Result<(), Gone> {
    let start = start_of_end(dir);
    let has_older = start.as_ref().is_some_and(|start| segments(dir).first() != Some(&start.segment));
    let mut source = Source::new(Follower::new(dir, start));
    let mut restored = Some(Timeline::default());
    let mut batch = Vec::new();
    let mut silent_for = Duration::ZERO;
    let mut read = 0_usize;
    loop {
        let patience = if silent_for >= SILENCE { Patience::None } else { Patience::Some };
        read += 1;
        if read.is_multiple_of(LOOK_EVERY) && ended.try_recv() == Err(std::sync::mpsc::TryRecvError::Disconnected) {
            return Ok(());
        }
        match source.next(patience, &mut batch) {
            Ok(Came::Record(_)) => {
                silent_for = Duration::ZERO;
                match &mut restored {
                    Some(timeline) => batch.drain(..).for_each(|heard| timeline.take(&heard)),
                    None if batch.len() >= BATCH_MAX => {
                        teller.tell(News::Heard { epoch, heard: std::mem::take(&mut batch) })?;
                    }
                    None => {}
                }
            }
            Ok(Came::Nothing) => {
                if let Some(mut timeline) = restored.take() {
                    timeline.has_older |= has_older;
                    teller.tell(News::Restored { epoch, timeline: Box::new(timeline) })?;
                }
                if !batch.is_empty() {
                    teller.tell(News::Heard { epoch, heard: std::mem::take(&mut batch) })?;
                }
                match ended.recv_timeout(LOOK_AGAIN_AFTER) {
                    Err(RecvTimeoutError::Timeout) => silent_for = (silent_for + LOOK_AGAIN_AFTER).min(SILENCE),
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                }
            }
            Err(error) => {
                teller.tell(News::Unreadable(format!("read the journal: {error}")))?;
                // Whatever it was may be over later; who looks is told again each time it is not.
                if let Ok(()) | Err(RecvTimeoutError::Disconnected) = ended.recv_timeout(Duration::from_secs(5)) {
                    return Ok(());
                }
            }
        }
    }
}

fn segments(dir: &Path) -> Vec<SegmentName> {
    SegmentName::list(dir).unwrap_or_default()
}

/// Where to begin, so that the window is likely to be full.
fn start_of_end(dir: &Path) -> Option<Position> {
    let mut bytes = 0;
    let mut start = None;
    for segment in segments(dir).into_iter().rev() {
        bytes += std::fs::metadata(dir.join(segment.to_string())).map_or(0, |file| file.len());
        start = Some(Position { segment, offset: 0 });
        if bytes >= AT_FIRST_BYTES {
            break;
        }
    }
    start
}

/// What came of looking for the next record.
enum Came {
    /// One, which began here.
    Record(Position),
    /// None yet.
    Nothing,
}

/// The events that records lead to.
struct Source {
    follower: Follower,
    ui: UiFold,
    generation: Option<String>,
}

impl Source {
    fn new(follower: Follower) -> Source {
        Source { follower, ui: UiFold::default(), generation: None }
    }

    /// Reads a record, and appends what it tells.
    fn next(&mut self, patience: Patience, heard: &mut Vec<Heard>) -> io::Result<Came> {
        let (at, bytes, successor) = match self.follower.next(patience)? {
            Next::Record { at, bytes, successor } => (at, bytes, successor),
            Next::Lost { at } => {
                let told =
                    json!({ "type": "gap", "lines": 0, "reason": "a part of the journal was removed meanwhile" });
                heard.push(Heard { at: at.clone(), at_us: 0, told });
                return Ok(Came::Record(at));
            }
            Next::End => return Ok(Came::Nothing),
        };
        let Ok(record) = Record::parse(bytes) else { return Ok(Came::Record(at)) };
        let successor = successor.and_then(|bytes| Record::parse(bytes).ok());
        let seen = Seen::of(&record, successor.as_ref().and_then(Record::line_bytes));
        let at_us = seen.at_us;
        let mut told = Vec::new();
        self.ui.take(&seen, &mut told);
        // The journal tells more than a client needs.
        match &seen.happening {
            Happening::Generation(generation) if self.generation.as_ref() != Some(generation) => {
                let begins = json!({ "type": "run", "generation": generation });
                self.generation = Some(generation.clone());
                if at.segment.number == 1 {
                    heard.push(Heard { at: at.clone(), at_us, told: begins });
                }
            }
            Happening::Gap { lines, reason } => {
                let gap = json!({ "type": "gap", "lines": lines, "reason": reason });
                heard.push(Heard { at: at.clone(), at_us, told: gap });
            }
            Happening::Generation(_)
            | Happening::Told(_)
            | Happening::Asked { .. }
            | Happening::Called { .. }
            | Happening::Answered { .. }
            | Happening::Ours { .. }
            | Happening::Other => {}
        }
        heard.extend(told.into_iter().map(|event| Heard {
            at: at.clone(),
            at_us,
            told: serde_json::from_str(&event.json).unwrap_or(Value::Null),
        }));
        Ok(Came::Record(at))
    }
}

/// What reads pages: one thing at a time, and only the last that was asked for by the last session.
#[derive(Debug)]
pub(super) struct Pages {
    jobs: SyncSender<Job>,
    wanted: Arc<AtomicU64>,
    dir: PathBuf,
}

#[derive(Debug)]
struct Job {
    number: u64,
    command: Command,
}

/// The thread that reads pages, for as long as a session is attached to.
struct Shelf {
    dir: PathBuf,
    wanted: Arc<AtomicU64>,
    number: u64,
}

impl Pages {
    pub(super) fn start(journal_dir: &Path, teller: Teller) -> io::Result<Pages> {
        let (jobs, taken) = sync_channel::<Job>(4);
        let wanted = Arc::new(AtomicU64::new(0));
        let mut shelf = Shelf { dir: journal_dir.to_owned(), wanted: Arc::clone(&wanted), number: 0 };
        std::thread::Builder::new().name("pages".to_owned()).spawn(move || {
            while let Ok(Job { number, command }) = taken.recv() {
                shelf.number = number;
                let news = match shelf.read(&command) {
                    Ok(Some(news)) => news,
                    Ok(None) => continue,
                    Err(error) => News::Unreadable(format!("read the journal: {error}")),
                };
                if teller.tell(news).is_err() {
                    return;
                }
            }
        })?;
        Ok(Pages { jobs, wanted, dir: journal_dir.to_owned() })
    }

    /// Reads something. What was asked for before and has not been read yet may be left.
    pub(super) fn read(&self, command: Command) {
        let number = self.wanted.fetch_add(1, Ordering::Relaxed) + 1;
        // Where so much waits that there is no room, nobody waits for this one.
        let _ = self.jobs.try_send(Job { number, command });
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.wanted.store(u64::MAX, Ordering::Relaxed);
    }
}

/// What a reader wants after a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Go {
    On,
    Stop,
}

/// Why a segment was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// It was read to its end.
    End,
    /// That was enough.
    Enough,
    /// Nobody wants it any more.
    Unwanted,
}

impl Shelf {
    fn read(&self, command: &Command) -> io::Result<Option<News>> {
        Ok(match command {
            Command::ReadOlder(key) => self.older(key, PAGE_ENTRIES)?.map(News::Older),
            Command::ReadNewer(key) => self.newer(key)?.map(News::Newer),
            Command::Open(key) => self.one(key)?.map(|entry| News::Opened(Some(Box::new(entry)))),
            Command::Find { matcher, from, way } => self.find(matcher, from, *way)?.map(News::Found),
            Command::Quit
            | Command::Suspend
            | Command::Retake
            | Command::List
            | Command::Attach { .. }
            | Command::Look
            | Command::Follow { .. }
            | Command::Respond { .. }
            | Command::Say(_)
            | Command::Interrupt
            | Command::Copy(_) => None,
        })
    }

    fn is_wanted(&self) -> bool {
        // A later number comes from the same user, who has moved on only where the session was left.
        self.wanted.load(Ordering::Relaxed) != u64::MAX
    }

    /// Reads segments from the start of one on, as long as `takes` wants it.
    fn from(&self, segment: &SegmentName, stays: Stays, mut takes: impl FnMut(&Heard) -> Go) -> io::Result<Left> {
        let start = Position { segment: segment.clone(), offset: 0 };
        let mut source = Source::new(Follower::new(&self.dir, Some(start)));
        let mut heard = Vec::new();
        let mut read = 0_usize;
        loop {
            read += 1;
            if read.is_multiple_of(LOOK_EVERY) && !self.is_wanted() {
                return Ok(Left::Unwanted);
            }
            match source.next(Patience::None, &mut heard)? {
                Came::Nothing => return Ok(Left::End),
                Came::Record(at) if stays == Stays::InSegment && at.segment != *segment => return Ok(Left::End),
                Came::Record(_) => {}
            }
            for one in heard.drain(..) {
                if takes(&one) == Go::Stop {
                    return Ok(Left::Enough);
                }
            }
        }
    }

    /// The entries in front of one.
    fn older(&self, before: &Key, count: usize) -> io::Result<Option<Page>> {
        let mut found: Vec<Entry> = Vec::new();
        let all = segments(&self.dir);
        let mut is_last = true;
        for segment in all.iter().filter(|segment| **segment <= before.at.segment).rev() {
            if found.len() >= count {
                is_last = false;
                break;
            }
            let range = Range { after: None, before: Some(before.clone()) };
            let mut timeline = Timeline::of(range, BODY_BYTES_MAX);
            let mut beyond = 0;
            let left = self.from(segment, Stays::InSegment, |heard| {
                timeline.take(heard);
                beyond += usize::from(heard.at >= before.at);
                let is_over = heard.at >= before.at && (!timeline.has_open() || beyond > BEYOND_MAX);
                if is_over { Go::Stop } else { Go::On }
            })?;
            if left == Left::Unwanted {
                return Ok(None);
            }
            is_last &= !timeline.has_older;
            let mut entries = timeline.into_entries();
            entries.append(&mut found);
            found = entries;
        }
        let too_many = found.len().saturating_sub(count);
        found.drain(..too_many);
        Ok(Some(Page { entries: found, is_last: is_last && too_many == 0 }))
    }

    /// The entries behind one.
    fn newer(&self, after: &Key) -> io::Result<Option<Page>> {
        let range = Range { after: Some(after.clone()), before: None };
        let mut timeline = Timeline::of(range, BODY_BYTES_MAX);
        let (mut is_full, mut beyond) = (false, 0);
        let left = self.from(&after.at.segment, Stays::Nowhere, |heard| {
            timeline.take(heard);
            if !is_full && timeline.entries().len() >= PAGE_ENTRIES {
                is_full = true;
                timeline.end_before(Key { at: heard.at.clone(), nth: u16::MAX });
            }
            beyond += usize::from(is_full);
            if is_full && (!timeline.has_open() || beyond > BEYOND_MAX) { Go::Stop } else { Go::On }
        })?;
        Ok((left != Left::Unwanted).then(|| Page { entries: timeline.into_entries(), is_last: left == Left::End }))
    }

    /// One in full.
    fn one(&self, key: &Key) -> io::Result<Option<Entry>> {
        let before = Key { at: key.at.clone(), nth: key.nth.saturating_add(1) };
        // In front of the first record of a segment stands nothing that would be read here.
        let segment = || key.at.segment.clone();
        let after = match key.nth.checked_sub(1) {
            Some(nth) => Some(Key { at: key.at.clone(), nth }),
            None => key
                .at
                .offset
                .checked_sub(1)
                .map(|offset| Key { at: Position { segment: segment(), offset }, nth: u16::MAX }),
        };
        let mut timeline = Timeline::of(Range { after, before: Some(before) }, FULL_BYTES_MAX);
        self.from(&key.at.segment, Stays::Nowhere, |heard| {
            timeline.take(heard);
            let is_over = heard.at > key.at && !timeline.has_open();
            if is_over { Go::Stop } else { Go::On }
        })?;
        Ok(timeline.into_entries().pop())
    }

    /// The next entry that is looked for, with those around it.
    fn find(&self, matcher: &Matcher, from: &Key, way: Way) -> io::Result<Option<Option<(Key, Page)>>> {
        let all = segments(&self.dir);
        let key = match way {
            Way::Back => {
                let mut found = None;
                for segment in all.iter().filter(|segment| **segment <= from.at.segment).rev() {
                    match self.last_match(segment, matcher, from)? {
                        Matched::Unwanted => return Ok(None),
                        Matched::Nothing => {}
                        Matched::At(key) => {
                            found = Some(key);
                            break;
                        }
                    }
                }
                found
            }
            Way::Forward => {
                let mut found = None;
                for segment in all.iter().filter(|segment| **segment >= from.at.segment) {
                    match self.first_match(segment, matcher, from)? {
                        Matched::Unwanted => return Ok(None),
                        Matched::Nothing => {}
                        Matched::At(key) => {
                            found = Some(key);
                            break;
                        }
                    }
                }
                found
            }
        };
        let Some(key) = key else { return Ok(Some(None)) };
        let behind = Key { at: key.at.clone(), nth: key.nth.saturating_add(1) };
        Ok(self.older(&behind, PAGE_ENTRIES)?.map(|page| Some((key, page))))
    }

    fn last_match(&self, segment: &SegmentName, matcher: &Matcher, before: &Key) -> io::Result<Matched> {
        let range = Range { after: None, before: Some(before.clone()) };
        let mut timeline = Timeline::of(range, BODY_BYTES_MAX).looking(matcher.clone());
        let left = self.from(segment, Stays::InSegment, |heard| {
            timeline.take(heard);
            if heard.at > before.at && !timeline.has_open() { Go::Stop } else { Go::On }
        })?;
        Ok(match (left, timeline.into_matches().1) {
            (Left::Unwanted, _) => Matched::Unwanted,
            (_, Some(key)) => Matched::At(key),
            (_, None) => Matched::Nothing,
        })
    }

    fn first_match(&self, segment: &SegmentName, matcher: &Matcher, after: &Key) -> io::Result<Matched> {
        let range = Range { after: Some(after.clone()), before: None };
        let mut timeline = Timeline::of(range, BODY_BYTES_MAX).looking(matcher.clone());
        let left = self.from(segment, Stays::InSegment, |heard| {
            timeline.take(heard);
            if timeline.has_match() { Go::Stop } else { Go::On }
        })?;
        Ok(match (left, timeline.into_matches().0) {
            (Left::Unwanted, _) => Matched::Unwanted,
            (_, Some(key)) => Matched::At(key),
            (_, None) => Matched::Nothing,
        })
    }
}

/// Whether a reader goes on to the next segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stays {
    InSegment,
    Nowhere,
}

enum Matched {
    At(Key),
    Nothing,
    Unwanted,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A journal of a recorded conversation and, in two more segments, of messages; and one who reads it.
    fn journal() -> (tempfile::TempDir, Shelf) {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let tape = include_str!("../../fixtures/tapes/command_approval.jsonl");
        std::fs::write(dir.path().join("000000000001-001.jsonl"), tape).expect("a file");
        for segment in 1..=2_u64 {
            let header = r#"{"journal":1,"session":"s","generation":"000000000002","segment":N,"at":1,"argv":[],"cwd":"/","codex":{"path":"x"},"shim":"0"}"#;
            let mut text = format!("{}\n", header.replace('N', &segment.to_string()));
            for number in 0..400 {
                let number = segment * 1_000 + number;
                let item = format!(
                    r#"{{"id":"i{number}","type":"userMessage","content":[{{"type":"text","text":"m{number}"}}]}}"#
                );
                let params = format!(r#"{{"threadId":"t","turnId":"u","item":{item}}}"#);
                text.push_str(&format!("{{\"at\":{number},\"from\":\"server\",\"line\":{{\"method\":\"item/completed\",\"params\":{params}}}}}\n"));
            }
            text.push_str("{\"at\":9000,\"gap\":{\"lines\":2,\"reason\":\"disk full\"}}\n");
            std::fs::write(dir.path().join(format!("000000000002-00{segment}.jsonl")), text).expect("a file");
        }
        let shelf = Shelf { dir: dir.path().to_owned(), wanted: Arc::new(AtomicU64::new(0)), number: 0 };
        (dir, shelf)
    }

    /// What stands at the end, as whoever attaches sees it.
    fn restored(dir: &Path) -> Timeline {
        let (events, happened) = sync_channel(4);
        let _following = follow(dir, 0, Teller { events, attachment: 1 }).expect("a thread");
        match happened.recv_timeout(Duration::from_secs(20)) {
            Ok(Event::Of(1, News::Restored { epoch: 0, timeline })) => *timeline,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn pages_fit_together_without_a_hole_and_without_a_double() {
        let (dir, shelf) = journal();
        let all: Vec<Entry> = restored(dir.path()).into_entries();
        assert!(
            all.len() > 800 && !all.iter().any(|entry| entry.kind == super::super::entry::Kind::Error),
            "{}",
            all.len()
        );
        let mut found: Vec<Entry> = Vec::new();
        let mut before = Key { at: all[all.len() - 1].key.at.clone(), nth: u16::MAX };
        loop {
            let page = shelf.older(&before, 300).expect("it can be read").expect("it is wanted");
            before = page.entries.first().map_or(before, |entry| entry.key.clone());
            found.splice(0..0, page.entries);
            if page.is_last {
                break;
            }
        }
        assert_eq!(found, all);
        let mut forward = all[..1].to_vec();
        loop {
            let page = shelf.newer(&forward[forward.len() - 1].key).expect("it can be read").expect("it is wanted");
            forward.extend(page.entries);
            if page.is_last {
                break;
            }
        }
        assert_eq!(forward, all);
        for entry in all.iter().step_by(97) {
            assert_eq!(shelf.one(&entry.key).expect("it can be read").as_ref(), Some(entry));
        }
    }

    #[test]
    fn what_is_far_back_is_found() {
        let (dir, shelf) = journal();
        let all: Vec<Entry> = restored(dir.path()).into_entries();
        let (first, last) = (&all[0].key, &all[all.len() - 1].key);
        let find = |text: &str, from: &Key, way| {
            let matcher = Matcher { text: Some(text.to_owned()), ..Matcher::default() };
            let found = shelf.find(&matcher, from, way).expect("it can be read").expect("it is wanted")?;
            let entry = found.1.entries.iter().find(|entry| entry.key == found.0).cloned();
            Some(
                entry.expect("it is on its page").title
                    + &found.1.entries.last().map_or(String::new(), |last| last.body.clone()),
            )
        };
        assert_eq!(find("m1007", last, Way::Back).as_deref(), Some("m1007"));
        assert_eq!(find("m2", first, Way::Forward).as_deref(), Some("m2000"));
        assert!(find("echo relayed", last, Way::Back).is_some());
        assert_eq!(find("nowhere", last, Way::Back), None);
    }
}
