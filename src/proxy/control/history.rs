//! Routes of the history: `answer` for every query that the index answers, events, activity, and their access to the index and the
//! database that it writes.

use std::collections::{BTreeSet, HashMap};
use std::path::{self, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::extract::Path;
use axum::http::StatusCode;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::open_threads::with_repository;
use super::routes::{Given, Refusal, Responded, SessionInfo, ThisSession, ok};
use crate::api::{
    ActivityDocument, Identities, IndexDocument, Parameters, PrunedDocument, Request, SessionDocument, ThreadDocument,
    ThreadIdentityDocument, Transcript,
};
use crate::history::{Action, Activity, SessionActivity, ThreadActivity, ThreadIdentity, rfc3339_millis};
use crate::index::{HISTORY_FILE, History, HistoryError, HistoryQuery, Index, IndexState, Pruned, ReadAt};
use crate::journal::{Position, end_of, reader};

/// Answers a query from the history.
pub(super) async fn answer<Q: HistoryQuery + Parameters>(
    ThisSession(app): ThisSession,
    Given(query): Given<Q>,
) -> Responded {
    let historian = app.historian()?;
    let at = historian.catch_up().await;
    let unreadable = query.unreadable();
    match (historian.ask(at.opened, move |history| query.read(history, at)).await, unreadable) {
        (Err(error), Some(document)) => {
            tracing::warn!(%error, "the history cannot be read");
            ok(&document)
        }
        (read, _) => ok(&read?),
    }
}

pub(super) async fn activity(ThisSession(app): ThisSession) -> Responded {
    app.historian()?;
    let SessionDocument { state: activity_state, state_since: since, threads, .. } = app.document().await;
    // The members of its threads are sorted by name.
    ok(&json!(ActivityDocument { activity_state, since, threads }))
}

pub(super) async fn transcript(
    ThisSession(app): ThisSession,
    Path((_, thread_id)): Path<(String, String)>,
) -> Responded {
    let historian = app.historian()?;
    let at = historian.catch_up().await;
    let query = Transcript { thread_id: thread_id.clone() };
    let document = historian.ask(at.opened, move |history| query.read(history, at)).await?;
    let is_known = || historian.index.activity().threads(now_us()).iter().any(|thread| thread.thread_id == thread_id);
    if document.entries.is_empty() && !is_known() {
        let message = "unknown thread: this session has no messages of it";
        return Err(Refusal::new(StatusCode::NOT_FOUND, "thread_not_found", message));
    }
    ok(&document)
}

// Access of the routes to the history.

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

impl Historian {
    pub(super) fn new(index: Index, info: &SessionInfo) -> Historian {
        let history = Arc::new(History::new(&info.session_dir.join(HISTORY_FILE)));
        let lag = LagMeter::new(&info.journal_dir);
        Historian { index, history, journal_dir: info.journal_dir.clone(), lag }
    }

    /// Waits, for a bounded time, until everything recorded so far is indexed.
    pub(super) async fn catch_up(&self) -> ReadAt {
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
        ReadAt { opened: state.opened, is_behind: !is_there(&state) || state.fault.is_some() }
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

    /// Who the threads of these rows are, as the member `thread` of each; `null` if nothing on record says it.
    pub(super) async fn identify(&self, rows: &mut [Request]) {
        let ids = threads_of(rows);
        let opened = self.index.state().borrow().opened;
        let mut found = self.identities(opened, &ids).await;
        if found.len() < ids.len() {
            // The thread may be as new as its request.
            let caught_up = self.catch_up().await;
            found = self.identities(caught_up.opened, &ids).await;
        }
        put_threads(rows, &found);
    }

    /// The documents of the threads that are known, by their ids.
    async fn identities(&self, opened: u64, ids: &[String]) -> Identities {
        let wanted = ids.to_vec();
        let found = self.ask(opened, move |history| Ok(documents_of(history, &wanted, opened))).await;
        found.unwrap_or_default()
    }

    /// The activity and the last action of each thread at `now_us`.
    pub(super) async fn threads(&self, now_us: u64, stalled_after: Duration) -> Vec<ThreadDocument> {
        let opened = self.index.state().borrow().opened;
        let activity = self.index.activity();
        self.ask(opened, move |history| Ok(threads(&activity, history, opened, (now_us, stalled_after))))
            .await
            .unwrap_or_default()
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

/// Adds to the rows of requests who their threads are, as a history without a relay says.
pub fn identify_offline(history: &History, rows: &mut [Request]) {
    put_threads(rows, &documents_of(history, &threads_of(rows), 0));
}

/// The ids of the threads of these rows, each once.
fn threads_of(rows: &[Request]) -> Vec<String> {
    let ids: BTreeSet<&str> = rows.iter().filter_map(|row| row.thread_id.as_deref()).collect();
    ids.into_iter().map(str::to_owned).collect()
}

fn put_threads(rows: &mut [Request], found: &Identities) {
    for row in rows {
        row.thread = Some(row.thread_id.as_ref().and_then(|id| found.get(id)).cloned());
    }
}

/// Who threads are, by their ids; those that are not known are left out.
fn documents_of(history: &History, ids: &[String], opened: u64) -> Identities {
    let identities = history.known_identities(ids, opened).into_iter();
    identities.map(|(id, identity)| (id, with_repository(identity))).collect()
}

/// Who threads are, as it is on record in the session of a folder, live or stopped, whose history may be gone.
pub fn recorded_threads(session_dir: &path::Path, ids: &[String]) -> Identities {
    let path = session_dir.join(HISTORY_FILE);
    if path.exists() { History::new(&path).recorded_identities(ids, 0) } else { Identities::new() }
}

/// Adds to a document that has a `thread_id` who that thread is: `thread`, and `name`, as in `proj (codex-tui)`.
pub fn with_thread(mut document: Value, session_dir: Option<&path::Path>) -> Value {
    let id = document["thread_id"].as_str().map(str::to_owned);
    let thread = id.zip(session_dir).and_then(|(id, dir)| recorded_threads(dir, std::slice::from_ref(&id)).remove(&id));
    document["name"] = json!(thread.as_ref().and_then(ThreadIdentityDocument::folder_and_client));
    document["thread"] = json!(thread);
    document
}

/// The activity and the last action of each thread at `now_us`, with the silence after which its turn counts as stalled. An action that
/// cannot be read is left out.
#[must_use]
pub(super) fn threads(
    activity: &SessionActivity,
    history: &History,
    opened: u64,
    (now_us, stalled_after): (u64, Duration),
) -> Vec<ThreadDocument> {
    let threads = activity.threads(now_us);
    let ids: Vec<String> = threads.iter().map(|thread| thread.thread_id.clone()).collect();
    let last = if ids.is_empty() { Ok(Vec::new()) } else { history.last_actions(&ids, opened) };
    let last = last.unwrap_or_else(|error| {
        tracing::debug!(%error, "what threads did last");
        Vec::new()
    });
    let identities = history.identities(&ids, opened).unwrap_or_else(|error| {
        tracing::debug!(%error, "who threads are");
        Vec::new()
    });
    let is_untitled = |identity: &Option<ThreadIdentity>| {
        let description = identity.as_ref().map(|identity| &identity.description);
        description.is_none_or(|description| description.kind.is_user() && description.title.is_none())
    };
    let untitled = ids.iter().zip(&identities).filter(|(_, identity)| is_untitled(identity));
    let untitled: Vec<String> = untitled.map(|(id, _)| id.clone()).collect();
    let words = history.first_words(&untitled, opened).unwrap_or_default();
    let mut words: HashMap<String, Option<String>> = untitled.into_iter().zip(words).collect();
    let last = last.into_iter().chain(std::iter::repeat(None));
    let identities = identities.into_iter().chain(std::iter::repeat(None));
    let document =
        |((thread, last), identity): ((ThreadActivity, Option<Action>), Option<ThreadIdentity>)| ThreadDocument {
            identity: with_repository(identity.unwrap_or_default()),
            first_words: words.remove(&thread.thread_id).flatten(),
            stalled_since: thread.stalled_since_us(now_us, stalled_after).map(rfc3339_millis),
            thread_id: thread.thread_id,
            activity_state: thread.activity,
            since: rfc3339_millis(thread.since_us),
            turn_id: thread.turn_id,
            pending: thread.pending,
            last_action: last.map(|action| action.summary_text),
        };
    threads.into_iter().zip(last).zip(identities).map(document).collect()
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
    pub(super) fn new(journal_dir: &path::Path) -> LagMeter {
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

fn count(journal_dir: &path::Path, from: Option<Position>, records_max: u64, bytes_max: usize) -> Lag {
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
