//! What keys do.
//!
//! Pure. A key is looked up in the table of [`super::keys`]; what has no row there is text where text is typed, and
//! nothing anywhere else. Chat never answers a request, and no key answers one that has not stood on the screen.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::browse;
use super::keys::{Action, Answer, Global, Move, Place, action};
use super::model::{Command, Ending, Focus, Link, Mode, Model, Session, Tone};
use super::steps::{answering, attach, next_request, say, was_seen};
use super::text::Field;
use super::threads;

/// A key was pressed.
pub(super) fn key(model: &mut Model, key: &KeyEvent) -> Vec<Command> {
    if key.kind == KeyEventKind::Release {
        return Vec::new();
    }
    let (place, letters) = model.place();
    let does = action(place, letters, key);
    if model.help.is_some() {
        return help(model, key, does);
    }
    match does {
        Some(Action::Global(Global::Quit)) => vec![Command::Quit(Ending::Left)],
        Some(Action::Global(Global::Suspend)) => vec![Command::Suspend],
        Some(Action::Global(Global::Redraw)) => vec![Command::Retake],
        Some(Action::Global(Global::Help)) => {
            model.help = Some(0);
            Vec::new()
        }
        Some(does) => in_place(model, place, does, key),
        None => {
            edit(model, place, key);
            Vec::new()
        }
    }
}

fn help(model: &mut Model, key: &KeyEvent, does: Option<Action>) -> Vec<Command> {
    let scroll = model.help.unwrap_or_default();
    let page = usize::from(model.size.height);
    let to = [
        (KeyCode::Up, scroll.saturating_sub(1)),
        (KeyCode::Down, scroll + 1),
        (KeyCode::PageUp, scroll.saturating_sub(page)),
        (KeyCode::PageDown, scroll + page),
        (KeyCode::Char(' '), scroll + page),
    ];
    model.help = to.iter().find(|(code, _)| *code == key.code).map(|(_, scroll)| *scroll);
    if does == Some(Action::Global(Global::Quit)) { vec![Command::Quit(Ending::Left)] } else { Vec::new() }
}

fn in_place(model: &mut Model, place: Place, does: Action, key: &KeyEvent) -> Vec<Command> {
    match (does, model.session.is_some()) {
        (Action::Global(Global::Request), true) => {
            to_request(model);
            return Vec::new();
        }
        (Action::Global(Global::History), true) => {
            to_history(model);
            return Vec::new();
        }
        (Action::Global(Global::Interrupt), true) => {
            let thread_id = model.session.as_ref().and_then(|session| session.thread.clone());
            return vec![Command::Interrupt(thread_id)];
        }
        (Action::Global(Global::Threads), true) => {
            threads::enter_or_leave(model);
            return Vec::new();
        }
        (_, _) => {}
    }
    match place {
        Place::Everywhere => Vec::new(),
        Place::Sessions => sessions(model, does),
        Place::Chat => chat(model, does),
        Place::Approval => approval(model, does, key),
        Place::Sure => sure(model, does),
        Place::Line => line(model, does),
        Place::Input => input(model, does, key),
        Place::History => browse::history(model, does),
        Place::Reading => browse::reading(model, does),
        Place::Threads => threads::pressed(model, does),
    }
}

fn sessions(model: &mut Model, does: Action) -> Vec<Command> {
    let rows = &model.list.rows;
    let at = rows.iter().position(|row| Some(&row.id) == model.list.chosen.as_ref()).unwrap_or(0);
    let to = match does {
        Action::Move(Move::Up) => at.saturating_sub(1),
        Action::Move(Move::Down) => (at + 1).min(rows.len().saturating_sub(1)),
        Action::Enter => {
            let id = rows.get(at).map(|row| row.id.clone());
            return id.map_or_else(Vec::new, |id| attach(model, id));
        }
        Action::Move(_)
        | Action::Global(_)
        | Action::Answer(_)
        | Action::Browse(_)
        | Action::Back
        | Action::NewLine => at,
    };
    model.list.chosen = rows.get(to).map(|row| row.id.clone());
    Vec::new()
}

