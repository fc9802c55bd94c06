//! Takes a session for maintenance, and determines what may be changed in it.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::RetentionBounds;
use crate::index::{HISTORY_FILE, Index, IndexSettings, Marks, TranscriptFiles, indexed_before};
use crate::journal::{IndexedTo, SegmentName};
use crate::store::{Found, IndexLock, LEDGER_FILE, Life, OfflineLedger, RunMode};

/// Attempts to take the index lock.
const BUSY_TRIES: u32 = 100;

/// The pause between two attempts.
const BUSY_WAIT: Duration = Duration::from_millis(50);

/// Why a session cannot be maintained.
#[derive(Debug)]
pub(super) enum HeldError {
    /// Another process holds it.
    Busy { session: String },
    /// A file cannot be used.
    Io { path: PathBuf, source: io::Error },
    /// The session, or something in it, is a link, which may lead anywhere.
    Link { path: PathBuf },
    /// Recorded lines cannot be indexed.
    NotIndexed { session: String, why: String },
}

impl fmt::Display for HeldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HeldError::Busy { session } => {
                write!(f, "session {session}: another codex-shim is indexing or rewriting it; try again later")
            }
            HeldError::Link { path } => write!(f, "{} is a link, which codex-shim does not follow", path.display()),
            HeldError::Io { path, source } => write!(f, "use {}: {source}", path.display()),
            HeldError::NotIndexed { session, why } => {
                write!(f, "session {session}: recorded lines cannot be indexed, so its journal is not changed: {why}")
            }
        }
    }
}

impl std::error::Error for HeldError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            HeldError::Io { source, .. } => Some(source),
            HeldError::Busy { .. } | HeldError::Link { .. } | HeldError::NotIndexed { .. } => None,
        }
    }
}

/// A session under maintenance.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) session: Found,
    pub(super) life: Life,
    pub(super) mode: RunMode,
    /// The segments at the start, oldest first.
    pub(super) segments: Vec<SegmentName>,
    _lock: Option<IndexLock>,
}

impl Held {
    /// Takes a session, or only reads it.
    pub(super) fn take(session: &Found, mode: RunMode) -> Result<Held, HeldError> {
        let inside = ["journal", HISTORY_FILE, LEDGER_FILE].map(|name| session.dir.join(name));
        for path in [session.dir.clone()].into_iter().chain(inside) {
            if path.is_symlink() {
                return Err(HeldError::Link { path });
            }
        }
        for _ in 0..BUSY_TRIES {
            let lock = match mode {
                RunMode::Apply => IndexLock::try_take(&session.dir)
                    .map_err(|source| HeldError::Io { path: session.dir.clone(), source })?,
                RunMode::DryRun => None,
            };
            // Listed before the check for a relay, so that segments of a relay that starts now are not included.
            let segments = SegmentName::list(&session.journal_dir()).unwrap_or_default();
            let life = if session.is_still_live() { Life::Live } else { Life::Stopped };
            if lock.is_some() || life == Life::Live || mode == RunMode::DryRun {
                return Ok(Held { session: session.clone(), life, mode, segments, _lock: lock });
            }
            // `flock` has no bounded wait, and a stopped process that holds the lock would block us for good.
            std::thread::sleep(BUSY_WAIT);
        }
        Err(HeldError::Busy { session: session.id.clone() })
    }

    pub(super) fn history(&self) -> PathBuf {
        self.session.dir.join(HISTORY_FILE)
    }

    /// Indexes the rest of a stopped session. Returns the segment before which everything is indexed and closed; `None` if
    /// nothing is.
    pub(super) fn index(&self, transcript_files: TranscriptFiles) -> Result<Option<SegmentName>, HeldError> {
        let not_indexed = |why| HeldError::NotIndexed { session: self.session.id.clone(), why };
        let Some(last) = self.segments.last() else { return Ok(None) };
        match (self.life, self.mode) {
            (Life::Live, RunMode::Apply | RunMode::DryRun) => {
                let indexed = indexed_before(&self.history()).map_err(not_indexed)?;
                // The last segment is still being written.
                Ok(indexed.map(|indexed| indexed.min(last.clone())))
            }
            (Life::Stopped, RunMode::DryRun) => Ok(Some(after(last))),
            (Life::Stopped, RunMode::Apply) => {
                self.catch_up(transcript_files).map_err(not_indexed)?;
                Ok(Some(after(last)))
            }
        }
    }

    fn catch_up(&self, transcript_files: TranscriptFiles) -> Result<(), String> {
        let mut ledger = OfflineLedger::open(&self.session.dir).map_err(|error| error.to_string())?;
        let id = self.session.id.clone();
        let marks: Marks = Box::new(move |wish| ledger.reserve_seq(&id, &wish).map_err(|error| error.to_string()));
        let settings = IndexSettings {
            session_id: self.session.id.clone(),
            session_dir: self.session.dir.clone(),
            journal_dir: self.session.journal_dir(),
            retention: RetentionBounds::UNBOUNDED,
            transcript_files,
            home: None,
            indexed_to: IndexedTo::default(),
        };
        let (state, _) = Index::catch_up(settings, None, marks, Box::new(|_| {}));
        state.fault.map_or(Ok(()), Err)
    }
}

/// The lowest name after that of a segment; it sorts before all later segments.
fn after(segment: &SegmentName) -> SegmentName {
    SegmentName { generation: segment.generation.clone(), number: segment.number.saturating_add(1) }
}
