//! The mouse: its targets on the screen.
//!
//! Pure. A click moves, opens and selects; it never answers a request.

use ratatui::layout::Rect;

use super::entry::Key;

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
    /// A session of the list.
    Session(String),
    /// The list of sessions.
    Sessions,
    /// The badge of requests in this session.
    Requests,
    /// The badge of requests in other sessions.
    Elsewhere,
    /// An entry of the timeline.
    Entry(Key),
    /// The timeline.
    Timeline,
    /// The request.
    Request,
    /// An option of a question, or a row of the answers, from 0.
    Option(usize),
    /// The composer.
    Composer,
    /// A document in full.
    Document,
    /// A file of a diff, from 0.
    File(usize),
    /// A row of the list of threads, from 0.
    Thread(usize),
    /// The help.
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
