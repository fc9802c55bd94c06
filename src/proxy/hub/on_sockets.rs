//! The hub: one thread owns all connections, the engine and the journal's writing end. [`crate::relay::event_loop`] is its loop.
//!
//! A client first sends its handshake ([`Arrival`]); the hub repeats it to the server, on a connection of its own for this client,
//! and passes the server's response on. From then on the two ends are a [`Link`]: each message is decided on, recorded and passed.

use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use signal_hook::consts::SIGCHLD;

use super::arrival::{Arrival, HANDSHAKE_MAX, handshake_interest};
use super::entrances::Entrances;
use super::handover::HandoverWish;
use super::link::{Link, WAITING_BYTES_MAX};
use super::links::{HubLinks, Own};
use super::process::ServerProcess;
use super::published::document;
use crate::driver::Driver;
use crate::engine::{ApiCallId, ApiRequest, Effect, Input, Now, ServerOwner};
use crate::os::polling::PollFlags;
use crate::os::processes;
use crate::relay::Core;
use crate::relay::event_loop::{Polled, Session, Woken, step, take_messages};
use crate::socket::{Callers, LOOK_EVERY};
use crate::websocket::{Connecting, End};
use crate::wire::{Conn, Side};

/// The time for which an ending hub still delivers waiting messages: a little longer than an answer waits for its
/// commit.
const FINISH_MAX: Duration = Duration::from_millis(300);

/// How long clients of a server that has ended may take to read what it wrote. A restart of the server comes in between.
const LAST_OUTPUT_MAX: Duration = Duration::from_secs(60);

/// How often the server process and its log are checked.
const CHECK_EVERY: Duration = Duration::from_secs(5);

/// A link that has ended is read, which shows its end.
const READABLE: PollFlags = PollFlags::IN.union(PollFlags::HUP).union(PollFlags::ERR);

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
    pub(super) driver: Driver<HubLinks<End>>,
    /// The handshake of the hub's own connection.
    pub(super) own_handshake: Option<Connecting>,
    /// No client is accepted before this time.
    pub(super) accept_from: Duration,
    /// When the server process is checked next; at once if it may have ended.
    pub(super) check_due: Duration,
    published_at: Duration,
    /// Reports about this server. They end with it.
    reports: Vec<String>,
    /// The command that replaces the server, for a shell without `CODEX_HOME`.
    restart: String,
    /// A caller wants this hub to become another program.
    pub(super) handover: Option<HandoverWish>,
    /// Children of the program that has run in this process before, to be reaped.
    inherited_children: Vec<u32>,
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
pub(super) enum Ending {
    Signalled,
    ServerEnded,
    /// Nothing is in progress, and another program is to go on.
    HandOver,
}

