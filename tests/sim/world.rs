//! A world: the shim between its two sides, the data that outlives it, and the events.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use codex_shim::testing::engine::{
    ApiRequest, AssemblySettings, ContextBounds, ContextChange, ContextSettings, Engine, EngineSettings, GivenAnswer,
    Input, Now, PushedCommand, RequestSettings, RequestSource, RequestType, ServerOwner, WaitingCommand,
};
use codex_shim::testing::journal::{
    Bounds, FORMAT, Generation, Header, IndexedTo, Position, Previous, ServerOrigin, Writer,
};
use codex_shim::testing::store::SeqMark;
use codex_shim::testing::wire::Side;
use rustix::fs::FileType;
use serde_json::json;

use super::canary::{Canary, Need};
use super::client::Client;
use super::defect::step_of_defect;
use super::dice::Dice;
use super::happened::{Event, Happened};
use super::pipe::Pipe;
use super::referee::{EXPIRES_AFTER, Habits, Referee};
use super::restored::Backup;
use super::rows::Rows;
use super::rules;
use super::server::Server;
use super::shim::{Run, Shim, Unrecorded, shim};

/// Longest time that a line may be held. Source: the contract.
pub const HOLD_MAX: Duration = Duration::from_millis(250);

/// Steps of a seed.
pub const STEPS: u64 = 600;

/// The limit on file sizes applies to the whole process, so only one world may run at a time.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    static OUTPUT: Once = Once::new();
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    OUTPUT.call_once(|| {
        write_through_a_pipe(rustix::stdio::stdout(), rustix::stdio::dup2_stdout);
        write_through_a_pipe(rustix::stdio::stderr(), rustix::stdio::dup2_stderr);
    });
    // With a handler, a write beyond the limit fails with an error instead of killing the process.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    guard
}

/// Replaces an output that is a file by a pipe to `cat`, which has no limit. Beyond the limit, the test runner could not write to
/// the file, and would end without a message.
#[expect(clippy::zombie_processes, reason = "it ends after this process, whose output it writes")]
fn write_through_a_pipe(output: BorrowedFd<'_>, replace: fn(ChildStdin) -> rustix::io::Result<()>) {
    let is_file = rustix::fs::fstat(output).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file());
    if is_file {
        let file = output.try_clone_to_owned().expect("the output is open");
        let cat = Command::new("cat").stdin(Stdio::piped()).stdout(file).spawn().expect("cat runs");
        replace(cat.stdin.expect("it is piped")).expect("the output is open");
    }
}

pub struct World {
    pub happened: Happened,
    pub dice: Dice,
    pub canary: Canary,
    pub now: Now,
    pub dir: tempfile::TempDir,
    pub generation: Option<Generation>,
    pub run: Option<Run>,
    /// The expected behaviour of the run.
    pub referee: Referee,
    /// The ledger's rows, which outlive a run.
    pub rows: Rows,
    pub commands: Vec<WaitingCommand>,
    next_row: i64,
    pub mark: Arc<Mutex<SeqMark>>,
    /// An earlier copy of the session's folder.
    pub backup: Option<Backup>,
    pub client: Client,
    pub server: Server,
    /// From and to the client, from and to the server.
    pub pipes: [Pipe; 4],
    /// What is under test; `None` while it works.
    pub shim: Option<Shim>,
    /// The run is killed once the driver returns.
    pub dies: bool,
    /// Limit on the size of a journal file.
    pub room_bytes: Option<u64>,
    pub ledger_works: bool,
    /// The ledger neither works nor fails.
    pub ledger_hangs: bool,
    /// No fragment is read.
    pub fragments_hang: bool,
    pub child_lives: bool,
    /// The places where the index has stopped.
    pub stops: Vec<Position>,
    /// Its history is compared at the end. A database takes longer than everything else, so few worlds have one.
    pub is_indexed: bool,
    pub defect_at: Option<u64>,
    /// Why the world ended.
    pub found: Option<String>,
    said: bool,
}

pub const FROM_CLIENT: usize = 0;
pub const TO_CLIENT: usize = 1;
pub const FROM_SERVER: usize = 2;
pub const TO_SERVER: usize = 3;

/// Whether the steps are printed.
pub fn plays_one_seed() -> bool {
    std::env::var_os("SIM_SEED").is_some() && !std::env::var("SIM_SEEDS").is_ok_and(|count| count != "1")
}

