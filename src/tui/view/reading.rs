//! A document on the whole screen: a diff under review with its files, or an entry in full.

use ratatui::layout::Rect;

use super::super::diff::Diff;
use super::super::doc::{Role, Room, Row};
use super::super::layout::{self, ReadingAreas};
use super::super::model::{Model, Reading, Session, Subject};
use super::super::mouse::Target;
use super::super::names;
use super::super::text::{bytes, cut_front, plain, width};
use super::paint::{Canvas, both, one, row_width};
use super::timeline::so_far;

pub(super) fn draw(model: &Model, session: &Session, shown: &Reading, canvas: &mut Canvas<'_>) {
    let areas = layout::reading(model, shown);
    let room = Room { columns: usize::from(areas.text.width).max(1), rows: usize::from(areas.text.height) };
    let percent = format!("{}%", shown.doc().percent(shown.at, room));
    let (first, second) = match shown.diff() {
        Some(diff) => diff_title(session, shown, diff, &percent),
        None => entry_title(model, session, shown, &percent),
    };
    let columns = usize::from(areas.title.width);
    match areas.title.height {
        0 | 1 => canvas.row(areas.title, 0, &both(&second.0, &second.1, columns)),
        _ => {
            canvas.row(areas.title, 0, &both(&first.0, &first.1, columns));
            canvas.row(areas.title, 1, &both(&second.0, &second.1, columns));
        }
    }
    canvas.rows(areas.text, &shown.doc().window(shown.at, room));
    canvas.spot(areas.text, Target::Document);
    if let Some(diff) = shown.diff() {
        files(shown, diff, &areas, canvas);
    }
    if let Some(note) = model.note.as_ref().filter(|_| areas.note.height > 0) {
        super::noted(note, areas.note, canvas);
    }
    canvas.row(areas.footer, 0, &super::footer::row(model, session, columns));
}

/// A row and the part at its right edge.
type Title = (Row, Row);

fn diff_title(session: &Session, shown: &Reading, diff: &Diff, percent: &str) -> (Title, Title) {
    let (added, removed) = diff.counts();
    let what = match &shown.subject {
        Subject::Request(_) => "? review of a request",
        Subject::Entry(_) => "± diff",
    };
    let name = plain(&names::session(&session.cwd, session.client()));
    let first = vec![(what.to_owned(), Role::Heading), (format!("  {name}"), Role::Faint)];
    let count = if diff.files.len() == 1 { "1 file".to_owned() } else { format!("{} files", diff.files.len()) };
    let mut all = one(format!("{count} "), Role::Plain);
    all.extend([(format!("+{added}"), Role::Good), (format!(" -{removed}"), Role::Bad)]);
    let at = diff.file_at(shown.at.line);
    let hunk = diff.hunk_at(shown.at.line);
    let file = diff.files.get(at).map(|file| file.path.clone()).unwrap_or_default();
    let hunks = if diff.hunks.is_empty() { String::new() } else { format!("hunk {hunk}/{} · ", diff.hunks.len()) };
    let right = format!("file {}/{} · {hunks}{percent}", at + 1, diff.files.len());
    let left = one(file, Role::Strong);
    ((first, all), (left, one(right, Role::Info)))
}

fn entry_title(model: &Model, session: &Session, shown: &Reading, percent: &str) -> (Title, Title) {
    let Subject::Entry(entry) = &shown.subject else { return Default::default() };
    let mut first = vec![(entry.kind.name().to_owned(), Role::Heading)];
    let right_columns = row_width(&so_far(entry, session, model.now_us));
    let times = [model.zone.whole(entry.at_us), model.zone.time(entry.at_us)];
    let room = usize::from(model.size.width).saturating_sub(row_width(&first) + 3 + right_columns);
    let time = times.into_iter().find(|time| time.len() <= room).unwrap_or_default();
    first.push((format!("  {time}"), Role::Faint));
    let mut second = match &entry.thread_id {
        Some(thread) => one(format!("thread {}", plain(thread)), Role::Faint),
        None => Row::new(),
    };
    let mut right = so_far(entry, session, model.now_us);
    if entry.cut_bytes > 0 {
        right.push((format!("  {} not shown", bytes(entry.cut_bytes)), Role::Warning));
    }
    if second.is_empty() {
        second = first.clone();
    }
    ((first, right), (second, one(percent, Role::Info)))
}

/// The files of a diff, with the visible one selected.
fn files(shown: &Reading, diff: &Diff, areas: &ReadingAreas, canvas: &mut Canvas<'_>) {
    if areas.files.area() == 0 {
        return;
    }
    let chosen = shown.files.unwrap_or_else(|| diff.file_at(shown.at.line));
    let rows = usize::from(areas.files.height).max(1);
    let from = chosen.saturating_sub(rows / 2).min(diff.files.len().saturating_sub(rows));
    let columns = usize::from(areas.files.width);
    for (number, one) in diff.files.iter().enumerate().skip(from).take(rows) {
        let counts = format!(" +{} -{}", one.added, one.removed);
        let path = cut_front(&one.path, columns.saturating_sub(2 + width(&counts)));
        let short = super::super::diff::File { path, ..one.clone() };
        let row = super::file(&short);
        match number == chosen {
            true => canvas.selected(areas.files, number - from, &row),
            false => canvas.row(areas.files, number - from, &row),
        }
        let area = Rect { y: areas.files.y + (number - from) as u16, height: 1, ..areas.files };
        canvas.spot(area, Target::File(number));
    }
    canvas.between(areas.between);
}
