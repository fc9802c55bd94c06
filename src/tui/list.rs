//! The list of sessions, with rows for the threads of those that have several.
//!
//! Pure.

use super::keys::Action;
use super::model::{Command, Model};
use super::pressed::attach;
use crate::sessions::rows::{SessionRow, ThreadLine, Waiting};

#[derive(Debug, Clone, Default)]
pub(crate) struct List {
    /// The rows in screen order.
    pub rows: Vec<SessionRow>,
    /// What the selected row opens.
    pub chosen: Option<Destination>,
    /// Whether the sessions were read at least once.
    pub is_known: bool,
}

/// What a row opens: a session, or one of its threads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Destination {
    pub session: String,
    pub thread: Option<String>,
}

impl Destination {
    pub(crate) fn session(session: impl Into<String>) -> Destination {
        Destination { session: session.into(), thread: None }
    }
}

/// A row of the list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListLine<'a> {
    pub row: &'a SessionRow,
    /// `None` for the row of the whole session.
    pub thread: Option<&'a ThreadLine>,
}

impl ListLine<'_> {
    pub(crate) fn destination(&self) -> Destination {
        Destination { session: self.row.id.clone(), thread: self.thread.map(|thread| thread.id.clone()) }
    }

    /// The requests that wait here.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Waiting> {
        let is_here =
            |one: &&Waiting| self.thread.is_none_or(|thread| one.thread_id.as_deref() == Some(thread.id.as_str()));
        self.row.waiting.iter().filter(is_here)
    }
}

impl List {
    /// All rows in screen order: those of the threads of a session follow it.
    pub(crate) fn lines(&self) -> Vec<ListLine<'_>> {
        fn of_threads(row: &SessionRow) -> impl Iterator<Item = ListLine<'_>> {
            row.threads.iter().map(move |thread| ListLine { row, thread: Some(thread) })
        }
        self.rows
            .iter()
            .flat_map(|row| std::iter::once(ListLine { row, thread: None }).chain(of_threads(row)))
            .collect()
    }

    /// The index of the selected row.
    pub(crate) fn at(&self, lines: &[ListLine<'_>]) -> usize {
        lines.iter().position(|line| Some(line.destination()) == self.chosen).unwrap_or(0)
    }
}

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
