//! The view.
//!
//! Pure: draws a model into cells and returns the targets of the mouse. The most important parts get rows first: the question
//! and its keys are visible at any size, and the timeline gets the rest.

mod edges;
mod full;
mod paint;
mod request;
mod timeline;

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

use super::layout::{self, Areas, LISTED_MAX};
use super::model::{Focus, Model, Note, Session, Tone};
use super::pointing::{Spot, Target};
use crate::sessions::diff::File;
use crate::sessions::entry::Folding;
use crate::text::doc::{Role, Row};
use crate::text::{cut, cut_words, lasted, plain, width, wrap};
pub(super) use paint::typed_rows;
use paint::{Canvas, one, title};
pub(super) use request::foot;

/// The result of a drawing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Drawn {
    pub cursor: Option<Position>,
    /// Targets of the mouse; of overlapping ones the last counts.
    pub spots: Vec<Spot>,
}

/// Draws the model, which must be laid out for the size of the screen.
pub(crate) fn view(model: &Model, area: Rect, buffer: &mut Buffer) -> Drawn {
    let mut canvas = Canvas { buffer, colours: model.colours, spots: Vec::new() };
    if area.width == 0 || area.height == 0 {
        return Drawn::default();
    }
    if let Some(scroll) = model.help {
        draw_help(model, scroll, area, &mut canvas);
        return Drawn { cursor: None, spots: canvas.spots };
    }
    if let Some(inbox) = &model.inbox {
        full::inbox(model, inbox, area, &mut canvas);
        return Drawn { cursor: None, spots: canvas.spots };
    }
    let Some(session) = &model.session else {
        full::sessions(model, area, &mut canvas);
        return Drawn { cursor: None, spots: canvas.spots };
    };
    let cursor = match &session.focus {
        Focus::Reading(shown) => {
            full::draw(model, session, shown, &mut canvas);
            reason(model, session, &mut canvas)
        }
        Focus::Threads(chosen) => {
            let rest = Rect { height: area.height - 1, ..area };
            full::threads(session, *chosen, rest, &mut canvas);
            let below = Rect { y: area.bottom() - 1, height: 1, ..area };
            canvas.row(below, 0, &edges::row(model, session, usize::from(area.width)));
            None
        }
        Focus::Answer | Focus::History | Focus::Search(_) => draw_session(model, session, &mut canvas),
    };
    Drawn { cursor, spots: canvas.spots }
}

fn draw_help(model: &Model, scroll: usize, area: Rect, canvas: &mut Canvas<'_>) {
    let shown: Vec<Row> = edges::help(model).into_iter().skip(scroll).take(usize::from(area.height) - 1).collect();
    canvas.rows(area, &shown);
    let below = Rect { y: area.bottom() - 1, height: 1, ..area };
    let texts = [" arrows scroll, any other key closes this ", " arrows scroll, other keys close this ", " Esc "];
    let text = texts.into_iter().find(|text| text.len() <= usize::from(area.width)).unwrap_or_default();
    canvas.row(below, 0, &one(text, Role::Reversed));
    canvas.spot(area, Target::Help);
}

pub(super) fn help_rows(model: &Model) -> usize {
    edges::help(model).len()
}

fn draw_session(model: &Model, session: &Session, canvas: &mut Canvas<'_>) -> Option<Position> {
    let areas = layout::areas(model, session);
    edges::draw(model, session, areas.header, canvas);
    canvas.between(areas.between);
    let (timeline, has_zone) = titled(areas.timeline, areas.titles, session, model, canvas);
    timeline::draw(model, session, timeline, has_zone, canvas);
    queue(model, session, areas.queue, canvas);
    if let Some(note) = model.note.as_ref().filter(|_| areas.note.height > 0) {
        noted(note, areas.note, canvas);
    }
    canvas.row(areas.footer, 0, &edges::row(model, session, usize::from(areas.footer.width)));
    let mut cursor = None;
    if areas.composer.height > 0 {
        cursor = compose(session, &areas, canvas);
    }
    if areas.request.height > 0
        && let Some(shown) = &session.answering
    {
        let at = request::draw(model, session, shown, areas.request, canvas);
        if session.focus == Focus::Answer {
            cursor = at.map(|(x, y)| Position::new(x, y));
        }
    }
    cursor
}

/// Columns around a title.
const TITLE_ENDS: usize = 6;

