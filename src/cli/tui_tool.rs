//! `codex-shim tui`: sessions and their requests, full screen.

use std::io::IsTerminal as _;

use super::args::TuiArguments;
use super::screen::Screen;
use super::select_session::{self, NoSession};
use super::{FAILED, USAGE, say};
use crate::config::Environment;
use crate::store::Otherwise;
use crate::tui::model::Colours;
use crate::tui::{self, Ending, Setup, Start};

/// Runs the tool; returns the exit status.
pub(super) fn run(arguments: &TuiArguments, environment: &Environment) -> i32 {
    let named = arguments.session.name();
    let start = match named.map(|named| select_session::one(Some(named), Otherwise::Latest, environment)) {
        None => Start::List,
        Some(Ok(found)) => Start::Session(found.id),
        Some(Err(error)) => return error.report(),
    };
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        say(
            "tui needs a terminal on stdin and stdout; without one, use `codex-shim requests` and `codex-shim respond`",
        );
        return USAGE;
    }
    if environment.get("TERM").is_none_or(|term| term.is_empty() || term == "dumb") {
        let term = environment.get("TERM").unwrap_or_default();
        say(&format!(
            "tui draws on the whole screen, which a terminal with TERM={} cannot do; use `codex-shim requests` and \
             `codex-shim respond`, or set TERM to the name of the terminal",
            term.to_string_lossy()
        ));
        return USAGE;
    }
    let Some(home) = environment.shim_home().value else { return NoSession::NoHome.report() };
    let colours = match Screen::of_stdout(environment) {
        Screen::Coloured => Colours::Some,
        Screen::Plain | Screen::None => Colours::None,
    };
    let pager = environment.get("PAGER").unwrap_or_else(|| "less -R".into());
    let setup = Setup { colours, pager, less: environment.get("LESS") };
    match tui::run(&home, start, setup) {
        Ok(Ending::Left) => 0,
        Ok(Ending::Signal(number)) => 128 + number,
        Err(error) => {
            say(&format!("open the terminal: {error}"));
            FAILED
        }
    }
}
