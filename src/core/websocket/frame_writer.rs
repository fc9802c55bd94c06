//! Encodes frames and writes them to a socket as it takes them.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;

use serde::{Deserialize, Serialize};
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};
use tungstenite::{Bytes, Utf8Bytes};

use super::end::Flushed;
use super::{Role, SERVER_FRAME_BYTES_MAX};
use crate::os::descriptors::{retry_on_intr, write_vectored};
use crate::os::{self, Errno};

/// Limit on the bytes that one flush writes, so that one connection does not hold up the others.
const FLUSH_BYTES_MAX: usize = 1 << 20;

/// A payload below this size is copied behind the frames before it; a larger one is written from where it is.
const COPY_BYTES_BELOW: usize = 4 << 10;

/// Size of a chunk of copied frames in bytes.
const CHUNK_BYTES: usize = 64 << 10;

/// How many chunks one system call writes.
const CHUNKS_PER_WRITE: usize = 16;

/// The mask of our frames to the server. A mask keeps scripts in a web browser from writing bytes of their choice to an
/// intermediary that takes them for HTTP. There is neither on a Unix socket, and this mask leaves the payload as it is.
const MASK: [u8; 4] = [0; 4];

#[derive(Debug, Serialize, Deserialize)]
struct Chunk {
    #[serde(with = "super::handed_bytes")]
    bytes: Bytes,
    /// A control frame may follow.
    ends_frame: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FrameWriter {
    role: Role,
    queue: VecDeque<Chunk>,
    /// Bytes of the first chunk that are written.
    written: usize,
    /// Whether the last byte that was written before the first chunk ended a frame.
    is_between_frames: bool,
    /// Small frames that follow the queue.
    #[serde(with = "super::handed_bytes")]
    tail: Vec<u8>,
    /// The answer to the last ping, which is written between frames. An older answer that was not written is dropped, as
    /// RFC 6455, section 5.5.3 allows: pings cannot fill the queue.
    pong: Option<Vec<u8>>,
    unsent_bytes: usize,
}

impl FrameWriter {
    /// A writer that begins with these bytes, which are not a frame.
    pub(super) fn new(role: Role, handshake: Vec<u8>) -> FrameWriter {
        let unsent_bytes = handshake.len();
        let is_between_frames = handshake.is_empty();
        FrameWriter {
            role,
            queue: VecDeque::new(),
            written: 0,
            is_between_frames,
            tail: handshake,
            pong: None,
            unsent_bytes,
        }
    }

    pub(super) fn unsent_bytes(&self) -> usize {
        self.unsent_bytes
    }

    pub(super) fn wants_write(&self) -> bool {
        self.unsent_bytes > 0 || self.pong.is_some()
    }

    #[cfg(test)]
    pub(super) fn buffered_bytes(&self) -> usize {
        self.tail.capacity() + self.queue.capacity() * size_of::<Chunk>()
    }

    /// Queues a text message.
    pub(super) fn text(&mut self, text: Utf8Bytes) {
        let payload = Bytes::from(text);
        let frame_bytes_max = match self.role {
            Role::Client => SERVER_FRAME_BYTES_MAX,
            Role::Server => usize::MAX,
        };
        let mut data = Data::Text;
        let mut begin = 0;
        while payload.len() - begin > frame_bytes_max {
            self.frame(OpCode::Data(data), Final::No, payload.slice(begin..begin + frame_bytes_max));
            data = Data::Continue;
            begin += frame_bytes_max;
        }
        self.frame(OpCode::Data(data), Final::Yes, payload.slice(begin..));
    }

    /// Queues a close frame.
    pub(super) fn close(&mut self, payload: &[u8]) {
        self.frame(OpCode::Control(Control::Close), Final::Yes, Bytes::copy_from_slice(payload));
    }

    /// Queues the answer to a ping ahead of all frames that are not begun.
    pub(super) fn pong(&mut self, payload: Vec<u8>) {
        self.pong = Some(payload);
    }

