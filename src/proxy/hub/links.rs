//! All links of a hub: how they begin and end, and which of them carries lines of ours.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::link::{CLOSING_MAX, Link, LinkEnd};
use crate::driver::{Carrier, Decided, Driver, Host, Links, other};
use crate::engine::Effect;
use crate::engine::{Engine, Incoming, Injection, Input, Passage, Peer, Token};
use crate::invariants::holds;
use crate::os;
use crate::websocket::{End, Ended, Utf8Bytes};
use crate::wire::{Body, Conn, LINE_BYTES_MAX, Line, LineEnd, Side};

/// How soon the hub connects to the server again if it loses its own connection.
pub(super) const RECONNECT_AFTER: Duration = Duration::from_secs(1);

/// The hub's own connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Own {
    /// The server names itself after the first client of its process, so a client comes first.
    AfterClient,
    /// To be opened at this time.
    Due(Duration),
    /// The handshake began at this time.
    Connecting(Duration),
    Open,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct HubLinks<E> {
    links: BTreeMap<Conn, Link<E>>,
    last_conn: u32,
    pub own: Own,
    /// Answers that no connection took: at most one for each open request, of which the engine bounds the number. None is dropped,
    /// because nobody could answer that request again.
    unsent: VecDeque<Injection>,
    /// Bytes that may wait for a client.
    waiting_bytes_max: usize,
    /// What is shown about the links is old.
    pub is_stale: bool,
    /// A link has lost the server, which may have ended.
    pub server_was_lost: bool,
}

impl<E: LinkEnd> HubLinks<E> {
    pub fn new(own: Own, waiting_bytes_max: usize) -> HubLinks<E> {
        HubLinks {
            links: BTreeMap::new(),
            last_conn: 0,
            own,
            unsent: VecDeque::new(),
            waiting_bytes_max,
            is_stale: true,
            server_was_lost: false,
        }
    }

    pub fn get(&self, conn: Conn) -> Option<&Link<E>> {
        self.links.get(&conn)
    }

    pub fn get_mut(&mut self, conn: Conn) -> Option<&mut Link<E>> {
        self.links.get_mut(&conn)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Conn, &Link<E>)> {
        self.links.iter().map(|(conn, link)| (*conn, link))
    }

    pub fn count(&self) -> usize {
        self.links.len()
    }

    /// Clients that are connected.
    pub fn clients(&self) -> usize {
        self.iter().filter(|(conn, link)| *conn != Conn::OWN && !link.is_ending()).count()
    }

    /// Checks the links against what the engine knows of them.
    fn check(&self, engine: &Engine) {
        let mut open = self.iter().filter(|(conn, link)| *conn != Conn::OWN && !link.is_ending());
        holds!("links.engine-knows-the-open-ones", open.all(|(conn, _)| engine.is_connected(conn)));
        holds!("links.engine-knows-no-others", engine.connections() == self.clients());
        let newest = self.links.keys().next_back().map_or(0, |conn| conn.0);
        holds!("links.numbers-were-given", newest <= self.last_conn);
        holds!("links.own-is-there-when-open", self.own != Own::Open || self.links.contains_key(&Conn::OWN));
    }

    /// The link for lines of ours that any connection may carry: the hub's own, or else that of any client. The server takes lines
    /// only from a client that it has initialized.
    pub fn answers_to(&self, engine: &Engine) -> Option<Conn> {
        let mut open = self.iter().filter(|(_, link)| !link.is_ending()).map(|(conn, _)| conn);
        open.find(|conn| engine.is_initialized(*conn))
    }

    /// The connection of the next client.
    pub fn next_conn(&self) -> Conn {
        Conn(self.last_conn + 1)
    }

    /// Whether it is time for the hub's own connection.
    pub fn own_is_due(&self, elapsed: Duration) -> bool {
        matches!(self.own, Own::Due(due) if due <= elapsed)
    }

    /// The links that have ended, and whether something still waits there.
    pub fn ended(&self, elapsed: Duration) -> Vec<(Conn, bool)> {
        self.iter().filter(|(_, link)| link.is_done(elapsed)).map(|(conn, link)| (conn, link.is_busy())).collect()
    }

    /// How many of our sendings wait for a connection.
    pub fn unsent(&self) -> usize {
        self.unsent.len()
    }

    /// Forgets the lines that wait for a connection: their server is gone.
    pub fn forget_unsent(&mut self) {
        self.unsent.clear();
    }

