//! A client on stdin and stdout that joins a hub: lines become text messages of a WebSocket connection, and back, byte for byte.
//!
//! One thread polls both. A direction reads nothing while what it has read is not written, so a reader that stalls stalls the
//! writer, as with a pipe. It keeps no record: the hub's journal has every message.
//!
//! If the connection breaks, as at a restart of the hub, the front connects again and restores what the client had: see
//! [`memory`]. Messages that the server sends meanwhile are lost, except for the end of a turn.
//!
//! Stdout carries only messages of the server and, after a break, errors for the calls that it has left without an answer, and
//! the ends of turns that the client has missed.

mod memory;
mod output;

use std::io;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use tungstenite::http::HeaderValue;
use tungstenite::http::header::HeaderName;
use uuid::Uuid;

use super::arrival::handshake_interest;
use crate::control::Published;
use crate::engine::Transport;
use crate::os::launch;
use crate::os::polling::{PollFd, PollFlags, poll};
use crate::os::signals::Signals;
use crate::relay::pipes::{PipeSource, ReadEnd as _, ReadOutcome, Sink};
use crate::relay::{Notices, own_ids};
use crate::socket::resolve_at;
use crate::websocket::{
    CLIENT_MESSAGE_BYTES_MAX, Close, Connecting, End, Ended, Flushed, Reading, UpgradeRequest, Utf8Bytes,
};
use crate::wire::{Frame, Framer};
use memory::{Memory, Reaction};
use output::Output;

/// The header with which a front tells a hub that its client is on pipes. The hub does not pass it on.
const TRANSPORT: HeaderName = HeaderName::from_static("x-codex-shim-transport");

const STDIO: HeaderValue = HeaderValue::from_static("stdio");

/// How long calls may stay without an answer once the client has closed our stdin. `codex app-server` waits no longer.
const ANSWERS_WAIT_MAX: Duration = Duration::from_secs(1);

/// The waits before each attempt to connect again. Source: those of the TUI of codex.
const RECONNECT_WAITS: [Duration; 6] = [
    Duration::ZERO,
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
    Duration::from_secs(8),
];

/// How long a handshake may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);

/// How long the server may take to restore the client's threads.
const RESTORE_MAX: Duration = Duration::from_secs(10);

/// The pause between two looks at a handshake that has not begun.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// Takes the header of a front out of a request.
pub(super) fn take_transport(request: &mut UpgradeRequest) -> Transport {
    match request.headers.remove(TRANSPORT) {
        Some(value) if value == STDIO => Transport::Stdio,
        Some(_) | None => Transport::WebSocket,
    }
}

fn request() -> UpgradeRequest {
    let mut request = UpgradeRequest::of_path("/rpc");
    request.headers.insert(TRANSPORT, STDIO);
    request
}

/// A client on our stdin and stdout, and its connection to a hub.
pub struct Front {
    /// The hub's socket for clients.
    socket: PathBuf,
    upstream: Upstream,
    /// The hub, if we have started it: it is reaped when it ends.
    hub: Option<Child>,
    exit_grace: Duration,
}

/// The connection to the hub.
enum Upstream {
    Open(End),
    /// Connected again; what the client had is not restored yet.
    Restoring(End, Instant),
    Connecting(Connecting, Instant),
    /// To be connected again at this time.
    Broken(Instant),
    Closed,
}

/// Why a hub cannot be joined.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error("connect to the hub at {}: {source}", .socket.display())]
    Connect { socket: PathBuf, source: io::Error },
    #[error("the hub at {} refused the connection: {why}", .socket.display())]
    Refused { socket: PathBuf, why: String },
    #[error("the hub at {} did not answer in time", .socket.display())]
    TooSlow { socket: PathBuf },
}

impl Front {
    /// Connects to a hub. Reads and writes neither stdin nor stdout.
    pub fn join(socket: &Path, hub: Option<Child>, exit_grace: Duration, until: Instant) -> Result<Front, JoinError> {
        let socket = socket.to_owned();
        let mut connecting = loop {
            match connect(&socket) {
                Ok(connecting) => break connecting,
                // The hub is busy, or about to listen.
                Err(_) if Instant::now() < until => std::thread::park_timeout(LOOK_PAUSE),
                Err(source) => return Err(JoinError::Connect { socket, source }),
            }
        };
        loop {
            match connecting.advance() {
                Ok(Some(response)) if response.is_accepted() => {
                    let upstream = Upstream::Open(connecting.into_end());
                    return Ok(Front { socket, upstream, hub, exit_grace });
                }
                Ok(Some(response)) => return Err(JoinError::Refused { socket, why: response.status.to_string() }),
                Err(error) => return Err(JoinError::Refused { socket, why: error.to_string() }),
                Ok(None) => {}
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(JoinError::TooSlow { socket });
            }
            // An error means that a signal interrupted the poll.
            let _ = poll(&mut [poll_fd(&connecting)], Some(left));
        }
    }

