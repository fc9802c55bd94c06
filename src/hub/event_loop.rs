//! The hub's event loop: one thread owns all connections, the engine and the journal's writing end.
//!
//! A client first sends its handshake ([`Arrival`]); the hub repeats it to the server, on a connection of its own for this client,
//! and passes the server's response on. From then on the two ends are a [`Link`]: each message is decided on, recorded and passed.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use signal_hook::consts::SIGCHLD;

use super::arrival::{Arrival, HANDSHAKE_MAX, OwnConnection, RECONNECT_AFTER, handshake_interest, poll_fd};
use super::entrances::Entrances;
use super::link::{CLOSING_MAX, Link, WAITING_BYTES_MAX};
use super::process::ServerProcess;
use super::published::document;
use crate::control::{Message, Passed};
use crate::engine::{Decision, Effect, Incoming, Injection, Input, LateLine, LinkEffect, Passage, ServerOwner};
use crate::relay::{Core, Elsewhere};
use crate::socket::{Callers, LOOK_EVERY};
use crate::websocket::{Ended, Utf8Bytes};
use crate::wire::{Body, Conn, LINE_BYTES_MAX, Line, LineEnd, Side};

/// The time for which an ending hub still delivers waiting messages: a little longer than an answer waits for its
/// commit.
const FINISH_MAX: Duration = Duration::from_millis(300);

/// How long clients of a server that has ended may take to read what it wrote. A restart of the server comes in between.
const LAST_OUTPUT_MAX: Duration = Duration::from_secs(60);

/// Lines of ours that wait for a connection to the server.
const UNSENT_MAX: usize = 1_024;

/// How often the server process and its log are checked.
const CHECK_EVERY: Duration = Duration::from_secs(5);

/// How often the state of the connections is published while bytes wait.
const PUBLISH_EVERY: Duration = Duration::from_millis(200);

pub(super) struct Hub {
    pub(super) core: Core,
    pub(super) server: ServerProcess,
    /// Closed while no server can be reached: codex then starts one of its own.
    pub(super) entrances: Entrances,
    /// When to look after their files.
    pub(super) entrances_due: Duration,
    /// The processes that may connect.
    pub(super) callers: Callers,
    pub(super) reach: Reach,
    pub(super) arrivals: Vec<Arrival>,
    pub(super) links: BTreeMap<Conn, Link>,
    pub(super) last_conn: u32,
    pub(super) own: OwnConnection,
    /// Lines of ours that no connection took.
    unsent: VecDeque<Injection>,
    /// No client is accepted before this time.
    pub(super) accept_from: Duration,
    /// When the server process is checked next; at once if it may have ended.
    pub(super) check_due: Duration,
    published_at: Duration,
    /// The published state of the connections is old.
    pub(super) is_stale: bool,
    /// Reports about this server. They end with it.
    reports: Vec<String>,
    /// The command that replaces the server, for a shell without `CODEX_HOME`.
    restart: String,
}

/// Whether clients get through to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    Listening,
    /// It runs, but nothing listens at its socket. Clients that are connected stay so.
    SocketGone,
    Ended,
}

/// Why the loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Signalled,
    ServerEnded,
}

/// The results of the poll.
#[derive(Default)]
struct Ready {
    links: Vec<(Conn, Side, bool)>,
    arrivals: bool,
    own: bool,
    listeners: bool,
}

impl Hub {
    pub(super) fn new(
        core: Core,
        server: ServerProcess,
        entrances: Entrances,
        callers: Callers,
        restart: String,
    ) -> Hub {
        // A server that was adopted has been named by the clients of an earlier hub.
        let own = if server.adopted { OwnConnection::Due(Duration::ZERO) } else { OwnConnection::AfterClient };
        let mut hub = Hub {
            core,
            server,
            entrances,
            entrances_due: LOOK_EVERY,
            callers,
            reach: Reach::Listening,
            arrivals: Vec::new(),
            links: BTreeMap::new(),
            last_conn: 0,
            own,
            unsent: VecDeque::new(),
            accept_from: Duration::ZERO,
            check_due: Duration::ZERO,
            published_at: Duration::ZERO,
            is_stale: true,
            reports: Vec::new(),
            restart,
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
            if self.step(None, &mut effects) {
                return End::Signalled;
            }
            if !self.server_runs() {
                self.carry_out_all(&mut effects);
                return End::ServerEnded;
            }
        }
    }

