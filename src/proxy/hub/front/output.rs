//! The client's stdout, and the lines that wait for it.

use crate::relay::pipes::{Sink, WriteEnd as _};

/// Capacity that the buffer keeps once it is empty, in bytes.
const BYTES_KEPT: usize = 1 << 20;

/// Lines that wait for the client, in order.
pub(super) struct Output {
    /// `None` once the client reads nothing more.
    sink: Option<Sink>,
    bytes: Vec<u8>,
    written: usize,
}

impl Output {
    pub(super) fn new(sink: Sink) -> Output {
        Output { sink: Some(sink), bytes: Vec::new(), written: 0 }
    }

    /// Queues a message as a line. JSON has line ends only between its tokens, where a blank means the same.
    pub(super) fn line(&mut self, message: &[u8]) {
        if self.sink.is_none() {
            return;
        }
        let from = self.bytes.len();
        self.bytes.extend_from_slice(message);
        self.bytes[from..].iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b' ');
        self.bytes.push(b'\n');
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The sink, if lines wait for it.
    pub(super) fn waiting(&self) -> Option<&Sink> {
        self.sink.as_ref().filter(|_| !self.is_empty())
    }

    /// Writes what the client takes now.
    pub(super) fn flush(&mut self) {
        while let Some(sink) = self.waiting() {
            match sink.write(&self.bytes[self.written..]) {
                Ok(0) => return,
                Ok(written) => self.written += written,
                // The server is read on, as if the client read: only the end of its input ends the client.
                Err(_) => return self.abandon(),
            }
            if self.written == self.bytes.len() {
                self.bytes.clear();
                self.bytes.shrink_to(BYTES_KEPT);
                self.written = 0;
            }
        }
    }

    /// Drops the waiting bytes, and all later ones.
    pub(super) fn abandon(&mut self) {
        (self.sink, self.bytes, self.written) = (None, Vec::new(), 0);
    }

    pub(super) fn into_sink(self) -> Option<Sink> {
        self.sink
    }
}
