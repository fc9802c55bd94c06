//! Keys in the timeline, and the scrolling of documents.
//!
//! Pure.

use super::folds::{Sieve, matcher};
use super::keys::{Action, AnswerKey, Browse, Move};
use super::model::Command;
use super::model::{About, AwaitedRead, Focus, Model, Note, Session, Tone, Unfolded};
use super::pressed::{ask_journal, follow, say};
use super::review;
use super::searching;
use crate::engine::OverruleFor;
use crate::sessions::entry::{Entry, Folding, Key, Kind, Matcher};
use crate::sessions::news::Read;
use crate::sessions::news::Way;
use crate::sessions::news::{Link, Overruling};
use crate::sessions::poller::Call;
use crate::sessions::timeline::Timeline;
use crate::text::bytes;
use crate::text::doc::{At, Doc, Room};

/// Typical rows of an entry.
const ROWS_AN_ENTRY: u16 = 3;

pub(super) fn history(model: &mut Model, does: Action) -> Vec<Command> {
    let step = usize::from((model.size.height / ROWS_AN_ENTRY).max(1));
    let Some(session) = &mut model.session else { return Vec::new() };
    match does {
        Action::Move(Move::Up) => back(session, 1),
        Action::Move(Move::PageUp) => back(session, step),
        Action::Move(Move::Down) => forward(session, 1),
        Action::Move(Move::PageDown) => forward(session, step),
        Action::Move(Move::First) => first(session),
        Action::Move(Move::Last) => {
            session.cursor = None;
            let is_held = session.timeline.as_ref().is_some_and(|timeline| timeline.is_held);
            if is_held { follow(session) } else { Vec::new() }
        }
        Action::Enter => open(session),
        Action::Browse(Browse::Search) => searching::begin(session),
        Action::Browse(Browse::SearchOn) => search_on(model, Way::Back),
        Action::Browse(Browse::SearchForward) => search_on(model, Way::Forward),
        Action::Browse(Browse::Filter) => {
            session.filter = next_filter(session.filter);
            Vec::new()
        }
        Action::Browse(Browse::Error) => find(model, Matcher { failed: true, ..Matcher::default() }, Way::Back),
        Action::Browse(Browse::Asked) => {
            find(model, Matcher { kind: Some(Kind::Request), ..Matcher::default() }, Way::Back)
        }
        Action::Browse(Browse::Overrule) => {
            overrule(model);
            Vec::new()
        }
        Action::Browse(Browse::Copy) => match chosen(session).map(Entry::whole) {
            Some(text) => copy(model, text),
            None => Vec::new(),
        },
        Action::Browse(Browse::Unfold) => {
            session.folding = session.folding.other();
            let told = match session.folding {
                Folding::Folded => "threads of agents and for titles are folded away",
                Folding::Unfolded => "all threads are shown, also those that nobody speaks in",
            };
            say(model, Tone::Plain, told);
            Vec::new()
        }
        Action::Back if session.unfolded.is_some() => {
            fold_again(session);
            Vec::new()
        }
        Action::Back => {
            session.focus = Focus::Answer;
            session.filter = None;
            session.cursor = None;
            let is_held = session.timeline.as_ref().is_some_and(|timeline| timeline.is_held);
            if is_held { follow(session) } else { Vec::new() }
        }
        Action::Browse(_) | Action::Answer(_) | Action::NewLine | Action::Global(_) => Vec::new(),
    }
}

/// Returns from a thread that was folded away.
fn fold_again(session: &mut Session) {
    if let Some(Unfolded { back_to, at }) = session.unfolded.take() {
        (session.thread, session.cursor) = (back_to, Some(at));
    }
}

pub(super) fn copy(model: &mut Model, text: String) -> Vec<Command> {
    say(model, Tone::Plain, format!("copied {} to the terminal's clipboard", bytes(text.len() as u64)));
    vec![Command::Copy(text)]
}

/// The next kind that can be shown alone, in the order of [`Kind::ALL`].
fn next_filter(filter: Option<Kind>) -> Option<Kind> {
    let is_offered = |kind: Kind| !matches!(kind, Kind::Status | Kind::Gap | Kind::Run);
    Kind::ALL.iter().copied().find(|kind| is_offered(*kind) && Some(*kind) > filter)
}

