//! Key handling, the steps that several keys and news share, and the attention that pending requests in any session get: the bell rings
//! once for each, and the terminal's title counts them.
//!
//! Pure. A key is looked up in the table of [`super::keys`]. A key without a row is text if text is being typed; otherwise a
//! note names the valid keys. Chat never answers a request. Keys that decide something come here from [`super::deciding`].

use std::collections::HashSet;
use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::form::{Field, Form};
use super::keys::{Action, Browse, Global, KeyPlace, Letters, Move, action, valid};
use super::lists::Destination;
use super::model::{About, Answering, AwaitedRead, DocumentSubject, Focus, Mode, Model, NOTE_US, Note, Session, Tone};
use super::model::{Command, UiEnd};
use super::pointing::Mouse;
use super::{browse, inbox, list, respond, review, searching, threads};
use crate::api::InputBody;
use crate::sessions::ask::Ask;
use crate::sessions::news::Link;
use crate::sessions::poller::Call;
use crate::text::doc::At;
use crate::text::plain;

pub(super) fn key(model: &mut Model, key: &KeyEvent) -> Vec<Command> {
    model.note.take_if(|note| note.about == About::Key);
    let (place, letters) = model.place();
    let does = action(place, letters, key);
    if model.help.is_some() {
        return help(model, key, does);
    }
    if let Some(asked) = model.session.as_mut().and_then(|session| session.overruling.take()) {
        return browse::overrule_or_not(model, asked, does);
    }
    match does {
        Some(Action::Global(Global::Quit)) => vec![Command::Quit(UiEnd::Left)],
        Some(Action::Global(Global::Suspend)) => vec![Command::Suspend],
        Some(Action::Global(Global::Redraw)) => vec![Command::Retake],
        Some(Action::Global(Global::Help)) => {
            model.help = Some(0);
            Vec::new()
        }
        Some(Action::Global(Global::Mouse)) => mouse(model),
        Some(Action::Global(Global::Elsewhere)) => {
            inbox::leave(model);
            elsewhere(model)
        }
        Some(Action::Global(Global::Inbox)) => {
            inbox::enter_or_leave(model);
            Vec::new()
        }
        Some(does) => in_place(model, place, does, key),
        None => {
            if place == KeyPlace::Inbox || !edit(model, place, key) {
                unknown(model, place, letters, key);
            }
            Vec::new()
        }
    }
}

fn help(model: &mut Model, key: &KeyEvent, does: Option<Action>) -> Vec<Command> {
    let scroll = model.help.unwrap_or_default();
    let page = usize::from(model.size.height.saturating_sub(2).max(1));
    let to = [
        (KeyCode::Up, scroll.saturating_sub(1)),
        (KeyCode::Char('k'), scroll.saturating_sub(1)),
        (KeyCode::Down, scroll + 1),
        (KeyCode::Char('j'), scroll + 1),
        (KeyCode::PageUp, scroll.saturating_sub(page)),
        (KeyCode::PageDown, scroll + page),
        (KeyCode::Char(' '), scroll + page),
        (KeyCode::Home, 0),
        (KeyCode::Char('g'), 0),
        (KeyCode::End, usize::MAX),
        (KeyCode::Char('G'), usize::MAX),
    ];
    model.help = to.iter().find(|(code, _)| *code == key.code).map(|(_, scroll)| *scroll);
    if does == Some(Action::Global(Global::Quit)) { vec![Command::Quit(UiEnd::Left)] } else { Vec::new() }
}

fn mouse(model: &mut Model) -> Vec<Command> {
    let (mouse, told) = match model.mouse {
        Mouse::Taken => (Mouse::Left, "mouse off: the terminal selects text; F2 turns it on"),
        Mouse::Left => (Mouse::Taken, "mouse on: Shift selects text in most terminals; F2 turns it off"),
    };
    model.mouse = mouse;
    say(model, Tone::Plain, told);
    vec![Command::Mouse(mouse)]
}

