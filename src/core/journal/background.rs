//! The journal's background thread: `fdatasync` once a second, and the bounds on size and age.
//!
//! The writer never waits for it. It only syncs the current segment and never changes it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::segment::SegmentName;
use super::wall_clock::{Clock, SYSTEM};
use crate::os::fs::sync_data;

/// The interval between two syncs.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// The interval between two checks of the bounds, which are also checked with each new segment.
const BOUNDS_EVERY: Duration = Duration::from_secs(60);

/// Most new segments in the thread's queue; beyond this, only the kernel syncs them.
const OPENED_WAITING_MAX: usize = 16;

/// How much of a session's journal is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// All segments together, in bytes; the oldest are deleted first.
    pub journal_bytes_max: u64,
    /// Age of a segment since its last write.
    pub journal_age_max: Duration,
}

/// An unindexed journal may exceed its size bound this many times.
const UNINDEXED_TIMES_MAX: u64 = 4;

/// How far a journal is indexed; later segments are kept, within reason.
#[derive(Debug, Clone, Default)]
pub struct IndexedTo(Arc<Mutex<Option<SegmentName>>>);

impl IndexedTo {
    /// Everything before this segment is indexed.
    pub fn reached(&self, segment: &SegmentName) {
        let mut reached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if reached.as_ref() != Some(segment) {
            *reached = Some(segment.clone());
        }
    }

    fn get(&self) -> Option<SegmentName> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The writer's handle to the thread, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Background {
    news: SyncSender<News>,
    growth: Arc<Growth>,
    bounds: Arc<Mutex<Bounds>>,
}

/// How much was appended, and whether the thread has to be told of more.
#[derive(Debug, Default)]
struct Growth {
    commits: AtomicU64,
    /// Everything is synced, and the thread waits.
    thread_rests: AtomicBool,
}

#[derive(Debug)]
enum News {
    Opened(OpenedSegment),
    /// Something was appended while the thread rested.
    Grew,
}

#[derive(Debug)]
struct OpenedSegment {
    name: SegmentName,
    file: Arc<File>,
}

impl Background {
    pub(super) fn start(dir: PathBuf, bounds: Bounds, indexed: IndexedTo) -> Background {
        let (news, waiting) = sync_channel(OPENED_WAITING_MAX);
        let growth = Arc::new(Growth::default());
        let seen = Arc::clone(&growth);
        let bounds = Arc::new(Mutex::new(bounds));
        let bounds_now = Arc::clone(&bounds);
        let thread = std::thread::Builder::new().name("journal".to_owned()).stack_size(128 << 10);
        if let Err(error) = thread.spawn(move || keep(&dir, &bounds_now, &indexed, &waiting, &seen, &SYSTEM)) {
            tracing::warn!(%error, "start the journal's background thread; the journal is neither synced nor bounded");
        }
        Background { news, growth, bounds }
    }

    /// A new segment has begun; all earlier ones are complete.
    pub(super) fn opened(&self, name: SegmentName, file: Arc<File>) {
        let _ = self.news.try_send(News::Opened(OpenedSegment { name, file }));
    }

    /// Replaces the bounds.
    pub(super) fn bound(&self, bounds: Bounds) {
        *self.bounds.lock().unwrap_or_else(PoisonError::into_inner) = bounds;
    }

    /// Something was appended.
    pub(super) fn grew(&self) {
        let Growth { commits, thread_rests } = &*self.growth;
        commits.fetch_add(1, Ordering::Relaxed);
        // Either the thread sees this commit before it rests, or its rest is seen here.
        fence(Ordering::SeqCst);
        if thread_rests.load(Ordering::Relaxed) && thread_rests.swap(false, Ordering::Relaxed) {
            let _ = self.news.try_send(News::Grew);
        }
    }
}

