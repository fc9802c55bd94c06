//! Plays a tape on a Unix socket as a WebSocket server: the shell around [`Clients`].
//!
//! One thread polls all connections and sends the lines that are due. A slow client delays no other client.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use std::os::fd::AsFd as _;

use super::clients::{ClientId, Clients};
use super::mapping::Difference;
use super::player::Strictness;
use super::script::Script;
use super::server::{Pace, Schedule};
use super::socket::{BindError, bind};
use super::tape::Tape;
use crate::os::Errno;
use crate::os::polling::{PollFd, PollFlags, poll};
use crate::os::signals::Signals;
use crate::websocket::{Accepting, Close, End, Ended, Flushed, Listener, Reading, Response, Utf8Bytes};

/// Limit of the clients at once, those whose handshake is not complete included.
const CLIENTS_MAX: usize = 64;

/// Limit of the bytes that wait for one client, as in a hub.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// Limit of the time for a handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(30);

/// The time that a client has to read waiting bytes when the playing ends.
const CLOSING_MAX: Duration = Duration::from_millis(200);

/// A header of the real server's handshake, and its value.
const FRAME_LIMIT: (&str, &str) = ("x-codex-websocket-max-unfragmented-message-bytes", "16777216");

/// Status code of a close frame for a client that has to go because the server ends. Source: RFC 6455, section 7.4.1.
const GOING_AWAY: u16 = 1001;

/// How a tape is played on a socket.
#[derive(Debug)]
pub struct ListenOptions {
    pub path: PathBuf,
    /// A folder for sockets behind a link.
    pub runtime_dir: Option<PathBuf>,
    pub strictness: Strictness,
    pub pace: Pace,
}

/// News for the user.
#[derive(Debug)]
pub enum ListenNews<'a> {
    Listening,
    /// A client has left.
    Left {
        name: Option<&'a str>,
        differences: &'a [Difference],
    },
    /// A client has not read the bytes that wait for it.
    TooSlow {
        name: Option<&'a str>,
    },
    TooMany,
}

/// Why the playing ended early.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error("set up signal handlers: {0}")]
    Signals(#[source] io::Error),
    #[error("wait for clients: {0}")]
    Poll(#[source] io::Error),
}

/// Plays `tape` to the clients at a socket until SIGTERM or SIGINT, a strict player also until the first difference. Returns
/// whether there was such a difference.
pub fn listen(tape: Tape, options: &ListenOptions, tell: &mut dyn FnMut(ListenNews<'_>)) -> Result<bool, ListenError> {
    let signals = Signals::listen(&[SIGTERM, SIGINT]).map_err(ListenError::Signals)?;
    let listener = bind(&options.path, options.runtime_dir.as_deref())?;
    let clients = Clients::new(Arc::new(Script::of(tape)), options.strictness);
    let mut stage = ListeningServer {
        listener,
        clients,
        pace: options.pace,
        arrivals: Vec::new(),
        connections: Vec::new(),
        next_id: 0,
        tell,
    };
    (stage.tell)(ListenNews::Listening);
    loop {
        stage.wait(&signals)?;
        if !signals.take().is_empty() {
            stage.end();
            return Ok(false);
        }
        stage.accept();
        stage.shake_hands();
        stage.read();
        stage.write();
        if stage.clients.has_failed() || stage.dismiss() {
            stage.end();
            return Ok(true);
        }
    }
}

/// A client whose handshake is not complete.
struct Arrival {
    accepting: Accepting,
    cut_at: Instant,
}

struct Connection {
    id: ClientId,
    end: End,
    schedule: Schedule,
    /// There is more to read that a poll does not show.
    has_more: bool,
    is_gone: bool,
}

/// The socket and all that are connected to it.
struct ListeningServer<'a> {
    listener: Listener,
    clients: Clients,
    pace: Pace,
    arrivals: Vec<Arrival>,
    connections: Vec<Connection>,
    next_id: u64,
    tell: &'a mut dyn FnMut(ListenNews<'_>),
}

