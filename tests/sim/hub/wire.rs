//! An end of a link in the simulation: what a client or the server has said, and what it takes.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use codex_shim::testing::driver::LinkEnd;
use codex_shim::testing::websocket::{Close, Ended, Flushed, Reading, Utf8Bytes};
use codex_shim::testing::wire::Side;

use super::super::canary::Canary;
use super::server::Key;

/// As many bytes as the hub hands to an end at once.
const FULL_BYTES: usize = 1 << 20;

/// What a side of a link gets.
#[derive(Debug)]
pub enum Got {
    Message(Vec<u8>),
    /// A close frame with this code.
    Close(Option<u16>),
    /// Nothing: the side is gone, and whatever waited for it is lost.
    Nothing,
}

/// What the hub writes to a side of a link.
type Message = (Key, Side, Got);

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
    end: Cell<Option<HowEnded>>,
    /// Messages that it takes now; `None` if it is gone.
    room: Cell<Option<usize>>,
    /// The hub has written to an end that is gone.
    has_failed: Cell<bool>,
    is_cut_off: Cell<bool>,
    /// It takes all messages at once, and keeps those here for which there is no room.
    hoard: Option<RefCell<VecDeque<Vec<u8>>>>,
    /// It passes no close frames on.
    swallows_close: bool,
    written: Written,
}

/// How an end has closed its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HowEnded {
    Cut,
    /// With a close frame of this code.
    Closed(u16),
}

impl Wire {
    pub fn new(key: Key, side: Side, written: &Written, canary: Canary) -> Wire {
        let hoards = canary == Canary::ReadsOn && side == Side::Server;
        Wire(Rc::new(Inside {
            key,
            side,
            said: RefCell::default(),
            end: Cell::new(None),
            room: Cell::new(Some(0)),
            has_failed: Cell::new(false),
            is_cut_off: Cell::new(false),
            hoard: hoards.then(RefCell::default),
            swallows_close: canary == Canary::ForgetsCloseFrames,
            written: written.clone(),
        }))
    }

    fn write(&self, got: Got) {
        self.0.written.0.borrow_mut().push_back((self.0.key, self.0.side, got));
    }

    /// What the next read finds.
    pub fn says(&self, messages: impl Iterator<Item = Utf8Bytes>, end: Option<HowEnded>) {
        self.0.said.borrow_mut().extend(messages);
        self.0.end.set(end);
    }

    pub fn takes(&self, room: Option<usize>) {
        self.0.room.set(room.filter(|_| !self.0.is_cut_off.get()));
        if let (Some(hoard), Some(room)) = (&self.0.hoard, room) {
            let mut hoard = hoard.borrow_mut();
            let count = hoard.len().min(room);
            hoard.drain(..count).for_each(|line| self.write(Got::Message(line)));
            self.0.room.set(Some(room - count));
        }
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
        match self.0.end.get() {
            None => Reading::Drained,
            Some(HowEnded::Cut) => Reading::Ended(Ended::Eof),
            Some(HowEnded::Closed(code)) => Reading::Ended(Ended::Closed(Close::new(code, "bye"))),
        }
    }

    fn send(&mut self, text: Utf8Bytes) {
        match (self.0.room.get(), &self.0.hoard) {
            (Some(0), Some(hoard)) => hoard.borrow_mut().push_back(text.as_bytes().to_vec()),
            (Some(room), _) => {
                self.0.room.set(Some(room.saturating_sub(1)));
                self.write(Got::Message(text.as_bytes().to_vec()));
            }
            (None, _) => {
                self.0.has_failed.set(true);
                self.write(Got::Nothing);
            }
        }
    }

    fn close(&mut self, close: &Close) {
        if self.0.room.get().is_some() && !self.0.swallows_close {
            self.write(Got::Close(close.code()));
        }
    }

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
        if self.0.room.get() == Some(0) && self.0.hoard.is_none() { FULL_BYTES } else { 0 }
    }
}
