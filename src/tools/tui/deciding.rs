//! Keys that decide: they send an answer or a message, interrupt a turn, or hand the keyboard to another program. Such a key acts
//! only if it came alone, and an answer only to what was visible before.
//!
//! Pure. Text that is pasted into a terminal without bracketed paste, that a scanner or a script types, or that was typed ahead
//! arrives as a burst of keys, and a letter of it must not decide. [`super::terminal`] reports [`Event::Quiet`] once no key has
//! come for its `ALONE`. A deciding key acts at the quiet after it, if there was quiet before it, too. What a key decides on must
//! have been on the screen for [`LOOK_FIRST_US`]; a key that comes too early or too fast begins that time again.
//!
//! [`Event::Quiet`]: super::model::Event::Quiet

use crossterm::event::{KeyEvent, KeyEventKind};

use super::key_times::Scene;
use super::keys::{Action, AnswerKey, Browse, Global, KeyPlace, action};
use super::model::{Command, Focus, Model, Tone};
use super::pressed::{self, say};

/// How long something must be visible before a key decides on it, in microseconds, so that a key meant for something else does
/// nothing.
pub(crate) const LOOK_FIRST_US: u64 = 500_000;

const TOO_SOON: &str = "this has just appeared: read it, then press the key again";
const TOO_FAST: &str = "keys came too fast: nothing was answered; press the key again, alone";
const TOO_FAST_TO_SEND: &str =
    "keys came too fast: nothing was sent, Enter began a new line; press it again, alone, to send";

impl Scene {
    fn of(model: &Model) -> Scene {
        let session = model.session.as_deref();
        Scene {
            place: model.place().0,
            has_help: model.help.is_some(),
            attachment: session.map_or(0, |session| session.attachment),
            request: session.and_then(|session| session.answering.as_ref()).map(|shown| shown.ask.id.clone()),
            overruling: session.and_then(|session| session.overruling.clone()),
        }
    }
}

/// The decision that a key makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    /// Answers the request on the screen.
    Answers,
    /// Sends the message in the composer.
    Sends,
    /// Stops the turn, or leaves the keyboard to another program, which would get the keys that follow.
    Stops,
}

/// The decision that a key makes here, if any.
fn deed(model: &Model, key: &KeyEvent) -> Option<Deed> {
    let (place, letters) = model.place();
    let does = action(place, letters, key)?;
    if model.help.is_some() {
        return (does == Action::Global(Global::Quit)).then_some(Deed::Stops);
    }
    let shown = model.session.as_ref().and_then(|session| session.answering.as_ref());
    let is_over = shown.is_some_and(|shown| shown.ended.is_some());
    let is_search = model.session.as_ref().is_some_and(|session| matches!(session.focus, Focus::Search(_)));
    match (does, place) {
        (Action::Global(Global::Quit | Global::Suspend | Global::Interrupt) | Action::Browse(Browse::Pager), _) => {
            Some(Deed::Stops)
        }
        (Action::Answer(AnswerKey::Choose | AnswerKey::Reason), KeyPlace::Approval | KeyPlace::Review)
        | (Action::Answer(AnswerKey::Yes), _)
        | (Action::Enter, KeyPlace::Input | KeyPlace::Summary) => (!is_over).then_some(Deed::Answers),
        (Action::Enter, KeyPlace::Line) => (!is_search && !is_over).then_some(Deed::Answers),
        (Action::Enter, KeyPlace::Chat) => Some(Deed::Sends),
        (Action::Global(_) | Action::Answer(_) | Action::Browse(_) | Action::Enter, _)
        | (Action::Move(_) | Action::Back | Action::NewLine, _) => None,
    }
}

/// Takes a key. One that decides waits for the quiet after it.
pub(super) fn pressed(model: &mut Model, key: &KeyEvent) -> Vec<Command> {
    if key.kind == KeyEventKind::Release {
        return Vec::new();
    }
    let was_quiet = interrupts_quiet(model);
    let Some(deed) = deed(model, key) else {
        let commands = pressed::key(model, key);
        if model.keys.has_dropped {
            refuse(model, TOO_FAST);
        }
        return commands;
    };
    match deed {
        Deed::Answers | Deed::Stops if !was_quiet => drop_key(model, TOO_FAST),
        Deed::Sends if !was_quiet => {
            pressed::begin_line(model);
            drop_key(model, TOO_FAST_TO_SEND);
        }
        Deed::Answers if !was_visible(model) => refuse(model, TOO_SOON),
        Deed::Answers | Deed::Sends | Deed::Stops => model.keys.held = Some((*key, Scene::of(model))),
    }
    Vec::new()
}

/// Takes pasted text. A key right after it is no answer.
pub(super) fn pasted(model: &mut Model, text: &str) {
    interrupts_quiet(model);
    pressed::pasted(model, text);
}

/// No key has followed the last one: a deciding key acts now, if what it decides on is still there.
pub(super) fn quiet(model: &mut Model) -> Vec<Command> {
    (model.keys.is_quiet, model.keys.has_dropped) = (true, false);
    match model.keys.held.take() {
        Some((key, scene)) if scene == Scene::of(model) => pressed::key(model, &key),
        Some(_) => {
            refuse(model, TOO_SOON);
            Vec::new()
        }
        None => Vec::new(),
    }
}

/// The screen shows the model as it is.
pub(super) fn drawn(model: &mut Model, now_us: u64) {
    let scene = Scene::of(model);
    if model.keys.drawn.as_ref().is_none_or(|(drawn, _)| *drawn != scene) {
        model.keys.drawn = Some((scene, now_us));
    }
}

/// Another program had the screen.
pub(super) fn hidden(model: &mut Model) {
    model.keys.drawn = None;
}

/// Another key has come: a deciding key before it was not alone. Returns whether it was quiet until now.
fn interrupts_quiet(model: &mut Model) -> bool {
    let was_quiet = std::mem::take(&mut model.keys.is_quiet);
    if model.keys.held.take().is_some() {
        drop_key(model, TOO_FAST);
    }
    was_quiet
}

fn drop_key(model: &mut Model, why: &str) {
    model.keys.has_dropped = true;
    refuse(model, why);
}

/// Says why a key did nothing. The time that must pass begins again.
fn refuse(model: &mut Model, why: &str) {
    // The note covers the question, so a key would answer something invisible.
    model.session.iter_mut().for_each(|session| session.overruling = None);
    let now_us = model.now_us;
    model.keys.drawn.iter_mut().for_each(|(_, since_us)| *since_us = now_us);
    say(model, Tone::Bad, why);
}

fn was_visible(model: &Model) -> bool {
    let scene = Scene::of(model);
    let drawn = model.keys.drawn.as_ref().filter(|(drawn, _)| *drawn == scene);
    drawn.is_some_and(|(_, since_us)| model.now_us.saturating_sub(*since_us) >= LOOK_FIRST_US)
}
