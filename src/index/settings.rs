//! The index's settings and notifications.

use std::path::PathBuf;

use super::transcripts::TranscriptFiles;
use crate::config::RetentionBounds;
use crate::journal::IndexedTo;
use crate::store::{SeqMark, SeqWish};

/// The history's file name in the session's folder.
pub const HISTORY_FILE: &str = "history.db";

/// Reserves event numbers.
pub(crate) type Marks = Box<dyn FnMut(SeqWish) -> Result<SeqMark, String> + Send>;

#[derive(Debug, Clone)]
pub struct IndexSettings {
    pub session_id: String,
    /// The session's folder.
    pub session_dir: PathBuf,
    /// The journal's folder.
    pub journal_dir: PathBuf,
    pub retention: RetentionBounds,
    /// Whether transcripts are also written as files.
    pub transcript_files: TranscriptFiles,
    /// The home in which expired sessions are deleted; `None` deletes none.
    pub home: Option<PathBuf>,
    /// Receives the progress of the index.
    pub indexed_to: IndexedTo,
}

impl IndexSettings {
    /// The path of the history.
    #[must_use]
    pub fn history_path(&self) -> PathBuf {
        self.session_dir.join(HISTORY_FILE)
    }
}

/// A notification to the thread that started the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexNotice {
    /// Nothing can be indexed; why.
    Failed(String),
    /// Nothing can be indexed until the ledger can be used; why it cannot.
    AwaitsLedger(String),
    /// Everything that waited is indexed.
    Recovered,
    /// A corrupt file was set aside under this path.
    SetAside(PathBuf),
    /// A transcript's file is incomplete; why.
    TranscriptFailed(String),
}

/// Receives [`IndexNotice`].
pub(crate) type Notify = Box<dyn FnMut(IndexNotice) + Send>;
