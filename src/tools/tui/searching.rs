//! The search in the timeline: its line, its completion, and the facts of the session.
//!
//! Pure. `/` requests the facts of the session. A search that reads them waits until they have come.

use std::sync::Arc;

use super::browse::find;
use super::form::Field;
use super::model::Command;
use super::model::{Focus, Model, Session, Tone};
use super::pressed::say;
use crate::history::{Filter, FilterChoices, FilterPlace, FilterThread, KnownFacts, client_name, complete};
use crate::sessions::entry::{Matcher, Sifter};
use crate::sessions::news::{Link, Way};
use crate::sessions::poller::Call;

/// The folders that a filter can refer to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Folders {
    pub home: Option<String>,
    pub current: Option<String>,
}

/// The facts of the session, for filters.
#[derive(Debug, Clone, Default)]
pub(crate) struct Knowledge {
    facts: Arc<KnownFacts>,
    /// The facts were requested and have not come yet.
    is_awaited: bool,
    /// The search that waits for the facts.
    waiting: Option<String>,
}

/// Opens the line.
pub(super) fn begin(session: &mut Session) -> Vec<Command> {
    session.focus = Focus::Search(Field::default());
    session.knowledge.is_awaited = true;
    vec![Command::Call(Call::Facts)]
}

/// Stores the facts, and starts the search that has waited for them.
pub(super) fn learned(model: &mut Model, facts: KnownFacts) -> Vec<Command> {
    let Some(session) = &mut model.session else { return Vec::new() };
    let waiting = session.knowledge.waiting.take();
    session.knowledge = Knowledge { facts: Arc::new(facts), ..Knowledge::default() };
    match waiting {
        Some(text) => search(model, &text),
        None => Vec::new(),
    }
}

/// Takes the line. An invalid line stays open, with the error below it.
pub(super) fn take(model: &mut Model) -> Vec<Command> {
    let Some(Focus::Search(field)) = model.session.as_ref().map(|session| &session.focus) else { return Vec::new() };
    let text = field.text().to_owned();
    if let Err(why) = filter(model, &text) {
        say(model, Tone::Bad, why);
        return Vec::new();
    }
    if let Some(session) = &mut model.session {
        session.focus = Focus::History;
    }
    search(model, &text)
}

fn filter(model: &Model, text: &str) -> Result<Filter, String> {
    let (home, folder) = (model.folders.home.as_deref(), model.folders.current.as_deref());
    Filter::read(text, &FilterPlace { now_us: model.now_us, zone: model.zone.as_time_zone(), home, folder })
}

/// Searches back from the cursor.
fn search(model: &mut Model, text: &str) -> Vec<Command> {
    let Ok(filter) = filter(model, text) else { return Vec::new() };
    let Some(session) = &mut model.session else { return Vec::new() };
    if filter.is_empty() {
        return Vec::new();
    }
    if session.knowledge.is_awaited && (filter.asks_threads() || filter.asks_requests()) {
        session.knowledge.waiting = Some(text.to_owned());
        return Vec::new();
    }
    let known = Arc::new(known(session));
    let matcher = Matcher { sifter: Some(Arc::new(Sifter { filter, known })), ..Matcher::default() };
    session.searched = Some(matcher.clone());
    find(model, matcher, Way::Back)
}

/// The stored facts, updated by those of the relay.
fn known(session: &Session) -> KnownFacts {
    let mut known = (*session.knowledge.facts).clone();
    if known.session.folder.is_none() && !session.cwd.is_empty() {
        known.session.folder = Some(session.cwd.clone());
    }
    if let Link::Up(live) = &session.link {
        for thread in &live.document.threads {
            let client = thread.identity.client.as_ref().map(|client| client.name.clone());
            let (folder, title) = (thread.identity.cwd.clone(), thread.identity.title.clone());
            let stored = known.threads.remove(&thread.thread_id).unwrap_or_default();
            let facts = FilterThread {
                client: client.or(stored.client).or_else(|| known.session.client.clone()),
                folder: folder.or(stored.folder).or_else(|| known.session.folder.clone()),
                title: title.or(stored.title),
            };
            known.threads.insert(thread.thread_id.clone(), facts);
        }
    }
    known
}

/// Completes the text before the cursor up to the first ambiguity, and shows the possible completions.
pub(super) fn complete_line(model: &mut Model) {
    let Some(session) = &mut model.session else { return };
    let known = known(session);
    let Focus::Search(field) = &mut session.focus else { return };
    let text = field.before_cursor().to_owned();
    let offers = complete(&text, &choices(known));
    let Some(first) = offers.first() else {
        return say(model, Tone::Plain, "nothing completes this");
    };
    let common = offers.iter().fold(first.clone(), |common, offer| {
        let alike = common.chars().zip(offer.chars()).take_while(|(one, other)| one == other);
        alike.map(|(char, _)| char).collect()
    });
    if common.len() >= text.len() {
        let rest = field.text()[text.len()..].to_owned();
        *field = Field::of(common.clone());
        field.insert(&rest);
        for _ in rest.chars() {
            field.left();
        }
    }
    if let [_, _, ..] = &offers[..] {
        let from = common.rfind(char::is_whitespace).map_or(0, |at| at + 1);
        let names: Vec<&str> = offers.iter().map(|offer| offer.get(from..).unwrap_or(offer)).collect();
        say(model, Tone::Plain, names.join("  "));
    }
}

fn choices(known: KnownFacts) -> FilterChoices {
    let mut choices = FilterChoices::default();
    for FilterThread { client, folder, title } in known.threads.into_values().chain([known.session]) {
        choices.clients.extend(client.map(|name| client_name(&name).to_owned()));
        choices.folders.extend(folder);
        choices.threads.extend(title);
    }
    for names in [&mut choices.clients, &mut choices.folders, &mut choices.threads] {
        names.sort();
        names.dedup();
    }
    choices
}
