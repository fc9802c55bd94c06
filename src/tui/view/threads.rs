//! The list of threads.

use ratatui::text::Line;

use super::super::model::Session;
use super::super::text::{cut, plain, width};
use super::super::threads::{ThreadRow, rows as rows_of, tail};
use super::in_words;
use super::paint::{Brush, Role};

pub(super) fn lines<'a>(session: &Session, chosen: usize, brush: Brush, rows: usize) -> Vec<Line<'a>> {
    let threads = rows_of(session);
    let head = match threads.len() {
        0 => "no thread is known yet".to_owned(),
        1 => "1 thread".to_owned(),
        more => format!("{more} threads"),
    };
    let mut lines = vec![Line::from(brush.span(&cut(&head, brush.width), Role::Strong))];
    let shown = rows.saturating_sub(1).max(1);
    let chosen = chosen.min(threads.len());
    let from = (chosen + 1).saturating_sub(shown);
    for number in (from..=threads.len()).take(shown) {
        let thread = number.checked_sub(1).and_then(|at| threads.get(at));
        lines.push(one(thread, number == chosen, brush));
    }
    lines
}

fn one<'a>(thread: Option<&ThreadRow>, is_chosen: bool, brush: Brush) -> Line<'a> {
    let bar = brush.span(if is_chosen { "▌ " } else { "  " }, Role::Info);
    let role = if is_chosen { Role::Strong } else { Role::Plain };
    let Some(thread) = thread else {
        let all = "all of them; what is said goes to that of the last turn";
        return Line::from(vec![bar, brush.span(&cut(all, brush.width.saturating_sub(2)), role)]);
    };
    let (state, of_state) = match (thread.pending, thread.state) {
        (0, None) => ("", Role::Faint),
        (0, Some(state)) => (in_words(state), super::role(state)),
        (_, _) => ("a request waits", Role::Warning),
    };
    let id = plain(tail(&thread.id));
    let state = format!("  {state:<20}  ");
    let about = cut(&plain(&thread.about), brush.width.saturating_sub(2 + width(&id) + width(&state)));
    Line::from(vec![bar, brush.span(&id, role), brush.span(&state, of_state), brush.span(&about, Role::Faint)])
}