    /// The sides of which more can be read than a poll shows.
    pub fn with_more(&self) -> Vec<(Conn, Side)> {
        let sides = |(conn, link)| [Side::Client, Side::Server].map(|side| (conn, link, side));
        let with_more =
            self.iter().flat_map(sides).filter(|(_, link, side): &(Conn, &Link<E>, Side)| link.has_more(*side));
        with_more.map(|(conn, _, side)| (conn, side)).collect()
    }
}

impl<E> HubLinks<E> {
    /// The same links with other ends.
    pub fn try_map<F, R>(self, mut end: impl FnMut(E) -> Result<F, R>) -> Result<HubLinks<F>, R> {
        let HubLinks { links, last_conn, own, unsent, waiting_bytes_max, is_stale, server_was_lost } = self;
        let map = |(conn, link): (Conn, Link<E>)| Ok((conn, link.try_map(&mut end)?));
        let links = links.into_iter().map(map).collect::<Result<_, R>>()?;
        Ok(HubLinks { links, last_conn, own, unsent, waiting_bytes_max, is_stale, server_was_lost })
    }
}

impl HubLinks<End> {
    /// Has the program that this process becomes inherit the connections.
    pub(super) fn share(&self) -> os::Result<()> {
        self.links.values().try_for_each(Link::share)
    }
}

fn text(bytes: Vec<u8>) -> Utf8Bytes {
    Utf8Bytes::try_from(bytes).expect("BUG: our own lines are edits of text")
}

fn is_answer(line: &[u8]) -> bool {
    matches!(Body::parse(line), Body::Message(message) if message.method.is_none())
}

impl<E: LinkEnd> Links for HubLinks<E> {
    type Unit = Utf8Bytes;

    fn line<'a>(&'a self, _: Side, message: &'a Utf8Bytes) -> (Line<'a>, Incoming<'a>) {
        let line = Line { bytes: message.as_bytes(), end: LineEnd::Newline };
        let incoming = match line.bytes.len() > LINE_BYTES_MAX {
            false => Incoming::Line(line),
            true => Incoming::LastPiece { line_bytes: line.bytes.len() as u64 },
        };
        (line, incoming)
    }

    fn queue(&mut self, conn: Conn, from: Side, message: Utf8Bytes, decided: Decided) -> Option<usize> {
        let (link, to) = (self.links.get_mut(&conn)?, other(from));
        let Decided { before, hold, line, mark } = decided;
        before.into_iter().for_each(|own| link.send(to, text(own.bytes)));
        hold.into_iter().for_each(|token| link.hold(to, token));
        let sent = match line {
            Passage::Forward => Some(message),
            Passage::Replace(own) => Some(text(own.bytes)),
            Passage::Withhold => None,
        };
        let (messages, bytes) = (usize::from(sent.is_some()), sent.as_ref().map(|sent| sent.len()));
        sent.into_iter().for_each(|sent| link.send(to, sent));
        mark.into_iter().for_each(|token| link.mark(to, token, messages));
        bytes
    }

    fn send(&mut self, conn: Conn, to: Side, lines: Vec<Vec<u8>>, mark: Option<Token>) {
        if let Some(link) = self.links.get_mut(&conn) {
            let messages = lines.len();
            lines.into_iter().for_each(|line| link.send(to, text(line)));
            mark.into_iter().for_each(|token| link.mark(to, token, messages));
        }
    }

    fn send_held(&mut self, conn: Conn, line: Vec<u8>, _: LineEnd) {
        if let Some(link) = self.links.get_mut(&conn) {
            link.send(Side::Server, text(line));
        }
    }

    fn send_late(&mut self, conns: &[Conn], line: Vec<u8>) {
        let line = text(line);
        for conn in conns {
            if let Some(link) = self.links.get_mut(conn) {
                link.send(Side::Client, line.clone());
            }
        }
    }

    /// If their connection is gone, answers go out on another, as the server takes them from any, or wait for the next one. Calls are
    /// dropped: the engine has told their callers.
    fn carrier(&mut self, engine: &Engine, mut injection: Injection) -> Carrier {
        let is_open = self.links.get(&injection.conn).is_some_and(|link| !link.is_ending());
        // The server ignores answers before it has initialized a connection.
        let only_answers = !is_open || !engine.is_initialized(injection.conn);
        if !is_open {
            injection.lines.retain(|line| is_answer(&line.bytes));
        }
        if injection.lines.is_empty() {
            return Carrier::Dropped;
        }
        let are_answers = only_answers && injection.lines.iter().all(|line| is_answer(&line.bytes));
        match if are_answers { self.answers_to(engine) } else { Some(injection.conn) } {
            Some(conn) => Carrier::Chosen(Injection { conn, ..injection }),
            None => {
                holds!("links.unsent-answers-have-marks", injection.mark.is_some());
                self.unsent.push_back(injection);
                Carrier::Waits
            }
        }
    }

    fn recall(&mut self, token: Token) -> bool {
        let waiting = self.unsent.len();
        self.unsent.retain(|injection| injection.mark != Some(token));
        self.unsent.len() < waiting || self.links.values_mut().any(|link| link.recall(token))
    }

    fn release(&mut self, token: Token) {
        self.links.values_mut().for_each(|link| link.release(token));
    }

    fn flush(&mut self, conn: Conn, _: Side, _: Duration, reached: &mut Vec<Token>) {
        if let Some(link) = self.links.get_mut(&conn) {
            link.flush(reached);
            self.is_stale |= link.waiting_bytes() > 0;
        }
    }

    fn conns(&self) -> Vec<Conn> {
        self.links.keys().copied().collect()
    }
}

