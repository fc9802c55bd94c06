//! How connections of a hub begin: a client's handshake, which the hub repeats to the server, and the hub's own.

use std::io::ErrorKind;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use super::front;
use super::link::Link;
use super::links::{Own, RECONNECT_AFTER};
use super::on_sockets::{Hub, Reach};
use crate::control::{self, refused_peer};
use crate::engine::{Effect, Input, Peer, Transport, Variables};
use crate::os::polling::PollFlags;
use crate::os::processes;
use crate::relay::decides;
use crate::socket::{FaultChange, LOOK_EVERY, Refused};
use crate::websocket::{Accepted, Accepting, Connecting, UpgradeRequest};
use crate::wire::Side;

/// Clients whose handshake is not complete. A further one takes the place of the one that has taken longest to send its request.
const ARRIVALS_MAX: usize = 64;

/// Clients accepted at each socket in one go. All together are fewer than [`ARRIVALS_MAX`], so that each client gets to send its
/// request.
const ACCEPTED_MAX: usize = ARRIVALS_MAX / 4;

/// How long a handshake may take; codex itself waits no longer.
pub(super) const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// How long no client is accepted after that has failed, as it does if the process has too many descriptors.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Open links; further clients are disconnected, as if the server took no more.
const LINKS_MAX: usize = 1_000;

/// A client whose handshake is not complete.
pub(super) struct Arrival {
    pub(super) peer: Peer,
    pub(super) since: Duration,
    /// Why its request will be refused.
    refused: Option<Box<Refused>>,
    stage: ArrivalStage,
}

enum ArrivalStage {
    /// Its request has not come whole.
    Asks(Accepting),
    /// The server has not responded.
    Waits(Accepting, Connecting),
    Gone,
}

/// Refuses a client once its request is complete, or is not a handshake.
fn refuse(mut accepting: Accepting, refused: &Refused) -> ArrivalStage {
    if matches!(accepting.read(), Ok(None)) {
        return ArrivalStage::Asks(accepting);
    }
    accepting.refuse_with(403, &control::Refusal::sandboxed(refused).document());
    ArrivalStage::Gone
}

impl Arrival {
    /// Whether its request has not come whole.
    fn asks(&self) -> bool {
        matches!(self.stage, ArrivalStage::Asks(_))
    }

    pub(super) fn interests(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        match &self.stage {
            ArrivalStage::Asks(accepting) => vec![(accepting.as_fd(), PollFlags::IN)],
            // The client waits for its response; that it leaves shows later.
            ArrivalStage::Waits(_, connecting) => vec![handshake_interest(connecting)],
            ArrivalStage::Gone => Vec::new(),
        }
    }
}

pub(super) fn handshake_interest(connecting: &Connecting) -> (BorrowedFd<'_>, PollFlags) {
    let mut flags = PollFlags::IN;
    flags.set(PollFlags::OUT, connecting.wants_write());
    (connecting.as_fd(), flags)
}

impl Hub {
    /// Whether a client can be accepted now. If the server takes its time, clients wait until they are accepted.
    pub(super) fn has_room(&self) -> bool {
        self.arrivals.len() < ARRIVALS_MAX || self.arrivals.iter().any(Arrival::asks)
    }

