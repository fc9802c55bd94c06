//! Constants of the running session, for the control socket.

use std::path::PathBuf;
use std::time::SystemTime;

use crate::engine::ContextBounds;
use crate::index::Index;
use crate::store::Ledger;

#[derive(Debug)]
pub(crate) struct Subject {
    pub session_id: String,
    /// The session folder, whose lock we hold.
    pub session_dir: PathBuf,
    pub journal_dir: PathBuf,
    /// Id of the first run of the child.
    pub generation: String,
    /// When the relay started.
    pub started_at: SystemTime,
    /// Folder for the user's sockets, if known.
    pub runtime_dir: Option<PathBuf>,
    /// Limits applied to pushed commands.
    pub context_bounds: ContextBounds,
}

/// The stores of the relay, as far as they could be opened.
#[derive(Debug, Default)]
pub(crate) struct Beside {
    pub ledger: Option<Ledger>,
    /// `None` if nothing is recorded.
    pub index: Option<Index>,
}
