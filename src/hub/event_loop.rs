//! The hub's event loop: one thread owns all connections, the engine and the journal's writing end.
//!
//! A client first sends its handshake ([`Arrival`]); the hub repeats it to the server, on a connection of its own for this client,
//! and passes the server's response on. From then on the two ends are a [`Link`]: each message is decided on, recorded and passed.

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use signal_hook::consts::SIGCHLD;

use super::arrival::{Arrival, Stage, handshake_interest, poll_fd};
use super::link::{Link, WAITING_BYTES_MAX};
use super::process::ServerProcess;
use super::published::document;
use super::sockets::{Accepted, Listener};
use super::websocket::{Accepting, Connecting, Ended, Request, Utf8Bytes};
use crate::control::{Passed, RelayRequest};
use crate::engine::{Decision, Effect, Incoming, Injection, Input, LateLine, Passage, Peer, ServerOwner, Transport};
use crate::relay::{Core, Message};
use crate::wire::{Conn, LINE_BYTES_MAX, Line, LineEnd, Side};

/// Clients whose handshake is not complete. Others wait until they are accepted.
const ARRIVALS_MAX: usize = 64;

/// How long a handshake may take; codex itself waits no longer.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// How long no client is accepted after that has failed, as it does if the process has too many descriptors.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Open links; further clients are disconnected, as if the server took no more.
const LINKS_MAX: usize = 1_000;

/// How soon the hub connects to the server again if it loses its own connection.
const RECONNECT_AFTER: Duration = Duration::from_secs(1);

/// How often the server process and its log are checked.
const CHECK_EVERY: Duration = Duration::from_secs(5);

/// How often the state of the connections is published while bytes wait.
const PUBLISH_EVERY: Duration = Duration::from_millis(200);

pub(super) struct Hub {
    pub(super) core: Core,
    pub(super) server: ServerProcess,
    /// Empty while no server runs: codex then starts one of its own.
    pub(super) listeners: Vec<Listener>,
    arrivals: Vec<Arrival>,
    links: BTreeMap<Conn, Link>,
    last_conn: u32,
    own: OwnConnection,
    /// No client is accepted before this time.
    accept_from: Duration,
    /// When the server process is checked next; at once if it may have ended.
    check_due: Duration,
    published_at: Duration,
    /// The published state of the connections is old.
    is_stale: bool,
}

/// The hub's own connection.
enum OwnConnection {
    /// The server names itself after the first client of its process, so a client comes first.
    AfterClient,
    /// To be opened at this time.
    Due(Duration),
    Connecting(Connecting),
    Open,
}

/// Why the loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Signalled,
    ServerEnded,
}

/// What the poll found.
#[derive(Default)]
struct Ready {
    links: Vec<(Conn, Side, bool)>,
    arrivals: bool,
    own: bool,
    listeners: bool,
}

impl Hub {
    pub(super) fn new(core: Core, server: ServerProcess, listeners: Vec<Listener>) -> Hub {
        // A server that was adopted has been named by the clients of an earlier hub.
        let own = if server.adopted { OwnConnection::Due(Duration::ZERO) } else { OwnConnection::AfterClient };
        let mut hub = Hub {
            core,
            server,
            listeners,
            arrivals: Vec::new(),
            links: BTreeMap::new(),
            last_conn: 0,
            own,
            accept_from: Duration::ZERO,
            check_due: Duration::ZERO,
            published_at: Duration::ZERO,
            is_stale: true,
        };
        hub.publish_now();
        hub
    }

