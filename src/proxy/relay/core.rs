//! What a relay on pipes and the hub share: the engine and the record, and everything that has nothing to do with the
//! connections between clients and servers.
//!
//! The loop that owns it carries out the effects that concern a connection or a process; [`Core::carry_out`] does the rest.

use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::budget::{BudgetWatch, Look};
use super::deciders::{self, CODEX, Use};
use super::guard::{Checking, Guard};
use super::hook_watch::{HookWatch, ToldOf, WatchSettings};
use super::hooks::Hooks;
use super::inbox::{ApiCallers, Inbox};
use super::notices::Notices;
use super::program_check::ProgramChecker;
use super::recorder::{Recorder, SessionState};
use crate::config::Settings;
use crate::context_engine::FragmentReader;
use crate::control::{Published, PublishedState};
use crate::driver::{Elsewhere, Host, Passed};
use crate::engine::{
    ApiCallId, ApiReply, Arrival, BudgetFound, BudgetQuery, ClientName, Consultation, Decision, Effect, Engine,
    EngineSettings, Fragment, Incoming, Input, LiveSettings, ModelsReach, Note, Now, ProgramCheck, ServerOwner, Token,
    broken_in_words, earlier,
};
use crate::invariants::take_broken;
use crate::journal::Batch;
use crate::os;
use crate::os::clocks::since_boot;
use crate::os::descriptors::claim;
use crate::os::signals::Signals;
use crate::socket::EndpointState;
use crate::wire::{Conn, Side};

/// How soon to retry orders that the ledger had no room for, if nothing else wakes the loop.
const OVERFLOW_RETRY_AFTER: Duration = Duration::from_millis(10);

/// The engine's source of time.
#[derive(Debug)]
pub struct Clock {
    started: Instant,
    /// The time of the process that we have taken over from.
    before: Duration,
}

impl Clock {
    pub fn start() -> Clock {
        Clock::after(Duration::ZERO)
    }

    /// Goes on after this time.
    pub fn after(before: Duration) -> Clock {
        Clock { started: Instant::now(), before }
    }

    pub fn now(&self) -> Now {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Now { unix_us: since_epoch.as_micros() as u64, elapsed: self.elapsed() }
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.before + self.started.elapsed()
    }
}

/// The state of a core that another process goes on with.
#[derive(Debug, Serialize, Deserialize)]
pub struct CoreState<E> {
    elapsed: Duration,
    since_boot: Duration,
    pub(super) engine: E,
    /// Facts that the engine must have after the handover.
    #[serde(default)]
    pub(super) arrival: Option<Arrival>,
    pub(super) session: SessionState,
    pub(super) published: PublishedState,
    /// The places where models can write, those of earlier servers included.
    pub(super) reach: ModelsReach,
    /// The calls of `on_stalled` and `on_bypass` so far.
    pub(super) stalls: Vec<ToldOf>,
    pub(super) bypasses: Vec<ToldOf>,
}

pub(super) type CoreStateRef<'a> = CoreState<&'a Engine>;

impl<E> CoreState<E> {
    /// A clock that has not stood still since this was written.
    pub fn clock(&self) -> Clock {
        Clock::after(self.elapsed + self.age())
    }

    /// The time since this was written.
    pub fn age(&self) -> Duration {
        since_boot().saturating_sub(self.since_boot)
    }

    pub fn is_recorded(&self) -> bool {
        self.session.writer.is_some()
    }

    /// The session's id, and the descriptor of its lock.
    pub fn lock(&self) -> (&str, RawFd) {
        (&self.session.id, self.session.lock)
    }

    /// Claims the descriptors that are opened later, so that no other program inherits them.
    ///
    /// # Errors
    ///
    /// There is no such descriptor.
    pub fn claim(&self) -> os::Result<()> {
        claim(self.session.lock)?;
        self.session.control.as_ref().map_or(Ok(()), EndpointState::claim)
    }
}