    /// Waits until there is something to do, or until a given time, and does it. Returns whether a signal came that ends the hub.
    fn step(&mut self, until: Option<Duration>, effects: &mut Vec<Effect>) -> bool {
        self.carry_out_all(effects);
        self.publish();
        let ready = self.wait(until);
        if self.core.signals.take().into_iter().any(|signal| signal != SIGCHLD) {
            return true;
        }
        self.take_messages(effects);
        self.pass_ready(&ready, effects);
        if ready.listeners {
            self.accept(effects);
        }
        if ready.listeners || ready.arrivals {
            self.advance_arrivals(effects);
        }
        self.advance_own(ready.own, effects);
        self.send_unsent(effects);
        self.handle_deadlines(effects);
        self.remove_ended(effects);
        self.look_after_entrances(effects);
        false
    }

    /// Closes every connection and ends the session. The server keeps running if it still does.
    pub(super) fn finish(mut self) {
        // Codex looks for a server at the default socket, so it must be gone before anything else.
        self.close_entrances();
        self.reach = Reach::Ended;
        let until = self.core.clock.elapsed() + FINISH_MAX;
        let mut effects = Vec::new();
        self.disconnect_all(|link| link.end_both(until), &mut effects);
        while !self.links.is_empty() && self.core.clock.elapsed() < until {
            self.step(Some(until), &mut effects);
        }
        self.carry_out_all(&mut effects);
        self.core.recorder.close();
    }

    /// Waits while no server runs. Returns whether a signal came that ends the hub.
    pub(super) fn pause(&mut self, wait: Duration) -> bool {
        let until = self.core.clock.elapsed() + wait;
        let mut effects = Vec::new();
        while self.core.clock.elapsed() < until {
            if self.step(Some(until), &mut effects) {
                return true;
            }
        }
        self.carry_out_all(&mut effects);
        false
    }

    /// Goes on with a server that was started anew.
    pub(super) fn next_server(&mut self, server: ServerProcess) {
        // Reaps the last one.
        self.server.is_alive();
        self.core.next_run(ServerOwner::Hub, server.pid, Some(server.generation.clone()));
        self.reports.drain(..).for_each(|report| self.core.published.fault_ended(&report));
        self.server = server;
        self.reach = Reach::Listening;
        // A daemon of codex may have taken the place meanwhile. Clients of this hub then need the other socket.
        self.open_entrances_again();
        self.publish_now();
    }

    /// Ends this run of the server: all connections are gone, and so are its requests.
    pub(super) fn server_ended(&mut self) {
        self.close_entrances();
        self.reach = Reach::Ended;
        let mut effects = Vec::new();
        let cut_at = self.core.clock.elapsed() + LAST_OUTPUT_MAX;
        self.disconnect_all(|link| link.end(Side::Server, None, cut_at), &mut effects);
        self.core.handle(Input::Closed { from: Side::Server }, &mut effects);
        self.carry_out_all(&mut effects);
        self.unsent.clear();
        self.core.published.child_ended();
        self.publish_now();
    }

    /// Ends all links, each as `end` says, and all handshakes.
    fn disconnect_all(&mut self, end: impl Fn(&mut Link), effects: &mut Vec<Effect>) {
        self.arrivals.clear();
        self.own = OwnConnection::AfterClient;
        for (conn, link) in &mut self.links {
            if !link.is_ending() {
                self.core.handle(Input::Disconnected { conn: *conn }, effects);
            }
            end(link);
        }
        // Lines that the engine held go ahead of the end.
        self.carry_out_all(effects);
        for conn in self.links.keys().copied().collect::<Vec<_>>() {
            self.flush(conn, effects);
        }
    }

    /// Whether to go on with this server. An unreachable server is kept only while it works or has clients.
    fn server_runs(&mut self) -> bool {
        if self.reach == Reach::SocketGone && !self.has_clients() && self.core.engine.is_idle() {
            return false;
        }
        if self.core.engine.is_draining() {
            self.report_of_server(super::draining(self.server.pid, &self.restart));
        }
        let now = self.core.clock.elapsed();
        if now < self.check_due {
            return true;
        }
        self.check_due = now + CHECK_EVERY;
        self.server.bound_log();
        if self.server.is_outdated() {
            self.report_of_server(super::outdated(&self.restart));
        }
        self.server.is_alive()
    }

    /// Reports a fault of this server, once.
    pub(super) fn report_of_server(&mut self, report: String) {
        if !self.reports.contains(&report) {
            self.core.notices.report(&report);
            self.reports.push(report);
            self.is_stale = true;
        }
    }