fn chat(model: &mut Model, does: Action) -> Vec<Command> {
    let Some(session) = &mut model.session else { return Vec::new() };
    match does {
        Action::NewLine if !session.is_saying => session.composer.insert("\n"),
        Action::Move(Move::PageUp) => {
            to_history(model);
            return browse::history(model, Action::Move(Move::PageUp));
        }
        Action::Back => {
            let draft = session.composer.clone();
            let id = session.id.clone();
            if !draft.text().is_empty() {
                model.drafts.insert(id, draft);
            }
            model.session = None;
            model.note = None;
            return vec![Command::List];
        }
        Action::Enter => return send(model),
        Action::NewLine | Action::Move(_) | Action::Global(_) | Action::Answer(_) | Action::Browse(_) => {}
    }
    Vec::new()
}

/// Says what was typed, where it may be said.
fn send(model: &mut Model) -> Vec<Command> {
    let Some(session) = &mut model.session else { return Vec::new() };
    if session.is_gated() {
        say(model, Tone::Bad, "nothing is sent while a request waits: ^R leads to it");
        return Vec::new();
    }
    if !matches!(session.link, Link::Up(_)) {
        say(model, Tone::Bad, "no relay answers in this session, so nothing can be sent");
        return Vec::new();
    }
    if session.is_saying || session.composer.text().trim().is_empty() {
        return Vec::new();
    }
    session.is_saying = true;
    vec![Command::Say { text: session.composer.text().to_owned(), thread_id: session.thread.clone() }]
}

/// To a request that waits, or to the next one.
fn to_request(model: &mut Model) {
    let now_us = model.now_us;
    let Some(session) = &mut model.session else { return };
    let was_elsewhere = !matches!(session.focus, Focus::Answer);
    session.focus = Focus::Answer;
    let Some(shown) = &session.answering else {
        next_request(session, now_us);
        // What we do not know waits for nobody, but can be looked at.
        if session.answering.is_none() {
            session.answering = session.asks.first().cloned().map(|ask| answering(ask, now_us));
        }
        if session.answering.is_none() {
            say(model, Tone::Plain, "no request waits");
        }
        return;
    };
    if was_elsewhere || shown.is_sent {
        return;
    }
    let at = session.asks.iter().position(|ask| ask.id == shown.ask.id);
    let next = at.map_or(0, |at| (at + 1) % session.asks.len().max(1));
    if at != Some(next) {
        session.answering = session.asks.get(next).cloned().map(|ask| answering(ask, now_us));
    }
}

fn to_history(model: &mut Model) {
    let Some(session) = &mut model.session else { return };
    session.focus = match session.focus {
        Focus::Answer => Focus::History,
        Focus::History | Focus::Search(_) | Focus::Reading(_) | Focus::Threads(_) => Focus::Answer,
    };
}

fn approval(model: &mut Model, does: Action, key: &KeyEvent) -> Vec<Command> {
    let now_us = model.now_us;
    let Some(session) = &mut model.session else { return Vec::new() };
    let Some(shown) = &mut session.answering else { return Vec::new() };
    match does {
        Action::Move(Move::PageUp) => shown.scroll = shown.scroll.saturating_sub(1),
        Action::Move(Move::PageDown) => shown.scroll += 1,
        Action::Back => session.answering = None,
        Action::Enter if shown.ended.is_some() => next_request(session, now_us),
        Action::Answer(Answer::Choose) | Action::Answer(Answer::Reason) if shown.is_sent || shown.ended.is_some() => {}
        Action::Answer(Answer::Choose) | Action::Answer(Answer::Reason) if !was_seen(shown, now_us) => {
            say(model, Tone::Plain, "this one has just come: look first, then press it again");
        }
        Action::Answer(Answer::Reason) if shown.ask.takes_reason() => shown.reason = Some(Field::default()),
        Action::Answer(Answer::Choose) => {
            let KeyCode::Char(pressed) = key.code else { return Vec::new() };
            let Some(choice) = shown.ask.choices().into_iter().find(|choice| choice.key == pressed) else {
                say(model, Tone::Bad, format!("`{pressed}` is no answer to this request"));
                return Vec::new();
            };
            if choice.danger.is_some() {
                shown.sure = Some(choice);
                return Vec::new();
            }
            return respond(session, choice.body);
        }
        Action::Answer(_)
        | Action::Enter
        | Action::NewLine
        | Action::Move(_)
        | Action::Global(_)
        | Action::Browse(_) => {}
    }
    Vec::new()
}

