//! What stands around the driver of a hub: the engine, the record and the ledger, with their faults.
//!
//! The driver and the links are the product's own. Broken hubs are made here, by what the engine is told to decide and by what is
//! recorded.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use codex_shim::testing::driver::{Driver, Elsewhere, Host, HubLinks, Link, Links as _, Passed};
use codex_shim::testing::engine::{
    ApiCallId, ApiReply, ClientName, ContextChange, Decision, Effect, Engine, Incoming, Input, LedgerEntry, LinkEffect,
    Note, Now, Order, Passage, Peer, RequestSource, Token, Transport, WaitingCommand,
};
use codex_shim::testing::journal::{Batch, Writer};
use codex_shim::testing::websocket::Utf8Bytes;
use codex_shim::testing::wire::{Conn, Line, Side};

use super::super::canary::Canary;
use super::super::happened::Event;
use super::super::lines::{Message, shown, without_envelope};
use super::super::shim::{Told, commit};
use super::client::{self, Client};
use super::ledger::Job;
use super::referee::commands_in;
use super::server::{self, Key, Session};
use super::wire::Wire;
use super::world::HubWorld;
use std::collections::VecDeque;

/// Messages of one read.
const READ_MAX: u64 = 4;

pub type HubDriver = Driver<HubLinks<Wire>>;

/// One hub, with everything that ends with it.
pub struct Hub {
    pub engine: Engine,
    pub writer: Writer,
    pub started: Duration,
    /// The connections of clients and of the server by which each link is known outside.
    pub keys: BTreeMap<Conn, Key>,
    /// Since when something waits for a token.
    pub held: BTreeMap<Token, Duration>,
    /// Lines of ours with a mark, until they are on a connection.
    pub injections: BTreeMap<Token, Vec<Vec<u8>>>,
    /// Marks of messages to the server that may still be taken back.
    pub marks: Vec<Token>,
    /// A message that a canary gives to another client.
    pub misdelivered: Option<(Conn, Vec<u8>)>,
}

impl Hub {
    pub fn new(engine: Engine, writer: Writer, started: Duration) -> Hub {
        let (keys, held, injections) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Hub { engine, writer, started, keys, held, injections, marks: Vec::new(), misdelivered: None }
    }
}

impl HubWorld {
    /// Has the driver do something; a hub that was killed in between is over then.
    pub fn drive<T>(&mut self, what: impl FnOnce(&mut HubDriver, &mut HubWorld) -> T) -> Option<T> {
        let mut driver = self.driver.take()?;
        self.sync(usize::MAX);
        let unsent = driver.links.unsent();
        let result = what(&mut driver, self);
        self.hear_all();
        self.house.happened.add(Event::Unsent, driver.links.unsent().saturating_sub(unsent) as u64);
        if std::mem::take(&mut self.dies) {
            drop(driver);
            self.killed();
            return None;
        }
        if let Some((conn, line)) = self.hub.as_mut().and_then(|hub| hub.misdelivered.take()) {
            driver.links.send(conn, Side::Client, vec![line], None);
        }
        self.driver = Some(driver);
        Some(result)
    }

    /// The hub is killed while the driver works: nothing more is told, recorded or written.
    fn die(&mut self) {
        self.dies = true;
        self.wires.values().for_each(Wire::cut);
    }

    /// Tells the wires how much each end takes, at most `messages_max`.
    pub fn sync(&mut self, messages_max: usize) {
        for ((key, side), wire) in &self.wires {
            let room = match side {
                Side::Client => self
                    .clients
                    .get(key)
                    .filter(|client| !client.has_left)
                    .map(|to| client::UNREAD_MAX.saturating_sub(to.unread.len())),
                Side::Server => {
                    self.server.sessions.get(key).map(|to| server::UNREAD_MAX.saturating_sub(to.unread.len()))
                }
            };
            wire.takes(room.map(|room| room.min(messages_max)));
        }
    }