    pub(super) fn accept(&mut self, effects: &mut Vec<Effect>) {
        let since = self.core.clock.elapsed();
        let mut accepted = Vec::new();
        for listener in self.entrances.listeners() {
            for _ in 0..ACCEPTED_MAX {
                match listener.accept() {
                    Ok(Some(client)) => accepted.push(client),
                    Ok(None) => break,
                    Err(error) => {
                        tracing::warn!(%error, "accept a client");
                        self.accept_from = since + ACCEPT_AGAIN_AFTER;
                        break;
                    }
                }
            }
        }
        for Accepted { stream, peer } in accepted {
            // It only looked whether something listens.
            if peer.has_left(&stream) {
                continue;
            }
            let refused = self.callers.check(&stream, peer).err();
            let Ok(accepting) = Accepting::new(stream) else { continue };
            if let Some(refused) = &refused {
                self.core.handle(Input::PeerRefused(refused_peer("hub", refused)), effects);
            }
            let terminal = peer.pid.and_then(processes::terminal);
            let pid = peer.pid.filter(|_| refused.is_none());
            let variables = pid.map(|pid| self.variables_of(pid)).unwrap_or_default();
            let peer = Peer { transport: Transport::WebSocket, pid: peer.pid, terminal, variables };
            self.arrivals.push(Arrival { peer, since, refused, stage: ArrivalStage::Asks(accepting) });
        }
        // Arrivals are in order, so the first is the oldest. The latest ones have not had the time to ask.
        while self.arrivals.len() > ARRIVALS_MAX {
            let is_refused = |arrival: &Arrival| arrival.refused.is_some();
            let oldest =
                self.arrivals.iter().position(is_refused).or_else(|| self.arrivals.iter().position(Arrival::asks));
            let Some(oldest) = oldest else { break };
            self.arrivals.remove(oldest);
        }
    }

    /// What the commands of a client get of the environment of its process.
    fn variables_of(&self, pid: u32) -> Variables {
        let Some(names) = self.core.shared_variables() else { return Variables::default() };
        let Some(environment) = processes::environment(pid) else { return Variables::default() };
        let of_server = processes::environment(self.server.pid).unwrap_or_default();
        Variables {
            decide: names.iter().any(|name| decides(name)),
            ..Variables::named_in(names, &environment, &of_server)
        }
    }

    /// Listens again at sockets whose files are gone.
    pub(super) fn look_after_entrances(&mut self, effects: &mut Vec<Effect>) {
        let now = self.core.clock.elapsed();
        if !self.entrances.is_open() || now < self.entrances_due {
            return;
        }
        self.entrances_due = now + LOOK_EVERY;
        // Otherwise a client would be the first to notice, and exit.
        if let Err(error) = std::fs::metadata(&self.server.socket)
            && error.kind() == ErrorKind::NotFound
        {
            self.not_connected(&error);
        } else if !self.entrances.are_well() {
            // Clients that connected while the files were there.
            self.accept(effects);
            self.open_entrances_again();
        }
    }

    pub(super) fn open_entrances_again(&mut self) {
        self.entrances_due = self.core.clock.elapsed() + LOOK_EVERY;
        let changes = self.entrances.open_again();
        self.faults_changed(changes);
    }

    /// Nobody can connect from now on.
    pub(super) fn close_entrances(&mut self) {
        let changes = self.entrances.close();
        self.faults_changed(changes);
    }

    fn faults_changed(&mut self, changes: Vec<FaultChange>) {
        for change in changes {
            change.ended.iter().for_each(|fault| self.core.published.fault_ended(fault));
            change.new.iter().for_each(|fault| self.core.notices.report(fault));
        }
        self.driver.links.is_stale = true;
    }

    pub(super) fn advance_arrivals(&mut self, effects: &mut Vec<Effect>) {
        for mut arrival in std::mem::take(&mut self.arrivals) {
            arrival.stage = match arrival.stage {
                ArrivalStage::Asks(accepting) => match &arrival.refused {
                    None => self.read_request(accepting, &mut arrival.peer),
                    Some(refused) => refuse(accepting, refused),
                },
                other @ (ArrivalStage::Waits(..) | ArrivalStage::Gone) => other,
            };
            match std::mem::replace(&mut arrival.stage, ArrivalStage::Gone) {
                ArrivalStage::Gone => {}
                asks @ ArrivalStage::Asks(_) => self.arrivals.push(Arrival { stage: asks, ..arrival }),
                ArrivalStage::Waits(accepting, mut connecting) => match connecting.advance() {
                    Ok(None) => {
                        let stage = ArrivalStage::Waits(accepting, connecting);
                        self.arrivals.push(Arrival { stage, ..arrival });
                    }
                    Ok(Some(response)) if response.is_accepted() => {
                        let link = Link::new(arrival.peer, Some(accepting.accept(&response)), connecting.into_end());
                        let conn = self.driver.client_connected(&mut self.core, link, effects);
                        self.pass_from(conn, Side::Client, effects);
                    }
                    Ok(Some(response)) => accepting.refuse(response.status),
                    Err(error) => tracing::warn!(%error, "the server refused a client's handshake"),
                },
            }
        }
    }

