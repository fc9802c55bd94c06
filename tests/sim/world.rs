//! A world: the shim between its two sides, what outlives it, and what happens to it.
//!
//! The shim's own loop is played here by the rule that stands at the top of `engine`: all that one read brought is put on
//! record, and only then goes on; what else is to be done is done in its order.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use codex_shim::engine::{
    AssemblySettings, Attendance, ContextBounds, ContextChange, ContextSettings, Effect, Engine, EngineSettings, Exit,
    GivenAnswer, Input, LedgerEntry, Now, OwnLine, PushedCommand, Question, RequestSettings, RequestSource,
    RequestStatus, RequestType, Token, WaitingCommand,
};
use codex_shim::index::{Index, IndexSettings, TranscriptFiles};
use codex_shim::journal::{Batch, Bounds, FORMAT, Generation, Header, IndexedTo, Position, ServerOrigin, Writer};
use codex_shim::store::SeqMark;
use codex_shim::wire::{Frame, Framer, LineEnd, Side};
use rustix::process::{Resource, Rlimit};
use serde_json::json;

use super::checks;
use super::client::Client;
use super::dice::Dice;
use super::pipe::Pipe;
use super::server::Server;

/// Longest time that a line may be held. Source: the contract.
const HOLD_MAX: Duration = Duration::from_millis(250);

/// Steps of a seed.
const STEPS: u64 = 600;

/// How the house is built wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Canary {
    /// It is not.
    None,
    /// A line goes on before it is on record.
    ForwardsFirst,
    /// What the ledger was to keep of an answer is lost.
    ForgetsAnswers,
    /// What is held is released late.
    HoldsTooLong,
    /// A line of the server's comes twice.
    SaysTwice,
    /// The index goes on a record too early.
    IndexesAgain,
}

impl Canary {
    pub const ALL: [Canary; 5] =
        [Canary::ForwardsFirst, Canary::ForgetsAnswers, Canary::HoldsTooLong, Canary::SaysTwice, Canary::IndexesAgain];
}

/// A limit on files is of the whole process: one world at a time.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // With a handler, whoever writes beyond the limit is given an error.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    guard
}

/// A request as the ledger has it.
#[derive(Debug, Clone)]
pub struct Row {
    pub rpc_request_id: String,
    pub status: RequestStatus,
    /// The answer, as JSON.
    pub payload: Option<String>,
    /// How often it has ended.
    pub ends: u32,
}

/// What of an order is told to the relay.
#[derive(Debug, Clone, Copy)]
enum Told {
    Nothing,
    First(Token),
    Whether(Token),
}

/// What goes out, in its order.
#[derive(Debug)]
enum Out {
    Bytes(Vec<u8>),
    Hold(Token, Duration),
    Mark(Token),
}

/// One direction of the shim.
#[derive(Debug, Default)]
struct Lane {
    framer: Framer,
    out: VecDeque<Out>,
}

/// One run of the shim, with what ends when it ends.
struct Run {
    engine: Engine,
    writer: Writer,
    lanes: [Lane; 2],
    /// On its way to the ledger.
    orders: VecDeque<(Told, LedgerEntry)>,
    started: Duration,
}

/// What one run has left for those who check it.
#[derive(Debug)]
pub struct Life<'a> {
    pub generation: &'a str,
    pub client: &'a Client,
    pub server: &'a Server,
    pub rows: &'a BTreeMap<String, Row>,
    /// Lines that are counted as missing and not marked yet.
    pub unmarked_lines: u64,
    /// It came to its end by itself, and nothing was under way any more.
    pub is_whole: bool,
}

/// How much of what can happen has happened.
#[derive(Debug, Clone, Copy, Default)]
pub struct Happened {
    pub steps: u64,
    pub kills: u64,
    pub deaths_of_the_child: u64,
    pub failed_commits: u64,
    pub missed_lines: u64,
    pub requests: u64,
    pub answers: u64,
    pub histories: u64,
}

impl Happened {
    pub fn add(&mut self, more: Happened) {
        self.steps += more.steps;
        self.kills += more.kills;
        self.deaths_of_the_child += more.deaths_of_the_child;
        self.failed_commits += more.failed_commits;
        self.missed_lines += more.missed_lines;
        self.requests += more.requests;
        self.answers += more.answers;
        self.histories += more.histories;
    }