#[derive(Debug)]
pub struct Core {
    pub clock: Clock,
    pub engine: Engine,
    pub recorder: Recorder,
    pub notices: Notices,
    /// State that the control socket serves.
    pub published: Arc<Published>,
    pub signals: Signals,
    /// Messages from other threads.
    pub inbox: Inbox,
    /// API callers that wait for a reply.
    pub callers: ApiCallers,
    /// The current settings.
    pub(super) settings: Settings,
    pub(super) hooks: Hooks,
    pub(super) stalls: HookWatch,
    pub(super) bypasses: HookWatch,
    pub(super) fragments: FragmentReader,
    pub(super) programs: ProgramChecker,
    pub(super) budget: BudgetWatch,
    pub(super) guard: Guard,
    /// They are those of a hub.
    pub(super) has_many_clients: bool,
    /// A client has told its name since the loop has last looked.
    pub introduced: bool,
    /// The revision of the models' reach that the guard knows.
    pub(super) reach_revision: u64,
}

impl Core {
    /// Begins with a server that was started anew, or started again.
    pub fn next_run(&mut self, server_owner: ServerOwner, pid: u32, server_run: Option<String>) {
        // A late report of the ledger on the previous run must not match a token of this one.
        let before = self.engine.last_token();
        let mut engine = Engine::new(engine_settings(&self.settings, server_owner, Uuid::now_v7(), before));
        // The context engine outlives the server.
        let owns = Input::OwnsCompaction(self.engine.owns_compaction());
        engine.handle(self.clock.now(), owns, &mut Vec::new());
        drop(self.recorder.take_refused());
        if let Err(error) = self.recorder.next_run(pid, server_run) {
            self.notices.report(&error.to_string());
        }
        // The process has the defect, not only its last engine.
        if let Some(name) = self.engine.broken() {
            engine.handle(self.clock.now(), Input::Broken(name.to_owned()), &mut Vec::new());
        }
        self.engine = engine;
        self.reach_revision = 0;
    }