    /// Serves clients until a signal comes or the server ends.
    pub(super) fn run(&mut self) -> End {
        let mut effects = Vec::new();
        let ServerProcess { pid, adopted, .. } = self.server;
        self.core.handle(Input::ServerStarted { pid, adopted }, &mut effects);
        loop {
            self.carry_out_all(&mut effects);
            self.publish();
            let ready = self.wait();
            if self.core.signals.take().into_iter().any(|signal| signal != SIGCHLD) {
                return End::Signalled;
            }
            self.take_messages(&mut effects);
            self.pass_ready(&ready, &mut effects);
            if ready.listeners {
                self.accept();
            }
            if ready.arrivals {
                self.advance_arrivals(&mut effects);
            }
            self.advance_own(ready.own, &mut effects);
            self.handle_deadlines(&mut effects);
            self.remove_ended();
            if !self.server_runs() {
                return End::ServerEnded;
            }
        }
    }

    /// Closes every connection and ends the session. The server keeps running if it still does.
    pub(super) fn finish(mut self) {
        // Codex looks for a server at the default socket, so it must be gone before anything else.
        self.listeners.clear();
        let mut effects = Vec::new();
        for conn in self.links.keys().copied().collect::<Vec<_>>() {
            self.core.handle(Input::Disconnected { conn }, &mut effects);
        }
        self.carry_out_all(&mut effects);
        self.core.recorder.close();
    }

    /// Waits while no server runs. Returns whether a signal came that ends the hub.
    pub(super) fn pause(&mut self, wait: Duration) -> bool {
        let until = self.core.clock.elapsed() + wait;
        loop {
            if self.core.signals.take().into_iter().any(|signal| signal != SIGCHLD) {
                return true;
            }
            // Callers are told that no server runs.
            let mut effects = Vec::new();
            self.take_messages(&mut effects);
            self.carry_out_all(&mut effects);
            let left = until.saturating_sub(self.core.clock.elapsed());
            if left.is_zero() {
                return false;
            }
            let timeout = Timespec::try_from(left).ok();
            // An error means that a signal interrupted the poll; the next iteration checks the signals.
            let _ = rustix::event::poll(&mut [PollFd::new(&self.core.signals, PollFlags::IN)], timeout.as_ref());
        }
    }

    /// Goes on with a server that was started anew.
    pub(super) fn next_server(&mut self, server: ServerProcess, listeners: Vec<Listener>) {
        self.core.next_run(ServerOwner::Hub, server.pid, Some(server.generation.clone()));
        (self.server, self.listeners) = (server, listeners);
        self.publish_now();
    }

    /// Ends this run of the server: all connections are gone, and so are its requests.
    pub(super) fn server_ended(&mut self) {
        let mut effects = Vec::new();
        for conn in self.links.keys().copied().collect::<Vec<_>>() {
            self.core.handle(Input::Disconnected { conn }, &mut effects);
        }
        self.core.handle(Input::Closed { from: Side::Server }, &mut effects);
        self.carry_out_all(&mut effects);
        self.links.clear();
        self.arrivals.clear();
        self.own = OwnConnection::AfterClient;
        self.core.published.child_ended();
        self.publish_now();
    }

    fn server_runs(&mut self) -> bool {
        let now = self.core.clock.elapsed();
        if now < self.check_due {
            return true;
        }
        self.check_due = now + CHECK_EVERY;
        self.server.bound_log();
        self.server.is_alive()
    }

