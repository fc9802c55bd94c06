//! `codex-shim watch-pty`: follows the events of an `agent_pty` until it is interrupted.

use serde_json::json;

use super::args::WatchPtyArguments;
use super::{say, screen, select_session};
use crate::capture::{Watch, Whose, keep};
use crate::config::{Environment, Flags, Settings};
use crate::engine::{PushedCommand, redacted};
use crate::store::{Found, Otherwise};

/// Runs the tool; returns the exit status.
pub(super) fn run(arguments: &WatchPtyArguments, environment: &Environment) -> i32 {
    let session = match select_session::one(arguments.session.name(), Otherwise::None, environment) {
        Ok(session) => session,
        Err(error) => return error.report(),
    };
    let (settings, _) = Settings::load(Flags::default(), environment);
    let bounds = settings.context().bounds;
    let whose = if arguments.all || settings.agent_pty_all.value { Whose::All } else { Whose::Users };
    if !arguments.file.exists() {
        say(&format!("{} does not exist yet; waiting for it", arguments.file.display()));
    }
    Watch::new(&arguments.file, whose, bounds).follow(
        |commands| {
            // The relay may have started or exited meanwhile.
            let now = Found { live: session.is_still_live(), ..session.clone() };
            keep(&now, commands, &bounds)?;
            if arguments.json {
                // The reader of stdout may be gone; the commands are kept anyway.
                let _ = screen::print(&commands.iter().map(json_line).collect::<String>());
            }
            Ok(())
        },
        say,
    );
    0
}

/// The JSON line for a kept command, without its output.
fn json_line(command: &PushedCommand) -> String {
    let cmd = redacted(&command.cmd).unwrap_or_else(|| command.cmd.clone());
    let PushedCommand { exit_code, cwd, block_id, ts, provenance, .. } = command;
    let duration_ms = provenance.duration_ms;
    let told = json!({
        "block_id": block_id, "cmd": cmd, "exit_code": exit_code, "cwd": cwd, "ts": ts, "duration_ms": duration_ms,
    });
    format!("{told}\n")
}
