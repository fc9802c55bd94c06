//! `codex-shim fragments`: the fragments that each thread has been sent.
//!
//! If a relay is running it is queried, otherwise the ledger is opened.

use bytesize::ByteSize;

use super::clock::Clock;
use super::context_tool::{look, print_json};
use super::fragments_args::FragmentsArguments;
use super::screen::{self, Screen, Tone};
use super::{FAILED, say, select_session};
use crate::config::{Environment, Flags, Settings};
use crate::control::FragmentsDocument;
use crate::store::{OfflineLedger, Otherwise};

/// Runs the tool; returns the exit status.
pub(super) fn run(arguments: &FragmentsArguments, environment: &Environment) -> i32 {
    let sessions = match select_session::several(arguments.session.name(), Otherwise::Latest, environment) {
        Ok(sessions) => sessions,
        Err(error) => return error.report(),
    };
    let read =
        |ledger: &mut OfflineLedger| Ok(FragmentsDocument::of(ledger.fragments().map_err(|error| error.to_string())?));
    let listed: Result<Vec<FragmentsDocument>, String> =
        sessions.iter().map(|session| look(session, "/sessions/self/fragments", read)).collect();
    let listed = match listed {
        Ok(listed) => listed,
        Err(why) => {
            say(&why);
            return FAILED;
        }
    };
    if arguments.json {
        let threads = listed.into_iter().flat_map(|document| document.threads).collect();
        return print_json(&FragmentsDocument { threads });
    }
    let (settings, _) = Settings::load(Flags::default(), environment);
    let set = settings.assembly.fragments.value.len();
    let (clock, to) = (Clock::of(&arguments.times), Screen::of_stdout(environment));
    let mut text = String::new();
    for (session, document) in sessions.iter().zip(&listed) {
        // The line above the list names one of several sessions.
        let place = match &sessions[..] {
            [_] => format!(" in session {}", screen::plain(&select_session::heading(session, to, environment))),
            _ => {
                text.push_str(&select_session::section(session, &sessions, to));
                " yet".to_owned()
            }
        };
        text.push_str(&as_list(document, &place, set, &clock, to));
    }
    screen::print(&text)
}

fn as_list(document: &FragmentsDocument, place: &str, set: usize, clock: &Clock, to: Screen) -> String {
    if document.threads.is_empty() {
        let why = match set {
            0 => "; none are set: add [[fragments]] to config.toml",
            _ => "; the next turn sends them",
        };
        return format!("no fragments were sent{place}{why}\n");
    }
    let mut text = String::new();
    for thread in &document.threads {
        text.push_str(&format!("{}\n", to.paint(Tone::Strong, &screen::plain(&thread.thread_id))));
        for told in &thread.fragments {
            let stale = if told.stale { ", before a compaction" } else { "" };
            let how = format!("({}, {}, {}{stale})", told.role, told.carrier, ByteSize(told.text.len() as u64));
            text.push_str(&format!(
                "  {}  {}  {}\n",
                to.paint(Tone::Faint, &clock.text(&told.at)),
                screen::plain(&told.name),
                to.paint(Tone::Faint, &how)
            ));
            for line in told.text.lines() {
                text.push_str(&format!("    {}\n", screen::plain(line)));
            }
        }
    }
    text
}
