//! Reads a session's recording for the timeline: the end of its journal, new records, and older entries, including those from
//! before the journal.
//!
//! Two threads: one follows the journal and reports events; the other reads the pages that the user scrolls or searches to
//! ([`Pages`]). Both read the journal's files with the fold behind `mode=ui` ([`Source`]), always from the start of a segment,
//! because the meaning of a record depends on earlier ones. Entries older than the first record come from the history, which is
//! kept for longer ([`kept`]). Neither thread holds more than a window of entries or writes anything.

mod kept;
mod pager;
pub mod stretch;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::io::{BufRead as _, Read as _, Seek as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use crate::files;
use crate::files::Access;
use crate::history::{RecordEvent, Seen, UiEvent, UiFold};
use crate::index::{Follower, HISTORY_FILE, History, Next, Patience, shown_line};
use crate::journal::{Position, Record, SegmentName};
use crate::protocol::ThreadKind;
use crate::sessions::entry::Happening;
use crate::sessions::news::News;
use crate::sessions::timeline::{SessionEvent, Timeline};
use kept::Kept;
pub use kept::PAGE_ENTRIES;
pub use pager::Pager;
pub use pager::Pages;

/// Polling interval of the journal.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// After this long without a record, no later one can replace the one before.
const SILENCE: Duration = Duration::from_millis(250);

/// Bytes of the journal that are read at first, if its segments are small.
const AT_FIRST_BYTES: u64 = 4 << 20;

/// If more than this must be read, the end is shown first, in bytes.
const LONG_BYTES: u64 = 2 * AT_FIRST_BYTES;

/// Bytes at the end that are shown first.
const GLANCE_BYTES: u64 = 512 << 10;

/// Most events per message.
const BATCH_MAX: usize = 256;

/// Records between two checks for cancellation.
const LOOK_EVERY: usize = 1_024;

/// Sends news of a session to whoever looks at it.
#[derive(Clone)]
pub struct Teller(Arc<dyn Fn(News) -> Result<(), Gone> + Send + Sync>);

/// The receiver is gone.
#[derive(Debug)]
pub struct Gone;

impl Teller {
    pub fn new(send: impl Fn(News) -> Result<(), Gone> + Send + Sync + 'static) -> Teller {
        Teller(Arc::new(send))
    }

    /// Tells a channel.
    pub fn of(news: SyncSender<News>) -> Teller {
        Teller::new(move |one| news.send(one).map_err(|_| Gone))
    }

    pub fn tell(&self, news: News) -> Result<(), Gone> {
        (self.0)(news)
    }
}

impl fmt::Debug for Teller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Teller")
    }
}

/// A thread that ends when this is dropped.
#[derive(Debug)]
pub struct Following {
    _ends: SyncSender<()>,
}

impl Following {
    /// A thread that ends once nothing can be sent to `ends` any more.
    pub fn of(ends: SyncSender<()>) -> Following {
        Following { _ends: ends }
    }
}

/// Follows the journal of a session folder from its end.
pub fn follow(session_dir: &Path, epoch: u64, teller: Teller) -> io::Result<Following> {
    let (ends, ended) = sync_channel(1);
    let dir = session_dir.to_owned();
    std::thread::Builder::new().name("follow".to_owned()).spawn(move || {
        let _ = follow_until(&dir, epoch, &teller, &ended);
    })?;
    Ok(Following { _ends: ends })
}

