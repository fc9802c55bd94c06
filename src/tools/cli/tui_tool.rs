//! `codex-shim tui`: the sessions full screen.

use std::io::IsTerminal as _;
use std::sync::Arc;

use clap::Args;

use super::filter;
use super::screen::Screen;
use super::select_session::SessionWord;
use super::{CliError, Done, say, select_session};
use crate::config::{Environment, Flags, Settings};
use crate::control::client::Caller;
use crate::sessions::source::{Home, Source};
use crate::store::Otherwise;
use crate::tui::model::Colours;
use crate::tui::{self, Bell, FirstScreen, Pager, Setup, UiEnd};

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
    /// Show the sessions of all hosts of the fleet; SESSION is then HOST/SESSION
    #[cfg(feature = "fleet")]
    #[arg(long)]
    fleet: bool,
}

/// The sessions to show, and the first screen.
fn shown_first(
    arguments: &TuiArguments,
    environment: &Environment,
) -> Result<(Arc<dyn Source>, FirstScreen), CliError> {
    let named = arguments.session.name();
    #[cfg(feature = "fleet")]
    if arguments.fleet {
        let views = super::fleet::views(environment)?;
        let session = named.map(|named| super::fleet::session_named(&views, named)).transpose()?;
        return Ok((views, session.map_or(FirstScreen::List, FirstScreen::Session)));
    }
    let session = named.map(|named| select_session::one(Some(named), Otherwise::Latest, environment)).transpose()?;
    let path = environment.shim_home().value.ok_or_else(CliError::no_home)?;
    let home = Home { path, caller: Caller::Tui };
    Ok((Arc::new(home), session.map_or(FirstScreen::List, |found| FirstScreen::Session(found.id))))
}

pub(super) fn run(arguments: &TuiArguments, environment: &Environment) -> Done {
    let (source, start) = shown_first(arguments, environment)?;
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
    let colours = match Screen::of_stdout(environment) {
        Screen::Coloured => Colours::Some,
        Screen::Plain | Screen::None => Colours::None,
    };
    let pager = Pager::of(environment.get("PAGER"), environment.get("LESS").as_ref());
    let (settings, complaints) = Settings::load(Flags::default(), environment);
    complaints.iter().for_each(|complaint| say(&complaint.to_string()));
    let bell = if settings.tui_bell.value { Bell::On } else { Bell::Off };
    let notice = settings.tui_notify.value.sequence(environment);
    let setup = Setup { colours, pager, bell, notice, folders: filter::folders(environment) };
    match tui::run(source, start, setup) {
        Ok(UiEnd::Left) => Ok(0),
        Ok(UiEnd::Signal(number)) => Ok(128 + number),
        Err(error) => Err(CliError::failed(format!("open the terminal: {error}"))),
    }
}