impl<E: LinkEnd> Driver<HubLinks<E>> {
    /// A client's handshake is complete on both sides; returns its connection.
    pub fn client_connected(&mut self, host: &mut impl Host, link: Link<E>, effects: &mut Vec<Effect>) -> Conn {
        let conn = self.links.next_conn();
        self.links.last_conn = conn.0;
        let peer = link.peer.clone();
        let earlier = self.links.links.insert(conn, link);
        holds!("links.number-is-free", earlier.is_none());
        host.handle(host.now(), Input::Connected { conn, peer }, effects);
        self.clients_changed(host);
        conn
    }

    /// The hub's own connection is open; returns the one before, if that has not gone yet.
    pub fn own_connected(
        &mut self,
        host: &mut impl Host,
        (peer, end): (Peer, E),
        effects: &mut Vec<Effect>,
    ) -> Option<Link<E>> {
        let before = self.links.links.insert(Conn::OWN, Link::new(peer.clone(), None, end));
        self.links.own = Own::Open;
        host.handle(host.now(), Input::Connected { conn: Conn::OWN, peer }, effects);
        before
    }

    /// Several clients may get the same lines.
    fn clients_changed(&mut self, host: &mut impl Host) {
        host.clients_changed(self.links.clients());
        self.links.is_stale = true;
    }

    /// Passes the messages of one read from a side of a link, and its end.
    pub fn pass_messages(
        &mut self,
        host: &mut impl Host,
        (conn, from): (Conn, Side),
        (mut messages, ended): (Vec<Utf8Bytes>, Option<Ended>),
        effects: &mut Vec<Effect>,
    ) {
        if !messages.is_empty() {
            let now = host.now();
            self.pass(host, now, (conn, from), &mut messages, effects);
            let is_client = conn != Conn::OWN && host.engine().client(conn).is_some();
            if from == Side::Server && self.links.own == Own::AfterClient && is_client {
                // This client's `initialize` is answered: it was the server's first message to it. A probe is not on record; the
                // server does not take its name from one.
                self.links.own = Own::Due(Duration::ZERO);
            }
        }
        if let Some(ended) = ended {
            self.link_ended(host, (conn, from), Some(&ended), effects);
            // Lines that the engine held go ahead of a close frame.
            self.carry_out_on_links(host, effects);
        }
        let now = host.now();
        self.flush(host, now, (conn, from), effects);
        // The engine's effects are carried out before the next messages are read.
        self.carry_out_on_links(host, effects);
        let max = self.links.waiting_bytes_max;
        if self.links.get(conn).is_some_and(|link| link.is_too_slow(max)) {
            host.report(&format!("a client has left {} unread; it is disconnected", bytesize::ByteSize(max as u64)));
            self.link_ended(host, (conn, Side::Client), None, effects);
            self.carry_out_on_links(host, effects);
        }
    }

    /// Carries out all effects. Those that concern a child are none of a hub's, which talks on no pipes.
    pub fn carry_out_on_links(&mut self, host: &mut impl Host, effects: &mut Vec<Effect>) {
        while self.carry_out_all(host, effects).is_some() {}
    }

    /// A link has lost one of its sides.
    pub fn link_ended(
        &mut self,
        host: &mut impl Host,
        (conn, from): (Conn, Side),
        ended: Option<&Ended>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(link) = self.links.links.get_mut(&conn).filter(|link| !link.is_ending()) else { return };
        tracing::debug!(conn = conn.0, ?from, ?ended, "a connection has ended");
        let now = host.now();
        host.handle(now, Input::Disconnected { conn }, effects);
        link.end(from, ended, now.elapsed + CLOSING_MAX);
        for token in link.take_dropped() {
            host.handle(now, Input::NotWritten(token), effects);
        }
        if conn == Conn::OWN {
            self.links.own = Own::Due(now.elapsed + RECONNECT_AFTER);
        }
        self.links.server_was_lost |= from == Side::Server;
        self.clients_changed(host);
    }