    fn wait(&self, until: Option<Duration>) -> Ready {
        let mut fds = vec![PollFd::new(&self.core.signals, PollFlags::IN)];
        let accepts = self.has_room() && self.core.clock.elapsed() >= self.accept_from;
        let listeners = self.entrances.listeners().filter(|_| accepts);
        fds.extend(listeners.map(|listener| PollFd::new(listener, PollFlags::IN)));
        let arrivals_from = fds.len();
        fds.extend(self.arrivals.iter().flat_map(Arrival::interests).map(poll_fd));
        let own_from = fds.len();
        if let OwnConnection::Connecting(connecting, _) = &self.own {
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
            false => {
                let due = [self.next_deadline(), until].into_iter().flatten().min();
                due.map(|due| due.saturating_sub(self.core.clock.elapsed()))
            }
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
            OwnConnection::Connecting(_, since) => Some(*since + HANDSHAKE_MAX),
            OwnConnection::AfterClient | OwnConnection::Open => None,
        };
        let accept = (self.core.clock.elapsed() < self.accept_from).then_some(self.accept_from);
        let check = (self.reach != Reach::Ended).then_some(self.check_due);
        let entrances = self.entrances.is_open().then_some(self.entrances_due);
        let publish = self.is_stale.then(|| self.published_at + PUBLISH_EVERY);
        let handshake = self.arrivals.iter().map(|arrival| arrival.since + HANDSHAKE_MAX).min();
        let cut = self.links.values().filter_map(Link::cut_at).min();
        [self.core.next_deadline(), own, accept, check, entrances, publish, handshake, cut].into_iter().flatten().min()
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
                Message::Call(request, reply) => {
                    let api_call = self.core.callers.add(reply);
                    let server_listens = self.answers_to().is_some();
                    self.core.handle(Input::ApiRequest { api_call, request, server_listens }, effects);
                }
                // The engine admits no client: clients of a hub have sockets of their own.
                Message::Client { .. } => {}
            }
        }
        self.core.report_refused(effects);
        self.core.publish_waiting(waiting);
    }

    /// The link for lines of ours that any connection may carry: the hub's own, or else that of any client. The server takes lines
    /// only from a client that it has initialized.
    fn answers_to(&self) -> Option<Conn> {
        let mut open = self.links.iter().filter(|(_, link)| !link.is_ending()).map(|(conn, _)| *conn);
        open.find(|conn| self.core.engine.is_initialized(*conn))
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

    fn clients(&self) -> usize {
        self.links.iter().filter(|(conn, link)| **conn != Conn::OWN && !link.is_ending()).count()
    }

    fn has_clients(&self) -> bool {
        self.clients() > 0 || !self.arrivals.is_empty()
    }

    /// Several clients may get the same lines.
    pub(super) fn clients_changed(&mut self) {
        self.core.recorder.share_lines(self.clients() > 1);
        self.is_stale = true;
    }

    /// Reads from one side of a link, and records and passes what it has written.
    pub(super) fn pass(&mut self, conn: Conn, from: Side, effects: &mut Vec<Effect>) {
        let Some(link) = self.links.get_mut(&conn) else { return };
        let mut messages = Vec::new();
        let ended = link.read(from, &mut messages);
        // A caller may have written these lines because of a message that is still in the inbox.
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
        // The engine's effects are carried out before the next messages are read.
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
                let messages = usize::from(sent.is_some());
                if let Some(sent) = sent {
                    passed.bytes += sent.len() as u64;
                    link.send(to, sent);
                }
                mark.into_iter().for_each(|token| link.mark(to, token, messages));
            }
        }
        self.core.published.count(from, passed);
        self.core.publish_waiting(waiting);
        self.core.recall(effects, |token| {
            let waiting = self.unsent.len();
            self.unsent.retain(|injection| injection.mark != Some(token));
            self.unsent.len() < waiting || self.links.values_mut().any(|link| link.recall(token))
        });
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
        link.end(from, ended, self.core.clock.elapsed() + CLOSING_MAX);
        let dropped = link.take_dropped();
        dropped.into_iter().for_each(|token| self.core.handle(Input::NotWritten(token), effects));
        if conn == Conn::OWN {
            self.own = OwnConnection::Due(self.core.clock.elapsed() + RECONNECT_AFTER);
        }
        if from == Side::Server {
            // The server itself may have ended.
            self.check_due = Duration::ZERO;
        }
        self.clients_changed();
    }

    /// Writes what a link takes, and reports the marks that are reached to the engine.
    fn flush(&mut self, conn: Conn, effects: &mut Vec<Effect>) {
        let Some(link) = self.links.get_mut(&conn) else { return };
        let mut reached = Vec::new();
        link.flush(&mut reached);
        self.is_stale |= link.waiting_bytes() > 0;
        reached.into_iter().for_each(|token| self.core.handle(Input::Written(token), effects));
    }

    fn remove_ended(&mut self, effects: &mut Vec<Effect>) {
        let now = self.core.clock.elapsed();
        for (_, mut link) in self.links.extract_if(.., |_, link| link.is_done(now)) {
            let dropped = link.cut();
            dropped.into_iter().for_each(|token| self.core.handle(Input::NotWritten(token), effects));
        }
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
        let document = document(self);
        self.is_stale = document.connections.iter().any(|connection| connection.waiting_bytes > 0);
        self.core.published.hub(document);
    }
}

