//! The hub's loop as in `hub::event_loop`: all messages of one read are decided on and recorded, then passed on; other
//! effects follow in order.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::time::Duration;

use codex_shim::testing::engine::{
    ChildEffect, ContextChange, Decision, Effect, Engine, Incoming, Input, LedgerEntry, LinkEffect, Note, Order,
    OwnLine, Passage, Peer, RequestSource, Token, Transport, WaitingCommand,
};
use codex_shim::testing::journal::Writer;
use codex_shim::testing::wire::{Conn, Line, LineEnd, Side};

use super::super::canary::Canary;
use super::super::happened::Event;
use super::super::lines::{Message, shown, without_envelope};
use super::super::shim::{Told, commit};
use super::client::{self, Client};
use super::ledger::Job;
use super::link::{Link, Piece, Way};
use super::referee::commands_in;
use super::server::{self, Key, Session};
use super::world::HubWorld;

/// How soon the hub connects to the server again if it loses its own connection.
const RECONNECT_AFTER: Duration = Duration::from_secs(1);

/// Messages of one read.
const READ_MAX: u64 = 4;

/// The hub's own connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Own {
    /// A client comes first.
    AfterClient,
    Due(Duration),
    Open,
}

/// One hub, with everything that ends with it.
pub struct Hub {
    pub engine: Engine,
    pub writer: Writer,
    pub links: BTreeMap<Conn, Link>,
    pub last_conn: u32,
    pub own: Own,
    /// Messages of ours that no connection took.
    pub unsent: VecDeque<(Conn, Vec<OwnLine>, Option<Token>)>,
    pub started: Duration,
}

/// A message on its way through a link, as the engine has decided.
struct Queued {
    before: Vec<Vec<u8>>,
    hold: Option<Token>,
    line: Option<Vec<u8>>,
    mark: Option<Token>,
}

impl HubWorld {
    /// Hands an input to the engine.
    pub fn handle(&mut self, input: Input, effects: &mut Vec<Effect>) {
        let now = self.now();
        let Some(hub) = &mut self.hub else { return };
        match &input {
            Input::Committed { token, done } => self.referee.committed(*token, *done),
            Input::Written(mark) => self.referee.written(*mark),
            Input::NotWritten(mark) => self.referee.not_written(*mark),
            Input::Tick => self.referee.ticks(now.elapsed),
            Input::Connected { conn, .. } => self.referee.connected(*conn),
            Input::Disconnected { conn } => self.referee.disconnected(*conn),
            Input::Closed { from: Side::Server } => self.referee.server_ended(),
            _ => {}
        }
        hub.engine.handle(now, input, effects);
    }

    /// Hands an input to the engine and carries out what follows.
    pub fn tell(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.handle(input, &mut effects);
        self.carry_out_all(&mut effects);
    }

    /// A client's handshake is complete on both sides.
    pub fn connect(&mut self, key: Key, client: Client) {
        let peer = Peer { transport: Transport::WebSocket, pid: Some(9), terminal: None };
        let Some(hub) = &mut self.hub else { return };
        hub.last_conn += 1;
        let conn = Conn(hub.last_conn);
        self.house.happened.count(Event::Connected);
        hub.links.insert(conn, Link::new(key, Some(Way::default())));
        self.clients.insert(key, client);
        self.server.sessions.insert(key, Session::default());
        self.house.say(|| format!("client {key} is connection {}", conn.0));
        self.clients_changed();
        self.tell(Input::Connected { conn, peer });
    }

    /// Opens the hub's own connection, if it is time for that.
    pub fn advance_own(&mut self) {
        let now = self.now().elapsed;
        let key = self.next_key();
        let Some(hub) = self.hub.as_mut().filter(|hub| matches!(hub.own, Own::Due(due) if due <= now)) else { return };
        hub.own = Own::Open;
        let before = hub.links.insert(Conn::OWN, Link::new(key, None));
        if let Some(before) = before {
            let checked = self.referee.removed(Conn::OWN, false);
            self.house.holds(checked);
            self.close(before.key);
        }
        self.server.sessions.insert(key, Session::default());
        self.house.say(|| format!("the hub connects as {key}"));
        let peer = Peer { transport: Transport::WebSocket, pid: Some(1), terminal: None };
        self.tell(Input::Connected { conn: Conn::OWN, peer });
    }

