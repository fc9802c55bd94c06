//! A document on the whole screen: a diff under review, or an entry in full.
//!
//! Pure. A diff has a list of files, moves by file and by hunk, and its request can be answered here.

use std::sync::Arc;

use crossterm::event::KeyEvent;

use super::browse::{copy, scrolled};
use super::keys::{Action, Browse, Move};
use super::model::Command;
use super::model::{DocumentSubject, Focus, Model, Reading, Text, Tone};
use super::pressed::{next_request, say};
use super::respond;
use crate::engine::terminal::remains_of;
use crate::sessions::diff::{Diff, form_of};
use crate::sessions::entry::{Entry, Keeps, Kind, Stage};
use crate::text::doc::{At, Doc, Role};
use crate::text::markdown;

/// Opens the diff of the request that is being answered, or all of its details.
pub(super) fn of_request(model: &mut Model) -> Vec<Command> {
    let Some(session) = &mut model.session else { return Vec::new() };
    let Some(shown) = &session.answering else { return Vec::new() };
    let Some(diff) = &shown.details.diff else {
        say(model, Tone::Plain, "this request has no diff; PgUp and PgDn scroll it");
        return Vec::new();
    };
    let reading = Reading {
        subject: DocumentSubject::Request(shown.ask.id.clone()),
        text: Text::Diff(Arc::clone(diff)),
        at: At::default(),
        files: None,
        from_history: false,
        read_us: 0,
        follows: false,
    };
    session.focus = Focus::Reading(Box::new(reading));
    Vec::new()
}

pub(super) fn of_entry(entry: Entry, cwd: &str) -> Reading {
    // The newest text of a message in progress stays visible.
    let follows = entry.stage == Stage::Open && entry.kind.keeps(entry.stage) == Keeps::End;
    let diff = form_of(entry.kind).map(|form| Diff::read(form, &entry.body, cwd));
    let text = match diff.filter(|diff| !diff.files.is_empty()) {
        Some(diff) => Text::Diff(Arc::new(diff)),
        None => Text::Lines(Arc::new(lines(&entry))),
    };
    let subject = DocumentSubject::Entry(Box::new(entry));
    Reading { subject, text, at: At::default(), files: None, from_history: true, read_us: 0, follows }
}

fn lines(entry: &Entry) -> Doc {
    let mut doc = Doc::default();
    if !entry.title.is_empty() {
        doc.push(&entry.title, Role::Strong);
    }
    match entry.kind {
        Kind::User | Kind::Assistant | Kind::Reasoning | Kind::Plan => doc.extend(&markdown::doc(&entry.body)),
        Kind::Command => doc.push(remains_of(&entry.body).trim_end_matches('\n'), Role::Plain),
        Kind::Change
        | Kind::Diff
        | Kind::Tool
        | Kind::Request
        | Kind::Review
        | Kind::Status
        | Kind::Error
        | Kind::Gap
        | Kind::Run => doc.push(entry.body.trim_end_matches('\n'), Role::Plain),
    }
    doc
}

/// Handles a key at a document in full.
pub(super) fn pressed(model: &mut Model, does: Action, key: &KeyEvent) -> Vec<Command> {
    let room = model.room;
    let Some(session) = &mut model.session else { return Vec::new() };
    let Focus::Reading(reading) = &mut session.focus else { return Vec::new() };
    let is_request = matches!(reading.subject, DocumentSubject::Request(_));
    match does {
        Action::Move(to) => {
            moved(reading, to, room);
            reading.follows = to == Move::Last;
        }
        Action::Back if reading.files.is_some() => reading.files = None,
        Action::Back if reading.from_history => session.focus = Focus::History,
        Action::Back => respond::return_to(session),
        Action::Enter if is_request && session.answering.as_ref().is_some_and(|shown| shown.ended.is_some()) => {
            next_request(model);
        }
        Action::Enter => {
            if let Some(chosen) = reading.files.take() {
                to_file(reading, chosen);
            }
        }
        Action::Answer(_) if is_request => return respond::choose(model, key),
        Action::Answer(_) => say(model, Tone::Bad, "this diff is not a pending request: it cannot be answered"),
        Action::Browse(Browse::Copy) => {
            let text = text_of(reading.doc());
            return copy(model, text);
        }
        Action::Browse(Browse::Pager) => {
            return vec![match &reading.text {
                Text::Lines(doc) => Command::Page(Arc::clone(doc)),
                Text::Diff(diff) => Command::PageDiff(Arc::clone(diff)),
            }];
        }
        Action::Browse(Browse::Files) => {
            let here = reading.diff().map(|diff| diff.file_at(reading.at.line));
            reading.files = if reading.files.is_some() { None } else { here };
        }
        Action::Browse(Browse::NextFile) => jump(reading, Jump::File, true),
        Action::Browse(Browse::PreviousFile) => jump(reading, Jump::File, false),
        Action::Browse(Browse::NextHunk) => jump(reading, Jump::Hunk, true),
        Action::Browse(Browse::PreviousHunk) => jump(reading, Jump::Hunk, false),
        Action::NewLine | Action::Global(_) | Action::Browse(_) => {}
    }
    Vec::new()
}

fn moved(reading: &mut Reading, to: Move, room: crate::text::doc::Room) {
    let Some(chosen) = reading.files else {
        reading.at = scrolled(reading.doc(), reading.at, to, room);
        return;
    };
    let last = reading.diff().map_or(0, |diff| diff.files.len().saturating_sub(1));
    let page = room.rows.max(1);
    reading.files = Some(to.in_list(chosen, last, page));
}

/// Shows a file from its start.
pub(super) fn to_file(reading: &mut Reading, file: usize) {
    let line = reading.diff().and_then(|diff| diff.files.get(file)).map(|file| file.line);
    if let Some(line) = line {
        reading.at = At::line(line);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Jump {
    File,
    Hunk,
}

/// Jumps to the next or previous start of a file or hunk.
fn jump(reading: &mut Reading, to: Jump, forward: bool) {
    let Some(diff) = reading.diff() else { return };
    let starts: Vec<usize> = match to {
        Jump::File => diff.files.iter().map(|file| file.line).collect(),
        Jump::Hunk => diff.hunks.clone(),
    };
    // While the list has the keys, its selected file is the position.
    let here = reading.files.and_then(|file| diff.files.get(file)).map_or(reading.at.line, |file| file.line);
    let found = match forward {
        true => starts.iter().find(|line| **line > here),
        false => starts.iter().rev().find(|line| **line < here),
    };
    if let Some(line) = found.copied() {
        reading.files = reading.files.map(|_| diff.file_at(line));
        reading.at = At::line(line);
    }
}

pub(super) fn text_of(doc: &Doc) -> String {
    let mut text = String::new();
    for line in 0..doc.len() {
        text.push_str(doc.text_of(line));
        text.push('\n');
    }
    text
}
