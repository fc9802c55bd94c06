//! The list of sessions, with rows for the threads of those that have several.
//!
//! Pure.

use super::ask::Ask;
use super::keys::Action;
use super::model::{Command, Model};
use super::pressed::attach;
use crate::control::RequestOrigin;
use crate::history::Activity;

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

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionRow {
    pub id: String,
    pub live: bool,
    /// Why it cannot answer, if that is known: its host is offline, or its hub is down.
    pub away: Option<String>,
    /// Its activity; `None` if it does not answer.
    pub state: Option<Activity>,
    pub pending: u64,
    /// The requests that wait for a human, oldest first.
    pub waiting: Vec<Waiting>,
    pub cwd: String,
    pub client: Option<String>,
    /// When it was last used, in microseconds since the Unix epoch.
    pub used_us: u64,
    /// The threads that have a row of their own.
    pub threads: Vec<ThreadLine>,
}

/// A thread in the list of sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ThreadLine {
    pub id: String,
    /// `proj (codex-tui)`, with the terminal where two would be alike.
    pub name: String,
    /// The same without the client.
    pub short_name: String,
    pub state: Activity,
    /// Start of the state, in microseconds since the Unix epoch.
    pub since_us: Option<u64>,
    /// Its title, or what its user said first.
    pub about: String,
}

/// A request that waits for a human.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub id: String,
    pub summary: String,
    /// When it arrived, in microseconds since the Unix epoch.
    pub asked_us: u64,
    pub thread_id: Option<String>,
    /// The thread that asks, if it is not that of the session.
    pub origin: Option<RequestOrigin>,
    /// What makes it riskier than it looks.
    pub warnings: Vec<String>,
}

impl Waiting {
    /// A request of a session in this folder.
    pub(super) fn of(ask: &Ask, cwd: &str) -> Waiting {
        Waiting {
            id: ask.id.clone(),
            summary: ask.summary(),
            asked_us: ask.asked_us,
            thread_id: ask.thread_id().map(str::to_owned),
            origin: ask.origin(cwd),
            warnings: ask.view.warnings.clone(),
        }
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
