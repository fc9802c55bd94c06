//! The state that the index shares with other threads while it runs.
//!
//! *Locking.* Mutexes, held only to copy. The relay's thread takes one only to end the index's rest.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{broadcast, watch};

use super::model::Pruned;
use super::transcripts::TranscriptFiles;
use crate::api::EventDocument;
use crate::config::RetentionBounds;
use crate::history::{EventRow, SessionActivity, rfc3339_millis};
use crate::journal::wall_clock::Jump;
use crate::journal::{IndexedTo, Position};
use crate::store::{SeqMark, SeqWish};

/// Most buffered live events; a reader that is further behind misses some.
const LIVE_MAX: usize = 1_024;

/// The progress of the index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IndexState {
    /// The position of the next record to index; `None` before the first one.
    pub position: Option<Position>,
    /// The last issued number.
    pub last_seq: u64,
    /// Why nothing can be indexed now.
    pub fault: Option<String>,
    /// The number of failed commits.
    pub failed_commits: u64,
    /// How often a database was opened. Data read from an earlier one is invalid.
    pub opened: u64,
    /// The epoch of the numbers; `None` before a database was opened.
    pub epoch: Option<String>,
    /// Permanently deleted data.
    pub pruned: Pruned,
}

/// An event that is sent live because it cannot be indexed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveEvent {
    /// The position of its record.
    pub at: Position,
    /// The event, as JSON.
    pub json: String,
}

impl LiveEvent {
    /// Wraps an event that has no number yet.
    pub(super) fn of(session_id: &str, event: EventRow) -> LiveEvent {
        let payload = serde_json::value::RawValue::from_string(event.payload_preview);
        let document = EventDocument {
            session_id: session_id.to_owned(),
            seq: None,
            timestamp: rfc3339_millis(event.at_us),
            event_type: event.event_type,
            thread_id: event.thread_id,
            turn_id: event.turn_id,
            item_id: event.item_id,
            payload_preview: payload.unwrap_or_else(|_| serde_json::value::RawValue::NULL.to_owned()),
            generation: Some(event.key.0.segment.generation.to_string()),
            delta_count: event.delta_count,
            key: Some(event.key.to_string()),
            persisted: false,
            epoch: None,
        };
        LiveEvent { at: event.key.0, json: serde_json::to_string(&document).expect("BUG: plain data is JSON") }
    }
}

/// The state that the index's thread shares with its handles.
#[derive(Debug)]
pub(super) struct IndexShared {
    pub(super) state: watch::Sender<IndexState>,
    pub(super) live: broadcast::Sender<Arc<LiveEvent>>,
    activity: Mutex<Arc<SessionActivity>>,
    asked: Mutex<IndexQuestion>,
    /// Bounds that were set after the start.
    retention: Mutex<Option<RetentionBounds>>,
    wake: Condvar,
    has_ended: Condvar,
    /// The thread waits until the journal grows.
    rests: AtomicBool,
    /// Bytes that the relay has appended to the journal.
    appended_bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct IndexQuestion {
    /// A reader waits for recorded events.
    looks: bool,
    ends: bool,
    has_ended: bool,
    /// A reader found the database with this number corrupt.
    broken: Option<u64>,
}

/// Why the index's thread woke up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Woken {
    /// A reader asked for it.
    Asked,
    /// The pause is over.
    Due,
    /// The index must stop.
    Ends,
}

impl Default for IndexShared {
    fn default() -> IndexShared {
        IndexShared {
            state: watch::Sender::new(IndexState::default()),
            live: broadcast::Sender::new(LIVE_MAX),
            activity: Mutex::default(),
            asked: Mutex::default(),
            retention: Mutex::default(),
            wake: Condvar::new(),
            has_ended: Condvar::new(),
            rests: AtomicBool::new(false),
            appended_bytes: AtomicU64::new(0),
        }
    }
}

impl IndexShared {
    /// Makes the index read the journal now.
    pub(super) fn ask(&self) {
        lock(&self.asked).looks = true;
        self.wake.notify_one();
    }

    /// The relay has appended to the journal, `bytes` in all.
    pub(super) fn journal_grew(&self, bytes: u64) {
        self.appended_bytes.store(bytes, Ordering::Relaxed);
        // Either the index reads what was appended before it rests, or its rest is seen here.
        fence(Ordering::SeqCst);
        if self.rests.load(Ordering::Relaxed) && self.rests.swap(false, Ordering::Relaxed) {
            self.ask();
        }
    }

