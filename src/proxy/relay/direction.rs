//! One direction of the relay: bytes that were read from one side and are queued for the other.
//!
//! A direction reads nothing while output is queued. So it holds at most one read and one line, and a stalled reader
//! stalls the writer, as with a pipe.

use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use super::pipes::{Broken, LONG_BYTES, ReadEnd, ReadOutcome, WriteEnd};
use crate::engine::Token;
use crate::invariants::holds;
use crate::os::polling::PollFlags;
use crate::wire::{Frame, Framer, LineEnd, Side};

#[derive(Debug)]
pub struct Direction<S, K> {
    from: Side,
    /// `None` after the end of the input.
    source: Option<S>,
    /// `None` once nothing more can be written.
    sink: Option<K>,
    pub(super) framer: Framer,
    /// Queued output.
    pub(super) outgoing: Outgoing,
    /// The engine knows that this side has closed.
    close_reported: bool,
    abandoned: bool,
    /// Own lines can be inserted: the source is open, or the direction outlives it.
    is_open: bool,
    client: ClientKind,
    pub(super) seam: Seam,
    last_read: Duration,
    last_write: Duration,
    /// Since when the reader accepts nothing of the queued output.
    stalled_since: Option<Duration>,
}

/// Which client a direction serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientKind {
    /// The client that started us: the direction ends with it.
    Launcher,
    /// An attached client, or none: the direction outlives it.
    Attached,
}

/// Tracks where an own line may be inserted: only between two lines.
#[derive(Debug, Default)]
pub(super) struct Seam {
    /// The last queued bytes are the middle of a line.
    in_long_line: bool,
    /// The last queued line is the last one of its side and has no line end.
    lacks_line_end: bool,
    /// Own lines that wait for the end of a long line.
    injected_late: Vec<(Vec<u8>, Option<Token>)>,
}

/// Limit of queued own bytes per side, in bytes; beyond it, the side counts as not reading.
const INJECTED_BYTES_MAX: usize = 4 << 20;

/// Reads of what a departed client has left: at 64 KiB each, more than a socket holds.
const REST_READS_MAX: usize = 1_024;

/// Detects a peer that has closed both its ends: Linux always reports that. macOS does not; there it is noticed at the next write.
pub(super) const BOTH_ENDS: PollFlags = PollFlags::empty();

/// The output queue, in order.
#[derive(Debug, Default)]
pub(super) struct Outgoing(VecDeque<OutputPiece>);

#[derive(Debug)]
enum OutputPiece {
    /// A range of the framer's buffer.
    Read(Range<usize>),
    /// Own bytes, and how many of them are written.
    Own { bytes: Vec<u8>, taken: usize },
    /// Blocks the queue until it is released.
    Hold(Token),
    /// Reports its token once everything queued before it is written: at the end, the bytes that it is about.
    Mark(Token, usize),
}

/// The head of the queue.
enum Front<'a> {
    Bytes(&'a [u8]),
    Held,
    Reached(Token),
    Nothing,
}

impl Outgoing {
    /// Queues a range of the framer's buffer.
    pub(super) fn add(&mut self, range: Range<usize>) {
        if let Some(OutputPiece::Read(last)) = self.0.back() {
            holds!("pipes.reads-are-queued-in-order", last.end <= range.start);
        }
        match self.0.back_mut() {
            Some(OutputPiece::Read(last)) if last.end == range.start => last.end = range.end,
            Some(_) | None => self.0.push_back(OutputPiece::Read(range)),
        }
    }

    /// Queues own bytes.
    pub(super) fn add_own(&mut self, bytes: Vec<u8>) {
        self.0.push_back(OutputPiece::Own { bytes, taken: 0 });
    }

    /// Blocks everything queued after this until [`Direction::release`].
    pub(super) fn hold(&mut self, token: Token) {
        self.0.push_back(OutputPiece::Hold(token));
    }