    fn wait(&self) -> Ready {
        let mut fds = vec![PollFd::new(&self.core.signals, PollFlags::IN)];
        let accepts = self.arrivals.len() < ARRIVALS_MAX && self.core.clock.elapsed() >= self.accept_from;
        let listeners = self.listeners.iter().filter(|_| accepts);
        fds.extend(listeners.map(|listener| PollFd::new(listener, PollFlags::IN)));
        let arrivals_from = fds.len();
        fds.extend(self.arrivals.iter().flat_map(Arrival::interests).map(poll_fd));
        let own_from = fds.len();
        if let OwnConnection::Connecting(connecting) = &self.own {
            fds.push(poll_fd(handshake_interest(connecting)));
        }
        let links_from = fds.len();
        let mut of_links = Vec::new();
        for (conn, link) in &self.links {
            for interest in link.interests() {
                of_links.push((*conn, interest.side));
                fds.push(PollFd::from_borrowed_fd(interest.fd, interest.flags));
            }
        }
        let timeout = match self.has_more() {
            true => Some(Duration::ZERO),
            false => self.next_deadline().map(|due| due.saturating_sub(self.core.clock.elapsed())),
        };
        let timeout = timeout.and_then(|wait| Timespec::try_from(wait).ok());
        // An error means that a signal interrupted the poll; it is handled like any other signal.
        if rustix::event::poll(&mut fds, timeout.as_ref()).is_err() {
            return Ready::default();
        }
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let readable = PollFlags::IN | PollFlags::HUP | PollFlags::ERR;
        let links = of_links.into_iter().zip(&fds[links_from..]).filter(|(_, fd)| is_ready(fd));
        Ready {
            links: links.map(|((conn, side), fd)| (conn, side, fd.revents().intersects(readable))).collect(),
            listeners: fds[1..arrivals_from].iter().any(is_ready),
            arrivals: fds[arrivals_from..own_from].iter().any(is_ready),
            own: fds[own_from..links_from].iter().any(is_ready),
        }
    }

    fn has_more(&self) -> bool {
        self.links.values().any(|link| link.has_more(Side::Client) || link.has_more(Side::Server))
    }

    fn next_deadline(&self) -> Option<Duration> {
        let own = match &self.own {
            OwnConnection::Due(due) => Some(*due),
            OwnConnection::AfterClient | OwnConnection::Connecting(_) | OwnConnection::Open => None,
        };
        let accept = (self.core.clock.elapsed() < self.accept_from).then_some(self.accept_from);
        let check = Some(self.check_due);
        let publish = self.is_stale.then(|| self.published_at + PUBLISH_EVERY);
        let handshake = self.arrivals.iter().map(|arrival| arrival.since + HANDSHAKE_MAX).min();
        let cut = self.links.values().filter_map(Link::cut_at).min();
        [self.core.next_deadline(), own, accept, check, publish, handshake, cut].into_iter().flatten().min()
    }

    fn handle_deadlines(&mut self, effects: &mut Vec<Effect>) {
        let now = self.core.clock.now();
        if self.core.engine.next_deadline().is_some_and(|due| due <= now.elapsed) {
            self.core.engine.handle(now, Input::Tick, effects);
        }
        self.arrivals.retain(|arrival| now.elapsed < arrival.since + HANDSHAKE_MAX);
    }

    /// Takes all messages out of the inbox.
    fn take_messages(&mut self, effects: &mut Vec<Effect>) {
        self.core.recorder.drain_overflow();
        let waiting = self.core.engine.context_waiting();
        while let Some(message) = self.core.inbox.take() {
            match message {
                Message::Input(input) => self.core.handle(input, effects),
                Message::Configure(settings) => self.core.configure(*settings, effects),
                Message::Request(RelayRequest::Call(request, reply)) => {
                    let api_call = self.core.callers.add(reply);
                    let server_listens = self.answers_to().is_some();
                    self.core.handle(Input::ApiRequest { api_call, request, server_listens }, effects);
                }
                // The engine admits no client: clients of a hub have sockets of their own.
                Message::Request(RelayRequest::Client { .. }) => {}
            }
        }
        self.core.report_refused(effects);
        self.core.publish_waiting(waiting);
    }

    /// The link for lines of ours that any connection may carry. The server takes lines only from a client that it has initialized,
    /// and the engine knows no other.
    fn answers_to(&self) -> Option<Conn> {
        let is_open = |conn: &Conn| self.links.get(conn).is_some_and(|link| !link.is_ending());
        let is_client = |conn: &Conn| is_open(conn) && self.core.engine.client(*conn).is_some();
        is_open(&Conn::OWN).then_some(Conn::OWN).or_else(|| self.links.keys().copied().find(is_client))
    }
}

// Clients that arrive.