    /// The connection for messages of ours that any may carry: the hub's own, or else that of any client.
    pub fn answers_to(&self) -> Option<Conn> {
        let hub = self.hub.as_ref()?;
        let mut open = hub.links.iter().filter(|(_, link)| !link.is_ending()).map(|(conn, _)| *conn);
        open.find(|conn| hub.engine.is_initialized(*conn))
    }

    /// The record refers to a message that another client has got.
    fn clients_changed(&mut self) {
        let Some(hub) = &mut self.hub else { return };
        let clients = hub.links.iter().filter(|(conn, link)| **conn != Conn::OWN && !link.is_ending()).count();
        hub.writer.share_lines(clients > 1);
    }

    /// Reads from one side of a link, and records and passes what it has written.
    pub fn pass(&mut self, conn: Conn, from: Side) {
        let reads_max = 1 + self.house.dice.roll(READ_MAX) as usize;
        let mut effects = Vec::new();
        let Some(link) = self.hub.as_ref().and_then(|hub| hub.links.get(&conn)) else { return };
        if !link.reads(from) {
            return;
        }
        let key = link.key;
        let (messages, has_ended) = self.read(key, from, reads_max);
        self.pass_messages(conn, from, messages, &mut effects);
        if has_ended {
            if let Some(way) = self.way_mut(conn, from) {
                way.has_ended = true;
            }
            self.link_ended(conn, from, &mut effects);
            self.carry_out_all(&mut effects);
        }
        self.flush(conn, usize::MAX, &mut effects);
        let is_too_slow = |hub: &Hub| hub.links.get(&conn).is_some_and(Link::is_too_slow);
        if !self.rests && self.hub.as_ref().is_some_and(is_too_slow) {
            self.house.happened.count(Event::SlowClient);
            self.link_ended(conn, Side::Client, &mut effects);
        }
        self.carry_out_all(&mut effects);
    }

    fn way_mut(&mut self, conn: Conn, side: Side) -> Option<&mut Way> {
        self.hub.as_mut()?.links.get_mut(&conn)?.way_mut(side)
    }

    /// The next messages of a side, and whether it has ended.
    fn read(&mut self, key: Key, from: Side, reads_max: usize) -> (Vec<Vec<u8>>, bool) {
        let (said, read, has_left) = match from {
            Side::Client => {
                let Some(client) = self.clients.get_mut(&key) else { return (Vec::new(), true) };
                (&client.said, &mut client.read, client.has_left)
            }
            Side::Server => {
                let Some(session) = self.server.sessions.get_mut(&key) else { return (Vec::new(), true) };
                (&session.said, &mut session.read, false)
            }
        };
        let messages: Vec<Vec<u8>> = said[*read..].iter().take(reads_max).map(|said| said.bytes.clone()).collect();
        *read += messages.len();
        let has_ended = has_left && *read == said.len();
        (messages, has_ended)
    }