/// Handles a key without an action here.
fn unknown(model: &mut Model, place: KeyPlace, letters: Letters, key: &KeyEvent) {
    let KeyCode::Char(char) = key.code else { return };
    let is_held = !(key.modifiers - KeyModifiers::SHIFT).is_empty();
    if letters == Letters::Typed && !is_held {
        return;
    }
    let name = if is_held { format!("^{}", char.to_uppercase()) } else { char.to_string() };
    let help = if letters == Letters::Typed { "F1" } else { "?" };
    let is_answered = matches!(place, KeyPlace::Approval | KeyPlace::Review);
    let choices = respond::valid(model).filter(|_| is_answered).map(|keys| format!("{keys} answer; "));
    say(
        model,
        Tone::Bad,
        format!("`{name}` does nothing here: {}{}; {help} lists all keys", choices.unwrap_or_default(), valid(place)),
    );
}

fn in_place(model: &mut Model, place: KeyPlace, does: Action, key: &KeyEvent) -> Vec<Command> {
    if place == KeyPlace::Inbox && does != Action::Global(Global::Request) {
        return inbox::pressed(model, does);
    }
    inbox::leave(model);
    match (does, model.session.is_some()) {
        (Action::Global(Global::Request), true) => return to_request(model),
        (Action::Global(Global::Request), false) => return elsewhere(model),
        (Action::Global(Global::History), true) => {
            to_history(model);
            return Vec::new();
        }
        (Action::Global(Global::Interrupt), true) => {
            let thread_id = model.session.as_ref().and_then(|session| session.thread.clone());
            if thread_id.is_none() && threads::must_be_chosen(model) {
                return threads::asked_for(model, "nothing is interrupted");
            }
            return vec![Command::Call(Call::Interrupt(thread_id))];
        }
        (Action::Global(Global::Threads), true) => {
            threads::enter_or_leave(model);
            return Vec::new();
        }
        (_, _) => {}
    }
    match place {
        KeyPlace::Everywhere | KeyPlace::Inbox => Vec::new(),
        KeyPlace::Sessions => list::pressed(model, does),
        KeyPlace::Chat => chat(model, does),
        KeyPlace::Approval => respond::approval(model, does, key),
        KeyPlace::Sure => respond::sure(model, does),
        KeyPlace::Line => line(model, does),
        KeyPlace::Input | KeyPlace::Summary => respond::input(model, does, key),
        KeyPlace::History => browse::history(model, does),
        KeyPlace::Reading | KeyPlace::Review => review::pressed(model, does, key),
        KeyPlace::Threads => threads::pressed(model, does),
    }
}

/// Moves the selection of a list.
pub(super) fn moved(model: &mut Model, does: Action) -> Vec<Command> {
    if model.inbox.is_some() {
        return inbox::pressed(model, does);
    }
    if model.session.is_none() { list::pressed(model, does) } else { threads::pressed(model, does) }
}

fn chat(model: &mut Model, does: Action) -> Vec<Command> {
    let Some(session) = &mut model.session else { return Vec::new() };
    match does {
        Action::NewLine if !session.is_saying => session.composer.insert("\n"),
        Action::Move(Move::PageUp) => {
            session.focus = Focus::History;
            return browse::history(model, Action::Move(Move::PageUp));
        }
        Action::Back => {
            keep(model);
            model.session = None;
            model.note = None;
            return vec![Command::Detach];
        }
        Action::Enter => return send(model),
        Action::NewLine | Action::Move(_) | Action::Global(_) | Action::Answer(_) | Action::Browse(_) => {}
    }
    Vec::new()
}

/// Begins a line of the message.
pub(super) fn begin_line(model: &mut Model) {
    model.session.iter_mut().filter(|session| !session.is_saying).for_each(|session| session.composer.insert("\n"));
}

