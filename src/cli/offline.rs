//! Reads stopped sessions: the first tool that opens one indexes it and orphans its open requests, as the start of a relay
//! would.
//!
//! *Locking.* The session's lock is only shared, and only for an instant, so a relay that starts meanwhile gets its session.
//! Everything read under the lock (the end of the journal, the runs with open requests) belongs to runs that are over and does
//! not change when a relay starts: only that much is indexed and orphaned. Writing the history takes the index's own lock, for
//! which other tools and a relay's index wait.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::say;
use crate::config::{Environment, Flags, RetentionBounds, Settings};
use crate::files::{Folder, Refused};
use crate::history::SessionActivity;
use crate::index::{HISTORY_FILE, History, Index, IndexNotice, IndexSettings, Marks, Notify, TranscriptFiles};
use crate::journal::{IndexedTo, end_of};
use crate::store::{Found, IndexLock, LEDGER_FILE, OfflineLedger};

/// How long to wait for another tool that indexes the same session.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(30);

/// Polling interval of the lock, because `flock` has no timeout.
const LOCK_LOOK_WAIT: Duration = Duration::from_millis(20);

/// A stopped, fully indexed session.
#[derive(Debug)]
pub(super) struct OfflineSession {
    /// Query it with epoch 0.
    pub(super) history: History,
    /// The final activity of the session and its threads.
    pub(super) activity: Arc<SessionActivity>,
}

/// Why a stopped session cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OfflineError {
    /// A relay is running, so it must be queried instead.
    Live,
    /// Nothing was ever recorded.
    NothingRecorded,
    /// Reading failed; the reason.
    Failed(String),
}

impl OfflineSession {
    /// Indexes and opens a stopped session.
    pub(super) fn open(session: &Found, retention: RetentionBounds) -> Result<OfflineSession, OfflineError> {
        settle(session)?;
        let _lock = take_lock(session)?;
        let Some(end) = session.while_stopped(|| end_of(&session.journal_dir())) else {
            return Err(OfflineError::Live);
        };
        if let Err(error) = Folder::at(&session.journal_dir())
            && let Some(refused) = Refused::behind(&error)
        {
            return Err(OfflineError::Failed(format!("the journal of session {} is not read: {refused}", session.id)));
        }
        let history = History::new(&session.dir.join(HISTORY_FILE));
        let Some(end) = end else { return Err(OfflineError::NothingRecorded) };
        let settings = IndexSettings {
            session_id: session.id.clone(),
            session_dir: session.dir.clone(),
            journal_dir: session.journal_dir(),
            retention,
            indexed_to: IndexedTo::default(),
            home: None,
            transcript_files: TranscriptFiles::None,
        };
        let (state, activity) = Index::catch_up(settings, Some(end), marks(session)?, tell());
        match state.fault {
            None => Ok(OfflineSession { history, activity }),
            Some(why) => Err(OfflineError::Failed(format!(
                "the history of session {} is not usable: {why}; its journal is not affected, see `codex-shim tape show`",
                session.id
            ))),
        }
    }
}

/// The retention limits from the settings.
pub(super) fn retention(environment: &Environment) -> RetentionBounds {
    Settings::load(Flags::default(), environment).0.retention()
}

/// Orphans the open requests of runs that are over.
pub(super) fn settle(session: &Found) -> Result<(), OfflineError> {
    if !session.dir.join(LEDGER_FILE).exists() {
        return Ok(());
    }
    let failed = |error: crate::store::LedgerError| OfflineError::Failed(error.to_string());
    let mut ledger = OfflineLedger::open(&session.dir).map_err(failed)?;
    // Usually there are none, and then the lock is not needed.
    if ledger.open_runs().map_err(failed)?.is_empty() {
        return Ok(());
    }
    let Some(runs) = session.while_stopped(|| ledger.open_runs()) else { return Err(OfflineError::Live) };
    ledger.orphan(&runs.map_err(failed)?).map_err(failed)
}

fn take_lock(session: &Found) -> Result<IndexLock, OfflineError> {
    let began = Instant::now();
    loop {
        match IndexLock::try_take(&session.dir) {
            Ok(Some(lock)) => return Ok(lock),
            Ok(None) if session.is_still_live() => return Err(OfflineError::Live),
            Ok(None) if began.elapsed() < LOCK_WAIT_MAX => std::thread::park_timeout(LOCK_LOOK_WAIT),
            Ok(None) => {
                return Err(OfflineError::Failed(format!(
                    "another process has been indexing session {} for {LOCK_WAIT_MAX:?}; try again",
                    session.id
                )));
            }
            Err(error) => {
                return Err(OfflineError::Failed(format!("lock the history in {}: {error}", session.dir.display())));
            }
        }
    }
}

/// Reserves event numbers in the ledger.
fn marks(session: &Found) -> Result<Marks, OfflineError> {
    let mut ledger = OfflineLedger::open(&session.dir).map_err(|error| OfflineError::Failed(error.to_string()))?;
    let id = session.id.clone();
    Ok(Box::new(move |wish| ledger.reserve_seq(&id, &wish).map_err(|error| error.to_string())))
}

fn tell() -> Notify {
    Box::new(|notice| match notice {
        // The caller reads the fault from the index's state.
        IndexNotice::Failed(_)
        | IndexNotice::AwaitsLedger(_)
        | IndexNotice::Recovered
        | IndexNotice::TranscriptFailed(_) => {}
        IndexNotice::SetAside(kept) => {
            say(&format!("history.db was damaged; it was renamed to {} and rebuilt from the journal", kept.display()))
        }
    })
}
