//! An open connection.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;

use serde::{Deserialize, Serialize, Serializer};
use tungstenite::Utf8Bytes;

use super::Role;
use super::frame_reader::{CONTROL_BYTES_MAX, Decoded, FrameReader, Violation};
use super::frame_writer::FrameWriter;
use crate::os;
use crate::os::descriptors::{inherited, share};

/// Limit on the messages that one call of [`End::read`] returns.
const READ_MESSAGES_MAX: usize = 256;

/// Limit on the frames that one call of [`End::read`] decodes. Fragments and pings may be empty.
const READ_FRAMES_MAX: usize = 4_096;

/// One call of [`End::read`] reads from the socket until it has this many bytes.
const READ_BYTES_MAX: usize = 1 << 20;

/// The result of a read, besides the messages.
#[derive(Debug)]
pub enum Reading {
    /// A limit of this call was reached. Call again before polling: what is buffered here does not show in a poll.
    More,
    /// Nothing more is available now.
    Drained,
    /// The peer ended the connection or has to be cut off. Nothing more will come.
    Ended(Ended),
}

/// Why nothing more will come.
#[derive(Debug)]
pub enum Ended {
    /// The peer sent a close frame. It expects one in return; see [`End::close`].
    Closed(Close),
    /// The stream ended between two messages, without a close frame.
    Eof,
    /// The stream ended within a message, which is lost.
    Truncated,
    Violation(Violation),
    Broken(io::Error),
}

/// The result of a flush.
#[derive(Debug)]
pub enum Flushed {
    All,
    /// The socket takes no more now, or 1 MiB was written: flush again when a poll says that it is writable.
    Full,
    /// The peer is gone.
    Broken(io::Error),
}

/// The payload of a close frame, byte for byte.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Close(Vec<u8>);

impl Close {
    /// A close frame with a status code of RFC 6455, section 7.4, and a short reason.
    pub fn new(code: u16, reason: &str) -> Close {
        let mut payload = code.to_be_bytes().to_vec();
        payload.extend_from_slice(&reason.as_bytes()[..reason.floor_char_boundary(CONTROL_BYTES_MAX - 2)]);
        Close(payload)
    }

    pub(super) fn received(payload: Vec<u8>) -> Close {
        Close(payload)
    }

    pub fn code(&self) -> Option<u16> {
        self.0.first_chunk().map(|code| u16::from_be_bytes(*code))
    }

    pub fn reason(&self) -> String {
        String::from_utf8_lossy(self.0.get(2..).unwrap_or_default()).into_owned()
    }
}

impl fmt::Debug for Close {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Close({:?}, {:?})", self.code(), self.reason())
    }
}

/// An open connection, from the end of its handshake.
#[derive(Debug)]
pub struct End {
    socket: UnixStream,
    framing: Framing,
}

/// All that an end has read and not returned, and taken and not written.
#[derive(Debug, Serialize, Deserialize)]
struct Framing {
    reader: FrameReader,
    writer: FrameWriter,
    has_ended: bool,
    is_closing: bool,
    dropped: u64,
}

/// An end as another process has written it down, with the number of its descriptor.
#[derive(Debug, Serialize, Deserialize)]
pub struct HandedEnd(RawFd, Framing);

impl HandedEnd {
    /// Opens the end with the descriptor, which this process has inherited.
    ///
    /// # Errors
    ///
    /// There is no such descriptor.
    pub fn open(self) -> io::Result<End> {
        let HandedEnd(number, framing) = self;
        let socket = inherited(number).ok_or(io::ErrorKind::NotFound)?;
        Ok(End { socket: socket.into(), framing })
    }
}

impl Serialize for End {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.socket.as_raw_fd(), &self.framing).serialize(serializer)
    }
}

impl End {
    /// `unread` are bytes of the peer that came after its handshake, `unsent` is the rest of our handshake.
    pub(super) fn new(role: Role, socket: UnixStream, unread: Vec<u8>, unsent: Vec<u8>) -> End {
        let (reader, writer) = (FrameReader::new(role, unread), FrameWriter::new(role, unsent));
        End { socket, framing: Framing { reader, writer, has_ended: false, is_closing: false, dropped: 0 } }
    }