/// Sends the typed message, if that is possible now.
fn send(model: &mut Model) -> Vec<Command> {
    let Some(session) = &mut model.session else { return Vec::new() };
    if session.is_gated() {
        say(model, Tone::Bad, "not sent: answer the pending request first, ^R shows it");
        return Vec::new();
    }
    if !matches!(session.link, Link::Up(_)) {
        say(model, Tone::Bad, "not sent: no relay answers in this session");
        return Vec::new();
    }
    if session.is_saying || session.composer.text().trim().is_empty() {
        return Vec::new();
    }
    if session.unfolded.is_some() {
        say(model, Tone::Bad, "not sent: nobody speaks in this thread; Tab Esc leads back");
        return Vec::new();
    }
    if session.thread.is_none() && threads::must_be_chosen(model) {
        return threads::asked_for(model, "not sent");
    }
    let Some(session) = &mut model.session else { return Vec::new() };
    session.is_saying = true;
    let (text, thread_id) = (session.composer.text().to_owned(), session.thread.clone());
    vec![Command::Call(Call::Say(InputBody { text, thread_id }))]
}

/// Shows a pending request, or the next one. If this session has none, attaches to another session that has one.
fn to_request(model: &mut Model) -> Vec<Command> {
    let Some(session) = &mut model.session else { return Vec::new() };
    let was_elsewhere = !matches!(session.focus, Focus::Answer);
    session.focus = Focus::Answer;
    let Some(shown) = &mut session.answering else {
        next_request(model);
        let Some(session) = &model.session else { return Vec::new() };
        // A request of an unknown kind does not wait for a person, but the user can look at it.
        let first = session.asks.first().cloned().filter(|_| session.answering.is_none());
        if let Some(ask) = first {
            show_request(model, ask);
        } else if session.answering.is_none() && model.elsewhere().next().is_none() {
            say(model, Tone::Plain, "no request is pending in this or any other session");
        } else if session.answering.is_none() {
            return elsewhere(model);
        }
        return Vec::new();
    };
    if was_elsewhere || shown.is_sent {
        return Vec::new();
    }
    let at = session.asks.iter().position(|ask| ask.id == shown.ask.id);
    let next = at.map_or(0, |at| (at + 1) % session.asks.len().max(1));
    if at == Some(next) {
        say(model, Tone::Plain, "this is the only pending request of this session");
    } else if let Some(ask) = session.asks.get(next).cloned() {
        show_request(model, ask);
    }
    Vec::new()
}

/// Attaches to another session with a pending request.
pub(super) fn elsewhere(model: &mut Model) -> Vec<Command> {
    let first = model.elsewhere().next().and_then(|row| Some((row.id.clone(), row.waiting.first()?.thread_id.clone())));
    let Some((id, thread_id)) = first else {
        let other = if model.session.is_some() { "any other" } else { "any" };
        say(model, Tone::Plain, format!("no request is pending in {other} session"));
        return Vec::new();
    };
    attach(model, inbox::asking(model, id, thread_id))
}

pub(super) fn to_history(model: &mut Model) {
    let Some(session) = &mut model.session else { return };
    session.focus = match session.focus {
        Focus::Answer => Focus::History,
        Focus::History | Focus::Search(_) | Focus::Reading(_) | Focus::Threads(_) => Focus::Answer,
    };
}

/// Handles a key while a reason or a search text is typed.
fn line(model: &mut Model, does: Action) -> Vec<Command> {
    let Some(session) = &mut model.session else { return Vec::new() };
    match (&session.focus, does) {
        (Focus::Search(_), Action::Enter) => searching::take(model),
        (Focus::Search(_), Action::Browse(Browse::Complete)) => {
            searching::complete_line(model);
            Vec::new()
        }
        (Focus::Search(_), _) => {
            session.focus = Focus::History;
            Vec::new()
        }
        (_, Action::Browse(Browse::Complete)) => {
            to_history(model);
            Vec::new()
        }
        (_, _) => respond::reason(model, does),
    }
}

/// The field that receives text.
fn field(session: &mut Session) -> Option<&mut Field> {
    let mode = session.mode();
    let at_request = match &mut session.focus {
        Focus::Search(field) => return Some(field),
        Focus::Answer => true,
        Focus::Reading(_) => false,
        Focus::History | Focus::Threads(_) => return None,
    };
    let Some(shown) = &mut session.answering else {
        return (at_request && mode == Mode::Chat && !session.is_saying).then_some(&mut session.composer);
    };
    let is_open = at_request && !shown.is_sent && shown.ended.is_none() && shown.form.types_text();
    match &mut shown.reason {
        Some(reason) => Some(reason),
        None if is_open => shown.form.draft().map(|draft| &mut draft.text),
        None => None,
    }
}

