//! Reads the recording page by page, from the journal and from the history before it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};

use super::kept::{Kept, PAGE_ENTRIES, kept_id};
use super::stretch::{FULL_BYTES_MAX, Go, Left, Matched, Takes, first_match, last_match, newer, older, one};
use super::{LOOK_EVERY, Teller, journal_dir, segments};
use super::{NextRecord, Source};
use crate::index::Patience;
use crate::journal::{Position, SegmentName};
use crate::sessions::entry::{Entry, Key, Matcher, Spot};
use crate::sessions::news::{News, Page, Read, Sought, Way};
use crate::sessions::source::{self, Recorded};
use crate::store::Found;

/// Most records read beyond a page to complete its open entries.
const BEYOND_MAX: usize = 20_000;

/// The reader of one attachment.
pub struct Pager {
    session_dir: PathBuf,
    dir: PathBuf,
    wanted: Arc<AtomicBool>,
}

impl Pager {
    pub fn new(session_dir: &Path, wanted: Arc<AtomicBool>) -> Pager {
        Pager { session_dir: session_dir.to_owned(), dir: journal_dir(session_dir), wanted }
    }

    fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Reads segments from one on, as long as `takes` accepts records.
    fn from(&self, segment: &SegmentName, stays: Stays, takes: Takes<'_>) -> io::Result<Left> {
        let start = Position { segment: segment.clone(), offset: 0 };
        let mut source = Source::new(&self.session_dir, Some(start));
        let mut events = Vec::new();
        let mut read = 0_usize;
        loop {
            read += 1;
            if read.is_multiple_of(LOOK_EVERY) && !self.is_wanted() {
                return Ok(Left::Unwanted);
            }
            match source.next(Patience::None, &mut events)? {
                NextRecord::Nothing => return Ok(Left::End),
                NextRecord::Record(at) if stays == Stays::InSegment && at.segment != *segment => return Ok(Left::End),
                NextRecord::Record(_) => {}
            }
            for one in events.drain(..) {
                if takes(&one) == Go::Stop {
                    return Ok(Left::Enough);
                }
            }
        }
    }

    fn kept(&self) -> Kept {
        Kept::of(&self.session_dir)
    }

    fn older_recorded(&self, before: &Key, at: &Position, count: usize) -> io::Result<Option<Page>> {
        let mut found: Vec<Entry> = Vec::new();
        let all = segments(&self.dir);
        let mut is_last = true;
        for segment in all.iter().filter(|segment| **segment <= at.segment).rev() {
            if found.len() >= count {
                is_last = false;
                break;
            }
            let read = |takes: Takes<'_>| self.from(segment, Stays::InSegment, takes);
            let Some((mut entries, has_older)) = older(before, at, BEYOND_MAX, read)? else { return Ok(None) };
            is_last &= !has_older;
            entries.append(&mut found);
            found = entries;
        }
        let too_many = found.len().saturating_sub(count);
        found.drain(..too_many);
        Ok(Some(Page { entries: found, is_last: is_last && too_many == 0 }))
    }

    fn find_back(&self, matcher: &Matcher, from: &Key) -> io::Result<Matched> {
        if let Spot::Recorded(at) = &from.at {
            for segment in segments(&self.dir).iter().filter(|segment| **segment <= at.segment).rev() {
                let read = |takes: Takes<'_>| self.from(segment, Stays::InSegment, takes);
                let matched = last_match(matcher, from, at, usize::MAX, read)?;
                if matched != Matched::Nothing {
                    return Ok(matched);
                }
            }
        }
        Ok(self.find_kept(matcher, kept_id(&from.at).unwrap_or(u64::MAX), Way::Back))
    }

    fn find_forward(&self, matcher: &Matcher, from: &Key) -> io::Result<Matched> {
        if let Some(id) = kept_id(&from.at) {
            let matched = self.find_kept(matcher, id, Way::Forward);
            if matched != Matched::Nothing {
                return Ok(matched);
            }
        }
        let is_ahead = |segment: &SegmentName| match &from.at {
            Spot::Recorded(at) => *segment >= at.segment,
            Spot::Kept(_) => true,
        };
        for segment in segments(&self.dir).iter().filter(|segment| is_ahead(segment)) {
            let read = |takes: Takes<'_>| self.from(segment, Stays::InSegment, takes);
            let matched = first_match(matcher, from, read)?.0;
            if matched != Matched::Nothing {
                return Ok(matched);
            }
        }
        Ok(Matched::Nothing)
    }

