//! The update: takes an event, changes the model, and returns commands.
//!
//! Pure. The branching over events is here; keys are in [`super::pressed`], the mouse in [`super::mouse`].

use crate::sessions::news::Read;
use std::sync::Arc;

use super::browse;
use super::lists::{Destination, ListLine};
use super::model::{About, AwaitedRead, DocumentSubject, Focus, Model, Session, Tone};
use super::model::{Command, Event};
use super::pressed::{follow, is_untouched, next_request, show_request, tell};
use super::review;
use super::{deciding, layout, mouse, pressed, searching};
use crate::api::Request;
use crate::engine::OverruleFor;
use crate::history::UiKind;
use crate::sessions::ask::{Ask, ending, own_ending};
use crate::sessions::entry::{Happening, Stage};
use crate::sessions::news::{First, News, Page, Sent, SentInto, Sought};
use crate::sessions::news::{NotOverruled, Overruling};
use crate::sessions::rows::SessionRow;
use crate::text::doc::At;

/// Time between two reads of an unfinished entry in full, in microseconds.
const READ_AGAIN_US: u64 = 1_000_000;

/// Takes an event and the time in microseconds since the Unix epoch; returns commands.
pub(crate) fn update(model: &mut Model, now_us: u64, event: Event) -> Vec<Command> {
    model.now_us = now_us;
    if model.note.as_ref().is_some_and(|note| note.until_us <= now_us) {
        model.note = None;
    }
    let mut commands = taken(model, event);
    commands.extend(pressed::ring(model));
    layout::settle(model);
    commands
}

fn taken(model: &mut Model, event: Event) -> Vec<Command> {
    match event {
        Event::Key(key) => deciding::pressed(model, &key),
        Event::Quiet => deciding::quiet(model),
        Event::Pointed(at, does) => mouse::pointed(model, at, does),
        Event::Pasted(text) => {
            deciding::pasted(model, &text);
            Vec::new()
        }
        Event::Resized(size) => {
            model.size = size;
            Vec::new()
        }
        Event::Ticked => Vec::new(),
        Event::Ended(ending) => vec![Command::Quit(ending)],
        Event::Stopped => vec![Command::Suspend],
        Event::Continued => {
            deciding::hidden(model);
            vec![Command::Retake]
        }
        Event::Paged(result) => {
            deciding::hidden(model);
            if let Err(why) = result {
                tell(model, Tone::Bad, why);
            }
            Vec::new()
        }
        Event::Listed(rows) => {
            listed(model, rows);
            Vec::new()
        }
        Event::Of(attachment, news) => match &mut model.session {
            Some(session) if session.attachment == attachment => of_session(model, news),
            Some(_) | None => Vec::new(),
        },
    }
}

fn listed(model: &mut Model, mut rows: Vec<SessionRow>) {
    // Sessions that wait for a person come first, then live ones.
    rows.sort_by_key(|row| (row.waiting.is_empty(), !row.live));
    model.list.rows = rows;
    model.list.is_known = true;
    let all: Vec<Destination> = model.list.lines().iter().map(ListLine::destination).collect();
    let chosen = model.list.chosen.take();
    // The row of a thread that is closed gives way to that of its session.
    let of_session = chosen.as_ref().map(|chosen| Destination::session(&*chosen.session));
    let stays = chosen.into_iter().chain(of_session).find(|chosen| all.contains(chosen));
    model.list.chosen = stays.or_else(|| all.into_iter().next());
}