fn follow_until(session_dir: &Path, epoch: u64, teller: &Teller, ended: &Receiver<()>) -> Result<(), Gone> {
    let dir = &journal_dir(session_dir);
    let start = start_of_end(dir);
    let is_first = start.as_ref().is_none_or(|start| segments(dir).first() == Some(&start.segment));
    let has_older = !is_first || Kept::of(session_dir).has_any();
    if let Some(timeline) = glance(session_dir, start.as_ref()) {
        teller.tell(News::Glanced(epoch, Box::new(timeline)))?;
    }
    let mut source = Source::new(session_dir, start);
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
            Ok(NextRecord::Record(_)) => {
                silent_for = Duration::ZERO;
                match &mut restored {
                    Some(timeline) => batch.drain(..).for_each(|event| timeline.take(&event)),
                    None if batch.len() >= BATCH_MAX => {
                        teller.tell(News::Events { epoch, events: std::mem::take(&mut batch) })?;
                    }
                    None => {}
                }
            }
            Ok(NextRecord::Nothing) => {
                if let Some(mut timeline) = restored.take() {
                    timeline.has_older |= has_older;
                    teller.tell(News::Restored { epoch, timeline: Box::new(timeline) })?;
                }
                if !batch.is_empty() {
                    teller.tell(News::Events { epoch, events: std::mem::take(&mut batch) })?;
                }
                match ended.recv_timeout(LOOK_AGAIN_AFTER) {
                    Err(RecvTimeoutError::Timeout) => silent_for = (silent_for + LOOK_AGAIN_AFTER).min(SILENCE),
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                }
            }
            Err(error) => {
                teller.tell(News::Unreadable(format!("read the journal: {error}")))?;
                // The error may be temporary: the read is retried, and a repeated error is reported again.
                if let Ok(()) | Err(RecvTimeoutError::Disconnected) = ended.recv_timeout(Duration::from_secs(5)) {
                    return Ok(());
                }
            }
        }
    }
}

/// The end of a long journal, as far as it can be understood without the part from `start` to there; `None` if the journal is
/// short or shows nothing.
fn glance(session_dir: &Path, start: Option<&Position>) -> Option<Timeline> {
    let dir = &journal_dir(session_dir);
    let from_start = segments(dir).into_iter().filter(|segment| start.is_none_or(|start| *segment >= start.segment));
    let bytes_of =
        |segment: &SegmentName| std::fs::metadata(dir.join(segment.to_string())).map_or(0, |file| file.len());
    let sized: Vec<(SegmentName, u64)> = from_start.map(|segment| (segment.clone(), bytes_of(&segment))).collect();
    if sized.iter().map(|(_, bytes)| bytes).sum::<u64>() <= LONG_BYTES {
        return None;
    }
    let (segment, end) = sized.into_iter().next_back()?;
    let offset = record_behind(&dir.join(segment.to_string()), end.saturating_sub(GLANCE_BYTES)).ok()?;
    let mut source = Source::new(session_dir, Some(Position { segment: segment.clone(), offset }));
    let (mut timeline, mut batch) = (Timeline::default(), Vec::new());
    // Later records belong to the follower.
    while let Ok(NextRecord::Record(at)) = source.next(Patience::Some, &mut batch) {
        batch.drain(..).for_each(|event| timeline.take(&event));
        if at.segment != segment || at.offset >= end {
            break;
        }
    }
    timeline.has_older = true;
    (!timeline.entries().is_empty()).then_some(timeline)
}

