//! One direction of the relay: what was read from one side and waits to be taken by the other.
//!
//! While something waits, nothing more is read, so what a direction holds is bounded by one read and one line, and a
//! reader that stops stops its writer, as a pipe would.

use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use rustix::event::PollFlags;

use super::pipes::{Broken, Feeder, Sink, Source, Taken};
use crate::engine::Token;
use crate::wire::{Frame, Framer, LineEnd, Side};

#[derive(Debug)]
pub(super) struct Direction {
    pub(super) from: Side,
    /// `None` once nothing more will be read.
    source: Option<Source>,
    /// `None` once nothing more can be written.
    sink: Option<Sink>,
    pub(super) framer: Framer,
    /// What may go out and was not taken yet.
    pub(super) outgoing: Outgoing,
    /// The end has been told to the engine.
    told_closed: bool,
    given_up: bool,
    /// Lines of ours can go in: its source has not ended, or it outlives that.
    is_open: bool,
    client: ClientsEnd,
    pub(super) seam: Seam,
    last_read: Duration,
    last_taken: Duration,
    /// Since when its reader takes nothing of what waits for it.
    stalled_since: Option<Duration>,
}

/// Whose end the client's is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientsEnd {
    /// That of the client that has started us: the direction ends with it.
    Lasting,
    /// That of whoever attaches himself, or nobody's: the direction outlives it.
    Passing,
}

/// Where a line of ours can go in: between two others.
#[derive(Debug, Default)]
pub(super) struct Seam {
    /// What was let go last is the middle of a line.
    in_long_line: bool,
    /// What was let go last is the last line of its side, and has no end.
    lacks_line_end: bool,
    /// Lines of ours that wait for its end.
    injected_late: Vec<(Vec<u8>, Option<Token>)>,
}

/// Bytes of lines of ours that may wait for a side; with more it is taken not to read any more.
const INJECTED_BYTES_MAX: usize = 4 << 20;

/// Reads of what a client has left that is gone: at 64 KiB a read, more than a socket holds.
const REST_READS_MAX: usize = 1_024;

/// What shows a hang-up: it is always polled for, but for a socket whose other side has only stopped to write.
#[cfg(target_os = "linux")]
const HANG_UP: PollFlags = PollFlags::RDHUP;
#[cfg(not(target_os = "linux"))]
const HANG_UP: PollFlags = PollFlags::empty();

/// What goes out, in order.
#[derive(Debug, Default)]
pub(super) struct Outgoing(VecDeque<Piece>);

/// Something that goes out.
#[derive(Debug)]
enum Piece {
    /// A stretch of the framer's buffer.
    Read(Range<usize>),
    /// Bytes of ours, and how many of them have been taken.
    Own { bytes: Vec<u8>, taken: usize },
    /// Nothing behind this goes out until it is released.
    Hold(Token),
    /// All before this has gone out.
    Mark(Token),
}

/// What stands first in what goes out.
enum Front<'a> {
    Bytes(&'a [u8]),
    Held,
    Reached(Token),
    Nothing,
}

impl Outgoing {
    /// Lets a stretch of what was read go out, after all that were let go before it.
    pub(super) fn add(&mut self, range: Range<usize>) {
        match self.0.back_mut() {
            Some(Piece::Read(last)) if last.end == range.start => last.end = range.end,
            Some(_) | None => self.0.push_back(Piece::Read(range)),
        }
    }

    /// Lets bytes of ours go out, after all that was let go before them.
    pub(super) fn add_own(&mut self, bytes: Vec<u8>) {
        self.0.push_back(Piece::Own { bytes, taken: 0 });
    }

    /// Lets nothing go out behind this until it is released.
    pub(super) fn hold(&mut self, token: Token) {
        self.0.push_back(Piece::Hold(token));
    }

    /// Has it told when all that was let go before this has gone out.
    pub(super) fn mark(&mut self, token: Token) {
        self.0.push_back(Piece::Mark(token));
    }

    fn release(&mut self, token: Token) {
        self.0.retain(|piece| !matches!(piece, Piece::Hold(held) if *held == token));
    }

    fn front<'a>(&'a self, framer: &'a Framer) -> Front<'a> {
        match self.0.front() {
            Some(Piece::Read(range)) => Front::Bytes(framer.bytes(range.clone())),
            Some(Piece::Own { bytes, taken }) => Front::Bytes(&bytes[*taken..]),
            Some(Piece::Hold(_)) => Front::Held,
            Some(Piece::Mark(token)) => Front::Reached(*token),
            None => Front::Nothing,
        }
    }