    /// Reports `token` once everything queued before it is written; the last `bytes` of that are what it is about.
    pub(super) fn mark(&mut self, token: Token, bytes: usize) {
        self.0.push_back(OutputPiece::Mark(token, bytes));
        holds!("pipes.marks-follow-what-they-are-about", self.is_whole(self.0.len() - 1));
    }

    /// Removes a mark and the bytes that it is about, unless some of them are written. Returns whether it did.
    fn recall(&mut self, token: Token) -> bool {
        let is_its = |piece: &OutputPiece| matches!(piece, OutputPiece::Mark(mark, _) if *mark == token);
        let Some(at) = self.0.iter().position(is_its) else { return false };
        if !self.is_whole(at) {
            return false;
        }
        let (before, OutputPiece::Mark(_, bytes)) = (at - 1, &self.0[at]) else { return false };
        let bytes = *bytes;
        let is_empty = match &mut self.0[before] {
            OutputPiece::Read(range) => {
                range.end -= bytes;
                range.start == range.end
            }
            // A line end of the line before may be in front.
            OutputPiece::Own { bytes: own, taken } => {
                own.truncate(own.len() - bytes);
                own.len() == *taken
            }
            OutputPiece::Hold(_) | OutputPiece::Mark(..) => return false,
        };
        self.0.remove(at);
        self.drop_line_end(at);
        if is_empty {
            self.0.remove(before);
        }
        true
    }

    /// A line that had no end is taken back: a line of ours that begins here does not end it any more.
    fn drop_line_end(&mut self, at: usize) {
        if let Some(OutputPiece::Own { bytes, taken: 0 }) = self.0.get_mut(at)
            && bytes.first() == Some(&b'\n')
        {
            bytes.remove(0);
            if bytes.is_empty() {
                self.0.remove(at);
            }
        }
    }

    /// Whether nothing follows what a mark is about.
    fn ends_with(&self, token: Token) -> bool {
        matches!(self.0.back(), Some(OutputPiece::Mark(last, _)) if *last == token)
    }

    fn release(&mut self, token: Token) {
        self.0.retain(|piece| !matches!(piece, OutputPiece::Hold(held) if *held == token));
    }

    fn front<'a>(&'a self, framer: &'a Framer) -> Front<'a> {
        match self.0.front() {
            Some(OutputPiece::Read(range)) => Front::Bytes(framer.bytes(range.clone())),
            Some(OutputPiece::Own { bytes, taken }) => Front::Bytes(&bytes[*taken..]),
            Some(OutputPiece::Hold(_)) => Front::Held,
            Some(OutputPiece::Mark(token, _)) => Front::Reached(*token),
            None => Front::Nothing,
        }
    }

    /// Whether all that a mark is about waits: where the bytes begin that it may take back.
    fn is_whole(&self, at: usize) -> bool {
        let (Some(before), Some(OutputPiece::Mark(_, bytes))) = (at.checked_sub(1), self.0.get(at)) else {
            return false;
        };
        match &self.0[before] {
            OutputPiece::Read(range) => range.len() >= *bytes,
            OutputPiece::Own { bytes: own, taken } => own.len() - *taken >= *bytes,
            OutputPiece::Hold(_) | OutputPiece::Mark(..) => false,
        }
    }

    fn is_held(&self) -> bool {
        matches!(self.0.front(), Some(OutputPiece::Hold(_)))
    }