    /// Appends the text messages that have come: up to 256 of them, and little more than 1 MiB unless one is longer.
    ///
    /// The answer to a ping is queued: check [`End::wants_write`] afterwards. Messages that came before the end are
    /// appended together with [`Reading::Ended`]; later calls say [`Ended::Eof`].
    pub fn read(&mut self, messages: &mut Vec<Utf8Bytes>) -> Reading {
        if self.framing.has_ended {
            return Reading::Ended(Ended::Eof);
        }
        let reading = self.read_some(messages);
        match &reading {
            Reading::More => {}
            Reading::Drained => self.framing.reader.release_idle(),
            Reading::Ended(_) => {
                self.framing.has_ended = true;
                self.framing.reader = FrameReader::new(Role::Client, Vec::new());
            }
        }
        reading
    }

    fn read_some(&mut self, messages: &mut Vec<Utf8Bytes>) -> Reading {
        let mut frames_left = READ_FRAMES_MAX;
        let mut messages_left = READ_MESSAGES_MAX;
        let mut bytes_read = 0;
        let mut is_socket_empty = false;
        loop {
            if frames_left == 0 || messages_left == 0 {
                return Reading::More;
            }
            frames_left -= 1;
            match self.framing.reader.decode() {
                Ok(Decoded::Text(text)) => {
                    messages.push(text);
                    messages_left -= 1;
                }
                Ok(Decoded::Binary) => self.framing.dropped += 1,
                // Nothing may follow our close frame.
                Ok(Decoded::Ping(payload)) if !self.framing.is_closing => self.framing.writer.pong(payload),
                Ok(Decoded::Fragment | Decoded::Ping(_) | Decoded::Pong) => {}
                Ok(Decoded::Close(close)) => return Reading::Ended(Ended::Closed(close)),
                Err(violation) => return Reading::Ended(Ended::Violation(violation)),
                Ok(Decoded::NeedsBytes) if is_socket_empty => return Reading::Drained,
                Ok(Decoded::NeedsBytes) if bytes_read >= READ_BYTES_MAX => return Reading::More,
                Ok(Decoded::NeedsBytes) => match self.framing.reader.fill(&self.socket) {
                    Ok(fill) if fill.bytes == 0 && self.framing.reader.is_between_messages() => {
                        return Reading::Ended(Ended::Eof);
                    }
                    Ok(fill) if fill.bytes == 0 => return Reading::Ended(Ended::Truncated),
                    Ok(fill) => {
                        bytes_read += fill.bytes;
                        is_socket_empty = fill.is_short;
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Reading::Drained,
                    Err(error) => return Reading::Ended(Ended::Broken(error)),
                },
            }
        }
    }

    /// Queues a text message, byte for byte; [`End::flush`] writes it. A long payload is not copied, so that ends which
    /// send the same text share it. To the server, a message over 16 MiB goes in fragments. After [`End::close`] this
    /// does nothing.
    pub fn send(&mut self, text: Utf8Bytes) {
        if !self.framing.is_closing {
            self.framing.writer.text(text);
        }
    }

    /// Queues a close frame behind all that is queued; nothing can be sent after it. Flush until it is out or the caller
    /// has waited long enough, then drop this end. The close frame of the peer need not be awaited.
    pub fn close(&mut self, close: &Close) {
        if !self.framing.is_closing {
            self.framing.writer.close(&close.0);
            self.framing.is_closing = true;
        }
    }

    /// Writes what is queued, up to 1 MiB of it.
    pub fn flush(&mut self) -> Flushed {
        self.framing.writer.flush(&self.socket)
    }

    /// Whether there is something to flush.
    pub fn wants_write(&self) -> bool {
        self.framing.writer.wants_write()
    }

    /// How many bytes wait to be written, headers of frames included.
    pub fn unsent_bytes(&self) -> usize {
        self.framing.writer.unsent_bytes()
    }

    /// Has the program that this process becomes inherit the connection.
    pub fn share(&self) -> os::Result<()> {
        share(&self.socket)
    }

    /// An end after its handshake.
    #[cfg(any(test, feature = "testing"))]
    pub fn connected(socket: UnixStream) -> End {
        End::new(Role::Client, socket, Vec::new(), Vec::new())
    }

    /// How much memory the buffers of this end take, besides messages that were queued without a copy.
    #[cfg(test)]
    pub(super) fn buffered_bytes(&self) -> usize {
        self.framing.reader.buffered_bytes() + self.framing.writer.buffered_bytes()
    }

    /// How many messages were binary and therefore dropped, as codex drops them.
    pub fn dropped(&self) -> u64 {
        self.framing.dropped
    }
}

impl AsFd for End {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
