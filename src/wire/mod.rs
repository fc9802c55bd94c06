//! What travels on the wire: lines, the messages in them, their ids and methods.
//!
//! Bytes flow in through [`Framer`], which finds the lines; [`Body::parse`] looks at one line and borrows from it.
//!
//! A line that is changed is changed through a [`Splice`], which keeps every byte that it is not told to change.
//!
//! This room is pure, and it never prints back what was parsed.

mod frame;
mod id;
mod message;
mod splice;
mod tokens;

pub use frame::{Frame, Framer, LINE_BYTES_MAX};
pub(crate) use id::RpcId;
pub use message::Body;
pub(crate) use message::{Message, stands_verbatim};
pub(crate) use splice::Splice;
pub use splice::{Members, elements, text};
pub use tokens::tokens;
pub(crate) use tokens::{Token, TokenKind};

/// One of the two parties that speak through us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// Whatever speaks to us on stdin and stdout.
    Client,
    /// The child process, normally `codex app-server`.
    Server,
}

impl Side {
    /// The name that records carry in `from` and `to`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Side::Client => "client",
            Side::Server => "server",
        }
    }
}

/// How a line ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineEnd {
    /// With the byte `\n`.
    Newline,
    /// With the end of the stream; the last line of a side may lack its `\n`.
    EndOfStream,
}

impl LineEnd {
    /// A line with this end.
    #[must_use]
    pub fn ends(self, mut line: Vec<u8>) -> Vec<u8> {
        match self {
            LineEnd::Newline => line.push(b'\n'),
            LineEnd::EndOfStream => {}
        }
        line
    }
}

/// One line as it was read, without its `\n`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'a> {
    /// The bytes before the `\n`; a `\r` before it is one of them.
    pub bytes: &'a [u8],
    /// Whether the `\n` was there.
    pub end: LineEnd,
}

impl Line<'_> {
    /// Stands for a line whose bytes are not looked at.
    #[must_use]
    pub fn unseen(end: LineEnd) -> Line<'static> {
        Line { bytes: &[], end }
    }
}
