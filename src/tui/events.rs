//! The events and commands of the terminal UI.
//!
//! Pure: plain data.

use std::sync::Arc;

use crossterm::event::KeyEvent;
use ratatui::layout::{Position, Size};
use serde_json::Value;

use super::ask::Ask;
use super::diff::Diff;
use super::doc::Doc;
use super::entry::{Entry, Key, Matcher};
use super::model::{Link, SessionRow};
use super::mouse::{Mouse, Pointing};
use super::timeline::{SessionEvent, Timeline};

#[derive(Debug, Clone)]
pub(crate) enum Event {
    Key(KeyEvent),
    Pointed(Position, Pointing),
    Pasted(String),
    /// The screen has another size.
    Resized(Size),
    /// A timer tick.
    Ticked,
    /// The program must exit.
    Ended(Ending),
    /// The program must stop for a while.
    Stopped,
    /// The program continues.
    Continued,
    /// The user's pager has ended; an error says why it failed.
    Paged(Result<(), String>),
    Listed(Vec<SessionRow>),
    /// News of the attachment with this number. News of earlier attachments are dropped.
    Of(u64, News),
}

#[derive(Debug, Clone)]
pub(crate) enum News {
    Placed(String),
    /// How it can be reached now.
    Linked(Link),
    /// Its pending requests, and the rows of requests that ended.
    Pending {
        /// The requests, oldest first.
        asks: Vec<Arc<Ask>>,
        /// Rows of requests that are not pending any more.
        ended: Vec<Value>,
    },
    /// The last entries of a long journal, shown until the rest is read.
    Glanced(u64, Box<Timeline>),
    /// The window at the end of the journal.
    Restored {
        epoch: u64,
        timeline: Box<Timeline>,
    },
    Events {
        epoch: u64,
        events: Vec<SessionEvent>,
    },
    /// The journal cannot be read.
    Unreadable(String),
    /// The first entries of the session.
    Start(Page),
    /// A page before the window.
    Older(Page),
    /// A page after the window.
    Newer(Page),
    /// A page around a match, if one was found.
    Found(Option<(Key, Page)>),
    Opened(Option<Box<Entry>>),
    /// The result of an answer.
    Responded {
        request_id: String,
        /// The row and whose answer won, or the error.
        result: Result<(Value, First), String>,
    },
    Said(Result<String, String>),
    Interrupted(Result<(), String>),
}

/// Whose answer won.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum First {
    We,
    Other,
}

/// Entries that were read again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Page {
    /// The entries, oldest first.
    pub entries: Vec<Entry>,
    /// Whether there are no further entries in that direction.
    pub is_last: bool,
}

/// Commands for the event loop.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Command {
    /// Ends the program.
    Quit(Ending),
    /// Hands the terminal back, stops, and takes it again.
    Suspend,
    /// Takes the terminal again.
    Retake,
    Ring,
    /// Takes the mouse or leaves it to the terminal.
    Mouse(Mouse),
    /// Shows a document in the user's pager.
    Page(Arc<Doc>),
    /// The same for a diff.
    PageDiff(Arc<Diff>),
    /// Detaches from the session.
    Detach,
    /// Attaches to a session and reads its journal.
    Attach {
        id: String,
        /// The number of this attachment.
        attachment: u64,
    },
    /// Polls the pending requests now.
    Look,
    /// Follows the journal from its end.
    Follow {
        /// The epoch that begins.
        epoch: u64,
    },
    /// Reads the first entries of the session.
    ReadStart,
    /// Reads the entries before one.
    ReadOlder(Key),
    /// Reads the entries after one.
    ReadNewer(Key),
    /// Searches for an entry.
    Find {
        matcher: Matcher,
        /// Where the search begins.
        from: Key,
        way: Way,
    },
    /// Reads an entry in full.
    Open(Key),
    /// Answers a request.
    Respond {
        request_id: String,
        body: Value,
    },
    /// Sends a message to the model.
    Say {
        text: String,
        /// The thread; `None` for that of the last turn.
        thread_id: Option<String>,
    },
    /// Interrupts the turn of this thread, or of the last one.
    Interrupt(Option<String>),
    /// Copies text to the clipboard of the terminal.
    Copy(String),
}

/// Why the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Left,
    /// This signal, or its equivalent: a lost terminal counts as SIGHUP.
    Signal(i32),
}

/// A direction in the timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Towards the past.
    Back,
    /// Towards the present.
    Forward,
}
