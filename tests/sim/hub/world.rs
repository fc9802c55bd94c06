//! The world of a hub: the server, the clients, the hub that runs now, and what outlives it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use codex_shim::testing::config::ContextScope;
use codex_shim::testing::driver::{Driver, HubLinks, Link, Own};
use codex_shim::testing::engine::{
    ApiCallId, ApiRequest, AssemblySettings, ContextBounds, ContextChange, ContextSettings, Engine, EngineSettings,
    GivenAnswer, Input, Now, PushedCommand, Remembered, RequestSettings, RequestSource, RequestType, ServerOwner,
    Token, WaitingCommand,
};
use codex_shim::testing::journal::{Bounds, FORMAT, Generation, Header, IndexedTo, Previous, ServerOrigin, Writer};
use codex_shim::testing::store::threads_in_scope;
use codex_shim::testing::wire::{Conn, Side};
use serde_json::json;

use super::super::canary::{Canary, Need};
use super::super::dice::Dice;
use super::super::happened::Event;
use super::super::referee::EXPIRES_AFTER;
use super::super::rules;
use super::super::world::{HOLD_MAX, STEPS, World};
use super::client::Client;
use super::ledger::{Job, Ledger};
use super::referee::{Habits, Referee};
use super::server::{FOLDERS, Key, Server};
use super::shim::{Hub, HubDriver};
use super::threads::{self, Others};
use super::wire::{HowEnded, Wire, Written};

/// Clients at once.
const CLIENTS_MAX: usize = 4;

/// Bytes that may wait for a client.
pub const WAITING_BYTES_MAX: usize = 6_000;

/// How long a connection that ends may take to deliver what waits.
const CLOSING_MAX: Duration = Duration::from_secs(5);

/// Jobs of the ledger that are done before anything else happens.
const JOBS_AT_ONCE: usize = 4;

pub const BOUNDS: Bounds = Bounds { journal_bytes_max: 1 << 40, journal_age_max: Duration::from_secs(1 << 30) };

/// How much moves in a step.
const MOVES: usize = 20;

pub struct HubWorld {
    /// The session's folder, the time and the faults.
    pub house: World,
    pub hub: Option<Hub>,
    /// What is under test; `None` while it works.
    pub driver: Option<HubDriver>,
    /// The hub is killed once the driver returns.
    pub dies: bool,
    /// The ends of all links.
    pub wires: BTreeMap<(Key, Side), Wire>,
    pub written: Written,
    /// How ends have closed their connections.
    pub ends: BTreeMap<(Key, Side), HowEnded>,
    /// Messages of the read under way that the referee has not seen.
    pub left: usize,
    pub referee: Referee,
    pub ledger: Ledger,
    pub server: Server,
    /// The threads of earlier servers in which no person spoke.
    pub others: BTreeSet<String>,
    pub clients: BTreeMap<Key, Client>,
    /// The generation in which the server was started; `None` if none runs.
    pub server_run: Option<String>,
    keys: Key,
    calls: ApiCallId,
    answers: u64,
    commands: i64,
    pub habits: Habits,
    /// Turns wait for fragments in all hubs of this world.
    gathers: bool,
    /// Nothing fails any more.
    pub rests: bool,
}

impl HubWorld {
    pub fn new(seed: u64, canary: Canary) -> HubWorld {
        HubWorld {
            house: World::new(seed, canary),
            hub: None,
            driver: None,
            dies: false,
            wires: BTreeMap::new(),
            written: Written::default(),
            ends: BTreeMap::new(),
            left: 0,
            referee: Referee::default(),
            ledger: Ledger::default(),
            server: Server::default(),
            others: BTreeSet::new(),
            clients: BTreeMap::new(),
            server_run: None,
            keys: 0,
            calls: 0,
            answers: 0,
            commands: 0,
            habits: Habits::default(),
            gathers: false,
            rests: false,
        }
    }