    /// Whatever the fault model names has happened.
    pub fn is_enough(&self) -> bool {
        let Happened { steps, kills, deaths_of_the_child, failed_commits, missed_lines, requests, answers, histories } =
            *self;
        [steps, kills, deaths_of_the_child, failed_commits, missed_lines, requests, answers, histories]
            .into_iter()
            .all(|count| count > 0)
    }
}

pub struct World {
    pub happened: Happened,
    dice: Dice,
    canary: Canary,
    now: Now,
    dir: tempfile::TempDir,
    generation: Option<Generation>,
    run: Option<Run>,
    /// What outlives a run.
    pub rows: BTreeMap<String, Row>,
    commands: Vec<WaitingCommand>,
    next_row: i64,
    mark: Arc<Mutex<SeqMark>>,
    client: Client,
    server: Server,
    /// From and to the client, from and to the server.
    pipes: [Pipe; 4],
    /// How long a file of the journal may get.
    room_bytes: Option<u64>,
    ledger_works: bool,
    child_lives: bool,
    /// Where the index has stopped.
    stops: Vec<Position>,
    /// Why the world ended.
    found: Option<String>,
    said: bool,
}

const FROM_CLIENT: usize = 0;
const TO_CLIENT: usize = 1;
const FROM_SERVER: usize = 2;
const TO_SERVER: usize = 3;

impl World {
    pub fn new(seed: u64, canary: Canary) -> World {
        // Where a folder of the system's is in memory, a thousand worlds cost no disk.
        let memory = PathBuf::from("/dev/shm");
        let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let dir = dir.expect("a temporary folder");
        std::fs::create_dir(dir.path().join("journal")).expect("a folder");
        World {
            happened: Happened::default(),
            dice: Dice::new(seed),
            canary,
            now: Now { unix_us: 1_767_225_600_000_000, elapsed: Duration::ZERO },
            dir,
            generation: None,
            run: None,
            rows: BTreeMap::new(),
            commands: Vec::new(),
            next_row: 1,
            mark: Arc::default(),
            client: Client::default(),
            server: Server::default(),
            pipes: std::array::from_fn(|_| Pipe::default()),
            room_bytes: None,
            ledger_works: true,
            child_lives: true,
            stops: Vec::new(),
            found: None,
            said: std::env::var_os("SIM_SEED").is_some(),
        }
    }

    /// Lets it happen; gives the promise that was broken.
    pub fn play(&mut self) -> Result<(), String> {
        while self.happened.steps < STEPS && self.found.is_none() {
            self.happened.steps += 1;
            self.step();
        }
        if self.found.is_none() {
            self.come_to_rest();
        }
        // A database takes longer than all the rest.
        if self.found.is_none() && self.dice.once_in(3) {
            self.happened.histories += 1;
            self.index(None);
        }
        self.found.take().map_or(Ok(()), Err)
    }

    fn say(&self, what: impl FnOnce() -> String) {
        if self.said {
            let line = format!("{:>8} µs  {}\n", self.now.elapsed.as_micros(), what());
            let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
        }
    }

    fn broken(&mut self, what: String) {
        self.say(|| what.clone());
        self.found.get_or_insert(what);
    }

    fn start(&mut self) {
        let seconds = (self.now.unix_us / 1_000_000) as u32;
        let generation = Generation::after(self.generation.as_ref(), seconds, 0);
        self.say(|| format!("start {generation}"));
        // Whoever held the folder before is gone.
        for row in self.rows.values_mut() {
            if matches!(row.status, RequestStatus::Pending | RequestStatus::Expired) {
                row.status = RequestStatus::Orphaned;
                row.ends += 1;
            }
        }
        let requests = RequestSettings {
            hold: self.dice.once_in(10),
            expiry: match self.dice.once_in(3) {
                true => vec![(RequestType::Approval, Duration::from_secs(1))],
                false => Vec::new(),
            },
            notify_after: None,
        };
        let engine = Engine::new(EngineSettings {
            exit_grace: Duration::from_secs(10),
            context: ContextSettings::default(),
            assembly: AssemblySettings::default(),
            requests,
            attendance: Attendance::Client,
            own_ids: format!("codex-shim:{generation}:"),
            tokens_before: 0,
        });
        let header = Header {
            journal: FORMAT,
            session: "s".to_owned(),
            generation: generation.to_string(),
            segment: 0,
            at: 0,
            argv: Vec::new(),
            cwd: "/".to_owned(),
            codex: ServerOrigin { path: "codex".to_owned() },
            shim: "0".to_owned(),
        };
        let bounds = Bounds { journal_bytes_max: 1 << 40, journal_age_max: Duration::from_secs(1 << 30) };
        let writer = Writer::new(self.journal(), generation.clone(), header, bounds, IndexedTo::default());
        self.generation = Some(generation.clone());
        (self.client, self.server, self.child_lives) = (Client::default(), Server::default(), true);
        self.pipes = std::array::from_fn(|_| Pipe::default());
        self.run =
            Some(Run { engine, writer, lanes: Default::default(), orders: VecDeque::new(), started: self.now.elapsed });
        self.client.begin();
        self.tell(Input::ServerStarted { pid: 7 });
        self.tell(Input::SessionOpened { generation: generation.to_string() });
        if !self.commands.is_empty() {
            let waiting = self.commands.clone();
            self.tell(Input::Context(ContextChange::Added(waiting)));
        }
    }

