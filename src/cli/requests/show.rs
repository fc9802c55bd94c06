//! `codex-shim show`: one request in full, with its outcome.

use super::super::clock::Clock;
use super::super::screen::{self, Screen};
use super::args::ShowRequestArguments;
use super::{Done, detail_view, named, print_json};
use crate::config::Environment;

pub(in crate::cli) fn run_show(arguments: &ShowRequestArguments, environment: &Environment) -> Done {
    let (_, document) = named(arguments.session.name(), &arguments.request, environment)?;
    if arguments.as_json {
        return Ok(print_json(&document));
    }
    let (clock, screen) = (Clock::of(&arguments.times), Screen::of_stdout(environment));
    let text = [
        detail_view::question(&document["request"], &clock, screen),
        detail_view::outcome(&document, &clock, screen),
        detail_view::next(&document["request"], screen),
    ];
    Ok(screen::print(&text.concat()))
}
