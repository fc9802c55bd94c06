//! The pipe and socket ends that the relay reads and writes. They never block, and their use never affects other
//! processes.
//!
//! Our stdin and stdout may share their open file description with other processes, so `O_NONBLOCK` is never set on
//! them. On Linux a pipe is opened a second time, for a description of our own; a socket takes `MSG_DONTWAIT`; a file never
//! blocks for long. Anything else, such as a terminal, is fed by a small thread from a pipe of ours, and so is a pipe elsewhere. A
//! named pipe as stdin is read by such a thread on macOS, whose `poll` does not report that its last writer has left.
//!
//! Nothing here knows of lines.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use crate::os::descriptors::{self, Kind};
use crate::os::polling::{PollFd, PollFlags, is_unread, poll, poll_one};
use crate::os::{self, Errno, sockets};

/// Size of one read in bytes: the default capacity of a Linux pipe.
const READ_BYTES: usize = 64 << 10;

/// Stack of a thread that copies, in bytes.
const STACK_BYTES: usize = 128 << 10;

/// Size of one write of the feeder thread in bytes: a page, which a pipe accepts as a whole.
const FED_BYTES: usize = 4 << 10;

/// A pipe is made wider for a line of which at least this many bytes are there.
pub(super) const LONG_BYTES: usize = 1 << 20;

/// What a pipe holds while a long line passes, in bytes: what a user without privileges may ask for. Source: `/proc/sys/fs/pipe-max-size`.
const WIDE_BYTES: usize = 1 << 20;

/// How often the feeder thread looks whether a reader that only reads is still there, if the system cannot wait for that.
const READER_LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often [`Feeder::finish`] checks whether to keep waiting.
const FEEDER_CHECK_EVERY: Duration = Duration::from_millis(50);

/// The result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadOutcome {
    Some,
    /// Nothing is available now.
    Nothing,
    /// The stream has ended.
    End,
}

/// An end that is read without waiting.
pub trait ReadEnd {
    /// Appends available bytes to `buffer`.
    fn read(&self, buffer: &mut Vec<u8>) -> ReadOutcome;

    /// So many bytes of a line are at hand, and more may come: a pipe is wide while a long line passes.
    fn expect(&self, _bytes: usize) {}

    /// Whether it is wide.
    fn is_wide(&self) -> bool {
        false
    }
}

/// An end that is written to without waiting.
pub trait WriteEnd {
    /// Writes as much of `bytes` as fits now and returns the count.
    ///
    /// # Errors
    ///
    /// The reader is gone.
    fn write(&self, bytes: &[u8]) -> Result<usize, Broken>;

    /// So many bytes wait to be written: a pipe is wide while a long line passes.
    fn expect(&self, _bytes: usize) {}

    /// Whether it is wide.
    fn is_wide(&self) -> bool {
        false
    }
}

/// Makes a pipe wider while a long line passes, so that its reader and its writer wake each other less often. Restores it afterwards,
/// because the system limits the total size of a user's pipes. Source: `pipe-user-pages-soft` of pipe(7).
#[derive(Debug, Default)]
struct Width(Cell<WidthState>);

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum WidthState {
    #[default]
    AsFound,
    /// It held this many bytes before.
    Wide(usize),
    /// Not a pipe, wide enough, or refused by the system.
    Fixed,
}

impl Width {
    fn is_wide(&self) -> bool {
        matches!(self.0.get(), WidthState::Wide(_))
    }

    /// `bytes` of one line are at hand.
    #[inline]
    fn adapt(&self, fd: &OwnedFd, bytes: usize) {
        match self.0.get() {
            WidthState::AsFound if bytes >= LONG_BYTES => self.0.set(widened(fd)),
            WidthState::Wide(before) if bytes < LONG_BYTES => self.narrow(fd, before),
            WidthState::AsFound | WidthState::Wide(_) | WidthState::Fixed => {}
        }
    }

