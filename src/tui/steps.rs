//! Steps that several keys and several news lead to.
//!
//! Pure.

use super::model::{Answering, Awaited, Command, LOOK_FIRST_US, Model, NOTE_US, Note, Session, Tone};
use super::text::Field;

/// Tells something for a while.
pub(super) fn say(model: &mut Model, tone: Tone, text: impl Into<String>) {
    model.note = Some(Note { text: text.into(), tone, until_us: model.now_us + NOTE_US });
}

/// Attaches to a session.
pub fn attach(model: &mut Model, id: String) -> Vec<Command> {
    model.attachments += 1;
    model.list.chosen = Some(id.clone());
    let composer = model.drafts.remove(&id).unwrap_or_default();
    model.session = Some(Box::new(Session::new(id.clone(), model.attachments, composer)));
    vec![Command::Attach { id, attachment: model.attachments }]
}

/// Begins the timeline anew, at its end.
pub(super) fn follow(session: &mut Session) -> Vec<Command> {
    session.epoch += 1;
    session.reading = Some(Awaited::Page);
    vec![Command::Follow { epoch: session.epoch }]
}

/// On to the oldest request that waits for a human, or back to chat.
pub(super) fn next_request(session: &mut Session, now_us: u64) {
    let next = session.asks.iter().find(|ask| ask.is_for_human()).cloned();
    session.answering = next.map(|ask| answering(ask, now_us));
}

/// Shows a request to be answered.
pub(super) fn answering(ask: super::ask::Ask, now_us: u64) -> Answering {
    let steps = ask.steps();
    Answering {
        ask,
        since_us: now_us,
        ended: None,
        is_sent: false,
        sure: None,
        reason: None,
        scroll: 0,
        steps,
        answers: Vec::new(),
        chosen: 0,
        text: Field::default(),
        is_left_empty: false,
    }
}

/// Whether a request has been on the screen for long enough to be answered.
pub(super) fn was_seen(answering: &Answering, now_us: u64) -> bool {
    now_us.saturating_sub(answering.since_us) >= LOOK_FIRST_US
}

/// The journal is asked; one thing at a time.
pub(super) fn ask_journal(session: &mut Session, awaited: Awaited, command: Command) -> Vec<Command> {
    if session.reading.is_some() {
        return Vec::new();
    }
    session.reading = Some(awaited);
    vec![command]
}