    fn is_held(&self) -> bool {
        matches!(self.0.front(), Some(Piece::Hold(_)))
    }

    /// Bytes of ours that wait.
    fn own_bytes(&self) -> usize {
        let own = self.0.iter().map(|piece| match piece {
            Piece::Own { bytes, taken } => bytes.len() - taken,
            Piece::Read(_) | Piece::Hold(_) | Piece::Mark(_) => 0,
        });
        own.sum()
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// So many bytes of the first piece have been taken.
    fn taken(&mut self, bytes: usize) {
        let is_gone = match self.0.front_mut() {
            Some(Piece::Read(range)) => {
                range.start += bytes;
                range.start == range.end
            }
            Some(Piece::Own { bytes: own, taken }) => {
                *taken += bytes;
                *taken == own.len()
            }
            Some(Piece::Hold(_) | Piece::Mark(_)) | None => false,
        };
        if is_gone {
            self.0.pop_front();
        }
    }
}

impl Seam {
    fn inject(&mut self, mut bytes: Vec<u8>, mark: Option<Token>, outgoing: &mut Outgoing) {
        if std::mem::take(&mut self.lacks_line_end) {
            bytes.insert(0, b'\n');
        }
        if self.in_long_line {
            self.injected_late.push((bytes, mark));
            return;
        }
        outgoing.add_own(bytes);
        if let Some(token) = mark {
            outgoing.mark(token);
        }
    }

    /// This frame was added to what goes out: what waits for the end of a long line goes behind it, where it is one.
    pub(super) fn let_go(&mut self, frame: &Frame, outgoing: &mut Outgoing) {
        self.in_long_line = matches!(frame, Frame::Piece { .. });
        self.lacks_line_end = match frame {
            Frame::Line { end, .. } | Frame::LastPiece { end, .. } => *end == LineEnd::EndOfStream,
            Frame::Piece { .. } => false,
        };
        if !self.in_long_line {
            for (bytes, mark) in std::mem::take(&mut self.injected_late) {
                self.inject(bytes, mark, outgoing);
            }
        }
    }
}

/// What a direction waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    /// For its source to have something.
    ToRead,
    /// For its sink to take something.
    ToWrite,
    /// For what it holds back to be released.
    Held,
    /// For nothing.
    Idle,
}

impl Direction {
    pub(super) fn new(from: Side, source: Source, sink: Sink) -> Direction {
        Direction::between(from, Some(source), Some(sink), ClientsEnd::Lasting)
    }

    fn between(from: Side, source: Option<Source>, sink: Option<Sink>, client: ClientsEnd) -> Direction {
        Direction {
            from,
            source,
            sink,
            client,
            framer: Framer::default(),
            outgoing: Outgoing::default(),
            told_closed: false,
            given_up: false,
            is_open: true,
            seam: Seam::default(),
            last_read: Duration::ZERO,
            last_taken: Duration::ZERO,
            stalled_since: None,
        }
    }

    /// A direction to the server that nobody writes into but ourselves, until a client is attached.
    pub(super) fn from_nobody(sink: Sink) -> Direction {
        let client = ClientsEnd::Passing;
        Direction { told_closed: true, ..Direction::between(Side::Client, None, Some(sink), client) }
    }

    /// A direction from the server that nobody reads until a client is attached; what is let go before is dropped.
    pub(super) fn to_nobody(source: Source) -> Direction {
        Direction::between(Side::Server, Some(source), None, ClientsEnd::Passing)
    }

    /// A client writes into it from now on.
    pub(super) fn attach_source(&mut self, source: Source) {
        self.source = Some(source);
        self.told_closed = false;
    }

    /// It does so no more. A last line that it did not end is ended, so that the next line begins by itself.
    pub(super) fn detach_source(&mut self) {
        self.source = None;
        self.told_closed = true;
        if std::mem::take(&mut self.seam.lacks_line_end) {
            self.outgoing.add_own(vec![b'\n']);
        }
    }

    /// Whether a client is attached that writes into it.
    pub(super) fn has_client(&self) -> bool {
        !self.told_closed
    }

    /// A client reads it from now on.
    pub(super) fn attach_sink(&mut self, sink: Sink) {
        self.sink = Some(sink);
    }

