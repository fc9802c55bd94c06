//! Access of the routes to a session's history: the index and the database that it writes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::document::{IndexDocument, PrunedDocument, ThreadDocument};
use super::state::SessionInfo;
use crate::history::{Action, Activity, SessionActivity, ThreadActivity, rfc3339_millis};
use crate::index::{HISTORY_FILE, History, HistoryError, Index, IndexState, Pruned};
use crate::journal::{Position, end_of, reader};

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

// Counts the records that are not indexed yet, in the background, within a bound, and at most once a second.

/// Most records that are counted.
const RECORDS_MAX: u64 = 100_000;

/// Most bytes that are read for one count; later records are not counted.
const BYTES_MAX: usize = 64 << 20;

/// How long a count stays valid. Source: a working index is behind for less, and a broken one for much longer.
const GOOD_FOR: Duration = Duration::from_secs(1);

/// Records that are not indexed yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Lag {
    pub(super) records: u64,
    /// Time of the oldest one, in microseconds since the Unix epoch.
    pub(super) oldest_us: Option<u64>,
}

#[derive(Debug)]
pub(super) struct LagMeter {
    journal_dir: PathBuf,
    last: Mutex<Option<(Instant, Lag)>>,
}

impl LagMeter {
    pub(super) fn new(journal_dir: &Path) -> LagMeter {
        LagMeter { journal_dir: journal_dir.to_owned(), last: Mutex::new(None) }
    }

    /// The lag of an index at position `from`, at most [`GOOD_FOR`] old.
    pub(super) async fn lag(&self, from: Option<Position>, now: Instant) -> Lag {
        let end = end_of(&self.journal_dir);
        if end.is_none() || from >= end {
            return Lag::default();
        }
        // Concurrent callers wait for this count and share it.
        let mut last = self.last.lock().await;
        if let Some((counted_at, lag)) = *last
            && now.saturating_duration_since(counted_at) < GOOD_FOR
        {
            return lag;
        }
        let journal_dir = self.journal_dir.clone();
        let counted = tokio::task::spawn_blocking(move || count(&journal_dir, from, RECORDS_MAX, BYTES_MAX)).await;
        // Blocking tasks are never cancelled.
        let lag = counted.unwrap_or_else(|stopped| std::panic::resume_unwind(stopped.into_panic()));
        *last = Some((now, lag));
        lag
    }
}

fn count(journal_dir: &Path, from: Option<Position>, records_max: u64, bytes_max: usize) -> Lag {
    #[derive(serde::Deserialize)]
    struct At {
        at: u64,
    }
    let mut reader = reader::Reader::new(journal_dir, from);
    let (mut lag, mut read_bytes) = (Lag::default(), 0);
    while let Ok(step) = reader.step() {
        match step {
            reader::Step::Record { bytes, .. } => {
                if lag.records == 0 {
                    lag.oldest_us = serde_json::from_slice::<At>(bytes).ok().map(|record| record.at);
                }
                lag.records += 1;
                read_bytes += bytes.len();
            }
            reader::Step::Lost { .. } => {}
            reader::Step::End => break,
        }
        if lag.records >= records_max || read_bytes >= bytes_max {
            break;
        }
    }
    lag
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::mpsc::sync_channel;

    use super::*;

    const SEGMENT: &str = "000000050009-001.jsonl";

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(1)
            .build()
            .expect("BUG: a runtime")
    }

    fn journal(records: usize) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let records: String = (0..records).map(|number| format!("{{\"at\":{}}}\n", 7 + number)).collect();
        fs::write(dir.path().join(SEGMENT), records).expect("it is ours");
        dir
    }

    #[test]
    fn a_count_is_bounded() {
        let dir = journal(9);
        let check = |records_max, bytes_max, records| {
            let expect = Lag { records, oldest_us: Some(7) };
            assert_eq!(count(dir.path(), None, records_max, bytes_max), expect, "{records_max} {bytes_max}");
        };
        check(100, 1_000, 9);
        check(4, 1_000, 4);
        // The second record has eight bytes too; the third is not read.
        check(100, 9, 2);
    }

    #[test]
    fn a_count_is_reused_for_a_while() {
        let dir = journal(2);
        let meter = LagMeter::new(dir.path());
        runtime().block_on(async {
            let now = Instant::now();
            assert_eq!(meter.lag(None, now).await.records, 2);
            let longer = fs::read(dir.path().join(SEGMENT)).expect("it is there").repeat(2);
            fs::write(dir.path().join(SEGMENT), longer).expect("it is ours");
            assert_eq!(meter.lag(None, now + GOOD_FOR / 2).await.records, 2);
            assert_eq!(meter.lag(None, now + GOOD_FOR).await.records, 4);
            assert_eq!(meter.lag(end_of(dir.path()), now + GOOD_FOR).await, Lag::default());
        });
    }

    #[test]
    fn counting_does_not_block_the_runtime() {
        let dir = journal(2);
        let meter = LagMeter::new(dir.path());
        let (release, released) = sync_channel::<()>(0);
        runtime().block_on(async {
            // The only thread for blocking work is busy, so that the count cannot begin.
            let busy = tokio::task::spawn_blocking(move || released.recv());
            let mut lag = std::pin::pin!(meter.lag(None, Instant::now()));
            tokio::select! {
                biased;
                _ = &mut lag => panic!("the runtime's own thread has counted"),
                () = tokio::task::yield_now() => {}
            }
            drop(release);
            assert_eq!(lag.await.records, 2);
            let _ = busy.await;
        });
    }
}