impl Hub {
    fn accept(&mut self) {
        let since = self.core.clock.elapsed();
        for listener in &self.listeners {
            while self.arrivals.len() < ARRIVALS_MAX {
                let Accepted { stream, pid } = match listener.accept() {
                    Ok(Some(accepted)) => accepted,
                    Ok(None) => break,
                    Err(error) => {
                        tracing::warn!(%error, "accept a client");
                        self.accept_from = since + ACCEPT_AGAIN_AFTER;
                        break;
                    }
                };
                let Ok(accepting) = Accepting::new(stream) else { continue };
                let peer = Peer { transport: Transport::WebSocket, pid };
                self.arrivals.push(Arrival { peer, since, stage: Stage::Asks(accepting) });
            }
        }
    }

    fn advance_arrivals(&mut self, effects: &mut Vec<Effect>) {
        for mut arrival in std::mem::take(&mut self.arrivals) {
            arrival.stage = match arrival.stage {
                Stage::Asks(accepting) => self.read_request(accepting),
                other @ (Stage::Waits(..) | Stage::Gone) => other,
            };
            match std::mem::replace(&mut arrival.stage, Stage::Gone) {
                Stage::Gone => {}
                asks @ Stage::Asks(_) => self.arrivals.push(Arrival { stage: asks, ..arrival }),
                Stage::Waits(accepting, mut connecting) => match connecting.advance() {
                    Ok(None) => {
                        let stage = Stage::Waits(accepting, connecting);
                        self.arrivals.push(Arrival { stage, ..arrival });
                    }
                    Ok(Some(response)) if response.is_accepted() => {
                        let link = Link::new(arrival.peer, Some(accepting.accept(&response)), connecting.into_end());
                        self.connected(arrival.peer, link, effects);
                    }
                    Ok(Some(response)) => accepting.refuse(response.status),
                    Err(error) => tracing::warn!(%error, "the server refused a client's handshake"),
                },
            }
        }
    }

    /// Reads a client's request. Once it is whole, asks the server. If the server cannot be reached, the client's connection is
    /// closed at once, as the server itself would.
    fn read_request(&mut self, mut accepting: Accepting) -> Stage {
        match accepting.read() {
            Ok(None) => Stage::Asks(accepting),
            // Most of these only look whether something listens.
            Err(refusal) => {
                tracing::debug!(%refusal, "a client without a handshake");
                Stage::Gone
            }
            Ok(Some(_)) if self.links.len() >= LINKS_MAX => {
                self.core.notices.report(&format!("{LINKS_MAX} clients are connected; one more was turned away"));
                Stage::Gone
            }
            Ok(Some(request)) => match self.connect(&request) {
                Ok(connecting) => Stage::Waits(accepting, connecting),
                Err(error) => {
                    tracing::warn!(%error, "connect to the server");
                    self.check_due = Duration::ZERO;
                    Stage::Gone
                }
            },
        }
    }

    fn connect(&self, request: &Request) -> std::io::Result<Connecting> {
        Connecting::new(super::connect(&self.server.socket)?, request)
    }

    fn connected(&mut self, peer: Peer, link: Link, effects: &mut Vec<Effect>) {
        self.last_conn += 1;
        let conn = Conn(self.last_conn);
        self.links.insert(conn, link);
        self.core.handle(Input::Connected { conn, peer }, effects);
        self.is_stale = true;
        self.pass(conn, Side::Client, effects);
    }