    fn pass_messages(&mut self, conn: Conn, from: Side, messages: Vec<Vec<u8>>, effects: &mut Vec<Effect>) {
        if messages.is_empty() {
            return;
        }
        let to = if from == Side::Client { Side::Server } else { Side::Client };
        let now = self.now();
        let Some(hub) = &mut self.hub else { return };
        let key = hub.links[&conn].key;
        let mut batch = hub.writer.batch(now);
        if conn != Conn::OWN {
            batch.on(conn);
        }
        let mut queued = Vec::new();
        for (index, bytes) in messages.iter().enumerate() {
            let sign = if from == Side::Client { '>' } else { '<' };
            self.house.say(|| format!("{} {sign} read {}", conn.0, String::from_utf8_lossy(bytes)));
            self.referee_reads(conn, from, key, bytes, messages.len() - index);
            let line = Line { bytes, end: LineEnd::Newline };
            let mut before = Vec::new();
            let Some(hub) = &mut self.hub else { return };
            let decision = hub.engine.read(now, conn, from, Incoming::Line(line), &mut before);
            let is_first = |effect: &Effect| matches!(effect, Effect::Note(_) | Effect::Order(_));
            let (first, later): (Vec<_>, Vec<_>) = before.into_iter().partition(is_first);
            let canary = self.house.canary;
            for effect in first.into_iter().filter(|effect| !is_left_out(canary, effect)) {
                match effect {
                    Effect::Note(note) => batch.push_note(&note),
                    Effect::Order(order) => self.order(order),
                    _ => {}
                }
            }
            effects.extend(later);
            let Some(Decision { before, record, hold, line: passage, mark, then }) = decision else {
                return self.house.broken("what is not to be done here: a line is held".to_owned());
            };
            before.iter().for_each(|own| batch.push_own_line(own));
            record.iter().for_each(|form| batch.push_line(from, form, line));
            let passed = match passage {
                Passage::Forward => Some(bytes.clone()),
                Passage::Replace(own) => {
                    batch.push_replacement(&own, line.end);
                    let shows = self.house.canary == Canary::TellsWrongClient
                        && from == Side::Server
                        && self.is_bystander(conn);
                    Some(if shows { bytes.clone() } else { own.bytes })
                }
                Passage::Withhold if self.house.canary == Canary::PassesSecondAnswer && from == Side::Client => {
                    Some(bytes.clone())
                }
                Passage::Withhold => None,
            };
            mark.into_iter().for_each(|mark| self.referee.marked(conn, mark, bytes));
            let before = before.into_iter().map(|own| own.bytes).collect();
            queued.push(Queued { before, hold, line: passed, mark });
            for effect in then {
                match effect {
                    Effect::Note(note) => batch.push_note(&note),
                    Effect::Order(order) => self.order(order),
                    other => effects.push(other),
                }
            }
        }
        if self.house.canary == Canary::PassesFirst {
            self.queue(conn, to, std::mem::take(&mut queued));
            self.flush(conn, usize::MAX, effects);
            if self.house.dice.once_in(4) && !self.rests {
                return self.killed();
            }
        }
        let torn = (self.house.dice.once_in(400) && !self.rests).then(|| self.journal_end());
        let Some(hub) = &mut self.hub else { return };
        commit(&mut hub.writer, batch, self.house.room_bytes);
        if let Some(before) = torn {
            self.tear(before);
            return self.killed();
        }
        self.queue(conn, to, queued);
        self.recall(effects);
        let Some(hub) = &mut self.hub else { return };
        let is_client = conn != Conn::OWN && hub.engine.client(conn).is_some();
        if from == Side::Server && hub.own == Own::AfterClient && is_client {
            hub.own = Own::Due(Duration::ZERO);
        }
    }

    /// Takes back the answers that the server does not want any more, ahead of all other effects.
    fn recall(&mut self, effects: &mut Vec<Effect>) {
        let recalls: Vec<Effect> =
            effects.extract_if(.., |effect| matches!(effect, Effect::Link(LinkEffect::Recall(_)))).collect();
        let recalls = recalls.into_iter().filter_map(|effect| match effect {
            Effect::Link(LinkEffect::Recall(token)) => Some(token),
            _ => None,
        });
        for token in self.recalled_by_canary(recalls.collect()) {
            let Some(hub) = &mut self.hub else { return };
            let at = hub.unsent.iter().position(|(.., mark)| *mark == Some(token));
            let mut unsent = at.and_then(|at| hub.unsent.remove(at)).map(|(_, lines, _)| lines);
            let is_its = |effect: &Effect| matches!(effect, Effect::Link(LinkEffect::Inject(injection)) if injection.mark == Some(token));
            if let Some(Effect::Link(LinkEffect::Inject(injection))) =
                effects.extract_if(.., |effect| is_its(effect)).next()
            {
                unsent = Some(injection.lines);
            }
            let is_taken = unsent.is_some() || hub.links.values_mut().any(|link| link.recall(token));
            if is_taken {
                let line = unsent.as_ref().and_then(|lines| Some(&lines.first()?.bytes));
                let checked = self.referee.recalled(token, line);
                self.house.holds(checked);
                self.handle(Input::Recalled(token), effects);
            }
        }
        let checked = self.referee.all_are_taken_back();
        self.house.holds(checked);
    }

