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
        inside.drain(..given).collect()
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
            return ReadOutcome::Nothing;
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
        let bytes_max = self.0.borrow().bytes_max;
        let taken = self.put(bytes, bytes_max);
        self.0.borrow_mut().bytes_max -= taken;
        Ok(taken)
    }
}