    fn journal(&self) -> PathBuf {
        self.dir.path().join("journal")
    }

    fn now(&self) -> Now {
        let started = self.run.as_ref().map_or(Duration::ZERO, |run| run.started);
        Now { unix_us: self.now.unix_us, elapsed: self.now.elapsed - started }
    }

    fn step(&mut self) {
        if self.run.is_none() {
            self.start();
        }
        let bytes_max = 1 + self.dice.roll(400) as usize;
        match self.dice.roll(40) {
            0..=4 => self.client.speak(&mut self.dice),
            5..=9 => self.server.work(&mut self.dice),
            10..=27 => (0..3).for_each(|_| self.something_moves(bytes_max)),
            28..=29 => (0..8).for_each(|_| self.something_moves(usize::MAX)),
            30..=33 => (0..1 + self.dice.roll(6)).for_each(|_| self.ledger()),
            34 => self.somebody(),
            35..=36 => self.time_passes(),
            37 => self.context(),
            38 => match self.dice.roll(4) {
                0 => self.room_bytes = Some(self.dice.roll(8_000)),
                1 | 2 => self.room_bytes = None,
                _ => self.ledger_works = !self.dice.once_in(3),
            },
            _ => match self.dice.roll(12) {
                0 => self.killed(),
                1 => self.child_dies(),
                2 => {
                    if let Some(at) = self.some_place() {
                        self.index(Some(at));
                    }
                }
                _ => {}
            },
        }
        self.nothing_is_held_too_long();
    }

    /// Something gets one step further on its way.
    fn something_moves(&mut self, bytes_max: usize) {
        match self.dice.roll(8) {
            0 => self.client.mouth.write(&mut self.pipes[FROM_CLIENT], bytes_max),
            1 => self.read(Side::Client, bytes_max),
            2 => self.flush(Side::Client, bytes_max),
            3 => {
                let bytes = self.pipes[TO_SERVER].get(bytes_max);
                self.server.hear(&bytes);
            }
            4 => self.server.mouth.write(&mut self.pipes[FROM_SERVER], bytes_max),
            5 => self.read(Side::Server, bytes_max),
            6 => self.flush(Side::Server, bytes_max),
            _ => {
                let bytes = self.pipes[TO_CLIENT].get(bytes_max);
                self.client.hear(&bytes);
            }
        }
    }

