//! What stands around the driver of a hub: the engine, the record and the ledger, with their faults.
//!
//! The driver and the links are the product's own. Broken hubs are made here, by what the engine is told to decide and by what is
//! recorded.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
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
use super::super::held::call_about_thread;
use super::super::lines::{Message, shown, without_envelope};
use super::super::shim::{Told, commit, withdraws};
use super::client::{self, Client};
use super::ledger::Job;
use super::referee::commands_in;
use super::server::{self, Key, Session};
use super::wire::{Got, HowEnded, Wire};
use super::world::{HubWorld, WAITING_BYTES_MAX};

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
    /// Checks of programs and reads of fragments that have no result.
    pub checks: Vec<Token>,
    pub reads: Vec<Token>,
    /// Orders for which the ledger had no room.
    refused: Vec<Token>,
    /// Since when connections have been ending.
    pub ending: BTreeMap<Conn, Duration>,
    /// Ids of calls for API callers, and those whose callers have heard that they failed.
    calls: BTreeMap<ApiCallId, String>,
    failed: BTreeSet<String>,
    /// Something has been read, and is not passed on.
    pub is_reading: bool,
    /// A message that a canary puts on another connection.
    pub misdelivered: Option<(Conn, Side, Vec<u8>)>,
    /// Effects that a canary delays, and for how many others.
    pub delayed: (Vec<Effect>, u32),
    /// A release that a canary leaves incomplete.
    pub half_released: Option<Token>,
    /// The connection on which a canary records the next batches, and how many.
    pub recorded_on: Option<(Conn, usize)>,
}

impl Hub {
    pub fn new(engine: Engine, writer: Writer, started: Duration) -> Hub {
        Hub {
            engine,
            writer,
            started,
            keys: BTreeMap::new(),
            held: BTreeMap::new(),
            injections: BTreeMap::new(),
            marks: Vec::new(),
            checks: Vec::new(),
            reads: Vec::new(),
            refused: Vec::new(),
            ending: BTreeMap::new(),
            calls: BTreeMap::new(),
            failed: BTreeSet::new(),
            is_reading: false,
            misdelivered: None,
            delayed: (Vec::new(), 0),
            half_released: None,
            recorded_on: None,
        }
    }
}