/// The selected entry: the one under the cursor, or the nearest visible one. Only an empty timeline has none.
pub(super) fn chosen(session: &Session) -> Option<&Entry> {
    let timeline = session.timeline.as_ref()?;
    let (entries, sieve) = (timeline.entries(), Sieve::of(session));
    let at = match &session.cursor {
        Some(key) => {
            let (Ok(at) | Err(at)) = timeline.index_of(key);
            (at + 1).min(entries.len())
        }
        None => entries.len(),
    };
    let before = entries.range(..at).rev().find(|entry| sieve.shows(entry));
    before.or_else(|| entries.range(at..).find(|entry| sieve.shows(entry)))
}

/// The index of the cursor; after the last entry if it follows the newest.
fn cursor_index(session: &Session, timeline: &Timeline) -> usize {
    match &session.cursor {
        Some(key) => {
            let (Ok(at) | Err(at)) = timeline.index_of(key);
            at
        }
        None => timeline.entries().len(),
    }
}

/// Moves to the start of the session, which is read again if it is outside the window.
fn first(session: &mut Session) -> Vec<Command> {
    match session.timeline.as_ref().is_some_and(|timeline| timeline.has_older) {
        true => ask_journal(session, AwaitedRead::Page, Command::Read(Read::Start)),
        false => to_first(session),
    }
}

/// Selects the first visible entry; searches the journal if the window has none.
pub(super) fn to_first(session: &mut Session) -> Vec<Command> {
    let Some(timeline) = &session.timeline else { return Vec::new() };
    let sieve = Sieve::of(session);
    let first = timeline.entries().iter().find(|entry| sieve.shows(entry)).map(|entry| entry.key.clone());
    match first {
        Some(key) => {
            session.cursor = Some(key);
            Vec::new()
        }
        None => {
            let last = timeline.entries().back().map(|entry| entry.key.clone()).filter(|_| timeline.is_held);
            let matcher = matcher(session);
            last.map_or_else(Vec::new, |from| {
                ask_journal(session, AwaitedRead::Match, Command::Read(Read::Find { matcher, from, way: Way::Forward }))
            })
        }
    }
}

fn back(session: &mut Session, by: usize) -> Vec<Command> {
    let Some(timeline) = &session.timeline else { return Vec::new() };
    let at = cursor_index(session, timeline);
    let sieve = Sieve::of(session);
    let earlier: Vec<&Key> = timeline
        .entries()
        .range(..at.min(timeline.entries().len()))
        .rev()
        .filter(|entry| sieve.shows(entry))
        .take(by)
        .map(|entry| &entry.key)
        .collect();
    if let Some(key) = earlier.last() {
        session.cursor = Some((*key).clone());
        return Vec::new();
    }
    if !timeline.has_older {
        return Vec::new();
    }
    let first = timeline.entries().front().map_or(Key::JOURNAL_BEGINS, |entry| entry.key.clone());
    match (session.filter, &session.thread) {
        (None, None) => ask_journal(session, AwaitedRead::Page, Command::Read(Read::Older(first))),
        (Some(_), _) | (_, Some(_)) => {
            let matcher = matcher(session);
            ask_journal(session, AwaitedRead::Match, Command::Read(Read::Find { matcher, from: first, way: Way::Back }))
        }
    }
}

fn forward(session: &mut Session, by: usize) -> Vec<Command> {
    let Some(timeline) = &session.timeline else { return Vec::new() };
    let at = cursor_index(session, timeline);
    let sieve = Sieve::of(session);
    let later: Vec<&Key> = timeline
        .entries()
        .iter()
        .skip(at + 1)
        .filter(|entry| sieve.shows(entry))
        .take(by)
        .map(|entry| &entry.key)
        .collect();
    if let Some(key) = later.last() {
        session.cursor = Some((*key).clone());
        return Vec::new();
    }
    match timeline.entries().back().map(|entry| entry.key.clone()).filter(|_| timeline.is_held) {
        Some(last) => ask_journal(session, AwaitedRead::Page, Command::Read(Read::Newer(last))),
        None => {
            session.cursor = None;
            Vec::new()
        }
    }
}

/// Asks whether to overrule the denial under the cursor.
fn overrule(model: &mut Model) {
    let Some(session) = &mut model.session else { return };
    let denial = chosen(session).and_then(|entry| Some((entry.denial.clone()?, entry.title.clone())));
    let Some((review_id, title)) = denial else {
        return say(model, Tone::Plain, "this is not a denial of codex's own reviewer; f shows only reviews");
    };
    if !matches!(session.link, Link::Up(_)) {
        return say(model, Tone::Bad, "not overruled: no relay answers in this session");
    }
    session.overruling = Some(Overruling { review_id, applies: OverruleFor::ThisTurn });
    ask(model, format!("approve it after all? {title} — y: yes, any other key: no"));
}

