//! `codex-shim replay`: plays a tape as a server.

use super::args::ReplayArguments;
use super::{FAILED, say, tape_file};
use crate::config::Environment;
use crate::replay::{Difference, Strictness, Tape, TapeError, serve};

/// Differences shown in full.
const SHOWN_MAX: usize = 20;

/// Plays the tape. Differences are printed on stderr and are errors with `--strict`.
pub(super) fn run(arguments: &ReplayArguments, environment: &Environment) -> i32 {
    let strictness = if arguments.strict { Strictness::Strict } else { Strictness::Lenient };
    let file = match tape_file::find(&arguments.file, environment) {
        Ok(file) => file,
        Err(status) => return status,
    };
    let tape = match Tape::load(&file) {
        Ok(tape) => tape,
        Err(error @ TapeError::Record { .. }) => {
            say(&format!("{error}; see `codex-shim tape check {}`", file.display()));
            return FAILED;
        }
        Err(error) => {
            say(&error.to_string());
            return FAILED;
        }
    };
    match serve(tape, strictness, arguments.speed) {
        Ok(differences) if differences.is_empty() => 0,
        Ok(differences) => {
            tell(&differences);
            if arguments.strict { FAILED } else { 0 }
        }
        Err(error) => {
            say(&error.to_string());
            FAILED
        }
    }
}

fn tell(differences: &[Difference]) {
    let count = differences.len();
    say(&format!("the client differs from the tape in {count} place{}", if count == 1 { "" } else { "s" }));
    for difference in differences.iter().take(SHOWN_MAX) {
        say(&difference.to_string());
    }
    if count > SHOWN_MAX {
        say(&format!("and {} more", count - SHOWN_MAX));
    }
}
