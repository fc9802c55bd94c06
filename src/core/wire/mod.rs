//! The wire format: lines, their messages, ids and methods.
//!
//! Bytes flow in through [`Framer`], which finds the lines; [`Body::parse`] parses one line and borrows from it.
//!
//! A line changes only through a [`Splice`], which keeps every byte outside its edits.
//!
//! This room is pure and never serializes a parsed message.

use serde::{Deserialize, Serialize};

mod frame;
mod glance;
mod message;
mod splice;

pub use frame::{Frame, Framer, LINE_BYTES_MAX};
pub use glance::Glance;
pub use glance::PlainNotification;
pub use message::{Body, stands_verbatim};
pub use message::{Message, RpcId};
pub use splice::{Members, elements, text, tokens, written_members};
pub use splice::{Splice, Token, TokenKind, repeats_member};

/// One of the two parties that the relay connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Side {
    /// The process on our stdin and stdout.
    Client,
    /// The child process, normally `codex app-server`.
    Server,
}

impl Side {
    /// The name in the `from` and `to` of a record.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Side::Client => "client",
            Side::Server => "server",
        }
    }
}

/// A client's connection to the server. A relay on pipes has one, number 0. The hub's own connection is number 0, those of
/// its clients follow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Conn(pub u32);

impl Conn {
    /// The connection of a relay on pipes, or the hub's own.
    pub const OWN: Conn = Conn(0);
}

/// How a line ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LineEnd {
    /// With the byte `\n`.
    Newline,
    /// With the end of the stream; the last line of a side may lack its `\n`.
    EndOfStream,
}

impl LineEnd {
    /// Appends this end to a line.
    #[must_use]
    pub fn ends(self, mut line: Vec<u8>) -> Vec<u8> {
        match self {
            LineEnd::Newline => line.push(b'\n'),
            LineEnd::EndOfStream => {}
        }
        line
    }
}

/// A line as it was read, without its `\n`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'a> {
    /// The bytes before the `\n`, including a `\r`.
    pub bytes: &'a [u8],
    pub end: LineEnd,
}

impl Line<'_> {
    /// A placeholder for a line whose bytes are not inspected.
    #[must_use]
    pub fn unseen(end: LineEnd) -> Line<'static> {
        Line { bytes: &[], end }
    }
}
