//! `codex-shim tui`: sessions and their requests, full screen.

use std::io::IsTerminal as _;

use clap::Args;

use super::error::{CliError, Done};
use super::screen::Screen;
use super::select_session;
use super::session_args::SessionWord;
use crate::config::Environment;
use crate::store::Otherwise;
use crate::tui::model::Colours;
use crate::tui::{self, Ending, Pager, Setup, Start};

/// Watch sessions, answer requests and send messages, full screen
///
/// Without SESSION it lists all sessions; those waiting for you come first. `?` or F1 shows the keys.
#[derive(Debug, Args)]
#[command(after_long_help = "\
What you type goes to the model only in the mode `chat`, which never answers a
request; ^R leads to the pending request. The last row names the mode and what
Enter does.

Exit status: 0, or 128 + n if signal n ended it; 2 without a terminal; 3 if
there is no such session.

Examples:
  codex-shim tui
  codex-shim tui work
  NO_COLOR=1 codex-shim tui work")]
pub(super) struct TuiArguments {
    #[command(flatten)]
    session: SessionWord,
}

pub(super) fn run(arguments: &TuiArguments, environment: &Environment) -> Done {
    let named = arguments.session.name();
    let start = match named.map(|named| select_session::one(Some(named), Otherwise::Latest, environment)) {
        None => Start::List,
        Some(Ok(found)) => Start::Session(found.id),
        Some(Err(error)) => return Err(error),
    };
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        let remedy = "without one, use `codex-shim requests` and `codex-shim respond`";
        return Err(CliError::usage("tui needs a terminal on stdin and stdout").with_remedy(remedy));
    }
    let term = environment.get("TERM").unwrap_or_default();
    if term.is_empty() || term == "dumb" {
        let message = format!("tui cannot draw on a terminal with TERM={}", term.to_string_lossy());
        let remedy = "set TERM to the name of the terminal, or use `codex-shim requests` and `codex-shim respond`";
        return Err(CliError::usage(message).with_remedy(remedy));
    }
    let home = environment.shim_home().value.ok_or_else(CliError::no_home)?;
    let colours = match Screen::of_stdout(environment) {
        Screen::Coloured => Colours::Some,
        Screen::Plain | Screen::None => Colours::None,
    };
    let pager = Pager::of(environment.get("PAGER"), environment.get("LESS").as_ref());
    let setup = Setup { colours, pager };
    match tui::run(&home, start, setup) {
        Ok(Ending::Left) => Ok(0),
        Ok(Ending::Signal(number)) => Ok(128 + number),
        Err(error) => Err(CliError::failed(format!("open the terminal: {error}"))),
    }
}