    /// The referee sees a message ahead of the engine; `left` counts the messages from this one on that were read together.
    fn referee_reads(&mut self, conn: Conn, from: Side, key: Key, bytes: &[u8], left: usize) {
        let now = self.now().elapsed;
        let (said, read) = match from {
            Side::Client => self.clients.get(&key).map(|client| (&client.said, client.read)),
            Side::Server => self.server.sessions.get(&key).map(|session| (&session.said, session.read)),
        }
        .expect("BUG: it has written");
        let checked = self.referee.reads(now, conn, from, bytes, said.get(read - left));
        self.house.holds(checked);
    }

    fn queue(&mut self, conn: Conn, to: Side, queued: Vec<Queued>) {
        let now = self.house.now.elapsed;
        for Queued { before, hold, line, mark } in queued {
            let line = line.and_then(|line| self.go_wrong(conn, to, line));
            let Some(link) = self.hub.as_mut().and_then(|hub| hub.links.get_mut(&conn)) else { return };
            before.into_iter().for_each(|own| link.push(to, Piece::Text(own)));
            let hold = hold.filter(|_| self.house.canary != Canary::HoldsNothing);
            hold.into_iter().for_each(|token| link.push(to, Piece::Hold(token, now)));
            let messages = usize::from(line.is_some());
            line.into_iter().for_each(|line| link.push(to, Piece::Text(line)));
            mark.into_iter().for_each(|token| link.push(to, Piece::Mark(token, messages)));
        }
    }

    /// A link has lost one of its sides.
    pub fn link_ended(&mut self, conn: Conn, from: Side, effects: &mut Vec<Effect>) {
        let is_open = |hub: &Hub| hub.links.get(&conn).is_some_and(|link| !link.is_ending());
        if !self.hub.as_ref().is_some_and(is_open) {
            return;
        }
        self.house.say(|| format!("connection {} ends at the {}", conn.0, from.name()));
        self.handle(Input::Disconnected { conn }, effects);
        let now = self.now().elapsed;
        let Some(hub) = &mut self.hub else { return };
        if let Some(link) = hub.links.get_mut(&conn) {
            if link.held_since().is_some() {
                self.referee.happened.count(Event::LeftWithHold);
            }
            link.end(from, now);
            if self.house.canary == Canary::DropsAtDisconnect && from == Side::Client {
                link.server.abandon();
            }
            for token in link.take_dropped() {
                self.handle(Input::NotWritten(token), effects);
            }
        }
        let Some(hub) = &mut self.hub else { return };
        if conn == Conn::OWN {
            hub.own = Own::Due(now + RECONNECT_AFTER);
        }
        self.clients_changed();
    }

    /// Writes what a link takes, and reports the marks that are reached to the engine.
    pub fn flush(&mut self, conn: Conn, pieces_max: usize, effects: &mut Vec<Effect>) {
        let mut reached = Vec::new();
        for side in [Side::Client, Side::Server] {
            for _ in 0..pieces_max {
                let Some(link) = self.hub.as_mut().and_then(|hub| hub.links.get_mut(&conn)) else { return };
                let key = link.key;
                let Some(way) = link.way_mut(side).filter(|way| !way.is_gone) else { break };
                if let Some(Piece::Mark(token, _)) = way.queue.front() {
                    reached.push(*token);
                    way.queue.pop_front();
                    continue;
                }
                let has_text = matches!(way.queue.front(), Some(Piece::Text(_)));
                if !has_text || !self.has_room(key, side) {
                    break;
                }
                self.write(conn, key, side);
            }
        }
        for token in reached {
            self.handle(Input::Written(token), effects);
        }
    }

    fn has_room(&self, key: Key, side: Side) -> bool {
        match side {
            Side::Client => self.clients.get(&key).is_none_or(|to| to.has_left || to.unread.len() < client::UNREAD_MAX),
            Side::Server => self.server.sessions.get(&key).is_none_or(|to| to.unread.len() < server::UNREAD_MAX),
        }
    }

