//! The session of a relay: held for its time, told about at its control socket, and its journal written.
//!
//! A session that cannot be opened at the start (a full disk, a folder that is not there) is tried again while the relay
//! goes on; what passed before it could be opened is the gap that its journal begins with.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::inbox::Outbox;
use super::indexing;
use super::notices::Notices;
use super::opening::{Opening, RecordKept};
use super::watching;
use crate::config::RetentionBounds;
use crate::context_engine::{ContextEngine, Conversations, SpeakerSettings};
use crate::control::{self, Beside, Published, SocketFiles, Subject};
use crate::engine::{ContextBounds, Input, Note, Now};
use crate::index::Index;
use crate::journal::{Batch, Bounds, FORMAT, Generation, Header, Previous, ServerOrigin, Writer};
use crate::store::{Ledger, Order, Session, StoreError, open_log};

/// How long a session that could not be opened is left alone.
const REOPEN_AFTER: Duration = Duration::from_secs(1);

/// How long the end of a relay waits for the ledger. The contract gives 200 ms for everything after the last byte.
const LEDGER_END_WAIT_MAX: Duration = Duration::from_millis(100);

/// What may wait for room at the ledger; the engine has fewer requests open than a few of these for each.
const OVERFLOW_MAX: usize = 100_000;

/// Notes that are kept for a journal that is not open yet; what one run of the child gives rise to by itself.
const NOTES_KEPT_MAX: usize = 8;

/// A session that was opened.
struct Opened {
    writer: Option<Box<Writer>>,
    sides: Sides,
}

/// What stands beside the journal of a session.
#[derive(Debug, Default)]
struct Sides {
    session_id: String,
    /// Held to the end of the process.
    session: Option<&'static Session>,
    ledger: Option<Ledger>,
    index: Option<Index>,
    context_engine: Option<ContextEngine>,
    /// Where others ask, to be removed at the end.
    socket_files: Option<SocketFiles>,
}

impl Opening {
    /// Finds the session that this start belongs to, holds it, and has it answer at its socket.
    ///
    /// The lock is never dropped: the process holds it to its end, whichever that is.
    fn open(&self, published: &Arc<Published>, notices: &Notices) -> Result<Opened, StoreError> {
        let Some(home) = &self.home else {
            let source = io::Error::new(io::ErrorKind::NotFound, "neither CODEX_SHIM_HOME nor HOME is set");
            return Err(StoreError::Io { action: "find", path: "the state folder".into(), source });
        };
        let session = Session::open(home, self.wanted.as_ref(), &self.place, self.fresh_id)?;
        let generation = session.next_generation()?;
        if let Err(error) = open_log(&session.dir) {
            notices.say(&format!("open {}: {error}; there is no log", session.dir.join("shim.log").display()));
        }
        let pid = std::process::id();
        tracing::info!(session = %session.id, %generation, pid, server = ?self.place.server, "relay started");
        let ledger = self.start_ledger(&session, &generation, published, notices);
        if let (Some(watched), Some(ledger)) = (&self.watched, &ledger) {
            watching::start(watched, self.context_bounds, ledger.clone(), published, notices);
        }
        let index = match self.record {
            RecordKept::Yes => indexing::start(self, &session, ledger.clone(), published, notices),
            RecordKept::No => None,
        };
        let context_engine = self.start_context_engine(&session, index.clone(), published, notices);
        let beside = Beside { ledger: ledger.clone(), index: index.clone() };
        let socket_files = self.start_control(&session, &generation, beside, published, notices);
        if ledger.is_some() {
            self.outbox.tell_self(Input::SessionOpened { generation: generation.to_string() });
        }
        let writer = match self.record {
            RecordKept::Yes => Some(Box::new(self.writer(&session, generation.clone()))),
            RecordKept::No => None,
        };
        published.child_started(&generation.to_string(), self.child_pid);
        let session_id = session.id.clone();
        let session = Some(&*Box::leak(Box::new(session)));
        Ok(Opened { writer, sides: Sides { session_id, session, ledger, index, context_engine, socket_files } })
    }

