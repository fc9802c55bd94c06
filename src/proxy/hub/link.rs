//! One client of the hub and its own connection to the server: two ends, and the messages that wait for each of them.
//!
//! A link reads from its client only while nothing waits for the server, so that a server that does not read stalls that client,
//! as without a hub. From the server it always reads: the record must have what the server says, and a client that is slow holds
//! up nobody else. [`WAITING_BYTES_MAX`] bounds the bytes that wait for such a client.
//!
//! Nothing here decides on a message.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::engine::{Peer, Token};
use crate::invariants::holds;
use crate::os;
use crate::os::polling::PollFlags;
use crate::websocket::{Close, End, Ended, Flushed, Reading, Utf8Bytes, handed_text};
use crate::wire::Side;

/// Limit on the bytes that wait for one client. Codex, too, disconnects a client that is too slow.
pub(super) const WAITING_BYTES_MAX: usize = 64 << 20;

/// How much is handed to an end at once; the rest waits in the queue.
const HANDED_BYTES_MAX: usize = 1 << 20;

/// The time that an ending link has to deliver waiting bytes.
pub(super) const CLOSING_MAX: Duration = Duration::from_secs(5);

/// An end of a link, which is read and written without waiting.
pub trait LinkEnd {
    /// Appends the messages that are there, to a limit.
    fn read(&mut self, messages: &mut Vec<Utf8Bytes>) -> Reading;

    /// Takes a message, which [`LinkEnd::flush`] writes.
    fn send(&mut self, text: Utf8Bytes);

    /// Takes a close frame.
    fn close(&mut self, close: &Close);

    fn flush(&mut self) -> Flushed;

    fn wants_write(&self) -> bool;

    /// Bytes that were taken and are not written.
    fn unsent_bytes(&self) -> usize;
}

impl LinkEnd for End {
    fn read(&mut self, messages: &mut Vec<Utf8Bytes>) -> Reading {
        End::read(self, messages)
    }

    fn send(&mut self, text: Utf8Bytes) {
        End::send(self, text);
    }

    fn close(&mut self, close: &Close) {
        End::close(self, close);
    }

    fn flush(&mut self) -> Flushed {
        End::flush(self)
    }

    fn wants_write(&self) -> bool {
        End::wants_write(self)
    }

    fn unsent_bytes(&self) -> usize {
        End::unsent_bytes(self)
    }
}

/// A link between a client and the server. The hub's own has no client.
#[derive(Debug, Serialize, Deserialize)]
pub struct Link<E> {
    pub peer: Peer,
    pub(super) since: SystemTime,
    client: Option<Way<E>>,
    server: Way<E>,
    /// Set once the engine knows that the link has ended: when the link is cut off.
    cut_at: Option<Duration>,
}

/// One end, and the bytes that wait for it.
#[derive(Debug, Serialize, Deserialize)]
struct Way<E> {
    end: E,
    queue: VecDeque<QueuedPiece>,
    queued_bytes: usize,
    /// The end has more messages that a poll does not show.
    has_more: bool,
    has_ended: bool,
    /// Nothing reaches it any more.
    is_gone: bool,
    /// A close frame that follows all that is queued.
    close: Option<Close>,
    /// Marks that will not be reached.
    dropped: Vec<Token>,
}

#[derive(Debug, Serialize, Deserialize)]
enum QueuedPiece {
    Text(#[serde(with = "handed_text")] Utf8Bytes),
    /// Blocks the queue until it is released.
    Hold(Token),
    /// Reports its token once everything before it is written: at the end, the messages that it is about.
    Mark(Token, usize),
}

/// The events that a link waits for.
pub(super) struct Interest<'a> {
    pub(super) side: Side,
    pub(super) fd: BorrowedFd<'a>,
    pub(super) flags: PollFlags,
}

impl<E: LinkEnd> Link<E> {
    pub fn new(peer: Peer, client: Option<E>, server: E) -> Link<E> {
        let since = SystemTime::now();
        Link { peer, since, client: client.map(Way::new), server: Way::new(server), cut_at: None }
    }

    /// Whether something can be read from a side now.
    pub fn reads(&self, side: Side) -> bool {
        match (side, &self.client) {
            (Side::Client, Some(client)) => !client.has_ended && !self.server.is_busy() && self.cut_at.is_none(),
            (Side::Client, None) => false,
            (Side::Server, _) => !self.server.has_ended && self.cut_at.is_none(),
        }
    }

    /// Whether a side has messages that a poll does not show.
    pub fn has_more(&self, side: Side) -> bool {
        self.reads(side) && self.way(side).is_some_and(|way| way.has_more)
    }