    /// Writes the next message to a side. If that is gone, nothing more reaches it.
    fn write(&mut self, conn: Conn, key: Key, side: Side) {
        let Some(way) = self.way_mut(conn, side) else { return };
        let Some(Piece::Text(line)) = way.queue.pop_front() else { return };
        let sign = if side == Side::Server { '>' } else { '<' };
        self.house.say(|| format!("{} {sign} passed {}", conn.0, String::from_utf8_lossy(&line)));
        let checked = match side {
            Side::Client => match self.clients.get_mut(&key).filter(|client| !client.has_left) {
                Some(client) => {
                    client.unread.push_back(line.clone());
                    self.referee.client_got(conn, &line, &self.ledger)
                }
                None => return self.way_mut(conn, side).into_iter().for_each(Way::abandon),
            },
            Side::Server => match self.server.sessions.get_mut(&key) {
                Some(session) => {
                    session.unread.push_back(line.clone());
                    let told = self.may_tell(&line);
                    told.and_then(|()| self.referee.server_got(conn, &line, &self.ledger))
                }
                None => return self.way_mut(conn, side).into_iter().for_each(Way::abandon),
            },
        };
        self.house.holds(checked);
    }

    /// Context goes to its own thread, which is in the folder where the command ran, and to none in which no person speaks. Neither
    /// does the message of an API caller who names no thread.
    fn may_tell(&self, line: &[u8]) -> Result<(), String> {
        let Some(message) = Message::read(line) else { return Ok(()) };
        let thread = message.params["threadId"].as_str().unwrap_or_default();
        let is_of_person = self.server.is_of_person(thread);
        if message.is_ours() && message.method.as_deref() == Some("turn/start") && !is_of_person {
            return Err(format!("8: a message of an API caller enters {thread}, in which no person speaks"));
        }
        if without_envelope(line).is_none() {
            return Ok(());
        }
        if !is_of_person {
            return Err(format!("7: context goes where no person speaks: {}", shown(line)));
        }
        let told = commands_in(line);
        let folder = Path::new(self.server.folder(thread));
        for command in self.ledger.commands.iter().filter(|command| told.contains(&command.row.to_string())) {
            let Some(of) = &command.thread_id else { continue };
            if of != thread {
                return Err(format!("7: command {} is told to {thread}", command.row));
            }
            let ran_in = command.command.cwd.as_deref().unwrap_or_default();
            if !Path::new(ran_in).starts_with(folder) {
                return Err(format!("7: the model in {} is told what ran in {ran_in}", folder.display()));
            }
        }
        Ok(())
    }

    /// Closes the links that have ended and delivered everything.
    pub fn remove_ended(&mut self) {
        let mut effects = Vec::new();
        let now = self.now().elapsed;
        let Some(hub) = &mut self.hub else { return };
        let done: Vec<Conn> = hub.links.iter().filter(|(_, link)| link.is_done(now)).map(|(conn, _)| *conn).collect();
        for conn in done {
            let Some(mut link) = self.hub.as_mut().and_then(|hub| hub.links.remove(&conn)) else { return };
            let is_delivered = !link.is_busy() && self.server.sessions.contains_key(&link.key);
            let checked = self.referee.removed(conn, is_delivered);
            self.house.holds(checked);
            self.close(link.key);
            link.cut().into_iter().for_each(|token| self.handle(Input::NotWritten(token), &mut effects));
        }
        self.carry_out_all(&mut effects);
    }

    /// Both sides see the end of a connection once they have read everything.
    pub fn close(&mut self, key: Key) {
        if let Some(session) = self.server.sessions.get_mut(&key) {
            session.is_left = true;
        }
        if let Some(client) = self.clients.get_mut(&key) {
            client.is_left = true;
        }
    }

    pub fn carry_out_all(&mut self, effects: &mut Vec<Effect>) {
        while !effects.is_empty() {
            for effect in std::mem::take(effects) {
                if self.hub.is_some() && self.house.dice.once_in(4_000) && !self.rests {
                    self.killed();
                }
                if self.hub.is_some() {
                    self.carry_out(effect, effects);
                }
            }
            if self.hub.is_none() {
                effects.clear();
            }
        }
    }