    /// Fails while there is more in the pipe than it held before; then it is tried again.
    fn narrow(&self, fd: &OwnedFd, before: usize) {
        if descriptors::resize_pipe(fd, before) {
            self.0.set(WidthState::AsFound);
        }
    }
}

fn widened(fd: &OwnedFd) -> WidthState {
    match descriptors::pipe_bytes(fd) {
        Some(before) if before < WIDE_BYTES && descriptors::resize_pipe(fd, WIDE_BYTES) => WidthState::Wide(before),
        Some(_) | None => WidthState::Fixed,
    }
}

/// A non-blocking read end.
#[derive(Debug)]
pub struct PipeSource {
    fd: OwnedFd,
    kind: Kind,
    width: Width,
}

impl PipeSource {
    /// Takes over our stdin. File descriptor 0 becomes `/dev/null`, so that dropping this closes our end of the pipe.
    pub fn stdin() -> io::Result<PipeSource> {
        let (fd, kind) = descriptors::take_stdin()?;
        if descriptors::ends_unseen(&fd) {
            return PipeSource::fed(fd);
        }
        Ok(PipeSource { fd, kind: kind.unwrap_or(Kind::Plain), width: Width::default() })
    }

    /// A source whose reads go through a pipe from a thread that may block. Once this is dropped, the thread ends with the next bytes.
    fn fed(from: OwnedFd) -> io::Result<PipeSource> {
        let (reading, writing) = io::pipe()?;
        let thread = std::thread::Builder::new().name("stdin-reader".to_owned()).stack_size(STACK_BYTES);
        thread.spawn(move || copy(&from, &writing.into()))?;
        PipeSource::of_child(reading.into())
    }

    /// Our end of a pipe, such as the child's stdout; no other process shares it.
    pub(super) fn of_child(fd: OwnedFd) -> io::Result<PipeSource> {
        descriptors::never_block(&fd)?;
        Ok(PipeSource { fd, kind: Kind::Plain, width: Width::default() })
    }

    pub(super) fn socket(stream: UnixStream) -> PipeSource {
        PipeSource { fd: stream.into(), kind: Kind::Socket, width: Width::default() }
    }
}

impl ReadEnd for PipeSource {
    fn read(&self, buffer: &mut Vec<u8>) -> ReadOutcome {
        let room = READ_BYTES.max(buffer.len().min(1 << 20));
        buffer.reserve(room);
        let read = match self.kind {
            Kind::Plain => descriptors::append(&self.fd, buffer),
            Kind::Socket => sockets::receive(&self.fd, buffer),
        };
        match read {
            Ok(0) => ReadOutcome::End,
            Ok(_) => ReadOutcome::Some,
            Err(Errno::AGAIN | Errno::INTR) => ReadOutcome::Nothing,
            // A terminal hung up, or a connection was reset.
            Err(_) => ReadOutcome::End,
        }
    }

    #[inline]
    fn expect(&self, bytes: usize) {
        self.width.adapt(&self.fd, bytes);
    }

    #[inline]
    fn is_wide(&self) -> bool {
        self.width.is_wide()
    }
}

impl AsFd for PipeSource {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A non-blocking write end.
#[derive(Debug)]
pub struct Sink {
    fd: OwnedFd,
    kind: Kind,
    width: Width,
    feeder: Option<Feeder>,
}

/// The reader is gone.
#[derive(Debug, PartialEq, Eq)]
pub struct Broken;

impl Sink {
    /// Takes over our stdout. File descriptor 1 becomes `/dev/null`, so that dropping this closes our end of the pipe.
    pub fn stdout() -> io::Result<Sink> {
        let (fd, kind) = descriptors::take_stdout()?;
        match kind {
            Some(kind) => Ok(Sink { fd, kind, width: Width::default(), feeder: None }),
            None => Sink::fed(fd),
        }
    }