    /// Opens the hub's own connection, if it is time for that.
    fn advance_own(&mut self, is_ready: bool, effects: &mut Vec<Effect>) {
        let now = self.core.clock.elapsed();
        let again = OwnConnection::Due(now + RECONNECT_AFTER);
        self.own = match std::mem::replace(&mut self.own, OwnConnection::AfterClient) {
            OwnConnection::Due(due) if due <= now => match self.connect(&Request::of_path("/rpc")) {
                Ok(connecting) => OwnConnection::Connecting(connecting),
                Err(error) => {
                    tracing::warn!(%error, "connect the hub to the server");
                    again
                }
            },
            OwnConnection::Connecting(mut connecting) if is_ready => match connecting.advance() {
                Ok(None) => OwnConnection::Connecting(connecting),
                Ok(Some(response)) if response.is_accepted() => {
                    let peer = Peer { transport: Transport::WebSocket, pid: Some(std::process::id()) };
                    self.links.insert(Conn::OWN, Link::new(peer, None, connecting.into_end()));
                    self.core.handle(Input::Connected { conn: Conn::OWN, peer }, effects);
                    OwnConnection::Open
                }
                Ok(Some(_)) | Err(_) => {
                    tracing::warn!("the server refused the hub's own handshake");
                    again
                }
            },
            other @ (OwnConnection::AfterClient
            | OwnConnection::Due(_)
            | OwnConnection::Connecting(_)
            | OwnConnection::Open) => other,
        };
    }
}

// Messages that pass.

impl Hub {
    fn pass_ready(&mut self, ready: &Ready, effects: &mut Vec<Effect>) {
        for (conn, side, is_readable) in &ready.links {
            if *is_readable {
                self.pass(*conn, *side, effects);
            } else {
                self.flush(*conn, effects);
            }
        }
        let more = |link: &Link, side| link.has_more(side);
        let with_more: Vec<(Conn, Side)> = self
            .links
            .iter()
            .flat_map(|(conn, link)| {
                [Side::Client, Side::Server].into_iter().filter(|side| more(link, *side)).map(|side| (*conn, side))
            })
            .collect();
        for (conn, side) in with_more {
            self.pass(conn, side, effects);
        }
    }

    /// Reads from one side of a link, and records and passes what it has written.
    fn pass(&mut self, conn: Conn, from: Side, effects: &mut Vec<Effect>) {
        let Some(link) = self.links.get_mut(&conn) else { return };
        let mut messages = Vec::new();
        let ended = link.read(from, &mut messages);
        // A caller may have written what was just read in response to one of these messages.
        self.take_messages(effects);
        self.pass_messages(conn, from, messages, effects);
        if let Some(ended) = ended {
            self.link_ended(conn, from, Some(&ended), effects);
            // Lines that the engine held go ahead of a close frame.
            self.carry_out_all(effects);
        }
        self.flush(conn, effects);
        if self.links.get(&conn).is_some_and(Link::is_too_slow) {
            let limit = bytesize::ByteSize(WAITING_BYTES_MAX as u64);
            self.core.notices.report(&format!("a client has left {limit} unread; it is disconnected"));
            self.link_ended(conn, Side::Client, None, effects);
        }
        // What the engine wants in return goes out before the next messages are read.
        self.carry_out_all(effects);
    }