impl Hub {
    pub fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Another server has been started: nothing of the last one is waited for.
    pub fn forget(&mut self) {
        self.checks.clear();
        self.reads.clear();
        self.refused.clear();
        self.calls.clear();
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
        if let Some((conn, side, line)) = self.hub.as_mut().and_then(|hub| hub.misdelivered.take()) {
            driver.links.send(conn, side, vec![line], None);
        }
        if let Some(token) = self.hub.as_mut().and_then(|hub| hub.half_released.take()) {
            let is_held = |(conn, link): (Conn, &Link<Wire>)| link.held().contains(&token).then_some(conn);
            let first = driver.links.iter().find_map(is_held);
            first.and_then(|conn| driver.links.get_mut(conn)).into_iter().for_each(|link| link.release(token));
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
                    let room = |to: &Session| to.hangs.unwrap_or(server::UNREAD_MAX).saturating_sub(to.unread.len());
                    self.server.sessions.get(key).map(room)
                }
            };
            wire.takes(room.map(|room| room.min(messages_max)));
        }
    }

    /// The ends get what the hub has written.
    fn hear_all(&mut self) {
        while let Some((key, side, got)) = self.written.take() {
            // The driver takes answers back before it writes anything.
            let checked = self.referee.all_are_taken_back();
            self.house.holds(checked);
            let Some(conn) = self.conn_of(key) else { continue };
            let checked = match got {
                Got::Message(line) => self.hear((conn, key), side, line),
                Got::Close(code) => self.referee.heard_close(conn, side, code),
                Got::Nothing => {
                    self.referee.is_gone(conn, side);
                    Ok(())
                }
            };
            self.house.holds(checked);
        }
    }

    fn hear(&mut self, (conn, key): (Conn, Key), side: Side, line: Vec<u8>) -> Result<(), String> {
        let sign = if side == Side::Server { '>' } else { '<' };
        self.house.say(|| format!("{} {sign} passed {}", conn.0, String::from_utf8_lossy(&line)));
        match side {
            Side::Client => {
                self.clients.get_mut(&key).into_iter().for_each(|client| client.unread.push_back(line.clone()));
                self.referee.client_got(conn, &line, &self.ledger)
            }
            Side::Server => {
                let session = self.server.sessions.get_mut(&key);
                session.into_iter().for_each(|session| session.unread.push_back(line.clone()));
                self.may_tell(&line)?;
                self.referee.server_got(conn, &line, &self.ledger)
            }
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
        let wire = Wire::new(key, side, &self.written, self.house.canary);
        self.wires.insert((key, side), wire.clone());
        wire
    }

    /// A client's handshake is complete on both sides.
    pub fn connect(&mut self, key: Key, client: Client) {
        let peer =
            Peer { transport: Transport::WebSocket, pid: Some(9), terminal: None, variables: Default::default() };
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
        if !self.habits.adopts && !self.referee.has_had_client() {
            self.house.broken("10: the hub connects ahead of the first client".to_owned());
        }
        let key = self.next_key();
        self.server.sessions.insert(key, Session::default());
        self.house.say(|| format!("the hub connects as {key}"));
        let peer =
            Peer { transport: Transport::WebSocket, pid: Some(1), terminal: None, variables: Default::default() };
        let end = self.wire(key, Side::Server);
        let earlier = self.key_of(Conn::OWN).filter(|_| self.conns().contains(&Conn::OWN));
        if let Some(earlier) = earlier {
            let checked = self.referee.removed(Conn::OWN, [false, false]);
            self.house.holds(checked);
            self.close(earlier);
        }
        self.hub.iter_mut().for_each(|hub| {
            // The one before, if it has not been removed yet, gives way.
            hub.ending.remove(&Conn::OWN);
            hub.keys.extend([(Conn::OWN, key)]);
        });
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
        let (messages, mut end) = self.read(key, from, reads_max);
        // A hub may pass a close frame on ahead of lines that have waited for their context.
        let waits = !messages.is_empty() || self.referee.held.lines().any(|(of, _)| *of == conn);
        if self.habits.gathers && from == Side::Client && waits {
            end = end.map(|_| HowEnded::Cut);
        }
        let Some(wire) = self.wires.get(&(key, from)) else { return };
        wire.says(messages.iter().map(|bytes| Utf8Bytes::try_from(bytes.clone()).expect("BUG: it is text")), end);
        if from == Side::Client && !messages.is_empty() && self.server.sessions.contains_key(&key) {
            let checked = self.referee.nothing_waits_for_server(conn);
            self.house.holds(checked);
        }
        self.left = messages.len();
        if end.is_some() {
            self.house.say(|| format!("connection {} ends at the {}", conn.0, from.name()));
            let is_held = |driver: &HubDriver| driver.links.get(conn).is_some_and(Link::is_held);
            self.referee.happened.add(Event::LeftWithHold, u64::from(self.driver.as_ref().is_some_and(is_held)));
            self.referee.ends(conn, from, end);
        }
        self.drive(|driver, world| {
            let mut effects = Vec::new();
            if end.is_some() && world.house.canary == Canary::DropsAtDisconnect && from == Side::Client {
                world.wires.get(&(key, Side::Server)).into_iter().for_each(Wire::cut_off);
            }
            let mut messages = Vec::new();
            let ended = driver.links.get_mut(conn).and_then(|link| link.read(from, &mut messages));
            let withdraws = |line: &Utf8Bytes| from == Side::Server && withdraws(line.as_bytes());
            let is_withdrawal = messages.iter().any(withdraws);
            world.take_messages(driver, is_withdrawal, &mut effects);
            driver.pass_messages(world, (conn, from), (messages, ended), &mut effects);
            if !world.dies {
                let checked = world.referee.all_are_taken_back();
                world.house.holds(checked);
            }
        });
        let is_open = |driver: &HubDriver| driver.links.get(conn).is_some_and(|link| !link.is_ending());
        if self.clients.get(&key).is_some_and(|client| !client.has_left) && self.driver.as_ref().is_some_and(is_open) {
            let checked = self.referee.client_is_fast_enough(conn, WAITING_BYTES_MAX);
            self.house.holds(checked);
        }
    }

    /// What the hub hears of the ledger and of API callers before it passes what it has read. The effects wait for that.
    fn take_messages(&mut self, driver: &HubDriver, is_withdrawal: bool, effects: &mut Vec<Effect>) {
        let stores_answer = |job: &Job| matches!(job, Job::Order(Told::Whether(_), _));
        let up_to_answer = self.ledger.jobs.iter().position(stores_answer).map_or(0, |at| at as u64 + 1);
        let count = match self.house.dice.roll(40) {
            0 => self.house.dice.roll(4),
            // An answer of a caller is often stored just when the server does not want it any more.
            1..=30 if is_withdrawal => up_to_answer,
            31 => {
                if !self.rests {
                    let listens = self.hub.as_ref().is_some_and(|hub| driver.links.answers_to(&hub.engine).is_some());
                    let input = self.call(listens);
                    self.handle(self.now(), input, effects);
                }
                0
            }
            _ => 0,
        };
        for _ in 0..count {
            // A hub gives orders about what it reads next ahead of those that have waited for its ledger.
            if matches!(self.ledger.jobs.front(), Some(Job::Load(_))) {
                break;
            }
            let inputs = self.work_on_ledger();
            self.hub.iter_mut().for_each(|hub| hub.is_reading = true);
            inputs.into_iter().for_each(|input| self.handle(self.now(), input, effects));
        }
        self.hub.iter_mut().for_each(|hub| hub.is_reading = false);
    }

    /// The next messages of a side, and whether it has ended.
    fn read(&mut self, key: Key, from: Side, reads_max: usize) -> (Vec<Vec<u8>>, Option<HowEnded>) {
        let end = self.ends.get(&(key, from)).copied().unwrap_or(HowEnded::Cut);
        let (said, read, has_left) = match from {
            Side::Client => {
                let Some(client) = self.clients.get_mut(&key) else { return (Vec::new(), Some(end)) };
                (&client.said, &mut client.read, client.has_left)
            }
            Side::Server => {
                let Some(session) = self.server.sessions.get_mut(&key) else { return (Vec::new(), Some(end)) };
                (&session.said, &mut session.read, false)
            }
        };
        let messages: Vec<Vec<u8>> = said[*read..].iter().take(reads_max).map(|said| said.bytes.clone()).collect();
        *read += messages.len();
        let has_ended = has_left && *read == said.len();
        (messages, has_ended.then_some(end))
    }

    /// The referee sees a message ahead of the engine; [`HubWorld::left`] counts the messages from this one on that were read together.
    fn referee_reads(&mut self, conn: Conn, from: Side, key: Key, bytes: &[u8]) -> bool {
        let now = self.now().elapsed;
        let (said, read) = match from {
            Side::Client => self.clients.get(&key).map(|client| (&client.said, client.read)),
            Side::Server => self.server.sessions.get(&key).map(|session| (&session.said, session.read)),
        }
        .expect("BUG: it has written");
        let checked = self.referee.reads(now, conn, from, bytes, said.get(read - self.left));
        self.left -= 1;
        checked.unwrap_or_else(|what| {
            self.house.broken(what);
            false
        })
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
        let id = message.id.as_ref().map(ToString::to_string).unwrap_or_default();
        if self.hub.as_ref().is_some_and(|hub| hub.failed.contains(&id)) {
            return Err(format!("8: a call reaches the server of which its caller has heard that it failed: {id}"));
        }
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
        let now = self.now().elapsed;
        let ended = self.driver.as_ref().map(|driver| driver.links.ended(now)).unwrap_or_default();
        let cuts = ended.iter().any(|(_, is_busy)| *is_busy);
        if ended.is_empty() || cuts && self.house.canary == Canary::NeverCuts {
            return;
        }
        self.drive(|driver, world| {
            let mut effects = Vec::new();
            for (conn, is_busy) in driver.links.ended(world.now().elapsed) {
                let Some(key) = world.key_of(conn) else { continue };
                if let Some(hub) = &mut world.hub {
                    hub.ending.remove(&conn);
                }
                let hears_server = !is_busy && world.server.sessions.contains_key(&key);
                let hears_client = !is_busy && world.clients.get(&key).is_some_and(|client| !client.has_left);
                let checked = world.referee.removed(conn, [hears_client, hears_server]);
                world.house.holds(checked);
                world.close(key);
                world.wires.retain(|(of, _), _| *of != key);
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
        let waits = self.driver.as_ref().is_some_and(|driver| driver.links.unsent() > 0);
        if !waits || self.house.canary == Canary::NeverSendsUnsent {
            return;
        }
        self.drive(|driver, world| {
            let mut effects = Vec::new();
            driver.send_unsent(world, &mut effects);
            driver.carry_out_on_links(world, &mut effects);
        });
    }

    /// The referee learns of the lines of ours with marks before they are on a connection, and of what the engine waits for.
    fn see(&mut self, effects: &[Effect], line: Option<&[u8]>) {
        let Some(hub) = &mut self.hub else { return };
        for effect in effects {
            match effect {
                Effect::Link(LinkEffect::Inject(injection)) => {
                    let lines = || injection.lines.iter().map(|line| line.bytes.clone()).collect();
                    if let Some(mark) = injection.mark {
                        hub.injections.entry(mark).or_insert_with(lines);
                    }
                }
                Effect::RunFragments(token, _) => self.referee.held.reads(*token),
                Effect::CheckProgram(token, _) => {
                    let checked = self.referee.check_begins(*token, line.unwrap_or_default());
                    self.house.holds(checked);
                }
                _ => {}
            }
        }
    }

    /// An API caller calls the server with the last of these lines.
    fn see_call(&mut self, api_call: ApiCallId, effects: &[Effect]) {
        let lines = |effect: &Effect| match effect {
            Effect::Link(LinkEffect::Inject(injection)) => injection.lines.last().map(|line| line.bytes.clone()),
            _ => None,
        };
        let line = effects.iter().filter_map(lines).next_back();
        let message = line.as_ref().and_then(|line| Message::read(line)).filter(|message| message.method.is_some());
        if let (Some(id), Some(hub)) = (message.and_then(|message| message.id), &mut self.hub) {
            hub.calls.insert(api_call, id.to_string());
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
                    let misdelivered = Some((other, Side::Client, line.bytes.to_vec()));
                    self.hub.iter_mut().for_each(|hub| hub.misdelivered.clone_from(&misdelivered));
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
        let is_refused = matches!(told, Told::Whether(_)) && self.house.dice.once_in(40) && !self.rests;
        match (told, &mut self.hub) {
            (Told::Whether(token), Some(hub)) if is_refused => {
                self.house.happened.count(Event::RefusedOrder);
                self.house.say(|| format!("refused {entry:?}"));
                hub.refused.push(token);
            }
            (told, _) => self.ledger.jobs.push_back(Job::Order(told, entry)),
        }
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
        let waits = self.referee_reads(conn, from, key, line.bytes);
        let misread = self.misread(conn, from, line.bytes);
        let incoming = misread.as_deref().map_or(incoming, |bytes| Incoming::Line(Line { bytes, ..line }));
        let decision = self.hub.as_mut()?.engine.read(now, conn, from, incoming, effects);
        self.see(effects, Some(line.bytes));
        let checked = self.referee.decides_nothing(effects);
        self.house.holds(checked);
        if let Some(decision) = &decision {
            let checked = self.referee.passes_only(from, line.bytes, decision);
            self.house.holds(checked);
        }
        if waits == decision.is_some() {
            let line = shown(line.bytes);
            self.house.broken(format!("6: it is {waits} that it waits for its context: {line}"));
        }
        let mut decision = decision?;
        self.see(&decision.then, Some(line.bytes));
        if let Some(mark) = decision.mark {
            self.hub.iter_mut().for_each(|hub| hub.marks.push(mark));
            self.referee.marked(conn, mark, line.bytes);
        }
        self.go_wrong(conn, from, line, &mut decision);
        self.spoil(effects);
        let mut then = std::mem::take(&mut decision.then);
        self.spoil(&mut then);
        decision.then = then;
        self.reports_too_early(now, &decision, effects);
        if let Some(token) = decision.hold {
            let since = self.house.now.elapsed;
            self.hub.as_mut()?.held.insert(token, since);
        }
        Some(decision)
    }

    fn handle(&mut self, now: Now, input: Input, effects: &mut Vec<Effect>) {
        self.hear_all();
        let Some(hub) = self.hub.as_mut().filter(|_| !self.dies) else { return };
        let (before, about_thread, mut sent_again) = (effects.len(), call_about_thread(&input), None);
        let call = if let Input::ApiRequest { api_call, .. } = &input { Some(*api_call) } else { None };
        match &input {
            Input::Committed { token, done } => self.referee.committed(now.elapsed, *token, *done),
            Input::ProgramChecked { token, checked } => self.referee.checked(now.elapsed, *token, checked.is_ok()),
            Input::Written(mark) | Input::NotWritten(mark) => {
                hub.injections.remove(mark);
                hub.marks.retain(|of| of != mark);
                match &input {
                    Input::Written(mark) => self.referee.written(*mark),
                    _ => sent_again = self.referee.not_written(*mark).then_some(*mark),
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
            Input::Disconnected { conn } => {
                hub.ending.entry(*conn).or_insert(now.elapsed);
                self.referee.disconnected(*conn);
            }
            Input::Closed { from: Side::Server } => self.referee.server_ended(),
            _ => {}
        }
        let input = self.misheard(input);
        if let (Some(hub), Some(input)) = (&mut self.hub, input) {
            hub.engine.handle(now, input, effects);
        }
        if let Some(mark) = sent_again.filter(|mark| !effects[before..].iter().any(|effect| injects(effect, *mark))) {
            self.house
                .broken(format!("3: not sent again, and was lost with its connection: the answer with mark {mark}"));
        }
        self.see(&effects[before..], None);
        let checked = self.referee.decides_nothing(&effects[before..]);
        self.house.holds(checked);
        if let Some(about_thread) = about_thread {
            self.referee.held.called(now.elapsed, &about_thread, &effects[before..]);
        }
        call.into_iter().for_each(|api_call| self.see_call(api_call, &effects[before..]));
        self.hides_injections(effects);
    }

    fn batch<'a>(&mut self, now: Now, conn: Conn) -> Option<Batch<'a>> {
        let hub = self.hub.as_mut()?;
        let conn = hub.recorded_on.map_or(conn, |(conn, _)| conn);
        hub.recorded_on = hub.recorded_on.and_then(|(conn, left)| Some((conn, left.checked_sub(1)?)));
        let mut batch = hub.writer.batch(now);
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
            Effect::RunFragments(token, _) => self.hub.as_mut()?.reads.push(token),
            Effect::CheckProgram(token, _) => self.hub.as_mut()?.checks.push(token),
            Effect::Link(LinkEffect::Release(token)) if self.house.canary == Canary::ReleasesOne => {
                self.hub.as_mut()?.half_released = Some(token);
            }
            Effect::Link(LinkEffect::ReleaseHeld(token)) => {
                self.referee.released(now.elapsed, token);
                return Some(Elsewhere::Link(LinkEffect::ReleaseHeld(token)));
            }
            Effect::Link(LinkEffect::PassHeld(mut lines)) => {
                let conns: BTreeSet<u32> = lines.iter().map(|line| line.conn.0).collect();
                self.house.happened.add(Event::HeldOfSeveral, u64::from(conns.len() > 1));
                lines.retain(|line| !self.loses_held(line.conn));
                let batches = lines.chunk_by(|one, next| one.conn == next.conn).count();
                self.records_held_on(lines.first().map(|line| line.conn), batches);
                return Some(Elsewhere::Link(LinkEffect::PassHeld(lines)));
            }
            Effect::Link(LinkEffect::PassLate { mut conns, line }) => {
                self.referee.shows_late(&line);
                self.house.happened.add(Event::LateShow, conns.len() as u64);
                self.passes_late_to_all(&mut conns);
                return Some(Elsewhere::Link(LinkEffect::PassLate { conns, line }));
            }
            Effect::Link(LinkEffect::Inject(mut injection)) => {
                if self.answers_nowhere(&mut injection.lines) {
                    return None;
                }
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
            // No budget is set.
            | Effect::LookAtBudget(..)
            | Effect::Consult(_) => {}
        }
        None
    }

    fn report_refused(&mut self, effects: &mut Vec<Effect>) {
        let refused = self.hub.as_mut().map(|hub| std::mem::take(&mut hub.refused)).unwrap_or_default();
        for token in refused {
            self.handle(HubWorld::now(self), Input::Committed { token, done: false }, effects);
        }
        self.give_back(effects);
    }

    fn introduce(&mut self, _: Conn, _: ClientName) {}

    fn reply(&mut self, api_call: ApiCallId, reply: ApiReply, _: &mut Vec<Effect>) {
        let failed = |hub: &mut Hub| hub.failed.extend(hub.calls.remove(&api_call));
        if matches!(reply, ApiReply::NotReady(_)) {
            self.hub.iter_mut().for_each(failed);
        }
        self.house.say(|| format!("told {api_call} {reply:?}"));
        let promises = self.house.canary == Canary::HubPromisesTaken && self.referee.taken_of == Some(api_call);
        let reply = if promises { ApiReply::Kept } else { reply };
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
    /// The ledger processes one job, and the hub hears of it.
    pub fn ledger_works(&mut self) {
        let inputs = self.work_on_ledger();
        inputs.into_iter().for_each(|input| self.tell(input));
    }

    /// The ledger processes one job; returns what it reports.
    fn work_on_ledger(&mut self) -> Vec<Input> {
        if self.house.ledger_hangs || self.hub.is_none() || self.dies {
            return Vec::new();
        }
        let fails = !self.house.ledger_works || self.house.dice.once_in(15);
        self.house.happened.add(Event::FailedCommit, u64::from(fails));
        let mut unloaded = VecDeque::new();
        while fails && matches!(self.ledger.jobs.front(), Some(Job::Load(_))) {
            // Without the file no other entry can be stored either.
            unloaded.extend(self.ledger.jobs.pop_front());
        }
        match (self.ledger.jobs.pop_front(), fails) {
            (None, _) => {
                self.ledger.jobs.extend(unloaded);
                Vec::new()
            }
            (Some(Job::Load(generation)), _) => self.load(generation),
            (Some(Job::Order(told, entry)), true) => {
                if !matches!(told, Told::Whether(_) | Told::Failure(_)) {
                    self.ledger.jobs.push_front(Job::Order(Told::Nothing, entry));
                }
                let is_unread = !unloaded.is_empty();
                unloaded.into_iter().rev().for_each(|job| self.ledger.jobs.push_front(job));
                match told {
                    Told::First(token) | Told::Whether(token) => vec![Input::Committed { token, done: false }],
                    Told::Failure(token) if is_unread => vec![Input::Committed { token, done: false }],
                    Told::Failure(_) | Told::Nothing => Vec::new(),
                }
            }
            (Some(Job::Order(Told::Failure(_), _)), false) => Vec::new(),
            (Some(Job::Order(told, entry)), false) => self.store(told, entry),
        }
    }

    fn store(&mut self, told: Told, entry: LedgerEntry) -> Vec<Input> {
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
        let mut inputs = Vec::new();
        if !again.is_empty() {
            inputs.push(Input::Context(ContextChange::Added(again)));
        }
        if is_answer && !self.rests && self.house.dice.once_in(12) {
            // Before the hub learns of it.
            self.house.happened.count(Event::KillAfterCommit);
            match self.driver.is_some() {
                true => self.killed(),
                false => self.die(),
            }
            return Vec::new();
        }
        match told {
            Told::Nothing | Told::Failure(_) => {}
            Told::First(token) => inputs.push(Input::Committed { token, done: true }),
            Told::Whether(token) => inputs.push(Input::Committed { token, done: changed }),
        }
        inputs
    }
}

/// Whether an effect sends lines of ours with this mark.
fn injects(effect: &Effect, mark: Token) -> bool {
    matches!(effect, Effect::Link(LinkEffect::Inject(injection)) if injection.mark == Some(mark))
}

/// Whether an entry stores the answer of an API caller or a rule, which is stored now or never.
fn is_decision(entry: &LedgerEntry) -> bool {
    let is_rule = |by: &Option<String>| by.as_ref().is_some_and(|by| by.starts_with("rule:"));
    matches!(entry, LedgerEntry::RequestEnded(end) if end.source == RequestSource::Api || is_rule(&end.by))
}

/// Whether a broken hub does not record this note.
fn is_left_out(canary: Canary, effect: &Effect) -> bool {
    let left_out = ["Note(ConnOpen", "Note(GenerationStarted"];
    canary == Canary::CountsTwice && left_out.iter().any(|note| format!("{effect:?}").starts_with(note))
}