    /// Queued own bytes.
    fn own_bytes(&self) -> usize {
        let own = self.0.iter().map(|piece| match piece {
            OutputPiece::Own { bytes, taken } => bytes.len() - taken,
            OutputPiece::Read(_) | OutputPiece::Hold(_) | OutputPiece::Mark(..) => 0,
        });
        own.sum()
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes `bytes` from the head of the queue.
    fn taken(&mut self, bytes: usize) {
        let has_bytes = match self.0.front() {
            Some(OutputPiece::Read(range)) => range.len() >= bytes,
            Some(OutputPiece::Own { bytes: own, taken }) => own.len() - *taken >= bytes,
            Some(OutputPiece::Hold(_) | OutputPiece::Mark(..)) | None => false,
        };
        holds!("pipes.writes-only-what-is-queued", has_bytes);
        let is_gone = match self.0.front_mut() {
            Some(OutputPiece::Read(range)) => {
                range.start += bytes;
                range.start == range.end
            }
            Some(OutputPiece::Own { bytes: own, taken }) => {
                *taken += bytes;
                *taken == own.len()
            }
            Some(OutputPiece::Hold(_) | OutputPiece::Mark(..)) | None => false,
        };
        if is_gone {
            self.0.pop_front();
        }
    }
}

impl Seam {
    fn inject(&mut self, mut bytes: Vec<u8>, mark: Option<Token>, outgoing: &mut Outgoing) {
        let length = bytes.len();
        if std::mem::take(&mut self.lacks_line_end) {
            bytes.insert(0, b'\n');
        }
        if self.in_long_line {
            self.injected_late.push((bytes, mark));
            return;
        }
        outgoing.add_own(bytes);
        if let Some(token) = mark {
            outgoing.mark(token, length);
        }
    }

    /// Notes that `frame` is queued. If it ends a long line, the own lines that waited for that end follow it.
    pub(super) fn frame_queued(&mut self, frame: &Frame, outgoing: &mut Outgoing) {
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    /// The source to have input.
    ToRead,
    /// The sink to accept output.
    ToWrite,
    /// The release of the head of the queue.
    Held,
    Idle,
}

impl<S: ReadEnd, K: WriteEnd> Direction<S, K> {
    pub fn new(from: Side, source: S, sink: K) -> Direction<S, K> {
        Direction::between(from, Some(source), Some(sink), ClientKind::Launcher)
    }

    fn between(from: Side, source: Option<S>, sink: Option<K>, client: ClientKind) -> Direction<S, K> {
        Direction {
            from,
            source,
            sink,
            client,
            framer: Framer::default(),
            outgoing: Outgoing::default(),
            close_reported: false,
            abandoned: false,
            is_open: true,
            seam: Seam::default(),
            last_read: Duration::ZERO,
            last_write: Duration::ZERO,
            stalled_since: None,
        }
    }

    /// A direction to the server without a client: only own lines go in until a client attaches.
    pub(super) fn without_client_input(sink: K) -> Direction<S, K> {
        let client = ClientKind::Attached;
        Direction { close_reported: true, ..Direction::between(Side::Client, None, Some(sink), client) }
    }

    /// A direction from the server without a client: output is dropped until a client attaches.
    pub(super) fn without_client_output(source: S) -> Direction<S, K> {
        Direction::between(Side::Server, Some(source), None, ClientKind::Attached)
    }

    /// Connects a client's input.
    pub(super) fn attach_source(&mut self, source: S) {
        self.source = Some(source);
        self.close_reported = false;
    }

    /// Disconnects the client's input. If its last line has no line end, adds one, so that the next line is separate.
    pub(super) fn detach_source(&mut self) {
        self.source = None;
        self.close_reported = true;
        if std::mem::take(&mut self.seam.lacks_line_end) {
            self.outgoing.add_own(vec![b'\n']);
        }
    }

    /// Whether a client's input is connected.
    pub(super) fn has_client(&self) -> bool {
        !self.close_reported
    }

    /// Connects a client's output.
    pub(super) fn attach_sink(&mut self, sink: K) {
        self.sink = Some(sink);
    }

    /// Disconnects the client's output and drops what is queued for it.
    pub(super) fn detach_sink(&mut self) {
        self.sink = None;
        self.outgoing = Outgoing::default();
        (self.seam, self.stalled_since) = (Seam::default(), None);
        self.framer.release_framed();
    }

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

