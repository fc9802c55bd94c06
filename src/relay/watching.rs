//! The events of an `agent_pty` beside a relay: what is run there is kept in its ledger.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use super::notices::Notices;
use crate::capture::{Watch, Whose};
use crate::control::{Published, new_commands};
use crate::engine::ContextBounds;
use crate::store::Ledger;

/// What is followed.
#[derive(Debug, Clone)]
pub(super) struct Watched {
    pub(super) path: PathBuf,
    pub(super) whose: Whose,
}

/// Has a thread follow the events, and waits for nothing of it.
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
                Notices::new(Arc::clone(&for_thread)).say(&format!("{why}; relaying goes on"));
            },
        );
    };
    if let Err(error) = std::thread::Builder::new().name("watch-pty".to_owned()).spawn(follow) {
        notices.say(&format!("start a thread for {}: {error}; it is not followed", watched.path.display()));
    }
}