    /// A socket of ours, whose other descriptors may not block either.
    pub(super) fn socket(stream: UnixStream) -> Sink {
        // It is open, so this does not fail.
        let _ = stream.set_nonblocking(true);
        Sink { fd: sockets::without_signal(stream), kind: Kind::Socket, width: Width::default(), feeder: None }
    }

    /// Our stderr, shared with the child and left in place, and whether a write to it may block.
    pub(super) fn stderr() -> io::Result<(Sink, bool)> {
        let (fd, kind) = descriptors::own_stderr()?;
        // A thread might not get a notice out before the end.
        let may_block = kind.is_none();
        Ok((Sink { fd, kind: kind.unwrap_or(Kind::Plain), width: Width::default(), feeder: None }, may_block))
    }

    /// Our end of the child's stdin; no other process shares it.
    pub(super) fn of_child(fd: OwnedFd) -> io::Result<Sink> {
        descriptors::never_block(&fd)?;
        Ok(Sink { fd, kind: Kind::Plain, width: Width::default(), feeder: None })
    }

    /// A sink whose writes go through a pipe to a thread that may block.
    fn fed(target: OwnedFd) -> io::Result<Sink> {
        let (reading, writing) = io::pipe()?;
        descriptors::never_block(&writing)?;
        let feeder = Feeder::start(reading.into(), target)?;
        Ok(Sink { fd: writing.into(), kind: Kind::Plain, width: Width::default(), feeder: Some(feeder) })
    }

    /// Closes the end. A feeder thread, if there is one, goes on to write what it holds.
    pub fn close(self) -> Option<Feeder> {
        self.feeder
    }
}

impl WriteEnd for Sink {
    fn write(&self, bytes: &[u8]) -> Result<usize, Broken> {
        let written = match self.kind {
            Kind::Plain => descriptors::write(&self.fd, bytes),
            Kind::Socket => sockets::send(&self.fd, bytes),
        };
        match written {
            Ok(written) => Ok(written),
            Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => Ok(0),
            Err(_) => Err(Broken),
        }
    }

    #[inline]
    fn expect(&self, bytes: usize) {
        self.width.adapt(&self.fd, bytes);
    }

    #[inline]
    fn is_wide(&self) -> bool {
        self.width.is_wide()
    }
}

impl AsFd for Sink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A thread that copies a pipe of ours to a descriptor whose writes may block.
#[derive(Debug)]
pub struct Feeder {
    /// Disconnected when the thread has ended.
    running: Receiver<()>,
    /// Bytes written so far.
    written_bytes: Arc<AtomicU64>,
}

impl Feeder {
    fn start(reading: OwnedFd, target: OwnedFd) -> io::Result<Feeder> {
        let (done, running) = sync_channel(1);
        let written_bytes = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&written_bytes);
        let thread = std::thread::Builder::new().name("stdout-feeder".to_owned()).stack_size(STACK_BYTES);
        thread.spawn(move || {
            let _done = done;
            // An error means that the reader is gone; dropping `reading` shows this to the relay.
            let _ = feed(&reading, &target, &counter);
        })?;
        Ok(Feeder { running, written_bytes })
    }

    /// Waits until everything is written. `signals` counts the signals so far: after the first one the wait ends if
    /// nothing is written for `stall_max`; a second one ends it at once.
    pub fn finish(self, stall_max: Duration, mut signals: impl FnMut() -> usize) {
        let mut taken = (self.written_bytes.load(Ordering::Relaxed), Instant::now());
        while self.running.recv_timeout(FEEDER_CHECK_EVERY) == Err(RecvTimeoutError::Timeout) {
            let (count, bytes) = (signals(), self.written_bytes.load(Ordering::Relaxed));
            if bytes != taken.0 || count == 0 {
                taken = (bytes, Instant::now());
            }
            if count > 1 || (count == 1 && taken.1.elapsed() >= stall_max) {
                tracing::warn!("the reader of stdout did not read all of the output");
                return;
            }
        }
    }
}