    /// Reads from a side. Returns why nothing more will come, if so.
    pub fn read(&mut self, side: Side, messages: &mut Vec<Utf8Bytes>) -> Option<Ended> {
        if !self.reads(side) {
            return None;
        }
        let way = self.way_mut(side)?;
        let reading = way.end.read(messages);
        way.has_more = matches!(reading, Reading::More);
        match reading {
            Reading::More | Reading::Drained => None,
            Reading::Ended(ended) => {
                way.has_ended = true;
                Some(ended)
            }
        }
    }

    /// Queues a message for a side.
    pub fn send(&mut self, to: Side, text: Utf8Bytes) {
        if let Some(way) = self.way_mut(to).filter(|way| !way.is_gone) {
            way.queued_bytes += text.len();
            way.queue.push_back(QueuedPiece::Text(text));
        }
    }

    /// Blocks everything that is queued for a side after this until [`Link::release`].
    pub fn hold(&mut self, to: Side, token: Token) {
        if let Some(way) = self.way_mut(to).filter(|way| !way.is_gone) {
            way.queue.push_back(QueuedPiece::Hold(token));
        }
    }

    /// Reports `token` once everything that is queued for a side before is written; the last `messages` of that are what it is
    /// about.
    pub fn mark(&mut self, to: Side, token: Token, messages: usize) {
        match self.way_mut(to) {
            Some(way) if way.is_gone => way.dropped.push(token),
            Some(way) => {
                holds!("links.marks-are-about-queued-messages", messages <= way.queue.len());
                way.queue.push_back(QueuedPiece::Mark(token, messages));
            }
            None => {}
        }
    }

    /// Takes back the messages for the server that a mark is about, unless one of them has been handed to its end. Returns
    /// whether it did.
    pub fn recall(&mut self, token: Token) -> bool {
        self.server.recall(token)
    }

    pub fn release(&mut self, token: Token) {
        for way in self.client.iter_mut().chain([&mut self.server]) {
            way.queue.retain(|piece| !matches!(piece, QueuedPiece::Hold(held) if *held == token));
        }
    }

    /// Writes what both sides take, and collects the marks that are reached.
    ///
    /// A side that takes nothing more may have written something before: its end shows when all of that is read.
    pub fn flush(&mut self, reached: &mut Vec<Token>) {
        self.client.iter_mut().chain([&mut self.server]).for_each(|way| way.flush(reached));
    }

    /// Ends both sides at once; returns the marks that will not be reached.
    pub fn cut(&mut self) -> Vec<Token> {
        self.client.iter_mut().chain([&mut self.server]).for_each(Way::abandon);
        self.take_dropped()
    }

    /// The marks that will not be reached because a side is gone.
    pub fn take_dropped(&mut self) -> Vec<Token> {
        let ways = self.client.iter_mut().chain([&mut self.server]);
        ways.flat_map(|way| std::mem::take(&mut way.dropped)).collect()
    }

    /// Whether more than `waiting_bytes_max` wait for the client. The message that is being written does not count;
    /// it may be long.
    pub fn is_too_slow(&self, waiting_bytes_max: usize) -> bool {
        self.client.as_ref().is_some_and(|client| {
            let next = match client.queue.front() {
                Some(QueuedPiece::Text(text)) => text.len(),
                Some(QueuedPiece::Hold(_) | QueuedPiece::Mark(..)) | None => 0,
            };
            holds!("links.next-message-is-counted", next <= client.queued_bytes);
            client.queued_bytes.saturating_sub(next) > waiting_bytes_max
        })
    }

    /// Bytes that wait for the client.
    pub fn waiting_bytes(&self) -> usize {
        self.client.as_ref().map_or(0, |client| client.queued_bytes + client.end.unsent_bytes())
    }

    /// Ends the link because one side is gone. The other side still gets its queued bytes, until `cut_at` at most, and
    /// then a close frame, if there was one.
    pub fn end(&mut self, gone: Side, ended: Option<&Ended>, cut_at: Duration) {
        if self.cut_at.is_some() {
            return;
        }
        if let Some(way) = self.way_mut(gone) {
            way.abandon();
        }
        let stays = match gone {
            Side::Client => Some(&mut self.server),
            Side::Server => self.client.as_mut(),
        };
        if let Some(stays) = stays {
            stays.close = match ended {
                Some(Ended::Closed(close)) => Some(close.clone()),
                Some(Ended::Eof | Ended::Truncated | Ended::Violation(_) | Ended::Broken(_)) | None => None,
            };
        }
        self.end_both(cut_at);
    }

    /// Ends the link while both sides are there. What is queued is still delivered, until `cut_at` at most.
    pub fn end_both(&mut self, cut_at: Duration) {
        self.client.iter().chain([&self.server]).for_each(Way::check);
        let earlier = self.cut_at.map_or(cut_at, |before| before.min(cut_at));
        self.cut_at = Some(earlier);
    }

    /// The engine knows that the link has ended.
    pub fn is_ending(&self) -> bool {
        self.cut_at.is_some()
    }