    /// The state for another process, once nothing is in progress; `None` if the session is not open yet.
    pub fn state(&self) -> Option<CoreStateRef<'_>> {
        Some(CoreState {
            elapsed: self.clock.elapsed(),
            since_boot: since_boot(),
            engine: &self.engine,
            arrival: Some(self.engine.arrival()),
            session: self.recorder.state()?,
            published: self.published.state(),
            reach: self.guard.known_reach(),
            stalls: self.stalls.told(),
            bypasses: self.bypasses.told(),
        })
    }

    /// The work that would be lost if this process ended now, in words.
    /// `caller` knows, and waits for it.
    pub fn in_progress(&self, caller: ApiCallId) -> Option<&'static str> {
        if !self.engine.is_at_rest() {
            Some("a message waits for the ledger, a check or the context engine")
        } else if self.callers.are_waiting_besides(caller) {
            Some("a tool waits for the server")
        } else if self.recorder.has_overflow() {
            Some("entries wait for the ledger")
        } else if self.hooks.are_starting() {
            Some("a hook starts")
        } else {
            None
        }
    }

    /// How many hooks have begun to start.
    pub fn hooks_begun(&self) -> u64 {
        self.hooks.begun()
    }

    /// The next deadline that has nothing to do with a connection.
    pub fn next_deadline(&self) -> Option<Duration> {
        let overflow = self.recorder.has_overflow().then(|| self.clock.elapsed() + OVERFLOW_RETRY_AFTER);
        earlier(self.engine.next_deadline(), overflow)
    }

    /// Hands an input to the engine.
    pub fn handle(&mut self, input: Input, effects: &mut Vec<Effect>) {
        self.engine.handle(self.clock.now(), input, effects);
    }

    /// Has the engine do what its deadlines ask for.
    pub fn tick_if_due(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self.engine.next_deadline().is_some_and(|due| due <= now.elapsed) {
            self.engine.handle(now, Input::Tick, effects);
        }
    }

    pub fn configure(&mut self, settings: Settings, effects: &mut Vec<Effect>) {
        self.hooks.on_pending.clone_from(&settings.on_pending.value);
        self.hooks.on_idle.clone_from(&settings.on_idle.value);
        self.stalls.configure(stall_settings(&settings));
        self.bypasses.configure(bypass_settings(&settings));
        self.published.stalls_after(settings.stalled_after.value);
        self.guard.configure(&settings);
        let fragments = settings.assembly().fragments;
        if fragments != self.settings.assembly().fragments {
            self.fragments = fragment_reader(fragments, &self.guard);
        }
        self.recorder.configure(settings.journal_bounds(), settings.retention(), settings.context().bounds);
        let fragments = settings.assembly().fragments;
        let live = LiveSettings {
            context: settings.context(),
            requests: settings.requests(),
            fragments,
            budget: settings.budget_use(),
        };
        self.settings = settings;
        self.handle(Input::Configured(Box::new(live)), effects);
    }

    /// The names of the variables that a hub passes from its clients to the commands of their threads.
    pub fn shared_variables(&self) -> Option<&[String]> {
        self.settings.hub.environment.value.as_deref().filter(|names| !names.is_empty())
    }

    /// The watch that runs `on_bypass`.
    pub fn bypass_watch(&self) -> HookWatch {
        self.bypasses.clone()
    }

    /// Whether the server's program may be started again. It waits a few seconds at most, so no server may run.
    ///
    /// # Errors
    ///
    /// A model can change the program, or that cannot be found out.
    pub fn check_server_program(&mut self) -> Result<(), String> {
        self.share_reach();
        self.guard.check(&Use::row(CODEX), None)
    }

    /// A number that changes with all that could change the answer to that.
    pub fn guard_revision(&self) -> u64 {
        self.guard.revision()
    }

    /// Begins to find out whether a program may go on in our place, which it may not if a model can change it. The answer is that of
    /// this [`Core::guard_revision`].
    pub fn begin_check_of_own_program(&mut self, program: &Path) -> (Checking, u64) {
        self.share_reach();
        let revision = self.guard.revision();
        (self.guard.begin_check(&Use::own(program), None), revision)
    }

    /// As [`Core::check_server_program`], without waiting.
    pub(super) fn begin_check_of_server_program(&mut self) -> Checking {
        self.share_reach();
        self.guard.begin_check(&Use::row(CODEX), None)
    }

    /// Publishes the number of waiting context entries if it is not `before` any more, and the number of pending
    /// requests.
    pub fn publish_waiting(&mut self, before: usize) {
        self.share_reach();
        let waiting = self.engine.context_waiting();
        if waiting != before {
            self.published.context_waiting(waiting as u64);
        }
        self.publish_pending();
    }

    /// Has the guard know where models can write, before anything starts that they might have changed.
    fn share_reach(&mut self) {
        let revision = self.engine.models_reach_revision();
        if revision != self.reach_revision {
            self.reach_revision = revision;
            self.guard.learn(self.engine.models_reach());
        }
    }

    pub fn publish_pending(&self) {
        self.published.requests_pending(self.engine.requests_pending() as u64);
    }

    /// Reports invariants that have failed, after which the engine decides nothing any more.
    fn report_broken(&mut self, effects: &mut Vec<Effect>) {
        for name in take_broken() {
            self.notices.report(&broken_in_words(name));
            self.handle(Input::Broken(name.to_owned()), effects);
        }
    }

    /// Reports orders to the engine that the ledger refused, and whatever else has gone wrong since.
    pub fn report_refused(&mut self, effects: &mut Vec<Effect>) {
        self.report_broken(effects);
        for token in self.recorder.take_refused() {
            self.handle(Input::Committed { token, done: false }, effects);
        }
    }

    /// Carries out an effect that concerns neither a link nor a child; returns any other.
    pub fn carry_out(&mut self, effect: Effect, effects: &mut Vec<Effect>) -> Option<Elsewhere> {
        self.share_reach();
        match effect {
            Effect::Note(note @ Note::GenerationEnded { .. }) => {
                self.recorder.last_note(&note, self.clock.now(), &mut self.notices);
            }
            Effect::Note(note) => {
                self.published.note(&note);
                self.recorder.note(note, self.clock.now(), &mut self.notices);
            }
            Effect::Order(order) => self.recorder.order(order),
            Effect::Consult(consultation) => self.consult(consultation, effects),
            Effect::RunFragments(token, cwd) => self.read_fragments(token, cwd),
            Effect::CheckProgram(token, check) => self.check_program(token, *check, effects),
            Effect::LookAtBudget(token, query) => self.look_at_budget(token, query, effects),
            Effect::NotifyPending(request_id) => {
                if let Some((ledger, session_id)) = self.recorder.session() {
                    self.hooks.pending(request_id, ledger, (session_id, self.recorder.session_dir()));
                }
            }
            Effect::NotifyIdle(outcome) => {
                let session_id = self.recorder.session().map_or("", |(_, session_id)| session_id);
                self.hooks.idle(outcome, (session_id, self.recorder.session_dir()));
            }
            Effect::Warn(warning) => self.notices.report(&warning.to_string()),
            Effect::PublishConfigWarning(warning) => self.published.config_warning(*warning),
            Effect::Link(effect) => return Some(Elsewhere::Link(effect)),
            Effect::Child(effect) => return Some(Elsewhere::Child(effect)),
        }
        None
    }

    /// Passes a consultation to the context engine. If there is none or it cannot be reached, the engine learns that at
    /// once.
    fn consult(&mut self, consultation: Box<Consultation>, effects: &mut Vec<Effect>) {
        let refused = match self.recorder.context_engine() {
            Some(engine) => engine.consult(consultation, self.clock.elapsed()).err(),
            None => Some(consultation),
        };
        let (token, method, thread_id) = match refused.map(|refused| *refused) {
            Some(Consultation::Assemble { token, thread_id, .. }) => (token, "assemble", thread_id),
            Some(Consultation::Compact { token, thread_id, .. }) => (token, "compact", thread_id),
            Some(Consultation::Opened { .. } | Consultation::TurnCompleted { .. }) | None => return,
        };
        effects.push(Effect::Note(Note::ContextEngineCall {
            method,
            thread_id: Some(thread_id),
            ms: 0,
            request_bytes: 0,
            response_bytes: 0,
            outcome: "not_running",
        }));
        self.handle(Input::Consulted { token, assembled: None }, effects);
    }

    /// Starts to check the program of a command that a rule accepts.
    fn check_program(&mut self, token: Token, check: ProgramCheck, effects: &mut Vec<Effect>) {
        let rules = self.settings.rules.value.clone();
        let outbox = self.recorder.outbox();
        if let Err(why) = self.programs.check(token, check, rules, move |input| outbox.post(input)) {
            self.handle(Input::ProgramChecked { token, checked: Err(why) }, effects);
        }
    }

    /// Starts to look up what is spent of the budget.
    fn look_at_budget(&mut self, token: Option<Token>, query: BudgetQuery, effects: &mut Vec<Effect>) {
        let look = Look {
            settings: self.settings.clone(),
            index: self.recorder.index(),
            journal_dir: self.recorder.session_dir().map(|dir| dir.join("journal")),
            session_id: self.recorder.session_id().unwrap_or_default().to_owned(),
            hooks: self.hooks.runner(),
            published: Arc::clone(&self.published),
        };
        let outbox = self.recorder.outbox();
        let post = move |token, found| outbox.post(Input::BudgetLookedUp { token, found });
        if let Err(why) = self.budget.look(look, (token, query), post) {
            self.notices.report(&format!("the budget is not looked up: {why}"));
            if let Some(token) = token {
                self.handle(Input::BudgetLookedUp { token, found: BudgetFound::Unknown }, effects);
            }
        }
    }

    /// Starts to read the fragments, in the thread's folder if it is known.
    fn read_fragments(&mut self, token: Token, cwd: Option<String>) {
        let outbox = self.recorder.outbox();
        self.fragments.read(token, cwd.map(PathBuf::from), move |input| outbox.post(input));
    }
}