    /// Ends all links, each as `end` says.
    pub fn end_all(&mut self, host: &mut impl Host, end: impl Fn(&mut Link<E>), effects: &mut Vec<Effect>) {
        self.links.own = Own::AfterClient;
        for (conn, link) in &mut self.links.links {
            if !link.is_ending() {
                host.handle(host.now(), Input::Disconnected { conn: *conn }, effects);
            }
            end(link);
        }
        // Lines that the engine held go ahead of the end.
        self.carry_out_on_links(host, effects);
        for conn in self.links.conns() {
            let now = host.now();
            self.flush(host, now, (conn, Side::Client), effects);
        }
    }

    /// Removes the links that have ended and delivered everything; returns them.
    pub fn remove_ended(&mut self, host: &mut impl Host, effects: &mut Vec<Effect>) -> Vec<(Conn, Link<E>)> {
        let now = host.now();
        self.links.check(host.engine());
        let mut removed: Vec<_> = self.links.links.extract_if(.., |_, link| link.is_done(now.elapsed)).collect();
        for (_, link) in &mut removed {
            link.cut().into_iter().for_each(|token| host.handle(now, Input::NotWritten(token), effects));
        }
        removed
    }

    /// Sends what waited for a connection to the server.
    pub fn send_unsent(&mut self, host: &mut impl Host, effects: &mut Vec<Effect>) {
        while self.links.answers_to(host.engine()).is_some()
            && let Some(injection) = self.links.unsent.pop_front()
        {
            self.inject(host, injection, effects);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::engine::{
        AssemblySettings, ContextSettings, EngineSettings, LinkEffect, Now, RequestSettings, RequestType, ServerOwner,
        Transport,
    };

    const REQUESTS: usize = 3_000;

    /// An engine whose requests have expired while it had no connection, and the answers of policy.
    fn expired() -> (Engine, Vec<Injection>) {
        let mut engine = Engine::new(EngineSettings {
            budget: Default::default(),
            exit_grace: Duration::from_secs(10),
            context: ContextSettings::default(),
            assembly: AssemblySettings::default(),
            requests: RequestSettings {
                expiry: vec![(RequestType::Approval, Duration::from_secs(1))],
                ..RequestSettings::default()
            },
            server_owner: ServerOwner::Hub,
            own_ids: "codex-shim:".to_owned(),
            tokens_before: 0,
        });
        let mut effects = Vec::new();
        let at = |s: u64| Now { unix_us: 1, elapsed: Duration::from_secs(s) };
        let peer = Peer { transport: Transport::WebSocket, pid: None, terminal: None, variables: Default::default() };
        engine.handle(at(0), Input::SessionOpened { generation: "g".to_owned() }, &mut effects);
        engine.handle(at(0), Input::Connected { conn: Conn(1), peer }, &mut effects);
        for id in 0..REQUESTS {
            let asked =
                json!({ "id": id, "method": "item/commandExecution/requestApproval", "params": { "command": "x" } });
            let (bytes, end) = (asked.to_string(), LineEnd::Newline);
            let line = Incoming::Line(Line { bytes: bytes.as_bytes(), end });
            engine.read(at(0), Conn(1), Side::Server, line, &mut effects);
        }
        engine.handle(at(0), Input::Disconnected { conn: Conn(1) }, &mut effects);
        engine.handle(at(2), Input::Tick, &mut effects);
        // The ledger is slow.
        engine.handle(at(3), Input::Tick, &mut effects);
        let injections = effects.into_iter().filter_map(|effect| {
            let Effect::Link(LinkEffect::Inject(injection)) = effect else { return None };
            Some(injection)
        });
        (engine, injections.collect())
    }

    #[test]
    fn every_answer_waits_for_a_connection() {
        let (engine, answers) = expired();
        assert_eq!(answers.len(), REQUESTS);
        let mut links: HubLinks<End> = HubLinks::new(Own::AfterClient, 0);
        let last = answers.last().and_then(|answer| answer.mark).expect("an answer has a mark");
        for answer in answers {
            let carrier = links.carrier(&engine, answer);
            assert!(matches!(carrier, Carrier::Waits), "{carrier:?}");
        }
        assert_eq!(links.unsent(), REQUESTS);
        assert!(links.recall(last) && !links.recall(last));
    }
}
