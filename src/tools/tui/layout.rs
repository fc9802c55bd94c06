//! The layout of the screen.
//!
//! Pure. The view draws into these areas. The update uses them for page keys and to limit scroll positions.

use ratatui::layout::Rect;

use super::form::Field;
use super::model::{Answering, Focus, Mode, Model, Reading, Session, Text};
use super::view;
use crate::text::doc::{At, Room};
use crate::text::{width, wrap};

/// From this width on the request stands beside the timeline.
const COLUMNS_FOR_TWO: u16 = 100;

/// From this height on the request may stand beside the timeline.
const ROWS_FOR_TWO: u16 = 12;

/// From this height on the header has a second row.
const ROWS_FOR_FACTS: u16 = 14;

/// From this height on panes have titles.
const ROWS_FOR_TITLES: u16 = 16;

/// From this width on a diff's files stand beside it.
const COLUMNS_FOR_FILES: u16 = 80;

/// Most pending requests listed in chat.
pub(super) const LISTED_MAX: usize = 3;

/// Most rows of a note.
const NOTE_ROWS_MAX: usize = 3;

/// Most rows of the composer.
const COMPOSER_ROWS_MAX: usize = 6;

/// The areas of a session. An area without rows is hidden.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Areas {
    pub(super) header: Rect,
    pub(super) timeline: Rect,
    /// The request that is being answered.
    pub(super) request: Rect,
    /// The column between timeline and request, if they stand side by side.
    pub(super) between: Rect,
    /// Pending requests, one per row.
    pub(super) queue: Rect,
    /// The composer, or the text to search for.
    pub(super) composer: Rect,
    pub(super) note: Rect,
    pub(super) footer: Rect,
    pub(super) titles: bool,
}

/// Cuts rows off the top of an area.
fn top(area: &mut Rect, rows: u16) -> Rect {
    let rows = rows.min(area.height);
    let cut = Rect { height: rows, ..*area };
    area.y += rows;
    area.height -= rows;
    cut
}

/// Cuts rows off the bottom of an area.
fn bottom(area: &mut Rect, rows: u16) -> Rect {
    let rows = rows.min(area.height);
    area.height -= rows;
    Rect { y: area.y + area.height, height: rows, ..*area }
}

fn whole(model: &Model) -> Rect {
    Rect::new(0, 0, model.size.width, model.size.height)
}

/// Rows of the note, if it has one and there is room.
pub(super) fn note_rows(model: &Model) -> u16 {
    let rows_max = match model.size.height {
        0..7 => 0,
        7..10 => 1,
        10.. => NOTE_ROWS_MAX,
    };
    let rows = model.note.as_ref().map_or(0, |note| wrap(&note.text, usize::from(model.size.width)).len());
    rows.min(rows_max) as u16
}

/// Rows of a field after a mark of `mark` columns.
fn field_rows(field: &Field, mark: usize, columns: u16) -> usize {
    view::typed_rows(field.text(), usize::from(columns).saturating_sub(mark + 1).max(1))
}

pub(super) fn areas(model: &Model, session: &Session) -> Areas {
    let mut rest = whole(model);
    let rows = rest.height;
    let mut areas = Areas { titles: rows >= ROWS_FOR_TITLES, ..Areas::default() };
    areas.footer = bottom(&mut rest, 1);
    areas.header = top(&mut rest, if rows >= ROWS_FOR_FACTS { 2 } else { 1 });
    areas.note = bottom(&mut rest, note_rows(model));
    if matches!(session.focus, Focus::Search(_)) {
        areas.composer = bottom(&mut rest, 1);
    }
    let Some(shown) = &session.answering else {
        chat(session, &mut areas, &mut rest);
        areas.timeline = rest;
        return areas;
    };
    if rest.width >= COLUMNS_FOR_TWO && rows >= ROWS_FOR_TWO {
        let left = rest.width * 9 / 20;
        areas.timeline = Rect { width: left, ..rest };
        areas.between = Rect { x: rest.x + left, width: 1, ..rest };
        areas.request = Rect { x: rest.x + left + 1, width: rest.width - left - 1, ..rest };
    } else if session.focus == Focus::Answer {
        let rows = stacked_rows(model, session, shown, rest);
        areas.request = bottom(&mut rest, rows);
        areas.timeline = rest;
    } else {
        areas.queue = bottom(&mut rest, u16::from(rows >= 7));
        areas.timeline = rest;
    }
    areas
}

/// Pending requests and the composer.
fn chat(session: &Session, areas: &mut Areas, rest: &mut Rect) {
    if session.focus == Focus::Answer {
        let wanted = field_rows(&session.composer, 2, rest.width).min(COMPOSER_ROWS_MAX) as u16;
        let title = u16::from(areas.titles);
        areas.composer = bottom(rest, (wanted + title).min(rest.height.saturating_sub(2)).max(1));
    }
    let listed = session.asks.len().min(LISTED_MAX + 1) as u16;
    areas.queue = bottom(rest, listed.min(rest.height.saturating_sub(2)).max(listed.min(1)));
}

