//! Access of the routes to a session's history: the index and the database that it writes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, timeout};

use super::document::{IndexDocument, PrunedDocument, ThreadDocument};
use super::lag::{Lag, LagMeter};
use super::state::SessionInfo;
use crate::history::{Action, Activity, SessionActivity, ThreadActivity, rfc3339_millis};
use crate::index::{HISTORY_FILE, History, HistoryError, Index, IndexState, Pruned};
use crate::journal::end_of;

/// How long a response waits for recorded lines to be indexed.
const CATCH_UP_WAIT_MAX: Duration = Duration::from_secs(1);

/// The history of the running session.
#[derive(Debug)]
pub(super) struct Historian {
    pub(super) index: Index,
    history: Arc<History>,
    journal_dir: PathBuf,
    lag: LagMeter,
}

/// Progress of the index when a request was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CaughtUp {
    /// Identifies the database, see [`IndexState::opened`].
    pub(super) opened: u64,
    /// Some lines recorded before the request are not indexed yet.
    pub(super) is_behind: bool,
}

impl Historian {
    pub(super) fn new(index: Index, info: &SessionInfo) -> Historian {
        let history = Arc::new(History::new(&info.session_dir.join(HISTORY_FILE)));
        let lag = LagMeter::new(&info.journal_dir);
        Historian { index, history, journal_dir: info.journal_dir.clone(), lag }
    }

    /// Waits, for a bounded time, until everything recorded so far is indexed.
    pub(super) async fn catch_up(&self) -> CaughtUp {
        let end = end_of(&self.journal_dir);
        let mut state = self.index.state();
        let is_there = |state: &IndexState| state.opened > 0 && (end.is_none() || state.position >= end);
        if !is_there(&state.borrow()) {
            self.index.wake();
            let settled = state.wait_for(|state| is_there(state) || state.fault.is_some());
            // On a timeout the state below shows how far the index came.
            drop(timeout(CATCH_UP_WAIT_MAX, settled).await);
        }
        let state = state.borrow();
        // A fault may hold back lines that were read but not committed.
        CaughtUp { opened: state.opened, is_behind: !is_there(&state) || state.fault.is_some() }
    }

    /// Queries the database `opened` on a blocking thread. If the database turns out to be broken, the index rebuilds it.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        opened: u64,
        ask: impl FnOnce(&History) -> Result<T, HistoryError> + Send + 'static,
    ) -> Result<T, HistoryError> {
        let history = Arc::clone(&self.history);
        let asked = tokio::task::spawn_blocking(move || ask(&history)).await;
        // Blocking tasks are never cancelled. A panic was already reported and ends only this request.
        asked.unwrap_or_else(|stopped| std::panic::resume_unwind(stopped.into_panic())).inspect_err(|error| {
            if error.is_broken() {
                self.index.rebuild(opened);
            }
        })
    }

    /// The session's activity and its start, in microseconds since the Unix epoch.
    pub(super) fn activity(&self) -> (Activity, u64) {
        self.index.activity().session(now_us())
    }

    /// The activity and the last action of each thread at `now_us`.
    pub(super) async fn threads(&self, now_us: u64) -> Vec<ThreadDocument> {
        let opened = self.index.state().borrow().opened;
        let activity = self.index.activity();
        self.ask(opened, move |history| Ok(threads(&activity, history, opened, now_us))).await.unwrap_or_default()
    }

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

/// The activity and the last action of each thread at `now_us`. An action that cannot be read is left out.
#[must_use]
pub(crate) fn threads(activity: &SessionActivity, history: &History, opened: u64, now_us: u64) -> Vec<ThreadDocument> {
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
