//! The parameters with which the recorder opens its session.

use std::path::PathBuf;

use uuid::Uuid;

use super::follow_pty::Watched;
use super::inbox::Outbox;
use crate::config::{RetentionBounds, SessionName};
use crate::engine::{ContextBounds, ContextEngineSettings};
use crate::index::TranscriptFiles;
use crate::journal::{Bounds, IndexedTo};
use crate::store::Place;

/// Whether the session has a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordKept {
    Yes,
    No,
}

#[derive(Debug)]
pub(super) struct Opening {
    pub(super) home: Option<PathBuf>,
    pub(super) wanted: Option<SessionName>,
    pub(super) record: RecordKept,
    pub(super) bounds: Bounds,
    pub(super) retention: RetentionBounds,
    /// Whether transcripts are also written as files.
    pub(super) transcript_files: TranscriptFiles,
    /// How far the index has read; the index sets it for the journal's writer thread.
    pub(super) indexed_to: IndexedTo,
    pub(super) place: Place,
    /// The id of a new session.
    pub(super) fresh_id: Uuid,
    pub(super) codex_path: String,
    pub(super) child_pid: u32,
    pub(super) runtime_dir: Option<PathBuf>,
    pub(super) context_bounds: ContextBounds,
    /// The `agent_pty` events to follow.
    pub(super) watched: Option<Watched>,
    pub(super) context_engine: Option<ContextEngineSettings>,
    pub(super) outbox: Outbox,
}
