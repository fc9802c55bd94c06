//! Follows the events of an `agent_pty` and adds the commands run there to the session's ledger.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use super::notices::Notices;
use crate::capture::{Watch, Whose};
use crate::control::{Published, new_commands};
use crate::engine::ContextBounds;
use crate::store::Ledger;

/// The events to follow.
#[derive(Debug, Clone)]
pub(super) struct Watched {
    pub(super) path: PathBuf,
    pub(super) whose: Whose,
}

/// Starts the thread that follows the events, without waiting for it.
pub(super) fn start(
    watched: &Watched,
    bounds: ContextBounds,
    ledger: Ledger,
    published: &Arc<Published>,
    notices: &Notices,
) {
    let watch = Watch::new(&watched.path, watched.whose, bounds);
    let (for_thread, for_commands) = (Arc::clone(published), Arc::clone(published));
    let follow = move || {
        watch.follow(
            |commands| {
                let bounds = for_commands.context_bounds().unwrap_or(bounds);
                let commands = new_commands(commands.to_vec(), SystemTime::now(), &bounds)?;
                ledger.push_context_blocking(commands).map(|_| ()).map_err(|error| error.to_string())
            },
            |why| {
                Notices::new(Arc::clone(&for_thread)).report(&format!("{why}; relaying goes on"));
            },
        );
    };
    if let Err(error) = std::thread::Builder::new().name("watch-pty".to_owned()).spawn(follow) {
        notices
            .report(&format!("start a thread for {}: {error}; its commands are not recorded", watched.path.display()));
    }
}