fn keep(
    dir: &Path,
    bounds: &Mutex<Bounds>,
    indexed: &IndexedTo,
    news: &Receiver<News>,
    growth: &Growth,
    clock: &Clock,
) {
    let mut current: Option<OpenedSegment> = None;
    let mut synced_commits = 0;
    let mut checked_at = Instant::now();
    let mut wait = SYNC_EVERY;
    loop {
        let mut begins_segment = false;
        match news.recv_timeout(wait) {
            Ok(News::Opened(next)) => {
                current.iter().for_each(sync);
                current = Some(next);
                begins_segment = true;
                wait = SYNC_EVERY;
            }
            Ok(News::Grew) => wait = SYNC_EVERY,
            Err(RecvTimeoutError::Timeout) => {
                let commits = growth.commits.load(Ordering::Relaxed);
                wait = if std::mem::replace(&mut synced_commits, commits) != commits {
                    current.iter().for_each(sync);
                    SYNC_EVERY
                } else {
                    growth.rest_after(commits)
                };
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if let Some(current) = &current
            && (begins_segment || checked_at.elapsed() >= BOUNDS_EVERY)
        {
            checked_at = Instant::now();
            let mut bounds = *bounds.lock().unwrap_or_else(PoisonError::into_inner);
            let (now, ages_count) = clock.now();
            if !ages_count {
                bounds.journal_age_max = Duration::MAX;
            }
            enforce(dir, bounds, indexed.get().as_ref(), &current.name, now);
        }
    }
}

impl Growth {
    /// Lets the thread rest until there are more commits than `synced`; returns how long it may wait.
    fn rest_after(&self, synced: u64) -> Duration {
        self.thread_rests.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.commits.load(Ordering::Relaxed) == synced { BOUNDS_EVERY } else { SYNC_EVERY }
    }
}

fn sync(opened: &OpenedSegment) {
    if let Err(error) = sync_data(&opened.file) {
        tracing::warn!(%error, segment = %opened.name, "sync the journal");
    }
}

/// Deletes segments over the bounds, oldest first.
fn enforce(dir: &Path, bounds: Bounds, indexed: Option<&SegmentName>, current: &SegmentName, now: SystemTime) {
    let names = match SegmentName::list(dir) {
        Ok(names) => names,
        Err(error) => {
            tracing::warn!(%error, dir = %dir.display(), "list the journal");
            return;
        }
    };
    let sizes: Vec<Size> = names.into_iter().filter_map(|name| Size::of(dir, name)).collect();
    for name in segments_over(&sizes, bounds, indexed, current, now) {
        match std::fs::remove_file(dir.join(name.to_string())) {
            Ok(()) => tracing::info!(segment = %name, "journal over its bounds: segment removed"),
            Err(error) => tracing::warn!(%error, segment = %name, "remove a journal segment"),
        }
    }
}

/// A segment's size and age.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Size {
    pub name: SegmentName,
    /// In bytes.
    pub bytes: u64,
    /// The time of its last write.
    pub written: SystemTime,
}

/// Segments in a journal's folder that are over the bounds, oldest first, only those before `indexed` and never the last
/// one.
pub fn over_bounds(dir: &Path, bounds: Bounds, indexed: &SegmentName, now: SystemTime) -> io::Result<Vec<Size>> {
    let sizes: Vec<Size> = SegmentName::list(dir)?.into_iter().filter_map(|name| Size::of(dir, name)).collect();
    let Some(last) = sizes.last().map(|last| last.name.clone()) else { return Ok(Vec::new()) };
    let gone = segments_over(&sizes, bounds, Some(indexed), &last, now);
    let gone = gone.into_iter().filter(|name| *name < indexed);
    Ok(gone.filter_map(|name| sizes.iter().find(|size| size.name == *name)).cloned().collect())
}

impl Size {
    fn of(dir: &Path, name: SegmentName) -> Option<Size> {
        let metadata = std::fs::symlink_metadata(dir.join(name.to_string())).ok()?;
        if !metadata.is_file() {
            return None;
        }
        Some(Size { name, bytes: metadata.len(), written: metadata.modified().ok()? })
    }
}

/// The segments over the bounds; `segments` has the oldest first. The current one and later ones are never among them, nor,
/// up to a higher bound, unindexed ones, from `indexed` on.
fn segments_over<'a>(
    segments: &'a [Size],
    bounds: Bounds,
    indexed: Option<&SegmentName>,
    current: &SegmentName,
    now: SystemTime,
) -> Vec<&'a SegmentName> {
    let total: u64 = segments.iter().map(|segment| segment.bytes).sum();
    let mut excess = total.saturating_sub(bounds.journal_bytes_max);
    let mut unindexed_excess = total.saturating_sub(bounds.journal_bytes_max.saturating_mul(UNINDEXED_TIMES_MAX));
    let mut over = Vec::new();
    for segment in segments.iter().take_while(|segment| segment.name < *current) {
        let too_old = now.duration_since(segment.written).is_ok_and(|age| age > bounds.journal_age_max);
        let is_indexed = indexed.is_some_and(|indexed| segment.name < *indexed);
        if unindexed_excess > 0 || (is_indexed && (excess > 0 || too_old)) {
            excess = excess.saturating_sub(segment.bytes);
            unindexed_excess = unindexed_excess.saturating_sub(segment.bytes);
            over.push(&segment.name);
        }
    }
    over
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Generation;
    use crate::journal::wall_clock::SetByHand;

    const DAY: Duration = Duration::from_secs(86_400);

    /// `segments` as (size, age in days), oldest first, the last one current; `expect` has the numbers of those to delete.
    fn check(segments: &[(u64, u32)], expect: &[u32]) {
        check_indexed(segments, u32::MAX, expect);
    }

    /// Like [`check`], but only segments before `indexed` are indexed.
    fn check_indexed(segments: &[(u64, u32)], indexed: u32, expect: &[u32]) {
        let now = SystemTime::UNIX_EPOCH + DAY * 100;
        let sizes: Vec<Size> = segments
            .iter()
            .zip(1..)
            .map(|((bytes, days), number)| Size {
                name: SegmentName { generation: Generation::after(None, 1, 0), number },
                bytes: *bytes,
                written: now - DAY * *days,
            })
            .collect();
        let bounds = Bounds { journal_bytes_max: 100, journal_age_max: DAY * 7 };
        let current = &sizes.last().expect("BUG: a test has segments").name;
        let indexed = SegmentName { generation: current.generation.clone(), number: indexed };
        let gone: Vec<u32> =
            segments_over(&sizes, bounds, Some(&indexed), current, now).iter().map(|name| name.number).collect();
        assert_eq!(gone, expect);
    }

    #[test]
    fn oldest_segments_go_until_the_rest_fits() {
        check(&[(40, 0), (40, 0), (40, 0), (40, 0)], &[1, 2]);
        check(&[(40, 0), (40, 0), (20, 0)], &[]);
    }

    #[test]
    fn current_segment_always_stays() {
        check(&[(10, 0), (500, 9)], &[1]);
        check(&[(500, 9)], &[]);
    }

    #[test]
    fn unindexed_segments_have_a_higher_bound() {
        check_indexed(&[(40, 9), (40, 9), (40, 0), (40, 0)], 2, &[1]);
        check_indexed(&[(40, 9), (40, 9), (40, 0), (40, 0)], 1, &[]);
        check_indexed(&[(100, 0), (100, 0), (100, 0), (100, 0), (1, 0)], 1, &[1]);
    }

    #[test]
    fn old_segments_are_deleted() {
        check(&[(10, 9), (10, 8), (10, 6), (10, 0)], &[1, 2]);
    }

    const HOUR: Duration = Duration::from_secs(3_600);

    /// A journal of five indexed segments of 10 bytes. The first two were written eight and six days ago, the others now.
    struct Journal {
        dir: tempfile::TempDir,
        clock: &'static Clock,
        hands: SetByHand,
    }

    impl Journal {
        fn new() -> Journal {
            let dir = tempfile::tempdir().expect("BUG: a temporary folder");
            let (clock, hands) = SetByHand::new();
            for (number, days) in (1..).zip([8, 6, 0, 0, 0]) {
                let file = File::create(dir.path().join(Journal::name(number).to_string())).expect("a file");
                file.set_len(10).expect("a size");
                file.set_modified(clock.now().0 - DAY * days).expect("a time");
            }
            Journal { dir, clock, hands }
        }

        fn name(number: u32) -> SegmentName {
            SegmentName { generation: Generation::after(None, 1, 0), number }
        }

        /// Runs the thread's work for a new segment, the last one. Returns the numbers of the segments that are left.
        fn begin_segment(&self, journal_bytes_max: u64) -> Vec<u32> {
            let (news, waiting) = sync_channel(1);
            let (name, path) = (Journal::name(5), self.dir.path().join(Journal::name(5).to_string()));
            let file = Arc::new(File::open(path).expect("it is there"));
            news.send(News::Opened(OpenedSegment { name: name.clone(), file })).expect("there is room");
            drop(news);
            let bounds = Mutex::new(Bounds { journal_bytes_max, journal_age_max: DAY * 7 });
            let indexed = IndexedTo::default();
            indexed.reached(&name);
            keep(self.dir.path(), &bounds, &indexed, &waiting, &Growth::default(), self.clock);
            SegmentName::list(self.dir.path()).expect("a folder").into_iter().map(|name| name.number).collect()
        }
    }

    #[test]
    fn clock_set_ahead_deletes_no_segment_for_a_day() {
        let journal = Journal::new();
        journal.hands.set_ahead(DAY * 400);
        assert_eq!(journal.begin_segment(100), [1, 2, 3, 4, 5]);
        journal.hands.pass(DAY - HOUR);
        assert_eq!(journal.begin_segment(100), [1, 2, 3, 4, 5]);
        // The bound on the size holds.
        assert_eq!(journal.begin_segment(40), [2, 3, 4, 5]);
        journal.hands.pass(HOUR);
        assert_eq!(journal.begin_segment(100), [5]);
    }

    #[test]
    fn clock_set_back_deletes_no_segment_for_a_day() {
        let journal = Journal::new();
        journal.hands.set_back(HOUR * 2);
        assert_eq!(journal.begin_segment(100), [1, 2, 3, 4, 5]);
        journal.hands.pass(DAY - HOUR);
        assert_eq!(journal.begin_segment(100), [1, 2, 3, 4, 5]);
        journal.hands.pass(HOUR);
        assert_eq!(journal.begin_segment(100), [2, 3, 4, 5]);
    }

    #[test]
    fn clock_that_agrees_deletes_old_segments() {
        let journal = Journal::new();
        journal.hands.set_ahead(HOUR);
        assert_eq!(journal.begin_segment(100), [2, 3, 4, 5]);
    }
}