/// Asks for a confirmation. The question stays until a key is pressed.
pub(super) fn ask(model: &mut Model, question: String) {
    model.note = Some(Note { text: question, tone: Tone::Plain, about: About::Key, until_us: u64::MAX });
}

/// Handles the key after that question.
pub(super) fn overrule_or_not(model: &mut Model, asked: Overruling, does: Option<Action>) -> Vec<Command> {
    if does == Some(Action::Answer(AnswerKey::Yes)) {
        return vec![Command::Call(Call::Overrule(asked))];
    }
    say(model, Tone::Plain, "the denial stands");
    Vec::new()
}

pub(super) fn open(session: &mut Session) -> Vec<Command> {
    let Some(entry) = chosen(session).cloned() else { return Vec::new() };
    if Sieve::of(session).line(&entry).is_some() {
        session.unfolded = Some(Unfolded { back_to: session.thread.take(), at: entry.key });
        (session.thread, session.cursor) = (entry.thread_id, None);
        return Vec::new();
    }
    let key = entry.key.clone();
    let is_whole = entry.cut_bytes == 0;
    session.focus = Focus::Reading(Box::new(review::of_entry(entry, &session.cwd)));
    if is_whole { Vec::new() } else { vec![Command::Read(Read::Open(key))] }
}

fn search_on(model: &mut Model, way: Way) -> Vec<Command> {
    let Some(session) = &model.session else { return Vec::new() };
    match session.searched.clone() {
        Some(matcher) => find(model, matcher, way),
        None => {
            say(model, Tone::Plain, "nothing was searched for yet: / searches");
            Vec::new()
        }
    }
}

/// The note after a search without a match.
fn not_found(session: &Session, matcher: &Matcher, way: Way) -> String {
    let place = match (way, &session.cursor) {
        (Way::Back, None) => "",
        (Way::Back, Some(_)) => " before this one",
        (Way::Forward, _) => " after this one",
    };
    let sifted = session.filter.map(|kind| format!("; only {} is shown, f shows the next kind", kind.name()));
    let missing = match &matcher.sifter {
        Some(sifter) => format!("no entry{place} matches `{}`", sifter.filter),
        None if matcher.failed => format!("no error{place}"),
        None => format!("no request{place}"),
    };
    format!("{missing}{}", sifted.unwrap_or_default())
}

/// Looks for an entry: in the window, else in the journal.
pub(super) fn find(model: &mut Model, matcher: Matcher, way: Way) -> Vec<Command> {
    let Some(session) = &mut model.session else { return Vec::new() };
    let matcher = Matcher { thread_id: session.thread.clone(), folding: session.folding, ..matcher };
    let Some(timeline) = &session.timeline else { return Vec::new() };
    let at = cursor_index(session, timeline);
    let sieve = Sieve::of(session);
    let takes = |entry: &&Entry| matcher.takes(entry) && sieve.shows(entry);
    let found = match way {
        Way::Back => timeline.entries().range(..at.min(timeline.entries().len())).rev().find(takes),
        Way::Forward => timeline.entries().iter().skip(at + 1).find(takes),
    };
    if let Some(entry) = found {
        session.cursor = Some(entry.key.clone());
        return Vec::new();
    }
    let (edge, is_more) = match way {
        Way::Back => (timeline.entries().front(), timeline.has_older),
        Way::Forward => (timeline.entries().back(), timeline.is_held),
    };
    let edge = edge.map(|entry| entry.key.clone()).filter(|_| is_more);
    let missing = not_found(session, &matcher, way);
    match edge {
        Some(from) => {
            if session.reading.is_none() {
                session.missing = Some(missing);
            }
            ask_journal(session, AwaitedRead::Match, Command::Read(Read::Find { matcher, from, way }))
        }
        None => {
            say(model, Tone::Plain, missing);
            Vec::new()
        }
    }
}

/// A position in a document after a move.
pub(super) fn scrolled(doc: &Doc, at: At, to: Move, room: Room) -> At {
    let page = room.rows.saturating_sub(1).max(1);
    match to {
        Move::Up => doc.up(at, 1, room),
        Move::Down => doc.down(at, 1, room),
        Move::PageUp => doc.up(at, page, room),
        Move::PageDown => doc.down(at, page, room),
        Move::First => At::default(),
        Move::Last => doc.end(room),
    }
}
