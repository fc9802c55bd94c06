//! One end of a WebSocket connection on a non-blocking Unix socket, for a polling thread that owns many of them, and the
//! [`Listener`] at which clients arrive.
//!
//! A connection to a client begins as [`Accepting`], one to the server as [`Connecting`]; both become an [`End`]. An end
//! reads text messages and sends them, byte for byte, and the caller polls its descriptor.
//!
//! The framing uses tungstenite's header parser, handshake parser and text type on buffers of our own. Its `WebSocket`
//! moves all unsent bytes after each partial write, zeroes 128 KiB before each read, keeps the buffers of the largest
//! message, and can decode without limit in one call.
//!
//! # Never
//!
//! No call blocks, waits or starts a thread. No call reads or writes much more than 1 MiB. No bytes of the peer cause a
//! panic. Memory grows with the bytes that came, never with a length that the peer announced. Nothing here knows JSON.

mod end;
mod frame_reader;
mod frame_writer;
mod handshake;
mod listener;

pub use end::{Close, End, Ended, Flushed, HandedEnd, Reading};
pub use frame_reader::Violation;
pub use handshake::{Accepting, ConnectError, Connecting, Refusal, Response, UpgradeRequest};
pub use listener::{Accepted, HandedListener, Listener};
pub use tungstenite::Utf8Bytes;

use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

/// Limit on a message of a client, in bytes. Source: codex resets a connection with a longer message.
pub const CLIENT_MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Limit on a message of the server, in bytes. Source: the TUI of codex accepts as much.
pub const SERVER_MESSAGE_BYTES_MAX: usize = 128 << 20;

/// Limit on a frame to the server, in bytes. Source: codex resets a connection with a longer frame.
pub const SERVER_FRAME_BYTES_MAX: usize = 16 << 20;

/// Which part we play in a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Role {
    /// The peer is the server: our frames are masked.
    Client,
    /// The peer is a client: its frames are masked.
    Server,
}

/// The text of a message, in JSON.
pub mod handed_text {
    use serde::{Deserialize as _, Deserializer, Serializer};

    use super::Utf8Bytes;

    pub fn serialize<S: Serializer>(text: &Utf8Bytes, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(text)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Utf8Bytes, D::Error> {
        String::deserialize(deserializer).map(Utf8Bytes::from)
    }
}

/// Bytes in JSON, as Base64.
mod handed_bytes {
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &impl AsRef<[u8]>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64_STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, T: From<Vec<u8>>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
        let text = String::deserialize(deserializer)?;
        BASE64_STANDARD.decode(text).map(T::from).map_err(D::Error::custom)
    }
}