/// What the loop polls for a hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Polls {
    Listener,
    Arrival,
    /// The handshake of the hub's own connection.
    Own,
    Link(Conn, Side),
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
        let own = if server.adopted { Own::Due(Duration::ZERO) } else { Own::AfterClient };
        let links = HubLinks::new(own, WAITING_BYTES_MAX);
        Hub::with_links(core, server, entrances, callers, (restart, links))
    }

    /// Goes on with the links of the program that has run in this process before, and with its children.
    pub(super) fn with_links(
        core: Core,
        server: ServerProcess,
        entrances: Entrances,
        callers: Callers,
        (restart, links): (String, HubLinks<End>),
    ) -> Hub {
        let mut hub = Hub {
            core,
            server,
            entrances,
            entrances_due: LOOK_EVERY,
            callers,
            reach: Reach::Listening,
            arrivals: Vec::new(),
            driver: Driver::new(links),
            own_handshake: None,
            accept_from: Duration::ZERO,
            check_due: Duration::ZERO,
            published_at: Duration::ZERO,
            reports: Vec::new(),
            restart,
            handover: None,
            inherited_children: Vec::new(),
        };
        hub.publish_now();
        hub
    }

    pub(super) fn reaps(self, inherited_children: Vec<u32>) -> Hub {
        Hub { inherited_children, ..self }
    }

    /// Begins with a server.
    pub(super) fn server_started(&mut self) {
        let mut effects = Vec::new();
        let ServerProcess { pid, adopted, .. } = self.server;
        self.core.handle(Input::ServerStarted { pid, adopted }, &mut effects);
        self.carry_out_all(&mut effects);
    }

    /// Serves clients until a signal comes, the server ends, or another program is to go on.
    pub(super) fn run(&mut self) -> Ending {
        let mut effects = Vec::new();
        loop {
            if let Some(ending) = step(self, None, &mut effects) {
                return ending;
            }
            if !self.server_runs() {
                self.carry_out_all(&mut effects);
                return Ending::ServerEnded;
            }
        }
    }

    /// Closes every connection and ends the session. The server keeps running if it still does.
    pub(super) fn finish(mut self) {
        // Codex looks for a server at the default socket, so it must be gone before anything else.
        self.close_entrances();
        self.reach = Reach::Ended;
        let until = self.core.clock.elapsed() + FINISH_MAX;
        let mut effects = Vec::new();
        self.disconnect_all(|link| link.end_both(until), &mut effects);
        while self.driver.links.count() > 0 && self.core.clock.elapsed() < until {
            step(&mut self, Some(until), &mut effects);
        }
        self.carry_out_all(&mut effects);
        self.core.recorder.close();
    }

    /// Waits while no server runs. Returns whether a signal came that ends the hub.
    pub(super) fn pause(&mut self, wait: Duration) -> bool {
        let until = self.core.clock.elapsed() + wait;
        let mut effects = Vec::new();
        while self.core.clock.elapsed() < until {
            if step(self, Some(until), &mut effects).is_some() {
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
        self.driver.links.forget_unsent();
        self.core.published.child_ended();
        self.publish_now();
    }

    /// Ends all links, each as `end` says, and all handshakes.
    fn disconnect_all(&mut self, end: impl Fn(&mut Link<End>), effects: &mut Vec<Effect>) {
        self.arrivals.clear();
        self.own_handshake = None;
        self.driver.end_all(&mut self.core, end, effects);
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
        self.inherited_children.retain(|child| !processes::is_reaped(*child));
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
            self.driver.links.is_stale = true;
        }
    }

    fn has_clients(&self) -> bool {
        self.driver.links.clients() > 0 || !self.arrivals.is_empty()
    }

    /// Reads from one side of a link, and records and passes what it has written.
    pub(super) fn pass_from(&mut self, conn: Conn, from: Side, effects: &mut Vec<Effect>) {
        let Some(link) = self.driver.links.get_mut(conn) else { return };
        let mut messages = Vec::new();
        let ended = link.read(from, &mut messages);
        // A caller may have written these lines because of a message that is still in the inbox.
        let now = self.core.clock.now();
        take_messages(self, now, effects);
        self.driver.pass_messages(&mut self.core, (conn, from), (messages, ended), effects);
        self.core.publish_pending();
        if std::mem::take(&mut self.driver.links.server_was_lost) {
            // The server itself may have ended.
            self.check_due = Duration::ZERO;
        }
    }

    pub(super) fn carry_out_all(&mut self, effects: &mut Vec<Effect>) {
        self.driver.carry_out_on_links(&mut self.core, effects);
        self.core.publish_pending();
    }

    fn publish(&mut self) {
        let now = self.core.clock.elapsed();
        let is_new = std::mem::take(&mut self.core.introduced) | self.core.engine.subscriptions_changed();
        self.driver.links.is_stale |= is_new;
        if self.driver.links.is_stale && now >= self.published_at + PUBLISH_EVERY {
            self.publish_now();
        }
    }

    fn publish_now(&mut self) {
        self.published_at = self.core.clock.elapsed();
        let document = document(self);
        self.driver.links.is_stale = document.connections.iter().any(|connection| connection.waiting_bytes > 0);
        self.core.published.hub(document);
    }
}

impl Session for Hub {
    type Polled = Polls;
    type Ending = Ending;

    fn core(&self) -> &Core {
        &self.core
    }

    fn core_mut(&mut self) -> &mut Core {
        &mut self.core
    }

    fn settle(&mut self, effects: &mut Vec<Effect>) -> Option<Ending> {
        self.carry_out_all(effects);
        self.publish();
        None
    }