    /// Whether something waits for a release.
    pub fn is_held(&self) -> bool {
        !self.held().is_empty()
    }

    /// The tokens for which something waits.
    pub fn held(&self) -> Vec<Token> {
        let pieces = self.client.iter().chain([&self.server]).flat_map(|way| &way.queue);
        pieces.filter_map(|piece| if let QueuedPiece::Hold(token) = piece { Some(*token) } else { None }).collect()
    }

    /// Whether something waits to be written.
    pub fn is_busy(&self) -> bool {
        self.server.is_busy() || self.client.as_ref().is_some_and(Way::is_busy)
    }

    /// When the link is cut off, if it is ending.
    pub fn cut_at(&self) -> Option<Duration> {
        self.cut_at
    }

    /// Whether the link has ended and nothing waits any more.
    pub fn is_done(&self, now: Duration) -> bool {
        self.cut_at.is_some_and(|cut_at| now >= cut_at || !self.is_busy())
    }

    fn way(&self, side: Side) -> Option<&Way<E>> {
        match side {
            Side::Client => self.client.as_ref(),
            Side::Server => Some(&self.server),
        }
    }

    fn way_mut(&mut self, side: Side) -> Option<&mut Way<E>> {
        match side {
            Side::Client => self.client.as_mut(),
            Side::Server => Some(&mut self.server),
        }
    }
}

impl<E: LinkEnd> Way<E> {
    fn new(end: E) -> Way<E> {
        Way {
            end,
            queue: VecDeque::new(),
            queued_bytes: 0,
            // Its first message may have come with the handshake.
            has_more: true,
            has_ended: false,
            is_gone: false,
            close: None,
            dropped: Vec::new(),
        }
    }

    /// Whether something waits for this end.
    fn is_busy(&self) -> bool {
        !self.is_gone && (!self.queue.is_empty() || self.end.wants_write() || self.close.is_some())
    }

    /// Whether a poll for writing makes sense.
    fn wants_write(&self) -> bool {
        !self.is_gone
            && (self.end.wants_write()
                || matches!(self.queue.front(), Some(QueuedPiece::Text(_) | QueuedPiece::Mark(..))))
    }

    fn recall(&mut self, token: Token) -> bool {
        let is_its = |piece: &QueuedPiece| matches!(piece, QueuedPiece::Mark(mark, _) if *mark == token);
        let Some(at) = self.queue.iter().position(is_its) else { return false };
        let QueuedPiece::Mark(_, messages) = self.queue[at] else { return false };
        let Some(first) = at.checked_sub(messages) else { return false };
        let mut texts = self.queue.range(first..at).map(|piece| match piece {
            QueuedPiece::Text(text) => Some(text.len()),
            QueuedPiece::Hold(_) | QueuedPiece::Mark(..) => None,
        });
        let Some(bytes) = texts.try_fold(0, |sum, bytes| Some(sum + bytes?)) else { return false };
        holds!("links.recalled-messages-are-counted", bytes <= self.queued_bytes);
        self.queued_bytes = self.queued_bytes.saturating_sub(bytes);
        self.queue.drain(first..=at);
        self.check();
        true
    }

    fn flush(&mut self, reached: &mut Vec<Token>) {
        if self.is_gone {
            return;
        }
        loop {
            while self.end.unsent_bytes() < HANDED_BYTES_MAX
                && let Some(QueuedPiece::Text(_)) = self.queue.front()
            {
                if let Some(QueuedPiece::Text(text)) = self.queue.pop_front() {
                    holds!("links.written-messages-are-counted", text.len() <= self.queued_bytes);
                    self.queued_bytes = self.queued_bytes.saturating_sub(text.len());
                    self.end.send(text);
                }
            }
            if self.queue.is_empty()
                && let Some(close) = self.close.take()
            {
                self.end.close(&close);
            }
            if self.end.wants_write() {
                match self.end.flush() {
                    Flushed::All => {}
                    Flushed::Full => return,
                    Flushed::Broken(_) => return self.abandon(),
                }
            }
            match self.queue.front() {
                Some(QueuedPiece::Mark(token, _)) => {
                    reached.push(*token);
                    self.queue.pop_front();
                }
                // The end takes no more.
                Some(QueuedPiece::Text(_)) if self.end.unsent_bytes() >= HANDED_BYTES_MAX => return,
                Some(QueuedPiece::Text(_)) => {}
                Some(QueuedPiece::Hold(_)) | None => return,
            }
        }
    }

    /// Nothing more reaches this end.
    fn abandon(&mut self) {
        self.dropped.extend(std::mem::take(&mut self.queue).into_iter().filter_map(|piece| match piece {
            QueuedPiece::Mark(token, _) => Some(token),
            QueuedPiece::Text(_) | QueuedPiece::Hold(_) => None,
        }));
        (self.queued_bytes, self.close) = (0, None);
        self.is_gone = true;
    }
}