fn of_session(model: &mut Model, news: News) -> Vec<Command> {
    let Some(session) = &mut model.session else { return Vec::new() };
    match news {
        News::Placed(cwd) => session.cwd = cwd,
        News::Linked(link) => session.link = link,
        News::Pending { asks, ended } => {
            session.asks = asks;
            pending(model, &ended);
        }
        News::Restored { epoch, timeline } if epoch == session.epoch => {
            session.timeline = Some(*timeline);
            session.reading = None;
        }
        News::Glanced(epoch, timeline) if epoch == session.epoch => {
            let before = session.timeline.take();
            let mut timeline = *timeline;
            // The facts come from further back.
            if let Some(before) = before {
                timeline.facts = before.facts;
            }
            session.timeline = Some(timeline);
            session.reading = Some(AwaitedRead::Page);
        }
        News::Events { epoch, events } if epoch == session.epoch => return take_events(session, events, model.now_us),
        News::Glanced(..) | News::Restored { .. } | News::Events { .. } => {}
        News::Unreadable(why) => {
            session.reading = None;
            tell(model, Tone::Bad, why);
        }
        News::Start(page) => return started(session, page),
        News::Older(page) => {
            session.reading = None;
            let Some(timeline) = &mut session.timeline else { return Vec::new() };
            let before = page.entries.last().map(|entry| entry.key.clone());
            timeline.prepend(page.entries, !page.is_last);
            if before.is_some() {
                session.cursor = before;
            }
        }
        News::Newer(page) => return newer(session, page),
        News::Found(found) => return found_entry(model, found),
        News::Opened(entry) => {
            if let (Focus::Reading(reading), Some(entry)) = (&mut session.focus, entry)
                && matches!(&reading.subject, DocumentSubject::Entry(shown) if shown.key == entry.key)
            {
                let (at, follows) = (reading.at, reading.follows);
                **reading = review::of_entry(*entry, &session.cwd);
                (reading.at, reading.follows, reading.read_us) = (at, follows, model.now_us);
            }
        }
        News::Responded { request_id, result } => return responded(model, &request_id, result),
        News::Said(result) => {
            session.is_saying = false;
            match result {
                Ok(Sent { thread_id, into }) => {
                    session.composer.take();
                    let name = thread_id.and_then(|thread_id| session.thread_name(&thread_id));
                    let told = match (into, name) {
                        (SentInto::RunningTurn, None) => "sent to the running turn".to_owned(),
                        (SentInto::RunningTurn, Some(name)) => format!("sent to the running turn of {name}"),
                        (SentInto::NewTurn, None) => "sent: a turn has begun".to_owned(),
                        (SentInto::NewTurn, Some(name)) => format!("sent to {name}: a turn has begun"),
                    };
                    tell(model, Tone::Plain, told);
                }
                Err(why) => tell(model, Tone::Bad, format!("not sent: {why}")),
            }
            return vec![Command::Look];
        }
        News::Facts(facts) => return searching::learned(model, *facts),
        News::Overruled { asked, result } => overruled(model, asked, result),
        News::Interrupted(Ok(thread_id)) => {
            let name = thread_id.and_then(|thread_id| session.thread_name(&thread_id));
            let of = name.map(|name| format!(" of {name}")).unwrap_or_default();
            tell(model, Tone::Plain, format!("the turn{of} is being interrupted"));
        }
        News::Interrupted(Err(why)) => tell(model, Tone::Bad, format!("not interrupted: {why}")),
    }
    Vec::new()
}

/// The relay answers the call that overrules a denial.
fn overruled(model: &mut Model, asked: Overruling, result: Result<String, NotOverruled>) {
    let in_history = |session: &&mut Box<Session>| session.focus == Focus::History;
    match result {
        Ok(told) => tell(model, Tone::Plain, told),
        Err(NotOverruled::Other(why)) => tell(model, Tone::Bad, format!("not overruled: {why}")),
        Err(NotOverruled::TurnOver) => {
            let Some(session) = model.session.as_mut().filter(in_history) else {
                // The next key is meant for something else.
                return tell(
                    model,
                    Tone::Bad,
                    "not overruled: its turn is over; press o again and stay in the history",
                );
            };
            session.overruling = Some(Overruling { applies: OverruleFor::NextTurn, ..asked });
            browse::ask(
                model,
                "its turn is over: approve it for your next message? y: yes, any other key: no".to_owned(),
            );
        }
    }
}

fn take_events(
    session: &mut Session,
    events: Vec<crate::sessions::timeline::SessionEvent>,
    now_us: u64,
) -> Vec<Command> {
    let Some(timeline) = &mut session.timeline else { return Vec::new() };
    let mut look = false;
    for event in events {
        look |= match &event.what {
            Happening::Ui(ui) => matches!(ui.kind, UiKind::Approval | UiKind::UserInput | UiKind::Activity),
            Happening::Run { .. } => true,
            Happening::Gap { .. } => false,
        };
        timeline.take(&event);
    }
    let mut commands = if look { vec![Command::Look] } else { Vec::new() };
    // An unfinished entry in full is read again now and then, and at its end.
    if let Focus::Reading(reading) = &mut session.focus
        && let DocumentSubject::Entry(shown) = &mut reading.subject
        && shown.stage == Stage::Open
        && let Ok(at) = timeline.index_of(&shown.key)
        && let stage = timeline.entries()[at].stage
        && (stage != Stage::Open || now_us.saturating_sub(reading.read_us) >= READ_AGAIN_US)
    {
        shown.stage = stage;
        reading.read_us = now_us;
        commands.push(Command::Read(Read::Open(shown.key.clone())));
    }
    commands
}

/// Shows the first page of the session.
fn started(session: &mut Session, page: Page) -> Vec<Command> {
    session.reading = None;
    let Some(timeline) = &mut session.timeline else { return Vec::new() };
    timeline.replace(page.entries, false);
    timeline.is_held = !page.is_last;
    browse::to_first(session)
}