/// Copies in small pieces, so that a slow reader's progress is visible.
fn feed(from: &OwnedFd, to: &OwnedFd, written_bytes: &AtomicU64) -> os::Result<()> {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        if !has_reader_and_more(from, to)? {
            return Ok(());
        }
        let read = descriptors::read_waiting(from, &mut buffer)?;
        if read == 0 {
            return Ok(());
        }
        for piece in buffer[..read].chunks(FED_BYTES) {
            descriptors::write_all(to, piece)?;
            written_bytes.fetch_add(piece.len() as u64, Ordering::Relaxed);
        }
    }
}

/// Copies until the last writer of `from` or the reader of `to` is gone.
fn copy(from: &OwnedFd, to: &OwnedFd) -> os::Result<()> {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match descriptors::read_waiting(from, &mut buffer)? {
            0 => return Ok(()),
            read => descriptors::write_all(to, &buffer[..read])?,
        }
    }
}

/// Waits until `from` can be read; `false` if the reader of `to` is gone before. A system that cannot wait for a device leaves it out,
/// and the readers of a named pipe may come and go.
fn has_reader_and_more(from: &OwnedFd, to: &OwnedFd) -> os::Result<bool> {
    if descriptors::is_named_pipe(to) {
        return Ok(true);
    }
    loop {
        let mut fds = [PollFd::new(from, PollFlags::IN), PollFd::new(to, PollFlags::HUP)];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        if !fds[0].revents().is_empty() || fds[1].revents().contains(PollFlags::NVAL) {
            return Ok(true);
        }
        if !fds[1].revents().intersects(PollFlags::ERR | PollFlags::HUP) {
            continue;
        }
        if is_unread(to) {
            return Ok(false);
        }
        // The peer of a socket writes nothing more, which would end each wait at once on macOS.
        if poll_one(from, PollFlags::IN, Some(READER_LOOK_EVERY)).is_ok_and(|found| !found.is_empty()) {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};

    #[test]
    fn full_socket_never_blocks() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let sink = Sink::socket(ours);
        let chunk = vec![b'x'; 64 << 10];
        let mut written = 0;
        loop {
            match sink.write(&chunk) {
                Ok(0) => break,
                Ok(bytes) => written += bytes,
                Err(Broken) => panic!("the other end is open"),
            }
        }
        assert!(written > 0);
        drop(theirs);
        assert_eq!(sink.write(&chunk), Err(Broken));
    }

    #[test]
    fn fed_sink_notices_that_its_reader_is_gone() {
        let (theirs, target) = io::pipe().expect("a pipe");
        let sink = Sink::fed(target.into()).expect("a feeder");
        drop(theirs);
        let gone = poll_one(&sink, PollFlags::HUP, Some(Duration::from_secs(60))).expect("a poll");
        assert!(gone.intersects(PollFlags::ERR | PollFlags::HUP), "{gone:?}");
    }

    #[test]
    fn fed_socket_is_written_to_after_its_peer_has_ended_its_writing() {
        let (mut theirs, target) = UnixStream::pair().expect("a pair");
        theirs.shutdown(std::net::Shutdown::Write).expect("it is open");
        let sink = Sink::fed(target.into()).expect("a feeder");
        let gone = poll_one(&sink, PollFlags::HUP, Some(Duration::from_millis(100))).expect("a poll");
        assert!(gone.is_empty(), "{gone:?}");
        assert_eq!(sink.write(b"ab"), Ok(2));
        let mut read = [0; 2];
        theirs.read_exact(&mut read).expect("it comes");
        drop(theirs);
        let gone = poll_one(&sink, PollFlags::HUP, Some(Duration::from_secs(60))).expect("a poll");
        assert!(gone.intersects(PollFlags::ERR | PollFlags::HUP), "{gone:?}");
    }

    #[test]
    fn readers_of_a_named_pipe_may_come_and_go() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = dir.path().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo runs");
        assert!(made.success());
        let first = std::fs::File::options().read(true).write(true).open(&path).expect("it is there");
        let target = std::fs::File::options().write(true).open(&path).expect("it has a reader");
        let sink = Sink::fed(target.into()).expect("a feeder");
        drop(first);
        let mut second = std::fs::File::options().read(true).write(true).open(&path).expect("it is there");
        assert_eq!(sink.write(b"ab"), Ok(2));
        let mut read = [0; 2];
        second.read_exact(&mut read).expect("it comes");
        assert_eq!(&read, b"ab");
    }

    #[test]
    fn source_that_a_thread_reads_ends_with_its_last_writer() {
        let (from, mut theirs) = io::pipe().expect("a pipe");
        let source = PipeSource::fed(from.into()).expect("a thread");
        let mut seen = Vec::new();
        assert_eq!(source.read(&mut seen), ReadOutcome::Nothing);
        theirs.write_all(b"ab").expect("it is read");
        drop(theirs);
        let mut read = || {
            poll_one(&source, PollFlags::IN, Some(Duration::from_secs(60))).expect("a poll");
            source.read(&mut seen)
        };
        assert_eq!((read(), read()), (ReadOutcome::Some, ReadOutcome::End));
        assert_eq!(seen, b"ab");
    }

    #[test]
    fn fed_sink_delivers_everything_before_it_closes() {
        let (mut theirs, target) = UnixStream::pair().expect("a pair");
        let sink = Sink::fed(target.into()).expect("a feeder");
        let sent: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
        let reader = std::thread::spawn(move || {
            let mut seen = Vec::new();
            theirs.read_to_end(&mut seen).expect("a stream");
            seen
        });
        let mut rest = &sent[..];
        while !rest.is_empty() {
            let taken = sink.write(rest).expect("the reader is there");
            rest = &rest[taken..];
            if taken == 0 {
                poll_one(&sink, PollFlags::OUT, None).expect("a poll");
            }
        }
        sink.close().expect("it is fed").finish(Duration::ZERO, || 0);
        assert!(reader.join().expect("the reader ends") == sent);
    }

    #[test]
    fn pipe_is_wide_while_a_long_line_is_expected() {
        let (reading, writing) = io::pipe().expect("a pipe");
        let Some(found) = descriptors::pipe_bytes(&reading) else { return };
        // The system may refuse a wider pipe to a user who has many.
        let (other, _writing) = io::pipe().expect("a pipe");
        let wide = if descriptors::resize_pipe(&other, WIDE_BYTES) { WIDE_BYTES } else { found };
        let source = PipeSource::of_child(reading.into()).expect("it is open");
        let sink = Sink::of_child(writing.into()).expect("it is open");
        let width = || descriptors::pipe_bytes(&sink).expect("a pipe");
        sink.expect(LONG_BYTES - 1);
        assert_eq!((width(), sink.is_wide()), (found, false));
        sink.expect(LONG_BYTES);
        assert_eq!((width(), sink.is_wide()), (wide, wide != found));
        let line = vec![b'x'; 2 << 20];
        assert_eq!(sink.write(&line).expect("the reader is there"), wide);
        sink.expect(0);
        assert_eq!(width(), wide, "what is in it does not fit into what it was");
        let mut read = Vec::new();
        while read.len() < wide {
            source.read(&mut read);
        }
        sink.expect(0);
        assert_eq!((width(), sink.is_wide()), (found, false));
    }

    #[test]
    fn source_distinguishes_silence_from_the_end() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let source = PipeSource { fd: ours.into(), kind: Kind::Socket, width: Width::default() };
        let mut buffer = Vec::new();
        assert_eq!(source.read(&mut buffer), ReadOutcome::Nothing);
        theirs.write_all(b"ab").expect("a stream");
        assert_eq!(source.read(&mut buffer), ReadOutcome::Some);
        assert_eq!(buffer, b"ab");
        drop(theirs);
        assert_eq!(source.read(&mut buffer), ReadOutcome::End);
    }
}