/// The offset of the first record at or after `offset` in a segment's file.
fn record_behind(path: &Path, offset: u64) -> io::Result<u64> {
    let Some(before) = offset.checked_sub(1) else { return Ok(0) };
    let mut file = files::open(path, Access::Read)?;
    file.seek(io::SeekFrom::Start(before))?;
    let mut skipped = Vec::new();
    let read = io::BufReader::new(file.take(GLANCE_BYTES)).read_until(b'\n', &mut skipped)?;
    match skipped.last() {
        Some(b'\n') => Ok(before + read as u64),
        Some(_) | None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn journal_dir(session_dir: &Path) -> std::path::PathBuf {
    session_dir.join("journal")
}

fn segments(dir: &Path) -> Vec<SegmentName> {
    SegmentName::list(dir).unwrap_or_default()
}

/// Where to start reading so that the window is likely to be full.
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

/// Longest first record that is read, in bytes.
const HEADER_BYTES_MAX: u64 = 1 << 20;

/// Result of [`Source::next`].
pub(super) enum NextRecord {
    /// A record, which began here.
    Record(Position),
    /// No record yet.
    Nothing,
}

/// Converts records to events.
pub(super) struct Source {
    follower: Follower,
    ui: UiFold,
    generation: Option<String>,
    kinds: Kinds,
}

/// The kinds of threads that began before the first record that is read.
pub(super) struct Kinds {
    history: History,
    known: Option<HashMap<String, ThreadKind>>,
}

impl Kinds {
    pub(super) fn of(session_dir: &Path) -> Kinds {
        Kinds { history: History::new(&session_dir.join(HISTORY_FILE)), known: None }
    }

    /// Adds the kind of its thread to an event that does not name it. Without a history nothing is known.
    pub(super) fn complete(&mut self, event: &mut UiEvent) {
        let Some(thread_id) = event.thread_id.as_ref().filter(|_| event.thread_kind.is_none()) else { return };
        let known = self.known.get_or_insert_with(|| self.history.threads_of_no_person(0).unwrap_or_default());
        event.thread_kind = known.get(thread_id).copied();
    }
}

impl Source {
    pub(super) fn new(session_dir: &Path, start: Option<Position>) -> Source {
        let follower = Follower::new(&journal_dir(session_dir), start);
        Source { follower, ui: UiFold::default(), generation: None, kinds: Kinds::of(session_dir) }
    }

    /// Reads a record and appends its events.
    pub(super) fn next(&mut self, patience: Patience, events: &mut Vec<SessionEvent>) -> io::Result<NextRecord> {
        let (at, bytes, successor) = match self.follower.next(patience)? {
            Next::Record { at, bytes, successor, .. } => (at, bytes, successor),
            Next::Lost { at } => {
                let reason = "a part of the journal was removed meanwhile".to_owned();
                events.push(SessionEvent { at: at.clone(), at_us: 0, what: Happening::Gap { lines: 0, reason } });
                return Ok(NextRecord::Record(at));
            }
            Next::End => return Ok(NextRecord::Nothing),
        };
        let Ok(record) = Record::parse(bytes) else { return Ok(NextRecord::Record(at)) };
        let successor = successor.and_then(|bytes| Record::parse(bytes).ok());
        let shown = shown_line(&record, successor.as_ref());
        let seen = Seen::of(&record, shown.as_deref());
        let at_us = seen.at_us;
        let mut told = Vec::new();
        self.ui.take(&seen, &mut told);
        // The journal has events that clients never see.
        match &seen.event {
            RecordEvent::Generation(generation) if self.generation.as_ref() != Some(generation) => {
                self.generation = Some(generation.clone());
                if at.segment.number == 1 {
                    let what = Happening::Run { generation: generation.clone() };
                    events.push(SessionEvent { at: at.clone(), at_us, what });
                }
            }
            RecordEvent::Gap { lines, reason } => {
                let what = Happening::Gap { lines: *lines, reason: reason.to_string() };
                events.push(SessionEvent { at: at.clone(), at_us, what });
            }
            RecordEvent::Generation(_)
            | RecordEvent::Notification(_)
            | RecordEvent::ServerRequest { .. }
            | RecordEvent::ClientRequest { .. }
            | RecordEvent::Response { .. }
            | RecordEvent::ShimEvent { .. }
            | RecordEvent::Answer { .. }
            | RecordEvent::Other => {}
        }
        for mut event in told {
            self.kinds.complete(&mut event);
            events.push(SessionEvent { at: at.clone(), at_us, what: Happening::Ui(Box::new(event)) });
        }
        Ok(NextRecord::Record(at))
    }
}

/// The time of a segment's first record, in microseconds since the Unix epoch.
pub(super) fn first_at_us(segment: &std::path::Path) -> Option<u64> {
    let mut line = Vec::new();
    let mut file = io::BufReader::new(files::open(segment, Access::Read).ok()?).take(HEADER_BYTES_MAX);
    file.read_until(b'\n', &mut line).ok()?;
    match Record::parse(line.strip_suffix(b"\n").unwrap_or(&line)).ok()? {
        Record::Header(header) => Some(header.at),
        Record::Line { at_us, .. } | Record::Event { at_us, .. } | Record::Gap { at_us, .. } => Some(at_us),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::pager::Pager;
    use super::*;
    use crate::sessions::entry::{Entry, Key, Kind, Matcher};
    use crate::sessions::news::{Sought, Way};
    use crate::sessions::source::Recorded as _;

    /// A journal with a recorded conversation and two more segments of messages, and a pager for it.
    fn journal() -> (tempfile::TempDir, Pager) {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let journal = dir.path().join("journal");
        std::fs::create_dir(&journal).expect("a folder");
        let tape = include_str!("../../../../fixtures/tapes/command_approval.jsonl");
        std::fs::write(journal.join("000000000001-001.jsonl"), tape).expect("a file");
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
            std::fs::write(journal.join(format!("000000000002-00{segment}.jsonl")), text).expect("a file");
        }
        let pager = Pager::new(dir.path(), Arc::new(AtomicBool::new(true)));
        (dir, pager)
    }

    /// The timeline after attaching.
    fn restored(dir: &Path) -> Timeline {
        let (events, happened) = sync_channel(4);
        let _following = follow(dir, 0, Teller::of(events)).expect("a thread");
        match happened.recv_timeout(Duration::from_secs(20)) {
            Ok(News::Restored { epoch: 0, timeline }) => *timeline,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn pages_fit_without_gaps_or_duplicates() {
        let (dir, pager) = journal();
        let all: Vec<Entry> = restored(dir.path()).into_entries();
        assert!(all.len() > 800 && !all.iter().any(|entry| entry.kind == Kind::Error), "{}", all.len());
        let mut found: Vec<Entry> = Vec::new();
        let mut before = Key { at: all[all.len() - 1].key.at.clone(), nth: u16::MAX };
        loop {
            let page = pager.older(&before, 300).expect("it can be read").expect("it is wanted");
            before = page.entries.first().map_or(before, |entry| entry.key.clone());
            found.splice(0..0, page.entries);
            if page.is_last {
                break;
            }
        }
        assert_eq!(found, all);
        let mut forward = all[..1].to_vec();
        loop {
            let page = pager.newer(&forward[forward.len() - 1].key).expect("it can be read").expect("it is wanted");
            forward.extend(page.entries);
            if page.is_last {
                break;
            }
        }
        assert_eq!(forward, all);
        for entry in all.iter().step_by(97) {
            assert_eq!(pager.one(&entry.key).expect("it can be read").as_ref(), Some(entry));
        }
    }

    #[test]
    fn end_of_long_journal_comes_first() {
        let (dir, _) = journal();
        let path = dir.path().join("journal/000000000002-002.jsonl");
        let mut text = std::fs::read_to_string(&path).expect("a segment");
        let body = "x".repeat(16 << 10);
        let count = LONG_BYTES / (16 << 10) + 1;
        for number in 0..count {
            let item = format!(
                r#"{{"id":"l{number}","type":"userMessage","content":[{{"type":"text","text":"l{number} {body}"}}]}}"#
            );
            let params = format!(r#"{{"threadId":"t","turnId":"u","item":{item}}}"#);
            text.push_str(&format!(
                "{{\"at\":{},\"from\":\"server\",\"line\":{{\"method\":\"item/completed\",\"params\":{params}}}}}\n",
                10_000 + number
            ));
        }
        std::fs::write(&path, text).expect("a segment");
        let (events, happened) = sync_channel(4);
        let _following = follow(dir.path(), 0, Teller::of(events)).expect("a thread");
        let next = || happened.recv_timeout(Duration::from_secs(60)).expect("it is told");
        let News::Glanced(0, first) = next() else { panic!("the end comes first") };
        let News::Restored { epoch: 0, timeline: whole } = next() else { panic!("and then all of it") };
        let (first, whole) = (first.into_entries(), whole.into_entries());
        assert!(first.len() > 10 && first.len() < whole.len(), "{} of {}", first.len(), whole.len());
        assert_eq!(first[..], whole[whole.len() - first.len()..]);
    }

    #[test]
    fn distant_matches_are_found() {
        let (dir, pager) = journal();
        let all: Vec<Entry> = restored(dir.path()).into_entries();
        let (first, last) = (&all[0].key, &all[all.len() - 1].key);
        let find = |text: &str, from: &Key, way| {
            let matcher = Matcher { text: Some(text.to_owned()), ..Matcher::default() };
            let found = pager.find(&matcher, from, way).expect("it can be read").expect("it is wanted");
            let Sought::At(key, page) = found else { return None };
            let entry = page.entries.iter().find(|entry| entry.key == key).cloned();
            Some(
                entry.expect("it is on its page").title
                    + &page.entries.last().map_or(String::new(), |last| last.body.clone()),
            )
        };
        assert_eq!(find("m1007", last, Way::Back).as_deref(), Some("m1007"));
        assert_eq!(find("m2", first, Way::Forward).as_deref(), Some("m2000"));
        assert!(find("echo relayed", last, Way::Back).is_some());
        assert_eq!(find("nowhere", last, Way::Back), None);
    }
}