    fn pass_messages(&mut self, conn: Conn, from: Side, messages: Vec<Utf8Bytes>, effects: &mut Vec<Effect>) {
        if messages.is_empty() {
            return;
        }
        let to = match from {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        };
        let now = self.core.clock.now();
        let waiting = self.core.engine.context_waiting();
        let mut batch = self.core.recorder.batch(now, conn, &self.core.notices);
        let mut passed = Passed::default();
        let mut queued = Vec::new();
        for message in &messages {
            let line = Line { bytes: message.as_bytes(), end: LineEnd::Newline };
            let incoming = match line.bytes.len() > LINE_BYTES_MAX {
                false => Incoming::Line(line),
                true => Incoming::LastPiece { line_bytes: line.bytes.len() as u64 },
            };
            passed.lines += 1;
            let mut before = Vec::new();
            let decision = self.core.engine.read(now, conn, from, incoming, &mut before);
            effects.extend(before.into_iter().filter_map(|effect| self.core.recorder.add(&mut batch, effect)));
            let Some(decision) = decision else { continue };
            self.core.recorder.add_line(&mut batch, from, line, &decision);
            passed.count_omitted(&decision);
            let Decision { before, hold, line, mark, then, record: _ } = decision;
            queued.push((before, hold, line, message.clone(), mark));
            effects.extend(then.into_iter().filter_map(|effect| self.core.recorder.add(&mut batch, effect)));
        }
        if let Some(batch) = batch {
            self.core.recorder.commit(batch, &mut self.core.notices);
        }
        if let Some(link) = self.links.get_mut(&conn) {
            for (before, hold, line, message, mark) in queued {
                before.into_iter().for_each(|own| link.send(to, text(own.bytes)));
                hold.into_iter().for_each(|token| link.hold(to, token));
                let sent = match line {
                    Passage::Forward => Some(message),
                    Passage::Replace(own) => Some(text(own.bytes)),
                    Passage::Withhold => None,
                };
                if let Some(sent) = sent {
                    passed.bytes += sent.len() as u64;
                    link.send(to, sent);
                }
                mark.into_iter().for_each(|token| link.mark(to, token));
            }
        }
        self.core.published.count(from, passed);
        self.core.publish_waiting(waiting);
        let is_client = conn != Conn::OWN && self.core.engine.client(conn).is_some();
        if from == Side::Server && matches!(self.own, OwnConnection::AfterClient) && is_client {
            // This client's `initialize` is answered: it was the server's first message to it. A probe is not on record; the
            // server does not take its name from one.
            self.own = OwnConnection::Due(Duration::ZERO);
        }
    }

    /// A link has lost one of its sides.
    fn link_ended(&mut self, conn: Conn, from: Side, ended: Option<&Ended>, effects: &mut Vec<Effect>) {
        let Some(link) = self.links.get_mut(&conn).filter(|link| !link.is_ending()) else { return };
        tracing::debug!(conn = conn.0, ?from, ?ended, "a connection has ended");
        self.core.handle(Input::Disconnected { conn }, effects);
        link.end(from, ended, self.core.clock.elapsed());
        if conn == Conn::OWN {
            self.own = OwnConnection::Due(self.core.clock.elapsed() + RECONNECT_AFTER);
        }
        if from == Side::Server {
            // The server itself may have ended.
            self.check_due = Duration::ZERO;
        }
        self.is_stale = true;
    }

    /// Writes what a link takes, and reports the marks that are reached to the engine.
    fn flush(&mut self, conn: Conn, effects: &mut Vec<Effect>) {
        let Some(link) = self.links.get_mut(&conn) else { return };
        let mut reached = Vec::new();
        link.flush(&mut reached);
        self.is_stale |= link.waiting_bytes() > 0;
        for token in reached {
            self.core.handle(Input::Written(token), effects);
        }
    }

    fn remove_ended(&mut self) {
        let now = self.core.clock.elapsed();
        self.links.retain(|_, link| !link.is_done(now));
    }

    fn publish(&mut self) {
        let now = self.core.clock.elapsed();
        self.is_stale |= self.core.engine.subscriptions_changed();
        if self.is_stale && now >= self.published_at + PUBLISH_EVERY {
            self.publish_now();
        }
    }

    fn publish_now(&mut self) {
        self.published_at = self.core.clock.elapsed();
        let document = document(&self.server, &self.links, &self.core.engine);
        self.is_stale = document.connections.iter().any(|connection| connection.waiting_bytes > 0);
        self.core.published.hub(document);
    }
}

fn text(bytes: Vec<u8>) -> Utf8Bytes {
    Utf8Bytes::try_from(bytes).expect("BUG: our own lines are edits of text")
}

// Effects of the engine.

impl Hub {
    fn carry_out_all(&mut self, effects: &mut Vec<Effect>) {
        self.core.report_refused(effects);
        while !effects.is_empty() {
            for effect in std::mem::take(effects) {
                if let Some(effect) = self.core.carry_out(effect, effects) {
                    self.carry_out(effect, effects);
                }
            }
            self.core.report_refused(effects);
        }
        self.core.publish_pending();
    }

