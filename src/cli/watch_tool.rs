//! `codex-shim watch-pty`: follows the events of an `agent_pty` until it is interrupted.

use super::args::WatchPtyArguments;
use super::{chosen, say};
use crate::capture::{Watch, Whose, keep};
use crate::config::{Environment, Flags, Settings};
use crate::store::{Found, Otherwise};

/// Does what the command line asks for.
pub(super) fn run(arguments: &WatchPtyArguments, environment: &Environment) -> i32 {
    let session = match chosen::one(arguments.session.as_deref(), Otherwise::None, environment) {
        Ok(session) => session,
        Err(error) => return error.told(),
    };
    let (settings, _) = Settings::load(Flags::default(), environment);
    let bounds = settings.context().bounds;
    let whose = if arguments.all || settings.agent_pty_all.value { Whose::All } else { Whose::Users };
    if !arguments.file.exists() {
        say(&format!("{} is not there yet; it is waited for", arguments.file.display()));
    }
    Watch::new(&arguments.file, whose, bounds).follow(
        |commands| {
            // The relay may have started or ended since.
            let now = Found { live: session.is_still_live(), ..session.clone() };
            keep(&now, commands, &bounds).map(|_| ())
        },
        say,
    );
    0
}