/// Rows of a request below the timeline: as many as it needs, but on a tall screen the timeline keeps some.
fn stacked_rows(model: &Model, session: &Session, shown: &Answering, rest: Rect) -> u16 {
    let spare = match rest.height {
        0..7 => 0,
        7..16 => 2,
        rows => rows / 3,
    };
    let most = usize::from(rest.height - spare);
    let columns = usize::from(rest.width);
    let details = shown.details.doc.rows(columns, most);
    let foot = view::foot(model, session, shown, columns, foot_rows_max(session, details, most)).rows.len();
    let blank = usize::from(details > 0 && rest.height >= ROWS_FOR_TITLES);
    (1 + details + blank + foot).min(most) as u16
}

/// Most rows for the answers of a request. The answers of an approval get at most half if its details need the rest, so that
/// the user sees what they decide on. Questions need the rows for their options.
fn foot_rows_max(session: &Session, details: usize, rows: usize) -> usize {
    let left = rows.saturating_sub(1);
    let most = match session.mode() {
        Mode::Input => left.saturating_sub(details.min(rows / 3)),
        Mode::Approval | Mode::Chat => left.saturating_sub(details).max(rows / 2),
    };
    most.clamp(1, left.max(1))
}

/// The areas of a request: title, details, answers.
pub(super) fn request(model: &Model, session: &Session, shown: &Answering, area: Rect) -> (Rect, Rect, Rect) {
    let mut rest = area;
    let (columns, rows) = (usize::from(area.width), usize::from(area.height));
    let details = shown.details.doc.rows(columns, rows);
    let foot = view::foot(model, session, shown, columns, foot_rows_max(session, details, rows)).rows.len() as u16;
    let title = top(&mut rest, u16::from(area.height > foot + u16::from(details > 0)));
    let mut below = bottom(&mut rest, foot);
    // Answers stand directly below the details.
    let spare = rest.height.saturating_sub(details as u16);
    below.y -= spare.saturating_sub(1);
    rest.height -= spare;
    (title, rest, below)
}

/// The areas of a document in full.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ReadingAreas {
    pub(super) title: Rect,
    pub(super) files: Rect,
    pub(super) between: Rect,
    pub(super) text: Rect,
    pub(super) note: Rect,
    pub(super) footer: Rect,
}

pub(super) fn reading(model: &Model, reading: &Reading) -> ReadingAreas {
    let mut rest = whole(model);
    let mut areas = ReadingAreas { footer: bottom(&mut rest, 1), ..ReadingAreas::default() };
    areas.note = bottom(&mut rest, note_rows(model));
    let rows = if rest.height >= 10 { 2 } else { 1 };
    areas.title = top(&mut rest, rows);
    areas.text = rest;
    let Some(diff) = reading.diff() else { return areas };
    if rest.width >= COLUMNS_FOR_FILES {
        let longest = diff.files.iter().take(1_000).map(|file| width(&file.path)).max().unwrap_or(0) as u16;
        let columns = longest.saturating_add(16).clamp(24, rest.width * 2 / 5);
        areas.files = Rect { width: columns, ..rest };
        areas.between = Rect { x: rest.x + columns, width: 1, ..rest };
        areas.text = Rect { x: rest.x + columns + 1, width: rest.width - columns - 1, ..rest };
    } else if reading.files.is_some() {
        areas.files = rest;
        areas.text = Rect { height: 0, ..rest };
    }
    areas
}

fn room(area: Rect) -> Room {
    Room { columns: usize::from(area.width).max(1), rows: usize::from(area.height) }
}

/// Limits scroll positions to their documents.
pub(super) fn settle(model: &mut Model) {
    if let Some(scroll) = model.help {
        let rows = usize::from(model.size.height.saturating_sub(1));
        model.help = Some(scroll.min(view::help_rows(model).saturating_sub(rows)));
    }
    let Some(session) = &model.session else { return };
    let found = match (&session.focus, &session.answering) {
        (Focus::Reading(shown), _) => {
            let areas = reading(model, shown);
            // While the list of files covers the text, page keys move in the list.
            room(if areas.text.height == 0 { areas.files } else { areas.text })
        }
        (_, Some(shown)) => {
            let area = areas(model, session).request;
            room(request(model, session, shown, area).1)
        }
        (_, None) => Room::default(),
    };
    model.room = found;
    let Some(session) = &mut model.session else { return };
    if let Focus::Reading(shown) = &mut session.focus {
        shown.at = match &shown.text {
            Text::Lines(doc) if shown.follows => doc.end(found),
            Text::Lines(doc) => doc.clamped(shown.at, found).min(doc.end(found)),
            Text::Diff(diff) => diff.doc.clamped(shown.at, found),
        };
    } else if let Some(shown) = &mut session.answering {
        let doc = &shown.details.doc;
        shown.at = doc.clamped(shown.at, found).min(doc.end(found));
        if found.rows == 0 {
            shown.at = At::default();
        }
    }
}
