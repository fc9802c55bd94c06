//! What an index is told at its beginning, and what it tells.

use std::path::PathBuf;

use super::transcripts::TranscriptFiles;
use crate::config::RetentionBounds;
use crate::journal::IndexedTo;
use crate::store::{SeqMark, SeqWish};

/// The history's name in the session's folder.
pub const HISTORY_FILE: &str = "history.db";

/// Has numbers of events reserved.
pub(crate) type Marks = Box<dyn FnMut(SeqWish) -> Result<SeqMark, String> + Send>;

/// What an index is told at its beginning.
#[derive(Debug, Clone)]
pub struct IndexSettings {
    /// The session's id.
    pub session_id: String,
    /// Its folder.
    pub session_dir: PathBuf,
    /// Its journal's folder.
    pub journal_dir: PathBuf,
    /// How much is kept.
    pub retention: RetentionBounds,
    /// Whether transcripts are kept as files, too.
    pub transcript_files: TranscriptFiles,
    /// Where sessions are looked for that nobody uses any more; `None` looks for none.
    pub home: Option<PathBuf>,
    /// Told how far it is.
    pub indexed_to: IndexedTo,
}

impl IndexSettings {
    /// Where the history is.
    #[must_use]
    pub fn history_path(&self) -> PathBuf {
        self.session_dir.join(HISTORY_FILE)
    }
}

/// What the index tells whoever started it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tidings {
    /// Nothing can be indexed, and why.
    Failed(String),
    /// Nothing can be indexed until the ledger can be used, and why it cannot.
    AwaitsLedger(String),
    /// All that waited is indexed.
    Recovered,
    /// A file that was no database any more was set aside.
    SetAside(PathBuf),
    /// A transcript's file lacks something, and why.
    TranscriptFailed(String),
}

/// Tells [`Tidings`].
pub(crate) type Tell = Box<dyn FnMut(Tidings) + Send>;