    /// Runs the world; returns the broken promise.
    pub fn play(&mut self) -> Result<(), String> {
        self.house.is_indexed = self.house.has_history();
        self.gathers = self.house.dice.once_in(4) | self.house.canary.needs(Need::Fragments);
        self.server.is_plain = self.gathers;
        self.server.is_terse = self.house.dice.once_in(4) | (self.house.canary == Canary::BelievesFlags);
        while self.house.happened.times(Event::Step) < STEPS && self.house.found.is_none() {
            self.house.happened.count(Event::Step);
            self.step();
        }
        if self.house.found.is_none() {
            self.come_to_rest();
        }
        if self.house.found.is_none() && self.house.is_indexed {
            self.house.happened.count(Event::HubHistory);
            self.others.extend(self.server.of_no_person());
            let others = Others::new(self.others.clone(), self.house.canary);
            self.house.index(None, Some(others));
            if self.house.found.is_none() {
                let counted = super::checks::counts(&self.house.session());
                self.house.holds(counted);
                self.threads_are_right();
            }
            if self.house.found.is_none() {
                self.house.harm();
            }
        }
        self.house.found.take().map_or(Ok(()), Err)
    }

    /// The history knows which threads are of no person.
    fn threads_are_right(&mut self) {
        if self.house.canary == Canary::ForgetsKinds {
            super::super::checks::spoil(&self.house.session(), threads::ALL_OF_PERSONS);
        }
        let known = threads::are_known(&self.house.session(), &self.server);
        self.house.holds(known);
    }

    pub fn now(&self) -> Now {
        let started = self.hub.as_ref().map_or(Duration::ZERO, |hub| hub.started);
        Now { unix_us: self.house.now.unix_us, elapsed: self.house.now.elapsed - started }
    }

    pub fn next_key(&mut self) -> Key {
        self.keys += 1;
        self.keys
    }

    /// A hub starts: it adopts the server that runs, or starts one.
    pub fn start(&mut self) {
        let generation = self.next_generation();
        let adopted = self.server_run.is_some();
        let server_run = self.server_run.get_or_insert_with(|| generation.to_string()).clone();
        self.house.say(|| format!("hub {generation} with the server of {server_run}"));
        self.house.happened.add(Event::Adoption, u64::from(adopted));
        let writer = self.writer(&generation, adopted);
        let engine = self.engine(&generation, 0, adopted);
        self.house.generation = Some(generation);
        let is_early = adopted || self.house.canary == Canary::NamesServer;
        let own = if is_early { Own::Due(Duration::ZERO) } else { Own::AfterClient };
        let started = self.house.now.elapsed;
        self.referee = Referee::new(server_run.clone(), self.habits);
        self.hub = Some(Hub::new(engine, writer, started));
        self.wires.clear();
        let waiting_bytes_max = if self.house.canary == Canary::LetsWait { usize::MAX } else { WAITING_BYTES_MAX };
        self.driver = Some(Driver::new(HubLinks::new(own, waiting_bytes_max)));
        self.begin_run(server_run, adopted);
    }

    /// A hub goes on with a server that was started anew.
    pub fn next_server(&mut self) {
        let generation = self.next_generation();
        let server_run = generation.to_string();
        let Some(last) = self.hub.as_ref().map(|hub| hub.engine.last_token()) else { return };
        self.house.say(|| format!("a server anew: {server_run}"));
        let writer = self.writer(&generation, false);
        let engine = self.engine(&generation, last, false);
        self.house.generation = Some(generation);
        self.server_run = Some(server_run.clone());
        let has_defect = self.referee.defect_after.is_some();
        self.referee = std::mem::take(&mut self.referee).next(server_run.clone(), self.habits);
        if let Some(hub) = &mut self.hub {
            (hub.writer, hub.engine) = (writer, engine);
            hub.forget();
        }
        self.begin_run(server_run, false);
        if has_defect {
            self.finds_defect();
        }
    }

    fn begin_run(&mut self, server_run: String, adopted: bool) {
        self.ledger.lost.clear();
        self.ledger.jobs.push_back(Job::Load(server_run.clone()));
        self.tell(Input::ServerStarted { pid: 7, adopted });
        self.tell(Input::SessionOpened { generation: server_run });
    }

    fn next_generation(&self) -> Generation {
        Generation::after(self.house.generation.as_ref(), (self.house.now.unix_us / 1_000_000) as u32, 0)
    }

    fn engine(&mut self, generation: &Generation, tokens_before: Token, adopts: bool) -> Engine {
        let expires = self.house.dice.once_in(3) | self.house.canary.needs(Need::Expiry);
        let has_rules = self.house.dice.once_in(3) | self.house.canary.needs(Need::Rules);
        self.habits = Habits { expires, has_rules, gathers: self.gathers, adopts };
        let own_ids = format!("codex-shim:{generation}:");
        Engine::new(EngineSettings { own_ids, tokens_before, ..self.engine_settings() })
    }

