//! Keys at a request: one key answers an approval, and questions come one after the other.
//!
//! Pure. Risky answers need a confirmation. [`super::deciding`] lets no key answer that came with others, or too early.

use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent};

use super::browse;
use super::form::Field;
use super::form::{Stand, Taken};
use super::keys::{Action, AnswerKey, Browse, Move};
use super::model::Command;
use super::model::{Answering, Focus, Model, Session, Tone};
use super::pressed::{next_request, put_aside, say};
use super::review;
use crate::requests::form::in_one_line;
use crate::requests::view::Gives;
use crate::sessions::poller::Call;
use crate::text::doc::At;

/// The keys that answer the request, if keys do.
pub(super) fn valid(model: &Model) -> Option<String> {
    let shown = model.session.as_ref()?.answering.as_ref()?;
    let keys: Vec<String> = shown.ask.keys().iter().map(char::to_string).collect();
    (!keys.is_empty()).then(|| keys.join(" "))
}

/// Handles a key at an approval.
pub(super) fn approval(model: &mut Model, does: Action, key: &KeyEvent) -> Vec<Command> {
    let room = model.room;
    let Some(session) = &mut model.session else { return Vec::new() };
    let Some(shown) = &mut session.answering else { return Vec::new() };
    match does {
        Action::Move(to) => scroll(shown, to, room),
        Action::Back => put_aside(model),
        Action::Browse(Browse::Review) if shown.ended.is_some() && key.code == KeyCode::Enter => next_request(model),
        Action::Browse(Browse::Review) => return review::of_request(model),
        Action::Browse(Browse::Pager) => {
            let details = shown.details.clone();
            return match &details.diff {
                Some(diff) => vec![Command::PageDiff(Arc::clone(diff))],
                None => vec![Command::Page(Arc::new(details.doc.clone()))],
            };
        }
        Action::Answer(_) => return choose(model, key),
        Action::Enter | Action::NewLine | Action::Global(_) | Action::Browse(_) => {}
    }
    Vec::new()
}

fn scroll(shown: &mut Answering, to: Move, room: crate::text::doc::Room) {
    shown.at = browse::scrolled(&shown.details.doc, shown.at, to, room);
}

/// Answers the request, or asks for a confirmation first.
pub(super) fn choose(model: &mut Model, key: &KeyEvent) -> Vec<Command> {
    let Some(session) = &mut model.session else { return Vec::new() };
    let Some(shown) = &mut session.answering else { return Vec::new() };
    if shown.is_sent || shown.ended.is_some() {
        return Vec::new();
    }
    let KeyCode::Char(pressed) = key.code else { return Vec::new() };
    let Some(choice) = shown.ask.choices().find(|choice| choice.key == pressed).cloned() else {
        let valid = valid(model).map_or("it cannot be answered here".to_owned(), |keys| format!("valid: {keys}"));
        say(model, Tone::Bad, format!("`{pressed}` is not an answer to this request; {valid}"));
        return Vec::new();
    };
    if choice.danger.is_some() {
        shown.sure = Some(choice);
        return Vec::new();
    }
    give(session, choice.gives)
}

/// Sends the body of a choice, or asks for the reason.
fn give(session: &mut Session, gives: Gives) -> Vec<Command> {
    match gives {
        Gives::Body(body) => send(session, body),
        Gives::Reason => {
            session.answering.iter_mut().for_each(|shown| shown.reason = Some(Field::default()));
            Vec::new()
        }
        // A form has steps.
        Gives::Form => Vec::new(),
    }
}

/// Handles a key at the confirmation.
pub(super) fn sure(model: &mut Model, does: Action) -> Vec<Command> {
    let Some(session) = &mut model.session else { return Vec::new() };
    let Some(choice) = session.answering.as_mut().and_then(|shown| shown.sure.take()) else { return Vec::new() };
    if does == Action::Answer(AnswerKey::Yes) { give(session, choice.gives) } else { Vec::new() }
}

/// Handles a key at the reason.
pub(super) fn reason(model: &mut Model, does: Action) -> Vec<Command> {
    let Some(session) = &mut model.session else { return Vec::new() };
    let Some(shown) = &mut session.answering else { return Vec::new() };
    let Some(mut reason) = shown.reason.take() else { return Vec::new() };
    if does != Action::Enter {
        return Vec::new();
    }
    if shown.ended.is_some() {
        next_request(model);
        return Vec::new();
    }
    match shown.ask.declined(&reason.take()) {
        Some(body) => send(session, body),
        None => Vec::new(),
    }
}

fn send(session: &mut Session, body: serde_json::Value) -> Vec<Command> {
    let Some(shown) = &mut session.answering else { return Vec::new() };
    shown.is_sent = true;
    vec![Command::Call(Call::Respond { request_id: shown.ask.id.clone(), body })]
}

/// Handles a key at a question or at the list of all answers.
pub(super) fn input(model: &mut Model, does: Action, key: &KeyEvent) -> Vec<Command> {
    let room = model.room;
    let Some(session) = &mut model.session else { return Vec::new() };
    let Some(shown) = &mut session.answering else { return Vec::new() };
    match does {
        Action::Back => put_aside(model),
        Action::Enter if shown.ended.is_some() => next_request(model),
        Action::Move(to @ (Move::PageUp | Move::PageDown)) => scroll(shown, to, room),
        _ if shown.is_sent || shown.ended.is_some() => {}
        Action::Move(Move::Up) => shown.form.step_by(false),
        Action::Move(Move::Down) => shown.form.step_by(true),
        Action::Answer(AnswerKey::Choose) => {
            let KeyCode::Char(digit) = key.code else { return Vec::new() };
            let number = digit.to_digit(10).unwrap_or_default();
            if !shown.form.choose(number as usize) {
                let last = match shown.form.stand() {
                    Stand::Summary(_) => shown.form.len(),
                    Stand::Step(_) => shown.form.current().map_or(0, |(step, _)| step.choices()),
                };
                say(model, Tone::Bad, format!("there is no {number} here; valid: 1 to {last}"));
            }
        }
        Action::Answer(AnswerKey::Previous) => {
            shown.form.back();
            shown.at = At::default();
        }
        Action::Enter => return take_answer(model),
        Action::Answer(_) | Action::NewLine | Action::Move(_) | Action::Global(_) | Action::Browse(_) => {}
    }
    Vec::new()
}

/// Takes the answer to one question. After the last one, or from the list, all answers are sent.
fn take_answer(model: &mut Model) -> Vec<Command> {
    let Some(session) = &mut model.session else { return Vec::new() };
    let Some(shown) = &mut session.answering else { return Vec::new() };
    shown.at = At::default();
    let ask = Arc::clone(&shown.ask);
    match shown.form.enter(|id, answer| ask.refuses(id, answer)) {
        Taken::Moved => Vec::new(),
        Taken::Refused(why) => {
            say(model, Tone::Bad, why);
            Vec::new()
        }
        Taken::Complete => match ask.answered(&shown.form.answers()) {
            Ok(body) => match ask.confirmation(&body) {
                None => send(session, body),
                sure => {
                    shown.sure = sure;
                    Vec::new()
                }
            },
            Err(errors) => {
                for error in &errors {
                    error.field.iter().for_each(|field| shown.form.refuse(field, error.message.clone()));
                }
                say(model, Tone::Bad, format!("not sent: {}", in_one_line(&errors)));
                Vec::new()
            }
        },
    }
}

/// Returns to the request from a document in full.
pub(super) fn return_to(session: &mut Session) {
    session.focus = Focus::Answer;
}
