//! A kernel pipe: it accepts bytes up to its capacity, and outlives its writer.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use codex_shim::testing::driver::{Broken, ReadEnd, ReadOutcome, WriteEnd};

/// Small, so that it is often full.
const ROOM_BYTES: usize = 700;

/// Both ends of a pipe. One of them is the shim's, which may move only so many bytes at a time.
#[derive(Debug, Clone, Default)]
pub struct Pipe(Rc<RefCell<Inside>>);

#[derive(Debug, Default)]
struct Inside {
    bytes: VecDeque<u8>,
    /// What the shim may move next.
    bytes_max: usize,
    /// The last byte of the next read is lost.
    loses: bool,
    /// Nothing more is written, or read.
    is_closed: bool,
    /// The shim has read the end.
    is_at_end: bool,
    /// A line end of ours after a line that has none is lost.
    glues: bool,
    /// The last byte that the shim has written.
    last: Option<u8>,
}

impl Pipe {
    /// Accepts the start of `bytes`, at most `bytes_max`; returns how much.
    pub fn put(&self, bytes: &[u8], bytes_max: usize) -> usize {
        let inside = &mut self.0.borrow_mut().bytes;
        let taken = bytes.len().min(bytes_max).min(ROOM_BYTES - inside.len());
        inside.extend(&bytes[..taken]);
        taken
    }

    /// Returns at most `bytes_max`.
    pub fn get(&self, bytes_max: usize) -> Vec<u8> {
        let inside = &mut self.0.borrow_mut().bytes;
        let given = inside.len().min(bytes_max);
        let bytes = inside.make_contiguous()[..given].to_vec();
        inside.drain(..given);
        bytes
    }

    /// The lines that the next `bytes_max` bytes complete.
    pub fn peek(&self, bytes_max: usize) -> Vec<u8> {
        let inside = &mut self.0.borrow_mut().bytes;
        let next = inside.len().min(bytes_max);
        let next = &inside.make_contiguous()[..next];
        next[..memchr::memrchr(b'\n', next).unwrap_or_default()].to_vec()
    }

    pub fn is_empty(&self) -> bool {
        self.0.borrow().bytes.is_empty()
    }

    /// Lets the shim write so many bytes.
    pub fn takes(&self, bytes_max: usize) {
        self.0.borrow_mut().bytes_max = bytes_max;
    }

    /// Lets the shim read so many bytes.
    pub fn gives(&self, bytes_max: usize) {
        self.0.borrow_mut().bytes_max = bytes_max;
    }

    pub fn close(&self) {
        self.0.borrow_mut().is_closed = true;
    }

    pub fn is_closed(&self) -> bool {
        self.0.borrow().is_closed
    }

    /// Whether the shim has read all that comes.
    pub fn is_read(&self) -> bool {
        self.is_empty() && self.is_closed() == self.0.borrow().is_at_end
    }

    pub fn glues(&self, glues: bool) {
        self.0.borrow_mut().glues = glues;
    }

    pub fn loses(&self, loses: bool) {
        self.0.borrow_mut().loses = loses;
    }

    /// The shim moves nothing any more.
    pub fn cut(&self) {
        self.takes(0);
    }
}

impl ReadEnd for Pipe {
    fn read(&self, buffer: &mut Vec<u8>) -> ReadOutcome {
        let bytes_max = self.0.borrow().bytes_max;
        let mut bytes = self.get(bytes_max);
        if bytes.is_empty() {
            let has_ended = self.is_closed() && self.is_empty();
            self.0.borrow_mut().is_at_end = has_ended;
            return if has_ended { ReadOutcome::End } else { ReadOutcome::Nothing };
        }
        if std::mem::take(&mut self.0.borrow_mut().loses) {
            bytes.pop();
        }
        buffer.append(&mut bytes);
        ReadOutcome::Some
    }
}

impl WriteEnd for Pipe {
    fn write(&self, bytes: &[u8]) -> Result<usize, Broken> {
        if self.is_closed() {
            return Err(Broken);
        }
        let is_unended = self.0.borrow().last.is_some_and(|last| last != b'\n');
        if self.0.borrow().glues && is_unended && bytes.len() > 1 && bytes[0] == b'\n' {
            return Ok(1);
        }
        let bytes_max = self.0.borrow().bytes_max;
        let taken = self.put(bytes, bytes_max);
        let mut inside = self.0.borrow_mut();
        inside.bytes_max -= taken;
        inside.last = bytes[..taken].last().copied().or(inside.last);
        Ok(taken)
    }
}
