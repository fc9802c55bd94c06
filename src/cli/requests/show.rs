//! `codex-shim show`: one request whole, and what became of it.

use std::time::SystemTime;

use super::super::screen::{self, Screen};
use super::args::ShowRequestArguments;
use super::{Stop, named, print_json, sight, status};
use crate::config::Environment;

/// Shows a request.
pub(in crate::cli) fn run_show(arguments: &ShowRequestArguments, environment: &Environment) -> i32 {
    status(show(arguments, environment))
}

fn show(arguments: &ShowRequestArguments, environment: &Environment) -> Result<i32, Stop> {
    let (_, document) = named(arguments.common.session.as_deref(), &arguments.request, environment)?;
    if arguments.common.as_json {
        return Ok(print_json(&document));
    }
    let screen = Screen::of_stdout(environment);
    let text = [
        sight::question(&document["request"], SystemTime::now(), screen),
        sight::outcome(&document, screen),
        sight::next(&document["request"], screen),
    ];
    Ok(screen::print(&text.concat()))
}
