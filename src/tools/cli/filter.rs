//! Filters on the command line: their place, their flag, and their completion.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use jiff::tz::TimeZone;

use super::since::Since;
use super::{CliError, USAGE, complete, lines, select_session};
use crate::config::Environment;
use crate::history::{self, Filter, FilterPlace};
use crate::sessions::search::choices;
use crate::tui::Folders;

#[derive(Debug, Args)]
pub(super) struct FilterFlag {
    /// Only what matches words and tokens such as kind:command or by:tui
    #[arg(long = "filter", value_name = "QUERY", id = "filter", add = texts())]
    filter: Option<String>,
}

impl FilterFlag {
    /// The filter; without the flag everything passes it.
    pub(super) fn get(&self, environment: &Environment) -> Result<Filter, CliError> {
        read("--filter", self.filter.as_deref().unwrap_or_default(), environment)
    }
}

/// Reads the filter that an argument of this name has.
pub(super) fn read(argument: &str, text: &str, environment: &Environment) -> Result<Filter, CliError> {
    let Folders { home, current } = folders(environment);
    let zone = TimeZone::system();
    let now_us = Since::now().micros();
    let place = FilterPlace { now_us, zone: &zone, home: home.as_deref(), folder: current.as_deref() };
    Filter::read(text, &place).map_err(|why| CliError::exits(USAGE, lines(&format!("{argument}: {why}"))))
}

/// The folders that a filter can refer to.
pub(super) fn folders(environment: &Environment) -> Folders {
    let text = |path: PathBuf| path.into_os_string().into_string().ok();
    Folders { home: environment.user_home().and_then(text), current: std::env::current_dir().ok().and_then(text) }
}

/// Completes filters.
pub(super) fn texts() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| {
        let sessions = select_session::all(&Environment::of_process()).unwrap_or_default();
        let offers = history::complete(typed.to_str().unwrap_or_default(), &choices(&sessions));
        complete::matching(typed, offers.into_iter().map(|offer| (offer, String::new())).collect())
    })
}