/// Selects the text answer when the user types at a question.
fn choose_text(session: &mut Session) {
    if session.focus != Focus::Answer || session.mode() != Mode::Input {
        return;
    }
    let Some(shown) = session.answering.as_mut().filter(|shown| !shown.is_sent && shown.ended.is_none()) else {
        return;
    };
    if let Some(options) = shown.form.current().filter(|(step, _)| step.takes_text).map(|(step, _)| step.options.len())
        && let Some(draft) = shown.form.draft()
    {
        draft.chosen = options;
    }
}

/// Edits the field that receives text; returns `false` if there is none.
fn edit(model: &mut Model, place: KeyPlace, key: &KeyEvent) -> bool {
    let held = key.modifiers - KeyModifiers::SHIFT;
    let Some(session) = &mut model.session else { return false };
    if matches!(key.code, KeyCode::Char(_)) && held.is_empty() {
        choose_text(session);
    }
    let Some(field) = field(session) else { return false };
    match (key.code, held) {
        (KeyCode::Char('w'), KeyModifiers::CONTROL) | (KeyCode::Backspace, KeyModifiers::ALT) => field.backspace_word(),
        (KeyCode::Char('u'), KeyModifiers::CONTROL) => field.clear_before(),
        (KeyCode::Char('a'), KeyModifiers::CONTROL) | (KeyCode::Home, _) => field.home(),
        (KeyCode::Char('e'), KeyModifiers::CONTROL) | (KeyCode::End, _) => field.end(),
        (KeyCode::Char(char), held) if held.is_empty() => field.insert(char.encode_utf8(&mut [0; 4])),
        (KeyCode::Backspace, _) => field.backspace(),
        (KeyCode::Left, _) => field.left(),
        (KeyCode::Right, _) => field.right(),
        (KeyCode::Enter, KeyModifiers::SHIFT) if place == KeyPlace::Chat => field.insert("\n"),
        (KeyCode::Char(_), _) => return false,
        _ => {}
    }
    true
}

/// Inserts pasted text, even if its letters are keys.
pub(super) fn pasted(model: &mut Model, text: &str) {
    if model.help.is_some() || text.is_empty() {
        return;
    }
    model.note.take_if(|note| note.about == About::Key);
    let session = model.session.as_deref_mut().filter(|_| model.inbox.is_none());
    let is_taken = session.is_some_and(|session| {
        choose_text(session);
        field(session).map(|field| field.insert(text)).is_some()
    });
    if !is_taken {
        say(model, Tone::Bad, "nothing was pasted: no text is being typed here");
    }
}

/// Shows a note about the last key.
pub(super) fn say(model: &mut Model, tone: Tone, text: impl Into<String>) {
    model.note = Some(Note { text: text.into(), tone, about: About::Key, until_us: model.now_us + NOTE_US });
}

/// Shows a note about an event. A question that it covers is off: nobody can see what a key would answer.
pub(super) fn tell(model: &mut Model, tone: Tone, text: impl Into<String>) {
    if let Some(session) = &mut model.session {
        session.overruling = None;
    }
    model.note = Some(Note { text: text.into(), tone, about: About::News, until_us: model.now_us + NOTE_US });
}

/// Attaches to a session, shows its thread if one is named, and keeps the unsent text of the one before.
pub(crate) fn attach(model: &mut Model, opened: Destination) -> Vec<Command> {
    keep(model);
    model.attachments += 1;
    model.list.chosen = Some(opened.clone());
    model.note = None;
    let composer = model.drafts.remove(&opened).unwrap_or_default();
    let Destination { session: id, thread } = opened;
    let session = Session { thread, ..Session::new(id.clone(), model.attachments, composer) };
    model.session = Some(Box::new(session));
    vec![Command::Attach { id, attachment: model.attachments }]
}