    /// Reads available input and returns its complete frames; at the end of the stream, returns the rest too.
    pub fn read(&mut self, elapsed: Duration, frames: &mut Vec<Frame>) {
        let Some(source) = &self.source else { return };
        holds!("pipes.reads-only-once-all-is-written", self.outgoing.is_empty());
        match source.read(self.framer.buffer_mut()) {
            // The reader is gone. Reading on keeps the writer from blocking and detects its end.
            ReadOutcome::Some if self.abandoned => self.framer = Framer::default(),
            ReadOutcome::Some => {
                self.last_read = elapsed;
                frames.extend(std::iter::from_fn(|| self.framer.next_frame()));
            }
            ReadOutcome::Nothing => {}
            ReadOutcome::End => self.end(frames),
        }
    }

    /// Reads all that a departed writer has left, regardless of backpressure.
    pub(super) fn read_rest(&mut self, elapsed: Duration, frames: &mut Vec<Frame>) {
        // Without a writer, the socket cannot hold more than this.
        for _ in 0..REST_READS_MAX {
            let Some(source) = &self.source else { return };
            match source.read(self.framer.buffer_mut()) {
                ReadOutcome::Some => self.last_read = elapsed,
                ReadOutcome::Nothing | ReadOutcome::End => break,
            }
        }
        frames.extend(std::iter::from_fn(|| self.framer.next_frame()));
        self.end(frames);
    }

    /// Ends the stream and returns the rest of it.
    pub(super) fn end(&mut self, frames: &mut Vec<Frame>) {
        self.source = None;
        self.is_open = self.client == ClientKind::Attached;
        frames.extend(self.framer.last_frame());
    }

