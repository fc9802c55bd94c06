//! A link as in `hub::link`: two ends, and the messages that wait for each of them.

use std::collections::VecDeque;
use std::time::Duration;

use codex_shim::testing::engine::Token;
use codex_shim::testing::wire::Side;

use super::server::Key;

/// Messages that may wait for a client. The hub counts bytes.
const WAITING_MAX: usize = 30;

/// How long a link that ends may take to deliver what waits.
const CLOSING_MAX: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub enum Piece {
    Text(Vec<u8>),
    Hold(Token, Duration),
    /// The end of so many messages.
    Mark(Token, usize),
}

/// An end, and what waits for it.
#[derive(Debug, Default)]
pub struct Way {
    pub queue: VecDeque<Piece>,
    pub has_ended: bool,
    pub is_gone: bool,
    /// Marks that will not be reached.
    pub dropped: Vec<Token>,
}

#[derive(Debug)]
pub struct Link {
    pub key: Key,
    /// The hub's own link has no client.
    pub client: Option<Way>,
    pub server: Way,
    pub cut_at: Option<Duration>,
}

impl Link {
    pub fn new(key: Key, client: Option<Way>) -> Link {
        Link { key, client, server: Way::default(), cut_at: None }
    }

    pub fn way_mut(&mut self, side: Side) -> Option<&mut Way> {
        match side {
            Side::Client => self.client.as_mut(),
            Side::Server => Some(&mut self.server),
        }
    }

    /// Whether something can be read from a side now.
    pub fn reads(&self, side: Side) -> bool {
        match (side, &self.client) {
            (Side::Client, Some(client)) => !client.has_ended && !self.server.is_busy() && self.cut_at.is_none(),
            (Side::Client, None) => false,
            (Side::Server, _) => !self.server.has_ended && self.cut_at.is_none(),
        }
    }

    pub fn push(&mut self, to: Side, piece: Piece) {
        match (self.way_mut(to), piece) {
            (Some(way), Piece::Mark(token, _)) if way.is_gone => way.dropped.push(token),
            (Some(way), piece) if !way.is_gone => way.queue.push_back(piece),
            _ => {}
        }
    }

    pub fn release(&mut self, token: Token) {
        for way in self.client.iter_mut().chain([&mut self.server]) {
            way.queue.retain(|piece| !matches!(piece, Piece::Hold(held, _) if *held == token));
        }
    }

    /// Takes back the messages before a mark, unless one of them is written.
    pub fn recall(&mut self, token: Token) -> bool {
        let queue = &mut self.server.queue;
        let at = queue.iter().position(|piece| matches!(piece, Piece::Mark(mark, _) if *mark == token));
        let Some((at, Some(Piece::Mark(_, messages)))) = at.map(|at| (at, queue.get(at))) else { return false };
        let first = at.checked_sub(*messages);
        let Some(first) = first.filter(|first| queue.range(*first..at).all(|it| matches!(it, Piece::Text(_)))) else {
            return false;
        };
        queue.drain(first..=at);
        true
    }

    pub fn is_too_slow(&self) -> bool {
        self.client.as_ref().is_some_and(|client| client.queue.len() > WAITING_MAX)
    }

    /// Ends the link because one side is gone: what is queued for the other is still delivered, for at most [`CLOSING_MAX`].
    pub fn end(&mut self, gone: Side, now: Duration) {
        if self.cut_at.is_none() {
            self.way_mut(gone).into_iter().for_each(Way::abandon);
            self.cut_at = Some(now + CLOSING_MAX);
        }
    }

    /// The marks that will not be reached because a side is gone.
    pub fn take_dropped(&mut self) -> Vec<Token> {
        let ways = self.client.iter_mut().chain([&mut self.server]);
        ways.flat_map(|way| std::mem::take(&mut way.dropped)).collect()
    }

    /// Ends both sides at once; returns the marks that will not be reached.
    pub fn cut(&mut self) -> Vec<Token> {
        self.client.iter_mut().chain([&mut self.server]).for_each(Way::abandon);
        self.take_dropped()
    }

    pub fn is_ending(&self) -> bool {
        self.cut_at.is_some()
    }

    /// Whether the link has ended and nothing waits any more.
    pub fn is_done(&self, now: Duration) -> bool {
        self.cut_at.is_some_and(|cut_at| {
            now >= cut_at || !(self.server.is_busy() || self.client.as_ref().is_some_and(Way::is_busy))
        })
    }

    /// The time since which something is held.
    pub fn held_since(&self) -> Option<(Token, Duration)> {
        let pieces = self.client.iter().chain([&self.server]).flat_map(|way| &way.queue);
        pieces
            .filter_map(|piece| if let Piece::Hold(token, since) = piece { Some((*token, *since)) } else { None })
            .next()
    }

    pub fn is_busy(&self) -> bool {
        self.server.is_busy() || self.client.as_ref().is_some_and(Way::is_busy)
    }
}

impl Way {
    fn is_busy(&self) -> bool {
        !self.is_gone && !self.queue.is_empty()
    }

    /// Nothing more reaches this end.
    pub fn abandon(&mut self) {
        let marks = std::mem::take(&mut self.queue).into_iter();
        self.dropped
            .extend(marks.filter_map(|piece| if let Piece::Mark(token, _) = piece { Some(token) } else { None }));
        self.is_gone = true;
    }
}