    /// It does so no more; what waits for it is dropped.
    pub(super) fn detach_sink(&mut self) {
        self.sink = None;
        self.outgoing = Outgoing::default();
        (self.seam, self.stalled_since) = (Seam::default(), None);
        self.framer.release_framed();
    }

    /// Since when the reader takes nothing of what waits for it.
    pub(super) fn stalled_since(&self) -> Option<Duration> {
        self.stalled_since
    }

    pub(super) fn waiting(&self) -> Waiting {
        if self.outgoing.is_held() {
            Waiting::Held
        } else if !self.outgoing.is_empty() {
            Waiting::ToWrite
        } else if self.source.is_some() {
            Waiting::ToRead
        } else {
            Waiting::Idle
        }
    }

    /// What to poll for.
    pub(super) fn interest(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        match self.waiting() {
            Waiting::ToRead => self.source.as_ref().map(|source| (source.as_fd(), PollFlags::IN)),
            Waiting::ToWrite => self.sink.as_ref().map(|sink| (sink.as_fd(), PollFlags::OUT)),
            Waiting::Held | Waiting::Idle => None,
        }
    }

    /// Reads what is there, and gives what of it can be handed on. At the end of the stream, that is everything.
    pub(super) fn read(&mut self, elapsed: Duration, frames: &mut Vec<Frame>) {
        let Some(source) = &self.source else { return };
        match source.read(self.framer.buffer_mut()) {
            // Nobody takes it any more; it is read so that its writer is not stuck, and its end is seen.
            Taken::Some if self.given_up => self.framer = Framer::default(),
            Taken::Some => {
                self.last_read = elapsed;
                frames.extend(std::iter::from_fn(|| self.framer.next_frame()));
            }
            Taken::Nothing => {}
            Taken::End => self.end(frames),
        }
    }

    /// Reads what a writer that is gone has left, whether it can be handed on yet or not.
    pub(super) fn read_rest(&mut self, elapsed: Duration, frames: &mut Vec<Frame>) {
        // More than a socket holds cannot be there: nobody writes into it any more.
        for _ in 0..REST_READS_MAX {
            let Some(source) = &self.source else { return };
            match source.read(self.framer.buffer_mut()) {
                Taken::Some => self.last_read = elapsed,
                Taken::Nothing | Taken::End => break,
            }
        }
        frames.extend(std::iter::from_fn(|| self.framer.next_frame()));
        self.end(frames);
    }

    /// Takes the stream as ended, and gives what is left of it.
    pub(super) fn end(&mut self, frames: &mut Vec<Frame>) {
        self.source = None;
        self.is_open = self.client == ClientsEnd::Passing;
        frames.extend(self.framer.last_frame());
    }

    /// Writes as much as is taken, and adds the marks that were reached.
    pub(super) fn flush(&mut self, elapsed: Duration, reached: &mut Vec<Token>) {
        loop {
            let bytes = match self.outgoing.front(&self.framer) {
                Front::Bytes(bytes) => bytes,
                Front::Reached(token) => {
                    reached.push(token);
                    self.outgoing.0.pop_front();
                    continue;
                }
                Front::Held => return,
                Front::Nothing => break,
            };
            let written = match &self.sink {
                Some(sink) => sink.write(bytes),
                None => Err(Broken),
            };
            match written {
                Ok(0) => {
                    self.stalled_since.get_or_insert(elapsed);
                    return;
                }
                Ok(bytes) => {
                    self.outgoing.taken(bytes);
                    self.last_taken = elapsed;
                    self.stalled_since = None;
                }
                Err(Broken) => {
                    self.lose_reader();
                    return;
                }
            }
        }
        self.framer.release_framed();
    }

    /// Nobody takes what is written any more.
    fn lose_reader(&mut self) {
        match (self.from, self.client) {
            (Side::Server, ClientsEnd::Passing) => self.detach_sink(),
            (Side::Server, ClientsEnd::Lasting) | (Side::Client, ClientsEnd::Lasting | ClientsEnd::Passing) => {
                self.give_up()
            }
        }
    }

    /// Releases what was held back.
    pub(super) fn release(&mut self, token: Token) {
        self.outgoing.release(token);
    }

    /// Lets bytes of ours go out between two lines: at once, or once the long line is over that passes in pieces.
    pub(super) fn inject(&mut self, bytes: Vec<u8>, mark: Option<Token>) {
        self.seam.inject(bytes, mark, &mut self.outgoing);
    }

