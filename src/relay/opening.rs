//! What a session is opened for.

use std::path::PathBuf;

use uuid::Uuid;

use super::inbox::Outbox;
use super::watching::Watched;
use crate::config::{RetentionBounds, SessionName};
use crate::engine::{ContextBounds, ContextEngineSettings};
use crate::index::TranscriptFiles;
use crate::journal::{Bounds, IndexedTo};
use crate::store::Place;

/// Whether a journal is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordKept {
    /// One is.
    Yes,
    /// None is.
    No,
}

/// What a session is opened for.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) home: Option<PathBuf>,
    pub(super) wanted: Option<SessionName>,
    pub(super) record: RecordKept,
    pub(super) bounds: Bounds,
    /// How much of a history is kept.
    pub(super) retention: RetentionBounds,
    /// Whether transcripts are kept as files, too.
    pub(super) transcript_files: TranscriptFiles,
    /// Told by the index to the journal's keeper.
    pub(super) indexed_to: IndexedTo,
    pub(super) place: Place,
    /// What a new session is called.
    pub(super) fresh_id: Uuid,
    pub(super) codex_path: String,
    pub(super) child_pid: u32,
    pub(super) runtime_dir: Option<PathBuf>,
    pub(super) context_bounds: ContextBounds,
    /// The events that are followed, where some are.
    pub(super) watched: Option<Watched>,
    /// The user's context engine, where one is set.
    pub(super) context_engine: Option<ContextEngineSettings>,
    /// Where the ledger tells the relay something.
    pub(super) outbox: Outbox,
}