/// Draws the title of the timeline if there is room; returns the rest of the area, and whether the title names the time zone. A
/// filter is always named, because it hides entries.
fn titled(area: Rect, titles: bool, session: &Session, model: &Model, canvas: &mut Canvas<'_>) -> (Rect, bool) {
    let kind = session.filter.map(|kind| format!(" · only {}", kind.name())).unwrap_or_default();
    let thread = session.thread.as_ref().map(|thread| format!(" · {}", plain(&session.only_thread(thread))));
    let unfolded = if session.folding == Folding::Unfolded { " · all threads" } else { "" };
    let left = format!("timeline{kind}{}{unfolded}", thread.as_deref().unwrap_or_default());
    let left = cut(&left, usize::from(area.width).saturating_sub(TITLE_ENDS));
    let is_filtered = !kind.is_empty() || thread.is_some();
    if area.height < if is_filtered { 2 } else { 4 } || !titles && !is_filtered {
        return (area, false);
    }
    let has_keys = matches!(session.focus, Focus::History | Focus::Search(_));
    let columns = usize::from(area.width);
    let zone = one(model.zone.name(model.now_us), Role::Faint);
    let has_zone = titles && width(&left) + paint::row_width(&zone) + 6 <= columns;
    let right = if has_zone { zone } else { Row::new() };
    canvas.row(area, 0, &title(&left, &right, columns, has_keys));
    (Rect { y: area.y + 1, height: area.height - 1, ..area }, has_zone)
}

/// The text that is being typed.
fn compose(session: &Session, areas: &Areas, canvas: &mut Canvas<'_>) -> Option<Position> {
    let mut area = areas.composer;
    let (mark, field) = match &session.focus {
        Focus::Search(field) => ("/", field),
        Focus::Answer | Focus::History | Focus::Reading(_) | Focus::Threads(_) => {
            (if session.is_saying { "… " } else { "› " }, &session.composer)
        }
    };
    if areas.titles && area.height > 1 && !matches!(session.focus, Focus::Search(_)) {
        canvas.row(area, 0, &title("message", &Row::new(), usize::from(area.width), true));
        area = Rect { y: area.y + 1, height: area.height - 1, ..area };
    }
    canvas.spot(area, Target::Composer);
    let typed = paint::typed(mark, field, usize::from(area.width), usize::from(area.height));
    canvas.rows(area, &typed.rows);
    Some(within(area, typed.cursor))
}

fn within(area: Rect, (column, row): (usize, usize)) -> Position {
    let (column, row) = (column as u16, row as u16);
    Position::new(area.x + column.min(area.width.saturating_sub(1)), area.y + row.min(area.height.saturating_sub(1)))
}

/// Pending requests, with the key that opens them.
fn queue(model: &Model, session: &Session, area: Rect, canvas: &mut Canvas<'_>) {
    let rows = usize::from(area.height);
    let listed = if session.asks.len() > rows { rows.saturating_sub(1).max(1) } else { rows }.min(LISTED_MAX);
    for (number, ask) in session.asks.iter().take(listed).enumerate() {
        let age = lasted(model.now_us.saturating_sub(ask.asked_us));
        let summary = plain(&ask.summary());
        let whole = format!(" {summary} · {age}");
        let text = if width(&whole) + 4 <= usize::from(area.width) { whole } else { format!(" {summary}") };
        canvas.row(area, number, &vec![("? ^R".to_owned(), Role::Badge), (text, Role::Warning)]);
    }
    let rest = session.asks.len().saturating_sub(listed);
    if rest > 0 && rows > listed {
        canvas.row(area, listed, &one(format!("     and {rest} more"), Role::Warning));
    }
    canvas.spot(area, Target::Requests);
}

/// Draws the confirmation or the reason to decline over the last rows of a review.
fn reason(model: &Model, session: &Session, canvas: &mut Canvas<'_>) -> Option<Position> {
    let shown = session.answering.as_ref()?;
    let Focus::Reading(reading) = &session.focus else { return None };
    let is_request = matches!(reading.subject, super::model::DocumentSubject::Request(_));
    let is_asked = shown.reason.is_some() || shown.sure.is_some() || shown.is_sent || shown.ended.is_some();
    if !is_request || !is_asked {
        return None;
    }
    let columns = model.size.width;
    let all = foot(model, session, shown, usize::from(columns), 3);
    let rows = (all.rows.len() as u16).min(model.size.height.saturating_sub(1));
    let area = Rect::new(0, model.size.height.saturating_sub(1 + rows), columns, rows);
    for (number, row) in all.rows.iter().enumerate() {
        canvas.row(area, number, &paint::filled(row, usize::from(columns)));
    }
    all.cursor().map(|at| within(area, at))
}

/// Draws a note, between words if it is cut.
fn noted(note: &Note, area: Rect, canvas: &mut Canvas<'_>) {
    let role = if note.tone == Tone::Bad { Role::Bad } else { Role::Info };
    let (columns, rows) = (usize::from(area.width), usize::from(area.height));
    let mut lines = wrap(&note.text, columns);
    if lines.len() > rows && rows > 0 {
        let rest = lines.split_off(rows - 1).join(" ");
        lines.push(cut_words(&rest, columns));
    }
    let lines: Vec<Row> = lines.into_iter().map(|line| one(line, role)).collect();
    canvas.rows(area, &lines);
}

/// A file of a diff: its sign, its path, its counts.
fn file(file: &File) -> Row {
    let sign = match file.sign {
        'A' => Role::Good,
        'D' => Role::Bad,
        _ => Role::Info,
    };
    vec![
        (format!("{} ", file.sign), sign),
        (cut(&file.path, 200), Role::Plain),
        (format!(" +{}", file.added), Role::Good),
        (format!(" -{}", file.removed), Role::Bad),
    ]
}