    /// Passes messages until the client or the hub ends. Returns the exit status.
    pub fn run(self) -> io::Result<i32> {
        launch::keep_descriptors();
        let signals = Signals::listen(&[SIGTERM, SIGINT, SIGHUP, SIGCHLD])?;
        let Front { socket, upstream, hub, exit_grace } = self;
        let session = RunningFront {
            socket,
            upstream,
            hub,
            exit_grace,
            signals,
            notices: Notices::new(Arc::new(Published::default())),
            source: Some(PipeSource::stdin()?),
            framer: Framer::default(),
            output: Output::new(Sink::stdout()?),
            memory: Memory::new(own_ids(Uuid::now_v7())),
            has_more: true,
            is_cut: false,
            attempts: 0,
            ending: None,
        };
        Ok(session.run())
    }
}

fn connect(socket: &Path) -> io::Result<Connecting> {
    Connecting::new(super::connect(&resolve_at(socket)?)?, &request())
}

/// A front that runs.
struct RunningFront {
    socket: PathBuf,
    upstream: Upstream,
    hub: Option<Child>,
    exit_grace: Duration,
    signals: Signals,
    notices: Notices,
    /// `None` once the client sends nothing more.
    source: Option<PipeSource>,
    framer: Framer,
    output: Output,
    memory: Memory,
    /// The connection has messages that a poll does not show.
    has_more: bool,
    /// The hub takes nothing more. Bytes that it wrote before are read first; then its end shows.
    is_cut: bool,
    /// Attempts to connect since the connection broke.
    attempts: usize,
    ending: Option<FrontEnd>,
}

/// The end of a front: nothing more is read from the client.
struct FrontEnd {
    since: Instant,
    status: i32,
    /// Calls in flight are awaited until then.
    answers_until: Instant,
    by_signal: bool,
}

/// The results of the poll.
#[derive(Default)]
struct Ready {
    client: bool,
    client_is_gone: bool,
    server: bool,
}

impl RunningFront {
    fn run(mut self) -> i32 {
        loop {
            let ready = self.wait();
            self.take_signals();
            if ready.client_is_gone {
                self.end(0, Duration::ZERO, false);
            }
            self.reconnect(ready.server);
            if ready.client {
                self.read_client();
            }
            if ready.server || self.has_more {
                self.read_server();
            }
            self.flush();
            if let Some(status) = self.finished() {
                return self.finish(status);
            }
        }
    }

    fn wait(&self) -> Ready {
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        let client_at = fds.len();
        if let Some(source) = &self.source {
            // That the client has gone shows in every poll; it counts only if there is nothing to pass its lines to.
            match self.upstream {
                Upstream::Open(_) if !self.reads_client() => {}
                Upstream::Open(_) => fds.push(PollFd::new(source, PollFlags::IN)),
                Upstream::Restoring(..) | Upstream::Connecting(..) | Upstream::Broken(_) | Upstream::Closed => {
                    fds.push(PollFd::new(source, PollFlags::HUP));
                }
            }
        }
        let server_at = fds.len();
        match &self.upstream {
            Upstream::Open(end) | Upstream::Restoring(end, _) => {
                let mut flags = PollFlags::empty();
                flags.set(PollFlags::IN, self.output.is_empty());
                flags.set(PollFlags::OUT, end.wants_write() && !self.is_cut);
                if !flags.is_empty() {
                    fds.push(PollFd::new(end, flags));
                }
            }
            Upstream::Connecting(connecting, _) => fds.push(poll_fd(connecting)),
            Upstream::Broken(_) | Upstream::Closed => {}
        }
        let output_at = fds.len();
        if let Some(sink) = self.output.waiting() {
            fds.push(PollFd::new(sink, PollFlags::OUT));
        }
        let limit = if self.has_more && self.output.is_empty() { Some(Duration::ZERO) } else { self.limit() };
        let _ = poll(&mut fds, limit);
        let found = |from: usize, to: usize| fds[from..to].iter().any(|fd| !fd.revents().is_empty());
        let client = found(client_at, server_at);
        let is_open = matches!(self.upstream, Upstream::Open(_));
        Ready { client: client && is_open, client_is_gone: client && !is_open, server: found(server_at, output_at) }
    }

    /// Whether the client's next lines can be read.
    fn reads_client(&self) -> bool {
        matches!(&self.upstream, Upstream::Open(end) if !end.wants_write())
    }