    /// Whether a line of ours can still reach the other side, and the other side takes what it is sent.
    pub(super) fn takes_injections(&self) -> bool {
        let late_bytes: usize = self.seam.injected_late.iter().map(|(bytes, _)| bytes.len()).sum();
        self.sink.is_some() && self.is_open && self.outgoing.own_bytes() + late_bytes < INJECTED_BYTES_MAX
    }

    /// Drops what waits and closes both ends: whoever writes into them learns it as from a pipe. Only of a client that has
    /// attached itself the end stays open, and what it writes is read away: it may still be told something.
    pub(super) fn give_up(&mut self) {
        self.outgoing = Outgoing::default();
        self.framer = Framer::default();
        self.sink = None;
        self.given_up = true;
        self.is_open = false;
        match (self.from, self.client) {
            (Side::Client, ClientsEnd::Passing) => {}
            (Side::Client, ClientsEnd::Lasting) => {
                self.source = None;
                // The server no longer reads. That is no word of the client's end.
                self.told_closed = true;
            }
            (Side::Server, ClientsEnd::Lasting | ClientsEnd::Passing) => self.source = None,
        }
    }

    /// Both ends were closed because nobody takes what is written.
    pub(super) fn was_given_up(&self) -> bool {
        self.given_up
    }

    /// What to poll to see that the source has no writer any more, without reading it.
    pub(super) fn source_hang_up(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        self.source.as_ref().map(|source| (source.as_fd(), HANG_UP))
    }

    /// What to poll to see that the sink has no reader any more, without writing to it.
    pub(super) fn sink_hang_up(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        self.sink.as_ref().map(|sink| (sink.as_fd(), HANG_UP))
    }

    /// What to poll to see that whoever is at the source has closed both its ends.
    pub(super) fn source_gone(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        self.source.as_ref().map(|source| (source.as_fd(), PollFlags::empty()))
    }

    /// The same of the sink.
    pub(super) fn sink_gone(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        self.sink.as_ref().map(|sink| (sink.as_fd(), PollFlags::empty()))
    }

    /// Whether the engine is to be told that this side has closed its stream and all of it has been handed on; true once.
    pub(super) fn has_closed(&mut self) -> bool {
        self.waiting() == Waiting::Idle && !std::mem::replace(&mut self.told_closed, true)
    }

    /// Whether nothing more will be read, all of it has been handed on, and that was not told yet.
    pub(super) fn is_at_end(&self) -> bool {
        self.waiting() == Waiting::Idle && !self.told_closed
    }

    /// Closes the sink.
    pub(super) fn close_sink(&mut self) -> Option<Feeder> {
        self.sink.take().and_then(Sink::close)
    }

    /// When the source has been silent for `quiet_max`, or the sink has taken nothing for `stall_max`, both counted from
    /// `since` at the earliest.
    pub(super) fn drained_at(
        &self,
        since: Duration,
        quiet_max: Duration,
        stall_max: Option<Duration>,
    ) -> Option<Duration> {
        match self.waiting() {
            Waiting::ToRead => Some(since.max(self.last_read).max(self.last_taken) + quiet_max),
            Waiting::ToWrite => stall_max.map(|stall_max| since.max(self.last_taken) + stall_max),
            // The engine releases it in time.
            Waiting::Held | Waiting::Idle => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_ours_goes_right_behind_the_long_line_that_it_waits_for() {
        let (mut seam, mut outgoing) = (Seam::default(), Outgoing::default());
        let mut add = |seam: &mut Seam, frame: &Frame, range: Range<usize>| {
            outgoing.add(range);
            seam.let_go(frame, &mut outgoing);
            outgoing.0.iter().map(|piece| matches!(piece, Piece::Own { .. })).collect::<Vec<_>>()
        };
        assert_eq!(add(&mut seam, &Frame::Piece { range: 0..2 }, 0..2), [false]);
        seam.inject(b"ours\n".to_vec(), None, &mut Outgoing::default());
        let last = Frame::LastPiece { range: 2..4, line_bytes: 3, end: LineEnd::Newline };
        assert_eq!(add(&mut seam, &last, 2..4), [false, true]);
        let line = Frame::Line { range: 4..6, end: LineEnd::Newline };
        assert_eq!(add(&mut seam, &line, 4..6), [false, true, false]);
    }
}