impl Host for Core {
    fn now(&self) -> Now {
        self.clock.now()
    }

    fn engine(&self) -> &Engine {
        &self.engine
    }

    fn decide(
        &mut self,
        now: Now,
        conn: Conn,
        from: Side,
        incoming: Incoming<'_>,
        effects: &mut Vec<Effect>,
    ) -> Option<Decision> {
        self.engine.read(now, conn, from, incoming, effects)
    }

    fn handle(&mut self, now: Now, input: Input, effects: &mut Vec<Effect>) {
        self.engine.handle(now, input, effects);
    }

    fn batch<'a>(&mut self, now: Now, conn: Conn) -> Option<Batch<'a>> {
        self.recorder.batch(now, conn, &self.notices)
    }

    fn miss(&mut self, lines: usize) {
        self.recorder.miss_lines(lines as u64);
    }

    fn add(&mut self, batch: &mut Option<Batch<'_>>, effect: Effect) -> Option<Effect> {
        self.recorder.add(batch, effect)
    }

    fn commit(&mut self, batch: &mut Batch<'_>) {
        self.recorder.commit(batch, &mut self.notices);
    }

    fn carry_out(&mut self, effect: Effect, effects: &mut Vec<Effect>) -> Option<Elsewhere> {
        Core::carry_out(self, effect, effects)
    }

