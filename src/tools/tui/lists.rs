//! The lists on the screen: of sessions with the threads of those that have several, and of the requests that wait.

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

/// A request by its session and id.
pub(crate) type RequestKey = (String, String);

/// The open inbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Inbox {
    /// The selected request; the first one if it is not listed any more.
    pub chosen: Option<RequestKey>,
}