    fn frame(&mut self, opcode: OpCode, is_final: Final, payload: Bytes) {
        let before = self.tail.len();
        write_header(self.role, opcode, is_final, payload.len(), &mut self.tail);
        self.unsent_bytes += self.tail.len() - before + payload.len();
        if payload.len() < COPY_BYTES_BELOW {
            self.tail.extend_from_slice(&payload);
            if self.tail.len() >= CHUNK_BYTES {
                self.seal_tail(true);
            }
        } else {
            self.seal_tail(false);
            self.queue.push_back(Chunk { bytes: payload, ends_frame: true });
        }
    }

    fn seal_tail(&mut self, ends_frame: bool) {
        if !self.tail.is_empty() {
            let bytes = Bytes::from(std::mem::take(&mut self.tail));
            self.queue.push_back(Chunk { bytes, ends_frame });
        }
    }

    /// Writes up to 1 MiB of what is queued.
    pub(super) fn flush(&mut self, socket: impl AsFd) -> Flushed {
        let mut flushed = 0;
        loop {
            self.place_pong();
            self.seal_tail(true);
            if self.queue.is_empty() {
                self.queue = VecDeque::new();
                return Flushed::All;
            }
            if flushed >= FLUSH_BYTES_MAX {
                return Flushed::Full;
            }
            match self.write_once(&socket) {
                Ok(0) => return Flushed::Broken(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    flushed += written;
                    self.advance(written);
                }
                Err(Errno::AGAIN) => return Flushed::Full,
                Err(errno) => return Flushed::Broken(errno.into()),
            }
        }
    }

    /// Puts the answer to a ping first if no frame is begun.
    fn place_pong(&mut self) {
        if self.written == 0
            && self.is_between_frames
            && let Some(payload) = self.pong.take()
        {
            let mut bytes = Vec::new();
            write_header(self.role, OpCode::Control(Control::Pong), Final::Yes, payload.len(), &mut bytes);
            bytes.extend_from_slice(&payload);
            self.unsent_bytes += bytes.len();
            self.queue.push_front(Chunk { bytes: Bytes::from(bytes), ends_frame: true });
        }
    }

    /// Writes as much as one system call takes. A peer that is gone gives an error and no signal: SIGPIPE is ignored.
    fn write_once(&self, socket: impl AsFd) -> os::Result<usize> {
        let mut slices = [IoSlice::new(&[]); CHUNKS_PER_WRITE];
        let mut used = 0;
        let mut bytes = 0;
        for (slice, chunk) in slices.iter_mut().zip(&self.queue) {
            let begin = if used == 0 { self.written } else { 0 };
            let room = FLUSH_BYTES_MAX - bytes;
            let end = chunk.bytes.len().min(begin + room);
            *slice = IoSlice::new(&chunk.bytes[begin..end]);
            used += 1;
            bytes += end - begin;
            // A ping waits for the end of a frame.
            if bytes == FLUSH_BYTES_MAX || (self.pong.is_some() && chunk.ends_frame) {
                break;
            }
        }
        retry_on_intr(|| write_vectored(&socket, &slices[..used]))
    }

    fn advance(&mut self, mut written: usize) {
        self.unsent_bytes -= written;
        while let Some(chunk) = self.queue.front() {
            let left = chunk.bytes.len() - self.written;
            if written < left {
                self.written += written;
                return;
            }
            written -= left;
            self.written = 0;
            self.is_between_frames = chunk.ends_frame;
            self.queue.pop_front();
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Final {
    Yes,
    No,
}

fn write_header(role: Role, opcode: OpCode, is_final: Final, length: usize, output: &mut Vec<u8>) {
    let mask = match role {
        Role::Client => Some(MASK),
        Role::Server => None,
    };
    let header = FrameHeader { is_final: is_final == Final::Yes, opcode, mask, ..FrameHeader::default() };
    header.format(length as u64, output).expect("BUG: a vector takes all bytes");
}