    fn find_kept(&self, matcher: &Matcher, from: u64, way: Way) -> Matched {
        match self.kept().find(matcher, from, way, || self.is_wanted()) {
            Some(key) => Matched::At(key),
            None if self.is_wanted() => Matched::Nothing,
            None => Matched::Unwanted,
        }
    }
}

impl Recorded for Pager {
    /// The first page of the session, from the history or, if that has nothing, from the journal.
    fn start(&self) -> io::Result<Option<Page>> {
        let front = self.kept().first();
        if !front.is_last {
            return Ok(Some(front));
        }
        let Some(mut page) = self.newer(&Key::JOURNAL_BEGINS)? else { return Ok(None) };
        page.entries.splice(0..0, front.entries);
        Ok(Some(page))
    }

    fn older(&self, before: &Key, count: usize) -> io::Result<Option<Page>> {
        let at = match &before.at {
            Spot::Recorded(at) => at,
            // Further entries can begin with the same line.
            Spot::Kept(id) => return Ok(Some(self.kept().older(id.saturating_add(u64::from(before.nth > 0))))),
        };
        let Some(mut page) = self.older_recorded(before, at, count)? else { return Ok(None) };
        if page.is_last {
            let mut front = self.kept().in_front_of_journal();
            front.entries.append(&mut page.entries);
            page = front;
        }
        Ok(Some(page))
    }

    fn newer(&self, after: &Key) -> io::Result<Option<Page>> {
        let (segment, after) = match &after.at {
            Spot::Recorded(at) => (at.segment.clone(), Some(after.clone())),
            Spot::Kept(_) if *after == Key::JOURNAL_BEGINS => match segments(&self.dir).into_iter().next() {
                Some(first) => (first, None),
                None => return Ok(Some(Page { entries: Vec::new(), is_last: true })),
            },
            Spot::Kept(id) => return Ok(Some(self.kept().newer(*id))),
        };
        newer(after, BEYOND_MAX, |takes| self.from(&segment, Stays::Nowhere, takes))
    }

    fn one(&self, key: &Key) -> io::Result<Option<Entry>> {
        let at = match &key.at {
            Spot::Recorded(at) => at,
            Spot::Kept(id) => return Ok(self.kept().one(*id, FULL_BYTES_MAX)),
        };
        one(key, at, usize::MAX, |takes| self.from(&at.segment, Stays::Nowhere, takes))
    }

    fn find(&self, matcher: &Matcher, from: &Key, way: Way) -> io::Result<Option<Sought>> {
        let matched = match way {
            Way::Back => self.find_back(matcher, from)?,
            Way::Forward => self.find_forward(matcher, from)?,
        };
        matched.with_page(|key, count| self.older(key, count))
    }
}

/// Runs a read command; `None` for any other command, or if the read was cancelled.
fn read(recorded: &dyn Recorded, wanted: &Read) -> io::Result<Option<News>> {
    Ok(match wanted {
        Read::Start => recorded.start()?.map(News::Start),
        Read::Older(key) => recorded.older(key, PAGE_ENTRIES)?.map(News::Older),
        Read::Newer(key) => recorded.newer(key)?.map(News::Newer),
        Read::Open(key) => recorded.one(key)?.map(|entry| News::Opened(Some(Box::new(entry)))),
        Read::Find { matcher, from, way } => recorded.find(matcher, from, *way)?.map(News::Found),
    })
}

/// Whether a reader continues with the next segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stays {
    InSegment,
    Nowhere,
}

/// Reads pages while a session is attached.
#[derive(Debug)]
pub struct Pages {
    jobs: SyncSender<Read>,
    wanted: Arc<AtomicBool>,
}

impl Pages {
    pub fn start(source: &dyn source::Source, session: &Found, teller: Teller) -> io::Result<Pages> {
        let (jobs, taken) = sync_channel::<Read>(4);
        let wanted = Arc::new(AtomicBool::new(true));
        let recorded = source.recorded(session, Arc::clone(&wanted));
        std::thread::Builder::new().name("pages".to_owned()).spawn(move || {
            while let Ok(wanted) = taken.recv() {
                let news = match read(&*recorded, &wanted) {
                    Ok(Some(news)) => news,
                    Ok(None) => continue,
                    Err(error) => News::Unreadable(format!("read the journal: {error}")),
                };
                if teller.tell(news).is_err() {
                    return;
                }
            }
        })?;
        Ok(Pages { jobs, wanted })
    }

    /// Queues a read. It may skip earlier reads that have not started.
    pub fn read(&self, wanted: Read) {
        // If the queue is full, this read is no longer needed.
        let _ = self.jobs.try_send(wanted);
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.wanted.store(false, Ordering::Relaxed);
    }
}
