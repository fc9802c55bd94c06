//! What a session has left behind in which no relay runs: a tool that opens it first does what a start would, and leaves
//! nothing open and nothing unindexed.
//!
//! *Locking.* The session's lock is only ever shared, for the time of a look, so a start that meets a tool gets its session.
//! What is seen in that look (where the journal ends, which runs have left requests open) is of runs that are over, and
//! stays so whatever starts a moment later: only that much is indexed and orphaned. Writing the history takes the index's
//! own lock, for which other tools and the index of a relay wait.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::say;
use crate::config::{Environment, Flags, RetentionBounds, Settings};
use crate::files::{Folder, Refused};
use crate::history::ActivityFold;
use crate::index::{HISTORY_FILE, History, Index, IndexNotice, IndexSettings, Marks, Notify, TranscriptFiles};
use crate::journal::{IndexedTo, end_of};
use crate::store::{Found, IndexLock, LEDGER_FILE, OfflineLedger};

/// How long a tool waits for another one that indexes the same session.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(30);

/// How often it looks whether that one is done. `flock` cannot be waited for within a limit.
const LOCK_LOOK_WAIT: Duration = Duration::from_millis(20);

/// A session that has stopped, all of it indexed.
#[derive(Debug)]
pub(super) struct Past {
    /// To be asked with epoch 0.
    pub(super) history: History,
    /// What it and its threads did when it ended.
    pub(super) activity: Arc<ActivityFold>,
}

/// Why there is none.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoPast {
    /// A relay runs in the session: that is to be asked.
    Live,
    /// Nothing was ever recorded in it.
    NothingRecorded,
    /// It cannot be read, and why.
    Failed(String),
}

impl Past {
    /// Brings what a session has left in order, and opens it.
    pub(super) fn open(session: &Found, retention: RetentionBounds) -> Result<Past, NoPast> {
        settle(session)?;
        let _lock = take_lock(session)?;
        let Some(end) = session.while_stopped(|| end_of(&session.journal_dir())) else { return Err(NoPast::Live) };
        if let Err(error) = Folder::at(&session.journal_dir())
            && let Some(refused) = Refused::behind(&error)
        {
            return Err(NoPast::Failed(format!("the journal of session {} is not read: {refused}", session.id)));
        }
        let history = History::new(&session.dir.join(HISTORY_FILE));
        let Some(end) = end else { return Err(NoPast::NothingRecorded) };
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
            None => Ok(Past { history, activity }),
            Some(why) => Err(NoPast::Failed(format!(
                "the history of session {} is not usable: {why}; its journal is not affected, see `codex-shim tape show`",
                session.id
            ))),
        }
    }
}

/// How much of a history is kept, as it is set.
pub(super) fn retention(environment: &Environment) -> RetentionBounds {
    Settings::load(Flags::default(), environment).0.retention()
}

/// Orphans what runs that are over have left open.
pub(super) fn settle(session: &Found) -> Result<(), NoPast> {
    if !session.dir.join(LEDGER_FILE).exists() {
        return Ok(());
    }
    let failed = |error: crate::store::LedgerError| NoPast::Failed(error.to_string());
    let mut ledger = OfflineLedger::open(&session.dir).map_err(failed)?;
    // Mostly there is none, and nobody is looked at.
    if ledger.open_runs().map_err(failed)?.is_empty() {
        return Ok(());
    }
    let Some(runs) = session.while_stopped(|| ledger.open_runs()) else { return Err(NoPast::Live) };
    ledger.orphan(&runs.map_err(failed)?).map_err(failed)
}

fn take_lock(session: &Found) -> Result<IndexLock, NoPast> {
    let began = Instant::now();
    loop {
        match IndexLock::try_take(&session.dir) {
            Ok(Some(lock)) => return Ok(lock),
            Ok(None) if session.is_still_live() => return Err(NoPast::Live),
            Ok(None) if began.elapsed() < LOCK_WAIT_MAX => std::thread::park_timeout(LOCK_LOOK_WAIT),
            Ok(None) => {
                return Err(NoPast::Failed(format!(
                    "another process has been indexing session {} for {LOCK_WAIT_MAX:?}; try again",
                    session.id
                )));
            }
            Err(error) => {
                return Err(NoPast::Failed(format!("lock the history in {}: {error}", session.dir.display())));
            }
        }
    }
}

/// Reserves numbers of events in the ledger.
fn marks(session: &Found) -> Result<Marks, NoPast> {
    let mut ledger = OfflineLedger::open(&session.dir).map_err(|error| NoPast::Failed(error.to_string()))?;
    let id = session.id.clone();
    Ok(Box::new(move |wish| ledger.reserve_seq(&id, &wish).map_err(|error| error.to_string())))
}

fn tell() -> Notify {
    Box::new(|notice| match notice {
        // Whoever asked is told once, by the state.
        IndexNotice::Failed(_)
        | IndexNotice::AwaitsLedger(_)
        | IndexNotice::Recovered
        | IndexNotice::TranscriptFailed(_) => {}
        IndexNotice::SetAside(kept) => {
            say(&format!("history.db was damaged; it is kept as {} and rebuilt from the journal", kept.display()))
        }
    })
}
