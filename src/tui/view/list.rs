//! The list of sessions.

use ratatui::text::Line;

use super::super::model::{Model, SessionRow};
use super::super::text::{cut, lasted, plain, width};
use super::in_words;
use super::paint::{Brush, Role};

pub(super) fn lines<'a>(model: &Model, brush: Brush, rows: usize) -> Vec<Line<'a>> {
    let list = &model.list;
    let mut lines = Vec::new();
    let head = match (list.is_known, list.rows.len()) {
        (false, _) => "looking for sessions…".to_owned(),
        (true, 0) => "there is no session yet; a relay makes one, see `codex-shim --help`".to_owned(),
        (true, 1) => "1 session".to_owned(),
        (true, more) => format!("{more} sessions"),
    };
    lines.push(Line::from(brush.span(&cut(&head, brush.width), Role::Strong)));
    let shown = rows.saturating_sub(2);
    let chosen = list.rows.iter().position(|row| Some(&row.id) == list.chosen.as_ref()).unwrap_or(0);
    let from = chosen.saturating_sub(shown.saturating_sub(1));
    let id_columns = list.rows.iter().map(|row| width(&row.id)).max().unwrap_or(0).min(brush.width / 2).min(36);
    for (index, row) in list.rows.iter().enumerate().skip(from).take(shown) {
        lines.push(one(row, index == chosen, id_columns, model, brush));
    }
    while lines.len() + 1 < rows {
        lines.push(Line::default());
    }
    let foot = [
        brush.span(" sessions ", Role::Reversed),
        brush.span(&cut(" Enter attaches · q ends · ? help", brush.width.saturating_sub(10)), Role::Plain),
    ];
    lines.push(Line::from(foot.to_vec()));
    lines
}

fn one<'a>(row: &SessionRow, is_chosen: bool, id_columns: usize, model: &Model, brush: Brush) -> Line<'a> {
    let (state, role) = match (row.live, row.pending, row.state) {
        (false, ..) => (format!("stopped {} ago", lasted(model.now_us.saturating_sub(row.used_us))), Role::Faint),
        (true, _, None) => ("does not answer".to_owned(), Role::Bad),
        (true, 0, Some(state)) => (in_words(state).to_owned(), super::role(state)),
        (true, 1, Some(_)) => ("1 request waits".to_owned(), Role::Warning),
        (true, more, Some(_)) => (format!("{more} requests wait"), Role::Warning),
    };
    let id = cut(&plain(&row.id), id_columns);
    let pad = " ".repeat(id_columns.saturating_sub(width(&id)));
    let state = format!("{state:<22}");
    let cwd = cut(&plain(&row.cwd), brush.width.saturating_sub(id_columns + width(&state) + 4));
    Line::from(vec![
        brush.span(if is_chosen { "▌ " } else { "  " }, Role::Info),
        brush.span(&format!("{id}{pad} "), if is_chosen { Role::Strong } else { Role::Plain }),
        brush.span(&state, role),
        brush.span(&format!(" {cwd}"), Role::Faint),
    ])
}
