//! What the mouse can point at.

use ratatui::layout::Rect;

use super::lists::Destination;
use crate::sessions::entry::Key;

/// The receiver of clicks and the wheel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mouse {
    /// The UI receives them.
    Taken,
    /// The terminal receives them, for its own selection.
    Left,
}

/// A target of the mouse with its area.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spot {
    pub area: Rect,
    pub target: Target,
}

/// Targets of the mouse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    Session(Destination),
    Sessions,
    /// A request in the inbox, by its session and id.
    Waiting(String, String),
    Inbox,
    /// The badge of requests in this session.
    Requests,
    /// The badge of requests in other sessions.
    Elsewhere,
    Entry(Key),
    Timeline,
    Request,
    /// An option of a question, or a row of the answers, from 0.
    Option(usize),
    Composer,
    Document,
    /// A file of a diff, from 0.
    File(usize),
    /// A row of the list of threads, from 0.
    Thread(usize),
    Help,
}

/// Actions of the mouse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pointing {
    /// The left button was pressed.
    Click,
    /// The wheel was turned up.
    WheelUp,
    /// The wheel was turned down.
    WheelDown,
}