    /// The ends get what the hub has written.
    fn hear_all(&mut self) {
        while let Some((key, side, line)) = self.written.take() {
            // The driver takes answers back before it writes anything.
            let checked = self.referee.all_are_taken_back();
            self.house.holds(checked);
            let Some(conn) = self.conn_of(key) else { continue };
            let sign = if side == Side::Server { '>' } else { '<' };
            self.house.say(|| format!("{} {sign} passed {}", conn.0, String::from_utf8_lossy(&line)));
            let checked = match side {
                Side::Client => {
                    self.clients.get_mut(&key).into_iter().for_each(|client| client.unread.push_back(line.clone()));
                    self.referee.client_got(conn, &line, &self.ledger)
                }
                Side::Server => {
                    let session = self.server.sessions.get_mut(&key);
                    session.into_iter().for_each(|session| session.unread.push_back(line.clone()));
                    let told = self.may_tell(&line);
                    told.and_then(|()| self.referee.server_got(conn, &line, &self.ledger))
                }
            };
            self.house.holds(checked);
        }
    }

    fn conn_of(&self, key: Key) -> Option<Conn> {
        self.hub.as_ref()?.keys.iter().find(|(_, of)| **of == key).map(|(conn, _)| *conn)
    }

    pub fn key_of(&self, conn: Conn) -> Option<Key> {
        self.hub.as_ref()?.keys.get(&conn).copied()
    }

    pub fn conns(&self) -> Vec<Conn> {
        self.driver.iter().flat_map(|driver| driver.links.iter().map(|(conn, _)| conn)).collect()
    }

    /// Hands an input to the engine and carries out what follows.
    pub fn tell(&mut self, input: Input) {
        self.drive(|driver, world| {
            let mut effects = Vec::new();
            world.handle(world.now(), input, &mut effects);
            driver.carry_out_on_links(world, &mut effects);
        });
    }

    fn wire(&mut self, key: Key, side: Side) -> Wire {
        let wire = Wire::new(key, side, &self.written);
        self.wires.insert((key, side), wire.clone());
        wire
    }

    /// A client's handshake is complete on both sides.
    pub fn connect(&mut self, key: Key, client: Client) {
        let peer = Peer { transport: Transport::WebSocket, pid: Some(9), terminal: None };
        self.house.happened.count(Event::Connected);
        self.clients.insert(key, client);
        self.server.sessions.insert(key, Session::default());
        let link = Link::new(peer, Some(self.wire(key, Side::Client)), self.wire(key, Side::Server));
        self.drive(|driver, world| {
            let mut effects = Vec::new();
            let conn = driver.links.next_conn();
            world.hub.iter_mut().for_each(|hub| hub.keys.extend([(conn, key)]));
            world.house.say(|| format!("client {key} is connection {}", conn.0));
            driver.client_connected(world, link, &mut effects);
            driver.carry_out_on_links(world, &mut effects);
        });
    }

    /// Opens the hub's own connection, if it is time for that.
    pub fn advance_own(&mut self) {
        let now = self.now().elapsed;
        if !self.driver.as_ref().is_some_and(|driver| driver.links.own_is_due(now)) {
            return;
        }
        let key = self.next_key();
        self.server.sessions.insert(key, Session::default());
        self.house.say(|| format!("the hub connects as {key}"));
        let peer = Peer { transport: Transport::WebSocket, pid: Some(1), terminal: None };
        let end = self.wire(key, Side::Server);
        let earlier = self.key_of(Conn::OWN).filter(|_| self.conns().contains(&Conn::OWN));
        if let Some(earlier) = earlier {
            let checked = self.referee.removed(Conn::OWN, false);
            self.house.holds(checked);
            self.close(earlier);
        }
        self.hub.iter_mut().for_each(|hub| hub.keys.extend([(Conn::OWN, key)]));
        self.drive(|driver, world| {
            let mut effects = Vec::new();
            driver.own_connected(world, (peer, end), &mut effects);
            driver.carry_out_on_links(world, &mut effects);
        });
    }

    pub fn server_listens(&self) -> bool {
        let (Some(hub), Some(driver)) = (&self.hub, &self.driver) else { return false };
        driver.links.answers_to(&hub.engine).is_some()
    }

