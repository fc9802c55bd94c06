//! Every event that the terminal UI takes, and every command that it gives.
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
use super::pointing::{Mouse, Pointing};
use super::timeline::{Heard, Timeline};

/// Everything that can happen.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// A key was pressed.
    Key(KeyEvent),
    /// The mouse did something.
    Pointed(Position, Pointing),
    /// A text was pasted.
    Pasted(String),
    /// The screen has another size.
    Resized(Size),
    /// Time has passed.
    Ticked,
    /// The program has to end.
    Ended(Ending),
    /// The program has to stop for a while.
    Stopped,
    /// The program continues.
    Continued,
    /// The user's pager has ended; why it was of no use, if it was not.
    Paged(Result<(), String>),
    /// The sessions.
    Listed(Vec<SessionRow>),
    /// News of the attachment with this number; those of an earlier one are dropped.
    Of(u64, News),
}

/// News of a session.
#[derive(Debug, Clone)]
pub(crate) enum News {
    /// Its folder.
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
    /// The very end of a long journal, until the rest was read.
    Glanced(u64, Box<Timeline>),
    /// The end of the journal as it was read.
    Restored {
        /// The epoch it belongs to.
        epoch: u64,
        /// The timeline.
        timeline: Box<Timeline>,
    },
    /// Newer events.
    Heard {
        /// The epoch it belongs to.
        epoch: u64,
        /// The events.
        heard: Vec<Heard>,
    },
    /// The journal cannot be read.
    Unreadable(String),
    /// The first entries of all.
    Start(Page),
    /// A page before the window.
    Older(Page),
    /// A page after it.
    Newer(Page),
    /// A page around a match, if one was found.
    Found(Option<(Key, Page)>),
    /// An entry in full.
    Opened(Option<Box<Entry>>),
    /// The result of an answer.
    Responded {
        /// The request.
        request_id: String,
        /// The row and whose answer counts, or the error.
        result: Result<(Value, First), String>,
    },
    /// The result of a message.
    Said(Result<String, String>),
    /// The result of an interrupt.
    Interrupted(Result<(), String>),
}

/// Whose answer counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum First {
    /// Ours.
    We,
    /// Someone else's.
    Other,
}

/// Entries that were read again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Page {
    /// The entries, oldest first.
    pub entries: Vec<Entry>,
    /// Whether nothing comes beyond them.
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
    /// Rings the bell.
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
        /// Its id.
        id: String,
        /// The number of this attachment.
        attachment: u64,
    },
    /// Reads the pending requests now.
    Look,
    /// Reads the journal from its end on.
    Follow {
        /// The epoch that begins.
        epoch: u64,
    },
    /// Reads the first entries of all.
    ReadStart,
    /// Reads the entries before one.
    ReadOlder(Key),
    /// Reads the entries after one.
    ReadNewer(Key),
    /// Searches for an entry.
    Find {
        /// What matches.
        matcher: Matcher,
        /// The entry that the search begins at.
        from: Key,
        /// Its direction.
        way: Way,
    },
    /// Reads an entry in full.
    Open(Key),
    /// Answers a request.
    Respond {
        /// The request.
        request_id: String,
        /// The answer.
        body: Value,
    },
    /// Sends a message to the model.
    Say {
        /// The message.
        text: String,
        /// Its thread; without one, that of the last turn.
        thread_id: Option<String>,
    },
    /// Interrupts the turn of this thread, or the last one.
    Interrupt(Option<String>),
    /// Hands a text to the terminal's clipboard.
    Copy(String),
}

/// Why the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The user left.
    Left,
    /// A signal of this number, or the equivalent: a terminal that is gone is a hang-up.
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
