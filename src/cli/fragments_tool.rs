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
use crate::store::{Found, OfflineLedger, Otherwise};

/// Runs the tool; returns the exit status.
pub(super) fn run(arguments: &FragmentsArguments, environment: &Environment) -> i32 {
    let session = match select_session::latest(arguments.session.name(), Otherwise::Latest, environment) {
        Ok(session) => session,
        Err(error) => return error.report(),
    };
    let read =
        |ledger: &mut OfflineLedger| Ok(FragmentsDocument::of(ledger.fragments().map_err(|error| error.to_string())?));
    match look(&session, "/sessions/self/fragments", read) {
        Ok(document) if arguments.json => print_json(&document),
        Ok(document) => {
            let (settings, _) = Settings::load(Flags::default(), environment);
            let set = settings.assembly.fragments.value.len();
            let clock = Clock::of(&arguments.times);
            screen::print(&as_list(&document, &session, set, &clock, Screen::of_stdout(environment)))
        }
        Err(why) => {
            say(&why);
            FAILED
        }
    }
}

fn as_list(document: &FragmentsDocument, session: &Found, set: usize, clock: &Clock, to: Screen) -> String {
    if document.threads.is_empty() {
        let why = match set {
            0 => "; none are set: add [[fragments]] to config.toml",
            _ => "; the next turn sends them",
        };
        return format!("no fragments were sent in session {}{why}\n", session.id);
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