    fn carry_out(&mut self, effect: Effect, effects: &mut Vec<Effect>) {
        let now = self.now();
        let Some(hub) = &mut self.hub else { return };
        let conns: Vec<Conn> = hub.links.keys().copied().collect();
        if is_left_out(self.house.canary, &effect) {
            return;
        }
        match effect {
            Effect::Note(note) => {
                if let Note::RequestRenamed { request_id, before } = &note {
                    self.referee.renamed(before, request_id);
                }
                let mut batch = hub.writer.batch(now);
                batch.push_note(&note);
                commit(&mut hub.writer, batch, self.house.room_bytes);
            }
            Effect::Order(order) => self.order(order),
            Effect::Link(LinkEffect::Release(token)) => {
                hub.links.values_mut().for_each(|link| link.release(token));
                conns.into_iter().for_each(|conn| self.flush(conn, usize::MAX, effects));
            }
            Effect::Link(LinkEffect::Inject(injection)) => {
                self.inject(injection.conn, injection.lines, injection.mark, effects)
            }
            Effect::Link(LinkEffect::Reply(api_call, reply)) => {
                let checked = self.referee.replied(api_call, &reply);
                self.house.holds(checked);
            }
            Effect::Link(LinkEffect::Introduce(..))
            | Effect::NotifyPending(_)
            | Effect::NotifyIdle(_)
            | Effect::Warn(_)
            | Effect::Child(ChildEffect::CloseServerInput)
            | Effect::Child(ChildEffect::CloseClientOutput)
            | Effect::Child(ChildEffect::SignalServer(_))
            | Effect::Child(ChildEffect::KillServer)
            | Effect::Child(ChildEffect::DrainServer { .. })
            | Effect::Child(ChildEffect::Finish(_)) => {}
            other => self.house.broken(format!("what is not to be done here: {other:?}")),
        }
    }

    /// Records and sends messages of ours. If their connection is gone, answers go out on another, or wait for the next one.
    fn inject(&mut self, conn: Conn, mut lines: Vec<OwnLine>, mark: Option<Token>, effects: &mut Vec<Effect>) {
        let now = self.now();
        let Some(hub) = &mut self.hub else { return };
        let is_open = hub.links.get(&conn).is_some_and(|link| !link.is_ending());
        if !is_open {
            lines.retain(|line| Message::read(&line.bytes).is_some_and(|message| message.method.is_none()));
        }
        if lines.is_empty() {
            return;
        }
        let other = if is_open { Some(conn) } else { self.answers_to() };
        let Some(hub) = &mut self.hub else { return };
        let Some(conn) = other else {
            self.house.happened.count(Event::Unsent);
            hub.unsent.push_back((conn, lines, mark));
            return;
        };
        lines.iter().for_each(|line| self.referee.injects(conn, &line.bytes, mark));
        lines.retain(|line| !self.trusts_earlier_hub(&line.bytes));
        let Some(hub) = &mut self.hub else { return };
        let mut batch = hub.writer.batch(now);
        if conn != Conn::OWN {
            batch.on(conn);
        }
        lines.iter().for_each(|line| batch.push_own_line(line));
        commit(&mut hub.writer, batch, self.house.room_bytes);
        if let Some(mark) = mark {
            self.handle(Input::SentOver { mark, conn }, effects);
        }
        if let Some(link) = self.hub.as_mut().and_then(|hub| hub.links.get_mut(&conn)) {
            let messages = lines.len();
            lines.into_iter().for_each(|line| link.push(Side::Server, Piece::Text(line.bytes)));
            mark.into_iter().for_each(|mark| link.push(Side::Server, Piece::Mark(mark, messages)));
        }
        self.flush(conn, usize::MAX, effects);
    }

    /// Sends what waited for a connection to the server.
    pub fn send_unsent(&mut self) {
        let mut effects = Vec::new();
        while self.answers_to().is_some()
            && let Some((conn, lines, mark)) = self.hub.as_mut().and_then(|hub| hub.unsent.pop_front())
        {
            self.inject(conn, lines, mark, &mut effects);
            self.carry_out_all(&mut effects);
        }
    }