    /// Reads from one side of a link, and records and passes what it has written.
    pub fn pass(&mut self, conn: Conn, from: Side) {
        let reads_max = 1 + self.house.dice.roll(READ_MAX) as usize;
        let reads = |driver: &HubDriver| driver.links.get(conn).is_some_and(|link| link.reads(from));
        let Some(key) = self.key_of(conn).filter(|_| self.driver.as_ref().is_some_and(reads)) else { return };
        let (messages, has_ended) = self.read(key, from, reads_max);
        let Some(wire) = self.wires.get(&(key, from)) else { return };
        wire.says(messages.iter().map(|bytes| Utf8Bytes::try_from(bytes.clone()).expect("BUG: it is text")), has_ended);
        self.left = messages.len();
        if has_ended {
            self.house.say(|| format!("connection {} ends at the {}", conn.0, from.name()));
            let is_held = |driver: &HubDriver| driver.links.get(conn).is_some_and(Link::is_held);
            self.referee.happened.add(Event::LeftWithHold, u64::from(self.driver.as_ref().is_some_and(is_held)));
        }
        self.drive(|driver, world| {
            let mut effects = Vec::new();
            if has_ended && world.house.canary == Canary::DropsAtDisconnect && from == Side::Client {
                world.wires.get(&(key, Side::Server)).into_iter().for_each(Wire::cut_off);
            }
            let mut messages = Vec::new();
            let ended = driver.links.get_mut(conn).and_then(|link| link.read(from, &mut messages));
            driver.pass_messages(world, (conn, from), (messages, ended), &mut effects);
            let checked = world.referee.all_are_taken_back();
            world.house.holds(checked);
        });
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

    /// The referee sees a message ahead of the engine; [`HubWorld::left`] counts the messages from this one on that were read together.
    fn referee_reads(&mut self, conn: Conn, from: Side, key: Key, bytes: &[u8]) {
        let now = self.now().elapsed;
        let (said, read) = match from {
            Side::Client => self.clients.get(&key).map(|client| (&client.said, client.read)),
            Side::Server => self.server.sessions.get(&key).map(|session| (&session.said, session.read)),
        }
        .expect("BUG: it has written");
        let checked = self.referee.reads(now, conn, from, bytes, said.get(read - self.left));
        self.left -= 1;
        self.house.holds(checked);
    }

    /// A link has lost one of its sides.
    pub fn link_ended(&mut self, conn: Conn, from: Side) {
        self.drive(|driver, world| {
            let mut effects = Vec::new();
            driver.link_ended(world, (conn, from), None, &mut effects);
            driver.carry_out_on_links(world, &mut effects);
        });
    }

    /// Writes what a link takes.
    pub fn flush(&mut self, conn: Conn, messages_max: usize) {
        self.drive(|driver, world| {
            world.sync(messages_max);
            let mut effects = Vec::new();
            driver.flush(world, world.now(), (conn, Side::Client), &mut effects);
            driver.carry_out_on_links(world, &mut effects);
        });
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
        self.drive(|driver, world| {
            let mut effects = Vec::new();
            for (conn, is_busy) in driver.links.ended(world.now().elapsed) {
                let Some(key) = world.key_of(conn) else { continue };
                let is_delivered = !is_busy && world.server.sessions.contains_key(&key);
                let checked = world.referee.removed(conn, is_delivered);
                world.house.holds(checked);
                world.close(key);
            }
            driver.remove_ended(world, &mut effects);
            driver.carry_out_on_links(world, &mut effects);
        });
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

    /// Sends what waited for a connection to the server.
    pub fn send_unsent(&mut self) {
        self.drive(|driver, world| {
            let mut effects = Vec::new();
            driver.send_unsent(world, &mut effects);
            driver.carry_out_on_links(world, &mut effects);
        });
    }

    /// The referee learns of the lines of ours with marks before they are on a connection.
    fn see(&mut self, effects: &[Effect]) {
        let Some(hub) = &mut self.hub else { return };
        for effect in effects {
            if let Effect::Link(LinkEffect::Inject(injection)) = effect
                && let Some(mark) = injection.mark
            {
                let lines = injection.lines.iter().map(|line| line.bytes.clone());
                hub.injections.entry(mark).or_insert_with(|| lines.collect());
            }
        }
    }

    /// The change that some canaries make to a decision.
    fn go_wrong(&mut self, conn: Conn, from: Side, line: Line<'_>, decision: &mut Decision) {
        match self.house.canary {
            Canary::TellsWrongClient if from == Side::Server && self.is_bystander(conn) => {
                if let Passage::Replace(own) = &mut decision.line {
                    own.bytes = line.bytes.to_vec();
                }
            }
            Canary::PassesSecondAnswer if from == Side::Client && decision.line == Passage::Withhold => {
                decision.line = Passage::Forward;
            }
            Canary::HoldsNothing => decision.hold = None,
            Canary::MixesClients if from == Side::Server && decision.line == Passage::Forward => {
                let mut others = self.hub.iter().flat_map(|hub| hub.keys.keys().copied());
                let other = others.find(|other| *other != Conn::OWN && *other != conn);
                if let Some(other) = other.filter(|_| self.house.dice.once_in(40)) {
                    decision.line = Passage::Withhold;
                    self.hub.iter_mut().for_each(|hub| hub.misdelivered = Some((other, line.bytes.to_vec())));
                }
            }
            _ => {}
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
            Order::Read(token, entry) => {
                let checked = self.referee.ordered(now, token, &entry, is_decision(&entry));
                self.house.holds(checked);
                (Told::Failure(token), entry)
            }
        };
        self.ledger.jobs.push_back(Job::Order(told, entry));
    }
}

impl Host for HubWorld {
    fn now(&self) -> Now {
        HubWorld::now(self)
    }

    fn engine(&self) -> &Engine {
        &self.hub.as_ref().expect("BUG: the driver belongs to a hub").engine
    }

    fn decide(
        &mut self,
        now: Now,
        conn: Conn,
        from: Side,
        incoming: Incoming<'_>,
        effects: &mut Vec<Effect>,
    ) -> Option<Decision> {
        self.hear_all();
        let Incoming::Line(line) = incoming else { return None };
        let key = self.key_of(conn).filter(|_| !self.dies)?;
        let sign = if from == Side::Client { '>' } else { '<' };
        self.house.say(|| format!("{} {sign} read {}", conn.0, String::from_utf8_lossy(line.bytes)));
        self.referee_reads(conn, from, key, line.bytes);
        let hub = self.hub.as_mut()?;
        let Some(mut decision) = hub.engine.read(now, conn, from, incoming, effects) else {
            self.house.broken("what is not to be done here: a line is held".to_owned());
            return None;
        };
        if let Some(mark) = decision.mark {
            hub.marks.push(mark);
            self.referee.marked(conn, mark, line.bytes);
        }
        self.go_wrong(conn, from, line, &mut decision);
        self.recalled_by_canary(effects);
        let mut then = std::mem::take(&mut decision.then);
        self.recalled_by_canary(&mut then);
        decision.then = then;
        self.see(effects);
        self.see(&decision.then);
        if let Some(token) = decision.hold {
            let since = self.house.now.elapsed;
            self.hub.as_mut()?.held.insert(token, since);
        }
        Some(decision)
    }

    fn handle(&mut self, now: Now, input: Input, effects: &mut Vec<Effect>) {
        self.hear_all();
        let Some(hub) = self.hub.as_mut().filter(|_| !self.dies) else { return };
        match &input {
            Input::Committed { token, done } => self.referee.committed(*token, *done),
            Input::Written(mark) | Input::NotWritten(mark) => {
                hub.injections.remove(mark);
                hub.marks.retain(|of| of != mark);
                match &input {
                    Input::Written(mark) => self.referee.written(*mark),
                    _ => self.referee.not_written(*mark),
                }
            }
            Input::SentOver { mark, conn } => {
                for line in hub.injections.remove(mark).into_iter().flatten() {
                    self.referee.injects(*conn, &line, Some(*mark));
                }
                hub.marks.push(*mark);
            }
            Input::Recalled(mark) => {
                let unsent = hub.injections.remove(mark);
                hub.marks.retain(|of| of != mark);
                let checked = self.referee.recalled(*mark, unsent.as_ref().and_then(|lines| lines.first()));
                self.house.holds(checked);
            }
            Input::Tick => self.referee.ticks(now.elapsed),
            Input::Connected { conn, .. } => self.referee.connected(*conn),
            Input::Disconnected { conn } => self.referee.disconnected(*conn),
            Input::Closed { from: Side::Server } => self.referee.server_ended(),
            _ => {}
        }
        let Some(hub) = &mut self.hub else { return };
        hub.engine.handle(now, input, effects);
        self.see(effects);
    }

    fn batch<'a>(&mut self, now: Now, conn: Conn) -> Option<Batch<'a>> {
        let mut batch = self.hub.as_mut()?.writer.batch(now);
        if conn != Conn::OWN {
            batch.on(conn);
        }
        Some(batch)
    }

    fn miss(&mut self, _: usize) {}

    fn add(&mut self, batch: &mut Option<Batch<'_>>, effect: Effect) -> Option<Effect> {
        if is_left_out(self.house.canary, &effect) {
            return None;
        }
        match (effect, batch) {
            (Effect::Note(note), Some(batch)) => batch.push_note(&note),
            (Effect::Order(order), _) => self.order(order),
            (other, _) => return Some(other),
        }
        None
    }

    fn commit(&mut self, batch: &mut Batch<'_>) {
        if self.dies {
            return;
        }
        if self.house.canary == Canary::PassesFirst && self.house.dice.once_in(4) && !self.rests {
            // It is killed once the message is out.
            self.dies = true;
            return;
        }
        let torn = (self.house.dice.once_in(400) && !self.rests).then(|| self.journal_end());
        let room_bytes = self.house.room_bytes;
        let Some(hub) = &mut self.hub else { return };
        commit(&mut hub.writer, batch, room_bytes);
        if let Some(before) = torn {
            self.tear(before);
            self.die();
        }
    }

    fn carry_out(&mut self, effect: Effect, _: &mut Vec<Effect>) -> Option<Elsewhere> {
        self.hear_all();
        if self.house.dice.once_in(4_000) && !self.rests {
            self.die();
        }
        if self.dies || is_left_out(self.house.canary, &effect) {
            return None;
        }
        let now = HubWorld::now(self);
        match effect {
            Effect::Note(note) => {
                if let Note::RequestRenamed { request_id, before } = &note {
                    self.referee.renamed(before, request_id);
                }
                let room_bytes = self.house.room_bytes;
                let hub = self.hub.as_mut()?;
                let mut batch = hub.writer.batch(now);
                batch.push_note(&note);
                commit(&mut hub.writer, &mut batch, room_bytes);
            }
            Effect::Order(order) => self.order(order),
            Effect::Link(LinkEffect::Inject(mut injection)) => {
                if injection.mark.is_none() {
                    for line in &injection.lines {
                        self.referee.injects(injection.conn, &line.bytes, None);
                    }
                }
                injection.lines.retain(|line| !self.trusts_earlier_hub(&line.bytes));
                return Some(Elsewhere::Link(LinkEffect::Inject(injection)));
            }
            Effect::Link(effect) => return Some(Elsewhere::Link(effect)),
            Effect::Child(effect) => return Some(Elsewhere::Child(effect)),
            Effect::NotifyPending(_)
            | Effect::NotifyIdle(_)
            | Effect::Warn(_)
            | Effect::PublishConfigWarning(_)
            | Effect::Consult(_)
            | Effect::RunFragments(..)
            | Effect::CheckProgram(..) => {}
        }
        None
    }

    fn report_refused(&mut self, _: &mut Vec<Effect>) {}

    fn introduce(&mut self, _: Conn, _: ClientName) {}

    fn reply(&mut self, api_call: ApiCallId, reply: ApiReply, _: &mut Vec<Effect>) {
        let checked = self.referee.replied(api_call, &reply);
        self.house.holds(checked);
    }

    /// The record refers to a message that another client has got.
    fn clients_changed(&mut self, clients: usize) {
        self.hub.iter_mut().for_each(|hub| hub.writer.share_lines(clients > 1));
    }

    fn passed(&mut self, _: Side, _: Passed) {}

    fn publish_waiting(&mut self, _: usize) {}

    fn report(&mut self, fault: &str) {
        self.house.happened.add(Event::SlowClient, u64::from(fault.contains("unread")));
    }
}

impl HubWorld {
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
