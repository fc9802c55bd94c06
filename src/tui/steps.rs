//! Steps that several keys and news share, and the attention that pending requests in any session get: the bell rings once for
//! each, and the terminal's title counts them.
//!
//! Pure.

use std::collections::HashSet;
use std::sync::Arc;

use super::ask::Ask;
use super::doc::At;
use super::events::Command;
use super::form::Form;
use super::model::{
    About, Answering, Awaited, Focus, LOOK_FIRST_US, Link, Model, NOTE_US, Note, Session, Subject, Tone,
};
use super::names;
use super::text::plain;

/// Shows a note about the last key.
pub(super) fn say(model: &mut Model, tone: Tone, text: impl Into<String>) {
    model.note = Some(Note { text: text.into(), tone, about: About::Key, until_us: model.now_us + NOTE_US });
}

/// Shows a note about an event.
pub(super) fn tell(model: &mut Model, tone: Tone, text: impl Into<String>) {
    model.note = Some(Note { text: text.into(), tone, about: About::News, until_us: model.now_us + NOTE_US });
}

/// Attaches to a session and keeps the unsent text of the one before.
pub(crate) fn attach(model: &mut Model, id: String) -> Vec<Command> {
    keep(model);
    model.attachments += 1;
    model.list.chosen = Some(id.clone());
    model.note = None;
    let composer = model.drafts.remove(&id).unwrap_or_default();
    model.session = Some(Box::new(Session::new(id.clone(), model.attachments, composer)));
    vec![Command::Attach { id, attachment: model.attachments }]
}

/// Stores unsent text before another session or the list replaces this one.
pub(super) fn keep(model: &mut Model) {
    put_aside(model);
    if let Some(session) = &mut model.session {
        let draft = session.composer.clone();
        if !draft.text().is_empty() && !session.is_saying {
            model.drafts.insert(session.id.clone(), draft);
        }
    }
}

/// Restarts the timeline at its end.
pub(super) fn follow(session: &mut Session) -> Vec<Command> {
    session.epoch += 1;
    session.reading = Some(Awaited::Page);
    vec![Command::Follow { epoch: session.epoch }]
}

/// Shows a request with the answers begun earlier, and puts the current one aside.
pub(super) fn show_request(model: &mut Model, ask: Arc<Ask>) {
    put_aside(model);
    let now_us = model.now_us;
    let Some(session) = &mut model.session else { return };
    let begun = model.begun.remove(&(session.id.clone(), ask.id.clone()));
    let answering = begun.unwrap_or_else(|| Answering {
        details: Arc::new(ask.details(&session.cwd)),
        form: Form::new(ask.steps()),
        ask,
        since_us: now_us,
        ended: None,
        is_sent: false,
        sure: None,
        reason: None,
        at: At::default(),
    });
    // It must be visible again for a while before a key answers it.
    session.answering = Some(Answering { since_us: now_us, sure: None, ..answering });
}

/// Leaves the request and stores the answers typed so far.
pub(super) fn put_aside(model: &mut Model) {
    let Some(session) = &mut model.session else { return };
    if let Focus::Reading(reading) = &session.focus
        && matches!(reading.subject, Subject::Request(_))
    {
        session.focus = Focus::Answer;
    }
    let Some(answering) = session.answering.take() else { return };
    let is_begun = answering.form.is_touched() || answering.reason.is_some();
    if is_begun && !answering.is_sent && answering.ended.is_none() {
        model.begun.insert((session.id.clone(), answering.ask.id.clone()), answering);
    }
}

/// Shows the oldest request that waits for a human, or returns to chat.
pub(super) fn next_request(model: &mut Model) {
    put_aside(model);
    let Some(session) = &model.session else { return };
    if let Some(ask) = session.asks.iter().find(|ask| ask.is_for_human()).cloned() {
        show_request(model, ask);
    }
}

/// Whether a request was visible long enough to be answered. If not, the period starts again, because the user is typing.
pub(super) fn was_seen(answering: &mut Answering, now_us: u64) -> bool {
    let was_seen = now_us.saturating_sub(answering.since_us) >= LOOK_FIRST_US;
    if !was_seen {
        answering.since_us = now_us;
    }
    was_seen
}

/// Starts a read of the journal, one at a time.
pub(super) fn ask_journal(session: &mut Session, awaited: Awaited, command: Command) -> Vec<Command> {
    if session.reading.is_some() {
        return Vec::new();
    }
    session.reading = Some(awaited);
    vec![command]
}

/// Whether nothing was typed since the session was attached.
pub(super) fn is_untouched(session: &Session) -> bool {
    session.composer.text() == session.draft.text()
}

/// Most requests whose bell is remembered.
const RUNG_MAX: usize = 10_000;

/// Rings once for each new request.
pub(super) fn ring(model: &mut Model) -> Vec<Command> {
    let mut waiting: HashSet<(String, String)> = HashSet::new();
    for row in &model.list.rows {
        waiting.extend(row.waiting.iter().map(|(request_id, _)| (row.id.clone(), request_id.clone())));
    }
    if let Some(session) = &model.session {
        let asks = session.asks.iter().filter(|ask| ask.is_for_human());
        waiting.extend(asks.map(|ask| (session.id.clone(), ask.id.clone())));
    }
    let is_new = !waiting.is_subset(&model.rung);
    // A list that was read before an answer can arrive after it, so ended requests are remembered too.
    if model.rung.len() > RUNG_MAX {
        model.rung.clear();
    }
    model.rung.extend(waiting);
    if is_new { vec![Command::Ring] } else { Vec::new() }
}

/// Requests that wait for a person, in this session and in others.
pub(super) fn counts(model: &Model) -> (usize, usize) {
    let here = model.session.as_ref();
    let here = here.map_or(0, |session| session.asks.iter().filter(|ask| ask.is_for_human()).count());
    (here, model.elsewhere().map(|row| row.waiting.len()).sum())
}

pub(super) fn title(model: &Model) -> String {
    let (here, elsewhere) = counts(model);
    let name =
        model.session.as_ref().map(|session| format!(" · {}", plain(&names::session(&session.cwd, session.client()))));
    let waits = match here + elsewhere {
        0 => String::new(),
        1 => "(1 waits) ".to_owned(),
        more => format!("({more} wait) "),
    };
    let is_stopped = model.session.as_ref().is_some_and(|session| session.link == Link::Stopped);
    let stopped = if is_stopped { " (stopped)" } else { "" };
    format!("{waits}codex-shim{}{stopped}", name.unwrap_or_default())
}
