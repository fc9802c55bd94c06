//! Decodes frames: bytes of a socket go in, text messages and control frames come out.

use std::io::{self, Cursor};
use std::os::fd::AsFd;

use serde::{Deserialize, Serialize};
use tungstenite::Utf8Bytes;
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};

use super::end::Close;
use super::{CLIENT_MESSAGE_BYTES_MAX, Role, SERVER_MESSAGE_BYTES_MAX};
use crate::os::descriptors::{append, retry_on_intr};

/// Size of one read in bytes. A payload with at least as many bytes to come is read without a copy.
const READ_BYTES: usize = 64 << 10;

/// Limit on the payload of a control frame in bytes. Source: RFC 6455, section 5.5.
pub(super) const CONTROL_BYTES_MAX: usize = 125;

/// A breach of the protocol by the peer. The connection cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("a frame with a reserved bit or an unknown opcode")]
    Header,
    #[error("a frame of a client without a mask")]
    Unmasked,
    #[error("a frame of the server with a mask")]
    Masked,
    #[error("a control frame that is fragmented or too long")]
    Control,
    #[error("a fragment out of order")]
    Fragment,
    #[error("a text message that is not UTF-8")]
    Utf8,
    #[error("a message over {bytes_max} bytes")]
    TooLong { bytes_max: usize },
}

impl Violation {
    /// The status code of RFC 6455, section 7.4.1, to close the connection with.
    pub fn close_code(self) -> u16 {
        match self {
            Violation::Header | Violation::Unmasked | Violation::Masked | Violation::Control | Violation::Fragment => {
                1002
            }
            Violation::Utf8 => 1007,
            Violation::TooLong { .. } => 1009,
        }
    }
}

/// The result of decoding.
#[derive(Debug)]
pub(super) enum Decoded {
    /// The next frame is not complete; [`FrameReader::fill`] reads more of it.
    NeedsBytes,
    /// A fragment that does not end its message.
    Fragment,
    Text(Utf8Bytes),
    /// A binary message, which has no meaning here; it is not stored.
    Binary,
    Ping(Vec<u8>),
    Pong,
    Close(Close),
}

/// A data frame whose payload has not come whole.
#[derive(Debug, Serialize, Deserialize)]
struct OpenFrame {
    bytes_to_come: usize,
    /// Rotated so that its first byte applies to the next byte of the payload.
    mask: [u8; 4],
    is_final: bool,
}

/// A message without its end.
#[derive(Debug, Serialize, Deserialize)]
struct OpenMessage {
    is_text: bool,
    /// Empty unless it is text.
    #[serde(with = "super::handed_bytes")]
    bytes: Vec<u8>,
    /// The length of all its frames so far, by their headers.
    announced: usize,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FrameReader {
    role: Role,
    message_bytes_max: usize,
    #[serde(with = "super::handed_bytes")]
    input: Vec<u8>,
    /// How many bytes of `input` are decoded.
    decoded: usize,
    frame: Option<OpenFrame>,
    message: Option<OpenMessage>,
}

impl FrameReader {
    /// A reader that begins with the bytes that came after the handshake.
    pub(super) fn new(role: Role, input: Vec<u8>) -> FrameReader {
        let message_bytes_max = match role {
            Role::Client => SERVER_MESSAGE_BYTES_MAX,
            Role::Server => CLIENT_MESSAGE_BYTES_MAX,
        };
        FrameReader { role, message_bytes_max, input, decoded: 0, frame: None, message: None }
    }

    /// Reads once from the socket. Returns the bytes read; 0 is the end of the stream.
    pub(super) fn fill(&mut self, socket: impl AsFd) -> io::Result<Fill> {
        self.release_decoded();
        if self.input.is_empty()
            && let (Some(frame), Some(message)) = (&mut self.frame, &mut self.message)
            && message.is_text
            && frame.bytes_to_come >= READ_BYTES
        {
            let had = message.bytes.len();
            if message.bytes.capacity() == had {
                make_room(&mut message.bytes, frame, self.message_bytes_max);
            }
            let room = message.bytes.capacity() - had;
            let read = retry_on_intr(|| append(&socket, &mut message.bytes))?;
            if read > frame.bytes_to_come {
                // The allocator gave more room than was asked for.
                self.input = message.bytes.split_off(had + frame.bytes_to_come);
            }
            let came = &mut message.bytes[had..];
            frame.bytes_to_come -= came.len();
            unmask(came, &mut frame.mask);
            return Ok(Fill { bytes: read, is_short: read < room });
        }
        self.input.reserve_exact(READ_BYTES.saturating_sub(self.input.len()));
        let room = self.input.capacity() - self.input.len();
        let read = retry_on_intr(|| append(&socket, &mut self.input))?;
        Ok(Fill { bytes: read, is_short: read < room })
    }

    /// Gives the input buffer back if it is empty, so that an idle connection holds none.
    pub(super) fn release_idle(&mut self) {
        self.release_decoded();
        if self.input.is_empty() {
            self.input = Vec::new();
        }
    }

    #[cfg(test)]
    pub(super) fn buffered_bytes(&self) -> usize {
        self.input.capacity() + self.message.as_ref().map_or(0, |message| message.bytes.capacity())
    }

    fn release_decoded(&mut self) {
        // At most the head of one frame is left, or a control frame: decoding goes on until more bytes are needed.
        self.input.drain(..self.decoded);
        self.decoded = 0;
    }

    /// Whether the stream may end here without the loss of a message.
    pub(super) fn is_between_messages(&self) -> bool {
        self.decoded == self.input.len() && self.frame.is_none() && self.message.is_none()
    }

