//! `codex-shim fragments`: what each thread has been told besides the user's words.
//!
//! Where a relay runs it is asked; where none does, the ledger is opened.

use super::context_tool::{look, print_json};
use super::fragments_args::FragmentsArguments;
use super::screen::{self, Screen, Tone};
use super::{FAILED, chosen, say};
use crate::config::{Environment, Flags, Settings};
use crate::control::FragmentsDocument;
use crate::store::{Found, OfflineLedger, Otherwise};

/// Does what the command line asks for.
pub(super) fn run(arguments: &FragmentsArguments, environment: &Environment) -> i32 {
    let session = match chosen::latest(arguments.session.as_deref(), Otherwise::Latest, environment) {
        Ok(session) => session,
        Err(error) => return error.told(),
    };
    let read =
        |ledger: &mut OfflineLedger| Ok(FragmentsDocument::of(ledger.fragments().map_err(|error| error.to_string())?));
    match look(&session, "/sessions/self/fragments", read) {
        Ok(document) if arguments.json => print_json(&document),
        Ok(document) => {
            let (settings, _) = Settings::load(Flags::default(), environment);
            let set = settings.assembly.fragments.value.len();
            screen::print(&as_list(&document, &session, set, Screen::of_stdout(environment)))
        }
        Err(why) => {
            say(&why);
            FAILED
        }
    }
}

fn as_list(document: &FragmentsDocument, session: &Found, set: usize, to: Screen) -> String {
    if document.threads.is_empty() {
        let why = match set {
            0 => "; none are set, see [[fragments]] in docs/settings.md",
            _ => "; each is told with the next turn",
        };
        return format!("no thread of session {} was told any fragment{why}\n", session.id);
    }
    let mut text = String::new();
    for thread in &document.threads {
        text.push_str(&format!("{}\n", to.paint(Tone::Strong, &screen::plain(&thread.thread_id))));
        for told in &thread.fragments {
            let stale = if told.stale { ", compacted since" } else { "" };
            let how = format!("({}, {}, {} bytes{stale})", told.role, told.carrier, told.text.len());
            text.push_str(&format!(
                "  {}  {}  {}\n",
                to.paint(Tone::Faint, &told.at),
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