fn newer(session: &mut Session, page: Page) -> Vec<Command> {
    session.reading = None;
    let Some(timeline) = &mut session.timeline else { return Vec::new() };
    let next = page.entries.first().map(|entry| entry.key.clone());
    timeline.append(page.entries);
    if next.is_some() {
        session.cursor = next;
    }
    // If the page reached the end of the journal, it is followed from here.
    if page.is_last { follow(session) } else { Vec::new() }
}

fn found_entry(model: &mut Model, found: Sought) -> Vec<Command> {
    let Some(session) = &mut model.session else { return Vec::new() };
    session.reading = None;
    let missing = session.missing.take();
    let missing = missing.unwrap_or_else(|| "nothing more was found in the record".to_owned());
    match (found, &mut session.timeline) {
        (Sought::At(key, page), Some(timeline)) => {
            timeline.replace(page.entries, !page.is_last);
            session.cursor = Some(key);
        }
        (Sought::At(..), None) => {}
        (Sought::Nothing, _) => tell(model, Tone::Plain, missing),
        (Sought::NothingAmong(events), _) => {
            let told = format!("{missing}; only the nearest {events} events were searched");
            tell(model, Tone::Plain, told);
        }
    }
    Vec::new()
}

/// Updates the shown request after a change of the pending ones.
fn pending(model: &mut Model, ended: &[Request]) {
    let Some(session) = &mut model.session else { return };
    let (id, asks) = (session.id.clone(), session.asks.clone());
    model.begun.retain(|(of, request_id), _| *of != id || asks.iter().any(|ask| ask.id == *request_id));
    // A note about a key refers to the requests that were pending then.
    if !ended.is_empty() {
        model.note.take_if(|note| note.about == About::Key);
    }
    let mut told = None;
    let shown = session.answering.as_ref().map(|answering| (answering.ask.id.clone(), answering.is_sent));
    for row in ended {
        // The reply to our own answer reports the outcome.
        if shown.as_ref().is_none_or(|(id, is_sent)| row.request_id != *id || !*is_sent) {
            told = Some(ending(row));
        }
    }
    if let Some(answering) = &mut session.answering {
        let ask = session.asks.iter().find(|ask| ask.id == answering.ask.id);
        if let Some(ask) = ask {
            if !Arc::ptr_eq(ask, &answering.ask) && ask.row != answering.ask.row {
                answering.details = Arc::new(ask.details(ask.folder(&session.cwd)));
                answering.at = At::default();
            }
            answering.ask = Arc::clone(ask);
        } else if !answering.is_sent && answering.ended.is_none() {
            let row = ended.iter().find(|row| row.request_id == answering.ask.id);
            let told = row.map_or_else(|| format!("request {} is not pending any more", answering.ask.id), ending);
            let is_typed = answering.form.is_touched() || answering.reason.is_some();
            answering.ended = Some(told.clone());
            answering.sure = None;
            let reviews = matches!(session.focus, Focus::Reading(_));
            if !is_typed && !reviews && session.asks.is_empty() {
                // A key that the user is pressing must not go to the composer.
                session.answering = None;
            }
        }
        let is_said = session.answering.as_ref().is_some_and(|answering| answering.ended == told);
        told.take_if(|_| is_said);
    } else if !std::mem::replace(&mut session.has_looked, true)
        && session.focus == Focus::Answer
        && is_untouched(session)
        && let wanted = session.wanted.take()
        && let is_wanted = (|ask: &&Arc<Ask>| wanted.as_ref() == Some(&ask.id))
        && let Some(ask) =
            session.asks.iter().find(is_wanted).or_else(|| session.asks.iter().find(|ask| ask.is_for_human())).cloned()
    {
        // Attaching to a waiting session shows its request.
        show_request(model, ask);
    }
    if let Some(told) = told {
        tell(model, Tone::Plain, told);
    }
}

fn responded(model: &mut Model, request_id: &str, result: Result<(Box<Request>, First), String>) -> Vec<Command> {
    let Some(session) = &mut model.session else { return Vec::new() };
    let is_shown = session.answering.as_ref().is_some_and(|answering| answering.ask.id == request_id);
    match result {
        Ok((row, first)) => {
            session.asks.retain(|ask| ask.id != request_id);
            model.begun.remove(&(session.id.clone(), request_id.to_owned()));
            if is_shown {
                next_request(model);
            }
            match first {
                First::We => tell(model, Tone::Plain, own_ending(&row)),
                First::Same => tell(model, Tone::Plain, format!("{}; the same as your answer", ending(&row))),
                First::Other => tell(model, Tone::Bad, format!("{}; your answer was not sent", ending(&row))),
            }
        }
        Err(why) => {
            if let Some(answering) = session.answering.as_mut().filter(|_| is_shown) {
                answering.is_sent = false;
            }
            tell(model, Tone::Bad, why);
        }
    }
    vec![Command::Look]
}