/// Stores unsent text before another session or the list replaces this one.
pub(super) fn keep(model: &mut Model) {
    put_aside(model);
    if let Some(session) = &mut model.session {
        let draft = session.composer.clone();
        if !draft.text().is_empty() && !session.is_saying {
            model.drafts.insert(session.destination(), draft);
        }
    }
}

/// Restarts the timeline at its end.
pub(super) fn follow(session: &mut Session) -> Vec<Command> {
    session.epoch += 1;
    session.reading = Some(AwaitedRead::Page);
    vec![Command::Follow { epoch: session.epoch }]
}

/// Shows a request with the answers begun earlier, and puts the current one aside.
pub(super) fn show_request(model: &mut Model, ask: Arc<Ask>) {
    put_aside(model);
    let Some(session) = &mut model.session else { return };
    let begun = model.begun.remove(&(session.id.clone(), ask.id.clone()));
    let answering = begun.unwrap_or_else(|| Answering {
        details: Arc::new(ask.details(ask.folder(&session.cwd))),
        form: Form::new(ask.steps()),
        ask,
        ended: None,
        is_sent: false,
        sure: None,
        reason: None,
        at: At::default(),
    });
    session.answering = Some(Answering { sure: None, ..answering });
}

/// Leaves the request and stores the answers typed so far.
pub(super) fn put_aside(model: &mut Model) {
    let Some(session) = &mut model.session else { return };
    if let Focus::Reading(reading) = &session.focus
        && matches!(reading.subject, DocumentSubject::Request(_))
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

/// Starts a read of the journal, one at a time.
pub(super) fn ask_journal(session: &mut Session, awaited: AwaitedRead, command: Command) -> Vec<Command> {
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

/// Rings once for each new request, and has the terminal say what it is.
pub(super) fn ring(model: &mut Model) -> Vec<Command> {
    let mut waiting: HashSet<(String, String)> = HashSet::new();
    for row in &model.list.rows {
        waiting.extend(row.waiting.iter().map(|one| (row.id.clone(), one.id.clone())));
    }
    if let Some(session) = &model.session {
        let asks = session.asks.iter().filter(|ask| ask.is_for_human());
        waiting.extend(asks.map(|ask| (session.id.clone(), ask.id.clone())));
    }
    let new: HashSet<_> = waiting.difference(&model.rung).cloned().collect();
    let told = if new.is_empty() { None } else { Some(notification(model, &new)) };
    // A list that was read before an answer can arrive after it, so ended requests are remembered too.
    if model.rung.len() > RUNG_MAX {
        model.rung.clear();
    }
    model.rung.extend(waiting);
    told.map_or_else(Vec::new, |told| vec![Command::Ring, Command::Notify(told)])
}

/// The text about new requests: `proj (vscode): run make`.
fn notification(model: &Model, new: &HashSet<super::lists::RequestKey>) -> String {
    let rows = inbox::rows(model);
    let mut new_rows = rows.iter().filter(|row| new.contains(&row.key));
    match (new_rows.next(), new.len()) {
        (Some(row), 1) => format!("{}: {}", plain(&row.place), plain(&row.summary)),
        (_, count) => format!("{count} requests wait"),
    }
}

/// Requests that wait for a person, in this session and in others.
pub(super) fn counts(model: &Model) -> (usize, usize) {
    let here = model.session.as_ref();
    let here = here.map_or(0, |session| session.asks.iter().filter(|ask| ask.is_for_human()).count());
    (here, model.elsewhere().map(|row| row.waiting.len()).sum())
}

pub(super) fn title(model: &Model) -> String {
    let (here, elsewhere) = counts(model);
    let name = model.session.as_ref().map(|session| format!(" · {}", plain(&session.name())));
    let waits = match here + elsewhere {
        0 => String::new(),
        1 => "(1 waits) ".to_owned(),
        more => format!("({more} wait) "),
    };
    let is_stopped = model.session.as_ref().is_some_and(|session| session.link == Link::Stopped);
    let stopped = if is_stopped { " (stopped)" } else { "" };
    format!("{waits}codex-shim{}{stopped}", name.unwrap_or_default())
}