    fn report_refused(&mut self, effects: &mut Vec<Effect>) {
        Core::report_refused(self, effects);
    }

    fn introduce(&mut self, _: Conn, client: ClientName) {
        self.introduced = true;
        // Those of a hub are in the list of its connections.
        if !self.has_many_clients {
            self.recorder.name_client(client.name.clone());
            self.published.introduce(client);
        }
    }

    fn reply(&mut self, caller: ApiCallId, reply: ApiReply, effects: &mut Vec<Effect>) {
        let is_admission = matches!(reply, ApiReply::Admitted { .. });
        if !self.callers.reply(caller, reply) && is_admission && self.engine.admitted() == Some(caller) {
            // A client that no longer waits for its admission is detached.
            Core::handle(self, Input::Detached, effects);
        }
    }

    fn clients_changed(&mut self, clients: usize) {
        // Several of them may get the same lines.
        self.recorder.share_lines(clients > 1);
    }

    fn passed(&mut self, from: Side, passed: Passed) {
        self.published.count(from, passed);
    }

    fn publish_waiting(&mut self, before: usize) {
        Core::publish_waiting(self, before);
    }

    fn report(&mut self, fault: &str) {
        self.notices.report(fault);
    }
}

pub(super) fn engine_settings(
    settings: &Settings,
    server_owner: ServerOwner,
    fresh_id: Uuid,
    tokens_before: Token,
) -> EngineSettings {
    EngineSettings {
        exit_grace: settings.exit_grace.value,
        context: settings.context(),
        assembly: settings.assembly(),
        requests: settings.requests(),
        budget: settings.budget_use(),
        server_owner,
        own_ids: own_ids(fresh_id),
        tokens_before,
    }
}

pub(super) fn fragment_reader(fragments: Vec<Fragment>, guard: &Guard) -> FragmentReader {
    FragmentReader::new(fragments, guard.permit(deciders::fragment))
}

pub(super) fn bypass_settings(settings: &Settings) -> WatchSettings {
    WatchSettings { command: settings.on_bypass.value.clone(), after: Duration::ZERO }
}

pub(super) fn stall_settings(settings: &Settings) -> WatchSettings {
    WatchSettings { command: settings.on_stalled.value.clone(), after: settings.stalled_after.value }
}

/// The prefix of the ids of this run's own calls; the low 32 bits of a UUIDv7 are random.
pub fn own_ids(fresh_id: Uuid) -> String {
    format!("codex-shim:{:08x}:", fresh_id.as_u128() as u32)
}