    /// When something is due.
    fn limit(&self) -> Option<Duration> {
        let of_upstream = match &self.upstream {
            Upstream::Broken(due) | Upstream::Restoring(_, due) | Upstream::Connecting(_, due) => Some(*due),
            Upstream::Open(_) | Upstream::Closed => None,
        };
        let of_ending = self.ending.as_ref().and_then(|ending| match &self.upstream {
            Upstream::Open(_) if ending.answers_until > Instant::now() => Some(ending.answers_until),
            Upstream::Open(_) => Some(ending.since + self.exit_grace),
            Upstream::Restoring(..) | Upstream::Connecting(..) | Upstream::Broken(_) | Upstream::Closed => {
                ending.by_signal.then(|| ending.since + self.exit_grace)
            }
        });
        let due = of_upstream.into_iter().chain(of_ending).min()?;
        Some(due.saturating_duration_since(Instant::now()))
    }

    fn take_signals(&mut self) {
        for signal in self.signals.take() {
            match signal {
                SIGCHLD => {
                    if let Some(hub) = &mut self.hub
                        && !matches!(hub.try_wait(), Ok(None))
                    {
                        self.hub = None;
                    }
                }
                // The client is in a hurry.
                _ if self.ending.as_ref().is_some_and(|ending| ending.by_signal) => self.output.abandon(),
                // As `codex app-server` ends.
                SIGTERM => self.end(0, Duration::ZERO, true),
                other => self.end(128 + other, Duration::ZERO, true),
            }
        }
    }

    fn end(&mut self, status: i32, answers_wait: Duration, by_signal: bool) {
        self.source = None;
        let since = Instant::now();
        match &mut self.ending {
            None => self.ending = Some(FrontEnd { since, status, answers_until: since + answers_wait, by_signal }),
            Some(ending) if by_signal => (ending.answers_until, ending.by_signal) = (since, true),
            Some(_) => {}
        }
    }
}

// The client's lines.

impl RunningFront {
    fn read_client(&mut self) {
        let Some(source) = &self.source else { return };
        let outcome = source.read(self.framer.buffer_mut());
        while let Some(frame) = self.framer.next_frame() {
            self.pass_line(frame);
        }
        if outcome == ReadOutcome::End {
            // A last line without its end is a line, too.
            if let Some(frame) = self.framer.last_frame() {
                self.pass_line(frame);
            }
            self.end(0, ANSWERS_WAIT_MAX, false);
        }
        self.framer.release_framed();
    }

    fn pass_line(&mut self, frame: Frame) {
        let (range, end) = match frame {
            Frame::Line { range, end } => (range, end),
            Frame::Piece { .. } => return,
            Frame::LastPiece { line_bytes, .. } => {
                let limit = bytesize::ByteSize(CLIENT_MESSAGE_BYTES_MAX as u64);
                self.notices.report(&format!(
                    "a line of {} is not passed on: a shared server takes at most {limit}",
                    bytesize::ByteSize(line_bytes)
                ));
                return;
            }
        };
        let Upstream::Open(to) = &mut self.upstream else { return };
        if self.ending.is_some() {
            return;
        }
        let line = self.framer.line(range, end).bytes;
        match Utf8Bytes::try_from(line.to_vec()) {
            Ok(text) => {
                self.memory.of_client(line);
                to.send(text);
            }
            // `codex app-server` reads no further, either.
            Err(_) => {
                self.notices.report("the client wrote a line that is not UTF-8, and nothing is read after it");
                self.end(0, ANSWERS_WAIT_MAX, false);
            }
        }
    }
}

// The server's messages.

impl RunningFront {
    fn read_server(&mut self) {
        if !self.output.is_empty() {
            return;
        }
        let (Upstream::Open(end) | Upstream::Restoring(end, _)) = &mut self.upstream else {
            self.has_more = false;
            return;
        };
        let mut messages = Vec::new();
        let reading = end.read(&mut messages);
        self.has_more = matches!(reading, Reading::More);
        for message in &messages {
            let Reaction { is_shown, answers, missed } = self.memory.of_server(message.as_bytes());
            if is_shown {
                self.output.line(message.as_bytes());
            }
            missed.into_iter().for_each(|line| self.output.line(&line));
            self.send_own(answers);
        }
        if let Reading::Ended(ended) = reading {
            self.broke(&ended);
        }
    }

    /// Sends lines of our own to the server.
    fn send_own(&mut self, lines: Vec<Vec<u8>>) {
        if let Upstream::Open(end) | Upstream::Restoring(end, _) = &mut self.upstream {
            for line in lines {
                end.send(Utf8Bytes::try_from(line).expect("BUG: our own lines are text"));
            }
        }
    }