    /// Decodes at most one frame.
    pub(super) fn decode(&mut self) -> Result<Decoded, Violation> {
        if self.frame.is_none() {
            let mut cursor = Cursor::new(&self.input[self.decoded..]);
            let header = FrameHeader::parse(&mut cursor).map_err(|_| Violation::Header)?;
            let Some((header, length)) = header else { return Ok(Decoded::NeedsBytes) };
            let header_bytes = usize::try_from(cursor.position()).expect("BUG: a header has at most 14 bytes");
            self.check_header(&header)?;
            match header.opcode {
                OpCode::Control(control) => return self.decode_control(control, &header, length, header_bytes),
                OpCode::Data(data) => self.open_frame(data, &header, length)?,
            }
            self.decoded += header_bytes;
        }
        self.take_payload();
        match &self.frame {
            Some(frame) if frame.bytes_to_come == 0 => self.end_frame(),
            Some(_) | None => Ok(Decoded::NeedsBytes),
        }
    }

    fn check_header(&self, header: &FrameHeader) -> Result<(), Violation> {
        if header.rsv1 || header.rsv2 || header.rsv3 {
            return Err(Violation::Header);
        }
        match (self.role, header.mask) {
            (Role::Server, None) => Err(Violation::Unmasked),
            (Role::Client, Some(_)) => Err(Violation::Masked),
            (Role::Server, Some(_)) | (Role::Client, None) => Ok(()),
        }
    }

    /// Decodes a control frame once it is here as a whole.
    fn decode_control(
        &mut self,
        control: Control,
        header: &FrameHeader,
        length: u64,
        header_bytes: usize,
    ) -> Result<Decoded, Violation> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if !header.is_final || length > CONTROL_BYTES_MAX {
            return Err(Violation::Control);
        }
        let begin = self.decoded + header_bytes;
        let Some(payload) = self.input.get(begin..begin + length) else { return Ok(Decoded::NeedsBytes) };
        let mut payload = payload.to_vec();
        unmask(&mut payload, &mut header.mask.unwrap_or_default());
        self.decoded = begin + length;
        match control {
            Control::Close => Ok(Decoded::Close(Close::received(payload))),
            Control::Ping => Ok(Decoded::Ping(payload)),
            Control::Pong => Ok(Decoded::Pong),
            Control::Reserved(_) => Err(Violation::Header),
        }
    }

    fn open_frame(&mut self, data: Data, header: &FrameHeader, length: u64) -> Result<(), Violation> {
        let message = match (data, &mut self.message) {
            (Data::Continue, Some(message)) => message,
            (Data::Text | Data::Binary, message @ None) => {
                message.insert(OpenMessage { is_text: data == Data::Text, bytes: Vec::new(), announced: 0 })
            }
            (Data::Continue, None) | (Data::Text | Data::Binary, Some(_)) => return Err(Violation::Fragment),
            (Data::Reserved(_), _) => return Err(Violation::Header),
        };
        let bytes_max = self.message_bytes_max;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > bytes_max - message.announced {
            return Err(Violation::TooLong { bytes_max });
        }
        message.announced += length;
        let mask = header.mask.unwrap_or_default();
        self.frame = Some(OpenFrame { bytes_to_come: length, mask, is_final: header.is_final });
        Ok(())
    }

    /// Moves what has come of the open frame's payload to its message.
    fn take_payload(&mut self) {
        let (Some(frame), Some(message)) = (&mut self.frame, &mut self.message) else { return };
        let came = self.input.len() - self.decoded;
        let taken = came.min(frame.bytes_to_come);
        if message.is_text && taken > 0 {
            let had = message.bytes.len();
            if message.bytes.capacity() - had < taken {
                make_room(&mut message.bytes, frame, self.message_bytes_max);
            }
            message.bytes.extend_from_slice(&self.input[self.decoded..self.decoded + taken]);
            unmask(&mut message.bytes[had..], &mut frame.mask);
        }
        frame.bytes_to_come -= taken;
        self.decoded += taken;
    }

    fn end_frame(&mut self) -> Result<Decoded, Violation> {
        let is_final = self.frame.take().is_none_or(|frame| frame.is_final);
        if !is_final {
            return Ok(Decoded::Fragment);
        }
        match self.message.take() {
            Some(OpenMessage { is_text: true, bytes, .. }) => {
                Utf8Bytes::try_from(bytes).map(Decoded::Text).map_err(|_| Violation::Utf8)
            }
            Some(OpenMessage { is_text: false, .. }) | None => Ok(Decoded::Binary),
        }
    }
}

/// The result of one read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fill {
    pub(super) bytes: usize,
    /// The socket had less than there was room for: it is empty for now.
    pub(super) is_short: bool,
}

/// Makes room for at least 64 KiB, or all, of the frame's payload. The buffer at most doubles, so that a header with a
/// large length costs nothing until the bytes come.
fn make_room(bytes: &mut Vec<u8>, frame: &OpenFrame, bytes_max: usize) {
    let (had, to_come) = (bytes.len(), frame.bytes_to_come);
    let step = had.max(READ_BYTES);
    if frame.is_final || to_come > had {
        bytes.reserve_exact(to_come.min(step));
    } else {
        // Many small fragments: the buffer doubles, within the limit of a message.
        bytes.reserve_exact(to_come.max(step.min(bytes_max.saturating_sub(had))));
    }
}

/// Applies the mask, and rotates it so that it fits the bytes that follow.
fn unmask(bytes: &mut [u8], mask: &mut [u8; 4]) {
    if *mask == [0; 4] {
        return;
    }
    let wide = u64::from_ne_bytes([mask[0], mask[1], mask[2], mask[3], mask[0], mask[1], mask[2], mask[3]]);
    let (words, rest) = bytes.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ wide).to_ne_bytes();
    }
    for (byte, mask) in rest.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= mask;
    }
    mask.rotate_left(rest.len() % 4);
}