    /// The settings of the hub that runs.
    pub fn engine_settings(&self) -> EngineSettings {
        let settings = rules::settings();
        let expiry = if self.habits.expires { vec![(RequestType::Approval, EXPIRES_AFTER)] } else { Vec::new() };
        let rules = if self.habits.has_rules { settings.requests().rules } else { Vec::new() };
        EngineSettings {
            budget: Default::default(),
            exit_grace: Duration::from_secs(10),
            context: ContextSettings::default(),
            assembly: if self.gathers { settings.assembly() } else { AssemblySettings::default() },
            requests: RequestSettings { hold: false, expiry, notify_after: None, rules },
            server_owner: ServerOwner::Hub,
            own_ids: String::new(),
            tokens_before: 0,
        }
    }

    fn writer(&self, generation: &Generation, adopted: bool) -> Writer {
        let header = Header {
            journal: FORMAT,
            session: "s".to_owned(),
            generation: generation.to_string(),
            segment: 0,
            at: 0,
            argv: Vec::new(),
            cwd: "/".to_owned(),
            codex: ServerOrigin { path: "codex".to_owned() },
            adopted,
            shim: "0".to_owned(),
            previous: Previous::of_end(&self.house.journal()),
        };
        Writer::new(self.house.journal(), generation.clone(), header, BOUNDS, IndexedTo::default())
    }

    /// The ledger is open: returns what the engine has to know.
    pub fn load(&mut self, generation: String) -> Vec<Input> {
        let requests = self.ledger.load(generation);
        self.referee.loaded(&self.ledger.open());
        self.contents(requests)
    }

    /// The contents of the ledger, with the names of the requests that have ended.
    pub fn contents(&self, requests: Vec<String>) -> Vec<Input> {
        self.house.say(|| format!("the ledger is open: {requests:?} have ended"));
        let mut open_requests = self.ledger.open();
        if self.house.canary == Canary::ForgetsStoredAnswers {
            open_requests.retain(|row| row.answer.is_none());
        }
        let remembered = Remembered { requests, open_requests, ..Remembered::default() };
        let waiting = self.ledger.commands.clone();
        vec![Input::Remembered(Box::new(remembered)), Input::Context(ContextChange::Loaded(waiting))]
    }

    fn step(&mut self) {
        if self.hub.is_none() {
            // The server may go on alone for a while.
            if self.server_run.is_some() && self.house.dice.once_in(2) {
                return self.server_works();
            }
            self.start();
        }
        if self.house.defect_at == Some(self.house.happened.times(Event::Step)) {
            self.finds_defect();
        }
        match self.house.dice.roll(50) {
            0 | 1 => self.connects(),
            2 if self.house.dice.once_in(3) => self.leaves(),
            2 => self.hands_over(),
            3..=9 => self.client_speaks(),
            10..=18 => self.server_works(),
            19..=36 => (0..MOVES).for_each(|_| self.something_moves()),
            37..=40 => (0..1 + self.house.dice.roll(6)).for_each(|_| self.ledger_works()),
            41 | 42 => self.somebody(),
            43 | 44 => self.time_passes(),
            45 => self.context(),
            48 | 49 => self.somebody_else_works(),
            46 => match self.house.dice.roll(5) {
                0 => self.house.room_bytes = Some(self.house.dice.roll(12_000)),
                1 | 2 => self.house.room_bytes = None,
                3 => self.house.ledger_hangs = self.house.dice.once_in(2),
                _ => self.house.ledger_works = !self.house.dice.once_in(3),
            },
            _ => match self.house.dice.roll(20) {
                0 | 1 => self.killed(),
                2 => self.server_dies(),
                3 | 7 => self.server_cuts(),
                8..=10 => self.server_hangs(),
                5 | 6 => self.everybody_leaves(),
                4 => self.house.index_some(),
                _ => {}
            },
        }
        if self.server.hanging().is_some() && self.hub.is_some() {
            match self.house.dice.roll(20) {
                0 => self.server_closes_hanging(),
                1..=3 => self.somebody_accepts(),
                _ => {}
            }
        }
        if self.house.dice.once_in(100) {
            self.nobody_takes_the_rest();
        }
        self.go_on();
    }

    /// If a connection ends, and a side does not take what waits for it, time passes until it is cut.
    fn nobody_takes_the_rest(&mut self) {
        let waits = |(_, link): (Conn, &Link<Wire>)| link.is_ending() && link.is_busy();
        if self.driver.as_ref().is_some_and(|driver| driver.links.iter().any(waits)) {
            self.house.happened.count(Event::CutLink);
            self.house.now.elapsed += CLOSING_MAX;
            self.house.now.unix_us += CLOSING_MAX.as_micros() as u64;
        }
    }

