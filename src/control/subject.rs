//! What is told of at a socket, as far as it does not change.

use std::path::PathBuf;
use std::time::SystemTime;

use crate::engine::ContextBounds;
use crate::index::Index;
use crate::store::Ledger;

/// The relay that is told of.
#[derive(Debug)]
pub(crate) struct Subject {
    /// The session's id.
    pub session_id: String,
    /// Its folder, whose lock we hold.
    pub session_dir: PathBuf,
    /// Its journal's folder.
    pub journal_dir: PathBuf,
    /// The first run of the child.
    pub generation: String,
    /// When the relay started.
    pub started_at: SystemTime,
    /// Where the user's sockets belong, as far as that is known.
    pub runtime_dir: Option<PathBuf>,
    /// How commands are cut that are pushed.
    pub context_bounds: ContextBounds,
}

/// What stands beside the relay that is told of, as far as it could be had.
#[derive(Debug, Default)]
pub(crate) struct Beside {
    /// Its ledger.
    pub ledger: Option<Ledger>,
    /// Its index; there is none where nothing is recorded.
    pub index: Option<Index>,
}