    fn flush(&mut self) {
        self.output.flush();
        if let Upstream::Open(end) | Upstream::Restoring(end, _) = &mut self.upstream
            && end.wants_write()
            && !self.is_cut
        {
            self.is_cut = matches!(end.flush(), Flushed::Broken(_));
        }
    }
}

// A connection that breaks, and the end.

impl RunningFront {
    /// The connection has ended.
    fn broke(&mut self, ended: &Ended) {
        (self.has_more, self.is_cut) = (false, false);
        if self.ending.is_some() {
            self.upstream = Upstream::Closed;
            return;
        }
        tracing::debug!(?ended, "the connection to the hub has ended");
        for line in self.memory.broke() {
            self.output.line(&line);
        }
        if !self.memory.is_whole() {
            self.give_up();
        } else {
            self.attempt_later();
        }
    }

    /// Plans the next attempt to connect, if there is one.
    fn attempt_later(&mut self) {
        match RECONNECT_WAITS.get(self.attempts) {
            Some(wait) => {
                self.attempts += 1;
                self.upstream = Upstream::Broken(Instant::now() + *wait);
            }
            None => self.give_up(),
        }
    }

    fn give_up(&mut self) {
        self.upstream = Upstream::Closed;
        self.notices.report("the connection to the shared server broke; see `codex-shim hub status`");
        self.end(1, Duration::ZERO, false);
    }

    /// Goes on with a connection that is not open.
    fn reconnect(&mut self, is_ready: bool) {
        let now = Instant::now();
        self.upstream = match std::mem::replace(&mut self.upstream, Upstream::Closed) {
            Upstream::Broken(due) if due <= now => match connect(&self.socket) {
                Ok(connecting) => Upstream::Connecting(connecting, now + HANDSHAKE_MAX),
                Err(error) => {
                    tracing::debug!(%error, "connect to the hub again");
                    return self.attempt_later();
                }
            },
            Upstream::Connecting(connecting, due) if !is_ready && now < due => Upstream::Connecting(connecting, due),
            Upstream::Connecting(mut connecting, due) => match connecting.advance() {
                Ok(None) if now < due => Upstream::Connecting(connecting, due),
                Ok(Some(response)) if response.is_accepted() => {
                    self.upstream = Upstream::Restoring(connecting.into_end(), now + RESTORE_MAX);
                    self.has_more = true;
                    let lines = self.memory.restore();
                    return self.send_own(lines);
                }
                Ok(_) | Err(_) => return self.attempt_later(),
            },
            Upstream::Restoring(end, due) if !self.memory.is_restoring() || due <= now => {
                for thread in self.memory.restored() {
                    self.notices.report(&format!("thread {thread} could not be resumed at the shared server"));
                }
                self.attempts = 0;
                Upstream::Open(end)
            }
            other @ (Upstream::Open(_) | Upstream::Restoring(..) | Upstream::Broken(_) | Upstream::Closed) => other,
        };
    }

    /// The exit status, once nothing is left to do.
    fn finished(&mut self) -> Option<i32> {
        let ending = self.ending.as_ref()?;
        let now = Instant::now();
        let is_over = now >= ending.since + self.exit_grace;
        match &mut self.upstream {
            Upstream::Open(end) => {
                if now >= ending.answers_until || !self.memory.awaits_answers() {
                    end.close(&Close::new(1000, ""));
                    let is_broken = matches!(end.flush(), Flushed::Broken(_));
                    // The rest is written when the hub can take it.
                    if is_broken || is_over || !end.wants_write() {
                        self.upstream = Upstream::Closed;
                    }
                }
            }
            Upstream::Restoring(..) | Upstream::Connecting(..) | Upstream::Broken(_) => {
                self.upstream = Upstream::Closed
            }
            Upstream::Closed => {}
        }
        if ending.by_signal && is_over {
            self.output.abandon();
        }
        (matches!(self.upstream, Upstream::Closed) && self.output.is_empty()).then_some(ending.status)
    }

    fn finish(self, status: i32) -> i32 {
        let RunningFront { output, signals, exit_grace, ending, .. } = self;
        if let Some(feeder) = output.into_sink().and_then(Sink::close) {
            let mut count = usize::from(ending.is_some_and(|ending| ending.by_signal));
            feeder.finish(exit_grace, || {
                count += signals.take().iter().filter(|signal| **signal != SIGCHLD).count();
                count
            });
        }
        status
    }
}
fn poll_fd(connecting: &Connecting) -> PollFd<'_> {
    let (fd, flags) = handshake_interest(connecting);
    PollFd::from_borrowed_fd(fd, flags)
}