    /// What the hub does before it waits.
    pub fn go_on(&mut self) {
        self.advance_own();
        self.send_unsent();
        self.tick();
        self.remove_ended();
        self.forget_departed();
        self.nothing_is_held_too_long();
        self.nothing_ends_for_ever();
    }

    fn connects(&mut self) {
        if self.hub.is_none() || self.clients.values().filter(|client| !client.has_left).count() >= CLIENTS_MAX {
            return;
        }
        let mut client = Client::default();
        client.begin(&mut self.house.dice);
        client.joins(&mut self.house.dice, &self.server);
        let key = self.next_key();
        self.connect(key, client);
    }

    fn some_client(&mut self) -> Option<Key> {
        let open: Vec<Key> = self
            .clients
            .iter()
            .filter(|(_, client)| !client.has_left && !client.is_left)
            .map(|(key, _)| *key)
            .collect();
        (!open.is_empty()).then(|| open[self.house.dice.roll(open.len() as u64) as usize])
    }

    /// Somebody answers, and then no connection is left that could carry the answer.
    fn everybody_leaves(&mut self) {
        self.somebody_accepts();
        let keys: Vec<Key> = self.clients.keys().copied().collect();
        keys.into_iter().for_each(|key| self.client_leaves(key));
        let own = self.key_of(Conn::OWN);
        own.into_iter().for_each(|own| drop(self.server.sessions.remove(&own)));
        for conn in self.conns() {
            self.pass(conn, Side::Client);
            self.pass(conn, Side::Server);
        }
        (0..JOBS_AT_ONCE).for_each(|_| self.ledger_works());
    }

    /// An API caller accepts a request that waits, if there is one.
    fn somebody_accepts(&mut self) {
        match self.referee.pending().map(str::to_owned) {
            Some(name) if self.hub.is_some() => {
                let call = self.call_to_accept(name);
                self.tell(call);
            }
            _ => self.somebody(),
        }
    }

    fn leaves(&mut self) {
        if let Some(key) = self.some_client() {
            self.client_leaves(key);
        }
    }

    /// A client closes its connection, or is killed: then the hub may not get all that it has written.
    fn client_leaves(&mut self, key: Key) {
        let Some(client) = self.clients.get_mut(&key) else { return };
        self.house.happened.count(Event::ClientLeaves);
        client.has_left = true;
        client.unread.clear();
        if self.house.dice.once_in(2) {
            self.ends.insert((key, Side::Client), HowEnded::Closed(1_000 + (key % 7) as u16));
        }
        if self.house.dice.once_in(3) {
            client.said.truncate(client.read);
        }
        self.house.say(|| format!("client {key} leaves"));
    }

    fn client_speaks(&mut self) {
        let Some(key) = self.some_client() else { return };
        let Some(client) = self.clients.get_mut(&key) else { return };
        client.speak(&mut self.house.dice, &self.server, &mut self.answers);
    }

    /// The server sends something: often it withdraws a request just when its answer is being stored.
    fn server_works(&mut self) {
        if self.server_run.is_none() {
            return;
        }
        match self.referee.deciding() {
            Some(id) if self.house.dice.once_in(3) => self.server.withdraw(&mut self.house.dice, id),
            _ => self.server.work(&mut self.house.dice),
        }
    }

    /// Something moves one step forward.
    fn something_moves(&mut self) {
        let dice = &mut self.house.dice;
        let links = self.driver.as_ref().map(|driver| &driver.links);
        let some_conn = links.and_then(|links| some_of(dice, links.count(), links.iter())).map(|(conn, _)| conn);
        match (self.house.dice.roll(6), some_conn) {
            (0 | 1, Some(conn)) => self.pass(conn, Side::Server),
            (2, Some(conn)) => self.pass(conn, Side::Client),
            (3, Some(conn)) => self.flush(conn, 1),
            (4, _) => {
                let clients = self.clients.values_mut();
                some_of(&mut self.house.dice, clients.len(), clients).map(Client::hear);
            }
            _ => {
                let keys = self.server.sessions.keys().copied();
                if let Some(key) = some_of(&mut self.house.dice, keys.len(), keys) {
                    self.server_reads(key);
                }
            }
        }
    }