    /// Reads a client's request. Once it is complete, asks the server. If the server cannot be reached, the client's connection is
    /// closed at once, as the server itself would.
    fn read_request(&mut self, mut accepting: Accepting, peer: &mut Peer) -> ArrivalStage {
        match accepting.read() {
            Ok(None) => ArrivalStage::Asks(accepting),
            // Most of these only look whether something listens.
            Err(refusal) => {
                tracing::debug!(%refusal, "a client without a handshake");
                ArrivalStage::Gone
            }
            Ok(Some(_)) if self.driver.links.count() >= LINKS_MAX => {
                self.core.notices.report(&format!("{LINKS_MAX} clients are connected; one more was turned away"));
                ArrivalStage::Gone
            }
            Ok(Some(mut request)) => {
                peer.transport = front::take_transport(&mut request);
                match self.connect(&request) {
                    Ok(connecting) => ArrivalStage::Waits(accepting, connecting),
                    Err(error) => {
                        self.not_connected(&error);
                        ArrivalStage::Gone
                    }
                }
            }
        }
    }

    /// The server did not take a connection: it has ended, or its socket is gone, or too many clients wait there. Codex exits if a
    /// listener closes its connection, so there must be none in the first two cases.
    pub(super) fn not_connected(&mut self, error: &std::io::Error) {
        tracing::warn!(%error, "connect to the server");
        self.check_due = Duration::ZERO;
        let is_gone = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused);
        if is_gone && self.reach == Reach::Listening && self.server.is_alive() {
            self.close_entrances();
            self.reach = Reach::SocketGone;
            let socket = self.server.socket.display();
            self.report_of_server(format!(
                "the server runs, but its socket {socket} is gone; it is replaced once its last client has left"
            ));
        }
    }

    fn connect(&self, request: &UpgradeRequest) -> std::io::Result<Connecting> {
        Connecting::new(super::connect(&self.server.socket)?, request)
    }

    /// Opens the hub's own connection, if it is time for that.
    pub(super) fn advance_own(&mut self, is_ready: bool, effects: &mut Vec<Effect>) {
        let now = self.core.clock.elapsed();
        match self.driver.links.own {
            Own::Due(due) if due <= now => match self.connect(&UpgradeRequest::of_path("/rpc")) {
                Ok(connecting) => {
                    self.own_handshake = Some(connecting);
                    self.driver.links.own = Own::Connecting(now);
                }
                Err(error) => {
                    self.not_connected(&error);
                    self.own_failed(now);
                }
            },
            Own::Connecting(since) if now >= since + HANDSHAKE_MAX => {
                tracing::warn!("the server has not responded to the hub's own handshake");
                self.own_failed(now);
            }
            Own::Connecting(_) if is_ready => {
                let Some(mut connecting) = self.own_handshake.take() else { return };
                match connecting.advance() {
                    Ok(None) => self.own_handshake = Some(connecting),
                    Ok(Some(response)) if response.is_accepted() => {
                        let pid = Some(std::process::id());
                        let peer = Peer {
                            transport: Transport::WebSocket,
                            pid,
                            terminal: None,
                            variables: Default::default(),
                        };
                        self.driver.own_connected(&mut self.core, (peer, connecting.into_end()), effects);
                    }
                    Ok(Some(_)) | Err(_) => {
                        tracing::warn!("the server refused the hub's own handshake");
                        self.own_failed(now);
                    }
                }
            }
            Own::AfterClient | Own::Due(_) | Own::Connecting(_) | Own::Open => {}
        }
    }

    /// It is tried again a little later.
    fn own_failed(&mut self, now: Duration) {
        self.own_handshake = None;
        self.driver.links.own = Own::Due(now + RECONNECT_AFTER);
    }
}
