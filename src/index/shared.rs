//! What the index lets others see of itself while it runs.
//!
//! *Locking.* One mutex, held for the time of a copy.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{broadcast, watch};

use super::page::EventDocument;
use super::retention::Pruned;
use crate::config::RetentionBounds;
use crate::history::{ActivityFold, EventRow, rfc3339_millis};
use crate::journal::Position;

/// Events that are told live and are not indexed; a reader that is further behind misses some.
const LIVE_MAX: usize = 1_024;

/// How far the index is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IndexState {
    /// Where the next record begins that is not indexed; `None` before there was a first.
    pub position: Option<Position>,
    /// The last number that was given.
    pub last_seq: u64,
    /// Why nothing can be indexed now.
    pub fault: Option<String>,
    /// Commits that failed.
    pub failed_commits: u64,
    /// How often a database was opened. Nothing that was read from an earlier one still counts.
    pub opened: u64,
    /// The epoch of the numbers; `None` before a database was opened.
    pub epoch: Option<String>,
    /// What went for good.
    pub pruned: Pruned,
}

/// An event that is told live because it cannot be indexed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveEvent {
    /// Where its record stands.
    pub at: Position,
    /// It, as JSON.
    pub json: String,
}

impl LiveEvent {
    /// An event that has no number yet.
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
            generation: event.key.0.segment.generation.to_string(),
            delta_count: event.delta_count,
            key: event.key.to_string(),
            persisted: false,
            epoch: None,
        };
        LiveEvent { at: event.key.0, json: serde_json::to_string(&document).expect("BUG: plain data is JSON") }
    }
}

/// What the index's thread shares with whoever asks.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) state: watch::Sender<IndexState>,
    pub(super) live: broadcast::Sender<Arc<LiveEvent>>,
    activity: Mutex<Arc<ActivityFold>>,
    asked: Mutex<Asked>,
    /// Bounds that were set after the start.
    retention: Mutex<Option<RetentionBounds>>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Asked {
    /// Somebody waits for what is recorded already.
    looks: bool,
    ends: bool,
    /// The database that was opened as this one is broken.
    broken: Option<u64>,
}

/// Why the index's thread goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Woken {
    /// Somebody waits for it to look.
    Asked,
    /// It is time.
    Due,
    /// It is to end.
    Ends,
}

impl Default for Shared {
    fn default() -> Shared {
        Shared {
            state: watch::Sender::new(IndexState::default()),
            live: broadcast::Sender::new(LIVE_MAX),
            activity: Mutex::default(),
            asked: Mutex::default(),
            retention: Mutex::default(),
            wake: Condvar::new(),
        }
    }
}

impl Shared {
    /// Has the index look now.
    pub(super) fn ask(&self) {
        lock(&self.asked).looks = true;
        self.wake.notify_one();
    }

    /// Asks for a new database in the place of the one that was `opened` as this one.
    pub(super) fn broken(&self, opened: u64) {
        lock(&self.asked).broken = Some(opened);
        self.ask();
    }

    /// Whether the database that is open was found broken by a reader.
    pub(super) fn is_broken(&self) -> bool {
        let opened = self.state.borrow().opened;
        lock(&self.asked).broken == Some(opened)
    }

    /// These bounds hold from now on.
    pub(super) fn retain(&self, bounds: RetentionBounds) {
        *lock(&self.retention) = Some(bounds);
    }

    /// The bounds that were set after the start.
    pub(super) fn retention(&self) -> Option<RetentionBounds> {
        *lock(&self.retention)
    }

    pub(super) fn end(&self) {
        lock(&self.asked).ends = true;
        self.wake.notify_one();
    }

    /// Waits for the next look, at most for `wait_max`.
    pub(super) fn wait(&self, wait_max: Duration) -> Woken {
        let quiet = |asked: &mut Asked| !asked.ends && !asked.looks;
        let waited = self.wake.wait_timeout_while(lock(&self.asked), wait_max, quiet);
        let (mut asked, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match (asked.ends, std::mem::take(&mut asked.looks)) {
            (true, _) => Woken::Ends,
            (false, true) => Woken::Asked,
            (false, false) => Woken::Due,
        }
    }

    /// Whether anybody waits for what comes next.
    pub(super) fn has_readers(&self) -> bool {
        self.state.receiver_count() > 0
    }

    pub(super) fn activity(&self) -> Arc<ActivityFold> {
        Arc::clone(&lock(&self.activity))
    }

    pub(super) fn set_activity(&self, activity: &ActivityFold) {
        if **lock(&self.activity) != *activity {
            *lock(&self.activity) = Arc::new(activity.clone());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing behind them can be left half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