    /// Has a thread open the ledger, and waits for nothing of it.
    fn start_ledger(
        &self,
        session: &Session,
        generation: &Generation,
        published: &Arc<Published>,
        notices: &Notices,
    ) -> Option<Ledger> {
        let for_thread = Arc::clone(published);
        let say_fault = move |what: &str| Notices::new(Arc::clone(&for_thread)).say(what);
        let started = self.outbox.try_clone().and_then(|outbox| {
            let ids = (session.id.clone(), generation.to_string());
            Ledger::start(&session.dir, ids, move |input| outbox.tell(input), say_fault)
        });
        started
            .map_err(|error| {
                notices.say(&format!("start a thread for the ledger: {error}; relaying goes on without it"))
            })
            .ok()
    }

    /// Has a thread speak to the user's context engine, where one is set, and waits for nothing of it.
    fn start_context_engine(
        &self,
        session: &Session,
        index: Option<Index>,
        published: &Arc<Published>,
        notices: &Notices,
    ) -> Option<ContextEngine> {
        let settings = SpeakerSettings { engine: self.context_engine.clone()?, session_id: session.id.clone() };
        let conversations = Conversations::new(&session.dir, &session.journal_dir, index);
        let for_thread = Arc::clone(published);
        let say_fault = move |what: &str| Notices::new(Arc::clone(&for_thread)).say(what);
        let started = self.outbox.try_clone().and_then(|outbox| {
            ContextEngine::start(settings, conversations, Box::new(move |input| outbox.tell(input)), say_fault)
        });
        started
            .map_err(|error| {
                notices.say(&format!("start a thread for the context engine: {error}; turns go on without it"))
            })
            .ok()
    }

    fn writer(&self, session: &Session, generation: Generation) -> Writer {
        let header = Header {
            journal: FORMAT,
            session: session.id.clone(),
            generation: generation.to_string(),
            segment: 0,
            at: 0,
            argv: self.place.server.clone(),
            cwd: self.place.cwd.clone(),
            codex: ServerOrigin { path: self.codex_path.clone() },
            shim: env!("CARGO_PKG_VERSION").to_owned(),
            previous: Previous::of_end(&session.journal_dir),
        };
        Writer::new(session.journal_dir.clone(), generation, header, self.bounds, self.indexed_to.clone())
    }

    /// Has a thread answer at the control socket, and waits for nothing of it.
    fn start_control(
        &self,
        session: &Session,
        generation: &Generation,
        beside: Beside,
        published: &Arc<Published>,
        notices: &Notices,
    ) -> Option<SocketFiles> {
        const WITHOUT: &str = "relaying goes on without a control socket";
        let subject = Subject {
            session_id: session.id.clone(),
            session_dir: session.dir.clone(),
            journal_dir: session.journal_dir.clone(),
            generation: generation.to_string(),
            started_at: SystemTime::now(),
            runtime_dir: self.runtime_dir.clone(),
            context_bounds: self.context_bounds,
        };
        let for_thread = Arc::clone(published);
        let say_fault = move |what: &str| Notices::new(for_thread).say(&format!("{what}; {WITHOUT}"));
        let asking =
            self.outbox.try_clone().ok().map(|outbox| -> control::Ask { Box::new(move |errand| outbox.run(errand)) });
        match control::start(subject, Arc::clone(published), beside, asking, say_fault) {
            Ok(files) => Some(files),
            Err(error) => {
                notices.say(&format!("{error}; {WITHOUT}"));
                None
            }
        }
    }
}

/// Puts on record what passes, or counts it where that cannot be done.
#[derive(Debug)]
pub(super) struct Recorder {
    opening: Opening,
    published: Arc<Published>,
    state: State,
    sides: Sides,
    /// The name of the client, as it introduced itself.
    client: Option<String>,
    /// What the ledger had no room for, in its order.
    overflow: VecDeque<Order>,
}

#[derive(Debug)]
enum State {
    /// Nothing is to be recorded.
    Off,
    /// There is a journal.
    Open(Box<Writer>),
    /// There is no session yet.
    Closed(Closed),
}

/// What has passed before there was a journal.
#[derive(Debug)]
struct Closed {
    lines: u64,
    notes: Vec<Note>,
    reason: String,
    retry_at: Duration,
}