impl World {
    pub fn new(seed: u64, canary: Canary) -> World {
        // If the system has a folder in memory, a thousand worlds use no disk.
        let memory = PathBuf::from("/dev/shm");
        let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let dir = dir.expect("a temporary folder");
        std::fs::create_dir_all(dir.path().join("sessions/s/journal")).expect("a folder");
        World {
            happened: Happened::default(),
            dice: Dice::new(seed),
            canary,
            now: Now { unix_us: 1_767_225_600_000_000, elapsed: Duration::ZERO },
            dir,
            generation: None,
            run: None,
            referee: Referee::default(),
            rows: Rows::default(),
            commands: Vec::new(),
            next_row: 1,
            mark: Arc::default(),
            backup: None,
            client: Client::default(),
            server: Server::default(),
            pipes: std::array::from_fn(|_| Pipe::default()),
            shim: None,
            dies: false,
            room_bytes: None,
            ledger_works: true,
            ledger_hangs: false,
            fragments_hang: false,
            child_lives: true,
            stops: Vec::new(),
            is_indexed: false,
            defect_at: step_of_defect(seed, canary),
            found: None,
            said: plays_one_seed(),
        }
    }

    /// Runs the world; returns the broken promise.
    pub fn play(&mut self) -> Result<(), String> {
        self.is_indexed = self.has_history();
        while self.happened.times(Event::Step) < STEPS && self.found.is_none() {
            self.happened.count(Event::Step);
            self.step();
        }
        if self.found.is_none() {
            self.come_to_rest();
        }
        if self.found.is_none() && self.is_indexed {
            self.happened.count(Event::History);
            self.index(None, None);
            if self.found.is_none() {
                self.harm();
            }
        }
        self.found.take().map_or(Ok(()), Err)
    }

    /// Whether the history of this world is compared. A defect that does not concern it is found without.
    pub fn has_history(&mut self) -> bool {
        let by_chance = self.dice.once_in(3);
        if self.canary == Canary::None { by_chance } else { self.canary.needs(Need::History) }
    }

    pub fn say(&self, what: impl FnOnce() -> String) {
        if self.said {
            let line = format!("{:>8} µs  {}\n", self.now.elapsed.as_micros(), what());
            let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
        }
    }

    pub fn broken(&mut self, what: String) {
        self.say(|| what.clone());
        self.found.get_or_insert(what);
    }

    pub fn holds(&mut self, checked: Result<(), String>) {
        if let Err(what) = checked {
            self.broken(what);
        }
    }

    pub fn start(&mut self) {
        let seconds = (self.now.unix_us / 1_000_000) as u32;
        let generation = Generation::after(self.generation.as_ref(), seconds, 0);
        self.say(|| format!("start {generation}"));
        let begun = self.rows.begin(self.canary);
        self.holds(begun);
        let habits = Habits {
            hides: self.dice.once_in(6) | self.canary.needs(Need::HiddenRequests),
            expires: self.dice.once_in(3) | self.canary.needs(Need::Expiry),
            has_rules: self.dice.once_in(3) | self.canary.needs(Need::Rules),
            gathers: self.dice.once_in(4) | self.canary.needs(Need::Fragments),
        };
        self.referee = Referee::new(generation.to_string(), habits);
        let engine = self.engine(&generation, habits);
        let header = Header {
            journal: FORMAT,
            session: "s".to_owned(),
            generation: generation.to_string(),
            segment: 0,
            at: 0,
            argv: Vec::new(),
            cwd: "/".to_owned(),
            codex: ServerOrigin { path: "codex".to_owned() },
            adopted: false,
            shim: "0".to_owned(),
            previous: Previous::of_end(&self.journal()),
        };
        let bounds = Bounds { journal_bytes_max: 1 << 40, journal_age_max: Duration::from_secs(1 << 30) };
        let writer = Writer::new(self.journal(), generation.clone(), header, bounds, IndexedTo::default());
        self.generation = Some(generation.clone());
        (self.client, self.server, self.child_lives) = (Client::default(), Server::default(), true);
        self.pipes = std::array::from_fn(|_| Pipe::default());
        self.pipes[TO_SERVER].glues(self.canary == Canary::GluesLines);
        let mut run = Run::new(engine, writer, self.now.elapsed);
        run.without_journal = self.dice.once_in(8).then(Unrecorded::default);
        self.run = Some(run);
        self.shim = Some(shim(&self.pipes));
        self.client.begin(&mut self.dice);
        self.tell(Input::ServerStarted { pid: 7, adopted: false });
        self.tell(Input::SessionOpened { generation: generation.to_string() });
        if !self.commands.is_empty() {
            let waiting = self.commands.clone();
            self.tell(Input::Context(ContextChange::Loaded(waiting)));
        }
    }

