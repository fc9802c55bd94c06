//! An end of a link in the simulation: what a client or the server has said, and what it takes.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use codex_shim::testing::driver::LinkEnd;
use codex_shim::testing::websocket::{Close, Ended, Flushed, Reading, Utf8Bytes};
use codex_shim::testing::wire::Side;

use super::server::Key;

/// As many bytes as the hub hands to an end at once.
const FULL_BYTES: usize = 1 << 20;

/// A message to a side of a link.
type Message = (Key, Side, Vec<u8>);

/// All messages that the hub has written and nobody has received, in order.
#[derive(Debug, Clone, Default)]
pub struct Written(Rc<RefCell<VecDeque<Message>>>);

impl Written {
    pub fn take(&self) -> Option<Message> {
        self.0.borrow_mut().pop_front()
    }
}

#[derive(Debug, Clone)]
pub struct Wire(Rc<Inside>);

#[derive(Debug)]
struct Inside {
    key: Key,
    side: Side,
    said: RefCell<Vec<Utf8Bytes>>,
    has_ended: Cell<bool>,
    /// Messages that it takes now; `None` if it is gone.
    room: Cell<Option<usize>>,
    /// The hub has written to an end that is gone.
    has_failed: Cell<bool>,
    is_cut_off: Cell<bool>,
    written: Written,
}

impl Wire {
    pub fn new(key: Key, side: Side, written: &Written) -> Wire {
        Wire(Rc::new(Inside {
            key,
            side,
            said: RefCell::default(),
            has_ended: Cell::new(false),
            room: Cell::new(Some(0)),
            has_failed: Cell::new(false),
            is_cut_off: Cell::new(false),
            written: written.clone(),
        }))
    }

    /// What the next read finds.
    pub fn says(&self, messages: impl Iterator<Item = Utf8Bytes>, has_ended: bool) {
        self.0.said.borrow_mut().extend(messages);
        self.0.has_ended.set(has_ended);
    }

    pub fn takes(&self, room: Option<usize>) {
        self.0.room.set(room.filter(|_| !self.0.is_cut_off.get()));
    }

    /// The hub writes nothing any more.
    pub fn cut(&self) {
        self.0.room.set(Some(0));
    }

    /// The end is gone from now on.
    pub fn cut_off(&self) {
        self.0.is_cut_off.set(true);
        self.0.room.set(None);
    }
}

impl LinkEnd for Wire {
    fn read(&mut self, messages: &mut Vec<Utf8Bytes>) -> Reading {
        messages.append(&mut self.0.said.borrow_mut());
        if self.0.has_ended.get() { Reading::Ended(Ended::Eof) } else { Reading::Drained }
    }

    fn send(&mut self, text: Utf8Bytes) {
        match self.0.room.get() {
            Some(room) => {
                self.0.room.set(Some(room.saturating_sub(1)));
                let message = (self.0.key, self.0.side, text.as_bytes().to_vec());
                self.0.written.0.borrow_mut().push_back(message);
            }
            None => self.0.has_failed.set(true),
        }
    }

    fn close(&mut self, _: &Close) {}

    fn flush(&mut self) -> Flushed {
        match self.0.has_failed.get() {
            true => Flushed::Broken(io::Error::from(io::ErrorKind::BrokenPipe)),
            false => Flushed::All,
        }
    }

    fn wants_write(&self) -> bool {
        self.0.has_failed.get()
    }

    fn unsent_bytes(&self) -> usize {
        if self.0.room.get() == Some(0) { FULL_BYTES } else { 0 }
    }
}