impl Recorder {
    /// A recorder that has tried to open its session.
    pub(super) fn open(opening: Opening, published: Arc<Published>, notices: &Notices) -> Recorder {
        let opened = opening.open(&published, notices).map_err(|error| {
            notices.say(&format!("{error}; relaying goes on, without a session until it works"));
            Closed { lines: 0, notes: Vec::new(), reason: error.to_string(), retry_at: REOPEN_AFTER }
        });
        let (state, sides) = match opened {
            Ok(Opened { writer: Some(writer), sides }) => (State::Open(writer), sides),
            Ok(Opened { writer: None, sides }) => (State::Off, sides),
            Err(closed) => (State::Closed(closed), Sides::default()),
        };
        Recorder { opening, published, state, sides, client: None, overflow: VecDeque::new() }
    }

    /// The id of the session; `None` if it could not be opened yet.
    pub(super) fn session_id(&self) -> Option<&str> {
        self.sides.session.map(|session| session.id.as_str())
    }

    /// The child was started anew: another run of the session, with a journal of its own.
    ///
    /// # Errors
    ///
    /// [`StoreError`] where the journal's folder cannot be read; what passes goes on being recorded in the run before.
    pub(super) fn next_run(&mut self, child_pid: u32) -> Result<(), StoreError> {
        self.opening.child_pid = child_pid;
        let Some(session) = self.sides.session else { return Ok(()) };
        let generation = session.next_generation()?;
        if let State::Open(_) = &self.state {
            self.state = State::Open(Box::new(self.opening.writer(session, generation.clone())));
        }
        self.hand_over();
        if let Some(ledger) = &self.sides.ledger
            && ledger.begin_run(generation.to_string())
        {
            self.opening.outbox.tell_self(Input::SessionOpened { generation: generation.to_string() });
        }
        self.published.child_started(&generation.to_string(), child_pid);
        Ok(())
    }

    /// Applies changed bounds.
    pub(super) fn configure(&mut self, bounds: Bounds, retention: RetentionBounds, context_bounds: ContextBounds) {
        self.opening.bounds = bounds;
        self.opening.retention = retention;
        self.opening.context_bounds = context_bounds;
        if let State::Open(writer) = &self.state {
            writer.bound(bounds);
        }
        if let Some(index) = &self.sides.index {
            index.retain(retention);
        }
        self.published.bound_context(context_bounds);
    }

    /// A batch for what happened `now`; `None` where there is no journal to put it into.
    pub(super) fn batch<'a>(&mut self, now: Now, notices: &Notices) -> Option<Batch<'a>> {
        if let State::Closed(closed) = &self.state
            && now.elapsed >= closed.retry_at
        {
            return self.open_again(now, notices);
        }
        match &mut self.state {
            State::Open(writer) => Some(writer.batch(now)),
            State::Off | State::Closed(_) => None,
        }
    }

    /// Tries to open the session; what has passed before is the gap that its journal begins with.
    fn open_again<'a>(&mut self, now: Now, notices: &Notices) -> Option<Batch<'a>> {
        let State::Closed(closed) = &mut self.state else { return None };
        closed.retry_at = now.elapsed + REOPEN_AFTER;
        let Opened { writer, sides } = self.opening.open(&self.published, notices).ok()?;
        self.sides = sides;
        self.sign_client();
        let State::Closed(closed) = &mut self.state else { return None };
        notices.say("the session can be used from now on");
        let Some(mut writer) = writer else {
            self.state = State::Off;
            return None;
        };
        if closed.lines > 0 {
            writer.begin_with_gap(closed.lines, std::mem::take(&mut closed.reason));
        }
        let mut batch = writer.batch(now);
        closed.notes.iter().for_each(|note| batch.push_note(note));
        self.state = State::Open(writer);
        Some(batch)
    }

    /// Notes the name of the client in the lock of the session, now or once there is a session.
    pub(super) fn name_client(&mut self, name: Option<String>) {
        self.client = name;
        self.sign_client();
    }

    fn sign_client(&self) {
        if let Some(session) = self.sides.session
            && let Err(error) = session.name_client(self.client.as_deref())
        {
            // Tools then show the session without its client.
            tracing::warn!(%error, "name the client in the lock");
        }
    }