    fn carry_out(&mut self, effect: Effect, effects: &mut Vec<Effect>) {
        match effect {
            Effect::Introduce(..) => self.is_stale = true,
            Effect::Release(token) => {
                self.links.values_mut().for_each(|link| link.release(token));
                for conn in self.links.keys().copied().collect::<Vec<_>>() {
                    self.flush(conn, effects);
                }
            }
            Effect::ReleaseHeld(token) => {
                let mut at_once = Vec::new();
                self.core.handle(Input::ReleaseHeld(token), &mut at_once);
                self.carry_out_all(&mut at_once);
            }
            Effect::PassHeld(lines) => lines.into_iter().for_each(|line| self.pass_held(line, effects)),
            Effect::Inject(injection) => self.inject(injection, effects),
            Effect::PassLate { conns, line } => {
                for conn in conns {
                    if let Some(link) = self.links.get_mut(&conn) {
                        link.send(Side::Client, text(line.clone()));
                        self.flush(conn, effects);
                    }
                }
            }
            Effect::Reply(caller, reply) => drop(self.core.callers.reply(caller, reply)),
            // These end a child that talks on pipes, or greet a client that attaches to it; a hub has neither.
            Effect::Answer(_)
            | Effect::CloseServerInput
            | Effect::CloseClientOutput
            | Effect::SignalServer(_)
            | Effect::KillServer
            | Effect::DrainServer { .. }
            | Effect::Finish(_) => {}
            Effect::Note(_)
            | Effect::Order(_)
            | Effect::Consult(_)
            | Effect::RunFragments(..)
            | Effect::NotifyPending(_)
            | Effect::NotifyIdle(_)
            | Effect::Warn(_) => unreachable!("BUG: the core carries these out"),
        }
    }

    /// Records own lines to the server and sends them, on another connection if theirs is gone: the server takes an answer from
    /// any.
    fn inject(&mut self, injection: Injection, effects: &mut Vec<Effect>) {
        let Injection { conn, lines, mark } = injection;
        let is_open = self.links.get(&conn).is_some_and(|link| !link.is_ending());
        let conn = if is_open { Some(conn) } else { self.answers_to() };
        let Some(conn) = conn else {
            tracing::warn!("no connection to the server takes a line of ours");
            return;
        };
        self.core.record(conn, &lines);
        if let Some(link) = self.links.get_mut(&conn) {
            lines.into_iter().for_each(|line| link.send(Side::Server, text(line.bytes)));
            mark.into_iter().for_each(|token| link.mark(Side::Server, token));
        }
        self.flush(conn, effects);
    }

    /// Records and passes a client's line that was held.
    fn pass_held(&mut self, late: LateLine, effects: &mut Vec<Effect>) {
        let LateLine { conn, bytes, end, decision } = late;
        let mut batch = self.core.recorder.batch(self.core.clock.now(), conn, &self.core.notices);
        self.core.recorder.add_line(&mut batch, Side::Client, Line { bytes: &bytes, end }, &decision);
        if let Some(batch) = batch {
            self.core.recorder.commit(batch, &mut self.core.notices);
        }
        let mut passed = Passed::default();
        passed.count_omitted(&decision);
        let Decision { before, line, then, .. } = decision;
        let line = match line {
            Passage::Forward => Some(bytes),
            Passage::Replace(own) => Some(own.bytes),
            Passage::Withhold => None,
        };
        if let Some(link) = self.links.get_mut(&conn) {
            for bytes in before.into_iter().map(|own| own.bytes).chain(line) {
                passed.bytes += bytes.len() as u64;
                link.send(Side::Server, text(bytes));
            }
        }
        effects.extend(then);
        self.core.published.count(Side::Client, passed);
        self.flush(conn, effects);
    }
}