fn is_answer(line: &[u8]) -> bool {
    matches!(Body::parse(line), Body::Message(message) if message.method.is_none())
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
                match self.core.carry_out(effect, effects) {
                    Some(Elsewhere::Link(effect)) => self.carry_out(effect, effects),
                    // These end a child that talks on pipes; a hub has none.
                    Some(Elsewhere::Child(_)) | None => {}
                }
            }
            self.core.report_refused(effects);
        }
        self.core.publish_pending();
    }

    fn carry_out(&mut self, effect: LinkEffect, effects: &mut Vec<Effect>) {
        match effect {
            LinkEffect::Introduce(..) => self.is_stale = true,
            LinkEffect::Release(token) => {
                self.links.values_mut().for_each(|link| link.release(token));
                for conn in self.links.keys().copied().collect::<Vec<_>>() {
                    self.flush(conn, effects);
                }
            }
            LinkEffect::ReleaseHeld(token) => {
                let mut at_once = Vec::new();
                self.core.handle(Input::ReleaseHeld(token), &mut at_once);
                self.carry_out_all(&mut at_once);
            }
            LinkEffect::PassHeld(lines) => lines.into_iter().for_each(|line| self.pass_held(line, effects)),
            LinkEffect::Inject(injection) => self.inject(injection, effects),
            LinkEffect::PassLate { conns, line } => {
                for conn in conns {
                    if let Some(link) = self.links.get_mut(&conn) {
                        link.send(Side::Client, text(line.clone()));
                        self.flush(conn, effects);
                    }
                }
            }
            LinkEffect::Recall(token) => {
                if self.links.values_mut().any(|link| link.recall(token)) {
                    self.core.handle(Input::Recalled(token), effects);
                }
            }
            LinkEffect::Reply(caller, reply) => drop(self.core.callers.reply(caller, reply)),
            // It greets a client that attaches to a child; clients of a hub talk to the server itself.
            LinkEffect::Answer(_) => {}
        }
    }

    /// Records own lines to the server and sends them. If their connection is gone, answers go out on another, as the server takes
    /// them from any, or wait for the next one. Calls are dropped: the engine has told their callers.
    fn inject(&mut self, mut injection: Injection, effects: &mut Vec<Effect>) {
        let is_open = self.links.get(&injection.conn).is_some_and(|link| !link.is_ending());
        // The server ignores answers before it has initialized a connection.
        let only_answers = !is_open || !self.core.engine.is_initialized(injection.conn);
        if !is_open {
            injection.lines.retain(|line| is_answer(&line.bytes));
        }
        if injection.lines.is_empty() {
            return;
        }
        let are_answers = only_answers && injection.lines.iter().all(|line| is_answer(&line.bytes));
        let conn = if are_answers { self.answers_to() } else { Some(injection.conn) };
        let Some(conn) = conn else {
            if self.unsent.len() < UNSENT_MAX {
                self.unsent.push_back(injection);
            } else {
                self.core.notices.report("no connection to the server; an answer could not be sent");
            }
            return;
        };
        let Injection { lines, mark, .. } = injection;
        self.core.record(conn, &lines);
        if let Some(mark) = mark {
            self.core.handle(Input::SentOver { mark, conn }, effects);
        }
        if let Some(link) = self.links.get_mut(&conn) {
            let messages = lines.len();
            lines.into_iter().for_each(|line| link.send(Side::Server, text(line.bytes)));
            mark.into_iter().for_each(|token| link.mark(Side::Server, token, messages));
        }
        self.flush(conn, effects);
    }

    /// Sends what waited for a connection to the server.
    fn send_unsent(&mut self, effects: &mut Vec<Effect>) {
        while self.answers_to().is_some()
            && let Some(injection) = self.unsent.pop_front()
        {
            self.inject(injection, effects);
        }
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