    /// Appends a batch.
    pub(super) fn commit(&mut self, batch: Batch<'_>, notices: &mut Notices) {
        let State::Open(writer) = &mut self.state else { return };
        if let Err(error) = writer.commit(batch) {
            notices.journal_failed(&error);
        }
        self.published.journal(writer.tally());
    }

    /// A line has passed for which there was no batch.
    pub(super) fn miss_line(&mut self) {
        if let State::Closed(closed) = &mut self.state {
            closed.lines += 1;
        }
    }

    /// Something that we did or learned for which there was no batch.
    pub(super) fn miss_note(&mut self, note: Note) {
        if let State::Closed(closed) = &mut self.state
            && closed.notes.len() < NOTES_KEPT_MAX
        {
            closed.notes.push(note);
        }
    }

    /// Puts something that we did or learned on record, by itself.
    pub(super) fn note(&mut self, note: Note, now: Now, notices: &mut Notices) {
        match self.batch(now, notices) {
            Some(mut batch) => {
                batch.push_note(&note);
                self.commit(batch, notices);
            }
            None => self.miss_note(note),
        }
    }

    /// Puts the last note on record. There is no commit after it that could make good what it fails to write, so it is
    /// tried in a segment of its own where the one at hand does not take it.
    pub(super) fn last_note(&mut self, note: &Note, now: Now, notices: &mut Notices) {
        for _ in 0..2 {
            self.try_at_once();
            let Some(mut batch) = self.batch(now, notices) else { return };
            batch.push_note(note);
            self.commit(batch, notices);
            if matches!(&self.state, State::Open(writer) if writer.is_whole()) {
                return;
            }
        }
    }

    /// What comes now is the last: everything is tried once more, however short a time ago it failed.
    fn try_at_once(&mut self) {
        match &mut self.state {
            State::Open(writer) => writer.try_at_once(),
            State::Closed(closed) => closed.retry_at = Duration::ZERO,
            State::Off => {}
        }
    }

    /// The ledger and the id of the session, where there is one.
    pub(super) fn session(&self) -> Option<(&Ledger, &str)> {
        Some((self.sides.ledger.as_ref()?, &self.sides.session_id))
    }

    /// The way to the context engine, where there is one.
    pub(super) fn context_engine(&self) -> Option<&ContextEngine> {
        self.sides.context_engine.as_ref()
    }

    /// Another end of where the relay is told something.
    pub(super) fn outbox(&self) -> io::Result<Outbox> {
        self.opening.outbox.try_clone()
    }

    /// Has something kept in the ledger, after all that was before it; never waits. Gives it back where there is no ledger,
    /// or too much waits for it.
    pub(super) fn order(&mut self, order: Order) -> Result<(), Order> {
        let Some(ledger) = &self.sides.ledger else { return Err(order) };
        if self.overflow.len() >= OVERFLOW_MAX {
            tracing::warn!("too much waits for the ledger: something is not kept");
            return Err(order);
        }
        let given_back = if self.overflow.is_empty() { ledger.hand(order).err() } else { Some(order) };
        self.overflow.extend(given_back);
        Ok(())
    }

    /// Hands over what the ledger had no room for.
    pub(super) fn hand_over(&mut self) {
        let Some(ledger) = &self.sides.ledger else { return };
        while let Some(order) = self.overflow.pop_front() {
            if let Err(order) = ledger.hand(order) {
                self.overflow.push_front(order);
                return;
            }
        }
    }

    /// Something waits for room at the ledger.
    pub(super) fn overflows(&self) -> bool {
        !self.overflow.is_empty()
    }

    /// Nobody can ask any more, and what is not kept by then is the next start's.
    pub(super) fn close(mut self) {
        let began = Instant::now();
        let ended = self.sides.context_engine.as_ref().map(ContextEngine::end);
        self.hand_over();
        if let Some(ledger) = &self.sides.ledger {
            ledger.finish(LEDGER_END_WAIT_MAX);
        }
        if let Some(ended) = ended {
            // At the same time as the ledger, so that both together take no longer.
            let _ = ended.recv_timeout(LEDGER_END_WAIT_MAX.saturating_sub(began.elapsed()));
        }
        if let Some(index) = &self.sides.index {
            index.end();
        }
        if let Some(files) = self.sides.socket_files {
            files.remove();
        }
    }
}
