//! Runs each wrap as a tool started from the desktop does.

use std::process::Command;
use std::time::Duration;

use super::super::wrap::{self, Look, Made};
use super::Check;
use super::probe::{Ran, run};
use crate::config::Settings;
use crate::files::{Folder, Refused};
use crate::relay::locate::is_program;

/// PATH of a tool started from the desktop, on every system.
const BARE_PATH: &str = "/usr/bin:/bin";

/// How long a wrap may take to print codex's version.
const VERSION_WAIT_MAX: Duration = Duration::from_secs(7);

const NAME: &str = "wrap";

pub(super) fn checks(settings: &Settings) -> Vec<Check> {
    let Some(home) = &settings.home.value else { return Vec::new() };
    // A home that is not trusted is reported by the checks of the home.
    if Folder::home(home).is_err_and(|error| Refused::behind(&error).is_some()) {
        return Vec::new();
    }
    match wrap::looks(home) {
        Ok(looks) => looks.into_iter().map(check).collect(),
        Err(why) => {
            vec![Check::broken(NAME, why, "move that file away; without it, `unwrap` does not know what to undo")]
        }
    }
}

fn check(look: Look) -> Check {
    match look {
        Look::Broken(why) => Check::broken(NAME, why, "until then tools do not use codex-shim, or find no codex"),
        Look::Changed(found, remedy) => Check::note(NAME, found, remedy),
        Look::AsMade(made) => check_made(&made),
    }
}

fn check_made(made: &Made) -> Check {
    let Made { name, place, program, pinned } = made;
    let mut command = Command::new(program);
    // A variable of this terminal may name a codex that the tool never sees.
    command.arg("--version").env("PATH", BARE_PATH).env_remove("CODEX_SHIM_CODEX");
    let remedy = || {
        format!("run `codex-shim wrap {name}` in a terminal where codex works; `codex-shim unwrap {name}` undoes it")
    };
    let shown = program.display();
    match run(&mut command, VERSION_WAIT_MAX) {
        Ran::Well(version) => {
            let found = format!("{place} runs {version}, with PATH={BARE_PATH}, too");
            match pinned.as_ref().filter(|pinned| !is_program(pinned)) {
                Some(gone) => Check::note(NAME, format!("{found}; the pinned {} is gone", gone.display()), remedy()),
                None => Check::ok(NAME, found),
            }
        }
        Ran::Badly(why) => {
            Check::broken(NAME, format!("{place}: with PATH={BARE_PATH}, {shown} --version fails: {why}"), remedy())
        }
        Ran::TooSlow => {
            let found =
                format!("{place}: with PATH={BARE_PATH}, {shown} --version did not exit within {VERSION_WAIT_MAX:?}");
            Check::broken(NAME, found, remedy())
        }
    }
}