impl<E> Link<E> {
    /// The same link with other ends, in the order of `ends`: that of the client first.
    pub fn try_map<F, R>(self, mut end: impl FnMut(E) -> Result<F, R>) -> Result<Link<F>, R> {
        let Link { peer, since, client, server, cut_at } = self;
        let client = client.map(|way| way.try_map(&mut end)).transpose()?;
        Ok(Link { peer, since, client, server: server.try_map(&mut end)?, cut_at })
    }
}

impl<E> Way<E> {
    /// Checks the queue of this end. It may be long, so do not call it for each message.
    fn check(&self) {
        let bytes = |piece: &QueuedPiece| match piece {
            QueuedPiece::Text(text) => text.len(),
            QueuedPiece::Hold(_) | QueuedPiece::Mark(..) => 0,
        };
        holds!("links.queued-bytes-are-those-of-its-messages", {
            self.queued_bytes == self.queue.iter().map(bytes).sum::<usize>()
        });
        holds!("links.nothing-waits-for-a-side-that-is-gone", !self.is_gone || self.queue.is_empty());
        holds!("links.marks-are-dropped-with-their-side", self.is_gone || self.dropped.is_empty());
    }

    fn try_map<F, R>(self, map: impl FnOnce(E) -> Result<F, R>) -> Result<Way<F>, R> {
        self.check();
        let Way { end, queue, queued_bytes, has_more, has_ended, is_gone, close, dropped } = self;
        Ok(Way { end: map(end)?, queue, queued_bytes, has_more, has_ended, is_gone, close, dropped })
    }
}

impl Link<End> {
    /// Has the program that this process becomes inherit both ends.
    pub(super) fn share(&self) -> os::Result<()> {
        self.client.iter().chain([&self.server]).try_for_each(|way| way.end.share())
    }
}

impl<E: LinkEnd + AsFd> Link<E> {
    /// The descriptors to poll.
    pub(super) fn interests(&self) -> impl Iterator<Item = Interest<'_>> {
        [(Side::Client, self.client.as_ref()), (Side::Server, Some(&self.server))].into_iter().filter_map(
            |(side, way)| {
                let way = way?;
                let mut flags = PollFlags::empty();
                flags.set(PollFlags::IN, self.reads(side));
                flags.set(PollFlags::OUT, way.wants_write());
                (!flags.is_empty()).then(|| Interest { side, fd: way.end.as_fd(), flags })
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::engine::Transport;

    /// More than a socket takes, and more than is handed to an end at once.
    const LONG: usize = 8 << 20;

    #[test]
    fn answer_is_taken_back_before_it_is_handed_over() {
        let check = |name: &str, ahead_bytes: &[usize], is_held: bool, expect: bool| {
            let (ours, _theirs) = UnixStream::pair().expect("a pair");
            ours.set_nonblocking(true).expect("a socket can be");
            let peer =
                Peer { transport: Transport::WebSocket, pid: None, terminal: None, variables: Default::default() };
            let mut link = Link::new(peer, None, End::connected(ours));
            let text = |bytes: usize| Utf8Bytes::from("x".repeat(bytes));
            ahead_bytes.iter().for_each(|bytes| link.send(Side::Server, text(*bytes)));
            if is_held {
                link.hold(Side::Server, 7);
            }
            link.send(Side::Server, text(30));
            link.mark(Side::Server, 7, 1);
            let mut reached = Vec::new();
            link.flush(&mut reached);
            assert_eq!(link.recall(7), expect, "{name}");
            assert!(
                !link.recall(7) && link.server.queue.iter().all(|piece| matches!(piece, QueuedPiece::Hold(_))),
                "{name}"
            );
            assert_eq!(link.server.queued_bytes, 0, "{name}");
        };
        check("it waits for its commit", &[], true, true);
        check("it waits for the server, which does not read", &[LONG], false, true);
        check("both", &[LONG], true, true);
        check("it is written", &[], false, false);
    }

    #[test]
    fn lines_of_one_mark_are_taken_back_together() {
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("a socket can be");
        let peer = Peer { transport: Transport::WebSocket, pid: None, terminal: None, variables: Default::default() };
        let mut link = Link::new(peer, None, End::connected(ours));
        for line in ["before", "answer", "reason"] {
            link.send(Side::Server, Utf8Bytes::from(line));
        }
        link.mark(Side::Server, 7, 2);
        assert!(link.recall(7));
        assert_eq!((link.server.queue.len(), link.server.queued_bytes), (1, "before".len()));
        link.send(Side::Server, Utf8Bytes::from("reason"));
        link.mark(Side::Server, 8, 2);
        link.server.queue.pop_front();
        assert!(!link.recall(8), "a part of it has left the queue");
    }
}