    fn interests<'a>(&'a self, polled: &mut Polled<'a, Polls>) {
        let accepts = self.has_room() && !self.leaves_clients_waiting();
        if accepts && self.core.clock.elapsed() >= self.accept_from {
            for listener in self.entrances.listeners() {
                polled.add(Polls::Listener, (listener.as_fd(), PollFlags::IN));
            }
        }
        self.arrivals.iter().flat_map(Arrival::interests).for_each(|interest| polled.add(Polls::Arrival, interest));
        self.own_handshake.iter().for_each(|own| polled.add(Polls::Own, handshake_interest(own)));
        for (conn, link) in self.driver.links.iter() {
            for interest in link.interests() {
                polled.add(Polls::Link(conn, interest.side), (interest.fd, interest.flags));
            }
        }
    }

    fn next_deadline(&self) -> Option<Duration> {
        let own = match self.driver.links.own {
            Own::Due(due) => Some(due),
            Own::Connecting(since) => Some(since + HANDSHAKE_MAX),
            Own::AfterClient | Own::Open => None,
        };
        let more = (!self.driver.links.with_more().is_empty()).then_some(Duration::ZERO);
        let accept = (self.core.clock.elapsed() < self.accept_from).then_some(self.accept_from);
        let check = (self.reach != Reach::Ended).then_some(self.check_due);
        let entrances = self.entrances.is_open().then_some(self.entrances_due);
        let publish = self.driver.links.is_stale.then(|| self.published_at + PUBLISH_EVERY);
        let handshake = self.arrivals.iter().map(|arrival| arrival.since + HANDSHAKE_MAX).min();
        let cut = self.driver.links.iter().filter_map(|(_, link)| link.cut_at()).min();
        let handover = self.handover_due();
        [own, more, accept, check, entrances, publish, handshake, cut, handover].into_iter().flatten().min()
    }

    fn woken(&mut self, _: &Woken<Polls>, _: &mut Vec<Effect>) {}

    fn signalled(&mut self, numbers: Vec<i32>, _: Now, _: &mut Vec<Effect>) -> Option<Ending> {
        numbers.into_iter().any(|signal| signal != SIGCHLD).then_some(Ending::Signalled)
    }

    fn api_call(&mut self, request: ApiRequest, api_call: ApiCallId, now: Now, effects: &mut Vec<Effect>) {
        if let ApiRequest::HandOver { program } = request {
            return self.wants_handover(program, api_call);
        }
        let server_listens = self.driver.links.answers_to(&self.core.engine).is_some();
        self.core.engine.handle(now, Input::ApiRequest { api_call, request, server_listens }, effects);
    }

    fn attach(&mut self, _: ApiCallId, _: Option<UnixStream>, _: Now, _: &mut Vec<Effect>) {}

    fn pass(&mut self, woken: &Woken<Polls>, _: Now, effects: &mut Vec<Effect>) -> Option<Ending> {
        for (end, flags) in &woken.ends {
            let Polls::Link(conn, side) = *end else { continue };
            if flags.intersects(READABLE) {
                self.pass_from(conn, side, effects);
            } else {
                let now = self.core.clock.now();
                self.driver.flush(&mut self.core, now, (conn, side), effects);
            }
        }
        for (conn, side) in self.driver.links.with_more() {
            self.pass_from(conn, side, effects);
        }
        if woken.has(Polls::Listener) {
            self.accept(effects);
        }
        if woken.has(Polls::Listener) || woken.has(Polls::Arrival) {
            self.advance_arrivals(effects);
        }
        self.advance_own(woken.has(Polls::Own), effects);
        self.driver.send_unsent(&mut self.core, effects);
        None
    }

    fn finish_round(&mut self, now: Now, effects: &mut Vec<Effect>) -> Option<Ending> {
        self.arrivals.retain(|arrival| now.elapsed < arrival.since + HANDSHAKE_MAX);
        self.driver.remove_ended(&mut self.core, effects);
        self.look_after_entrances(effects);
        if self.handover.is_some() {
            // The effects of this round may be part of the work in progress.
            self.carry_out_all(effects);
        }
        self.may_hand_over().then_some(Ending::HandOver)
    }
}