    /// How many bytes the relay has appended to the journal.
    pub(super) fn appended_bytes(&self) -> u64 {
        self.appended_bytes.load(Ordering::Relaxed)
    }

    /// From now on the thread waits until the journal grows; it must read the journal once more before. Returns whether it
    /// rested already.
    pub(super) fn begin_rest(&self) -> bool {
        let rested = self.rests.swap(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        rested
    }

    #[cfg(test)]
    pub(super) fn rests(&self) -> bool {
        self.rests.load(Ordering::Relaxed)
    }

    pub(super) fn end_rest(&self) {
        self.rests.store(false, Ordering::Relaxed);
    }

    /// Asks for a new database in place of the one numbered `opened`.
    pub(super) fn broken(&self, opened: u64) {
        lock(&self.asked).broken = Some(opened);
        self.ask();
    }

    /// Whether a reader found the open database corrupt.
    pub(super) fn is_broken(&self) -> bool {
        let opened = self.state.borrow().opened;
        lock(&self.asked).broken == Some(opened)
    }

    /// Replaces the retention bounds.
    pub(super) fn retain(&self, bounds: RetentionBounds) {
        *lock(&self.retention) = Some(bounds);
    }

    pub(super) fn retention(&self) -> Option<RetentionBounds> {
        *lock(&self.retention)
    }

    pub(super) fn end(&self) {
        lock(&self.asked).ends = true;
        self.wake.notify_one();
    }

    /// The thread has done its last work.
    pub(super) fn set_ended(&self) {
        lock(&self.asked).has_ended = true;
        self.has_ended.notify_all();
    }

    /// Waits for that, at most `wait_max`; returns whether it came.
    pub(super) fn await_end(&self, wait_max: Duration) -> bool {
        let works = |asked: &mut IndexQuestion| !asked.has_ended;
        let waited = self.has_ended.wait_timeout_while(lock(&self.asked), wait_max, works);
        waited.unwrap_or_else(PoisonError::into_inner).0.has_ended
    }

    /// Waits for the next step, at most `wait_max`.
    pub(super) fn wait(&self, wait_max: Duration) -> Woken {
        let quiet = |asked: &mut IndexQuestion| !asked.ends && !asked.looks;
        let waited = self.wake.wait_timeout_while(lock(&self.asked), wait_max, quiet);
        let (mut asked, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match (asked.ends, std::mem::take(&mut asked.looks)) {
            (true, _) => Woken::Ends,
            (false, true) => Woken::Asked,
            (false, false) => Woken::Due,
        }
    }

    /// Whether any reader waits for new events.
    pub(super) fn has_readers(&self) -> bool {
        self.state.receiver_count() > 0
    }

    pub(super) fn activity(&self) -> Arc<SessionActivity> {
        Arc::clone(&lock(&self.activity))
    }

    pub(super) fn set_activity(&self, activity: SessionActivity) {
        if **lock(&self.activity) != activity {
            *lock(&self.activity) = Arc::new(activity);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic cannot leave the data half written.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The history's file name in the session's folder.
pub const HISTORY_FILE: &str = "history.db";

/// Reserves event numbers.
pub type Marks = Box<dyn FnMut(SeqWish) -> Result<SeqMark, String> + Send>;

#[derive(Debug, Clone)]
pub struct IndexSettings {
    pub session_id: String,
    /// The session's folder.
    pub session_dir: PathBuf,
    /// The journal's folder.
    pub journal_dir: PathBuf,
    pub retention: RetentionBounds,
    /// Whether transcripts are also written as files.
    pub transcript_files: TranscriptFiles,
    /// The home in which expired sessions are deleted; `None` deletes none.
    pub home: Option<PathBuf>,
    /// Receives the progress of the index.
    pub indexed_to: IndexedTo,
}

impl IndexSettings {
    /// The path of the history.
    #[must_use]
    pub fn history_path(&self) -> PathBuf {
        self.session_dir.join(HISTORY_FILE)
    }
}

/// A notification to the thread that started the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexNotice {
    /// Nothing can be indexed; why.
    Failed(String),
    /// Nothing can be indexed until the ledger can be used; why it cannot.
    AwaitsLedger(String),
    /// Everything that waited is indexed.
    Recovered,
    /// A corrupt file was set aside under this path.
    SetAside(PathBuf),
    /// A transcript's file is incomplete; why.
    TranscriptFailed(String),
    /// The clock was set, and nothing is deleted because of its age for a day.
    ClockJumped(Jump),
}

/// Receives [`IndexNotice`].
pub type Notify = Box<dyn FnMut(IndexNotice) + Send>;