    /// An entry goes on its way to the ledger.
    fn order(&mut self, order: Order) {
        let now = self.now().elapsed;
        let (told, entry) = match order {
            Order::Keep(entry) => (Told::Nothing, entry),
            Order::KeepFirst(token, entry) => {
                let checked = self.referee.ordered(now, token, &entry, false);
                self.house.holds(checked);
                (Told::First(token), entry)
            }
            Order::Commit(token, entry) => {
                let checked = self.referee.ordered(now, token, &entry, true);
                self.house.holds(checked);
                (Told::Whether(token), entry)
            }
            Order::Early(token, entry) => {
                let checked = self.referee.ordered(now, token, &entry, is_decision(&entry));
                self.house.holds(checked);
                (Told::Failure(token), entry)
            }
        };
        self.ledger.jobs.push_back(Job::Order(told, entry));
    }

    /// The ledger processes one job.
    pub fn ledger_works(&mut self) {
        if self.house.ledger_hangs || self.hub.is_none() {
            return;
        }
        let fails = !self.house.ledger_works || self.house.dice.once_in(15);
        self.house.happened.add(Event::FailedCommit, u64::from(fails));
        let mut unloaded = VecDeque::new();
        while fails && matches!(self.ledger.jobs.front(), Some(Job::Load(_))) {
            // Without the file no other entry can be stored either.
            unloaded.extend(self.ledger.jobs.pop_front());
        }
        match (self.ledger.jobs.pop_front(), fails) {
            (None, _) => self.ledger.jobs.extend(unloaded),
            (Some(Job::Load(generation)), _) => self.load(generation),
            (Some(Job::Order(told, entry)), true) => {
                if !matches!(told, Told::Whether(_) | Told::Failure(_)) {
                    self.ledger.jobs.push_front(Job::Order(Told::Nothing, entry));
                }
                let is_unread = !unloaded.is_empty();
                unloaded.into_iter().rev().for_each(|job| self.ledger.jobs.push_front(job));
                match told {
                    Told::First(token) | Told::Whether(token) => self.tell(Input::Committed { token, done: false }),
                    Told::Failure(token) if is_unread => self.tell(Input::Committed { token, done: false }),
                    Told::Failure(_) | Told::Nothing => {}
                }
            }
            (Some(Job::Order(Told::Failure(_), _)), false) => {}
            (Some(Job::Order(told, entry)), false) => {
                self.house.say(|| format!("stored {entry:?}"));
                let forgets = match (&entry, self.house.canary) {
                    (LedgerEntry::RequestEnded(end), Canary::HubLeavesOpen) => end.payload.is_none(),
                    (LedgerEntry::RequestEnded(end), Canary::KeepsReplacedAnswers) => end.instead,
                    (LedgerEntry::AnswerLost(_), Canary::HubForgetsLostAnswers) => true,
                    _ => false,
                };
                let is_answer = matches!(&entry, LedgerEntry::RequestEnded(end) if end.payload.is_some());
                let again: Vec<WaitingCommand> = match &entry {
                    LedgerEntry::Settled { delete, .. } if self.house.canary == Canary::TellsAgain => {
                        self.ledger.commands.iter().filter(|command| delete.contains(&command.row)).cloned().collect()
                    }
                    _ => Vec::new(),
                };
                let changed = forgets || self.ledger.keep(entry);
                if !again.is_empty() {
                    self.tell(Input::Context(ContextChange::Added(again)));
                }
                if is_answer && !self.rests && self.house.dice.once_in(12) {
                    // Before the hub learns of it.
                    self.house.happened.count(Event::KillAfterCommit);
                    return self.killed();
                }
                match told {
                    Told::Nothing | Told::Failure(_) => {}
                    Told::First(token) => self.tell(Input::Committed { token, done: true }),
                    Told::Whether(token) => self.tell(Input::Committed { token, done: changed }),
                }
            }
        }
    }
}

/// Whether an entry stores the answer of an API caller, which is stored now or never.
fn is_decision(entry: &LedgerEntry) -> bool {
    matches!(entry, LedgerEntry::RequestEnded(end) if end.source == RequestSource::Api)
}

/// Whether a broken hub does not record this note.
fn is_left_out(canary: Canary, effect: &Effect) -> bool {
    let left_out = ["Note(ConnOpen", "Note(GenerationStarted"];
    canary == Canary::CountsTwice && left_out.iter().any(|note| format!("{effect:?}").starts_with(note))
}