impl ListeningServer<'_> {
    /// Waits until something can be done.
    fn wait(&self, signals: &Signals) -> Result<(), ListenError> {
        let now = Instant::now();
        let due = self.connections.iter().filter_map(|connection| {
            if connection.has_more { Some(Duration::ZERO) } else { connection.schedule.wait() }
        });
        let cut = self.arrivals.iter().map(|arrival| arrival.cut_at.saturating_duration_since(now));
        let wait_max = due.chain(cut).min().map(|wait| {
            // A poll counts whole milliseconds: less would let this loop spin.
            if wait.is_zero() { wait } else { wait.max(Duration::from_millis(1)) }
        });
        let mut fds = vec![
            PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN),
        ];
        fds.extend(
            self.arrivals.iter().map(|arrival| PollFd::from_borrowed_fd(arrival.accepting.as_fd(), PollFlags::IN)),
        );
        fds.extend(self.connections.iter().map(|connection| {
            let mut flags = PollFlags::IN;
            flags.set(PollFlags::OUT, connection.end.wants_write());
            PollFd::from_borrowed_fd(connection.end.as_fd(), flags)
        }));
        match poll(&mut fds, wait_max) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(ListenError::Poll(errno.into())),
        }
    }

    fn accept(&mut self) {
        // Without descriptors, or if a client has gone again, the next poll tries anew.
        while let Ok(Some(accepted)) = self.listener.accept() {
            if self.arrivals.len() + self.connections.len() >= CLIENTS_MAX {
                (self.tell)(ListenNews::TooMany);
                continue;
            }
            if let Ok(accepting) = Accepting::new(accepted.stream) {
                self.arrivals.push(Arrival { accepting, cut_at: Instant::now() + HANDSHAKE_MAX });
            }
        }
    }

    fn shake_hands(&mut self) {
        let now = Instant::now();
        for mut arrival in std::mem::take(&mut self.arrivals) {
            match arrival.accepting.read() {
                Ok(Some(_)) => {
                    let id = ClientId(self.next_id);
                    self.next_id += 1;
                    let end = arrival.accepting.accept(&Response::accepting(&[FRAME_LIMIT]));
                    // Its first message may have come with the handshake.
                    let schedule = Schedule::default();
                    self.connections.push(Connection { id, end, schedule, has_more: true, is_gone: false });
                }
                Ok(None) if now < arrival.cut_at => self.arrivals.push(arrival),
                // A bare connection, or another protocol: it is closed, as codex closes it.
                Ok(None) | Err(_) => {}
            }
        }
    }

    /// Plays what the clients have sent.
    fn read(&mut self) {
        let mut messages: Vec<Utf8Bytes> = Vec::new();
        for index in 0..self.connections.len() {
            let connection = &mut self.connections[index];
            let (id, reading) = (connection.id, connection.end.read(&mut messages));
            connection.has_more = matches!(reading, Reading::More);
            for message in messages.drain(..) {
                let now = Instant::now();
                for sent in self.clients.take(id, message.as_bytes()) {
                    if let Some(to) = self.connections.iter_mut().find(|connection| connection.id == sent.to) {
                        to.schedule.push(self.pace, now, sent.bytes, sent.after_us);
                    }
                }
            }
            if let Reading::Ended(ended) = reading {
                self.connections[index].ended(&ended);
            }
        }
    }

    /// Sends the lines that are due.
    fn write(&mut self) {
        for connection in self.connections.iter_mut().filter(|connection| !connection.is_gone) {
            connection.send_due();
            if connection.end.unsent_bytes() > WAITING_BYTES_MAX {
                connection.is_gone = true;
                (self.tell)(ListenNews::TooSlow { name: self.clients.name(connection.id) });
            }
        }
    }

    /// Lets those go that have left. Returns whether a strict player has seen a difference.
    fn dismiss(&mut self) -> bool {
        let mut has_failed = false;
        let left = self.connections.extract_if(.., |connection| connection.is_gone);
        for connection in left {
            let name = self.clients.name(connection.id).map(str::to_owned);
            let differences = self.clients.leave(connection.id);
            has_failed |= self.clients.is_strict() && !differences.is_empty();
            (self.tell)(ListenNews::Left { name: name.as_deref(), differences: &differences });
        }
        has_failed
    }

    /// Ends all connections.
    fn end(&mut self) {
        let until = Instant::now() + CLOSING_MAX;
        for connection in &mut self.connections {
            connection.send_due();
            connection.end.close(&Close::new(GOING_AWAY, ""));
        }
        while Instant::now() < until && self.connections.iter_mut().any(|connection| connection.flushes_on()) {
            std::thread::park_timeout(Duration::from_millis(5));
        }
        let failed = self.clients.has_failed();
        for connection in std::mem::take(&mut self.connections) {
            let name = self.clients.name(connection.id).map(str::to_owned);
            // Those who are still there owe nothing.
            let differences = self.clients.leave_early(connection.id);
            if failed || !differences.is_empty() {
                (self.tell)(ListenNews::Left { name: name.as_deref(), differences: &differences });
            }
        }
    }
}

impl Connection {
    fn send_due(&mut self) {
        let now = Instant::now();
        while self.end.unsent_bytes() <= WAITING_BYTES_MAX
            && let Some(mut line) = self.schedule.pop_due(now)
        {
            line.pop_if(|last| *last == b'\n');
            // A line that is not UTF-8 is not a message, and no frame can hold it.
            if let Ok(text) = Utf8Bytes::try_from(line) {
                self.end.send(text);
            }
        }
        if self.end.wants_write() && matches!(self.end.flush(), Flushed::Broken(_)) {
            self.is_gone = true;
        }
    }

    /// Whether something waits to be written and may be written yet.
    fn flushes_on(&mut self) -> bool {
        self.end.wants_write() && matches!(self.end.flush(), Flushed::Full)
    }

    /// The client has ended the connection, or breaks the protocol.
    fn ended(&mut self, ended: &Ended) {
        match ended {
            Ended::Closed(close) => self.end.close(close),
            Ended::Violation(violation) => self.end.close(&Close::new(violation.close_code(), "")),
            Ended::Eof | Ended::Truncated | Ended::Broken(_) => {}
        }
        let _ = self.end.flush();
        self.is_gone = true;
    }
}