    /// Writes as much as the sink accepts, and collects the marks that were reached.
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
                Some(sink) => {
                    if bytes.len() >= LONG_BYTES {
                        sink.expect(bytes.len());
                    }
                    sink.write(bytes)
                }
                None => Err(Broken),
            };
            match written {
                Ok(0) => {
                    self.stalled_since.get_or_insert(elapsed);
                    return;
                }
                Ok(bytes) => {
                    self.outgoing.taken(bytes);
                    self.last_write = elapsed;
                    self.stalled_since = None;
                }
                Err(Broken) => {
                    self.lose_reader();
                    return;
                }
            }
        }
        holds!("pipes.long-line-ends-before-lines-of-ours", {
            self.seam.injected_late.is_empty() || self.seam.in_long_line
        });
        self.framer.release_framed();
        self.settle();
    }

    /// A long line that has passed needs no wide pipes any more.
    pub(super) fn settle(&self) {
        let unfinished = self.framer.unfinished_bytes();
        if let Some(source) = &self.source {
            source.expect(unfinished);
        }
        if let Some(sink) = self.sink.as_ref().filter(|_| self.outgoing.is_empty() && unfinished == 0) {
            sink.expect(0);
        }
    }

    /// Whether a pipe is wider than it was found.
    pub(super) fn is_wide(&self) -> bool {
        self.source.as_ref().is_some_and(ReadEnd::is_wide) || self.sink.as_ref().is_some_and(WriteEnd::is_wide)
    }

    /// Handles a sink whose reader is gone.
    fn lose_reader(&mut self) {
        match (self.from, self.client) {
            (Side::Server, ClientKind::Attached) => self.detach_sink(),
            (Side::Server, ClientKind::Launcher) | (Side::Client, ClientKind::Launcher | ClientKind::Attached) => {
                self.abandon()
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.outgoing.is_empty()
    }

    /// The tokens for which something waits.
    pub fn held(&self) -> Vec<Token> {
        let held = |piece: &OutputPiece| if let OutputPiece::Hold(token) = piece { Some(*token) } else { None };
        self.outgoing.0.iter().filter_map(held).collect()
    }

    /// The marks whose bytes are written in part.
    pub fn begun_marks(&self) -> Vec<Token> {
        let pieces = self.outgoing.0.iter().enumerate();
        let marks = pieces
            .filter_map(|(at, piece)| if let OutputPiece::Mark(token, _) = piece { Some((at, *token)) } else { None });
        marks.filter(|(at, _)| !self.outgoing.is_whole(*at)).map(|(_, token)| token).collect()
    }

    pub(super) fn release(&mut self, token: Token) {
        self.outgoing.release(token);
    }

    /// Takes back the bytes that a mark is about, unless some of them are written. Returns whether it did.
    pub(super) fn recall(&mut self, token: Token) -> bool {
        let late = self.seam.injected_late.len();
        self.seam.injected_late.retain(|(_, mark)| *mark != Some(token));
        if self.seam.injected_late.len() < late {
            return true;
        }
        let is_last = self.outgoing.ends_with(token);
        let is_taken_back = self.outgoing.recall(token);
        // The line before it has its end.
        self.seam.lacks_line_end &= !(is_last && is_taken_back);
        is_taken_back
    }

    /// Inserts own bytes between two lines: at once, or after the long line in progress.
    pub(super) fn inject(&mut self, bytes: Vec<u8>, mark: Option<Token>) {
        self.seam.inject(bytes, mark, &mut self.outgoing);
    }

    /// Whether own lines can still reach the other side, and the other side reads.
    pub(super) fn takes_injections(&self) -> bool {
        let late_bytes: usize = self.seam.injected_late.iter().map(|(bytes, _)| bytes.len()).sum();
        self.sink.is_some() && self.is_open && self.outgoing.own_bytes() + late_bytes < INJECTED_BYTES_MAX
    }

    /// Drops the queue and closes both ends, so that the writers see a closed pipe. An attached client keeps its input
    /// open and its lines are discarded, because it may still get replies.
    pub(super) fn abandon(&mut self) {
        self.outgoing = Outgoing::default();
        self.framer = Framer::default();
        self.sink = None;
        self.abandoned = true;
        self.is_open = false;
        match (self.from, self.client) {
            (Side::Client, ClientKind::Attached) => {}
            (Side::Client, ClientKind::Launcher) => {
                self.source = None;
                // Only the server stopped reading; the client has not closed its end.
                self.close_reported = true;
            }
            (Side::Server, ClientKind::Launcher | ClientKind::Attached) => self.source = None,
        }
    }

    /// Whether both ends were closed because the reader is gone.
    pub(super) fn was_abandoned(&self) -> bool {
        self.abandoned
    }

    /// Whether this side has closed and everything is forwarded; true only once, since the engine is then informed.
    pub(super) fn has_closed(&mut self) -> bool {
        self.waiting() == Waiting::Idle && !std::mem::replace(&mut self.close_reported, true)
    }

    /// As [`Direction::has_closed`], without marking the end as reported.
    pub(super) fn is_at_end(&self) -> bool {
        self.waiting() == Waiting::Idle && !self.close_reported
    }

    /// Takes the sink, for its owner to close.
    pub(super) fn take_sink(&mut self) -> Option<K> {
        self.sink.take()
    }

    /// When the source has been silent for `quiet_max`, or the sink has accepted nothing for `stall_max`; both count
    /// from `since` at the earliest.
    pub(super) fn drained_at(
        &self,
        since: Duration,
        quiet_max: Duration,
        stall_max: Option<Duration>,
    ) -> Option<Duration> {
        match self.waiting() {
            Waiting::ToRead => Some(since.max(self.last_read).max(self.last_write) + quiet_max),
            Waiting::ToWrite => stall_max.map(|stall_max| since.max(self.last_write) + stall_max),
            // The engine has a deadline of its own for the release.
            Waiting::Held | Waiting::Idle => None,
        }
    }
}

impl<S: ReadEnd + AsFd, K: WriteEnd + AsFd> Direction<S, K> {
    /// The descriptor to poll, and for what.
    pub(super) fn interest(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        match self.waiting() {
            Waiting::ToRead => self.source.as_ref().map(|source| (source.as_fd(), PollFlags::IN)),
            Waiting::ToWrite => self.sink.as_ref().map(|sink| (sink.as_fd(), PollFlags::OUT)),
            Waiting::Held | Waiting::Idle => None,
        }
    }

    /// The source, to poll whether its peer is gone without reading it.
    pub(super) fn watch_source(&self, gone: PollFlags) -> Option<(BorrowedFd<'_>, PollFlags)> {
        self.source.as_ref().map(|source| (source.as_fd(), gone))
    }

    /// The sink, to poll whether its peer is gone without writing to it.
    pub(super) fn watch_sink(&self, gone: PollFlags) -> Option<(BorrowedFd<'_>, PollFlags)> {
        self.sink.as_ref().map(|sink| (sink.as_fd(), gone))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::descriptors::{pipe_bytes, resize_pipe};
    use crate::relay::pipes::{PipeSource, Sink};
    use std::io::{self, Read as _, Write as _};

    #[test]
    fn long_line_widens_each_pipe_once_and_leaves_it_as_it_was() {
        let ((from, mut writer), (mut reader, to)) = (io::pipe().expect("a pipe"), io::pipe().expect("a pipe"));
        let Some(found) = pipe_bytes(&from) else { return };
        let (other, _writing) = io::pipe().expect("a pipe");
        let can_widen = resize_pipe(&other, 1 << 20);
        let (source, sink) = (PipeSource::of_child(from.into()), Sink::of_child(to.into()));
        let mut direction = Direction::new(Side::Client, source.expect("it is open"), sink.expect("it is open"));
        let line = [vec![b'x'; 5 << 20], b"\n".to_vec()].concat();
        let sent = line.clone();
        let writing = std::thread::spawn(move || {
            writer.write_all(&sent).expect("it is read");
            writer
        });
        let reading = std::thread::spawn(move || {
            let mut read = vec![0; (5 << 20) + 1];
            reader.read_exact(&mut read).expect("it comes");
            (read, reader)
        });
        let (mut frames, mut changes, mut was_wide) = (Vec::new(), 0, false);
        let mut passed = false;
        while !passed {
            direction.read(Duration::ZERO, &mut frames);
            for frame in frames.drain(..) {
                let Frame::Line { range, .. } = frame else { panic!("BUG: it is short enough for a line") };
                direction.outgoing.add(range);
                passed = true;
            }
            direction.flush(Duration::ZERO, &mut Vec::new());
            changes += usize::from(std::mem::replace(&mut was_wide, direction.is_wide()) != direction.is_wide());
        }
        while !direction.is_empty() {
            direction.flush(Duration::ZERO, &mut Vec::new());
        }
        let (read, _reader) = reading.join().expect("it ends");
        assert!(read == line);
        let _writer = writing.join().expect("it ends");
        direction.settle();
        assert!(!direction.is_wide());
        let widths = (direction.source.as_ref().map(pipe_bytes), direction.sink.as_ref().map(pipe_bytes));
        assert_eq!(widths, (Some(Some(found)), Some(Some(found))));
        // Wide, and back at the end of the line at most.
        assert!(!can_widen || (1..=2).contains(&changes), "{changes}");
    }

    /// Marks the last bytes of a queue, of which a part may be written, and takes them back: what waits then; `None` if it is too
    /// late.
    fn taken_back(fill: impl FnOnce(&mut Outgoing), written_bytes: usize) -> Option<String> {
        let mut outgoing = Outgoing::default();
        fill(&mut outgoing);
        outgoing.mark(7, 3);
        outgoing.add(20..25);
        outgoing.taken(written_bytes);
        let piece = |piece: &OutputPiece| match piece {
            OutputPiece::Read(range) => format!("{}..{}", range.start, range.end),
            OutputPiece::Own { bytes, taken } => format!("own {:?}", &bytes[*taken..]),
            OutputPiece::Hold(token) => format!("hold {token}"),
            OutputPiece::Mark(token, _) => format!("mark {token}"),
        };
        let waits: Vec<String> = outgoing.recall(7).then(|| outgoing.0.iter().map(piece).collect())?;
        assert!(!outgoing.recall(7), "once");
        Some(waits.join(", "))
    }

    #[test]
    fn answer_is_taken_back_before_its_first_byte_is_written() {
        let check = |fill: fn(&mut Outgoing), written_bytes: usize, expect: Option<&str>| {
            assert_eq!(taken_back(fill, written_bytes).as_deref(), expect);
        };
        // A line of the client that waits for its commit, alone and behind another line.
        let held = |outgoing: &mut Outgoing| {
            outgoing.add(0..10);
            outgoing.hold(7);
            outgoing.add(10..13);
        };
        check(held, 4, Some("4..10, hold 7, 20..25"));
        // It waits only for the server, in one piece with the lines before it.
        let queued = |outgoing: &mut Outgoing| {
            outgoing.add(0..10);
            outgoing.add(10..13);
        };
        check(queued, 0, Some("0..10, 20..25"));
        check(queued, 9, Some("9..10, 20..25"));
        check(queued, 10, Some("20..25"));
        check(queued, 11, None);
        check(queued, 12, None);
        // A line of ours, also behind a line that had no end.
        let ours = |outgoing: &mut Outgoing| outgoing.add_own(b"a}\n".to_vec());
        check(ours, 0, Some("20..25"));
        check(ours, 1, None);
        let after_unended = |outgoing: &mut Outgoing| outgoing.add_own(b"\na}\n".to_vec());
        check(after_unended, 0, Some("own [10], 20..25"));
        check(after_unended, 1, Some("20..25"));
        check(after_unended, 2, None);
    }

    #[derive(Debug)]
    struct Idle;

    impl ReadEnd for Idle {
        fn read(&self, _: &mut Vec<u8>) -> ReadOutcome {
            ReadOutcome::Nothing
        }
    }

    impl WriteEnd for Idle {
        fn write(&self, _: &[u8]) -> Result<usize, Broken> {
            Ok(0)
        }
    }

    #[test]
    fn last_line_without_an_end_is_taken_back_with_the_end_of_ours() {
        for is_behind in [false, true] {
            let mut direction = Direction::new(Side::Client, Idle, Idle);
            let frame = Frame::Line { range: 0..3, end: LineEnd::EndOfStream };
            direction.outgoing.add(0..3);
            direction.outgoing.mark(7, 3);
            direction.seam.frame_queued(&frame, &mut direction.outgoing);
            if is_behind {
                direction.inject(b"ours\n".to_vec(), None);
                assert!(direction.recall(7));
            } else {
                assert!(direction.recall(7));
                direction.inject(b"ours\n".to_vec(), None);
            }
            let Front::Bytes(waits) = direction.outgoing.front(&direction.framer) else { panic!("nothing waits") };
            assert_eq!(waits, b"ours\n");
        }
    }

    #[test]
    fn own_line_follows_the_long_line() {
        let (mut seam, mut outgoing) = (Seam::default(), Outgoing::default());
        let mut add = |seam: &mut Seam, frame: &Frame, range: Range<usize>| {
            outgoing.add(range);
            seam.frame_queued(frame, &mut outgoing);
            outgoing.0.iter().map(|piece| matches!(piece, OutputPiece::Own { .. })).collect::<Vec<_>>()
        };
        assert_eq!(add(&mut seam, &Frame::Piece { range: 0..2 }, 0..2), [false]);
        seam.inject(b"ours\n".to_vec(), None, &mut Outgoing::default());
        let last = Frame::LastPiece { range: 2..4, line_bytes: 3, end: LineEnd::Newline };
        assert_eq!(add(&mut seam, &last, 2..4), [false, true]);
        let line = Frame::Line { range: 4..6, end: LineEnd::Newline };
        assert_eq!(add(&mut seam, &line, 4..6), [false, true, false]);
    }
}
