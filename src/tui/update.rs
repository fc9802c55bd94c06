//! What becomes of the model when something happens.
//!
//! Pure. Branching over what can happen stands here; what keys do, in [`super::pressed`].

use super::ask::ending;
use super::model::{Awaited, Command, Event, First, Focus, Model, News, Session, Tone};
use super::pressed;
use super::steps::{follow, next_request, say};

/// Takes what has happened at a time, in microseconds since the Unix epoch, and says what is to be done.
pub fn update(model: &mut Model, now_us: u64, event: Event) -> Vec<Command> {
    model.now_us = now_us;
    if model.note.as_ref().is_some_and(|note| note.until_us <= now_us) {
        model.note = None;
    }
    match event {
        Event::Key(key) => pressed::key(model, &key),
        Event::Pasted(text) => {
            pressed::pasted(model, &text);
            Vec::new()
        }
        Event::Resized(size) => {
            model.size = size;
            Vec::new()
        }
        Event::Ticked => Vec::new(),
        Event::Ended(ending) => vec![Command::Quit(ending)],
        Event::Stopped => vec![Command::Suspend],
        Event::Continued => vec![Command::Retake],
        Event::Listed(mut rows) => {
            // Who waits for someone comes first, then who is live.
            rows.sort_by_key(|row| (row.pending == 0, !row.live));
            let is_there = |id: &String| rows.iter().any(|row| row.id == *id);
            if !model.list.chosen.as_ref().is_some_and(is_there) {
                model.list.chosen = rows.first().map(|row| row.id.clone());
            }
            model.list.rows = rows;
            model.list.is_known = true;
            Vec::new()
        }
        Event::Of(attachment, news) => match &mut model.session {
            Some(session) if session.attachment == attachment => of_session(model, news),
            Some(_) | None => Vec::new(),
        },
    }
}

fn of_session(model: &mut Model, news: News) -> Vec<Command> {
    let Some(session) = &mut model.session else { return Vec::new() };
    match news {
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
            // What is known of threads was read from further back.
            if let Some(before) = before {
                timeline.facts = before.facts;
            }
            session.timeline = Some(timeline);
            session.reading = Some(Awaited::Page);
        }
        News::Heard { epoch, heard } if epoch == session.epoch => {
            let Some(timeline) = &mut session.timeline else { return Vec::new() };
            let mut look = false;
            for one in heard {
                look |= matches!(one.told["type"].as_str(), Some("approval" | "user_input" | "run" | "activity"));
                timeline.take(&one);
            }
            return if look { vec![Command::Look] } else { Vec::new() };
        }
        News::Glanced(..) | News::Restored { .. } | News::Heard { .. } => {}
        News::Unreadable(why) => {
            session.reading = None;
            say(model, Tone::Bad, why);
        }
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
                && reading.entry.key == entry.key
            {
                reading.entry = *entry;
            }
        }
        News::Responded { request_id, result } => return responded(model, &request_id, result),
        News::Said(result) => {
            session.is_saying = false;
            match result {
                Ok(told) => {
                    session.composer.take();
                    say(model, Tone::Plain, told);
                }
                Err(why) => say(model, Tone::Bad, format!("not sent: {why}")),
            }
            return vec![Command::Look];
        }
        News::Interrupted(Ok(())) => say(model, Tone::Plain, "the turn is being stopped"),
        News::Interrupted(Err(why)) => say(model, Tone::Bad, format!("not stopped: {why}")),
    }
    Vec::new()
}

fn newer(session: &mut Session, page: super::model::Page) -> Vec<Command> {
    session.reading = None;
    let Some(timeline) = &mut session.timeline else { return Vec::new() };
    let next = page.entries.first().map(|entry| entry.key.clone());
    timeline.append(page.entries);
    if next.is_some() {
        session.cursor = next;
    }
    // What was read is the end of the journal: from here on it is told as it happens again.
    if page.is_last { follow(session) } else { Vec::new() }
}

fn found_entry(model: &mut Model, found: Option<(super::entry::Key, super::model::Page)>) -> Vec<Command> {
    let Some(session) = &mut model.session else { return Vec::new() };
    session.reading = None;
    match (found, &mut session.timeline) {
        (Some((key, page)), Some(timeline)) => {
            timeline.replace(page.entries, !page.is_last);
            session.cursor = Some(key);
        }
        (Some(_), None) => {}
        (None, _) => say(model, Tone::Plain, "nothing more of that in what is recorded"),
    }
    Vec::new()
}

/// What waits has changed.
fn pending(model: &mut Model, ended: &[serde_json::Value]) {
    let Some(session) = &mut model.session else { return };
    let mut told = None;
    let shown = session.answering.as_ref().map(|answering| (answering.ask.id.clone(), answering.is_sent));
    for row in ended {
        // Of our own answer its reply tells.
        if shown.as_ref().is_none_or(|(id, is_sent)| row["request_id"] != id.as_str() || !*is_sent) {
            told = Some(ending(row));
        }
    }
    let Some(answering) = &mut session.answering else {
        if let Some(told) = told {
            say(model, Tone::Plain, told);
        }
        return;
    };
    if let Some(ask) = session.asks.iter().find(|ask| ask.id == answering.ask.id) {
        answering.ask = ask.clone();
    } else if !answering.is_sent && answering.ended.is_none() {
        let row = ended.iter().find(|row| row["request_id"] == answering.ask.id.as_str());
        let told = row.map_or_else(|| format!("request {} waits no more", answering.ask.id), ending);
        let typed = !answering.text.text().is_empty() || !answering.answers.is_empty() || answering.reason.is_some();
        answering.ended = Some(told);
        answering.sure = None;
        if !typed && session.asks.is_empty() {
            // Nothing that is under the user's fingers could go to the composer by mistake.
            session.answering = None;
        }
    }
    if let Some(told) = told {
        say(model, Tone::Plain, told);
    }
}

fn responded(model: &mut Model, request_id: &str, result: Result<(serde_json::Value, First), String>) -> Vec<Command> {
    let now_us = model.now_us;
    let Some(session) = &mut model.session else { return Vec::new() };
    let is_shown = session.answering.as_ref().is_some_and(|answering| answering.ask.id == request_id);
    match result {
        Ok((row, first)) => {
            session.asks.retain(|ask| ask.id != request_id);
            if is_shown {
                next_request(session, now_us);
            }
            match first {
                First::We => say(model, Tone::Plain, ending(&row)),
                First::Other => say(model, Tone::Bad, format!("{}; your answer was not sent", ending(&row))),
            }
        }
        Err(why) => {
            if let Some(answering) = session.answering.as_mut().filter(|_| is_shown) {
                answering.is_sent = false;
                answering.steps = answering.ask.steps();
            }
            say(model, Tone::Bad, why);
        }
    }
    vec![Command::Look]
}