fn sure(model: &mut Model, does: Action) -> Vec<Command> {
    let Some(session) = &mut model.session else { return Vec::new() };
    let Some(choice) = session.answering.as_mut().and_then(|shown| shown.sure.take()) else { return Vec::new() };
    if does == Action::Answer(Answer::Yes) { respond(session, choice.body) } else { Vec::new() }
}

fn respond(session: &mut Session, body: serde_json::Value) -> Vec<Command> {
    let Some(shown) = &mut session.answering else { return Vec::new() };
    shown.is_sent = true;
    vec![Command::Respond { request_id: shown.ask.id.clone(), body }]
}

/// A reason, or what is searched for.
fn line(model: &mut Model, does: Action) -> Vec<Command> {
    let now_us = model.now_us;
    let Some(session) = &mut model.session else { return Vec::new() };
    if let Focus::Search(field) = &mut session.focus {
        let text = field.take();
        session.focus = Focus::History;
        return if does == Action::Enter { browse::search(model, &text) } else { Vec::new() };
    }
    let Some(shown) = &mut session.answering else { return Vec::new() };
    let Some(mut reason) = shown.reason.take() else { return Vec::new() };
    if does == Action::Enter && shown.ended.is_some() {
        next_request(session, now_us);
        return Vec::new();
    }
    if does != Action::Enter {
        return Vec::new();
    }
    match shown.ask.declined(&reason.take()) {
        Some(body) => respond(session, body),
        None => Vec::new(),
    }
}

fn input(model: &mut Model, does: Action, key: &KeyEvent) -> Vec<Command> {
    let now_us = model.now_us;
    let Some(session) = &mut model.session else { return Vec::new() };
    let Some(shown) = &mut session.answering else { return Vec::new() };
    let options = shown.step().map_or(0, |step| step.options.len());
    let last = options + usize::from(shown.step().is_some_and(|step| step.takes_text));
    shown.is_left_empty &= does == Action::Enter;
    match does {
        Action::Back => session.answering = None,
        Action::Enter if shown.ended.is_some() => next_request(session, now_us),
        _ if shown.is_sent || shown.ended.is_some() => {}
        Action::Move(Move::Up) => shown.chosen = shown.chosen.saturating_sub(1),
        Action::Move(Move::Down) => shown.chosen = (shown.chosen + 1).min(last.saturating_sub(1)),
        Action::Answer(Answer::Choose) => {
            if let KeyCode::Char(digit) = key.code
                && let Some(number) = digit.to_digit(10).filter(|number| (1..=last).contains(&(*number as usize)))
            {
                shown.chosen = number as usize - 1;
            }
        }
        Action::Answer(Answer::Previous) => {
            shown.answers.pop();
            shown.chosen = 0;
            shown.text = Field::default();
        }
        Action::Enter if !was_seen(shown, now_us) => {
            say(model, Tone::Plain, "this one has just come: look first, then press it again");
        }
        Action::Enter => return take_answer(model),
        Action::Answer(_) | Action::NewLine | Action::Move(_) | Action::Global(_) | Action::Browse(_) => {}
    }
    Vec::new()
}

