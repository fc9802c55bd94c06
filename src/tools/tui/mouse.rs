//! The mouse: its targets on the screen, and the effects of its actions.
//!
//! Pure. A click selects, opens or moves the keys to another part of the screen. It never answers a request.

use super::pointing::{Pointing, Spot, Target};
use ratatui::layout::Position;

use super::form::Stand;
use super::keys::{Action, Move};
use super::model::Command;
use super::model::{Focus, Model, Text};
use super::pressed::next_request;
use super::{browse, inbox, list, pressed, respond, review};

/// Rows scrolled by one step of the wheel.
const WHEEL_ROWS: usize = 3;

/// Handles a mouse action at a position.
pub(super) fn pointed(model: &mut Model, at: Position, does: Pointing) -> Vec<Command> {
    let hit = |spot: &&Spot| spot.area.contains(at);
    let Some(target) = model.spots.iter().rev().find(hit).map(|spot| spot.target.clone()) else { return Vec::new() };
    match does {
        Pointing::Click => clicked(model, target),
        Pointing::WheelUp => turned(model, &target, Move::Up),
        Pointing::WheelDown => turned(model, &target, Move::Down),
    }
}

fn clicked(model: &mut Model, target: Target) -> Vec<Command> {
    match target {
        Target::Help => model.help = None,
        Target::Session(opens) => return list::clicked(model, opens),
        Target::Waiting(session_id, request_id) => return inbox::clicked(model, (session_id, request_id)),
        Target::Elsewhere => return pressed::elsewhere(model),
        Target::Requests => {
            let is_shown = model.session.as_ref().is_some_and(|session| session.answering.is_some());
            match is_shown {
                true => to_answer(model),
                false => next_request(model),
            }
        }
        Target::Entry(key) => {
            let Some(session) = &mut model.session else { return Vec::new() };
            let is_chosen = browse::chosen(session).is_some_and(|entry| entry.key == key);
            if is_chosen && session.focus == Focus::History {
                return browse::open(session);
            }
            session.focus = Focus::History;
            session.cursor = Some(key);
        }
        Target::Composer | Target::Request => to_answer(model),
        Target::Option(number) => {
            to_answer(model);
            let shown = model.session.as_mut().and_then(|session| session.answering.as_mut());
            if let Some(shown) = shown.filter(|shown| !shown.is_sent && shown.ended.is_none())
                && matches!(shown.form.stand(), Stand::Step(_))
            {
                shown.form.choose(number + 1);
            }
        }
        Target::File(file) => {
            if let Some(Focus::Reading(reading)) = model.session.as_mut().map(|session| &mut session.focus) {
                review::to_file(reading, file);
                reading.files = reading.files.map(|_| file);
            }
        }
        Target::Thread(row) => {
            let Some(session) = &mut model.session else { return Vec::new() };
            session.focus = Focus::Threads(row);
        }
        Target::Sessions | Target::Inbox | Target::Timeline | Target::Document => {}
    }
    Vec::new()
}

/// Moves the keys to the request or the composer.
fn to_answer(model: &mut Model) {
    if let Some(session) = model.session.as_mut().filter(|session| session.focus != Focus::Answer) {
        respond::return_to(session);
    }
}

fn turned(model: &mut Model, target: &Target, to: Move) -> Vec<Command> {
    let room = model.room;
    let by_key = match target {
        Target::Help => {
            let scroll = model.help.unwrap_or_default();
            model.help = Some(if to == Move::Up { scroll.saturating_sub(WHEEL_ROWS) } else { scroll + WHEEL_ROWS });
            return Vec::new();
        }
        Target::Entry(_) | Target::Timeline => {
            if let Some(session) = &mut model.session {
                session.focus = Focus::History;
            }
            return browse::history(model, Action::Move(to));
        }
        Target::Sessions | Target::Session(_) | Target::Inbox | Target::Waiting(..) | Target::Thread(_) => {
            Action::Move(to)
        }
        Target::Request | Target::Option(_) | Target::Document | Target::File(_) => {
            let Some(session) = &mut model.session else { return Vec::new() };
            let scroll = |doc: &crate::text::doc::Doc, at| match to {
                Move::Up | Move::PageUp | Move::First => doc.up(at, WHEEL_ROWS, room),
                Move::Down | Move::PageDown | Move::Last => doc.down(at, WHEEL_ROWS, room),
            };
            match (&mut session.focus, &mut session.answering) {
                (Focus::Reading(reading), _) => {
                    reading.follows = false;
                    reading.at = match &reading.text {
                        Text::Lines(doc) => scroll(doc, reading.at),
                        Text::Diff(diff) => scroll(&diff.doc, reading.at),
                    };
                }
                (_, Some(shown)) => shown.at = scroll(&shown.details.doc, shown.at),
                (_, None) => {}
            }
            return Vec::new();
        }
        Target::Composer | Target::Requests | Target::Elsewhere => return Vec::new(),
    };
    pressed::moved(model, by_key)
}
