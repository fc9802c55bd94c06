//! What the routes know of a session's history: its index, and the database that this fills.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, timeout};

use super::document::{IndexDocument, PrunedDocument, ThreadDocument};
use super::lag::{Lag, LagMeter};
use super::subject::Subject;
use crate::history::{Action, Activity, ActivityFold, ThreadActivity, rfc3339_millis};
use crate::index::{HISTORY_FILE, History, HistoryError, Index, IndexState, Pruned};
use crate::journal::end_of;

/// How long an answer waits for what is recorded already to be indexed.
const CATCH_UP_WAIT_MAX: Duration = Duration::from_secs(1);

/// What can be asked of the history of the session that runs here.
#[derive(Debug)]
pub(super) struct Historian {
    pub(super) index: Index,
    history: Arc<History>,
    journal_dir: PathBuf,
    lag: LagMeter,
}

/// How far the index is, as an answer needs to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CaughtUp {
    /// Identifies the database, see [`IndexState::opened`].
    pub(super) opened: u64,
    /// Not all that was recorded when it was asked is indexed.
    pub(super) is_behind: bool,
}

impl Historian {
    pub(super) fn new(index: Index, subject: &Subject) -> Historian {
        let history = Arc::new(History::new(&subject.session_dir.join(HISTORY_FILE)));
        let lag = LagMeter::new(&subject.journal_dir);
        Historian { index, history, journal_dir: subject.journal_dir.clone(), lag }
    }

    /// Waits until all is indexed that is recorded by now, for a bounded time.
    pub(super) async fn catch_up(&self) -> CaughtUp {
        let end = end_of(&self.journal_dir);
        let mut state = self.index.state();
        let is_there = |state: &IndexState| state.opened > 0 && (end.is_none() || state.position >= end);
        if !is_there(&state.borrow()) {
            self.index.wake();
            let settled = state.wait_for(|state| is_there(state) || state.fault.is_some());
            // Late or not, the state tells.
            drop(timeout(CATCH_UP_WAIT_MAX, settled).await);
        }
        let state = state.borrow();
        // Whatever is joined until it is over is not indexed either, though it was read.
        CaughtUp { opened: state.opened, is_behind: !is_there(&state) || state.fault.is_some() }
    }

    /// Asks the database that is `opened`, on a thread that may wait; a database that proves to be broken is built again.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        opened: u64,
        ask: impl FnOnce(&History) -> Result<T, HistoryError> + Send + 'static,
    ) -> Result<T, HistoryError> {
        let history = Arc::clone(&self.history);
        let asked = tokio::task::spawn_blocking(move || ask(&history)).await;
        // Nothing cuts one short; one that panics has said so, and takes with it only whoever asked.
        asked.unwrap_or_else(|stopped| std::panic::resume_unwind(stopped.into_panic())).inspect_err(|error| {
            if error.is_broken() {
                self.index.rebuild(opened);
            }
        })
    }

    /// What the session does now, and since when, in microseconds since the Unix epoch.
    pub(super) fn activity(&self) -> (Activity, u64) {
        self.index.activity().session(now_us())
    }

    /// What its threads do at `now_us`, and did last.
    pub(super) async fn threads(&self, now_us: u64) -> Vec<ThreadDocument> {
        let opened = self.index.state().borrow().opened;
        let activity = self.index.activity();
        self.ask(opened, move |history| Ok(threads(&activity, history, opened, now_us))).await.unwrap_or_default()
    }

    /// How far the index is.
    pub(super) async fn document(&self) -> IndexDocument {
        let state = self.index.state().borrow().clone();
        let Lag { records: lag_lines, oldest_us } = self.lag.lag(state.position, Instant::now()).await;
        let lag_ms = oldest_us.map_or(0, |at_us| now_us().saturating_sub(at_us) / 1_000);
        let Pruned { events, tool_events, turn_events, took_ms, .. } = state.pruned;
        IndexDocument {
            epoch: state.epoch,
            lag_lines,
            lag_ms,
            persisted: state.fault.is_none(),
            event_persist_error: state.failed_commits,
            pruned: PrunedDocument { events, tool_events, turn_events, took_ms },
        }
    }
}

/// What threads do at `now_us`, as it is told. What they did last is left out where it cannot be read.
#[must_use]
pub(crate) fn threads(activity: &ActivityFold, history: &History, opened: u64, now_us: u64) -> Vec<ThreadDocument> {
    let threads = activity.threads(now_us);
    let ids: Vec<String> = threads.iter().map(|thread| thread.thread_id.clone()).collect();
    let last = if ids.is_empty() { Ok(Vec::new()) } else { history.last_actions(&ids, opened) };
    let last = last.unwrap_or_else(|error| {
        tracing::debug!(%error, "what threads did last");
        Vec::new()
    });
    let last = last.into_iter().chain(std::iter::repeat(None));
    let document = |(thread, last): (ThreadActivity, Option<Action>)| ThreadDocument {
        thread_id: thread.thread_id,
        activity_state: thread.activity,
        since: rfc3339_millis(thread.since_us),
        turn_id: thread.turn_id,
        pending: thread.pending,
        last_action: last.map(|action| action.summary_text),
        stalled_since: thread.stalled_since_us.map(rfc3339_millis),
    };
    threads.into_iter().zip(last).map(document).collect()
}

/// The wall clock, in microseconds since the Unix epoch.
pub(super) fn now_us() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}