/// Takes the answer to one question; behind the last one all of them are sent.
fn take_answer(model: &mut Model) -> Vec<Command> {
    let Some(session) = &mut model.session else { return Vec::new() };
    let Some(shown) = &mut session.answering else { return Vec::new() };
    if shown.types_text() && shown.text.text().is_empty() && !shown.is_left_empty {
        shown.is_left_empty = true;
        say(model, Tone::Plain, "nothing is typed: Enter again leaves this one unanswered");
        return Vec::new();
    }
    shown.is_left_empty = false;
    if let Some(step) = shown.step() {
        let id = step.id.clone();
        let answer = match step.options.get(shown.chosen) {
            Some((label, _)) => label.clone(),
            None => shown.text.text().to_owned(),
        };
        shown.answers.push((id, answer));
        shown.text = Field::default();
        shown.chosen = 0;
        if shown.ask.asks_on(&shown.answers) {
            let fields = shown.ask.fields();
            shown.steps.extend(fields);
        }
    }
    if shown.step().is_some() {
        return Vec::new();
    }
    match shown.ask.answered(&shown.answers) {
        Ok(body) => {
            shown.is_sent = true;
            // They may be secrets: nothing of them is kept here.
            shown.answers.truncate(0);
            vec![Command::Respond { request_id: shown.ask.id.clone(), body }]
        }
        Err(why) => {
            shown.answers.pop();
            say(model, Tone::Bad, why);
            Vec::new()
        }
    }
}

/// The field that takes text now.
fn field(model: &mut Model) -> Option<&mut Field> {
    let session = model.session.as_mut()?;
    let mode = session.mode();
    match &mut session.focus {
        Focus::Search(field) => return Some(field),
        Focus::History | Focus::Reading(_) | Focus::Threads(_) => return None,
        Focus::Answer => {}
    }
    match mode {
        Mode::Chat => (!session.is_saying).then_some(&mut session.composer),
        Mode::Approval => session.answering.as_mut()?.reason.as_mut(),
        Mode::Input => {
            let shown = session.answering.as_mut()?;
            let is_open = !shown.is_sent && shown.ended.is_none() && shown.types_text();
            is_open.then_some(&mut shown.text)
        }
    }
}

/// Whoever begins to type means the text and no option.
fn choose_text(model: &mut Model) {
    let Some(session) = model.session.as_mut().filter(|session| session.focus == Focus::Answer) else { return };
    if session.mode() != Mode::Input {
        return;
    }
    let Some(shown) = session.answering.as_mut().filter(|shown| !shown.is_sent && shown.ended.is_none()) else {
        return;
    };
    if let Some(step) = shown.step().filter(|step| step.takes_text) {
        shown.chosen = step.options.len();
    }
}

fn edit(model: &mut Model, place: Place, key: &KeyEvent) {
    let held = key.modifiers - KeyModifiers::SHIFT;
    let is_composer = place == Place::Chat;
    if matches!(key.code, KeyCode::Char(_)) && held.is_empty() {
        choose_text(model);
    }
    let Some(field) = field(model) else { return };
    match (key.code, held) {
        (KeyCode::Char('w'), KeyModifiers::CONTROL) | (KeyCode::Backspace, KeyModifiers::ALT) => field.backspace_word(),
        (KeyCode::Char('u'), KeyModifiers::CONTROL) => field.clear_before(),
        (KeyCode::Char('a'), KeyModifiers::CONTROL) | (KeyCode::Home, _) => field.home(),
        (KeyCode::Char('e'), KeyModifiers::CONTROL) | (KeyCode::End, _) => field.end(),
        (KeyCode::Char(char), held) if held.is_empty() => field.insert(char.encode_utf8(&mut [0; 4])),
        (KeyCode::Backspace, _) => field.backspace(),
        (KeyCode::Left, _) => field.left(),
        (KeyCode::Right, _) => field.right(),
        (KeyCode::Enter, KeyModifiers::SHIFT) if is_composer => field.insert("\n"),
        _ => {}
    }
}

/// A text was pasted: it is text, whatever keys it is made of.
pub(super) fn pasted(model: &mut Model, text: &str) {
    if model.help.is_some() || text.is_empty() {
        return;
    }
    choose_text(model);
    if let Some(field) = field(model) {
        field.insert(text);
    }
}