    pub fn server_reads(&mut self, key: Key) -> bool {
        let line = self.server.read(&mut self.house.dice, key);
        if let Some(line) = &line {
            self.house.say(|| format!("the server reads from {key}: {}", String::from_utf8_lossy(line)));
        }
        line.is_some()
    }

    /// A program is checked, or the fragments are read. Now and then that never ends.
    pub fn somebody_else_works(&mut self) {
        let rolls = [self.house.dice.roll(3), self.house.dice.roll(5), self.house.dice.roll(4)];
        let ends = self.rests || rolls[1] > 0;
        let Some(hub) = &mut self.hub else { return };
        let some = |tokens: &mut Vec<Token>, roll: u64| {
            (!tokens.is_empty()).then(|| tokens.swap_remove(roll as usize % tokens.len()))
        };
        let (check, read) = (some(&mut hub.checks, rolls[0]), some(&mut hub.reads, rolls[1]));
        if let Some(token) = check.filter(|_| ends) {
            let checked = if rolls[0] == 0 { Err("no".to_owned()) } else { Ok("/bin/ls".to_owned()) };
            self.tell(Input::ProgramChecked { token, checked });
        }
        if let Some(token) = read.filter(|_| ends) {
            let states = vec![(rolls[2] > 0).then(|| format!("state {}", rolls[2]))];
            self.tell(Input::FragmentsRead { token, states });
        }
    }

    fn somebody(&mut self) {
        let input = self.call(self.server_listens());
        self.tell(input);
    }

    /// An API caller makes a call.
    pub fn call(&mut self, server_listens: bool) -> Input {
        self.calls += 1;
        let api_call = self.calls;
        let persons = self.server.of_persons();
        let some_thread = persons.get(self.house.dice.roll(persons.len().max(1) as u64) as usize).cloned();
        // Without a name, the thread is that of the last turn.
        let named = some_thread.filter(|_| self.gathers);
        let request = match self.house.dice.roll(8) {
            0 => {
                let speaks_anywhere = self.house.canary == Canary::SpeaksAnywhere;
                let other =
                    self.server.all_threads().into_iter().rev().find(|thread| !self.server.is_of_person(thread));
                let thread_id = other.filter(|_| speaks_anywhere).or(named);
                ApiRequest::Input { text: "from the side".to_owned(), thread_id }
            }
            1 => ApiRequest::Interrupt { thread_id: named },
            2 => ApiRequest::Rpc { method: "thread/list".to_owned(), params: None, by: "me".to_owned() },
            _ => {
                let id = (self.referee.last_id() + 1).saturating_sub(self.house.dice.roll(6));
                let name = self.referee.name_of(id).map_or_else(|| format!("none-{id}"), str::to_owned);
                let decision = ["accept", "decline", "cancel", "no such thing"][self.house.dice.roll(4) as usize];
                self.referee.api_answers(api_call, &name, decision, server_listens);
                let given: GivenAnswer = serde_json::from_value(json!({"decision": decision})).expect("BUG: an answer");
                let by = "uid 0".to_owned();
                ApiRequest::Respond { request_id: name, given: Box::new(given), source: RequestSource::Api, by }
            }
        };
        if !matches!(request, ApiRequest::Respond { .. }) {
            self.referee.calls(api_call);
        }
        self.house.say(|| format!("asked {request:?}"));
        Input::ApiRequest { api_call, request, server_listens }
    }

    /// An API caller accepts a request.
    pub fn call_to_accept(&mut self, request_id: String) -> Input {
        self.calls += 1;
        let (api_call, server_listens) = (self.calls, self.server_listens());
        self.referee.api_answers(api_call, &request_id, "accept", server_listens);
        let given: GivenAnswer = serde_json::from_value(json!({"decision": "accept"})).expect("BUG: an answer");
        let (given, source, by) = (Box::new(given), RequestSource::Api, "uid 0".to_owned());
        let request = ApiRequest::Respond { request_id, given, source, by };
        Input::ApiRequest { api_call, request, server_listens }
    }

    fn time_passes(&mut self) {
        let most_ms = match self.house.dice.roll(30) {
            0 => 6_500,
            1 | 2 => 1_300,
            _ => 120,
        };
        let passes = Duration::from_millis(self.house.dice.roll(most_ms));
        self.house.now.elapsed += passes;
        self.house.now.unix_us += passes.as_micros() as u64 + 1;
    }

