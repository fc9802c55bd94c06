//! The list of threads.

use ratatui::layout::Rect;

use super::super::doc::{Role, Row};
use super::super::model::Session;
use super::super::names;
use super::super::pointing::Target;
use super::super::text::{fitted, plain, width};
use super::super::threads::{ThreadRow, rows as rows_of};
use super::header::{in_words, role};
use super::paint::{Canvas, one};

/// Widest name of a thread.
const ID_COLUMNS_MAX: usize = 24;

pub(super) fn draw(session: &Session, chosen: usize, area: Rect, canvas: &mut Canvas<'_>) {
    let threads = rows_of(session);
    let head = match threads.len() {
        0 => "no threads yet".to_owned(),
        1 => "1 thread".to_owned(),
        more => format!("{more} threads"),
    };
    canvas.row(area, 0, &one(head, Role::Heading));
    let rest = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
    let rows = usize::from(rest.height).max(1);
    let chosen = chosen.min(threads.len());
    let from = (chosen + 1).saturating_sub(rows);
    let ids: Vec<&str> = threads.iter().map(|row| row.id.as_str()).collect();
    let widest = |columns: &mut dyn Iterator<Item = usize>| columns.max().unwrap_or(0);
    let id_columns = widest(&mut ids.iter().map(|id| width(&short(id, &ids)))).min(ID_COLUMNS_MAX);
    let state_columns = widest(&mut threads.iter().map(|thread| width(state_of(thread).0)));
    for number in (from..=threads.len()).take(rows) {
        let row = match number.checked_sub(1).and_then(|at| threads.get(at)) {
            Some(thread) => one_of(thread, &ids, (id_columns, state_columns)),
            None => {
                let whole = " all threads; messages go to the one of the last turn";
                one(if whole.len() <= usize::from(area.width) { whole } else { " all threads" }, Role::Plain)
            }
        };
        match number == chosen {
            true => canvas.selected(rest, number - from, &row),
            false => canvas.row(rest, number - from, &row),
        }
        let area = Rect { y: rest.y + (number - from) as u16, height: 1, ..rest };
        canvas.spot(area.intersection(rest), Target::Thread(number));
    }
}

fn short(id: &str, ids: &[&str]) -> String {
    plain(names::short_id(id, ids.iter().copied()))
}

fn state_of(thread: &ThreadRow) -> (&'static str, Role) {
    match (thread.pending, thread.state) {
        (0, None) => ("", Role::Faint),
        (0, Some(state)) => (in_words(state), role(state)),
        (_, _) => ("? a request waits", Role::Warning),
    }
}

fn one_of(thread: &ThreadRow, ids: &[&str], (id_columns, state_columns): (usize, usize)) -> Row {
    let (state, of_state) = state_of(thread);
    vec![
        (format!(" {}  ", fitted(&short(&thread.id, ids), id_columns)), Role::Info),
        (format!("{}  ", fitted(state, state_columns)), of_state),
        (plain(&thread.about), Role::Faint),
    ]
}
