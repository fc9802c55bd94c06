//! The list of sessions, with rows for the threads of those that have several.
//!
//! Pure.

use super::keys::Action;
use super::lists::{Destination, ListLine};
use super::model::{Command, Model};
use super::pressed::attach;

/// Handles a key in the list.
pub(super) fn pressed(model: &mut Model, does: Action) -> Vec<Command> {
    let page = usize::from(model.size.height.saturating_sub(4).max(1));
    let lines = model.list.lines();
    let last = lines.len().saturating_sub(1);
    let at = model.list.at(&lines);
    let to = match does {
        Action::Move(to) => to.in_list(at, last, page),
        Action::Enter => {
            let opened = lines.get(at).map(ListLine::destination);
            return opened.map_or_else(Vec::new, |opened| attach(model, opened));
        }
        Action::Global(_) | Action::Answer(_) | Action::Browse(_) | Action::Back | Action::NewLine => at,
    };
    model.list.chosen = lines.get(to.min(last)).map(ListLine::destination);
    Vec::new()
}

/// Selects a row, or opens it if it is selected already.
pub(super) fn clicked(model: &mut Model, opens: Destination) -> Vec<Command> {
    if model.list.chosen.as_ref() == Some(&opens) {
        return attach(model, opens);
    }
    model.list.chosen = Some(opens);
    Vec::new()
}
