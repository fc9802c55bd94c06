//! The inbox: the requests of all sessions that wait for a person, on one screen.
//!
//! Pure. It opens a request; it never answers one.

use super::keys::Action;
use super::lists::Destination;
use super::lists::{Inbox, RequestKey};
use super::model::Command;
use super::model::{Focus, Model, Tone};
use super::names::{session_name, with_host};
use super::pressed::{attach, say, show_request};
use crate::control::sort_by_arrival;
use crate::sessions::request_names::ShortNames;
use crate::sessions::rows::Waiting;

/// A request in the inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InboxRow {
    pub key: RequestKey,
    pub thread_id: Option<String>,
    /// The short name that `codex-shim respond` takes.
    pub name: String,
    /// The folder and the client that ask.
    pub place: String,
    /// When it arrived, in microseconds since the Unix epoch.
    pub asked_us: u64,
    pub summary: String,
    /// What makes it riskier than it looks.
    pub warnings: Vec<String>,
}

/// The requests, oldest first.
pub(crate) fn rows(model: &Model) -> Vec<InboxRow> {
    let mut rows: Vec<(InboxRow, String)> = Vec::new();
    for listed in model.elsewhere() {
        let name = session_name(&listed.id, &listed.cwd, listed.client.as_deref());
        rows.extend(listed.waiting.iter().map(|one| row(&listed.id, one, &name)));
    }
    // The attached session is polled more often than the list.
    if let Some(session) = &model.session {
        let name = session_name(&session.id, &session.cwd, session.client());
        let asks = session.asks.iter().filter(|ask| ask.is_for_human());
        rows.extend(asks.map(|ask| row(&session.id, &Waiting::of(ask, &session.cwd), &name)));
    }
    let mut rows = told_apart(rows);
    sort_by_arrival(&mut rows, |row| row.key.0.clone(), |row| row.asked_us);
    let ids: Vec<String> = rows.iter().map(|row| row.key.1.clone()).collect();
    let names = ShortNames::among(ids.iter().map(String::as_str));
    for (row, id) in rows.iter_mut().zip(&ids) {
        row.name = with_host(&row.key.0, names.of(id));
    }
    rows
}

/// The row of a request, and its place with the terminal of the client. `name` is that of the session.
fn row(session: &str, one: &Waiting, name: &str) -> (InboxRow, String) {
    let origin = one.origin.as_ref();
    let named = |of_thread: Option<&String>| of_thread.map_or(name.to_owned(), |own| with_host(session, own));
    let row = InboxRow {
        key: (session.to_owned(), one.id.clone()),
        thread_id: one.thread_id.clone(),
        name: String::new(),
        place: named(origin.map(|origin| &origin.name)),
        asked_us: one.asked_us,
        summary: one.summary.clone(),
        warnings: one.warnings.clone(),
    };
    (row, named(origin.map(|origin| &origin.exact_name)))
}

/// The rows, with the terminals where the places of several threads would be alike.
fn told_apart(rows: Vec<(InboxRow, String)>) -> Vec<InboxRow> {
    let is_alike =
        |one: &InboxRow| rows.iter().any(|(other, _)| other.place == one.place && other.thread_id != one.thread_id);
    let alike: Vec<bool> = rows.iter().map(|(row, _)| is_alike(row)).collect();
    let told = |((row, exact), is_alike): ((InboxRow, String), bool)| match is_alike {
        true => InboxRow { place: exact, ..row },
        false => row,
    };
    rows.into_iter().zip(alike).map(told).collect()
}

/// The position of the selected request.
pub(crate) fn chosen(inbox: &Inbox, rows: &[InboxRow]) -> usize {
    rows.iter().position(|row| Some(&row.key) == inbox.chosen.as_ref()).unwrap_or(0)
}

/// Opens the inbox, or closes it.
pub(super) fn enter_or_leave(model: &mut Model) {
    match model.inbox {
        Some(_) => leave(model),
        None => model.inbox = Some(Inbox::default()),
    }
}

/// Closes the inbox.
pub(super) fn leave(model: &mut Model) {
    model.inbox = None;
}

/// Handles a key in the inbox.
pub(super) fn pressed(model: &mut Model, does: Action) -> Vec<Command> {
    let rows = rows(model);
    let page = usize::from(model.size.height.saturating_sub(4).max(1));
    let Some(inbox) = &mut model.inbox else { return Vec::new() };
    let (at, last) = (chosen(inbox, &rows), rows.len().saturating_sub(1));
    let to = match does {
        Action::Move(to) => to.in_list(at, last, page),
        Action::Enter => return open(model, rows.into_iter().nth(at)),
        Action::Back => {
            leave(model);
            return Vec::new();
        }
        Action::Global(_) | Action::Answer(_) | Action::Browse(_) | Action::NewLine => at,
    };
    inbox.chosen = rows.get(to.min(last)).map(|row| row.key.clone());
    Vec::new()
}

/// Selects a request, or opens it if it is selected already.
pub(super) fn clicked(model: &mut Model, key: RequestKey) -> Vec<Command> {
    let rows = rows(model);
    let Some(inbox) = &mut model.inbox else { return Vec::new() };
    let at = chosen(inbox, &rows);
    match rows.into_iter().nth(at).filter(|row| row.key == key) {
        Some(row) => open(model, Some(row)),
        None => {
            inbox.chosen = Some(key);
            Vec::new()
        }
    }
}

/// Shows a request in its session.
fn open(model: &mut Model, row: Option<InboxRow>) -> Vec<Command> {
    let Some(InboxRow { key: (session_id, request_id), thread_id, .. }) = row else {
        say(model, Tone::Plain, "no request is pending in any session");
        return Vec::new();
    };
    leave(model);
    match &mut model.session {
        Some(session) if session.id == session_id => {
            session.focus = Focus::Answer;
            // What is typed next is meant for the thread that asks.
            if session.thread.is_some() {
                session.unfolded = None;
                session.thread = thread_id;
            }
            let ask = session.asks.iter().find(|ask| ask.id == request_id).cloned();
            if let Some(ask) = ask {
                show_request(model, ask);
            }
            Vec::new()
        }
        Some(_) | None => {
            let commands = attach(model, asking(model, session_id, thread_id));
            if let Some(session) = &mut model.session {
                session.wanted = Some(request_id);
            }
            commands
        }
    }
}

/// Where a request is shown: in its thread, if that has a row of its own.
pub(super) fn asking(model: &Model, session: String, thread_id: Option<String>) -> Destination {
    let row = model.list.rows.iter().find(|row| row.id == session);
    let is_listed = |id: &String| row.is_some_and(|row| row.threads.iter().any(|thread| thread.id == *id));
    Destination { session, thread: thread_id.filter(is_listed) }
}