    fn engine(&self, generation: &Generation, habits: Habits) -> Engine {
        let settings = rules::settings();
        let expiry = if habits.expires { vec![(RequestType::Approval, EXPIRES_AFTER)] } else { Vec::new() };
        let rules = if habits.has_rules { settings.requests().rules } else { Vec::new() };
        Engine::new(EngineSettings {
            budget: Default::default(),
            exit_grace: Duration::from_secs(10),
            context: ContextSettings::default(),
            assembly: if habits.gathers { settings.assembly() } else { AssemblySettings::default() },
            requests: RequestSettings { hold: habits.hides, expiry, notify_after: None, rules },
            server_owner: ServerOwner::Client,
            own_ids: format!("codex-shim:{generation}:"),
            tokens_before: 0,
        })
    }

    pub fn journal(&self) -> PathBuf {
        self.session().join("journal")
    }

    pub fn session(&self) -> PathBuf {
        self.dir.path().join("sessions/s")
    }

    pub fn mark(&self) -> MutexGuard<'_, SeqMark> {
        self.mark.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn now(&self) -> Now {
        let started = self.run.as_ref().map_or(Duration::ZERO, |run| run.started);
        Now { unix_us: self.now.unix_us, elapsed: self.now.elapsed - started }
    }

    fn step(&mut self) {
        if self.run.is_none() {
            self.start();
        }
        if self.defect_at == Some(self.happened.times(Event::Step)) {
            self.finds_defect();
        }
        let bytes_max = 1 + self.dice.roll(400) as usize;
        match self.dice.roll(42) {
            0..=3 => self.client.speak(&mut self.dice),
            4 => self.client_guesses(),
            5..=9 => self.server_works(),
            10..=27 => (0..6).for_each(|_| self.something_moves(bytes_max)),
            28..=29 => (0..8).for_each(|_| self.something_moves(usize::MAX)),
            30..=33 => (0..1 + self.dice.roll(6)).for_each(|_| self.ledger()),
            34 => self.somebody(),
            35..=36 => self.time_passes(),
            37 => self.context(),
            38 => match self.dice.roll(5) {
                0 => self.room_bytes = Some(self.dice.roll(8_000)),
                1 | 2 => self.room_bytes = None,
                3 => self.ledger_hangs = self.dice.once_in(2),
                _ => self.ledger_works = !self.dice.once_in(3),
            },
            39 | 40 => self.somebody_else_works(),
            _ => match self.dice.roll(12) {
                3 => self.open_journal(),
                0 => self.killed(),
                1 => self.child_dies(),
                2 => self.index_some(),
                _ => {}
            },
        }
        // A request that has just started to wait again may be overdue: the relay checks the time before it waits.
        self.tick();
        self.nothing_is_held_too_long();
    }

    /// The server sends something: often it withdraws a request just when its answer is being stored, or a part of that is with it.
    fn server_works(&mut self) {
        match self.referee.almost_answered() {
            Some(id) if self.dice.once_in(2) => self.server.withdraw(&mut self.dice, id),
            _ => self.server.work(&mut self.dice),
        }
    }

    /// A program is checked, or the fragments are read. Now and then that never ends.
    pub fn somebody_else_works(&mut self) {
        let (fails, ends) = (self.dice.once_in(3), !self.dice.once_in(5));
        let check = self.run.as_mut().and_then(|run| self.dice.take(&mut run.checks));
        if let Some(token) = check.filter(|_| ends) {
            let checked = if fails { Err("no".to_owned()) } else { Ok("/bin/ls".to_owned()) };
            self.say(|| format!("checked {token}: {checked:?}"));
            self.tell(Input::ProgramChecked { token, checked });
        }
        if let Some(read) = self.read_fragments() {
            self.tell_fragments(read);
        }
    }

    /// The fragments of a thread are read. Now and then that never ends.
    pub fn read_fragments(&mut self) -> Option<Input> {
        let (ends, state) = (!self.dice.once_in(3), self.dice.roll(4));
        let run = self.run.as_mut().filter(|_| !self.fragments_hang)?;
        let token = self.dice.take(&mut run.reads).filter(|_| ends)?;
        let states = vec![(state > 0).then(|| format!("state {state}"))];
        self.say(|| format!("fragments of {token} are read: {states:?}"));
        Some(Input::FragmentsRead { token, states })
    }

    /// The client answers a request that it has not seen.
    fn client_guesses(&mut self) {
        if let Some(id) = self.referee.hidden() {
            self.client.answer(&mut self.dice, id);
        }
    }

