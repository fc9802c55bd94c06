//! `codex-shim fragments`: the fragments that each thread has been sent.

use bytesize::ByteSize;
use clap::Args;

use super::clock::{Clock, Times};
use super::context_tool::look;
use super::error::Done;
use super::requests::print_json;
use super::screen::{self, Screen, Tone};
use super::select_session;
use super::session_args::SessionWord;
use crate::config::{Environment, Flags, Settings};
use crate::control::FragmentsDocument;
use crate::store::{OfflineLedger, Otherwise};

pub(super) fn run(arguments: &FragmentsArguments, environment: &Environment) -> Done {
    let sessions = select_session::several(arguments.session.name(), Otherwise::Latest, environment)?;
    let read = |ledger: &mut OfflineLedger| Ok(FragmentsDocument::of(ledger.fragments()?));
    let listed: Vec<FragmentsDocument> =
        sessions.iter().map(|session| look(session, "/sessions/self/fragments", read)).collect::<Result<_, _>>()?;
    if arguments.json {
        let threads = listed.into_iter().flat_map(|document| document.threads).collect();
        return Ok(print_json(&FragmentsDocument { threads }));
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
    Ok(screen::print(&text))
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

/// Show the fragments that each thread has been sent
///
/// Fragments are set in config.toml, under [[fragments]]. A thread gets each one whole, and again once it has changed.
/// `developer_addition` is the developer text of a context engine.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  codex-shim fragments
  codex-shim fragments work
  codex-shim fragments --json | jq -r '.threads[].fragments[].name'")]
pub(super) struct FragmentsArguments {
    #[command(flatten)]
    pub(super) session: SessionWord,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) times: Times,
}
