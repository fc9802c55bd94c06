//! The threads of a session, and the choice of one.
//!
//! Pure. A thread is known from the relay, from the timeline's window, or from both. The choice belongs to this terminal and
//! changes nothing in the session.

use super::keys::{Action, Move};
use super::model::Command;
use super::model::{Focus, Model, Session, Tone};
use super::pressed::say;
use crate::api::{ThreadDocument, ThreadIdentityDocument};
use crate::history::Activity;
use crate::sessions::names::short_id;
use crate::sessions::news::Link;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ThreadRow {
    pub(super) id: String,
    /// Its activity; `None` if the relay does not report it.
    pub(super) state: Option<Activity>,
    pub(super) pending: u64,
    /// The folder and the client, if several threads are listed.
    pub(super) name: Option<String>,
    /// Its title; else the last message or action in it.
    pub(super) about: String,
}

/// The threads: first the relay's in its order, then others from the timeline. What is folded away has no row, unless it waits for a
/// person.
pub(super) fn rows(session: &Session) -> Vec<ThreadRow> {
    let facts = session.timeline.as_ref().map(|timeline| &timeline.facts);
    let said = |id: &str| facts.and_then(|facts| facts.of(Some(id))).and_then(|facts| facts.said.clone());
    let mut rows = Vec::new();
    if let Link::Up(live) = &session.link {
        let listed = live.document.listed_threads();
        let name = |id: &str| {
            listed
                .iter()
                .find(|listed| listed.has_place() && listed.thread.thread_id == id)
                .map(|listed| listed.name.clone())
        };
        let is_shown = |thread: &&ThreadDocument| session.folding.shows(thread.identity.kind) || thread.pending > 0;
        rows.extend(live.document.threads.iter().filter(is_shown).map(|thread| ThreadRow {
            id: thread.thread_id.clone(),
            state: Some(thread.activity_state),
            pending: thread.pending,
            name: name(&thread.thread_id),
            about: about(thread, said(&thread.thread_id)),
        }));
    }
    let is_live = |id: &str| session.identity(id).is_some();
    for (id, facts) in facts.into_iter().flat_map(|facts| facts.threads()) {
        if !is_live(id) && session.folding.shows(facts.kind) {
            let about = said(id).unwrap_or_default();
            rows.push(ThreadRow { id: id.to_owned(), state: None, pending: 0, name: None, about });
        }
    }
    rows
}

/// What a thread is about: what a person sees in it. That of another kind says what it is.
fn about(thread: &ThreadDocument, said: Option<String>) -> String {
    let ThreadIdentityDocument { kind, title, .. } = &thread.identity;
    let title = title.as_ref().map(|title| format!("\"{title}\""));
    let about = title.or(said).or_else(|| thread.last_action.clone()).unwrap_or_default();
    if kind.is_user() { about } else { format!("{}: {about}", kind.in_words()) }
}

/// Opens the list with the chosen thread selected, or closes it.
pub(super) fn enter_or_leave(model: &mut Model) {
    let Some(session) = &mut model.session else { return };
    session.focus = match session.focus {
        Focus::Threads(_) => Focus::Answer,
        Focus::Answer | Focus::History | Focus::Search(_) | Focus::Reading(_) => {
            let at = rows(session).iter().position(|row| Some(&row.id) == session.thread.as_ref());
            Focus::Threads(at.map_or(0, |at| at + 1))
        }
    };
}

/// Whether a message or an interruption would otherwise reach whichever thread of a hub began a turn last.
pub(super) fn must_be_chosen(model: &Model) -> bool {
    match model.session.as_deref().map(|session| &session.link) {
        Some(Link::Up(live)) => live.document.hub.is_some() && live.document.listed_threads().len() > 1,
        Some(Link::New | Link::Silent(_) | Link::Stopped) | None => false,
    }
}

/// Opens the list instead of what was asked for.
pub(super) fn asked_for(model: &mut Model, what: &str) -> Vec<Command> {
    say(model, Tone::Bad, format!("{what}: several threads are open, choose one first"));
    if !model.session.as_ref().is_some_and(|session| matches!(session.focus, Focus::Threads(_))) {
        enter_or_leave(model);
    }
    Vec::new()
}

/// Handles a key in the list.
pub(super) fn pressed(model: &mut Model, does: Action) -> Vec<Command> {
    let Some(session) = &mut model.session else { return Vec::new() };
    let Focus::Threads(chosen) = session.focus else { return Vec::new() };
    let rows = rows(session);
    let chosen = chosen.min(rows.len());
    match does {
        Action::Move(Move::Up) => session.focus = Focus::Threads(chosen.saturating_sub(1)),
        Action::Move(Move::Down) => session.focus = Focus::Threads((chosen + 1).min(rows.len())),
        Action::Enter => {
            session.thread = chosen.checked_sub(1).and_then(|at| rows.get(at)).map(|row| row.id.clone());
            (session.cursor, session.unfolded) = (None, None);
            session.focus = Focus::Answer;
        }
        Action::Back => session.focus = Focus::Answer,
        Action::Move(Move::First) => session.focus = Focus::Threads(0),
        Action::Move(Move::Last) => session.focus = Focus::Threads(rows.len()),
        Action::Move(_) | Action::Answer(_) | Action::Browse(_) | Action::NewLine | Action::Global(_) => {}
    }
    Vec::new()
}

/// The unique prefix of a thread's id, which commands accept.
pub(super) fn short<'a>(session: &Session, id: &'a str) -> &'a str {
    let rows = rows(session);
    short_id(id, rows.iter().map(|row| row.id.as_str()))
}