    /// Passes the time to the engine, if it has asked for it.
    pub fn tick(&mut self) {
        let now = self.now().elapsed;
        if self.hub.as_ref().and_then(|hub| hub.engine.next_deadline()).is_some_and(|due| due <= now) {
            self.tell(Input::Tick);
        }
    }

    /// The user runs a command in a terminal, for the next turn of any thread or for those of the folder. Until the ledger is open, it
    /// can be stored only for a later hub.
    fn context(&mut self) {
        let folder = FOLDERS[self.house.dice.roll(FOLDERS.len() as u64) as usize];
        for thread_id in self.threads_for_context(folder) {
            self.commands += 1;
            let row = self.commands;
            let pushed = json!({"cmd": format!("cargo test {row}"), "cwd": folder});
            let mut pushed: PushedCommand = serde_json::from_value(pushed).expect("BUG: a command");
            pushed.output = Some("one\ntwo \u{1f} three".to_owned());
            let Ok(command) = pushed.into_command(1, &ContextBounds::default()) else { return };
            let waiting = WaitingCommand { row, thread_id, forgotten_before: 0, command };
            self.ledger.commands.push(waiting.clone());
            if !self.ledger.is_loading() {
                let thread_id = waiting.thread_id.clone().filter(|_| self.house.canary != Canary::MixesThreads);
                self.tell(Input::Context(ContextChange::Added(vec![WaitingCommand { thread_id, ..waiting }])));
            }
        }
    }

    /// The threads that get a command, as the tools choose them; `None` is whichever speaks next.
    fn threads_for_context(&mut self, folder: &str) -> Vec<Option<String>> {
        if !self.house.dice.once_in(3) {
            return vec![None];
        }
        let open = self.server.of_persons().into_iter().map(|thread| {
            let folder = self.server.folder(&thread).to_owned();
            (thread, folder)
        });
        let scope = match self.house.canary {
            Canary::CrossesFolders => ContextScope::Session,
            _ => ContextScope::Repository,
        };
        threads_in_scope(&open.collect::<Vec<_>>(), Path::new(folder), scope).into_iter().map(Some).collect()
    }

    fn forget_departed(&mut self) {
        self.clients.retain(|_, client| !(client.is_left && client.unread.is_empty()));
    }

    pub fn nothing_is_held_too_long(&mut self) {
        let (Some(hub), Some(driver)) = (&self.hub, &self.driver) else { return };
        let limit = self.house.now.elapsed.saturating_sub(HOLD_MAX);
        let mut held = driver.links.iter().flat_map(|(_, link)| link.held());
        let held = held.find(|token| hub.held.get(token).is_some_and(|since| *since < limit));
        let checked = self.referee.nothing_is_overdue(self.now().elapsed);
        self.house.holds(checked);
        if let Some(token) = held {
            self.house.broken(format!("6: held past its deadline: token {token}"));
        }
    }

    /// A connection that has ended delivers for a while what waits, and is cut then.
    fn nothing_ends_for_ever(&mut self) {
        let now = self.now().elapsed;
        let Some(hub) = &self.hub else { return };
        if let Some((conn, _)) = hub.ending.iter().find(|(_, since)| **since + CLOSING_MAX <= now) {
            self.house.broken(format!("6: not cut, and has ended: connection {}", conn.0));
        }
    }

    /// A client that comes at the end, follows every thread, and answers everything that it is asked.
    pub fn last_client(&mut self) -> Key {
        let mut client = Client::default();
        client.begin(&mut self.house.dice);
        for thread in self.server.all_threads() {
            client.subscribe(&mut self.house.dice, &thread);
        }
        let key = self.next_key();
        self.connect(key, client);
        key
    }

    pub fn answers_all(&mut self, key: Key) {
        if let Some(client) = self.clients.get_mut(&key) {
            client.answer_all(&mut self.house.dice, &mut self.answers);
        }
    }

    /// Every client answers its last request, of which the server may have lost the answer.
    pub fn answer_last(&mut self) {
        for client in self.clients.values_mut().filter(|client| !client.has_left && !client.is_left) {
            client.answer_last(&mut self.house.dice, &mut self.answers);
        }
    }

    /// What some canaries do to a message.
    pub fn dice(&mut self) -> &mut Dice {
        &mut self.house.dice
    }
}

/// A random one of `count`.
fn some_of<T>(dice: &mut Dice, count: usize, mut all: impl Iterator<Item = T>) -> Option<T> {
    if count == 0 { None } else { all.nth(dice.roll(count as u64) as usize) }
}