    /// Carries out what the engine wants, one effect after the other; between any two of them it may end.
    fn tell(&mut self, input: Input<'_>) {
        let mut effects = Vec::new();
        let now = self.now();
        let Some(run) = &mut self.run else { return };
        run.engine.handle(now, input, &mut effects);
        self.carry_out(effects);
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            if self.dice.once_in(4_000) {
                return self.killed();
            }
            let Some(run) = &mut self.run else { return };
            match effect {
                Effect::Note(note) => {
                    let mut batch = run.writer.batch(self.now);
                    batch.push_note(&note);
                    commit(&mut run.writer, batch, self.room_bytes);
                }
                Effect::Keep(entry) => run.orders.push_back((Told::Nothing, entry)),
                Effect::KeepFirst(token, entry) => run.orders.push_back((Told::First(token), entry)),
                Effect::Commit(token, entry) => run.orders.push_back((Told::Whether(token), entry)),
                Effect::Release(token) => {
                    if self.canary == Canary::HoldsTooLong && self.dice.once_in(5) {
                        continue;
                    }
                    run.lanes.iter_mut().for_each(|lane| {
                        lane.out.retain(|out| !matches!(out, Out::Hold(held, _) if *held == token));
                    });
                }
                Effect::Inject(injection) => {
                    put_on_record(run, self.now, &injection.lines, self.room_bytes);
                    let lines =
                        injection.lines.into_iter().flat_map(|line| LineEnd::Newline.ends(line.bytes)).collect();
                    let lane = &mut run.lanes[Side::Client as usize];
                    lane.out.push_back(Out::Bytes(lines));
                    lane.out.extend(injection.mark.map(Out::Mark));
                }
                Effect::Answer(line) => {
                    put_on_record(run, self.now, std::slice::from_ref(&line), self.room_bytes);
                    run.lanes[Side::Server as usize].out.push_back(Out::Bytes(LineEnd::Newline.ends(line.bytes)));
                }
                Effect::PassLate(line) => {
                    run.lanes[Side::Server as usize].out.push_back(Out::Bytes(LineEnd::Newline.ends(line)));
                }
                Effect::Introduce(_)
                | Effect::NotifyPending(_)
                | Effect::NotifyIdle(_)
                | Effect::Reply(..)
                | Effect::Warn(_)
                | Effect::Consult(_)
                | Effect::RunFragments(..)
                | Effect::LetGo(_)
                | Effect::PassHeld(_)
                | Effect::CloseServerInput
                | Effect::CloseClientOutput
                | Effect::SignalServer(_)
                | Effect::KillServer
                | Effect::DrainServer { .. }
                | Effect::Finish(_) => {}
                Effect::Record(_)
                | Effect::Forward
                | Effect::Replace(_)
                | Effect::Send(_)
                | Effect::Hold(_)
                | Effect::Mark(_) => self.broken(format!("what is done with a line comes without one: {effect:?}")),
            }
        }
    }

    /// Reads some of what a side wrote: all of it on record first, and then on its way.
    fn read(&mut self, from: Side, bytes_max: usize) {
        let Some(run) = &mut self.run else { return };
        let lane = from as usize;
        // While something waits, nothing more is read.
        if !run.lanes[lane].out.is_empty() {
            return;
        }
        let bytes = self.pipes[if from == Side::Client { FROM_CLIENT } else { FROM_SERVER }].get(bytes_max);
        run.lanes[lane].framer.buffer_mut().extend_from_slice(&bytes);
        let now = Now { elapsed: self.now.elapsed - run.started, ..self.now };
        let Run { engine, writer, lanes, orders, .. } = run;
        let Lane { framer, out } = &mut lanes[lane];
        let frames: Vec<Frame> = std::iter::from_fn(|| framer.next_frame()).collect();
        let mut batch = writer.batch(self.now);
        let (mut later, mut effects) = (Vec::new(), Vec::new());
        for frame in &frames {
            let Frame::Line { range, end } = frame else { continue };
            let line = framer.line(range.clone(), *end);
            engine.handle(now, Input::Line { from, line }, &mut effects);
            for effect in effects.drain(..) {
                match effect {
                    Effect::Record(form) => batch.push_line(from, &form, line),
                    Effect::Note(note) => batch.push_note(&note),
                    Effect::Forward => {
                        out.push_back(Out::Bytes(framer.bytes(range.clone()).to_vec()));
                        if self.canary == Canary::SaysTwice && from == Side::Server && self.dice.once_in(50) {
                            out.push_back(Out::Bytes(framer.bytes(range.clone()).to_vec()));
                        }
                    }
                    Effect::Replace(own) => {
                        batch.push_replacement(&own, line.end);
                        out.push_back(Out::Bytes(line.end.ends(own.bytes)));
                    }
                    Effect::Send(own) => {
                        batch.push_own_line(&own);
                        out.push_back(Out::Bytes(LineEnd::Newline.ends(own.bytes)));
                    }
                    Effect::Keep(entry) => orders.push_back((Told::Nothing, entry)),
                    Effect::KeepFirst(token, entry) => orders.push_back((Told::First(token), entry)),
                    Effect::Commit(token, entry) => orders.push_back((Told::Whether(token), entry)),
                    Effect::Hold(token) => out.push_back(Out::Hold(token, self.now.elapsed)),
                    Effect::Mark(token) => out.push_back(Out::Mark(token)),
                    other => later.push(other),
                }
            }
        }
        if self.canary == Canary::ForwardsFirst {
            // The batch is lost where the end comes between the two.
            drop(batch);
            self.flush(from, usize::MAX);
            if self.dice.once_in(2) {
                return self.killed();
            }
            return self.carry_out(later);
        }
        commit(writer, batch, self.room_bytes);
        framer.release_framed();
        if self.dice.once_in(300) {
            return self.killed();
        }
        self.carry_out(later);
    }

    /// Writes some of what goes out.
    fn flush(&mut self, from: Side, bytes_max: usize) {
        let mut reached = Vec::new();
        let Some(run) = &mut self.run else { return };
        let pipe = &mut self.pipes[if from == Side::Client { TO_SERVER } else { TO_CLIENT }];
        let mut left = bytes_max;
        while let Some(front) = run.lanes[from as usize].out.front_mut() {
            match front {
                Out::Bytes(bytes) => {
                    let taken = pipe.put(bytes, left);
                    left -= taken;
                    bytes.drain(..taken);
                    if !bytes.is_empty() {
                        break;
                    }
                }
                Out::Hold(..) => break,
                Out::Mark(token) => reached.push(*token),
            }
            run.lanes[from as usize].out.pop_front();
        }
        // It may end by what one of them leads to.
        reached.into_iter().for_each(|token| self.tell(Input::Written(token)));
    }

    /// The ledger works off one order.
    fn ledger(&mut self) {
        let Some(run) = &mut self.run else { return };
        let Some((told, entry)) = run.orders.pop_front() else { return };
        let fails = !self.ledger_works || self.dice.once_in(40);
        self.happened.failed_commits += u64::from(fails);
        let forgets = self.canary == Canary::ForgetsAnswers && matches!(entry, LedgerEntry::RequestEnded(_));
        match (told, fails) {
            (Told::Whether(token), true) => self.tell(Input::Committed { token, done: false }),
            // It is tried again, and not told of again.
            (Told::First(token), true) => {
                run.orders.push_front((Told::Nothing, entry));
                self.tell(Input::Committed { token, done: false });
            }
            (Told::Nothing, true) => run.orders.push_front((Told::Nothing, entry)),
            (_, false) => {
                if !forgets {
                    self.keep(entry);
                }
                if let Told::First(token) | Told::Whether(token) = told {
                    self.tell(Input::Committed { token, done: true });
                }
            }
        }
    }

    fn keep(&mut self, entry: LedgerEntry) {
        match entry {
            LedgerEntry::RequestOpened(row) => {
                self.happened.requests += 1;
                let kept =
                    Row { rpc_request_id: row.rpc_request_id, status: RequestStatus::Pending, payload: None, ends: 0 };
                if self.rows.insert(row.request_id.clone(), kept).is_some() {
                    self.broken(format!("{} is opened twice", row.request_id));
                }
            }
            LedgerEntry::RequestEnded(end) => match self.rows.get_mut(&end.request_id) {
                Some(row) => {
                    row.ends += 1;
                    (row.status, row.payload) = (end.status, end.payload);
                    if row.ends > 1 {
                        self.broken(format!("{} ends twice", end.request_id));
                    }
                }
                None => self.broken(format!("{} ends and was never opened", end.request_id)),
            },
            LedgerEntry::RequestExpired { request_id, .. } => match self.rows.get_mut(&request_id) {
                Some(row) if row.status == RequestStatus::Pending => row.status = RequestStatus::Expired,
                Some(_) | None => self.broken(format!("{request_id} expires and does not wait")),
            },
            LedgerEntry::Settled { delete, .. } => self.commands.retain(|command| !delete.contains(&command.row)),
            _ => {}
        }
    }

    /// Somebody at the side wants something.
    fn somebody(&mut self) {
        let question = match self.dice.roll(6) {
            0 => Question::Input { text: "from the side".to_owned(), thread_id: None },
            1 => Question::Interrupt { thread_id: None },
            2 => Question::Rpc { method: "thread/list".to_owned(), params: None },
            _ => {
                let Some(generation) = &self.generation else { return };
                let request_id = format!("{generation}-{}", self.dice.roll(8));
                let decision = ["accept", "decline", "cancel", "no such thing"][self.dice.roll(4) as usize];
                let given: GivenAnswer = serde_json::from_value(json!({"decision": decision})).expect("BUG: an answer");
                let by = "uid 0".to_owned();
                Question::Respond { request_id, given: Box::new(given), source: RequestSource::Api, by }
            }
        };
        self.say(|| format!("asked {question:?}"));
        self.tell(Input::Asked { asker: self.happened.steps, question, server_listens: true });
    }

    fn time_passes(&mut self) {
        let passes = Duration::from_millis(self.dice.roll(120));
        self.now.elapsed += passes;
        self.now.unix_us += passes.as_micros() as u64 + 1;
        let now = self.now();
        if self.run.as_ref().is_some_and(|run| run.engine.tick_due().is_some_and(|due| due <= now.elapsed)) {
            self.tell(Input::Tick);
        }
    }

    fn context(&mut self) {
        let mut pushed: PushedCommand = serde_json::from_value(json!({"cmd": "cargo test"})).expect("BUG: a command");
        pushed.output = Some("one\ntwo \u{1f} three".to_owned());
        let Ok(command) = pushed.into_command(1, &ContextBounds::default()) else { return };
        let waiting = WaitingCommand { row: self.next_row, thread_id: None, forgotten_before: 0, command };
        self.next_row += 1;
        self.commands.push(waiting.clone());
        self.tell(Input::Context(ContextChange::Added(vec![waiting])));
    }

    fn nothing_is_held_too_long(&mut self) {
        let Some(run) = &self.run else { return };
        let tick_due = run.engine.tick_due().is_some_and(|due| due <= self.now.elapsed - run.started);
        let held = run.lanes.iter().flat_map(|lane| &lane.out).find_map(|out| match out {
            Out::Hold(token, since) if self.now.elapsed > *since + HOLD_MAX => Some(*token),
            _ => None,
        });
        if let Some(token) = held.filter(|_| !tick_due) {
            self.broken(format!("a line is held past its deadline: token {token}"));
        }
    }

    fn child_dies(&mut self) {
        self.say(|| "the child dies".to_owned());
        self.happened.deaths_of_the_child += 1;
        self.server.mouth.shut();
        (self.child_lives, self.ledger_works) = (false, true);
        self.tell(Input::ServerExited(Exit::Signal(9)));
        self.drain();
        self.tell(Input::Closed { from: Side::Server });
        self.drain();
        if self.run.as_ref().is_some_and(|run| run.engine.requests_pending() > 0) {
            self.broken("a request waits for a server that is gone".to_owned());
        }
        self.over(false);
    }

    /// Everything ends where it is; what the kernel holds is still read.
    fn killed(&mut self) {
        self.say(|| "killed".to_owned());
        self.happened.kills += 1;
        self.over(false);
    }

    /// A run is over: what it has left is checked. Another begins with the next step.
    fn over(&mut self, is_whole: bool) {
        let Some(Run { writer, .. }) = self.run.take() else { return };
        for (pipe, is_clients) in [(TO_CLIENT, true), (TO_SERVER, false)] {
            let bytes = self.pipes[pipe].get(usize::MAX);
            match is_clients {
                true => self.client.hear(&bytes),
                false if self.child_lives => self.server.hear(&bytes),
                false => {}
            }
        }
        self.happened.missed_lines += writer.tally().missed_lines;
        self.happened.answers += self.server.answers.len() as u64;
        let unmarked_lines = if writer.is_whole() { 0 } else { writer.tally().missed_lines };
        drop(writer);
        let generation = self.generation.as_ref().map(ToString::to_string).unwrap_or_default();
        let life = Life {
            generation: &generation,
            client: &self.client,
            server: &self.server,
            rows: &self.rows,
            unmarked_lines,
            is_whole,
        };
        if let Err(what) = checks::life(&life, &self.journal()) {
            self.broken(what);
        }
    }

    /// Lets all that is under way come to its end, with everything well.
    fn come_to_rest(&mut self) {
        (self.room_bytes, self.ledger_works) = (None, true);
        if self.run.is_none() {
            self.start();
        }
        self.drain();
        self.tell(Input::Closed { from: Side::Client });
        self.drain();
        self.tell(Input::ServerExited(Exit::Code(0)));
        self.tell(Input::Closed { from: Side::Server });
        self.drain();
        let asked: Vec<_> =
            self.run.iter().flat_map(|run| &run.orders).map(|(_, entry)| format!("{entry:?}")).collect();
        if !asked.is_empty() {
            self.broken(format!("the ledger is not up: {asked:?}"));
        }
        self.over(true);
    }

    /// Passes all that there is, until nothing moves any more.
    fn drain(&mut self) {
        for _ in 0..5_000 {
            if self.run.is_none() || self.found.is_some() {
                return;
            }
            self.client.mouth.write(&mut self.pipes[FROM_CLIENT], usize::MAX);
            self.server.mouth.write(&mut self.pipes[FROM_SERVER], usize::MAX);
            for from in [Side::Client, Side::Server] {
                self.read(from, usize::MAX);
                self.flush(from, usize::MAX);
            }
            let bytes = self.pipes[TO_SERVER].get(usize::MAX);
            if self.child_lives {
                self.server.hear(&bytes);
            }
            let bytes = self.pipes[TO_CLIENT].get(usize::MAX);
            self.client.hear(&bytes);
            self.ledger();
            self.now.elapsed += Duration::from_millis(1);
            self.now.unix_us += 1_000;
            let now = self.now();
            let Some(run) = &self.run else { return };
            if run.engine.tick_due().is_some_and(|due| due <= now.elapsed) {
                self.tell(Input::Tick);
            }
            let Some(run) = &self.run else { return };
            let is_at_rest = run.orders.is_empty()
                && run.lanes.iter().all(|lane| lane.out.is_empty())
                && self.pipes.iter().all(Pipe::is_empty)
                && self.client.mouth.is_silent()
                && self.server.mouth.is_silent();
            if is_at_rest {
                return;
            }
        }
        let under_way = self.run.as_ref().map(|run| (&run.lanes, run.orders.front(), run.orders.len()));
        self.broken(format!("it does not come to rest: {under_way:?}, {:?}", self.pipes));
    }

    /// Where some record begins.
    fn some_place(&mut self) -> Option<Position> {
        let mut places = checks::places(&self.journal());
        let count = places.len() as u64;
        (count > 0).then(|| places.swap_remove(self.dice.roll(count) as usize))
    }

    /// Indexes what is recorded, up to a record or all, and compares with what one reading gives.
    fn index(&mut self, until: Option<Position>) {
        let settings = IndexSettings {
            session_id: "s".to_owned(),
            session_dir: self.dir.path().to_owned(),
            journal_dir: self.journal(),
            retention: codex_shim::config::RetentionBounds::UNBOUNDED,
            transcript_files: TranscriptFiles::None,
            home: None,
            indexed_to: IndexedTo::default(),
        };
        let mark = Arc::clone(&self.mark);
        let marks = Box::new(move |wish: codex_shim::store::SeqWish| {
            let mut mark = mark.lock().unwrap_or_else(PoisonError::into_inner);
            mark.reserved = mark.reserved.max(wish.up_to);
            mark.first_generation = mark.first_generation.take().or(wish.first_generation);
            Ok(mark.clone())
        });
        let is_all = until.is_none();
        // Where it is beyond already, it does not stop.
        if let Some(at) = until.clone().filter(|at| self.stops.iter().all(|stop| stop < at)) {
            self.stops.push(at);
        }
        self.say(|| format!("index up to {until:?}"));
        let (state, activity) = Index::catch_up(settings, until, marks, Box::new(|_| {}));
        if self.canary == Canary::IndexesAgain {
            checks::index_again(self.dir.path());
        }
        if let Some(fault) = state.fault {
            return self.broken(format!("nothing can be indexed: {fault}"));
        }
        let cut = self.dice.roll(200);
        if is_all && let Err(what) = checks::history(self.dir.path(), &activity, &self.stops, cut) {
            self.broken(what);
        }
    }
}

/// Puts a batch on record, as far as there is room.
fn commit(writer: &mut Writer, batch: Batch<'_>, room_bytes: Option<u64>) {
    let _limit = room_bytes.map(Limit::set);
    // What is missing is counted, and marked once there is room.
    let _ = writer.commit(batch);
}

fn put_on_record(run: &mut Run, now: Now, lines: &[OwnLine], room_bytes: Option<u64>) {
    let mut batch = run.writer.batch(now);
    lines.iter().for_each(|line| batch.push_own_line(line));
    commit(&mut run.writer, batch, room_bytes);
}

/// A limit on the size of files, for a while.
struct Limit(Rlimit);

impl Limit {
    fn set(bytes: u64) -> Limit {
        let before = rustix::process::getrlimit(Resource::Fsize);
        let limit = Rlimit { current: Some(bytes), ..before };
        rustix::process::setrlimit(Resource::Fsize, limit).expect("a limit may be lowered");
        Limit(before)
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        rustix::process::setrlimit(Resource::Fsize, self.0).expect("it is what it was");
    }
}