    /// Something moves one step forward.
    fn something_moves(&mut self, bytes_max: usize) {
        match self.dice.roll(8) {
            0 => self.client.mouth.write(&self.pipes[FROM_CLIENT], bytes_max),
            1 => self.read(Side::Client, bytes_max),
            2 => self.flush(Side::Client, bytes_max),
            3 => {
                let bytes = self.pipes[TO_SERVER].get(bytes_max);
                self.server_hears(&bytes);
            }
            4 => self.server.mouth.write(&self.pipes[FROM_SERVER], bytes_max),
            5 => self.read(Side::Server, bytes_max),
            6 => self.flush(Side::Server, bytes_max),
            _ => {
                let bytes = self.pipes[TO_CLIENT].get(bytes_max);
                self.client_hears(&bytes);
            }
        }
    }

    /// An API caller makes a call.
    pub fn somebody(&mut self) {
        let api_call = self.happened.times(Event::Step);
        // Without a name, the thread is that of the last turn.
        let thread_id = Some(format!("t{}", self.dice.roll(2))).filter(|_| self.referee.habits.gathers);
        let request = match self.dice.roll(6) {
            0 => ApiRequest::Input { text: "from the side".to_owned(), thread_id },
            1 => ApiRequest::Interrupt { thread_id },
            2 => ApiRequest::Rpc { method: "thread/list".to_owned(), params: None, by: "me".to_owned() },
            _ => {
                let Some(generation) = &self.generation else { return };
                // One of the last requests, or one that does not exist.
                let count = self.referee.asked.len() as u64 + 1;
                let id = count.saturating_sub(self.dice.roll(6));
                let name = format!("{generation}-{id}");
                // Usually the name of its current row.
                let request_id = match self.referee.asked.get(&id) {
                    Some(asked) if !self.dice.once_in(8) => asked.name.clone(),
                    Some(_) | None => name,
                };
                let decision = ["accept", "decline", "cancel", "no such thing"][self.dice.roll(4) as usize];
                self.referee.side_answers(api_call, &request_id, decision);
                let given: GivenAnswer = serde_json::from_value(json!({"decision": decision})).expect("BUG: an answer");
                let by = "uid 0".to_owned();
                ApiRequest::Respond { request_id, given: Box::new(given), source: RequestSource::Api, by }
            }
        };
        self.say(|| format!("asked {request:?}"));
        self.tell(Input::ApiRequest { api_call, request, server_listens: true });
    }

    fn time_passes(&mut self) {
        let is_long = self.dice.once_in(15);
        let passes = Duration::from_millis(self.dice.roll(if is_long { 1_300 } else { 120 }));
        self.now.elapsed += passes;
        self.now.unix_us += passes.as_micros() as u64 + 1;
        self.tick();
    }

    /// Passes the time to the engine, if it has asked for it.
    pub fn tick(&mut self) {
        let now = self.now();
        self.release_late();
        let (Some(run), Some(shim)) = (&self.run, &self.shim) else { return };
        let is_idle = shim.links.from_client.is_empty() && shim.links.from_server.is_empty();
        let sleeps = self.canary == Canary::NeverExpires && is_idle;
        if !sleeps && run.engine.next_deadline().is_some_and(|due| due <= now.elapsed) {
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

    /// Checks that the engine was told the time whenever it had asked for it, so nothing waits too long.
    pub fn nothing_is_held_too_long(&mut self) {
        if self.run.is_none() {
            return;
        }
        let held = self.now.elapsed.checked_sub(HOLD_MAX).and_then(|limit| self.held_since_before(limit));
        self.holds(self.referee.nothing_is_overdue(self.now().elapsed));
        if let Some(token) = held {
            self.broken(format!("6: held past its deadline: token {token}"));
        }
    }

    pub fn client_hears(&mut self, bytes: &[u8]) {
        for line in self.client.ear.take(bytes) {
            let checked = self.referee.client_got(&line, &self.rows);
            self.holds(checked);
            self.client.hear(&line);
        }
    }

    /// The client hears the end, and a last line that has none.
    pub fn client_hears_end(&mut self) {
        if let Some(line) = self.client.ear.end() {
            let checked = self.referee.client_got(&line, &self.rows);
            self.holds(checked);
        }
    }

    pub fn server_hears(&mut self, bytes: &[u8]) {
        // A dead server receives nothing.
        for line in self.server.ear.take(if self.child_lives { bytes } else { &[] }) {
            self.server_hears_line(&line);
        }
    }

    pub fn server_hears_end(&mut self) {
        if let Some(line) = self.server.ear.end().filter(|_| self.child_lives) {
            self.server_hears_line(&line);
        }
    }

    fn server_hears_line(&mut self, line: &[u8]) {
        let checked = self.referee.server_got(line, &self.rows);
        self.holds(checked);
        self.server.hear(&mut self.dice, line);
    }
}
